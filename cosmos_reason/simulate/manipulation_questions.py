"""Questions about a robot arm's attempt: Timeline -> Samples, one function a template.

Each answer comes from the timeline's facts, events and tracks, never from pixels. A function returns None where the
clip does not decide its question clearly. Options are shuffled by the clip's name, so letters carry no information.
`action` belongs to its noun ("manipulation_drawer") rather than to a task, because answers are balanced within a
family's template and one task has one answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from cosmos_reason.simulate.manipulation_tasks import SPECS, WRONG, Failure, Spec, approach, ending, motion, words
from cosmos_reason.types import LETTERS, Event, Gold, Kind, ObjectTrack, Sample, Timeline, VideoRef

ROBOT, TIME, SPACE = "embodied.robot_arm", "common_sense.time", "common_sense.space"
CUTS = (4, 7, 10)  # frames at which a clip may be cut before the question what comes next
RESTS_M = 0.03  # an arm that goes further than this after the cut does not stay where it is
CLEAR_S = 0.1  # a cut keeps this far from the moment that changes the answer
LIFTED_M = 0.05  # a puck that was picked up rises at least so far, one that was pushed less
OFFERED = {"drawer": ("open it", "close it"), "puck": ("push it", "pick it up")}


def questions(timeline: Timeline, video_path: str) -> list[Sample]:
    """Every question that this clip answers, in a fixed order; ids are `<clip_id>/<template>`."""
    samples = (template(timeline, video_path) for template in TEMPLATES)
    return [sample for sample in samples if sample is not None]


def _sample(
    timeline: Timeline, path: str, template: str, kind: Kind, question: str, answer: Gold, think: str, ontology: str,
    options: tuple[str, ...] = (), end_s: float | None = None, group: str = "",
) -> Sample:  # fmt: skip
    return Sample(
        f"{timeline.clip_id}/{template}", kind, question, answer, VideoRef(path, None, end_s), options,
        think=think, ontology=ontology, family=group or timeline.family, template=template,
    )  # fmt: skip


def _choice(
    timeline: Timeline, path: str, template: str, question: str, right: str, wrong: Sequence[str], think: str,
    ontology: str, end_s: float | None = None, group: str = "",
) -> Sample:  # fmt: skip
    """A choice among `right` and `wrong`, at most four options, in an order drawn from the clip and template."""
    rng = _rng(timeline, template)
    others = [wrong[i] for i in rng.permutation(len(wrong))][:3]
    options = tuple(str(option) for option in rng.permutation([right, *others]))
    letter = LETTERS[options.index(right)]
    return _sample(timeline, path, template, "choice", question, letter, think, ontology, options, end_s, group)


def _rng(timeline: Timeline, template: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{timeline.clip_id}/{template}".encode()))


def _track(timeline: Timeline, name: str) -> ObjectTrack:
    return next(track for track in timeline.objects if track.name == name)


def _event(timeline: Timeline, kind: str) -> Event | None:
    return next((event for event in timeline.events if event.kind == kind), None)


def _spec(timeline: Timeline) -> Spec:
    return SPECS[str(timeline.facts["task"])]


def _reaching(timeline: Timeline) -> bool:
    return timeline.facts["task"] == "reach"


def verification(timeline: Timeline, path: str) -> Sample:
    """Did the arm do what it was to do?"""
    facts = timeline.facts
    think = f"{motion(facts)} {ending(facts)}"
    answer = "yes" if facts["outcome"] == "success" else "no"
    question = words(_spec(timeline).question, facts)
    return _sample(timeline, path, "verification", "binary", question, answer, think, f"{ROBOT}.verification")


def affordance(timeline: Timeline, path: str) -> Sample | None:
    """Can the arm move the object at the end without coming nearer: is it in touch with it, or clearly apart?"""
    facts = timeline.facts
    if _reaching(timeline):
        return None
    contact, last_s = _event(timeline, "contact"), float(timeline.times_s_T[-1])
    gripper, thing = _track(timeline, "gripper"), _track(timeline, str(facts["object"]))
    in_touch = contact is not None and contact.end_s >= last_s
    if not in_touch and not _apart(gripper.box_T4[-1], thing.box_T4[-1]):
        return None
    place = "at the {o}" if in_touch else "away from the {o}"
    question = words("At the end, can the gripper move the {o} without coming closer to it?", facts)
    think = words(f"In the last frame the gripper is {place}.", facts)
    answer = "yes" if in_touch else "no"
    return _sample(timeline, path, "affordance", "binary", question, answer, think, f"{ROBOT}.affordance")


def _apart(first_4: np.ndarray, second_4: np.ndarray) -> bool:
    """Whether two boxes (x1, y1, x2, y2) share no point."""
    return bool((first_4[:2] > second_4[2:]).any() or (second_4[:2] > first_4[2:]).any())


def moved(timeline: Timeline, path: str) -> Sample | None:
    """Does the object move at all?"""
    facts = timeline.facts
    if _reaching(timeline):
        return None
    answer = "yes" if facts["moved"] else "no"
    think = f"{approach(facts)} {motion(facts)}"
    question = words("Does the {o} move?", facts)
    return _sample(timeline, path, "moved", "binary", question, answer, think, f"{TIME}.actions")


def touched(timeline: Timeline, path: str) -> Sample | None:
    """Does the gripper ever touch the object?"""
    facts = timeline.facts
    if _reaching(timeline):
        return None
    question = words("Does the gripper touch the {o}?", facts)
    answer = "yes" if facts["contact"] else "no"
    return _sample(timeline, path, "touched", "binary", question, answer, approach(facts), f"{TIME}.actions")


def what_went_wrong(timeline: Timeline, path: str) -> Sample | None:
    """Why did it fail? Asked of failures only; the other options are what else could happen at this task."""
    facts = timeline.facts
    if facts["outcome"] == "success":
        return None
    failures: tuple[Failure, ...] = _spec(timeline).failures
    right = words(WRONG[next(f for f in failures if f == facts["failure"])], facts)
    wrong = [words(WRONG[f], facts) for f in failures if f != facts["failure"]]
    question = words("The arm was to {}. What went wrong?".format(facts["instruction"]), facts)
    think = f"{approach(facts)} {motion(facts)}"
    return _choice(timeline, path, "what_went_wrong", question, right, wrong, think, f"{ROBOT}.verification")


def action(timeline: Timeline, path: str) -> Sample | None:
    """What does the arm do with the object? Asked where one thing can be handled in two ways and was moved."""
    facts, spec = timeline.facts, _spec(timeline)
    if not facts["moved"] or spec.noun not in OFFERED:
        return None
    if spec.noun == "puck":
        height_m_T = _track(timeline, str(facts["object"])).position_m_T3[:, 2]
        rise_m = float(height_m_T.max() - height_m_T[0])
        if (rise_m >= LIFTED_M) != (spec.verb == "pick it up"):
            return None
    wrong = [verb for verb in OFFERED[spec.noun] if verb != spec.verb]
    question = words("What does the arm try to do with the {o}?", facts)
    think = f"{approach(facts)} {motion(facts)}"
    group = f"manipulation_{spec.noun}"
    return _choice(timeline, path, "action", question, spec.verb, wrong, think, f"{TIME}.actions", group=group)


def direction(timeline: Timeline, path: str) -> Sample | None:
    """Does the object, or the gripper when it reaches, go left or right? The two camera sides make both as likely."""
    facts = timeline.facts
    right = str(facts["direction"])
    if right not in ("left", "right") or not facts["moved"]:
        return None
    other = "left" if right == "right" else "right"
    question = words("Which way does the {o} move, as the camera sees it?", facts)
    think = words(f"The {{o}} starts farther {other} and ends farther {right}.", facts)
    return _choice(timeline, path, "direction", question, right, [other], think, f"{SPACE}.relationship")


def next_action(timeline: Timeline, path: str) -> Sample | None:
    """What comes next? The clip is cut at one of few frames, and balancing evens the answers for each of them.

    Otherwise the length would tell: a short clip ends before the touch, a long one after the task is done.
    """
    facts = timeline.facts
    contact, success = _event(timeline, "contact"), _event(timeline, "success")
    if contact is None or success is None:
        return None
    cut = int(_rng(timeline, "cut").choice(CUTS))
    cut_s = float(timeline.times_s_T[cut])
    if min(abs(cut_s - contact.start_s), abs(cut_s - success.start_s)) < CLEAR_S:
        return None
    options = [words("touch the {o}", facts), words("move the {o}", facts), "stay where it is"]
    seen = ("The gripper is not at the {o} yet.", "The gripper is at the {o} and the task is not done yet.", "")
    phase = int(cut_s > contact.start_s) + int(cut_s > success.start_s)
    if phase == 2 and _goes_on(timeline, cut):
        return None
    think = words(seen[phase], facts) or ending(facts)
    question = words("The arm is to {}. What does it do next?".format(facts["instruction"]), facts)
    right = options.pop(phase)
    return _choice(timeline, path, "next_action", question, right, options, think, f"{ROBOT}.next_action", cut_s)


def _goes_on(timeline: Timeline, cut: int) -> bool:
    """Whether the gripper or the object still moves after this frame."""
    paths = [track.position_m_T3[cut:] for track in timeline.objects if track.role in ("gripper", "object")]
    return any(float(np.linalg.norm(path - path[0], axis=1).max()) > RESTS_M for path in paths)


def contact_time(timeline: Timeline, path: str) -> Sample | None:
    """From when to when does the gripper touch the object?"""
    contact = _event(timeline, "contact")
    if contact is None:
        return None
    question = words("From when to when does the gripper touch the {o}?", timeline.facts)
    answer = (round(contact.start_s, 2), round(contact.end_s, 2))
    think = approach(timeline.facts)
    return _sample(timeline, path, "contact_time", "interval", question, answer, think, f"{TIME}.actions")


def motion_time(timeline: Timeline, path: str) -> Sample | None:
    """From when to when does the object move?"""
    move = _event(timeline, "move")
    if move is None or _reaching(timeline):
        return None
    question = words("From when to when does the {o} move?", timeline.facts)
    answer = (round(move.start_s, 2), round(move.end_s, 2))
    think = f"{approach(timeline.facts)} {motion(timeline.facts)}"
    return _sample(timeline, path, "motion_time", "interval", question, answer, think, f"{TIME}.actions")


def gripper_point(timeline: Timeline, path: str) -> Sample | None:
    """Where is the gripper at the end?"""
    return _point(timeline, path, "gripper_point", "gripper")


def object_point(timeline: Timeline, path: str) -> Sample | None:
    """Where is the object at the end?"""
    if _reaching(timeline):
        return _point(timeline, path, "object_point", str(timeline.facts["goal"]))
    return _point(timeline, path, "object_point", str(timeline.facts["object"]))


def _point(timeline: Timeline, path: str, template: str, name: str) -> Sample | None:
    track = _track(timeline, name)
    if not track.visible_T[-1]:
        return None
    x, y = (round(float(v)) for v in track.centre_xy_T2[-1])
    question = f"Where is the {name} in the last frame?"
    part = f"{'upper' if y < 500 else 'lower'} {'left' if x < 500 else 'right'}"
    think = f"In the last frame the {name} is in the {part} part of the picture."
    return _sample(timeline, path, template, "point", question, (float(x), float(y)), think, f"{SPACE}.relationship")


def instruction(timeline: Timeline, path: str) -> Sample | None:
    """Name the task of a successful attempt in words."""
    facts = timeline.facts
    if facts["outcome"] != "success":
        return None
    think = f"{approach(facts)} {ending(facts)}"
    return _sample(
        timeline, path, "instruction", "text", "What was the arm told to do?", str(facts["instruction"]), think,
        f"{ROBOT}.verification",
    )  # fmt: skip


def caption(timeline: Timeline, path: str) -> Sample:
    """Describe the whole clip."""
    think = approach(timeline.facts)
    return _sample(
        timeline, path, "caption", "text", "Describe what the arm does.", timeline.caption, think, f"{TIME}.actions"
    )


TEMPLATES: tuple[Callable[[Timeline, str], Sample | None], ...] = (
    verification, affordance, moved, touched, what_went_wrong, action, direction, next_action, contact_time,
    motion_time, gripper_point, object_point, instruction, caption,
)  # fmt: skip
