"""The report page: everything escaped, evidence embedded, nothing fetched."""

import json

import numpy as np

from cosmos_reason.evaluation.metrics import Scored, by_group
from cosmos_reason.evaluation.report import Example, accuracy_table, example_card, loss_curve, page
from cosmos_reason.types import Frames

FRAMES = Frames(np.zeros((2, 32, 32, 3), np.uint8), np.array([0.0, 0.5]), 2.0, 2, "decord")


def test_a_card_shows_the_evidence_and_escapes_what_a_model_wrote():
    card = example_card(Example("t", FRAMES, "Is it?\n(A) <b>", "<script>", "B", "A", False))
    assert "<script>" not in card and "&lt;script&gt;" in card
    assert "Is it?<br>(A) &lt;b&gt;" in card
    assert 'class="wrong"' in card and "data:image/png;base64," in card


def test_unknown_truth_has_no_verdict():
    card = example_card(Example("t", FRAMES, "Is it?", "", "B"))
    assert "right" not in card and "wrong" not in card and "(no reasoning)" in card


def test_the_table_says_what_was_not_measured():
    first = by_group([Scored("a", "x", 1, 0.5), Scored("b", "x", 0, 0.5)])
    table = accuracy_table({"before": first, "after": {}})
    assert "<td>x</td><td>2</td><td>50.0</td>" in table
    assert "not measured" in table


def test_a_page_is_whole_and_fetches_nothing(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps({"step": s, "loss": 1.0 / s}) + "\n" for s in (1, 2, 3)))
    html = page("A & B", "lead", [("Curve", loss_curve(metrics))])
    assert html.startswith("<!doctype html>") and "A &amp; B" in html and "<svg" in html
    assert 'src="http' not in html and 'href="http' not in html.replace('xlink:href="http', "")
