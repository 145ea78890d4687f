"""The renderer: what the environment says comes first, then what the machine has."""

from __future__ import annotations

import pytest

from cosmos_reason.simulate.renderer import choose


@pytest.mark.parametrize(
    ("environment", "library", "name"),
    [
        ({"MUJOCO_GL": "egl", "DISPLAY": ":0"}, "libc.so.6", "egl"),
        ({"DISPLAY": ":0"}, "libc.so.6", "glfw"),
        ({}, "libc.so.6", "osmesa"),  # a library that is there
        ({}, "libnone.so.9", "egl"),
        ({"MUJOCO_GL": "", "DISPLAY": ""}, "libnone.so.9", "egl"),
    ],
)
def test_renderer(environment: dict[str, str], library: str, name: str) -> None:
    assert choose(environment, library)[0] == name
