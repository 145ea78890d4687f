"""A robot arm tries a task and succeeds or fails: (task, seed) → outcome → fault → Rollout → Film → Clip.

A scripted Meta-World policy moves a Sawyer arm. Failures are injected: the policy is told a wrong place of the object
or goal, frozen, turned back, or made to open the gripper. Playback is real time: 16 frames at 8 Hz, ten control
steps at 80 Hz apart, whatever the outcome, so that neither length nor rate tells how it ends. Outcomes are 50/50
exactly over each pair of seeds (2n, 2n + 1). What is written down is read from the simulator's state afterwards, and
a rollout that does not show the drawn outcome clearly is thrown away and drawn again; only a clear one is filmed.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosmos_reason.errors import UserError
from cosmos_reason.simulate.manipulation_scene import GOAL_RADIUS_M, Look, Stage, draw_look, stage
from cosmos_reason.simulate.manipulation_tasks import SPECS, TASKS, Failure, Spec, story, words
from cosmos_reason.types import Clip, Event, Fact, Frames, ObjectTrack, Timeline

__all__ = ["TASKS", "make_clip"]

STEP_S = 0.0125  # one control step: 5 simulator steps of 2.5 ms
FRAMES, STEPS_PER_FRAME, FPS = 16, 10, 8.0
STEPS = (FRAMES - 1) * STEPS_PER_FRAME  # nothing happens after the last frame
MAX_DRAWS = 60
DONE, UNDONE = 0.7, 0.55  # progress that a success must reach and a failure must stay below
STILL_M, MOVED_M = 0.006, 0.025  # an object's largest displacement is clearly none below, clearly some above…
MOVED_SHARE = 0.15  # …when it is also this share of the whole way
UNDER_WAY = 24  # step from which the gripper has left its first place
RETREAT_M = (0.0, 0.0, 0.1)  # an arm that turns back goes to this place over its first one, clear of the object
NEAR_M = 0.05  # a gripper that does not touch the object stays this far from it
APART = 110.0  # after a failure, object and goal are this far apart in the picture, of 1000
MARGIN = 30.0  # the object's centre stays this far inside the picture, of 1000


@dataclass(frozen=True)
class Fault:
    """What is injected. `kind` None lets the policy succeed."""

    kind: Failure | None
    shift_m: np.ndarray  # (3,) of the object's place ("missed") or the goal's ("wrong_place") as the policy is told
    step: float  # the other kinds set in at this control step…
    progress: float  # …or when this share of the task is done; infinite where one plays no part


@dataclass(frozen=True)
class Rollout:
    """What happened. T frames, Q joint coordinates; S steps, of which step s ends at (s + 1) · STEP_S."""

    poses_TQ: np.ndarray
    target_m: np.ndarray  # (3,) where the object is to be
    object_m_S3: np.ndarray
    progress_S: np.ndarray  # 0 at the start, 1 at the target
    touching_S: np.ndarray  # bool
    success_S: np.ndarray  # bool, the environment's own verdict
    fault_step: int  # when the fault set in, or -1
    gap_m: float  # the gripper's least distance from the object once it is under way
    way_m: float  # from the object's first place to its target

    @property
    def moved_m(self) -> float:
        """The object's largest distance from its place at the start."""
        return float(np.linalg.norm(self.object_m_S3 - self.object_m_S3[0], axis=1).max())

    @property
    def moved(self) -> bool:
        """Whether the object moves so far that it shows."""
        return self.moved_m >= max(MOVED_M, MOVED_SHARE * self.way_m)


@dataclass(frozen=True)
class Film:
    """What it looks like. O tracked things (gripper, object unless it is the gripper, goal if any), T frames."""

    pixels_THWC: np.ndarray
    position_m_OT3: np.ndarray
    centre_xy_OT2: np.ndarray
    box_OT4: np.ndarray
    visible_OT: np.ndarray


def make_clip(task: str, seed: int) -> Clip:
    """Film one attempt at `task` (one of `TASKS`): 16 frames of 128x128 at 8 Hz, with its truth. Pure in its arguments.

    Raises UserError for an unknown task, and RuntimeError when no draw shows the outcome (a bug in a fault's limits).
    """
    if task not in SPECS:
        raise UserError(f"no manipulation task {task!r}; choose one of {', '.join(TASKS)}")
    setting, wanted = stage(task), succeeds(task, seed)
    kind = None if wanted else draw_failure(task, seed)
    for draw in range(MAX_DRAWS):
        rng = np.random.default_rng([zlib.crc32(task.encode()), seed, draw])
        look, place = draw_look(setting.spec, rng), int(rng.integers(2**31))
        home_shift_m, speed = rng.uniform(-0.04, 0.04, size=3), float(rng.uniform(0.8, 1.0))
        fault = draw_fault(setting.spec, kind, rng)
        observation = setting.reset(place, home_shift_m)
        setting.dress(look)
        rollout = roll(setting, observation, fault, speed)
        if not happened(task, kind, rollout):
            continue
        film = shoot(setting, rollout)
        if shows(setting.spec, kind, film):
            times_s_T = np.arange(FRAMES) / FPS
            frames = Frames(film.pixels_THWC, times_s_T, FPS, FRAMES, "mujoco", FRAMES)
            return Clip(frames, _timeline(task, seed, look, kind, rollout, film))
    raise RuntimeError(f"{task} seed {seed}: no clear {kind or 'success'} in {MAX_DRAWS} draws")


def succeeds(task: str, seed: int) -> bool:
    """The outcome drawn for a seed: one success and one failure, in either order, for each pair (2n, 2n + 1)."""
    swapped = bool(np.random.default_rng([zlib.crc32(task.encode()), seed // 2]).integers(2))
    return (seed % 2 == 0) != swapped


def draw_failure(task: str, seed: int) -> Failure:
    """How the attempt fails; drawn once a seed, so that kinds which are harder to show are not rarer than others."""
    kinds = SPECS[task].failures
    return kinds[int(np.random.default_rng([zlib.crc32(task.encode()), seed, 0, 1]).integers(len(kinds)))]


def draw_fault(spec: Spec, kind: Failure | None, rng: np.random.Generator) -> Fault:
    """Draw the size and moment of a fault; a success takes as many draws, so that what is drawn later stays alike."""
    angle, length_m, coin = rng.uniform(0, 2 * np.pi), rng.uniform(0, 1), rng.random()
    step, progress = float(rng.integers(*spec.early)), rng.uniform(0.05, 0.35)
    if kind is None:
        return Fault(None, np.zeros(3), np.inf, np.inf)
    around = np.array([np.cos(angle), np.sin(angle), 0.0])
    if kind == "missed":
        if spec.noun == "puck":
            return Fault(kind, (0.07 + 0.06 * length_m) * around, np.inf, np.inf)
        aside = around * (1, -np.sign(around[1]), 0)  # fixtures have their bulk behind the handle
        return Fault(kind, (0.12 + 0.12 * length_m) * aside, np.inf, np.inf)
    if kind == "wrong_place":
        return Fault(kind, (0.16 + 0.10 * length_m) * around, np.inf, np.inf)
    if spec.noun == "gripper":
        return Fault(kind, np.zeros(3), np.inf, 0.2 + progress)
    if kind == "dropped":
        return Fault(kind, np.zeros(3), np.inf, progress / 2)
    if kind == "stopped" and coin < 0.5:
        return Fault(kind, np.zeros(3), np.inf, progress)
    return Fault(kind, np.zeros(3), step, np.inf)


def roll(setting: Stage, observation: np.ndarray, fault: Fault, speed: float) -> Rollout:
    """Run one attempt from a dressed stage: physics only, no pictures."""
    policy = setting.policy()
    start_m, target_m = setting.object_m(), setting.target_m()
    home_m = setting.env.get_endeff_pos() + RETREAT_M
    advance = _progress(setting.spec, start_m, target_m)
    poses, object_S, progress_S, touching_S, success_S, gap_S = [], [start_m], [0.0], [], [], []
    fault_step, effort = -1, -1.0
    for step in range(STEPS):
        if step % STEPS_PER_FRAME == 0:
            poses.append(setting.pose())
        if fault_step < 0 and (step >= fault.step or progress_S[-1] > fault.progress):
            fault_step = step
        told = _tell(observation, fault, fault_step >= 0, start_m)
        with warnings.catch_warnings(action="ignore"):  # the policies remark on their own gains, which are clipped here
            action = np.clip(policy.get_action(told), -1, 1) * (speed, speed, speed, 1.0)
        if fault_step >= 0 and fault.kind == "dropped":
            action[3] = -1.0
        elif fault_step >= 0:
            back = np.clip(10 * (home_m - setting.env.get_endeff_pos()), -1, 1) * speed
            action = np.array([*(back if fault.kind == "turned_back" else np.zeros(3)), effort])
        effort = float(action[3])
        observation, _, _, _, info = setting.env.step(action.astype(np.float32))
        object_S.append(setting.object_m())
        progress_S.append(advance(object_S[-1]))
        touching_S.append(setting.touching())
        success_S.append(bool(info["success"]))
        gap_S.append(float(np.linalg.norm(setting.gripper_m() - object_S[-1])))
    poses.append(setting.pose())
    return Rollout(
        np.stack(poses), target_m, np.stack(object_S[1:]), np.array(progress_S[1:]), np.array(touching_S),
        np.array(success_S), fault_step, min(gap_S[UNDER_WAY:]), float(np.linalg.norm(target_m - start_m)),
    )  # fmt: skip


def happened(task: str, failure: Failure | None, rollout: Rollout) -> bool:
    """Whether the drawn outcome came about without doubt: reached or far from it, moved or not moved at all."""
    touched = bool(rollout.touching_S.any())
    if failure is None:
        reached = bool(rollout.success_S.any() and rollout.progress_S[-1] >= DONE)
        return reached and (touched or task == "reach")
    set_in = rollout.fault_step >= 0 or failure in ("missed", "wrong_place")
    if not set_in or rollout.success_S.any() or rollout.progress_S[-1] > UNDONE:
        return False
    if task == "reach":
        return rollout.moved
    if failure in ("missed", "turned_back") or not touched:
        untouched = not touched and rollout.moved_m <= STILL_M and rollout.gap_m >= NEAR_M
        return untouched and failure not in ("dropped", "wrong_place")
    return rollout.moved


def shows(spec: Spec, failure: Failure | None, film: Film) -> bool:
    """Whether the camera sees it: object and goal throughout, the gripper at the end, and a miss as a miss."""
    inside_OT: np.ndarray = np.abs(film.centre_xy_OT2 - 500).max(axis=2) < 500 - MARGIN
    if not (inside_OT[1:].all() and inside_OT[0, -1] and film.visible_OT[1:, (0, -1)].all()):
        return False
    apart = np.linalg.norm(film.centre_xy_OT2[-1, -1] - film.centre_xy_OT2[-2, -1])
    return failure is None or not spec.goal or bool(apart >= APART)


def shoot(setting: Stage, rollout: Rollout) -> Film:
    """Film a rollout on the stage where it ran, which must not have been reset since."""
    shots = []
    for pose in rollout.poses_TQ:
        setting.strike(pose)
        shots.append(_shot(setting, rollout.target_m))
    pixels, position, centre, box, visible = (np.stack(column) for column in zip(*shots, strict=True))
    return Film(
        pixels, position.swapaxes(0, 1), centre.swapaxes(0, 1), box.swapaxes(0, 1), visible.swapaxes(0, 1)
    )  # fmt: skip


def _progress(spec: Spec, start_m: np.ndarray, target_m: np.ndarray) -> Callable[[np.ndarray], float]:
    """The share of the task that is done when the object is at a place: along the way, or by nearness to a goal."""
    way_m = target_m - start_m
    if spec.goal:
        return lambda place_m: 1 - float(np.linalg.norm(target_m - place_m) / np.linalg.norm(way_m))
    return lambda place_m: float((place_m - start_m) @ way_m / (way_m @ way_m))


def _tell(observation: np.ndarray, fault: Fault, set_in: bool, start_m: np.ndarray) -> np.ndarray:
    """What the policy is told: the observation (39), false in the fault's one respect."""
    told = np.array(observation)
    if fault.kind == "missed":
        told[4:7] = start_m + fault.shift_m
    elif fault.kind == "wrong_place":
        told[-3:] += fault.shift_m
    elif fault.kind == "dropped" and set_in:
        told[4:7], told[3] = told[:3], 0.5  # as if the object were still held, so that the arm goes on…
        told[-3:] = (told[0], told[1], 0.2)  # …straight up, away from what it let go
    return told


def _shot(setting: Stage, target_m: np.ndarray) -> tuple[np.ndarray, ...]:
    """Picture, then position, centre, box and visibility of the tracked things: gripper, object, goal."""
    pixels_HWC = setting.draw().copy()
    hand_m = setting.outline_m(setting.hand_geoms)
    things = [(setting.hand_geoms, setting.gripper_m(), hand_m)]
    if setting.task != "reach":
        object_m = setting.outline_m(setting.object_geoms)
        things.append((setting.object_geoms, object_m.mean(axis=0), object_m))
    if setting.spec.goal:
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
        things.append(([], target_m, target_m + GOAL_RADIUS_M * corners))
    centres, boxes, seen = [], [], []
    for geoms, middle_m, outline_m in things:
        xy_N2 = setting.project(outline_m)
        centres.append(setting.project(middle_m)[0])
        boxes.append(np.concatenate((xy_N2.min(axis=0), xy_N2.max(axis=0))))
        probes_m = 0.6 * outline_m[:: max(1, len(outline_m) // 16)] + 0.4 * outline_m.mean(axis=0)
        seen.append(setting.seen_share(geoms, probes_m) >= 0.1)
    return pixels_HWC, np.stack([m for _, m, _ in things]), np.stack(centres), np.stack(boxes), np.array(seen)


def _timeline(task: str, seed: int, look: Look, failure: Failure | None, rollout: Rollout, film: Film) -> Timeline:
    spec, family = SPECS[task], f"manipulation_{task}"
    named = "gripper" if task == "reach" else f"{look.colour} {spec.noun}"
    goal = f"{look.goal_colour} {spec.goal}" if spec.goal else ""
    kinds = [("gripper", "grey", "gripper", "gripper")]
    if task != "reach":
        kinds.append((named, look.colour, spec.noun, "object"))
    if goal:
        kinds.append((goal, look.goal_colour, "ball", "goal"))
    tracks = tuple(
        ObjectTrack(*kind, film.position_m_OT3[n], film.centre_xy_OT2[n], film.box_OT4[n], film.visible_OT[n])
        for n, kind in enumerate(kinds)
    )
    facts: dict[str, Fact] = {
        "task": task,
        "outcome": "success" if failure is None else "failure",
        "failure": failure or "none",
        "object": named,
        "goal": goal,
        "contact": bool(rollout.touching_S.any()) and task != "reach",
        "moved": rollout.moved,
        "direction": _direction(film.centre_xy_OT2[0 if task == "reach" else 1]),
        "progress": round(float(rollout.progress_S[-1]), 3),
    }
    facts["instruction"] = words(spec.instruction, facts)
    events = _events(named, failure, rollout, reaching=task == "reach")
    return Timeline(f"{family}_{seed}", family, seed, FPS, np.arange(FRAMES) / FPS, tracks, events, facts, story(facts))


def _direction(centre_xy_T2: np.ndarray) -> str:
    """Where a thing went in the picture, "" where it hardly moved or went askew."""
    right, down = centre_xy_T2[-1] - centre_xy_T2[0]
    if max(abs(right), abs(down)) < 60 or max(abs(right), abs(down)) < 1.5 * min(abs(right), abs(down)):
        return ""
    if abs(right) > abs(down):
        return "right" if right > 0 else "left"
    return "down" if down > 0 else "up"


def _events(named: str, failure: Failure | None, rollout: Rollout, reaching: bool) -> tuple[Event, ...]:
    """The events in the order of their starts; seconds from the first frame."""
    end_s = STEPS * STEP_S
    events = []
    touching = np.flatnonzero(rollout.touching_S)
    if len(touching) and not reaching:
        events.append(Event("reach", 0.0, float(touching[0]) * STEP_S, ("gripper", named)))
        events.append(
            Event("contact", float(touching[0]) * STEP_S, float(touching[-1] + 1) * STEP_S, ("gripper", named))
        )
    from_start_m = np.linalg.norm(rollout.object_m_S3 - rollout.object_m_S3[0], axis=1)
    away = np.flatnonzero(from_start_m > STILL_M)
    if len(away) and rollout.moved:
        to_end_m = np.linalg.norm(rollout.object_m_S3 - rollout.object_m_S3[-1], axis=1)
        unsettled = np.flatnonzero(to_end_m > STILL_M)
        events.append(Event("move", float(away[0]) * STEP_S, float(unsettled[-1] + 1) * STEP_S, (named,)))
    if rollout.fault_step >= 0 and failure in ("stopped", "turned_back", "dropped"):
        kind = {"stopped": "stop", "turned_back": "turn_back", "dropped": "release"}[failure]
        events.append(Event(kind, rollout.fault_step * STEP_S, end_s, ("gripper",)))
    if failure is None:
        first_s = float(np.flatnonzero(rollout.success_S)[0] + 1) * STEP_S
        events.append(Event("success", first_s, end_s, (named,)))
    return tuple(sorted(events, key=lambda event: event.start_s))
