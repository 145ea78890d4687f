"""Sets of simulated clips on disk: families, seeds -> a folder -> Samples, balanced.

    videos/<clip>.mp4        H.264, yuv420p, 16 frames at 8 Hz
    timelines/<clip>.json    state, events, facts, caption
    samples.jsonl            one question a line, video paths relative to the folder

A clip depends on its family and seed alone, so a set can be continued after an interruption, and grown. Seeds from
TEST_SEED on are for testing: no training set may use them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.simulate.balance import balance
from cosmos_reason.types import Event, Frames, ObjectTrack, Sample, Timeline, VideoRef

__all__ = [
    "TEST_SEED", "write_set", "write_video", "read_set", "training_set", "read_timeline", "timeline_to_json",
    "sample_to_json", "sample_from_json", "balance",
]  # fmt: skip

TEST_SEED = 1_000_000_000


def write_set(
    folder: Path,
    families: Sequence[str],
    clips_per_family: int,
    first_seed: int,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Simulate `clips_per_family` clips of each family, from `first_seed` on, and ask all questions about them.

    Clips that are there already are kept. `progress` is called with (clips done, clips wanted). Returns `folder`.
    """
    if clips_per_family < 1 or workers < 1:
        raise UserError(f"wanted at least 1 clip and 1 worker, got {clips_per_family} and {workers}")
    folder = Path(folder)
    for name in ("videos", "timelines"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # Family by family: a manipulation task is costly to set up, and a process keeps only one.
    wanted = [(family, first_seed + i) for family in families for i in range(clips_per_family)]
    missing = [(folder, family, seed) for family, seed in wanted if not _complete(folder, f"{family}_{seed}")]
    done = len(wanted) - len(missing)
    if progress:
        progress(done, len(wanted))
    for _ in _worked(missing, workers):
        done += 1
        if progress:
            progress(done, len(wanted))
    _write_samples(folder, [f"{family}_{seed}" for family, seed in wanted])
    return folder


def _worked(jobs: Sequence[tuple[Path, str, int]], workers: int) -> Any:
    """Do the jobs in order of finishing; each process has a drawing context of its own."""
    if workers == 1 or len(jobs) <= 1:
        yield from map(_write_clip, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(min(workers, len(jobs))) as pool:
        yield from pool.imap_unordered(_write_clip, jobs, chunksize=4)


def _write_clip(job: tuple[Path, str, int]) -> None:
    """One clip and its timeline; the timeline is renamed into place last and marks the clip as complete."""
    from cosmos_reason.simulate.registry import make_clip  # starts MuJoCo: only where clips are made

    folder, family, seed = job
    clip = make_clip(family, seed)
    name = clip.timeline.clip_id
    video, timeline = folder / "videos" / f"{name}.mp4", folder / "timelines" / f"{name}.json"
    draft = video.with_suffix(f".{os.getpid()}.part")
    write_video(draft, clip.frames)
    os.replace(draft, video)
    draft = timeline.with_suffix(f".{os.getpid()}.part")
    draft.write_text(json.dumps(timeline_to_json(clip.timeline)), encoding="utf-8")
    os.replace(draft, timeline)


def _complete(folder: Path, name: str) -> bool:
    return (folder / "timelines" / f"{name}.json").exists() and (folder / "videos" / f"{name}.mp4").exists()


def _write_samples(folder: Path, names: Sequence[str]) -> None:
    from cosmos_reason.simulate.registry import questions

    lines = []
    for name in names:
        timeline = read_timeline(folder / "timelines" / f"{name}.json")
        lines += [json.dumps(sample_to_json(s)) for s in questions(timeline, f"videos/{name}.mp4")]
    draft = folder / f"samples.{os.getpid()}.part"
    draft.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    os.replace(draft, folder / "samples.jsonl")


def write_video(path: Path, frames: Frames) -> None:
    """H.264 in mp4, one group of pictures, no B-frames: what goes in comes out in the same order."""
    rate = Fraction(frames.sampled_fps).limit_denominator(1000)
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=rate)
        stream.height, stream.width = frames.pixels_THWC.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = {"crf": "18", "preset": "fast", "bf": "0"}
        for picture in frames.pixels_THWC:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        file.mux(stream.encode())


def training_set(folder: Path) -> list[Sample]:
    """A set to learn from: `read_set`, refused when a clip of it is one of those that are kept for testing."""
    samples = read_set(folder)
    for sample in samples:
        seed = re.search(r"_(\d+)/[^/]*$", sample.id)
        if seed and int(seed[1]) >= TEST_SEED:
            raise UserError(f"{folder}: {sample.id} is of a test seed (≥ {TEST_SEED}); train on another set")
    return samples


def read_set(folder: Path) -> list[Sample]:
    """The samples of a set, with the paths of their videos resolved against its folder."""
    path = Path(folder) / "samples.jsonl"
    if not path.is_file():
        raise UserError(f"{folder}: no samples.jsonl; simulate a set there first")
    samples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(path, f"line {number} is no JSON ({error.msg}); simulate the set again") from error
        samples.append(sample_from_json(row, Path(folder)))
    return samples


def sample_to_json(sample: Sample) -> dict[str, Any]:
    """A sample as plain JSON values."""
    return asdict(sample)


def sample_from_json(row: Mapping[str, Any], folder: Path) -> Sample:
    """The inverse of `sample_to_json`; lists become tuples, and the video's path is taken from `folder`."""
    video = VideoRef(str(folder / row["video"]["path"]), row["video"]["start_s"], row["video"]["end_s"])
    answer = _tuples(row["answer"])
    return Sample(**{**row, "video": video, "answer": answer, "options": tuple(row["options"])})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def timeline_to_json(timeline: Timeline) -> dict[str, Any]:
    """A timeline as plain JSON values: metres to 0.1 mm, picture coordinates to 0.01."""
    return {
        "clip_id": timeline.clip_id,
        "family": timeline.family,
        "seed": timeline.seed,
        "fps": timeline.fps,
        "times_s": timeline.times_s_T.tolist(),
        "objects": [
            {
                "name": o.name, "colour": o.colour, "shape": o.shape, "role": o.role,
                "position_m": o.position_m_T3.round(4).tolist(),
                "centre_xy": o.centre_xy_T2.round(2).tolist(),
                "box": o.box_T4.round(2).tolist(),
                "visible": o.visible_T.tolist(),
            }
            for o in timeline.objects
        ],
        "events": [asdict(e) for e in timeline.events],
        "facts": dict(timeline.facts),
        "caption": timeline.caption,
    }  # fmt: skip


def timeline_path(ref: VideoRef) -> Path:
    """The state file beside a simulated clip."""
    video = Path(ref.path)
    return video.parent.parent / "timelines" / f"{video.stem}.json"


def read_timeline(path: Path) -> Timeline:
    """The timeline of a clip."""
    try:
        row = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "no such timeline; simulate the set again") from None
    except json.JSONDecodeError as error:
        raise DataError(path, f"no JSON ({error.msg}); delete it and simulate the set again") from error
    objects = tuple(
        ObjectTrack(
            o["name"], o["colour"], o["shape"], o["role"], np.array(o["position_m"]), np.array(o["centre_xy"]),
            np.array(o["box"]), np.array(o["visible"], dtype=bool),
        )
        for o in row["objects"]
    )  # fmt: skip
    events = tuple(Event(e["kind"], e["start_s"], e["end_s"], tuple(e["who"])) for e in row["events"])
    return Timeline(
        row["clip_id"], row["family"], row["seed"], row["fps"], np.array(row["times_s"]), objects, events, row["facts"],
        row["caption"],
    )  # fmt: skip
