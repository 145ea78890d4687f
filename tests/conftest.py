"""For all tests: few threads, no network, and with `--limit-s` a final JSON line of the whole run."""

from __future__ import annotations

import json
import os
import time

import pytest

# Before torch is imported anywhere: pytest runs as many processes as there are cores, so each gets one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

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
