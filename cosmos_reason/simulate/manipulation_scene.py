"""The stage of a manipulation clip: environment, looks, camera, picture, and where things are in the picture.

`Stage` holds one Meta-World environment and one renderer. Each `dress` starts from the model as it was loaded, so a
clip depends on its own seed alone and never on the clips before it. One renderer is alive in a process at a time:
`stage` closes the old one before it makes the next.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecation notes of the simulator's own dependencies
    from metaworld import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE
    from metaworld.policies import ENV_POLICY_MAP

from cosmos_reason.simulate.manipulation_tasks import COLOURS, SPECS, Spec

SIZE = 128  # pixels, height and width
HAND = ("hand", "rightclaw", "leftclaw", "rightpad", "leftpad")
WRIST = ("right_l5", "right_l6", "right_hand")  # what else of the arm may touch the object
SHOWN_GROUPS = 3  # geom groups 0, 1 and 2 are drawn; the rest are collision shapes
GOAL_RADIUS_M = 0.035  # as drawn
PUCK_M = (0.025, 0.028)  # radius and half height, larger than loaded so that it shows at 64 pixels
CASES = ("drawercase_link", "doorlockB", "buttonbox")  # what a drawer, door or button sits in
CASE_RGB = (0.62, 0.58, 0.52)
ARM_RGB = (0.33, 0.34, 0.37)  # grey, so that no object shares the arm's colour
_PAINTED = (
    "geom_rgba", "geom_matid", "mat_rgba", "site_rgba", "site_size", "light_diffuse", "body_pos", "body_quat",
    "geom_pos", "geom_size", "geom_rbound",
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """What a clip's picture looks like; drawn from its seed before anything happens."""

    colour: str
    goal_colour: str
    azimuth_deg: float
    elevation_deg: float
    distance_m: float
    shift_m: tuple[float, float, float]  # of the point looked at, from the middle of the scene
    table: float  # brightness of the table, 1 as loaded
    light: float  # brightness of the lamps, 1 as loaded


def draw_look(spec: Spec, rng: np.random.Generator) -> Look:
    """Draw colours, light and camera; no draw depends on the outcome."""
    colour, goal_colour = rng.choice(list(COLOURS), size=2, replace=False)
    azimuth = spec.azimuths_deg[int(rng.integers(2))] + rng.uniform(-12, 12)
    shift = rng.uniform(-0.02, 0.02, size=3)
    return Look(
        str(colour), str(goal_colour), float(azimuth), float(rng.uniform(-38, -26)),
        spec.distance_m * float(rng.uniform(0.95, 1.08)), (float(shift[0]), float(shift[1]), float(shift[2])),
        float(rng.uniform(0.7, 1.1)), float(rng.uniform(0.8, 1.1)),
    )  # fmt: skip


class Stage:
    """One task's environment with its renderer. Not for use from several threads."""

    def __init__(self, task: str) -> None:
        self.task, self.spec = task, SPECS[task]
        environments: Any = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE
        self.env = environments[f"{self.spec.environment}-v3-goal-observable"](seed=0)
        self.env._freeze_rand_vec, self.env.seeded_rand_vec = False, True  # places are drawn from env.seed at reset
        self.model, self.data = self.env.model, self.env.data
        self.model.vis.quality.offsamples = 0
        self.model.vis.global_.offwidth = self.model.vis.global_.offheight = SIZE
        self._loaded = {name: getattr(self.model, name).copy() for name in _PAINTED}
        self._home_m = np.array(self.env.hand_init_pos)
        self.hand_geoms = self._geoms(*HAND)
        self.wrist_geoms = self._geoms(*HAND, *WRIST)
        self.object_geoms = self._geoms(self.spec.body) if self.spec.body else self.hand_geoms
        self.camera = mujoco.MjvCamera()
        self.renderer = mujoco.Renderer(self.model, SIZE, SIZE, max_geom=1000)

    def close(self) -> None:
        """Free the drawing context."""
        self.renderer.close()

    def policy(self) -> Any:
        """A fresh scripted policy for this task; its `get_action(observation)` gives 4 numbers in -1..1."""
        policies: Any = ENV_POLICY_MAP
        return policies[f"{self.spec.environment}-v3"]()

    def reset(self, seed: int, home_shift_m: np.ndarray) -> np.ndarray:
        """Put everything in its place for `seed`; returns the environment's observation (39 numbers)."""
        for name, values in self._loaded.items():
            getattr(self.model, name)[:] = values
        if self.spec.noun == "puck":
            puck = self.model.geom("objGeom").id
            self.model.geom_size[puck, :2], self.model.geom_rbound[puck] = PUCK_M, np.hypot(*PUCK_M)
            self.model.geom_aabb[puck, 3:] = (PUCK_M[0], *PUCK_M)
        self.env.hand_init_pos = self._home_m + home_shift_m
        self.env.seed(seed)
        self.env.reset()
        mujoco.mj_forward(self.model, self.data)
        observation, *_ = self.env.step(np.array([0.0, 0.0, 0.0, -1.0], dtype=np.float32))
        return np.array(observation)

    def dress(self, look: Look) -> None:
        """Colour the scene and place the camera; call after `reset`."""
        model = self.model
        arm = (np.abs(model.geom_rgba - (0.5, 0.1, 0.1, 1.0)) < 1e-3).all(axis=1)
        model.geom_rgba[arm, :3] = ARM_RGB
        if self.task != "reach":
            case = [g for g in self._geoms(*CASES) if model.geom_group[g] < SHOWN_GROUPS]
            model.geom_matid[case] = -1
            model.geom_rgba[case] = (*CASE_RGB, 1.0)
            painted = [g for g in self.object_geoms if model.geom_group[g] < SHOWN_GROUPS]
            model.geom_matid[painted] = -1
            model.geom_rgba[painted] = (*COLOURS[look.colour], 1.0)
        else:
            model.geom_rgba[model.geom("objGeom").id] = 0.0  # the puck has no part in reaching
            model.geom_matid[model.geom("objGeom").id] = -1
        model.site_rgba[:, 3] = 0.0
        if self.spec.goal:
            model.site_rgba[model.site("goal").id] = (*COLOURS[look.goal_colour], 0.4)
            model.site_size[model.site("goal").id] = GOAL_RADIUS_M
        model.mat_rgba[1, :3] = self._loaded["mat_rgba"][1, :3] * look.table
        model.light_diffuse[:] = self._loaded["light_diffuse"] * look.light
        self.camera.azimuth, self.camera.elevation = look.azimuth_deg, look.elevation_deg
        self.camera.distance = look.distance_m
        middle_m = 0.35 * self.object_m() + 0.35 * self.target_m() + 0.3 * self.env.tcp_center
        self.camera.lookat[:] = middle_m + look.shift_m

    def pose(self) -> np.ndarray:
        """The joint coordinates now, to come back to with `strike`."""
        return np.array(self.data.qpos)

    def strike(self, pose: np.ndarray) -> None:
        """Take up a pose of the same attempt again; for pictures only, the motion is lost."""
        self.data.qpos[:] = pose
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)
        for name, place_m in self.env._target_site_config:
            self.data.site(name).xpos[:] = place_m

    def draw(self) -> np.ndarray:
        """The picture now, uint8 (SIZE, SIZE, 3), without shadows and reflections."""
        self.renderer.update_scene(self.data, self.camera)
        self.renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self.renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        return self.renderer.render()

    def object_m(self) -> np.ndarray:
        """The point that the task is about, metres: handle, knob, puck, or the gripper itself when reaching."""
        return self.gripper_m() if self.task == "reach" else np.array(self.env._get_pos_objects()[:3])

    def gripper_m(self) -> np.ndarray:
        """The point between the fingers, metres."""
        return np.array(self.env.tcp_center)

    def target_m(self) -> np.ndarray:
        """Where the object is to be, metres."""
        return np.array(self.env._target_pos)

    def touching(self) -> bool:
        """Whether any part of the gripper touches any part of the object."""
        pairs_N2 = self.data.contact.geom
        hand_N2, object_N2 = np.isin(pairs_N2, self.wrist_geoms), np.isin(pairs_N2, self.object_geoms)
        return bool(((hand_N2[:, 0] & object_N2[:, 1]) | (hand_N2[:, 1] & object_N2[:, 0])).any())

    def outline_m(self, geoms: list[int]) -> np.ndarray:
        """Corners of the boxes around the drawn geoms, metres, (8 * geoms, 3)."""
        signs_83 = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
        corners = []
        for geom in (g for g in geoms if self.model.geom_group[g] < SHOWN_GROUPS):
            local_83 = self.model.geom_aabb[geom, :3] + signs_83 * self.model.geom_aabb[geom, 3:]
            corners.append(self.data.geom_xpos[geom] + local_83 @ self.data.geom_xmat[geom].reshape(3, 3).T)
        return np.concatenate(corners)

    def project(self, points_m: np.ndarray) -> np.ndarray:
        """World points (N, 3) to picture coordinates (N, 2), 0 to 1000 from the top left; call after `draw`."""
        left, right = self.renderer.scene.camera
        eye_m = (np.array(left.pos) + np.array(right.pos)) / 2
        forward, up = np.array(left.forward), np.array(left.up)
        offsets_N3 = np.atleast_2d(points_m) - eye_m
        depth_N = offsets_N3 @ forward
        scale_N = 500 / (np.tan(np.deg2rad(self.model.vis.global_.fovy) / 2) * depth_N)
        return np.stack((500 + offsets_N3 @ np.cross(forward, up) * scale_N, 500 - offsets_N3 @ up * scale_N), axis=1)

    def seen_share(self, geoms: list[int], points_m: np.ndarray) -> float:
        """Share of points on or in the object that the camera sees: inside the picture and no other body in front."""
        eye_m = np.mean([np.array(c.pos) for c in self.renderer.scene.camera], axis=0)
        groups, hit = np.array([1, 1, 1, 0, 0, 0], dtype=np.uint8), np.zeros(1, dtype=np.int32)
        xy_N2 = self.project(points_m)
        inside_N = ((xy_N2 >= 0) & (xy_N2 <= 1000)).all(axis=1)
        seen = 0
        for point_m in points_m[inside_N]:
            towards = point_m - eye_m
            reach = mujoco.mj_ray(self.model, self.data, eye_m, towards, groups, 1, -1, hit)
            seen += int(hit[0] in geoms or reach < 0 or reach >= 1.0)
        return seen / len(points_m)

    def _geoms(self, *bodies: str) -> list[int]:
        ids = [b for b in range(self.model.nbody) if self.model.body(b).name in bodies]
        return [g for g in range(self.model.ngeom) if self.model.geom_bodyid[g] in ids]


_current: dict[str, Stage] = {}


def stage(task: str) -> Stage:
    """The process's stage for `task`; another task's stage is closed first (one drawing context at a time)."""
    if task not in _current:
        for other in _current.values():
            other.close()
        _current.clear()
        _current[task] = Stage(task)
    return _current[task]
