"""What stands in a scene: Thing -> MJCF body, and the points of its surface that a camera may see.

Metres and seconds. World axes: x to the right of the picture, y away from the camera, z up. Scenes are about five
metres wide and objects about 0.8 m, so that a fall takes several frames at 8 Hz and an object is some ten pixels wide
in a picture of 64×64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Clearly distinct also at 64×64 after chroma subsampling; the props below are duller than any of these.
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.08, 0.08),
    "green": (0.10, 0.62, 0.15),
    "blue": (0.10, 0.22, 0.90),
    "yellow": (0.95, 0.85, 0.08),
    "purple": (0.55, 0.12, 0.65),
    "orange": (0.98, 0.48, 0.05),
    "white": (0.97, 0.97, 0.97),
    "black": (0.03, 0.03, 0.03),
}
PROP_COLOURS: dict[str, tuple[float, float, float]] = {
    "light grey": (0.84, 0.84, 0.80),
    "dark grey": (0.16, 0.16, 0.17),
    "brown": (0.36, 0.24, 0.15),
}
SHAPES = ("ball", "box", "cylinder", "capsule")
_GEOM = {"ball": "sphere", "box": "box", "cylinder": "cylinder", "capsule": "capsule"}
CONTACT_STIFFNESS = 10_000.0  # 1/s²: a ball that lands at 5 m/s sinks in by 5 cm

_COS16, _SIN16 = np.cos(np.arange(16) * np.pi / 8), np.sin(np.arange(16) * np.pi / 8)

Vec3 = tuple[float, float, float]


@dataclass(frozen=True)
class Thing:
    """One body. Example: a red ball of radius 0.4 m that rolls to the right at 2 m/s.

    `size_m`: ball (r,), box half edges (x, y, z), cylinder and capsule (r, half length); a cylinder stands upright,
    a capsule lies along x. `start_s` delays the first velocity.
    """

    colour: str
    shape: str
    size_m: tuple[float, ...]
    at_m: Vec3
    velocity_m_s: Vec3 = (0.0, 0.0, 0.0)
    role: str = "object"
    label: str = ""  # name of a prop, e.g. "screen"; objects are named by colour and shape
    fixed: bool = False
    friction: float = 0.4
    rolling_m: float = 0.001  # rolling resistance; slows a ball by about 7 * rolling / radius m/s²
    bounce: float = 0.2  # wanted share of the speed kept by a bounce; contacts are soft, so the measured one differs
    tilt_rad: float = 0.0  # about the y axis; positive lowers the right side
    weightless: bool = False
    start_s: float = 0.0
    hinge_m: Vec3 | None = None  # hangs on a thin rod from here, free to swing in the x–z plane
    density: float = 500.0

    @property
    def name(self) -> str:
        return self.label or f"{self.colour} {self.shape}"

    @property
    def height_m(self) -> float:
        """Half of the height of the untilted body."""
        return self.size_m[0] if self.shape == "capsule" else self.size_m[-1]

    @property
    def reach_m(self) -> float:
        """Largest horizontal distance from the centre to the surface."""
        if self.shape == "box":
            return math.hypot(self.size_m[0], self.size_m[1])
        return self.size_m[0] + (self.size_m[1] if self.shape == "capsule" else 0.0)

    @property
    def rgb(self) -> tuple[float, float, float]:
        return COLOURS.get(self.colour) or PROP_COLOURS[self.colour]


def body_xml(thing: Thing, index: int) -> str:
    """The MJCF of one thing; its geom is named `g<index>`, its body `b<index>`."""
    damping = _damping(thing.bounce)
    geom = (
        f'<geom name="g{index}" type="{_GEOM[thing.shape]}" size="{_numbers(thing.size_m)}" material="m{index}" '
        f'friction="{thing.friction} 0.005 {thing.rolling_m}" condim="6" density="{thing.density}" '
        f'solref="{-CONTACT_STIFFNESS} {-damping}" quat="{_numbers(_lie(thing))}" '
    )
    gravcomp = 'gravcomp="1" ' if thing.weightless else ""
    if thing.fixed:
        mocap = 'mocap="true"' if thing.role == "occluder" else ""
        return f'<body name="b{index}" pos="{_numbers(thing.at_m)}" {mocap}>{geom}/></body>'
    if thing.hinge_m is None:
        return f'<body name="b{index}" pos="{_numbers(thing.at_m)}" {gravcomp}><freejoint/>{geom}/></body>'
    arm = np.subtract(thing.at_m, thing.hinge_m)
    rod = (
        f'<geom type="capsule" size="0.035" fromto="0 0 0 {_numbers(arm)}" rgba=".3 .3 .3 1" density="1" '
        'contype="0" conaffinity="0"/>'
    )
    return (
        f'<body name="b{index}" pos="{_numbers(thing.hinge_m)}"><joint type="hinge" axis="0 1 0" damping="0"/>'
        f'{rod}{geom} pos="{_numbers(arm)}"/></body>'
    )


def material_xml(thing: Thing, index: int) -> str:
    return f'<material name="m{index}" rgba="{_numbers(thing.rgb)} 1" specular="0.3" shininess="0.4"/>'


def surface_points(thing: Thing, view_dir: np.ndarray) -> np.ndarray:
    """Points (N, 3) in the geom's own axes whose projection spans the picture of the body.

    `view_dir` (3,): unit vector from the camera to the body, in the geom's axes; only a ball needs it.
    """
    if thing.shape == "box":
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
        return signs * np.array(thing.size_m)
    if thing.shape == "cylinder":
        ring = np.stack([_COS16, _SIN16, np.zeros(16)], 1) * thing.size_m[0]
        up = np.array([0, 0, thing.size_m[1]])
        return np.concatenate([ring + up, ring - up])
    disc = _facing_ring(view_dir) * thing.size_m[0]
    if thing.shape == "ball":
        return disc
    end = np.array([0, 0, thing.size_m[1]])
    return np.concatenate([disc + end, disc - end])


def _facing_ring(view_dir: np.ndarray) -> np.ndarray:
    """Sixteen points of a unit circle whose plane faces the camera."""
    x, y, z = view_dir
    flat = math.hypot(x, y)
    side = np.array([-y, x, 0.0]) / flat if flat > 1e-6 else np.array([1.0, 0.0, 0.0])
    up = np.array([-z * side[1], z * side[0], x * side[1] - y * side[0]])  # view_dir × side
    return np.outer(_COS16, side) + np.outer(_SIN16, up)


def _damping(bounce: float) -> float:
    """The damping 1/s of a spring that keeps this share of the speed: exp(−ζπ/√(1 − ζ²)) = bounce."""
    log = math.log(min(max(bounce, 0.01), 0.99))
    ratio = -log / math.hypot(math.pi, log)
    return 2 * ratio * math.sqrt(CONTACT_STIFFNESS)


def _lie(thing: Thing) -> tuple[float, float, float, float]:
    """Orientation of the geom in its body: capsules lie along x; tilted things turn about y."""
    angle = thing.tilt_rad + (math.pi / 2 if thing.shape == "capsule" else 0.0)
    return (math.cos(angle / 2), 0.0, math.sin(angle / 2), 0.0)


def _numbers(values: tuple[float, ...] | np.ndarray) -> str:
    return " ".join(f"{float(v):.6g}" for v in values)
