"""Questions that only one family can ask: Told, Asker -> samples. What decides them is read from the facts."""

from __future__ import annotations

from collections.abc import Callable

from cosmos_reason.simulate.asking import Asker
from cosmos_reason.simulate.stories import story
from cosmos_reason.simulate.told import Told, the

ACTIONS, ORDER, CAUSE = "common_sense.time.actions", "common_sense.time.order", "common_sense.time.causality"
MECHANICS, STATES = "common_sense.physics.mechanics", "common_sense.physics.states"
PERMANENCE, ANTI = "common_sense.physics.permanence", "common_sense.physics.anti_physics"
PLAUSIBLE = "common_sense.space.plausibility"


def ask_family(told: Told, asker: Asker) -> None:
    """Every question of the clip's own family."""
    _ASK[told.timeline.family](told, asker)


def _collision(told: Told, asker: Asker) -> None:
    mover, target, think = the(told.fact("mover")), the(told.fact("target")), story(told).whole
    hit = told.fact("outcome") == "hit"
    asker.yes_no("hit", MECHANICS, (f"Does {mover} hit {target}?", f"Do {mover} and {target} touch?"), hit, think)
    ways = ("they hit each other", "they pass each other")
    asker.choose("what_happens", ACTIONS, (f"What happens between {mover} and {target}?",), ways[not hit], ways, think)
    asker.text("say_hit", ACTIONS, (f"What happens between {mover} and {target}?",), ways[not hit], think)
    if not bool(told.timeline.facts["oncoming"]):
        pushed = "it is pushed away" if hit else "it stays where it is"
        asker.choose(
            "target",
            CAUSE,
            (f"What happens to {target}?",),
            pushed,
            ("it is pushed away", "it stays where it is"),
            think,
        )


def _throw(told: Told, asker: Asker) -> None:
    mover, think, first = the(told.fact("mover")), story(told).whole, told.fact("outcome") == "bounces or clears"
    if told.fact("variant") == "wall":
        asker.yes_no(
            "over", MECHANICS, (f"Does {mover} get over the wall?", f"Does {mover} clear the wall?"), first, think
        )
        ways = ("it goes over the wall", "it hits the wall")
        asker.choose(
            "wall", ACTIONS, (f"What does {mover} do?", f"What happens to {mover}?"), ways[not first], ways, think
        )
        asker.text("say_wall", ACTIONS, (f"What happens to {mover}?",), ways[not first], think)
        return
    asker.yes_no("bounces", MECHANICS, (f"Does {mover} bounce?", f"Does {mover} bounce on the floor?"), first, think)
    asker.number("how_often", MECHANICS, (f"How many times does {mover} bounce?",), told.number("bounces"), think)
    if first:
        counts = ("once", "twice", "three times")
        often = counts[int(told.number("bounces")) - 1]
        asker.choose("bounce_count", MECHANICS, (f"How often does {mover} bounce?",), often, counts, think)
    bounces = told.events("bounce", told.fact("mover"))
    if len(bounces) >= 2:
        asker.interval(
            "between_bounces",
            (f"When is {mover} in the air between its first and second bounce?",),
            bounces[0].start_s,
            bounces[1].start_s,
            think,
        )


def _slide(told: Told, asker: Asker) -> None:
    mover, think, stops = the(told.fact("mover")), story(told).whole, told.fact("outcome") == "stops"
    asker.yes_no(
        "passes", MECHANICS, (f"Does {mover} pass the line?", f"Does {mover} go over the line?"), not stops, think
    )
    ways = ("before the line", "past the line")
    asker.choose("end", STATES, (f"Where is {mover} at the end?",), ways[not stops], ways, think)
    asker.text("say_end", STATES, (f"Where is {mover} at the end?",), ways[not stops], think)


def _tower(told: Told, asker: Asker) -> None:
    think, top, falls = story(told).whole, told.fact("top"), told.fact("outcome") == "falls"
    asker.yes_no("falls", MECHANICS, ("Does the stack fall?", "Does the stack fall over?"), falls, think)
    asker.choose(
        "end",
        STATES,
        ("What does the stack do?",),
        "it falls" if falls else "it stands",
        ("it falls", "it stands"),
        think,
    )
    asker.text("say_end", STATES, ("What does the stack do?",), "it falls" if falls else "it stands", think)
    blocks = [o.name for o in told.objects if o.shape == "box"]
    asker.choose(
        "on_top",
        "common_sense.space.relationship",
        ("Which box is on top at the start?",),
        the(top),
        [the(b) for b in blocks],
        f"At the start {the(top)} is on top of the stack.",
    )
    asker.number(
        "boxes", STATES, ("How many boxes does the stack have?",), int(told.number("blocks")), story(told).action
    )
    side = told.direction(top)
    if falls and side:
        asker.choose(
            "fall_side",
            MECHANICS,
            ("To which side does the stack fall?",),
            f"to the {side}",
            ("to the left", "to the right"),
            think,
        )


def _occluder(told: Told, asker: Asker) -> None:
    ball, think, ending = the(told.fact("mover")), story(told).whole, told.fact("ending")
    again = ending in ("out", "found")
    wordings = [f"Is {ball} seen again?"]
    if again == bool(told.track(told.fact("mover")).visible_T[-1]):  # a ball that came out may have left the picture
        wordings.append(f"Can {ball} be seen at the end?")
    asker.yes_no("seen_again", PERMANENCE, wordings, again, think)
    if ending in ("found", "gone"):
        asker.yes_no(
            "possible",
            ANTI,
            ("Is this possible in the real world?", "Can this really happen?"),
            ending == "found",
            think,
        )
        ways = ("it is still there", "it is gone")
        asker.choose("revealed", PERMANENCE, (f"The screen goes up. What about {ball}?",), ways[not again], ways, think)
    else:
        ways = ("it comes out", "it stays behind the screen")
        asker.choose("comes_out", PERMANENCE, (f"What does {ball} do?",), ways[not again], ways, think)
        asker.text("say_out", PERMANENCE, (f"What does {ball} do?",), ways[not again], think)
    hidden = told.events("hidden", told.fact("mover"))
    if len(hidden) == 1 and hidden[0].end_s - hidden[0].start_s >= 0.25:
        asker.interval("hidden", (f"When is {ball} out of sight?",), hidden[0].start_s, hidden[0].end_s, think)


def _ramp(told: Told, asker: Asker) -> None:
    think = story(told).whole
    if told.fact("variant") == "single":
        mover, moves = the(told.fact("mover")), told.fact("outcome").startswith("moves")
        asker.yes_no("moves", MECHANICS, (f"Does {mover} move down the ramp?", f"Does {mover} go down?"), moves, think)
        ways = ("it moves down", "it stays up")
        asker.choose("what", MECHANICS, (f"What does {mover} do on the ramp?",), ways[not moves], ways, think)
        asker.text("say_what", MECHANICS, (f"What does {mover} do on the ramp?",), ways[not moves], think)
        return
    first, second = the(told.fact("first")), the(told.fact("second"))
    asker.choose(
        "down_first",
        ORDER,
        ("Which object is down first?", "Which object gets down the ramp first?"),
        first,
        (first, second),
        think,
    )
    asker.text("say_first", ORDER, ("Which object is down first?",), first, think)
    asked = (first, second)[int(asker.rng("is_first/asked").integers(2))]
    asker.yes_no("is_first", ORDER, (f"Is {asked} down first?",), asked == first, think, first, asked)


def _pendulum(told: Told, asker: Asker) -> None:
    bob, target, think = the(told.fact("mover")), the(told.fact("target")), story(told).whole
    hit = told.fact("outcome") == "hit"
    asker.yes_no("hit", MECHANICS, (f"Does {bob} hit {target}?", f"Do {bob} and {target} touch?"), hit, think)
    ways = ("it is pushed away", "it stays where it is")
    asker.choose("target", CAUSE, (f"What happens to {target}?",), ways[not hit], ways, think)
    asker.text("say_target", CAUSE, (f"What happens to {target}?",), ways[not hit], think)
    if told.has("passes"):
        asker.number(
            "passes",
            MECHANICS,
            (f"How many times does {bob} swing past its lowest point?",),
            told.number("passes"),
            think,
        )


def _arrow(told: Told, asker: Asker) -> None:
    outcome, think = told.fact("outcome"), story(told).whole
    asker.yes_no(
        "backward",
        "common_sense.time.order",
        ("Is the video played backward?", "Does time run backward here?"),
        outcome == "backward",
        think,
    )
    asker.yes_no(
        "possible",
        ANTI,
        ("Is this possible in the real world?", "Can this really happen?"),
        outcome == "forward",
        think,
    )
    asker.choose("arrow", ORDER, ("Which way is the video played?",), outcome, ("forward", "backward"), think)
    asker.text("say_arrow", ORDER, ("Is the video played forward or backward?",), outcome, think)


def _count(told: Told, asker: Asker) -> None:
    think, total = story(told).whole, told.fact("outcome") == "all"
    asker.yes_no("all", ACTIONS, ("Do all objects move?", "Does every object move?"), total, think)
    asker.choose(
        "all_or_some",
        ACTIONS,
        ("How many of the objects move?",),
        "all of them" if total else "not all of them",
        ("all of them", "not all of them"),
        think,
    )
    asker.number("how_many_move", ACTIONS, ("How many objects move?",), told.number("movers"), think)
    if told.number("movers") >= 2:
        last = the(told.fact("last"))
        asker.choose(
            "moves_last",
            ORDER,
            ("Which object starts to move last?",),
            last,
            [the(o.name) for o in told.objects],
            think,
        )
    for name in told.still()[:1]:
        asker.choose(
            "stands_still",
            ACTIONS,
            ("Which object does not move?",),
            the(name),
            [the(o.name) for o in told.objects if o.name not in told.still()],
            think,
        )


def _levitate(told: Told, asker: Asker) -> None:
    mover, think = the(told.fact("mover")), story(told).whole
    motion, possible = told.fact("motion"), told.fact("outcome") == "possible"
    asker.yes_no("possible", ANTI, ("Is this possible in the real world?", "Can this really happen?"), possible, think)
    words = {
        "falls": "it falls",
        "rises and falls": "it goes up and comes down",
        "hangs": "it stays in the air",
        "rises": "it keeps rising",
    }
    asker.choose(
        "motion",
        MECHANICS,
        (f"What does {mover} do?", f"How does {mover} move?"),
        words[motion],
        tuple(words.values()),
        think,
    )
    asker.text("say_motion", MECHANICS, (f"What does {mover} do?",), words[motion], think)
    landed = motion in ("falls", "rises and falls")
    asker.yes_no(
        "lands",
        STATES,
        (f"Does {mover} come down to the floor?", f"Is {mover} on the floor at the end?"),
        landed,
        think,
    )


_ASK: dict[str, Callable[[Told, Asker], None]] = {
    "collision": _collision,
    "throw": _throw,
    "slide": _slide,
    "tower": _tower,
    "occluder": _occluder,
    "ramp": _ramp,
    "pendulum": _pendulum,
    "arrow": _arrow,
    "count": _count,
    "levitate": _levitate,
}
