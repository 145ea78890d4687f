"""What the arm is asked to do, how it can go wrong, and the words for both.

`SPECS` has one row a task: the Meta-World environment, the body that is to be moved, the camera, the faults that can
be injected, and the wording. `story` turns the facts of a clip into sentences about what can be seen; captions and
reasoning traces are made of these sentences. Nothing here needs the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cosmos_reason.types import Fact

Failure = Literal["missed", "stopped", "turned_back", "dropped", "wrong_place"]

COLOURS: Mapping[str, tuple[float, float, float]] = {
    "red": (0.85, 0.08, 0.08),
    "green": (0.10, 0.65, 0.15),
    "blue": (0.10, 0.25, 0.90),
    "yellow": (0.95, 0.85, 0.10),
    "purple": (0.55, 0.15, 0.70),
    "orange": (1.00, 0.50, 0.05),
}


@dataclass(frozen=True)
class Spec:
    """One task. `{o}` in the wording stands for the object ("red drawer"), `{g}` for the goal ("blue ball")."""

    environment: str  # Meta-World name without its version
    body: str  # body of the object that moves; empty for `reach`, whose object is the gripper
    noun: str  # of the object, e.g. "drawer"
    goal: str  # noun of the goal that is drawn; empty where the goal is a state of the object
    verb: str  # what is done to the object, e.g. "close it"
    instruction: str
    question: str  # verification
    done: str  # the object's state after success, e.g. "is closed"
    undone: str  # its state after a failure
    failures: tuple[Failure, ...]
    azimuths_deg: tuple[float, float]  # two camera sides, mirrored so that left and right are balanced
    distance_m: float
    early: tuple[int, int]  # control steps between which the arm is under way but has not touched anything


FIXTURE: tuple[Failure, ...] = ("missed", "stopped", "turned_back")
PUCK: tuple[Failure, ...] = ("missed", "stopped", "dropped", "wrong_place")

SPECS: Mapping[str, Spec] = {
    "drawer_close": Spec(
        "drawer-close", "drawer_link", "drawer", "", "close it", "close the {o}", "Did the arm close the {o}?",
        "is closed", "is still open", FIXTURE, (160.0, 20.0), 0.85, (25, 48),
    ),
    "drawer_open": Spec(
        "drawer-open", "drawer_link", "drawer", "", "open it", "open the {o}", "Did the arm open the {o}?",
        "is open", "is not fully open", FIXTURE, (160.0, 20.0), 0.85, (25, 60),
    ),
    "door_open": Spec(
        "door-open", "door_link", "door", "", "open it", "open the {o}", "Did the arm open the {o}?",
        "is open", "is not fully open", FIXTURE, (160.0, 20.0), 1.15, (14, 30),
    ),
    "button_press": Spec(
        "button-press", "button", "button", "", "press it", "press the {o}", "Did the arm press the {o} all the way?",
        "is pressed in", "is not pressed in", FIXTURE, (165.0, 15.0), 0.75, (22, 40),
    ),
    "button_press_topdown": Spec(
        "button-press-topdown", "button", "button", "", "press it", "press the {o} from above",
        "Did the arm press the {o} all the way?", "is pressed in", "is not pressed in",
        FIXTURE, (205.0, 335.0), 0.75, (25, 55),
    ),
    "push": Spec(
        "push", "obj", "puck", "ball", "push it", "push the {o} to the {g}", "Did the arm push the {o} to the {g}?",
        "is at the {g}", "is not at the {g}", PUCK, (205.0, 335.0), 0.65, (20, 34),
    ),
    "pick_place": Spec(
        "pick-place", "obj", "puck", "ball", "pick it up", "pick up the {o} and bring it to the {g}",
        "Did the arm bring the {o} to the {g}?", "is at the {g}", "is not at the {g}",
        PUCK, (205.0, 335.0), 0.65, (12, 26),
    ),
    "reach": Spec(
        "reach", "", "gripper", "ball", "move to the ball", "move the {o} to the {g}", "Did the {o} reach the {g}?",
        "is at the {g}", "is not at the {g}", ("stopped", "turned_back", "wrong_place"), (205.0, 335.0), 0.80, (12, 30),
    ),
}  # fmt: skip

TASKS: tuple[str, ...] = tuple(SPECS)

WRONG: Mapping[Failure, str] = {
    "missed": "the gripper missed the {o}",
    "stopped": "the gripper stopped too early",
    "turned_back": "the gripper turned back",
    "dropped": "the gripper let go of the {o}",
    "wrong_place": "the arm went to the wrong place",
}


def words(text: str, facts: Mapping[str, Fact]) -> str:
    """Put the names of a clip's object and goal into a wording."""
    return text.format(o=facts["object"], g=facts["goal"])


def approach(facts: Mapping[str, Fact]) -> str:
    """How the gripper comes to the object: one sentence about the first part of the clip."""
    failure = str(facts["failure"])
    if facts["task"] == "reach":
        towards = "moves, but not to the {g}" if failure == "wrong_place" else "moves toward the {g}"
        return words(f"The gripper {towards}.", facts)
    if facts["contact"]:
        return words("The gripper moves to the {o} and touches it.", facts)
    ending = {
        "missed": "goes down beside the {o} and does not touch it",
        "stopped": "moves toward the {o} and stops before it touches it",
        "turned_back": "moves toward the {o} and turns back before it touches it",
    }[failure]
    return words(f"The gripper {ending}.", facts)


def motion(facts: Mapping[str, Fact]) -> str:
    """What becomes of the object: one sentence about the second part of the clip."""
    failure, direction = str(facts["failure"]), str(facts["direction"])
    if facts["task"] == "reach":
        text = {
            "none": "It stops at the {g}",
            "stopped": "It stops before it is at the {g}",
            "turned_back": "It turns back before it is at the {g}",
            "wrong_place": "It stops away from the {g}",
        }[failure]
    elif not facts["moved"]:
        text = "The {o} does not move"
    elif failure == "stopped":
        text = f"The {{o}} moves{direction and ' ' + direction}, then the gripper stops too early"
    elif failure == "dropped":
        text = "The gripper lets go of the {o} on the way, and the {o} stays behind"
    elif failure == "wrong_place":
        text = "The {o} is carried to another place than the {g}"
    elif failure == "turned_back":
        text = "The {o} moves a little, then the gripper turns back"
    else:
        text = f"The {{o}} moves{direction and ' ' + direction} with the gripper"
    return words(text + ".", facts)


def ending(facts: Mapping[str, Fact]) -> str:
    """The state at the end of the clip in one sentence."""
    spec = SPECS[str(facts["task"])]
    state = spec.done if facts["outcome"] == "success" else spec.undone
    return words(f"At the end the {{o}} {state}.", facts)


def story(facts: Mapping[str, Fact]) -> str:
    """The whole clip in three sentences, in the order of time."""
    return " ".join((approach(facts), motion(facts), ending(facts)))
