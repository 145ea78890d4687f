"""Clips whose frames say which they are: every picture carries its number in blocks that survive lossy coding.

`write` makes a file with any codec, container, stamps and rotation; `number` reads a picture's number back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av.packet import Packet

BITS = 8
QUIET = {"libx265": {"x265-params": "log-level=none"}, "libsvtav1": {"preset": "12", "svtav1-params": "lp=1"}}


def picture(index: int, width: int = 128, height: int = 96) -> np.ndarray:
    """Bit b of `index` is the b-th column of the upper half; the lower half is red at the left, blue at the right."""
    picture_HWC = np.zeros((height, width, 3), dtype=np.uint8)
    for bit in range(BITS):
        picture_HWC[: height // 2, bit * width // BITS : (bit + 1) * width // BITS] = 255 * (index >> bit & 1)
    picture_HWC[height // 2 :, : width // 2, 0] = 255
    picture_HWC[height // 2 :, width // 2 :, 2] = 255
    return picture_HWC


def number(picture_HWC: np.ndarray) -> int:
    """The number that `picture` wrote (modulo 256)."""
    row = picture_HWC[picture_HWC.shape[0] // 4].mean(axis=-1)
    width = len(row)
    return sum(int(row[(2 * bit + 1) * width // (2 * BITS)] > 127) << bit for bit in range(BITS))


def numbers(pixels_THWC: np.ndarray) -> list[int]:
    return [number(picture_HWC) for picture_HWC in pixels_THWC]


def write(
    path: Path,
    frames: int = 20,
    fps: int = 10,
    codec: str = "libx264",
    *,
    size: tuple[int, int] = (128, 96),
    stamps_ms: Sequence[int] | None = None,
    rotation: int | None = None,
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    muxer: dict[str, str] | None = None,
    streams: int = 1,
    audio_s: float = 0.0,
) -> str:
    """Write a clip; frame i is `picture(i)`, shown at i/fps or at `stamps_ms[i]`. Stream k > 0 shows number 200 + k."""
    clock = Fraction(1, 1000) if stamps_ms is not None else Fraction(1, fps)
    with av.open(str(path), "w", options=muxer or {}) as container:
        videos = []
        for _ in range(streams):
            video = container.add_stream(codec, rate=fps, options={**QUIET.get(codec, {}), **(options or {})})
            video.width, video.height, video.pix_fmt = *size, pix_fmt
            video.codec_context.time_base = clock
            video.codec_context.thread_count = 1  # the tests' own processes fill the cores
            if rotation is not None:
                video.set_display_rotation(rotation)
            videos.append(video)
        sound = container.add_stream("aac", rate=8000) if audio_s else None
        if sound is not None:
            _mux_silence(container, sound, audio_s)
        for index in range(frames):
            for k, video in enumerate(videos):
                frame = av.VideoFrame.from_ndarray(picture(200 + k if k else index, *size), format="rgb24")
                frame.pts = stamps_ms[index] if stamps_ms is not None else index
                frame.time_base = clock
                container.mux(video.encode(frame))
        for video in videos:
            container.mux(video.encode())
    return str(path)


def write_audio(path: Path, seconds: float = 1.0) -> str:
    with av.open(str(path), "w") as container:
        _mux_silence(container, container.add_stream("aac", rate=8000), seconds)
    return str(path)


def _mux_silence(container, sound, seconds: float) -> None:
    silence = av.AudioFrame.from_ndarray(np.zeros((1, int(8000 * seconds)), np.float32), format="fltp", layout="mono")
    silence.sample_rate = 8000
    container.mux(sound.encode(silence))
    container.mux(sound.encode())


def write_long(path: Path, seconds: int, fps: int = 24, size: tuple[int, int] = (128, 96)) -> str:
    """A long film, cheaply: one coded group of pictures (one second) written again and again with later stamps."""
    short = path.with_name("group" + path.suffix)
    write(short, fps, fps, size=size, options={"g": str(fps), "bf": "0", "preset": "ultrafast"})
    with av.open(str(short)) as source, av.open(str(path), "w") as target:
        group = [(packet.pts, packet.is_keyframe, bytes(packet)) for packet in source.demux(video=0) if packet.size]
        base = source.streams.video[0].time_base
        video = target.add_stream_from_template(source.streams.video[0])
        length = round(1 / base)
        for second in range(seconds):
            for pts, key, data in group:
                packet = Packet(data)
                packet.pts = packet.dts = pts + second * length
                packet.time_base, packet.stream, packet.is_keyframe = base, video, key
                target.mux(packet)
    short.unlink()
    return str(path)


class _Pipe:
    """A file that can be written only onwards: no muxer goes back to note duration and index in its head."""

    def __init__(self, sink: BinaryIO) -> None:
        self.write = sink.write


def through_pipe(source_path: str, path: Path, muxer: dict[str, str] | None = None) -> str:
    """Copy the pictures of a clip into a container of the ending of `path`, as a recorder does into a pipe."""
    form = {".mkv": "matroska"}.get(path.suffix, path.suffix[1:])
    with (
        open(path, "wb") as sink,
        av.open(source_path) as source,
        av.open(_Pipe(sink), "w", format=form, options=muxer or {}) as target,
    ):
        video = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = video
                target.mux(packet)
    return str(path)


def retag(path: str, duration: str) -> str:
    """Give the DURATION tag of a Matroska file another text of at most 18 characters."""
    data = Path(path).read_bytes()
    at = data.index(b"DURATION")
    at = at + re.search(rb"\d\d:\d\d:\d\d\.\d{9}", data[at:]).start()
    Path(path).write_bytes(data[:at] + duration.encode().ljust(18, b"\0") + data[at + 18 :])
    return path


def overwrite_middle(path: str, length: int = 200, seed: int = 0) -> str:
    """Replace `length` bytes in the middle of the file by noise."""
    data = bytearray(Path(path).read_bytes())
    middle = len(data) // 2
    data[middle : middle + length] = np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()
    Path(path).write_bytes(data)
    return path


def blank_middle(path: str) -> str:
    """Replace three tenths of the file, from four tenths on, by zeros, as a download that skipped a piece."""
    data = bytearray(Path(path).read_bytes())
    begin, end = len(data) * 4 // 10, len(data) * 7 // 10
    data[begin:end] = bytes(end - begin)
    Path(path).write_bytes(data)
    return path


def truth(path: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The slow twin: decode every frame in order with PyAV; stamps and RGB pictures."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        shown: Iterable[av.VideoFrame] = container.decode(stream)
        pairs = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in shown]
    return np.array([time_s for time_s, _ in pairs]), [picture_HWC for _, picture_HWC in pairs]
