"""How a clip looks: a seed -> floor, wall, light and camera (`Look`) -> the MJCF around the bodies.

Nothing here may depend on what happens in the clip: a look is drawn before, and apart from, the physics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SIDE_PX = 128


@dataclass(frozen=True)
class View:
    """How a family is filmed. Example: steep for things spread over the floor, shallow for things that fly."""

    elevation_deg: tuple[float, float] = (14.0, 24.0)
    height_m: float = 1.0  # of the point that the camera looks at
    width_m: float = 4.7  # of the picture at that point
    azimuth_deg: float = 18.0  # at most, to either side


@dataclass(frozen=True)
class Look:
    """Floor, wall, light and camera of one clip."""

    floor_rgb: tuple[float, ...]
    floor_mark_rgb: tuple[float, ...]
    floor_pattern: str  # MuJoCo's built-in "checker", "gradient" or "flat"
    wall_rgb: tuple[float, ...]
    wall_mark_rgb: tuple[float, ...]
    wall_pattern: str
    light_dir: tuple[float, float, float]
    azimuth_rad: float
    elevation_rad: float
    distance_m: float
    fovy_deg: float
    height_m: float

    def camera(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) and the axes right, up, back of the camera as columns (3, 3)."""
        a, e = self.azimuth_rad, self.elevation_rad
        back = np.array([math.sin(a) * math.cos(e), -math.cos(a) * math.cos(e), math.sin(e)])
        right = np.array([math.cos(a), math.sin(a), 0.0])
        return np.array([0.0, 0.0, self.height_m]) + back * self.distance_m, np.stack(
            [right, np.cross(back, right), back], 1
        )


def draw_look(rng: np.random.Generator, view: View) -> Look:
    """A look for a family's view. Floor and wall are muted, so that the eight object colours stand out."""
    floor, floor_mark = _muted(rng, 0.34, 0.58)
    wall, wall_mark = _muted(rng, 0.40, 0.72)
    distance = rng.uniform(8.5, 12.0)
    width = view.width_m * rng.uniform(0.95, 1.08)
    return Look(
        floor, floor_mark, str(rng.choice(["checker", "gradient", "flat"])),
        wall, wall_mark, str(rng.choice(["checker", "gradient", "flat"])),
        (float(rng.uniform(-0.7, 0.7)), float(rng.uniform(0.1, 0.8)), -1.0),
        math.radians(rng.uniform(-view.azimuth_deg, view.azimuth_deg)),
        math.radians(rng.uniform(*view.elevation_deg)),
        distance, math.degrees(2 * math.atan(width / 2 / distance)), view.height_m,
    )  # fmt: skip


def _muted(rng: np.random.Generator, dark: float, light: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A dull colour and a slightly different brightness of it."""
    base = rng.uniform(dark, light) + rng.uniform(-0.05, 0.05, 3)
    mark = base + rng.choice([-1, 1]) * rng.uniform(0.03, 0.08)
    return tuple(np.clip(base, 0.2, 0.85)), tuple(np.clip(mark, 0.2, 0.85))


def scene_xml(look: Look, assets: str, bodies: str, step_s: float) -> str:
    """The whole MJCF: no shadows, no multisampling, one camera named "camera"."""
    position, axes = look.camera()
    xyaxes = " ".join(f"{v:.6f}" for v in (*axes[:, 0], *axes[:, 1]))
    return f"""<mujoco>
<option timestep="{step_s}" cone="elliptic" impratio="3"/>
<visual>
  <global offwidth="{SIDE_PX}" offheight="{SIDE_PX}"/>
  <quality offsamples="0" shadowsize="0" numslices="24" numstacks="12"/>
  <headlight ambient="0.42 0.42 0.42" diffuse="0.18 0.18 0.18" specular="0 0 0"/>
</visual>
<asset>
  {_texture("floor", look.floor_pattern, look.floor_rgb, look.floor_mark_rgb, 10)}
  {_texture("wall", look.wall_pattern, look.wall_rgb, look.wall_mark_rgb, 6)}
  {assets}
</asset>
<worldbody>
  <light directional="true" dir="{_rgb(look.light_dir)}" diffuse="0.45 0.45 0.45" specular="0.15 0.15 0.15"/>
  <camera name="camera" pos="{_rgb(position)}" xyaxes="{xyaxes}" fovy="{look.fovy_deg:.4f}"/>
  <geom name="floor" type="plane" size="30 30 1" material="floor" friction="0.01 0.001 0.0001" condim="6"/>
  <geom name="wall" type="plane" size="30 30 1" pos="0 5 0" zaxis="0 -1 0" material="wall" contype="0" conaffinity="0"/>
  {bodies}
</worldbody>
</mujoco>"""


def _texture(name: str, pattern: str, rgb: tuple[float, ...], mark: tuple[float, ...], repeat: int) -> str:
    return (
        f'<texture name="{name}" type="2d" builtin="{pattern}" rgb1="{_rgb(rgb)}" rgb2="{_rgb(mark)}" '
        f'width="64" height="64"/><material name="{name}" texture="{name}" texrepeat="{repeat} {repeat}" '
        'texuniform="false" specular="0" shininess="0"/>'
    )


def _rgb(values: tuple[float, ...] | np.ndarray) -> str:
    return " ".join(f"{float(v):.4f}" for v in values)
