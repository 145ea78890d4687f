"""Decoding under supervision: `call` sends one request to a worker process and kills the worker when it is late.

Decoders hang and crash on bad files, and neither can be stopped from inside a process. A worker is started when first
needed, kept for the next call (a request costs about a millisecond) and replaced when it was killed. It imports numpy
and the decoders, never torch. Calls from several threads use several workers; a forked child starts its own.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

import numpy as np

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames

KEPT_WORKERS = 2  # idle workers beyond this many are closed
START_S = 60.0  # a worker's imports, on a busy machine
WORKER_COMMAND = (sys.executable, "-m", "cosmos_reason.video.worker")

_idle: list[Worker]
_lock = threading.Lock()


class Crashed(Exception):
    """The worker process died while it worked on a request."""


class Worker:
    """A process that answers requests one at a time over a socket. `command` gets the socket's number appended."""

    def __init__(self, command: tuple[str, ...] = WORKER_COMMAND) -> None:
        self.folder = _folder()
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
        self.connection = Connection(ours.detach())

    def ask(self, job: str, arguments: tuple, timeout_s: float) -> object:
        """The job's result. Raises what the job raised, TimeoutError when it is late, Crashed when the process died."""
        deadline = time.monotonic() + timeout_s
        try:
            self.connection.send((job, arguments, timeout_s))
            if not self.connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            kind, value = pickle.loads(self.connection.recv_bytes())
            if kind == "frames":
                value, shape = value
                pixels_THWC = np.empty(shape, dtype=np.uint8)
                self.connection.recv_bytes_into(pixels_THWC.reshape(-1).data)
                return Frames(pixels_THWC, *value)
        except (EOFError, ConnectionError):
            raise Crashed from None
        if kind == "error":
            assert isinstance(value, (UserError, DataError)), f"workers send our own errors, got {value!r}"
            raise value
        if kind == "bug":
            raise RuntimeError(f"the decoder process failed:\n{value}")
        return value

    def close(self, kill: bool = False) -> None:
        """End the process: by hanging up, or at once by `kill`."""
        self.connection.close()
        if kill:
            self.process.kill()
        try:
            self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def call(job: str, arguments: tuple, path: str, timeout_s: float) -> object:
    """Run `job` (a name in `worker.JOBS`) in a worker. DataError naming `path` when it takes longer than `timeout_s`.

    Raises Crashed when the worker dies, and whatever UserError or DataError the job raises.
    """
    if not timeout_s > 0:
        raise UserError(f"{path}: timeout_s must be a positive number of seconds, got {timeout_s}")
    worker = _take()
    try:
        answer = worker.ask(job, arguments, timeout_s)
    except TimeoutError:
        worker.close(kill=True)
        late = f"not decoded within {timeout_s:g} s and given up"
        raise DataError(path, f"{late}; raise the limit or leave the file out") from None
    except (UserError, DataError):
        _give(worker)
        raise
    except BaseException:  # whoever is at fault, a half-read answer must not greet the next caller
        worker.close(kill=True)
        raise
    _give(worker)
    return answer


def _take() -> Worker:
    """An idle worker that lives in the current folder, or a new one that has said it is ready."""
    while True:
        with _lock:
            worker = _idle.pop() if _idle else None
        if worker is None:
            break
        if worker.process.poll() is None and worker.folder == _folder():
            return worker
        worker.close()
    worker = Worker()
    try:
        if not worker.connection.poll(START_S) or pickle.loads(worker.connection.recv_bytes()) != ("ready", None):
            raise EOFError
    except (EOFError, ConnectionError):
        worker.close(kill=True)
        raise RuntimeError(f"the decoder process did not start: {' '.join(WORKER_COMMAND)}") from None
    return worker


def _folder() -> tuple[int, int]:
    """The current folder, in which a worker started now looks up relative paths. Its name may be gone: its numbers."""
    here = os.stat(".")
    return here.st_dev, here.st_ino


def _give(worker: Worker) -> None:
    with _lock:
        if len(_idle) < KEPT_WORKERS:
            _idle.append(worker)
            return
    worker.close()


@atexit.register
def close_workers() -> None:
    """Close the idle workers of this process; the next call starts a new one."""
    with _lock:
        workers, _idle[:] = list(_idle), []
    for worker in workers:
        worker.close()


def _forget() -> None:
    """In a forked child: the workers belong to the parent, and their sockets must not be used by two."""
    global _lock
    _lock = threading.Lock()
    for worker in _idle:
        worker.connection.close()
        worker.process.returncode = 0  # not this process's child to wait for
    _idle.clear()


_idle = []
os.register_at_fork(after_in_child=_forget)
