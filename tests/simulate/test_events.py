"""Events of drawn paths, worked out by hand. The grid has a state every 12.5 ms."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.events import bounce_times, contacts, find_events, hidden_spans, moves, rebounds, spans
from cosmos_reason.simulate.film import STEP_S, STEPS, Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import ObjectTrack

TIMES = np.arange(STEPS) * STEP_S


def record(paths: dict[str, np.ndarray], touches: dict[tuple[int, int], np.ndarray]) -> Record:
    """A record of balls of the given colours on the given paths (S, 3)."""
    things = tuple(Thing(colour, "ball", (0.4,), (0.0, 0.0, 0.4)) for colour in paths)
    touch = np.zeros((STEPS, len(things) + 2, len(things) + 2), dtype=bool)
    for (i, j), on in touches.items():
        touch[:, i, j] = touch[:, j, i] = on
    scene = Scene(draw_look(np.random.default_rng(0), View()), things)
    return Record(scene, None, TIMES, np.stack(list(paths.values()), 1), touch, np.empty(0), np.empty(0))


def along_x(x: np.ndarray) -> np.ndarray:
    return np.stack([x, np.zeros(STEPS), np.full(STEPS, 0.4)], 1)


def test_a_movement_starts_and_stops_with_the_speed() -> None:
    x = np.clip(TIMES - 0.5, 0.0, 0.75)  # 1 m/s from 0.5 s to 1.25 s
    ((start, end),) = moves(record({"red": along_x(x)}, {}), "red ball")
    assert (start, end) == pytest.approx((0.5, 1.25), abs=2 * STEP_S)


def test_a_creep_and_a_twitch_are_no_movements() -> None:
    creep, twitch = 0.1 * TIMES, np.where(TIMES < 1.0, 0.0, np.clip(TIMES - 1.0, 0.0, 0.1))
    still = record({"red": along_x(creep), "blue": along_x(twitch)}, {})
    assert moves(still, "red ball") == moves(still, "blue ball") == []


def test_spans_bridge_short_gaps_only() -> None:
    on = np.zeros(STEPS, dtype=bool)
    on[8:17] = on[25:33] = on[80:89] = True  # gaps of 0.1 s and 0.6 s
    assert np.array(spans(on)) == pytest.approx(np.array([(0.1, 0.4), (1.0, 1.1)]))
    assert np.array(spans(on, gap_s=0.0)) == pytest.approx(np.array([(0.1, 0.2), (0.3125, 0.4), (1.0, 1.1)]))
    assert spans(np.zeros(STEPS, dtype=bool)) == []


def test_bounces_count_when_the_rise_can_be_seen() -> None:
    """Falls from 1 m above the floor, rises 0.45 m, then 0.05 m: the first landing is a bounce, the second is none."""
    g, z, touch = 9.81, np.empty(STEPS), np.zeros(STEPS, dtype=bool)
    land1 = np.sqrt(2 * 1.0 / g)
    v1 = np.sqrt(2 * g * 0.45)
    land2, v2 = land1 + 2 * v1 / g, np.sqrt(2 * g * 0.05)
    for i, t in enumerate(TIMES):
        if t < land1:
            z[i] = 1.0 - g * t**2 / 2
        elif t < land2:
            z[i] = v1 * (t - land1) - g * (t - land1) ** 2 / 2
        else:
            z[i] = max(0.0, v2 * (t - land2) - g * (t - land2) ** 2 / 2)
    for land in (land1, land2):
        touch[int(np.ceil(land / STEP_S))] = True
    path = np.stack([np.zeros(STEPS), np.zeros(STEPS), 0.4 + z], 1)
    thrown = record({"red": path}, {(0, 1): touch})
    rises = [rise for _, rise in rebounds(thrown, "red ball")]
    assert rises == pytest.approx([0.45, 0.05], abs=0.04)  # 12.5 ms after landing it is 4 cm up
    assert bounce_times(thrown, "red ball") == pytest.approx([land1], abs=STEP_S)


def test_contacts_name_both_objects_and_events_are_in_order() -> None:
    touch = (TIMES >= 0.6) & (TIMES <= 0.65)
    x = np.where(TIMES < 0.6, TIMES, 0.6)
    y = np.where(TIMES > 0.65, TIMES, 0.65)
    hit = record({"red": along_x(x), "blue": along_x(y)}, {(0, 1): touch})
    assert contacts(hit, "red ball", "blue ball")[0] == pytest.approx((0.6, 0.65))
    events = find_events(hit, [])
    assert [(e.kind, e.who) for e in events] == [
        ("move", ("red ball",)),
        ("contact", ("red ball", "blue ball")),
        ("move", ("blue ball",)),
    ]


def test_hidden_spans_need_two_frames() -> None:
    visible = np.ones(16, dtype=bool)
    visible[[3, 6, 7, 8, 14, 15]] = False
    track = ObjectTrack("red ball", "red", "ball", "object", *(np.zeros((16, n)) for n in (3, 2, 4)), visible)
    assert hidden_spans(track) == [(0.75, 1.0), (1.75, 1.875)]
