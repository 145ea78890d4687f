"""VideoRef + FrameSpec → Frames: index the file, choose frames by their stamps, read those with the first decoder fit.

Per file, decord (torchcodec where decord isn't installed) if it reads it beyond doubt, else PyAV; `Frames.backend` says
which.
`decode` works in a supervised process under a time limit; `decode_in_process` is for processes supervised otherwise.
"""

from __future__ import annotations

import numpy as np

from cosmos_reason.errors import DataError
from cosmos_reason.types import Frames, VideoRef
from cosmos_reason.video import supervise
from cosmos_reason.video.container import Index, index_video
from cosmos_reason.video.readers import Doubt, Pictures, fast_reader, read_pyav
from cosmos_reason.video.sample import FrameSpec, check_range, choose, fit


def decode(ref: VideoRef, spec: FrameSpec, timeout_s: float = 60.0) -> Frames:
    """The frames of `ref` that `spec` asks for, upright RGB, with their true presentation stamps.

    Never takes longer than `timeout_s` seconds, never more memory than the kept frames and a decoder need. Raises
    DataError naming the file where it is missing, damaged, no video or too slow, or where the stretch lies outside;
    UserError where the stretch or an explicit time can't be.
    """
    check_range(ref)
    try:
        frames = supervise.call("decode", (ref, spec), ref.path, timeout_s)
    except supervise.Crashed:  # decord's native threads can take the process down; PyAV's errors are Python's
        try:
            frames = supervise.call("decode", (ref, spec, True), ref.path, timeout_s)
        except supervise.Crashed:
            raise DataError(ref.path, "the decoder process died on it; the file is damaged or memory ran out") from None
    assert isinstance(frames, Frames), f"the decoder process answered a {type(frames).__name__} to decode"
    return frames


def decode_in_process(ref: VideoRef, spec: FrameSpec, only_pyav: bool = False) -> Frames:
    """`decode` in this process and without a time limit, for workers that something else supervises.

    While decord reads, the process's stderr is collected to learn of concealed damage. `only_pyav` leaves decord out.
    """
    check_range(ref)
    try:
        return _decode(index_video(ref.path), ref, spec, only_pyav)
    except Doubt:  # of the estimated stamps of a huge file; those of a scan are beyond doubt
        return _decode(index_video(ref.path, read_through=True), ref, spec, only_pyav)


def _decode(index: Index, ref: VideoRef, spec: FrameSpec, only_pyav: bool) -> Frames:
    choice = choose(index.stamps_s_N, spec, ref, index.frame_s)
    size = fit(index.width, index.height, spec.max_pixels)
    pictures = _read(index, np.unique(choice.indices_T), size, only_pyav)
    pixels_THWC, times_s_T = pictures.pixels_THWC, pictures.times_s_T
    if (np.diff(choice.indices_T) <= 0).any():  # explicit times, repeated or out of order: give them as asked
        wanted_s_T = index.stamps_s_N[choice.indices_T]
        order_T = np.abs(times_s_T[None, :] - wanted_s_T[:, None]).argmin(axis=1)
        pixels_THWC, times_s_T = pixels_THWC[order_T], times_s_T[order_T]
    return Frames(
        pixels_THWC=pixels_THWC,
        times_s_T=times_s_T,
        source_fps=index.fps,
        source_frames=len(index.stamps_s_N) if index.exact else -1,
        backend=pictures.backend,
        asked=choice.asked,
    )


def _read(index: Index, wanted_T: np.ndarray, size: tuple[int, int], only_pyav: bool) -> Pictures:
    """The fast decoder's pictures where they are beyond doubt, else PyAV's, else its DataError or its own Doubt."""
    fast = None if only_pyav else fast_reader()
    if fast is not None:
        try:
            return fast(index, wanted_T, size)
        except Doubt:
            pass  # not an error: PyAV reads it or says what is wrong
    return read_pyav(index, wanted_T, size)
