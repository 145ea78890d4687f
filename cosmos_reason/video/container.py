"""The container under a video: path → checked file → open stream (`open_video`) → `Index` of everything it can show.

Stamps are seconds on the container's own clock, as PyAV and ffprobe print them: a file that begins at 5 s has 5.0 as
its first stamp. `index_video` reads packets only, without decoding them, so a minute of video costs about 20 ms; a
file too large to be read through (`SCAN_BYTES`) is described by its header instead, if its last packets bear that out,
and its stamps are estimates.

N frames that the stream can show.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from cosmos_reason.errors import DataError

SCAN_BYTES = 512 * 2**20  # larger files are not read through: only what is needed is sought out
# So much may be missing at the end: some containers round what they promise, or count what is never shown.
MISSING_SHARE, MISSING_S = 0.05, 10.0
STILL_BRANDS = frozenset({"avif", "heic", "heix", "mif1"})  # pictures in an mp4 box
FROM_ZERO = frozenset({"matroska,webm", "flv", "asf"})  # their duration counts from the clock's zero, not the start
OF_THE_FILE = frozenset(
    {"matroska,webm", "flv"}
)  # a stream's duration is the file's here, the sound's if that's longer
DECODING_ORDER = frozenset({"avi", "asf"})  # containers that stamp packets in the order of decoding
# libav refuses packets of Theora streams that common encoder builds wrote; players leave the last picture standing.
LENIENT_CODECS = frozenset({"theora"})


@dataclass(frozen=True)
class Index:
    """What a file holds, found without decoding more than one picture."""

    path: str
    container: str
    codec: str
    width: int  # of the upright picture
    height: int
    rotation: int  # counter-clockwise quarter turns, in degrees, that make the coded picture upright
    has_alpha: bool
    has_audio: bool
    video_streams: int
    header_frames: int  # what the header claims, 0 where it claims nothing
    fps: float  # mean rate, 0.0 where it can't be known (one frame of unknown duration)
    frame_s: float  # how long the last frame stays on show
    stamps_s_N: np.ndarray  # float64, rising
    keys_s_K: np.ndarray  # float64, rising: stamps of key frames, where decoding can begin
    open_gop: bool  # some frames are shown before the key frame that they follow in the file
    exact: bool  # False: the stamps are an even grid estimated from the header
    counted: bool  # True: the stream has no stamps of its own; they are frame number / rate

    @property
    def lenient(self) -> bool:
        """Whether packets that can't be decoded are passed over instead of failing the file."""
        return self.codec in LENIENT_CODECS


def check_file(path: str) -> None:
    """DataError unless `path` is a readable, regular, non-empty file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(path, "no such file; check the path") from None
    except OSError as error:
        raise DataError(path, f"can't be reached ({error.strerror})") from None
    if stat.S_ISDIR(status.st_mode):
        raise DataError(path, "is a directory; give one video file")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(path, "is not a regular file; give one video file")
    if status.st_size == 0:
        raise DataError(path, "the file is empty (0 bytes); fetch or record it again")
    if not os.access(path, os.R_OK):
        raise DataError(path, "can't be read (permission denied)")


def address(path: str) -> str:
    """What to hand to libav for a file: it would take the relative name "a:b.mp4" for a URL."""
    return os.path.abspath(path)


@contextmanager
def open_video(path: str) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its main video stream. DataError where there is none or the file is no video."""
    check_file(path)
    try:
        container = av.open(address(path), metadata_errors="replace")
    except (av.error.FFmpegError, ValueError) as error:
        raise DataError(path, f"can't be opened as a video ({reason(error)}); it may be cut off or no video") from None
    with container:
        yield container, _main_stream(path, container)


def _main_stream(path: str, container: InputContainer) -> VideoStream:
    """The stream a player would show: libav's best one, cover pictures of music files left out."""
    name = container.format.name
    moving = _moving_streams(container)
    readable = [stream for stream in moving if stream.codec_context]
    if name == "tty":  # libav would draw a text file as a terminal
        raise DataError(path, "a text file, not a video; give a video file")
    if not moving and container.streams.audio:
        raise DataError(path, "audio only, no video stream; give a file with pictures")
    if not moving:
        raise DataError(path, "no video stream; give a file with pictures")
    if not readable:
        raise DataError(path, "its video is in a coding that no decoder here knows; convert it, e.g. to H.264")
    if name == "image2" or name.endswith("_pipe") or container.metadata.get("major_brand") in STILL_BRANDS:
        raise DataError(path, f"a still picture ({readable[0].codec_context.name}), not a video; give a video file")
    best = container.streams.best("video")
    return best if isinstance(best, VideoStream) and best in readable else readable[0]


def _moving_streams(container: InputContainer) -> list[VideoStream]:
    cover = av.stream.Disposition.attached_pic
    return [stream for stream in container.streams.video if not stream.disposition & cover]


def index_video(path: str, read_through: bool = False) -> Index:
    """Read what the file holds: stamps of every frame it can show, shape, rate. DataError where it is damaged.

    `read_through` is for a huge file whose pictures were found to have other stamps than its header lets expect.
    """
    with open_video(path) as (container, stream):
        first = _first_picture(path, container, stream)
        facts = _facts(path, container, stream, first)
        header_fps = _header_fps(stream)
        too_large = os.stat(path).st_size > SCAN_BYTES and not read_through
        grid_s_N = _estimated_stamps(container, stream) if too_large else None
    if grid_s_N is not None:
        return Index(
            **facts,
            fps=header_fps,
            frame_s=1 / header_fps,
            stamps_s_N=grid_s_N,
            keys_s_K=np.empty(0),
            open_gop=False,
            exact=False,
            counted=False,
        )
    scan = _scan(path)
    stamps_s_N, fps = scan.stamps_s_N, header_fps
    if scan.counted:
        fps = header_fps or 25.0  # libav's own assumption for streams without any clock
        stamps_s_N = _even(stamps_s_N, fps)
    elif len(stamps_s_N) > 1:
        fps = (len(stamps_s_N) - 1) / float(stamps_s_N[-1] - stamps_s_N[0])
    frame_s = scan.last_duration_s or (1 / fps if fps else 0.0)
    return Index(
        **facts,
        fps=fps,
        frame_s=frame_s,
        stamps_s_N=stamps_s_N,
        keys_s_K=scan.keys_s_K,
        open_gop=scan.open_gop,
        exact=True,
        counted=scan.counted,
    )


def _facts(path: str, container: InputContainer, stream: VideoStream, first: VideoFrame) -> dict:
    turned = first.rotation % 180 != 0
    return {
        "path": path,
        "container": container.format.name,
        "codec": stream.codec_context.codec.canonical_name,
        "width": first.height if turned else first.width,
        "height": first.width if turned else first.height,
        "rotation": first.rotation,
        "has_alpha": any(component.is_alpha for component in first.format.components),
        "has_audio": bool(container.streams.audio),
        "video_streams": len(_moving_streams(container)),
        "header_frames": stream.frames,
    }


def _first_picture(path: str, container: InputContainer, stream: VideoStream) -> VideoFrame:
    """Decode up to the first picture: it knows the true shape and rotation, and proves that the codec is there."""
    stream.codec_context.thread_count = 1
    error: Exception | None = None
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
            for frame in packet.decode():
                assert isinstance(frame, VideoFrame), "a video stream decodes to video frames"
                return frame
        except StopIteration:
            break
        except (av.error.FFmpegError, ValueError) as failure:
            error = error or failure
            if isinstance(failure, av.error.EOFError):
                break
    raise DataError(path, f"no picture can be decoded from it ({reason(error) if error else 'the stream is empty'})")


def _header_fps(stream: VideoStream) -> float:
    """The rate that the header claims or libav has found; 0.0 where it only guesses a picture for each clock tick."""
    guess = stream.guessed_rate
    if stream.average_rate or not guess or guess * (stream.time_base or 0) == 1:
        return float(stream.average_rate or 0)
    return float(guess)


@dataclass(frozen=True)
class _Scan:
    stamps_s_N: np.ndarray
    keys_s_K: np.ndarray
    open_gop: bool
    last_duration_s: float
    counted: bool


def _scan(path: str) -> _Scan:
    """Read every packet of the stream. DataError where the data break off before the header's end."""
    with open_video(path) as (container, stream):
        time_base = float(stream.time_base or 0)
        stamps: list[int | None] = []
        keys: list[int] = []
        end_s, open_gop, cut = 0.0, False, ""
        try:
            for packet in container.demux(stream):
                if packet.dts is None and packet.pts is None and packet.size == 0:
                    continue  # libav's end mark
                # An empty packet repeats the picture in Theora and shows nothing new elsewhere.
                if packet.is_discard or (packet.size == 0 and stream.codec_context.name != "theora"):
                    continue
                stamps.append(packet.pts)
                if packet.is_corrupt:
                    cut = "its data break off inside a packet"
                if packet.pts is not None:
                    if packet.is_keyframe:
                        keys.append(packet.pts)
                    open_gop = open_gop or (bool(keys) and packet.pts < keys[-1])
                    end_s = max(end_s, (packet.pts + (packet.duration or 0)) * time_base)
        except (av.error.FFmpegError, ValueError) as error:
            cut = f"its data break off ({reason(error)})"
        promised_s = _promised_end(container, stream)
        # B-frames are shown in another order than they are stored: stamps that rise with storage aren't presentation.
        reorders = stream.codec_context.has_b_frames and container.format.name in DECODING_ORDER
    if not stamps:
        raise DataError(path, "no picture can be read from it; it may be cut off")
    known = np.array([pts for pts in stamps if pts is not None], dtype=np.int64)
    rising = bool((np.diff(known) > 0).all())
    if len(known) == len(stamps) == len(np.unique(known)) and not (reorders and rising):
        known, key_pts = np.unique(known), np.unique(np.array(keys, dtype=np.int64))
        if len(key_pts) and len(known) > 1:
            known = known[known >= key_pts[0]]  # what precedes the first key frame can't be shown
        stamps_s_N, last_s = known * time_base, end_s - float(known[-1]) * time_base
        longest_s = float(np.diff(stamps_s_N).max(initial=0.0))
        tolerated_s = _tolerated_s(promised_s - float(stamps_s_N[0]), longest_s)
        if not cut and promised_s - max(end_s, stamps_s_N[-1]) > tolerated_s:
            cut = f"its header promises {promised_s:.2f} s"
        scan = _Scan(stamps_s_N, key_pts * time_base, open_gop, max(last_s, 0.0), counted=False)
    else:
        scan = _decoded_stamps(path)
    if cut:
        ending = f"its pictures end at {scan.stamps_s_N[-1]:.2f} s"
        raise DataError(path, f"truncated or damaged: {cut}, {ending}; fetch it again")
    return scan


def _promised_end(container: InputContainer, stream: VideoStream) -> float:
    """When the header says that this stream ends, in seconds; 0.0 where it says nothing about this stream alone."""
    # Matroska's "00:00:10.000000000"; what other tools write under this name has no known unit.
    tag = re.fullmatch(r"(\d+):(\d+):(\d+\.?\d*)\0*", stream.metadata.get("DURATION", ""))
    if tag:
        return int(tag[1]) * 3600 + int(tag[2]) * 60 + float(tag[3])
    late, alone = container.format.name not in FROM_ZERO, len(container.streams) == 1
    if stream.duration and stream.time_base and (alone or container.format.name not in OF_THE_FILE):
        return float((stream.duration + late * (stream.start_time or 0)) * stream.time_base)
    if container.duration and alone:
        return (container.duration + late * (container.start_time or 0)) / av.time_base
    return 0.0


def _tolerated_s(length_s: float, longest_s: float = 0.0) -> float:
    """How many seconds may be missing at the end of a stream of this length.

    `longest_s` is the longest that one of its pictures stays on show: so may the last one, without a word in the file.
    """
    return max(0.5, min(MISSING_SHARE * length_s, max(MISSING_S, longest_s)))


def _decoded_stamps(path: str) -> _Scan:
    """Stamps of a stream whose packets have none or wrong ones (elementary streams, old AVI): decode, keep times."""
    stamps: list[float | None] = []
    with open_video(path) as (container, stream):
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = 2
        try:
            stamps.extend(frame.time for frame in container.decode(stream))
        except (av.error.FFmpegError, ValueError) as error:
            raise DataError(path, f"damaged: picture {len(stamps)} can't be decoded ({reason(error)})") from None
    times_s = np.array([np.nan if t is None else t for t in stamps], dtype=np.float64)
    counted = bool(np.isnan(times_s).any() or (np.diff(times_s) <= 0).any())
    return _Scan(times_s, np.empty(0), False, 0.0, counted)


def _even(stamps_s_N: np.ndarray, fps: float) -> np.ndarray:
    """As many stamps at an even rate from the first one on, or from 0 where that isn't known."""
    first_s = 0.0 if np.isnan(stamps_s_N[0]) else float(stamps_s_N[0])
    return first_s + np.arange(len(stamps_s_N)) / fps


def _estimated_stamps(container: InputContainer, stream: VideoStream) -> np.ndarray | None:
    """An even grid from the header; None where that doesn't hold a true rate and duration, so a scan is needed."""
    rate = float(stream.average_rate or 0)
    start_s = float((stream.start_time or 0) * (stream.time_base or 0))
    end_s = _promised_end(container, stream) or (container.duration or 0) / av.time_base
    if rate <= 0 or end_s <= start_s or not _ends_at(end_s, _tolerated_s(end_s - start_s), container, stream):
        return None
    return start_s + np.arange(max(1, round((end_s - start_s) * rate))) / rate


def _ends_at(end_s: float, tolerance_s: float, container: InputContainer, stream: VideoStream) -> bool:
    """Whether the stream's last packets are there, sound, and the last of them ends at `end_s`."""
    assert stream.time_base, "a stream with a duration has a clock"
    last_s = -math.inf
    try:
        container.seek(round((end_s - tolerance_s) / stream.time_base), stream=stream, backward=True)
        for packet in container.demux(stream):
            ticks = packet.dts if packet.pts is None else packet.pts
            if packet.is_corrupt:
                return False
            if ticks is not None:
                last_s = max(last_s, float((ticks + (packet.duration or 0)) * stream.time_base))
    except (av.error.FFmpegError, ValueError):
        return False
    return abs(end_s - last_s) <= tolerance_s


def reason(error: Exception) -> str:
    """libav's own words, without the number and the name of its C function."""
    words = error.strerror if isinstance(error, av.error.FFmpegError) else str(error)
    return (words or type(error).__name__).lower()
