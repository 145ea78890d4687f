"""Which of MuJoCo's ways to draw is taken. Chosen on import of the package, since MuJoCo reads it when imported itself.

What MUJOCO_GL names; else, on a desktop (DISPLAY is set), what MuJoCo takes by itself; else OSMesa, which draws on the
processor, and where that library is not there EGL.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

OSMESA = "libOSMesa.so.8"


def choose(environment: Mapping[str, str], osmesa: str = OSMESA) -> tuple[str, str]:
    """(name, why), e.g. ("egl", "MUJOCO_GL is set")."""
    if named := environment.get("MUJOCO_GL"):
        return named, "MUJOCO_GL is set"
    if environment.get("DISPLAY"):
        return "glfw", "DISPLAY is set"
    try:
        ctypes.CDLL(osmesa)
    except OSError:
        return "egl", f"there is no {osmesa}"
    return "osmesa", "no display"


CHOSEN = choose(os.environ)
if CHOSEN[0] != "glfw":
    os.environ["MUJOCO_GL"] = CHOSEN[0]
