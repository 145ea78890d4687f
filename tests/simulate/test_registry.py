"""Clips as a whole: determinism, balanced outcomes, and labels derived again from the tracks by other rules."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.simulate import registry
from cosmos_reason.simulate.bodies import COLOURS, SHAPES
from cosmos_reason.simulate.registry import FAMILIES, make_clip, outcomes, questions
from cosmos_reason.types import LETTERS, Clip, ObjectTrack, Sample, Timeline

SEEDS = (0, 1)  # one clip of each main outcome
NAME = re.compile(rf"\b({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})\b")


@pytest.fixture(scope="module")
def clips() -> dict[tuple[str, int], Clip]:
    return {(family, seed): make_clip(family, seed) for family in FAMILIES for seed in SEEDS}


def track(timeline: Timeline, fact: str) -> ObjectTrack:
    return next(o for o in timeline.objects if o.name == timeline.facts[fact])


def asked(clip: Clip) -> list[Sample]:
    return questions(clip.timeline, "clip.mp4")


def test_every_family_films_sixteen_small_frames(clips: dict[tuple[str, int], Clip]) -> None:
    for (family, seed), clip in clips.items():
        assert clip.frames.pixels_THWC.shape == (16, 128, 128, 3)
        assert clip.frames.pixels_THWC.dtype == np.uint8
        assert clip.frames.times_s_T.tolist() == [i / 8 for i in range(16)]
        assert clip.timeline.clip_id == f"{family}_{seed}"


@pytest.mark.parametrize("family", ["collision", "tower", "occluder"])
def test_same_seed_gives_the_same_bits(family: str, clips: dict[tuple[str, int], Clip]) -> None:
    make_clip("levitate", 7)  # another clip in between must not show
    again, first = make_clip(family, 1), clips[family, 1]
    assert np.array_equal(again.frames.pixels_THWC, first.frames.pixels_THWC)
    for a, b in zip(again.timeline.objects, first.timeline.objects, strict=True):
        assert a.name == b.name
        assert np.array_equal(a.position_m_T3, b.position_m_T3)
        assert np.array_equal(a.visible_T, b.visible_T)
    assert again.timeline.events == first.timeline.events
    assert again.timeline.facts == first.timeline.facts


def test_other_seeds_give_other_clips(clips: dict[tuple[str, int], Clip]) -> None:
    for family in FAMILIES:
        assert not np.array_equal(clips[family, 0].frames.pixels_THWC, clips[family, 1].frames.pixels_THWC)


@pytest.mark.parametrize("family", FAMILIES)
def test_outcomes_are_even_over_pairs_of_seeds_and_not_told_by_parity(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []

    class Stop(Exception):
        pass

    def shoot(_rng: np.random.Generator, outcome: str) -> None:
        wanted.append(outcome)
        raise Stop

    monkeypatch.setattr(registry._module(family), "shoot", shoot)
    for seed in range(40):
        with pytest.raises(Stop):
            make_clip(family, seed)
    first, second = outcomes(family)
    assert wanted.count(first) == wanted.count(second) == 20
    assert {wanted[0::2].count(first), wanted[1::2].count(first)} != {0, 20}


def test_a_clip_shows_the_outcome_that_was_drawn(clips: dict[tuple[str, int], Clip]) -> None:
    for family in FAMILIES:
        shown = {clips[family, seed].timeline.facts["outcome"] for seed in SEEDS}
        assert shown == set(outcomes(family))


def test_labels_agree_with_rules_on_the_tracks(clips: dict[tuple[str, int], Clip]) -> None:
    """Each rule looks at the frames only, where the labels came from the fine grid of physics steps."""
    for seed in SEEDS:
        t = clips["collision", seed].timeline
        if not t.facts["oncoming"]:
            way = np.linalg.norm(np.diff(track(t, "target").position_m_T3[[0, -1]], axis=0))
            assert (way > 0.2) == (t.facts["outcome"] == "hit")
        t = clips["slide", seed].timeline
        line = next(o for o in t.objects if o.name == "line").position_m_T3[0, 0]
        x = track(t, "mover").position_m_T3[:, 0] - line
        assert (x[0] * x[-1] < 0) == (t.facts["outcome"] == "passes")
        t = clips["tower", seed].timeline
        z = track(t, "top").position_m_T3[:, 2]
        assert (z[0] - z[-1] > 0.3) == (t.facts["outcome"] == "falls")
        t = clips["occluder", seed].timeline
        assert track(t, "mover").visible_T[-1] == (t.facts["outcome"] == "seen again")
        t = clips["levitate", seed].timeline
        z = track(t, "mover").position_m_T3[:, 2]
        assert (z.max() - z[-1] > 0.3) == (t.facts["outcome"] == "possible")
        t = clips["count", seed].timeline
        moved = [np.ptp(o.centre_xy_T2, axis=0).max() > 40 for o in t.objects]
        assert all(moved) == (t.facts["outcome"] == "all")
        assert sum(moved) == t.facts["movers"]


def test_directions_agree_with_the_projected_path(clips: dict[tuple[str, int], Clip]) -> None:
    checked = 0
    for clip in clips.values():
        for sample in asked(clip):
            if sample.template == "say_direction":
                o = next(o for o in clip.timeline.objects if o.name in sample.question)
                x = o.centre_xy_T2[o.visible_T, 0]
                assert sample.answer == ("to the right" if x[-1] > x[0] else "to the left")
                checked += 1
    assert checked >= 8


def test_visible_objects_have_their_colour_at_their_centre(clips: dict[tuple[str, int], Clip]) -> None:
    """The projection is checked against the pixels: hue at the centre of an unoccluded first-frame object."""
    right = total = 0
    for clip in clips.values():
        first = 15 if clip.timeline.facts["outcome"] == "backward" else 0
        for o in clip.timeline.objects:
            x, y = (o.centre_xy_T2[first] * 0.128).astype(int)
            if o.role == "object" and o.colour not in ("white", "black") and o.visible_T[first]:
                pixel = clip.frames.pixels_THWC[first, np.clip(y, 0, 127), np.clip(x, 0, 127)].astype(float)
                distances = {name: np.linalg.norm(_hue(pixel) - _hue(np.array(rgb))) for name, rgb in COLOURS.items()}
                right += min(distances, key=lambda n: distances[n]) == o.colour
                total += 1
    assert total > 20
    assert right / total > 0.85  # the rest stand behind another object


def _hue(rgb: np.ndarray) -> np.ndarray:
    return rgb / max(1e-6, float(np.linalg.norm(rgb)))


def test_samples_are_well_formed(clips: dict[tuple[str, int], Clip]) -> None:
    for clip in clips.values():
        samples = asked(clip)
        assert len({s.id for s in samples}) == len(samples)
        for s in samples:
            assert s.id == f"{clip.timeline.clip_id}/{s.template}"
            assert re.fullmatch(r"common_sense\.(space|time|physics)\.[a-z_]+", s.ontology)
            assert s.question.endswith(("?", "."))
            pair = re.search(r" So: (.+)\. Asked: (.+) (yes|no)$", s.think)
            assert s.think.endswith(".") or pair
            if s.kind == "binary":
                assert s.answer in ("yes", "no")
                assert pair is None or ((pair[1] == pair[2]) == (s.answer == "yes") and pair[3] == s.answer)
            elif s.kind == "choice":
                assert 2 <= len(s.options) <= 4
                assert len(set(s.options)) == len(s.options)
                assert all(type(o) is str for o in s.options)
                assert s.answer in LETTERS[: len(s.options)]
            elif s.kind == "interval":
                assert 0 <= s.answer[0] < s.answer[1] <= 1.88  # type: ignore[index, operator]
            elif s.kind == "point":
                assert all(0 <= v <= 1000 for v in s.answer)  # type: ignore[union-attr]


def test_every_kind_and_enough_templates_come_up(clips: dict[tuple[str, int], Clip]) -> None:
    samples = [s for clip in clips.values() for s in asked(clip)]
    assert {s.kind for s in samples} == {"binary", "choice", "text", "number", "interval", "point"}
    for family in FAMILIES:
        of_family = [s for s in samples if s.family == family]
        assert {s.kind for s in of_family} >= {"binary", "choice", "text", "point"}
        assert len({s.template for s in of_family}) >= 10


def test_texts_name_only_what_is_in_the_clip(clips: dict[tuple[str, int], Clip]) -> None:
    for clip in clips.values():
        here = {o.name for o in clip.timeline.objects}
        for s in asked(clip):
            told = s.think.split(". Asked: ")[0] + (s.answer if isinstance(s.answer, str) else "")
            assert {" ".join(m) for m in NAME.findall(told)} <= here, s
            assert not re.search(r"\b[A-D]\b", s.think.replace("A ", "")), s


def test_a_backward_clip_is_a_forward_clip_reversed(
    clips: dict[tuple[str, int], Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = next(s for s in SEEDS if clips["arrow", s].timeline.facts["outcome"] == "backward")
    backward = clips["arrow", seed]
    monkeypatch.setattr(registry, "reverse", lambda clip: clip)
    forward = make_clip("arrow", seed)
    assert np.array_equal(backward.frames.pixels_THWC, forward.frames.pixels_THWC[::-1])
    for a, b in zip(backward.timeline.objects, forward.timeline.objects, strict=True):
        assert np.array_equal(a.position_m_T3, b.position_m_T3[::-1])
        assert np.array_equal(a.visible_T, b.visible_T[::-1])
    mirrored = {(e.kind, 1.875 - e.end_s, 1.875 - e.start_s, e.who) for e in forward.timeline.events}
    assert {(e.kind, e.start_s, e.end_s, e.who) for e in backward.timeline.events} == mirrored
    starts = [e.start_s for e in backward.timeline.events]
    assert starts == sorted(starts)


def test_unknown_family_is_the_callers_error() -> None:
    with pytest.raises(UserError, match="no family 'colision'"):
        make_clip("colision", 0)
