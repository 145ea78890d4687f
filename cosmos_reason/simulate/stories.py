"""What a clip shows, in two sentences made from its facts and tracks: Told -> Story(action, result).

Captions and reasoning traces are built from these, so that a trace says in time order what can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cosmos_reason.simulate.told import NUMBER_WORDS, Told, a, listed, sentence, the

_TIMES = ("not at all", "once", "twice", "three times")


class Story(NamedTuple):
    """Two sentences: what starts, and how it ends."""

    action: str
    result: str

    @property
    def whole(self) -> str:
        return f"{self.action} {self.result}"


def story(told: Told) -> Story:
    """The story of a physics clip."""
    return _STORIES[told.timeline.family](told)


def caption(told: Told) -> str:
    """Who is where, who does what, and how it ends."""
    places = listed([f"{a(o.name)} {told.place(o.name, _first_seen(told, o.name))}" for o in told.objects])
    verb = "is" if len(told.objects) == 1 else "are"
    return f"There {verb} {places}. {story(told).whole}"


def _first_seen(told: Told, name: str) -> int:
    return int(told.track(name).visible_T.argmax())


def _to_side(told: Told, name: str) -> str:
    side = told.direction(name)
    return f" to the {side}" if side else ""


def _collision(told: Told) -> Story:
    mover, target = told.fact("mover"), told.fact("target")
    action = f"{the(mover)} moves{_to_side(told, mover)}"
    oncoming = bool(told.timeline.facts["oncoming"])
    action += f", and {the(target)} comes towards it" if oncoming else f", and {the(target)} stands still"
    if told.fact("outcome") == "hit":
        return Story(sentence(action), sentence(f"they touch, and {the(target)} is pushed away"))
    return Story(sentence(action), sentence(f"{the(mover)} goes past {the(target)} and does not touch it"))


def _throw(told: Told) -> Story:
    mover = told.fact("mover")
    action = sentence(f"{the(mover)} flies through the air{_to_side(told, mover)}")
    if told.fact("variant") == "wall":
        over = told.fact("outcome") == "bounces or clears"
        return Story(action, "It goes over the wall." if over else "It hits the wall and does not get over it.")
    bounces = int(told.number("bounces"))
    return Story(action, f"It falls to the floor and bounces {_TIMES[bounces]}." if bounces else
                 "It falls to the floor and does not bounce.")  # fmt: skip


def _slide(told: Told) -> Story:
    mover = told.fact("mover")
    stops = told.fact("outcome") == "stops"
    return Story(
        sentence(f"{the(mover)} slides{_to_side(told, mover)}"),
        "It gets slower and stops before the line." if stops else "It goes over the line and passes it.",
    )


def _tower(told: Told) -> Story:
    top, blocks = told.fact("top"), NUMBER_WORDS[int(told.number("blocks"))]
    action = f"There is a stack of {blocks} boxes with {the(top)} on top."
    if told.fact("outcome") == "stands":
        return Story(action, "No box moves, and the stack stands.")
    return Story(action, f"The stack tips over, and {the(top)} falls{_to_side(told, top)}.")


def _occluder(told: Told) -> Story:
    ball = told.fact("mover")
    endings = {
        "out": "It comes out on the other side.",
        "behind": "It does not come out again.",
        "found": "The screen goes up, and the ball is there.",
        "gone": "The screen goes up, and the ball is gone.",
    }
    action = sentence(f"{the(ball)} rolls{_entry_side(told, ball)} and goes behind the screen")
    return Story(action, endings[told.fact("ending")])


def _entry_side(told: Told, ball: str) -> str:
    """From the side of the screen on which the ball starts: it may not be seen long enough to read its way."""
    starts_left = told.track(ball).centre_xy_T2[0, 0] < told.track("screen").centre_xy_T2[0, 0]
    return " to the right" if starts_left else " to the left"


def _ramp(told: Told) -> Story:
    if told.fact("variant") == "single":
        mover, moves = told.fact("mover"), told.fact("outcome").startswith("moves")
        return Story(
            sentence(f"{the(mover)} is on the ramp"),
            "It moves down the ramp." if moves else "It does not move and stays up.",
        )
    first, second = told.fact("first"), told.fact("second")
    action = sentence(f"{listed([the(o.name) for o in told.objects])} start side by side on the ramp")
    return Story(action, sentence(f"{the(first)} gets ahead, and {the(second)} is behind or stays up"))


def _pendulum(told: Told) -> Story:
    bob, target = told.fact("mover"), told.fact("target")
    action = sentence(f"{the(bob)} swings on a rod")
    if told.fact("outcome") == "hit":
        return Story(action, sentence(f"it hits {the(target)}, and {the(target)} is pushed away"))
    return Story(action, sentence(f"it does not touch {the(target)}, and {the(target)} stays in its place"))


def _arrow(told: Told) -> Story:
    forward, mover = told.fact("outcome") == "forward", told.fact("mover")
    others = "the other objects"
    ways = {
        ("bounce", True): (f"{the(mover)} bounces{_to_side(told, mover)}", "it rises less high each time"),
        ("bounce", False): (f"{the(mover)} bounces{_to_side(told, mover)}", "it rises higher each time"),
        ("tower", True): (f"{the(mover)} is high on the stack", "it falls down to the floor"),
        ("tower", False): (f"{the(mover)} is down on the floor", "it rises up onto the stack by itself"),
        ("scatter", True): (f"{the(mover)} rolls into {others}", "they are pushed apart"),
        ("scatter", False): (f"{others} move together by themselves", f"{the(mover)} rolls away from them"),
        ("slide", True): (f"{the(mover)} slides{_to_side(told, mover)}", "it gets slower and stops"),
        ("slide", False): (
            f"{the(mover)} starts by itself{_to_side(told, mover)}",
            "it gets faster and nothing pushes it",
        ),
    }
    action, result = ways[told.fact("kind"), forward]
    return Story(sentence(action), sentence(result))


def _count(told: Told) -> Story:
    movers = sorted((e.start_s, e.who[0]) for o in told.objects for e in told.events("move", o.name)[:1])
    names = [the(name) for _, name in movers]
    action = f"{names[0]} starts to move" + "".join(f", then {name}" for name in names[1:])
    rest = [the(name) for name in told.still()]
    stands = "stands still" if len(rest) == 1 else "stand still"
    return Story(sentence(action), sentence(f"{listed(rest)} {stands}") if rest else "No object stands still.")


def _levitate(told: Told) -> Story:
    mover = told.fact("mover")
    motions = {
        "falls": ("is in the air", "It falls down to the floor."),
        "rises and falls": ("goes up", "It gets slower, turns and falls down again."),
        "hangs": ("is in the air", "It stays in the air, and nothing holds it."),
        "rises": ("goes up", "It keeps rising, and nothing lifts it."),
    }
    begin, end = motions[told.fact("motion")]
    return Story(sentence(f"{the(mover)} {begin}"), end)


_STORIES: dict[str, Callable[[Told], Story]] = {
    "collision": _collision, "throw": _throw, "slide": _slide, "tower": _tower, "occluder": _occluder, "ramp": _ramp,
    "pendulum": _pendulum, "arrow": _arrow, "count": _count, "levitate": _levitate,
}  # fmt: skip
