"""Questions about a physics clip: Timeline -> Samples. First those that every family can ask, then the family's own.

Each has a truth read from state and a trace of what can be seen, in time order, which leads to the answer.
"""

from __future__ import annotations

from cosmos_reason.simulate.asking import Asker
from cosmos_reason.simulate.bodies import COLOURS, SHAPES
from cosmos_reason.simulate.family_questions import ask_family
from cosmos_reason.simulate.told import Told, a, listed, sentence, the
from cosmos_reason.types import Sample, Timeline

_ATTRIBUTES, _RELATION = "common_sense.physics.attributes", "common_sense.space.relationship"
_ACTIONS, _ORDER = "common_sense.time.actions", "common_sense.time.order"
_FIRST_S = 0.3  # by which the first start must lead
_LEAST_SPAN_S, _WHOLE_S = 0.3, 1.7  # a movement that fills the clip makes no question of when

LIKE_SCENERY = {"white", "black"}  # screens, bars and ramps are light or dark grey


def questions(timeline: Timeline, video_path: str) -> list[Sample]:
    """All samples of a clip."""
    told, asker = Told(timeline), Asker(timeline, video_path)
    _describe(told, asker)
    _attributes(told, asker)
    _presence(told, asker)
    _motion(told, asker)
    _places(told, asker)
    _when_and_where(told, asker)
    ask_family(told, asker)
    return asker.samples


def _pick(asker: Asker, template: str, names: list[str]) -> str:
    """One of the names, drawn apart from the answer."""
    return names[int(asker.rng(template + "/asked").integers(len(names)))]


def _roll_call(told: Told) -> str:
    names = listed([a(o.name) for o in told.objects])
    return f"There is {names}." if len(told.objects) == 1 else f"There are {names}."


def _describe(told: Told, asker: Asker) -> None:
    asker.text(
        "caption",
        _ACTIONS,
        ("Describe the video.", "What happens in the video?"),
        told.timeline.caption,
        _roll_call(told),
    )


def _attributes(told: Told, asker: Asker) -> None:
    shapes = [o.shape for o in told.objects]
    lone = [o for o in told.objects if shapes.count(o.shape) == 1]
    if lone:
        name = _pick(asker, "colour", [o.name for o in lone])
        o = told.track(name)
        here = [x.colour for x in told.objects]
        wrong = here + [str(c) for c in asker.rng("colour/wrong").permutation(list(COLOURS)) if c not in here]
        think = f"There is one {o.shape}, and it is {o.colour}."
        asker.choose("colour", _ATTRIBUTES, (f"What colour is the {o.shape}?",), o.colour, wrong, think)
        asker.text("say_colour", _ATTRIBUTES, (f"What colour is the {o.shape}?",), o.colour, think)
    o = told.track(_pick(asker, "shape", [o.name for o in told.objects]))
    think = f"The {o.colour} object is {a(o.shape)}."
    other = str(asker.rng("shape/wrong").choice([s for s in SHAPES if s != o.shape]))
    asker.choose("shape", _ATTRIBUTES, (f"What shape is the {o.colour} object?",), o.shape, [other], think)
    asker.text("say_shape", _ATTRIBUTES, (f"What is the {o.colour} object?",), a(o.shape), think)


def _presence(told: Told, asker: Asker) -> None:
    """Half of the questions name an object of a colour that is not there, or with the shape of another."""
    rng = asker.rng("present/asked")
    o = told.objects[int(rng.integers(len(told.objects)))]
    colour, shape, present = o.colour, o.shape, bool(rng.integers(2))
    if not present:
        others = [x.shape for x in told.objects if x.shape != shape]
        if others and rng.integers(2):
            shape = str(rng.choice(others))
        else:
            there = {x.colour for x in told.objects} | LIKE_SCENERY  # a grey screen may pass for a white or black box
            colour = str(rng.choice([c for c in COLOURS if c not in there]))
    asked = a(f"{colour} {shape}")
    same = next((x for x in told.objects if x.colour == colour), None)
    think = f"The {colour} object is {a(same.shape)}." if same else f"No object is {colour}."
    asker.yes_no("present", _ATTRIBUTES, (f"Is there {asked}?",), present, think,
                 a(same.name) if same else f"nothing {colour}", asked)  # fmt: skip
    asker.number("objects", "common_sense.physics.states", ("How many objects are there?",), len(told.objects),
                 _roll_call(told))  # fmt: skip


def _motion(told: Told, asker: Asker) -> None:
    movers = [o.name for o in told.objects if told.moving(o.name)]
    if movers and told.still():
        moves = bool(asker.rng("does_it_move").integers(2))
        name = _pick(asker, "does_it_move", movers if moves else told.still())
        think = sentence(f"{the(name)} changes its place" if moves else f"{the(name)} stays in its place")
        asker.yes_no("does_it_move", _ACTIONS, (f"Does {the(name)} move?",), moves, think)
    sideways = [o.name for o in told.objects if told.direction(o.name)]
    if sideways:
        name = _pick(asker, "direction", sideways)
        side = told.direction(name)
        frames = [t for t, seen in enumerate(told.track(name).visible_T) if seen]
        think = sentence(f"{the(name)} is first {told.place(name, frames[0])} and goes to the {side}")
        wordings = (f"Which way does {the(name)} move?", f"To which side does {the(name)} go?")
        asker.choose("direction", _ACTIONS, wordings, f"to the {side}", ("to the left", "to the right"), think)
        asker.text("say_direction", _ACTIONS, wordings[:1], f"to the {side}", think)
        asked = _pick(asker, "goes_left", ["left", "right"])
        asker.yes_no("goes_to_side", _ACTIONS, (f"Does {the(name)} move to the {asked}?",), side == asked, think,
                     f"to the {side}", f"to the {asked}")  # fmt: skip
    if told.clear_motion():
        _who_moves(told, asker)


def _who_moves(told: Told, asker: Asker) -> None:
    """Which object moves, and which starts first; only where every object clearly moves or rests."""
    names = [o.name for o in told.objects]
    movers = [n for n in names if told.moving(n)]
    if len(movers) == 1 and len(names) >= 2:
        think = sentence(f"{the(movers[0])} moves, and the rest does not")
        asker.choose("which_moves", _ACTIONS, ("Which object moves?",), the(movers[0]), [the(n) for n in names], think)
        asker.text("say_which_moves", _ACTIONS, ("Which object moves?",), the(movers[0]), think)
    starts = sorted((told.events("move", n)[0].start_s, n) for n in movers if told.events("move", n))
    if len(starts) >= 2 and starts[1][0] - starts[0][0] >= _FIRST_S:
        think = sentence(f"{the(starts[0][1])} starts to move, then {the(starts[1][1])} starts to move")
        asker.choose("moves_first", _ORDER, ("Which object starts to move first?", "Which object moves first?"),
                     the(starts[0][1]), [the(n) for _, n in starts], think)  # fmt: skip


def _places(told: Told, asker: Asker) -> None:
    """Left and right at the start and at the end, as the camera sees them."""
    for moment, frame in (("start", 0), ("end", -1)):
        order = told.ordered_at(frame)
        if order is None or len(order) < 2:
            continue
        think = f"At the {moment}, from left to right: {listed([the(n) for n in order])}."
        side = _pick(asker, f"outermost_{moment}", ["left", "right"])
        asker.choose(f"outermost_{moment}", _RELATION, (f"Which object is furthest to the {side} at the {moment}?",),
                     the(order[0 if side == "left" else -1]), [the(n) for n in order], think)  # fmt: skip
        rng = asker.rng(f"left_of_{moment}/asked")
        one, two = (order[i] for i in rng.permutation(len(order))[:2])
        left, right = sorted((one, two), key=order.index)
        asker.yes_no(f"left_of_{moment}", _RELATION, (f"Is {the(one)} to the left of {the(two)} at the {moment}?",),
                     one == left, think, f"{the(left)}, then {the(right)}", f"{the(one)}, then {the(two)}",
        )  # fmt: skip


def _when_and_where(told: Told, asker: Asker) -> None:
    timed = [o.name for o in told.objects if _timed(told, o.name)]
    if timed:
        name = _pick(asker, "when_moves", timed)
        move = told.events("move", name)[0]
        begins = "moves from the start" if move.start_s < 0.1 else f"starts to move at about {move.start_s:.1f} seconds"
        ends = "moves until the end" if move.end_s > 1.8 else f"stops at about {move.end_s:.1f} seconds"
        think = sentence(f"{the(name)} {begins} and {ends}")
        asker.interval("when_moves", (f"When does {the(name)} move?",), move.start_s, move.end_s, think)
    for moment, frame in (("first", 0), ("last", -1)):
        seen = [o.name for o in told.objects if o.visible_T[frame] and _inside(told, o.name, frame)]
        if seen:
            name = _pick(asker, f"point_{moment}", seen)
            think = sentence(f"in the {moment} frame {the(name)} is {told.place(name, frame)}")
            asker.point(f"point_{moment}", (f"Where is {the(name)} in the {moment} frame?",),
                        told.track(name).centre_xy_T2[frame], think)  # fmt: skip


def _timed(told: Told, name: str) -> bool:
    """Whether the object moves exactly once, in view, neither for a moment nor all the time."""
    moves = told.events("move", name)
    if len(moves) != 1 or not told.moving(name):
        return False
    times, span = told.timeline.times_s_T, moves[0].end_s - moves[0].start_s
    during = (times >= moves[0].start_s) & (times <= moves[0].end_s)
    return _LEAST_SPAN_S <= span <= _WHOLE_S and bool(told.track(name).visible_T[during].all())


def _inside(told: Told, name: str, frame: int) -> bool:
    centre = told.track(name).centre_xy_T2[frame]
    return bool(((centre > 0) & (centre < 1000)).all())
