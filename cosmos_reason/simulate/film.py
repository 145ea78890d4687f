"""Run a scene and film it: Scene -> run -> Record (states on a fine grid) -> film -> 16 pictures.

Only a scene that shows what was wanted is filmed, so searching over scenes costs physics and no pictures.
MuJoCo draws off screen; shadows, reflections and multisampling are off (a frame takes about 2 ms instead of 100).

S grid steps, N things, T frames, Q joint coordinates, M bodies moved by hand. Metres and seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from cosmos_reason.simulate.bodies import Thing, body_xml, material_xml
from cosmos_reason.simulate.look import SIDE_PX, Look, scene_xml
from cosmos_reason.types import Frames

FPS = 8.0
FRAMES = 16
STEP_S = 0.0125  # of the grid on which states are kept; a contact of a hard bounce lasts 0.03 s
SUBSTEPS = 2  # physics steps per grid step
STEPS_PER_FRAME = round(1 / FPS / STEP_S)
STEPS = (FRAMES - 1) * STEPS_PER_FRAME + 1
LIFT_M_S = 14.0  # speed of a screen that is pulled out of the picture
_NOWHERE_M = (0.0, 0.0, -100.0)  # below the floor: where a removed thing is put


@dataclass(frozen=True)
class Scene:
    """Everything that decides a clip. Example: a ball, a screen that is pulled up after 1.25 s, an ordinary look."""

    look: Look
    things: tuple[Thing, ...]
    lifts: Mapping[str, float] = field(default_factory=dict)  # name of an occluder -> second at which it is pulled up
    removes: Mapping[str, float] = field(default_factory=dict)  # name of a thing -> second from which it is gone

    def index(self, name: str) -> int:
        return [thing.name for thing in self.things].index(name)


@dataclass(frozen=True)
class Record:
    """What happened in a scene."""

    scene: Scene
    model: Any  # mujoco.MjModel
    times_s_S: np.ndarray
    pos_m_SN3: np.ndarray  # centres of the things
    touch_SNN: np.ndarray  # bool; index N is the floor
    joints_TQ: np.ndarray  # MuJoCo's qpos at the frames, to pose the model without running the physics again
    lifted_TM3: np.ndarray  # positions of the bodies that are moved by hand

    def path(self, name: str) -> np.ndarray:
        """(S, 3) positions of a thing."""
        return self.pos_m_SN3[:, self.scene.index(name)]

    def touching(self, first: str, second: str) -> np.ndarray:
        """(S,) bool; `second` may be "floor"."""
        j = len(self.scene.things) if second == "floor" else self.scene.index(second)
        return self.touch_SNN[:, self.scene.index(first), j]

    def geom(self, index: int) -> int:
        """Id of the geom of a thing."""
        return int(self.model.geom(f"g{index}").id)

    def pose(self, data: Any, frame: int) -> None:
        """Put the bodies of `data` (mujoco.MjData) where they were; a removed thing lies out of sight."""
        data.qpos[:], data.mocap_pos[:] = self.joints_TQ[frame], self.lifted_TM3[frame]
        for name, from_s in self.scene.removes.items():
            if from_s <= frame / FPS:
                start = self.model.body(f"b{self.scene.index(name)}").jntadr[0]
                data.qpos[self.model.jnt_qposadr[start] :][:3] = _NOWHERE_M
        mujoco.mj_kinematics(self.model, data)


def run(scene: Scene) -> Record:
    """Simulate 1.875 s, the time between the first and the last of 16 frames at 8 Hz."""
    things, count = scene.things, len(scene.things)
    model = _compile(scene)
    data = mujoco.MjData(model)
    geoms = [model.geom(f"g{i}").id for i in range(count)]
    slot = np.full(model.ngeom, count + 1)  # wall and rods take no part in contacts
    slot[geoms], slot[model.geom("floor").id] = np.arange(count), count
    pos = np.empty((STEPS, count, 3))
    touch = np.zeros((STEPS, count + 2, count + 2), dtype=bool)
    joints, lifted = np.empty((FRAMES, model.nq)), np.empty((FRAMES, model.nmocap, 3))
    waiting = {i: t for i, t in enumerate(things) if any(t.velocity_m_s)}
    mujoco.mj_forward(model, data)
    for step in range(STEPS):
        now = step * STEP_S
        for i in [i for i, t in waiting.items() if t.start_s <= now]:
            _push(model, data, i, waiting.pop(i))
        for name, at in scene.lifts.items():
            i = scene.index(name)
            rise = LIFT_M_S * max(0.0, now - at) ** 2
            data.mocap_pos[model.body(f"b{i}").mocapid[0]] = np.add(things[i].at_m, (0.0, 0.0, rise))
        pos[step] = data.geom_xpos[geoms]
        contacts = data.contact
        pairs = slot[contacts.geom[contacts.dist < 0.0]]
        touch[step, pairs[:, 0], pairs[:, 1]] = touch[step, pairs[:, 1], pairs[:, 0]] = True
        if step % STEPS_PER_FRAME == 0:
            frame = step // STEPS_PER_FRAME
            joints[frame], lifted[frame] = data.qpos, data.mocap_pos
        mujoco.mj_step(model, data, SUBSTEPS)
    return Record(scene, model, np.arange(STEPS) * STEP_S, pos, touch, joints, lifted)


def _compile(scene: Scene) -> Any:
    materials = "\n".join(material_xml(t, i) for i, t in enumerate(scene.things))
    bodies = "\n".join(body_xml(t, i) for i, t in enumerate(scene.things))
    return mujoco.MjModel.from_xml_string(scene_xml(scene.look, materials, bodies, STEP_S / SUBSTEPS))


def _push(model: Any, data: Any, index: int, thing: Thing) -> None:
    """Give a thing its first velocity; a ball on the floor starts rolling, not sliding."""
    start = model.body(f"b{index}").dofadr[0]
    data.qvel[start : start + 3] = thing.velocity_m_s
    if thing.shape == "ball" and abs(thing.at_m[2] - thing.size_m[0]) < 0.01:
        vx, vy, _ = thing.velocity_m_s
        data.qvel[start + 3 : start + 6] = (-vy / thing.size_m[0], vx / thing.size_m[0], 0.0)


def film(record: Record) -> Frames:
    """Draw the 16 frames of a record."""
    _open_display().make_current()
    model = record.model
    context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50.value)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, context)
    scene, options, perturb = mujoco.MjvScene(model, 64), mujoco.MjvOption(), mujoco.MjvPerturb()
    camera = mujoco.MjvCamera()
    camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED.value, 0
    picture, whole = np.empty((SIDE_PX, SIDE_PX, 3), dtype=np.uint8), mujoco.MjrRect(0, 0, SIDE_PX, SIDE_PX)
    pixels = np.empty((FRAMES, SIDE_PX, SIDE_PX, 3), dtype=np.uint8)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    for frame in range(FRAMES):
        record.pose(data, frame)
        mujoco.mjv_updateScene(model, data, options, perturb, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            scene.flags[flag] = 0  # every update turns them on again
        mujoco.mjr_render(whole, scene, context)
        mujoco.mjr_readPixels(picture, None, whole, context)
        pixels[frame] = picture[::-1]  # OpenGL's rows go upwards
    context.free()
    return Frames(pixels, np.arange(FRAMES) / FPS, FPS, FRAMES, "mujoco", FRAMES)


@functools.cache
def _open_display() -> Any:
    """The off-screen drawing surface of this process."""
    return mujoco.gl_context.GLContext(SIDE_PX, SIDE_PX)
