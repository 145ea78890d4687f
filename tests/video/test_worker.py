"""The worker's side of the wire: ready, value, frames, error, bug, and the end when the caller hangs up."""

from __future__ import annotations

import pickle
import signal

import pytest

from cosmos_reason.errors import DataError
from cosmos_reason.types import VideoRef
from cosmos_reason.video.probe import VideoInfo
from cosmos_reason.video.sample import FrameSpec
from cosmos_reason.video.supervise import Worker
from tests.video import make


@pytest.fixture
def worker():
    started = Worker()
    yield started
    started.close()


def answer(worker: Worker) -> tuple[str, object]:
    assert worker.connection.poll(30)
    return pickle.loads(worker.connection.recv_bytes())


def test_each_outcome_has_its_word(worker, tmp_path):
    path = make.write(tmp_path / "a.mp4", 5, 10)
    assert answer(worker) == ("ready", None)
    worker.connection.send(("probe", (path,), 5.0))
    kind, info = answer(worker)
    assert kind == "value"
    assert isinstance(info, VideoInfo)
    worker.connection.send(("decode", (VideoRef(path), FrameSpec(count=2)), 5.0))
    kind, (_, shape) = answer(worker)
    assert (kind, shape) == ("frames", (2, 96, 128, 3))
    assert len(worker.connection.recv_bytes()) == 2 * 96 * 128 * 3
    worker.connection.send(("probe", (str(tmp_path),), 5.0))
    kind, error = answer(worker)
    assert kind == "error"
    assert isinstance(error, DataError)
    assert error.path == str(tmp_path)
    worker.connection.send(("probe", (), 5.0))
    kind, trace = answer(worker)
    assert kind == "bug"
    assert "TypeError" in trace


def test_it_ends_when_the_caller_hangs_up(worker):
    assert answer(worker) == ("ready", None)
    worker.connection.close()
    assert worker.process.wait(10) == 0


def test_it_leaves_ctrl_c_to_the_caller(worker, tmp_path):
    assert answer(worker) == ("ready", None)
    worker.process.send_signal(signal.SIGINT)
    path = make.write(tmp_path / "a.mp4", 5, 10)
    worker.connection.send(("probe", (path,), 5.0))
    assert answer(worker)[0] == "value"
