"""The search for a scene, and what all families draw."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_reason.simulate.bodies import COLOURS
from cosmos_reason.simulate.families import common
from cosmos_reason.simulate.families.common import draw_colours, draw_object, gap_m, placed, search
from cosmos_reason.simulate.film import Scene, run
from cosmos_reason.simulate.look import View, draw_look

LOOK = draw_look(np.random.default_rng(0), View())


def scene(x: float) -> Scene:
    red = draw_object(np.random.default_rng(0), "red", ("ball",))
    return Scene(
        LOOK, (placed(red, x, 0.0), placed(draw_object(np.random.default_rng(1), "blue", ("ball",)), x + 2.0, 0.0))
    )


def test_search_takes_the_first_scene_that_is_clear_and_as_wanted() -> None:
    proposals = iter([None, scene(-1.0), scene(-0.5), scene(0.0), scene(0.5)])
    facts = iter([None, {"side": "left"}, {"side": "right"}])
    take = search(lambda: next(proposals), lambda _: next(facts), {"side": "right"})
    assert take.facts == {"side": "right"}
    assert take.record.path("red ball")[0, 0] == 0.0


def test_search_gives_up_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "TRIES", 3)
    with pytest.raises(RuntimeError, match=r"no scene with \{'side': 'up'\} in 3 tries"):
        search(lambda: scene(0.0), lambda _: {"side": "left"}, {"side": "up"})


def test_gaps_are_between_surfaces() -> None:
    record = run(scene(-1.0))
    radii = [t.size_m[0] for t in record.scene.things]
    assert gap_m(record, "red ball", "blue ball") == pytest.approx(2.0 - sum(radii))


def test_colours_are_drawn_without_repetition_and_evenly() -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_colours(rng, 4) for _ in range(400)]
    assert all(len(set(colours)) == 4 for colours in drawn)
    first = [colours[0] for colours in drawn]
    assert all(25 <= first.count(colour) <= 75 for colour in COLOURS)


def test_objects_stand_on_the_floor_and_can_be_seen_at_64_pixels() -> None:
    rng = np.random.default_rng(0)
    for shape in ("ball", "box", "cylinder", "capsule"):
        thing = draw_object(rng, "red", (shape,))
        assert thing.at_m[2] == pytest.approx(thing.height_m)
        area = 4 * thing.reach_m * thing.height_m
        assert np.sqrt(area) / View().width_m * 64 > 7
