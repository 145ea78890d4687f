"""One self-contained HTML page: accuracy tables, the training curve, and samples with strip, reasoning and verdict."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from cosmos_reason.evaluation.metrics import Accuracy
from cosmos_reason.types import Frames
from cosmos_reason.video import strip

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;color:#1c2430;background:#fff}
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{padding:.35rem .7rem;border-bottom:1px solid #dde3ea;
text-align:right}th:first-child,td:first-child{text-align:left}.card{border:1px solid #dde3ea;border-radius:10px;
padding:1rem;margin:1rem 0}.card img{width:100%;border-radius:6px}.right{color:#13774a}.wrong{color:#b3261e}
.think{color:#4a5666;font-style:italic}.note{color:#4a5666}h1{margin-bottom:.2rem}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{background:#11161d;color:#e6ebf1}.card,th,td{border-color:#2b3440}
.think,.note{color:#9aa7b6}.right{color:#5bd19a}.wrong{color:#ff8a80}}
"""


@dataclass(frozen=True)
class Example:
    """A question as the page shows it. `verdict` is None where the truth is not known."""

    title: str
    frames: Frames
    question: str
    think: str
    answer: str
    truth: str = ""
    verdict: bool | None = None
    note: str = ""


def strip_image(frames: Frames) -> str:
    """The frame strip as a data URI."""
    buffer = io.BytesIO()
    strip(frames).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def example_card(example: Example) -> str:
    """One question with its evidence."""
    verdict = {None: "", True: ' <b class="right">right</b>', False: ' <b class="wrong">wrong</b>'}[example.verdict]
    truth = f" &nbsp; truth: <b>{escape(example.truth)}</b>" if example.truth else ""
    note = f'<p class="note">{escape(example.note)}</p>' if example.note else ""
    question = escape(example.question).replace("\n", "<br>")
    return (
        f'<div class="card"><h3>{escape(example.title)}</h3>'
        f'<img alt="frames of the clip in order of time" src="{strip_image(example.frames)}">'
        f'<p><b>{question}</b></p><p class="think">{escape(example.think) or "(no reasoning)"}</p>'
        f"<p>answer: <b>{escape(example.answer) or '(none)'}</b>{truth}{verdict}</p>{note}</div>"
    )


def accuracy_table(columns: Mapping[str, Mapping[str, Accuracy]]) -> str:
    """Rows are groups, columns are models: mean [95% interval]; chance and counts beside them."""
    groups = sorted({group for column in columns.values() for group in column})
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = []
    for group in groups:
        cells = [column.get(group) for column in columns.values()]
        known = next(cell for cell in cells if cell)
        shown = "".join(
            f"<td>{100 * c.mean:.1f} [{100 * c.low:.1f}, {100 * c.high:.1f}]</td>" if c else "<td>not measured</td>"
            for c in cells
        )
        rows.append(f"<tr><td>{escape(group)}</td><td>{known.count}</td><td>{100 * known.chance:.1f}</td>{shown}</tr>")
    return f"<table><tr><th>group</th><th>questions</th><th>chance %</th>{head}</tr>{''.join(rows)}</table>"


def loss_curve(metrics: Path) -> str:
    """The run's loss over steps as an inline SVG."""
    import matplotlib  # a plot library takes a second to load: only when a page is written

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    points = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    figure, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
    axes.plot([p[0] for p in points], [p[1] for p in points], color="#2f6fdb")
    axes.set(xlabel="step", ylabel="loss per token (nats)", yscale="log")
    axes.grid(alpha=0.3)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    plt.close(figure)
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :]


def page(title: str, lead: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page from (heading, html) sections."""
    body = "".join(f"<h2>{escape(heading)}</h2>{html}" for heading, html in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><h1>{escape(title)}</h1><p class="note">{escape(lead)}</p>{body}</body></html>'
    )
