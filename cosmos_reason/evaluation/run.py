"""Run a model over samples: sample -> frames -> prompt -> completion -> answer -> score, one flushed JSONL row each.

Resume is by sample id; the result is always recomputed from the file against the question list, so the denominator is
the list's length whatever happened on the way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cosmos_reason.backends.base import Backend
from cosmos_reason.errors import DataError, UserError
from cosmos_reason.evaluation.metrics import Scored, chance_of
from cosmos_reason.text.answer import parse, score
from cosmos_reason.text.chat import prompt_for
from cosmos_reason.types import Completion, Frames, Sample
from cosmos_reason.video import decode

View = Literal["video", "blind"]
GREY = 128


@dataclass(frozen=True)
class Record:
    """What is stored of one sample."""

    id: str
    text: str  # the completion, untouched; empty when the clip could not be decoded
    finish_reason: str  # stop, length, cancelled, or undecodable
    frame_times_s: tuple[float, ...]
    backend: str  # decoder and version
    error: str = ""


def evaluate(
    backend: Backend,
    samples: Sequence[Sample],
    path: Path,
    *,
    view: View = "video",
    batch_size: int = 32,
    max_tokens: int = 160,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Record]:
    """Answer every sample that `path` does not hold yet; all records, in the order of `samples`."""
    check_unique(samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    done = read_records(path)
    todo = [s for s in samples if s.id not in done]
    with path.open("a") as file:
        for first in range(0, len(todo), batch_size):
            part = todo[first : first + batch_size]
            for record in answer_batch(backend, part, view, max_tokens, temperature, seed):
                done[record.id] = record
                file.write(json.dumps(record.__dict__) + "\n")
            file.flush()
            if progress:
                progress(len(done), len(samples))
    return [done[s.id] for s in samples]


def answer_batch(
    backend: Backend, samples: Sequence[Sample], view: View, max_tokens: int, temperature: float, seed: int
) -> list[Record]:
    """Records of one batch; a clip that cannot be decoded is a record with its reason."""
    frames: dict[str, Frames] = {}
    errors: dict[str, str] = {}
    for sample in samples:
        try:
            frames[sample.id] = seen(decode(sample.video, backend.spec), view)
        except DataError as error:
            errors[sample.id] = str(error)
    ready = [s for s in samples if s.id in frames]
    prompts = [prompt_for(s, frames[s.id]) for s in ready]
    completions = backend.complete(prompts, max_tokens, temperature, seed) if prompts else []
    answered = {s.id: record_of(s, frames[s.id], c) for s, c in zip(ready, completions, strict=True)}
    return [answered.get(s.id) or Record(s.id, "", "undecodable", (), "", errors.get(s.id, "")) for s in samples]


def record_of(sample: Sample, frames: Frames, completion: Completion) -> Record:
    """The row of an answered sample."""
    times = tuple(round(float(t), 4) for t in frames.times_s_T)
    return Record(sample.id, completion.text, completion.finish_reason, times, frames.backend)


def seen(frames: Frames, view: View) -> Frames:
    """The frames as the model gets them: as they are, or grey for the blind baseline (times and count stay)."""
    if view == "video":
        return frames
    return replace(frames, pixels_THWC=np.full_like(frames.pixels_THWC, GREY))


def scored(samples: Sequence[Sample], records: Mapping[str, Record], group: Callable[[Sample], str]) -> list[Scored]:
    """Score every sample of the list; one without a record, or undecodable, counts as wrong."""
    out = []
    for sample in samples:
        record = records.get(sample.id)
        value = score(parse(record.text, sample), sample).value if record else 0.0
        out.append(Scored(sample.video.path, group(sample), value, chance_of(sample)))
    return out


def statuses(samples: Sequence[Sample], records: Mapping[str, Record]) -> dict[str, int]:
    """How many answers were ok, no_answer, truncated, malformed, undecodable or missing."""
    counts: Counter[str] = Counter()
    for sample in samples:
        record = records.get(sample.id)
        if record is None:
            counts["missing"] += 1
        elif record.finish_reason == "undecodable":
            counts["undecodable"] += 1
        else:
            counts[parse(record.text, sample).status] += 1
    return dict(counts)


def read_records(path: Path) -> dict[str, Record]:
    """Records by id; a half-written last row of a killed run is dropped, a repeated id is refused."""
    records: dict[str, Record] = {}
    if not path.exists():
        return records
    lines = path.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines))
    for line in lines:
        row = json.loads(line)
        record = Record(**{**row, "frame_times_s": tuple(row["frame_times_s"])})
        if record.id in records:
            raise UserError(f"{path}: sample {record.id} stands there twice; delete the file and run again")
        records[record.id] = record
    return records


def check_unique(samples: Sequence[Sample]) -> None:
    """Ids join records to questions, so they must be unique."""
    twice = [name for name, count in Counter(s.id for s in samples).items() if count > 1]
    if twice:
        raise UserError(f"{len(twice)} sample ids stand more than once, e.g. {twice[0]}; make them unique")
