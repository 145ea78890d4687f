"""Video in: file → `Frames`. `probe` looks, `decode` reads, `FrameSpec` says which frames, `draw` shows them."""

from __future__ import annotations

from cosmos_reason.video.decode import decode, decode_in_process
from cosmos_reason.video.draw import burn_timestamps, load_image, save_strip, strip
from cosmos_reason.video.probe import VideoInfo, probe, probe_in_process
from cosmos_reason.video.sample import FrameSpec, pad_to_multiple

__all__ = [
    "FrameSpec",
    "VideoInfo",
    "burn_timestamps",
    "decode",
    "decode_in_process",
    "load_image",
    "pad_to_multiple",
    "probe",
    "probe_in_process",
    "save_strip",
    "strip",
]
