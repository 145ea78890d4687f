"""`cosmos-reason quickstart`: the main job, end to end, in minutes on two cores.

ask about a simulated and a real clip -> simulate a small set -> fine-tune `nano-base`, which sees but was never asked
anything -> evaluate before and after on held-out seeds -> `runs/quickstart/report.html`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cosmos_reason.backends.local import LocalBackend
from cosmos_reason.evaluation.held_out import held_out
from cosmos_reason.evaluation.metrics import Accuracy, accuracy, by_group
from cosmos_reason.evaluation.report import Example, accuracy_table, example_card, loss_curve, page
from cosmos_reason.evaluation.run import Record, evaluate, scored
from cosmos_reason.simulate.dataset import write_set
from cosmos_reason.simulate.registry import FAMILIES
from cosmos_reason.text.answer import gold_text, parse, score
from cosmos_reason.text.chat import prompt_for
from cosmos_reason.training.sft import SFTRecipe, finetune
from cosmos_reason.types import LETTERS, Sample, VideoRef
from cosmos_reason.video import decode

OUT = Path("runs/quickstart")


@dataclass(frozen=True)
class Size:
    """How much of everything: what fits into ten minutes on two cores."""

    train_clips: int = 60  # of each family
    test_clips: int = 12  # of each family
    test_questions: int = 3  # of each clip
    steps: int = 140
    minutes: float = 10.0


# What a short run can teach. The shipped model was trained on these and fifty others, for many more steps.
SEEING = ("present", "colour", "say_colour", "shape", "say_shape", "direction", "say_direction", "goes_to_side")


def assets() -> Path:
    """Clips that travel with the package."""
    return Path(str(files("cosmos_reason") / "assets" / "clips"))


def first_questions() -> list[tuple[str, Sample, str]]:
    """(title, question, note): one simulated and one real clip, both shipped."""
    simulated = VideoRef(str(assets() / "videos" / "collision.mp4"))
    real = VideoRef(str(assets() / "videos" / "driving.mp4"))
    options = ("The car turns", "The car stands still", "The car drives backwards")
    note = "nano has seen simulated physics only: this shows that real video works, not that nano understands it."
    return [
        (
            "A simulated clip",
            Sample("quick-sim", "binary", "Does the black ball hit the blue box?", "yes", simulated),
            "",
        ),
        ("A real clip", Sample("quick-real", "choice", "What does the car do?", "A", real, options), note),
    ]


def ask_example(backend: LocalBackend, title: str, sample: Sample, note: str, console: Console) -> Example:
    """Ask the shipped model, streaming to the screen, and keep it for the page."""
    frames = decode(sample.video, backend.spec)
    console.print(f"\n[bold]{title}:[/bold] {sample.question}")
    text = ""
    for piece in backend.stream(prompt_for(sample, frames), 160, 0.0, 0):
        text += piece
        console.print(piece, end="", markup=False, highlight=False)
    console.print()
    answer = parse(text, sample)
    right = score(answer, sample).value == 1.0
    return Example(
        title, frames, written(sample), answer.think, shown_answer(sample, text), gold_text(sample), right, note
    )


def written(sample: Sample) -> str:
    """The question and its options, one a line."""
    return "\n".join([sample.question, *(f"({LETTERS[i]}) {option}" for i, option in enumerate(sample.options))])


def shown_answer(sample: Sample, text: str) -> str:
    """The parsed answer with its option's text, or the status that stands for it."""
    answer = parse(text, sample)
    if answer.status != "ok":
        return f"none ({answer.status})"
    if answer.letter and sample.options:
        return f"{answer.letter} {sample.options[LETTERS.index(answer.letter)]}"
    return answer.final


def small_sets(out: Path, size: Size) -> tuple[Path, list[Sample]]:
    """The folder of the training clips, and the questions of the held-out ones."""
    with Progress() as bar:

        def show(title: str) -> Callable[[int, int], None]:
            task = bar.add_task(title)
            return lambda n, total: bar.update(task, completed=n, total=total)

        train = write_set(out / "train", FAMILIES, size.train_clips, 500_000_000, 2, show("simulating"))
        test = held_out(
            out / "test", FAMILIES, size.test_clips, size.test_questions, 2, show("simulating held-out clips"), SEEING
        )
    return train, test


def measured(
    name: str, model: str, samples: Sequence[Sample], out: Path
) -> tuple[dict[str, Accuracy], dict[str, Record]]:
    """Accuracy by family and overall, and the records behind it."""
    with Progress() as bar:
        task = bar.add_task(f"evaluating {name}", total=len(samples))
        records = evaluate(
            LocalBackend(model), samples, out / f"records-{name}.jsonl",
            progress=lambda n, total: bar.update(task, completed=n),
        )  # fmt: skip
    by_id = {r.id: r for r in records}
    rows = scored(samples, by_id, lambda s: s.family)
    return {**by_group(rows), "all": accuracy(rows)}, by_id


def answered_examples(samples: Sequence[Sample], records: dict[str, Record], backend: LocalBackend) -> list[Example]:
    """One question a family as the trained model answered it."""
    examples = []
    for family in FAMILIES:
        sample = next((s for s in samples if s.family == family), None)
        if sample is None:
            continue
        text = records[sample.id].text
        examples.append(
            Example(
                family, decode(sample.video, backend.spec), written(sample), parse(text, sample).think,
                shown_answer(sample, text), gold_text(sample), score(parse(text, sample), sample).value == 1.0,
            )
        )  # fmt: skip
    return examples


def recipe_of(size: Size, train_set: Path, out: Path) -> SFTRecipe:
    """The fine-tuning run: the encoder stays as it is, the language part learns to answer questions."""
    return SFTRecipe(
        model="nano-base", train_sets=(train_set,), out=out / "sft", cache=out / "cache", templates=SEEING,
        steps=size.steps, batch_size=12, questions_per_row=3, recall_rows=4, warmup=min(20, size.steps),
        save_every=size.steps, log_every=10, optimizer="muon", lr=1e-3,
    )  # fmt: skip


def main(out: Path = OUT, size: Size | None = None) -> bool:
    """Run everything; whether training led above guessing and the shipped model too, in the promised time."""
    size, console, start = size or Size(), Console(), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    nano = LocalBackend("nano")
    asked = [ask_example(nano, title, sample, note, console) for title, sample, note in first_questions()]
    train_set, samples = small_sets(out, size)
    shutil.rmtree(out / "sft", ignore_errors=True)
    for old in out.glob("records-*.jsonl"):
        old.unlink()
    before, _ = measured("before", "nano-base", samples, out)
    trained = finetune(recipe_of(size, train_set, out))
    after, records = measured("after", str(trained), samples, out)
    shipped, _ = measured("shipped", "nano", samples, out)
    minutes = (time.monotonic() - start) / 60
    lead = (
        f"A hybrid Mamba-2/attention vision-language model that has learned to see but was never asked anything, before"
        f" and after {size.steps} steps of fine-tuning on questions about {size.train_clips} simulated clips a family, "
        f"measured on {len(samples)} questions about clips of unseen seeds. {minutes:.1f} minutes."
    )
    sections = [
        ("Asked of the shipped model", "".join(example_card(e) for e in asked)),
        (
            "Accuracy, % [95% interval clustered by clip]",
            accuracy_table({"before": before, "after": after, "shipped nano": shipped}),
        ),
        ("Training loss", loss_curve(out / "sft" / "metrics.jsonl")),
        (
            "What the model answers after fine-tuning",
            "".join(map(example_card, answered_examples(samples, records, nano))),
        ),
    ]
    path = out / "report.html"
    path.write_text(page("cosmos_reason quickstart", lead, sections))
    results = {"before": before["all"], "after": after["all"], "nano": shipped["all"]}
    console.print("\n" + "\n".join(f"{name:7}{result}" for name, result in results.items()))
    console.print(f"report: {path}  ({minutes:.1f} min)")
    verdict = verdict_of(results, minutes, size.minutes)
    print(json.dumps(verdict))
    return bool(verdict["ok"])


def verdict_of(results: Mapping[str, Accuracy], minutes: float, limit: float) -> dict[str, object]:
    """`ok` asks for more than well-formed answers: before training there are none, and guessing scores half."""
    after, nano = results["after"], results["nano"]
    figures = {name: [round(100 * x, 1) for x in (r.mean, r.low, r.high)] for name, r in results.items()}
    ok = after.low > max(after.chance, results["before"].high) and nano.low > nano.chance and minutes <= limit
    bars = {"after and nano, low end of the interval, above": round(100 * after.chance, 1), "minutes": limit}
    return {"ok": ok, "figures": {**figures, "minutes": round(minutes, 2)}, "bars": bars}
