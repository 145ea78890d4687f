"""The quickstart: what it calls a success, and the whole of it at its smallest."""

import json

import pytest

from cosmos_reason import quickstart
from cosmos_reason.evaluation.metrics import Accuracy
from cosmos_reason.quickstart import Size, verdict_of

NOTHING = Accuracy(0.0, 0.0, 0.0, 300, 0.45)
GUESSED = Accuracy(0.46, 0.41, 0.51, 300, 0.45)
SEEN = Accuracy(0.8, 0.76, 0.84, 300, 0.45)


@pytest.mark.parametrize(
    ("before", "after", "nano", "minutes", "ok"),
    [
        (NOTHING, SEEN, SEEN, 9.0, True),
        (NOTHING, GUESSED, SEEN, 9.0, False),  # answers well and sees nothing
        (SEEN, SEEN, SEEN, 9.0, False),  # nothing was learned
        (NOTHING, SEEN, GUESSED, 9.0, False),
        (NOTHING, SEEN, SEEN, 10.1, False),
    ],
)
def test_success_is_more_than_guessing_in_time(before, after, nano, minutes, ok):
    verdict = verdict_of({"before": before, "after": after, "nano": nano}, minutes, 10.0)
    assert verdict["ok"] is ok
    assert verdict["figures"]["after"] == [round(100 * x, 1) for x in (after.mean, after.low, after.high)]
    assert verdict["bars"]["minutes"] == 10.0


@pytest.mark.slow
def test_the_whole_of_it_writes_its_report(tmp_path, capsys):
    smallest = Size(train_clips=4, test_clips=2, test_questions=2, steps=2)
    first = quickstart.main(tmp_path, smallest)
    second = quickstart.main(tmp_path, smallest)  # clips are kept, the training is done again
    verdicts = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"ok"')]
    assert [v["ok"] for v in verdicts] == [first, second] == [False, False]  # two steps teach nothing
    report = (tmp_path / "report.html").read_text()
    for words in ("Asked of the shipped model", "A real clip", "shipped nano", "<svg", "data:image/png;base64,"):
        assert words in report
    assert report.count('class="card"') > 2
