"""Frame store: samples' videos -> one memory-mapped uint8 array of resized frames, decoded once, shared by every run.

`FrameStore.build` decodes each distinct clip of a sample list in worker processes, writes `frames.npy` and `index.json`
into a new folder and renames it last, so that a store either exists whole or not at all. Clips that fail to decode are
kept out, counted and listed with their reason in `index.json`.

N clips, T frames, H height, W width, C channels.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.simulate.dataset import read_timeline, timeline_path
from cosmos_reason.types import Frames, Sample, Timeline, VideoRef
from cosmos_reason.video import FrameSpec, decode_in_process, pad_to_multiple

MAX_FAILED_SHARE = 0.02  # a run stops when more of its clips than this cannot be decoded


def clip_key(ref: VideoRef) -> str:
    """A clip's name in the store: its whole path and span, never the base name alone (two folders may share one)."""
    return f"{ref.path}|{ref.start_s}|{ref.end_s}"


def resize_frames(pixels_THWC: np.ndarray, size: int) -> np.ndarray:
    """Antialiased square resize to (T, size, size, 3) uint8; pictures of that size already are passed through."""
    if pixels_THWC.shape[1:3] == (size, size):
        return pixels_THWC
    frames = [
        Image.fromarray(p).resize((size, size), Image.Resampling.BILINEAR, reducing_gap=None) for p in pixels_THWC
    ]
    return np.stack([np.asarray(frame) for frame in frames])


def _decode_one(task: tuple[VideoRef, int, int]) -> tuple[np.ndarray, np.ndarray] | str:
    ref, count, size = task
    try:
        frames = decode_in_process(ref, FrameSpec(count=count))
    except DataError as error:
        return str(error)
    frames = pad_to_multiple(frames, count)  # a shorter clip repeats its last frame: rows of a store have one shape
    return resize_frames(frames.pixels_THWC, size), frames.times_s_T


def told_clips(samples: Iterable[Sample], store: FrameStore) -> list[tuple[VideoRef, Timeline]]:
    """The whole clips of the store beside which a timeline lies, each once, with that timeline."""
    refs = {clip_key(s.video): s.video for s in samples if s.video in store and s.video.end_s is None}
    return [(ref, read_timeline(path)) for ref in refs.values() if (path := timeline_path(ref)).is_file()]


@dataclass(frozen=True)
class FrameStore:
    """Resized frames of many clips. `pixels_NTHWC` is memory-mapped and read-only; `folder` is named by content."""

    folder: Path
    pixels_NTHWC: np.ndarray
    times_s_NT: np.ndarray
    rows: dict[str, int]
    failed: dict[str, str]

    def __contains__(self, ref: VideoRef) -> bool:
        return clip_key(ref) in self.rows

    def row(self, ref: VideoRef) -> int:
        """The clip's row; asking for one that failed to decode is a bug of the caller."""
        return self.rows[clip_key(ref)]

    def frames(self, ref: VideoRef) -> Frames:
        """The stored frames as the noun that prompts take."""
        row = self.row(ref)
        return Frames(np.asarray(self.pixels_NTHWC[row]), self.times_s_NT[row], 0.0, -1, "store")

    @staticmethod
    def build(
        samples: Iterable[Sample],
        cache: Path,
        count: int,
        size: int,
        workers: int = 2,
        progress: Callable[[int, int], None] | None = None,
    ) -> FrameStore:
        """Decode what `samples` need, once; a store for the same clips, count and size is opened instead of made."""
        refs = [ref for _, ref in sorted({clip_key(s.video): s.video for s in samples}.items())]
        if not refs:
            raise UserError("no sample to take frames from: give a set with at least one row")
        stamp = hashlib.sha256(json.dumps([[clip_key(r), _file_stamp(r.path)] for r in refs]).encode()).hexdigest()[:16]
        folder = cache / f"frames-{count}x{size}-{stamp}"
        if not folder.is_dir():
            _write(folder, refs, count, size, workers, progress)
        return FrameStore.open(folder)

    @staticmethod
    def open(folder: Path) -> FrameStore:
        """Map a finished store."""
        index = json.loads((folder / "index.json").read_text())
        store = FrameStore(
            folder,
            np.load(folder / "frames.npy", mmap_mode="r"),
            np.load(folder / "times.npy"),
            {key: row for row, key in enumerate(index["keys"])},
            index["failed"],
        )
        total = len(store.rows) + len(store.failed)
        if len(store.failed) > MAX_FAILED_SHARE * total:
            first = next(iter(store.failed.values()))
            raise UserError(
                f"{len(store.failed)} of {total} clips cannot be decoded, more than {MAX_FAILED_SHARE:.0%}; the first: "
                f"{first}; all reasons are in {folder / 'index.json'}"
            )
        return store


def _file_stamp(path: str) -> list[int]:
    stat = os.stat(path) if os.path.exists(path) else None
    return [stat.st_size, stat.st_mtime_ns] if stat else []


def _write(
    folder: Path,
    refs: list[VideoRef],
    count: int,
    size: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    shape = (len(refs), count, size, size, 3)
    pixels = np.lib.format.open_memmap(partial / "frames.npy", mode="w+", dtype=np.uint8, shape=shape)
    times_s = np.zeros((len(refs), count))
    keys: list[str] = []
    failed: dict[str, str] = {}
    for done, (ref, result) in enumerate(zip(refs, _decoded(refs, count, size, workers), strict=True), 1):
        if isinstance(result, str):
            failed[clip_key(ref)] = result
        else:
            pixels[len(keys)], times_s[len(keys)] = result
            keys.append(clip_key(ref))
        if progress:
            progress(done, len(refs))
    pixels.flush()
    np.save(partial / "times.npy", times_s)
    (partial / "index.json").write_text(json.dumps({"keys": keys, "failed": failed}))
    partial.rename(folder)


def _decoded(
    refs: list[VideoRef], count: int, size: int, workers: int
) -> Iterator[tuple[np.ndarray, np.ndarray] | str]:
    tasks = [(ref, count, size) for ref in refs]
    if workers <= 1:
        yield from map(_decode_one, tasks)
        return
    # Spawned: a fork would copy the threads' locks of a process that has torch loaded.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_decode_one, tasks, chunksize=16)
