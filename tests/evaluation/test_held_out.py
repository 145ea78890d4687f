"""Drawing test questions keeps answers balanced."""

from collections import Counter

from cosmos_reason.evaluation.held_out import spread
from cosmos_reason.types import Sample, VideoRef


def test_whole_rounds_are_drawn():
    samples = [
        Sample(f"{template}/{i}", "binary", "q", "yes" if i % 2 else "no", VideoRef("v"), template=template)
        for template in ("a", "b")
        for i in range(20)
    ]
    picked = spread(samples, 15)
    assert len(picked) == 14  # whole yes/no pairs only
    counts = Counter((s.template, s.answer) for s in picked)
    assert counts["a", "yes"] == counts["a", "no"]
    assert counts["b", "yes"] == counts["b", "no"]
    assert len({s.id for s in picked}) == 14


def test_letters_stay_even_whatever_the_number_of_options():
    samples = [
        Sample(f"{n}/{i}", "choice", "q", "ABCD"[i % n], VideoRef("v"), ("a", "b", "c", "d")[:n], template="which")
        for n in (2, 3, 4)
        for i in range(12 * n)
    ]
    picked = spread(samples, 40)
    assert 36 < len(picked) <= 40
    counts = Counter((len(s.options), s.answer) for s in picked)
    for n in (2, 3, 4):
        assert len({counts[n, letter] for letter in "ABCD"[:n]}) == 1
