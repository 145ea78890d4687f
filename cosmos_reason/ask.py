"""`cosmos-reason ask`: one question about one video: decode -> say what was seen -> stream the reasoning -> answer."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cosmos_reason.errors import UserError
from cosmos_reason.types import LETTERS, Answer, Frames, Kind, Sample, VideoRef
from cosmos_reason.video import FrameSpec, burn_timestamps, decode, save_strip

if TYPE_CHECKING:
    from cosmos_reason.backends.local import LocalBackend

SCOPE = (
    "note: {name} has learned from simulated physics and one simulated robot arm at most; on this video its answer "
    "shows the mechanics, not knowledge of the world. Give --model a folder trained on such video."
)
SMALL = 15_000_000  # parameters: no model of this size knows the world
PLACEHOLDER: dict[Kind, str | float | tuple[float, ...]] = {
    "binary": "yes",
    "choice": "A",
    "text": "",
    "number": 0.0,
    "interval": (0.0, 0.0),
    "point": (0.0, 0.0),
    "box": (0.0, 0.0, 0.0, 0.0),
}


@dataclass(frozen=True)
class AskRequest:
    """What the command line gathered."""

    video: str
    question: str
    options: tuple[str, ...] = ()
    kind: Kind | None = None  # default: choice with options, binary for a yes/no opening word, else text
    model: str = "nano"
    fps: float | None = None
    max_frames: int | None = None
    start_s: float | None = None
    end_s: float | None = None
    timestamps: bool = False
    strip: Path | None = None
    max_tokens: int = 160
    temperature: float = 0.0
    seed: int = 0
    json: bool = False


@dataclass(frozen=True)
class AskResult:
    """What `--json` prints."""

    model: str
    video: str
    question: str
    kind: Kind
    answer: str
    letter: str | None
    think: str
    status: str
    text: str
    frame_times_s: tuple[float, ...]
    sampled_fps: float
    decoder: str
    notice: str
    decode_s: float
    first_word_s: float  # from decoded frames to the first piece of text, model already loaded
    answer_s: float  # from decoded frames to the end of the answer
    peak_memory_mb: float
    parser: str  # version of the answer reading


YES_NO = ("did", "does", "do", "is", "are", "was", "were", "will", "can", "could", "has", "have", "should", "would")


def sample_of(request: AskRequest) -> Sample:
    """The question as a sample without a known truth."""
    if len(request.options) == 1 or len(request.options) > len(LETTERS):
        raise UserError(f"{len(request.options)} option(s) given: wanted none, or 2 to {len(LETTERS)}")
    if not request.question.strip():
        raise UserError('the question is empty: write what you want to know, e.g. "Does the tower fall?"')
    kind = request.kind
    if kind is None and request.options:
        kind = "choice"
    elif kind is None:
        kind = "binary" if request.question.split()[0].lower() in YES_NO else "text"
    if (kind == "choice") != bool(request.options):
        raise UserError(f"kind {kind} with {len(request.options)} options: --options and --kind choice go together")
    if kind not in PLACEHOLDER:
        raise UserError(f"kind {kind} cannot be asked here: wanted one of {', '.join(PLACEHOLDER)}")
    ref = VideoRef(request.video, request.start_s, request.end_s)
    return Sample("ask", kind, request.question, PLACEHOLDER[kind], ref, request.options)


def frame_spec(request: AskRequest, default: FrameSpec) -> FrameSpec:
    """The model's own frame count unless the caller asks for a rate or another budget."""
    most = default.count if request.max_frames is None else request.max_frames
    return replace(default, count=most) if request.fps is None else FrameSpec(fps=request.fps, max_frames=most)


def limited(request: AskRequest, frames: Frames) -> str:
    """A sentence where the wished rate gave more frames than may be looked at, else ""."""
    rate = frames.sampled_fps
    if request.fps is None or not rate or rate > 0.9 * min(request.fps, frames.source_fps or math.inf):
        return ""
    return (
        f"note: {request.fps:g} frames a second were asked for; {len(frames.times_s_T)} frames were taken, {rate:.2g} "
        "a second. Raise --max-frames, or look at less with --start and --end."
    )


def is_simulated(path: str) -> bool:
    """Whether this clip is one of our simulations: its state file lies beside it."""
    video = Path(path)
    return (video.parent.parent / "timelines" / f"{video.stem}.json").is_file()


def scope(backend: LocalBackend) -> str:
    """What to say of a model on video that was not simulated: a nano-sized one has learned from simulation only."""
    return SCOPE.format(name=backend.name) if backend.model.num_parameters() < SMALL else ""


def main(request: AskRequest) -> AskResult:
    """Answer, printing as it goes (nothing but the final object with `json`)."""
    from cosmos_reason.backends.local import LocalBackend  # torch: seconds to import, so only when really asking
    from cosmos_reason.text.answer import PARSER_VERSION, parse
    from cosmos_reason.text.chat import prompt_for

    sample = sample_of(request)
    decode_start = time.perf_counter()
    if not Path(request.video).exists():  # before the model is loaded: a wrong path answers at once
        decode(sample.video, FrameSpec(count=1))
    backend = LocalBackend(request.model)
    decode_start = time.perf_counter()
    frames = decode(sample.video, frame_spec(request, backend.spec))
    frames = burn_timestamps(frames) if request.timestamps else frames
    decode_s = time.perf_counter() - decode_start
    if request.strip:
        save_strip(frames, request.strip)
    say = _Printer(quiet=request.json)
    notices = (limited(request, frames), "" if is_simulated(request.video) else scope(backend))
    notice = "\n".join(sentence for sentence in notices if sentence)
    say.header(frames, notice, request.strip)
    start = time.perf_counter()
    first_s, text = 0.0, ""
    for piece in backend.stream(prompt_for(sample, frames), request.max_tokens, request.temperature, request.seed):
        first_s = first_s or time.perf_counter() - start
        text += piece
        say.piece(piece)
    answer_s = time.perf_counter() - start
    answer = parse(text, sample)
    say.answer(answer, sample)
    result = AskResult(
        request.model, request.video, request.question, sample.kind, answer.final, answer.letter, answer.think,
        answer.status, text, tuple(round(float(t), 3) for t in frames.times_s_T), round(frames.sampled_fps, 3),
        frames.backend, notice, round(decode_s, 3), round(first_s, 3), round(answer_s, 3),
        round(peak_memory_mb(), 1), PARSER_VERSION,
    )  # fmt: skip
    if request.json:
        print(json.dumps(result.__dict__))
    return result


def peak_memory_mb() -> float:
    """Peak of this process and of those it started (the decoder's), MiB.

    From the kernel's status files: the peak that `getrusage` reports is inherited from the process that started us.
    """
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return sum(map(_peak_kb, ["self", *children])) / 1024


def _peak_kb(pid: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended, or there is no /proc here
        return 0.0
    return next((float(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0.0)


class _Printer:
    """The human-readable side; silent under `--json`."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def _write(self, text: str) -> None:
        if not self._quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    def header(self, frames: Frames, notice: str, strip: Path | None) -> None:
        times = " ".join(f"{t:.2f}" for t in frames.times_s_T)
        self._write(f"frames seen at {times} s ({len(frames.times_s_T)} of {frames.source_frames}, {frames.backend})\n")
        if strip:
            self._write(f"frame strip: {strip}\n")
        if notice:
            self._write(notice + "\n")

    def piece(self, text: str) -> None:
        self._write(text)

    def answer(self, answer: Answer, sample: Sample) -> None:
        if answer.status != "ok":
            self._write(f"\n\nanswer: none ({answer.status})\n")
            return
        option = f" {sample.options[LETTERS.index(answer.letter)]}" if answer.letter and sample.options else ""
        self._write(f"\n\nanswer: {answer.letter or answer.final}{option}\n")
