"""What is in this file? path → `VideoInfo`, under a time limit (`probe`) or in this process (`probe_in_process`)."""

from __future__ import annotations

from dataclasses import dataclass

from cosmos_reason.video.container import index_video
from cosmos_reason.video.supervise import call


@dataclass(frozen=True)
class VideoInfo:
    """What a file shows. Example: ``VideoInfo("a.mp4", "mov,mp4", "h264", 640, 480, 0, 30.0, 10.0, 0.0, 300, …)``."""

    path: str
    container: str
    codec: str
    width: int  # of the upright picture
    height: int
    rotation: int  # degrees counter-clockwise that decode applies, -180..180
    fps: float  # mean rate from the stamps, frames per second; 0.0 where unknown
    duration_s: float  # how long pictures are on show: last stamp − first stamp + the last frame's own time
    start_s: float  # stamp of the first picture on the container's clock
    frames: int  # pictures that can be shown, -1 where the file is too large to be read through
    header_frames: int  # what the header claims, -1 where it claims nothing
    has_audio: bool
    video_streams: int


def probe(path: str, timeout_s: float = 20.0) -> VideoInfo:
    """Describe a video file; the work is done in a process that is killed after `timeout_s` seconds.

    Raises DataError naming the file where it is missing, empty, damaged, slow or not a video.
    """
    info = call("probe", (str(path),), str(path), timeout_s)
    assert isinstance(info, VideoInfo), f"the decoder process answered a {type(info).__name__} to probe"
    return info


def probe_in_process(path: str) -> VideoInfo:
    """`probe` without time limit, for processes that are themselves supervised."""
    index = index_video(path)
    return VideoInfo(
        path=path,
        container=index.container,
        codec=index.codec,
        width=index.width,
        height=index.height,
        rotation=index.rotation,
        fps=index.fps,
        duration_s=float(index.stamps_s_N[-1] - index.stamps_s_N[0]) + index.frame_s,
        start_s=float(index.stamps_s_N[0]),
        frames=len(index.stamps_s_N) if index.exact else -1,
        header_frames=index.header_frames or -1,
        has_audio=index.has_audio,
        video_streams=index.video_streams,
    )
