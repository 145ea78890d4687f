"""`cosmos-reason quickstart`: the main job, end to end, in minutes on two cores.

ask about a simulated and a real clip -> simulate a small set -> fine-tune a fresh language model on the shipped encoder
-> evaluate before and after on held-out seeds -> `runs/quickstart/report.html`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from cosmos_reason.backends.local import LocalBackend, load_model, save_model
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
TRAIN_CLIPS, TEST_CLIPS, TEST_QUESTIONS = 60, 12, 3  # per family; questions per clip
STEPS = 260


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


def small_set(out: Path) -> Path:
    """The training clips."""
    with Progress() as bar:
        task = bar.add_task("simulating")
        return write_set(
            out / "train",
            FAMILIES,
            TRAIN_CLIPS,
            500_000_000,
            2,
            lambda n, total: bar.update(task, completed=n, total=total),
        )


def fresh_model(out: Path) -> Path:
    """The shipped encoder and tokenizer with an untrained language part."""
    model, tokenizer = load_model("nano")
    assert tokenizer is not None, "the shipped model has a tokenizer"
    model.reset_language(len(tokenizer))
    return save_model(model, tokenizer, out / "fresh")


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


def main(out: Path = OUT) -> bool:
    """Run everything; whether training helped beyond chance variation, in the promised time."""
    console, start = Console(), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    nano = LocalBackend("nano")
    asked = [ask_example(nano, title, sample, note, console) for title, sample, note in first_questions()]
    train_set = small_set(out)
    samples = held_out(out / "test", FAMILIES, TEST_CLIPS, TEST_QUESTIONS)
    fresh = fresh_model(out)
    shutil.rmtree(out / "sft", ignore_errors=True)
    recipe = SFTRecipe(
        model=str(fresh), train_sets=(train_set,), out=out / "sft", cache=out / "cache", steps=STEPS, batch_size=16,
        warmup=20, save_every=STEPS, log_every=10, lr=2e-3,
    )  # fmt: skip
    for old in out.glob("records-*.jsonl"):
        old.unlink()
    before, _ = measured("before", str(fresh), samples, out)
    trained = finetune(recipe)
    after, records = measured("after", str(trained), samples, out)
    shipped, _ = measured("shipped", "nano", samples, out)
    minutes = (time.monotonic() - start) / 60
    lead = (
        f"A hybrid Mamba-2/attention vision-language model, {STEPS} steps of fine-tuning on {TRAIN_CLIPS} simulated "
        f"clips a family, measured on {len(samples)} questions about clips of unseen seeds. {minutes:.1f} minutes."
    )
    html = page(
        "cosmos_reason quickstart",
        lead,
        [
            ("Asked of the shipped model", "".join(example_card(e) for e in asked)),
            (
                "Accuracy, % [95% interval clustered by clip]",
                accuracy_table({"before": before, "after": after, "shipped nano": shipped}),
            ),
            ("Training loss", loss_curve(out / "sft" / "metrics.jsonl")),
            (
                "What the freshly trained model answers",
                "".join(map(example_card, answered_examples(samples, records, nano))),
            ),
        ],
    )
    path = out / "report.html"
    path.write_text(html)
    console.print(
        f"\nbefore {before['all']}\nafter  {after['all']}\nnano   {shipped['all']}\nreport: {path}  ({minutes:.1f} min)"
    )
    gain = after["all"].mean - before["all"].mean
    ok = after["all"].low > before["all"].high and minutes <= 10
    figures = {"before": before["all"].mean, "after": after["all"].mean, "gain": gain, "minutes": round(minutes, 2)}
    print(json.dumps({"ok": ok, "figures": figures, "bars": {"gain": "intervals apart", "minutes": 10}}))
    return ok
