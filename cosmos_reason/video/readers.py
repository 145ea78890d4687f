"""Kept frames out of a file: `Index` + wanted stamps → pixels, one function a decoder, all with one signature.

decord is fast but trusting: it ignores rotation and alpha, counts packets, and conceals damage. `read_decord` takes
only files where its own view agrees with the container's and raises `Doubt` on the slightest complaint; so does
`read_torchcodec`, which stands in where decord isn't built (`fast_reader`). `read_pyav` then judges. All keep only the
wanted pictures, scaled on arrival, so memory follows T and not the file's length.

T wanted frames, H height, W width, C channels (RGB).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from cosmos_reason.errors import DataError
from cosmos_reason.video.container import Index, address, open_video, reason
from cosmos_reason.video.sample import TICK_S

DECORD_BATCH_BYTES = 64 * 2**20  # full-size frames that decord may hold at a time
# Estimated stamps come true within the larger of these, if the stream is as even as its header says.
ESTIMATE_S, ESTIMATE_FRAMES = 1.0, 3.0
ASSUMED_KEY_GAP_S = 5.0  # where a seek lands late or key frames aren't known: begin so long before the target
# Elsewhere decord was seen to return other frames than it was asked for without a word: after a seek (ASF, MPEG-TS,
# H.263 in AVI) or behind a damaged picture (MPEG-2).
DECORD_CONTAINERS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flv"})
DECORD_CODECS = frozenset({"h264", "hevc", "vp8", "vp9"})

_stderr_lock = threading.Lock()  # the process has one stderr


def reader_order() -> tuple[str, ...]:
    """The readers that a file is offered to on this machine, in turn: at most one fast one, then PyAV.

    A fast one that is installed but can't be loaded is offered the files too, and doubts them all.
    """
    fast = [name for name in ("decord", "torchcodec") if importlib.util.find_spec(name) is not None]
    return (*fast[:1], "pyav")


def fast_reader() -> Callable[[Index, np.ndarray, tuple[int, int]], Pictures] | None:
    """decord, torchcodec on machines that decord isn't built for, or None where neither is installed."""
    return {"decord": read_decord, "torchcodec": read_torchcodec}.get(reader_order()[0])


class Doubt(Exception):
    """This decoder may not read this file rightly, or not by this index; another one should."""


@dataclass(frozen=True)
class Pictures:
    """What a reader hands back: frames and the stamps they really have."""

    pixels_THWC: np.ndarray  # uint8
    times_s_T: np.ndarray  # float64
    backend: str


Picture = tuple[float, np.ndarray]  # stamp in seconds, pixels_HWC


def read_decord(index: Index, wanted_T: np.ndarray, size: tuple[int, int]) -> Pictures:
    """Frames by number through decord. Raises Doubt where decord's view differs from the container's."""
    if index.rotation or index.has_alpha or index.video_streams > 1:
        raise Doubt("decord knows neither rotation nor alpha, nor which of several streams is meant")
    if index.open_gop or index.container not in DECORD_CONTAINERS or index.codec not in DECORD_CODECS:
        raise Doubt("decord miscounts after a seek into an open group, and in older containers and codings")
    if not index.exact:
        raise Doubt("decord reads huge files through")
    decord = _load("decord")
    pixels_THWC = np.empty((len(wanted_T), size[1], size[0], 3), dtype=np.uint8)
    with _complaints() as complaints:
        try:
            reader = decord.VideoReader(address(index.path), ctx=decord.cpu(0), num_threads=1)
            _agree(reader, index)
            chunk = max(1, DECORD_BATCH_BYTES // (index.width * index.height * 3))
            for begin in range(0, len(wanted_T), chunk):
                batch = reader.get_batch(wanted_T[begin : begin + chunk].tolist()).asnumpy()
                for offset, picture_HWC in enumerate(batch):
                    pixels_THWC[begin + offset] = scaled(picture_HWC, size)
        except (decord.DECORDError, RuntimeError, IndexError, ValueError) as error:
            raise Doubt(f"decord: {error}") from None
    if complaints:
        raise Doubt(f"decord complained: {complaints[0]}")
    return Pictures(pixels_THWC, index.stamps_s_N[wanted_T], f"decord {version('decord')}")


def _agree(reader, index: Index) -> None:  # type: ignore[no-untyped-def]  # decord has no types
    """Doubt unless decord counts the same frames at the same distances and of the same shape."""
    if len(reader) != len(index.stamps_s_N):
        raise Doubt(f"decord counts {len(reader)} frames, the container holds {len(index.stamps_s_N)}")
    stamps_s_N = reader.get_frame_timestamp(list(range(len(reader))))[:, 0].astype(np.float64)
    drift_s = np.abs((stamps_s_N - stamps_s_N[0]) - (index.stamps_s_N - index.stamps_s_N[0]))
    # decord's stamps are float32, exact to a millisecond for two hours and a half
    if not float(drift_s.max()) <= max(TICK_S, index.frame_s / 2):
        raise Doubt("decord's stamps differ from the container's")


def read_torchcodec(index: Index, wanted_T: np.ndarray, size: tuple[int, int]) -> Pictures:
    """Frames by time through torchcodec. Raises Doubt where its stamps or shapes differ from the container's."""
    if index.has_alpha or index.video_streams > 1 or index.lenient or not index.exact:
        raise Doubt("alpha, several streams, huge and faulty files are PyAV's")
    decoders = _load("torchcodec.decoders")  # imports torch: only where it stands in for decord
    pixels_THWC = np.empty((len(wanted_T), size[1], size[0], 3), dtype=np.uint8)
    with _complaints() as complaints:
        try:
            decoder = decoders.VideoDecoder(address(index.path), dimension_order="NHWC", num_ffmpeg_threads=2)
            for place, target_s in enumerate(index.stamps_s_N[wanted_T].tolist()):
                frame = decoder.get_frame_played_at(target_s)
                picture_HWC = frame.data.numpy()
                if picture_HWC.shape[:2] != (index.height, index.width):
                    raise Doubt(f"torchcodec shows {picture_HWC.shape}, not {index.height} × {index.width}")
                if abs(float(frame.pts_seconds) - target_s) > TICK_S:
                    raise Doubt(f"torchcodec's frame is at {frame.pts_seconds} s, not {target_s} s")
                pixels_THWC[place] = scaled(picture_HWC, size)
        except (RuntimeError, ValueError, IndexError) as error:
            raise Doubt(f"torchcodec: {error}") from None
    if complaints:
        raise Doubt(f"torchcodec complained: {complaints[0]}")
    return Pictures(pixels_THWC, index.stamps_s_N[wanted_T], f"torchcodec {version('torchcodec')}")


def _load(module: str) -> ModuleType:
    """Import a decoder, which is heavy. Doubt where it is installed but broken, e.g. for want of a shared library."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        raise Doubt(f"{module} can't be imported: {error}") from None


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what native code writes to the process's stderr meanwhile: libav's only word about concealed damage."""
    lines: list[str] = []
    with _stderr_lock, tempfile.TemporaryFile() as sink:
        saved = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            sink.seek(0)
            lines.extend(sink.read().decode(errors="replace").splitlines())


def read_pyav(index: Index, wanted_T: np.ndarray, size: tuple[int, int]) -> Pictures:
    """Frames by time through PyAV: seek to the key frame before each, decode on, keep the nearest.

    Raises DataError where anything on the way is damaged, or a wanted frame can't be shown; Doubt where the pictures
    aren't where estimated stamps say.
    """
    targets_s = index.stamps_s_N[wanted_T]
    # Some containers land behind the target or restart their clock after a seek: then from further back, then in order.
    chosen: list[Picture] | None = None
    for margin_s in (0.0, ASSUMED_KEY_GAP_S, None):
        if margin_s is None and not index.exact:
            raise Doubt("a huge file whose header misleads; to scan it is cheaper than to decode all of it")
        if margin_s is None or not index.counted:
            chosen = _sweep(index, targets_s, size, margin_s)
        if chosen is not None and not _misses(index, targets_s, chosen):
            break
    assert chosen is not None, "a sweep from the start lands"
    times_s_T = np.array([time_s for time_s, _ in chosen], dtype=np.float64)
    for worst in _misses(index, targets_s, chosen)[:1]:
        missing = f"the frame at {targets_s[worst]:.3f} s can't be decoded"
        nearest = f"the nearest that can is at {times_s_T[worst]:.3f} s"
        raise DataError(index.path, f"damaged: {missing}, {nearest}; fetch the file again")
    # A faulty or estimated stream can answer two targets with one frame: it is given once, as in any short clip.
    _, kept = np.unique(times_s_T, return_index=True)
    return Pictures(np.stack([chosen[i][1] for i in kept]), times_s_T[kept], f"pyav {av.__version__}")


def _misses(index: Index, targets_s: np.ndarray, chosen: list[Picture]) -> list[int]:
    """Which targets were answered by another frame; none in files whose packets are faulty anyway."""
    if index.lenient:
        return []
    tolerance_s = TICK_S if index.exact else max(ESTIMATE_S, ESTIMATE_FRAMES / index.fps)
    return [i for i, (time_s, _) in enumerate(chosen) if abs(time_s - targets_s[i]) > tolerance_s]


def _sweep(index: Index, targets_s: np.ndarray, size: tuple[int, int], margin_s: float | None) -> list[Picture] | None:
    """(stamp, picture) nearest to each rising target, in one pass over the file that jumps over what nobody wants.

    A jump aims `margin_s` before the key frame that a target needs; None: no jumps, everything in order. Returns None
    where a jump failed or landed behind its target: this container can't be sought in so.
    """
    chosen: list[Picture] = []
    with open_video(index.path) as (container, stream):
        # Frame threads would report a refused packet one picture late.
        stream.thread_type = "SLICE" if index.lenient else "AUTO"
        stream.codec_context.thread_count = 2
        pictures = _pictures(index, container, stream)
        before, after = None, next(pictures, None)
        for target_s in targets_s.tolist():
            key_s = None if margin_s is None else _key_before(index, target_s)
            entry_s = None if key_s is None or margin_s is None else key_s - margin_s
            if after is not None and entry_s is not None and entry_s > after[0] + TICK_S:
                try:
                    container.seek(_ticks(entry_s, stream), stream=stream, backward=True)
                except av.error.FFmpegError:
                    return None
                pictures = _pictures(index, container, stream, from_key=True)
                before, after = None, next(pictures, None)
                if after is None or after[0] > target_s + TICK_S:
                    return None
            while after is not None and after[0] < target_s:
                before, after = after, next(pictures, None)
            at_hand = [picture for picture in (before, after) if picture is not None]
            if not at_hand:
                raise DataError(index.path, f"damaged: no picture can be decoded at {target_s:.3f} s; fetch it again")
            time_s, frame = min(at_hand, key=lambda picture: abs(picture[0] - target_s))
            chosen.append((time_s, _rgb(frame, index, size)))
    return chosen


def _pictures(
    index: Index, container: InputContainer, stream: VideoStream, from_key: bool = False
) -> Iterator[tuple[float, VideoFrame]]:
    """(stamp, frame) in order of showing from where the container stands. DataError on damage that libav can see.

    `from_key`: pass over packets up to the first key frame, and those after it that are shown before it, as after a
    seek they lack what they refer to. In a lenient codec the pictures between a refused packet and the next key frame
    are passed over too: they build on garbage.
    """
    sound, keyed, shown = True, False, 0
    key_pts: int | None = None
    for packet in _packets(index, container, stream):
        if packet.size == 0 and packet.pts is not None:
            continue  # the picture before stays; libav's decoders would take this for the end
        if from_key and packet.size:
            if key_pts is None and packet.is_keyframe:
                key_pts = packet.pts
            if key_pts is None or (packet.pts is not None and packet.pts < key_pts):
                continue
        if packet.is_corrupt and not index.exact:  # elsewhere the scan has looked
            raise DataError(index.path, f"damaged near {_time_of(packet):.2f} s (a packet is torn); fetch it again")
        try:
            frames = packet.decode()
        except (av.error.FFmpegError, ValueError) as error:
            if not index.lenient:
                where = f"damaged near {_time_of(packet):.2f} s"
                raise DataError(index.path, f"{where} ({reason(error)}); fetch it again") from None
            frames, sound = [], False
        for frame in frames:
            assert isinstance(frame, VideoFrame), "a video stream decodes to video frames"
            keyed = keyed or bool(frame.key_frame)
            sound = sound or bool(frame.key_frame)
            time_s = index.stamps_s_N[0] + shown / index.fps if index.counted else frame.time
            shown += 1
            if frame.is_corrupt and not keyed:
                continue  # a recording that begins between two key frames
            if frame.is_corrupt and sound and not index.lenient:
                raise DataError(index.path, f"damaged: the picture at {time_s or 0:.2f} s is corrupt; fetch it again")
            if time_s is not None and sound:
                yield time_s, frame


def _packets(index: Index, container: InputContainer, stream: VideoStream) -> Iterator[av.Packet]:
    """Packets in order of storage. DataError where the data break off, which a scan would have found."""
    try:
        yield from container.demux(stream)
    except (av.error.FFmpegError, ValueError) as error:
        raise DataError(index.path, f"damaged: its data break off ({reason(error)}); fetch it again") from None


def _time_of(packet: av.Packet) -> float:
    ticks = packet.pts if packet.pts is not None else packet.dts
    return float((ticks or 0) * (packet.time_base or 0))


def _key_before(index: Index, target_s: float) -> float | None:
    """Where decoding for this target would have to begin; None where that isn't known."""
    if not index.exact:
        return target_s - ASSUMED_KEY_GAP_S if target_s > ASSUMED_KEY_GAP_S else None
    position = int(np.searchsorted(index.keys_s_K, target_s + TICK_S, side="right"))
    return float(index.keys_s_K[position - 1]) if position else None


def _ticks(time_s: float, stream: VideoStream) -> int:
    assert stream.time_base, "a stream that is sought in has a clock"
    return round(time_s / float(stream.time_base))


def _rgb(frame: VideoFrame, index: Index, size: tuple[int, int]) -> np.ndarray:
    """Upright RGB of the wanted size; what is transparent is laid on white, as on a page."""
    if index.has_alpha:
        over = Image.fromarray(frame.to_ndarray(format="rgba"))
        page = Image.new("RGBA", over.size, (255, 255, 255, 255))
        picture_HWC = np.asarray(Image.alpha_composite(page, over).convert("RGB"))
    else:
        picture_HWC = frame.to_ndarray(format="rgb24")
    return scaled(np.rot90(picture_HWC, k=round(index.rotation / 90)), size)


def scaled(picture_HWC: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The picture at (width, height) `size`; smoothed where it shrinks."""
    if picture_HWC.shape[1::-1] == size:
        return picture_HWC
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture_HWC)).resize(size, Image.Resampling.BICUBIC))
