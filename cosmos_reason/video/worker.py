"""The decoder process: python -m cosmos_reason.video.worker FD

Reads (job, arguments, seconds) from the socket FD, answers each with one of "value", "frames" (pixels follow raw),
"error" (a UserError or DataError) or "bug" (a traceback), and ends when the other side hangs up. An alarm ends it when
a job outlives its limit and nobody is left to kill it.
"""

from __future__ import annotations

import math
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames
from cosmos_reason.video.decode import decode_in_process
from cosmos_reason.video.probe import probe_in_process

JOBS: dict[str, Callable[..., object]] = {"decode": decode_in_process, "probe": probe_in_process}
GRACE_S = 5  # after the limit, when the caller should have killed us


def serve(connection: Connection) -> None:
    """Answer requests until the caller hangs up."""
    _send(connection, "ready", None)
    while True:
        try:
            job, arguments, timeout_s = connection.recv()
        except (EOFError, ConnectionError):
            return
        signal.alarm(math.ceil(timeout_s) + GRACE_S)
        try:
            result = JOBS[job](*arguments)
        except (UserError, DataError) as error:
            _send(connection, "error", error)
        except Exception:  # ours: the caller raises it with this traceback
            _send(connection, "bug", traceback.format_exc())
        else:
            _answer(connection, result)
        signal.alarm(0)


def _answer(connection: Connection, result: object) -> None:
    if not isinstance(result, Frames):
        _send(connection, "value", result)
        return
    rest = (result.times_s_T, result.source_fps, result.source_frames, result.backend, result.asked)
    _send(connection, "frames", (rest, result.pixels_THWC.shape))
    connection.send_bytes(result.pixels_THWC.reshape(-1).data)


def _send(connection: Connection, kind: str, value: object) -> None:
    connection.send_bytes(pickle.dumps((kind, value)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    serve(Connection(int(sys.argv[1])))
