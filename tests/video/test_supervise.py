"""The worker hangs, dies, is shared by threads and inherited by forks: the caller always gets an answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import VideoRef
from cosmos_reason.video import decode, probe, supervise
from cosmos_reason.video.sample import FrameSpec
from tests.video import make

EIGHT = FrameSpec(count=8)


@pytest.fixture
def clip(tmp_path) -> str:
    return make.write(tmp_path / "a.mp4", 20, 10)


def worker_pid() -> int:
    return supervise._idle[-1].process.pid


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_serves_many_calls(clip):
    probe(clip)
    pid = worker_pid()
    for _ in range(3):
        decode(VideoRef(clip), EIGHT)
    assert worker_pid() == pid


def test_a_relative_path_means_the_folder_of_the_caller(tmp_path, monkeypatch):
    for number in (3, 5):
        (tmp_path / str(number)).mkdir()
        make.write(tmp_path / str(number) / "a.mp4", number, 10)
        os.rename(tmp_path / str(number) / "a.mp4", tmp_path / str(number) / "a:b.mp4")
    for number in (3, 5, 3):
        monkeypatch.chdir(tmp_path / str(number))
        assert decode(VideoRef("a:b.mp4"), EIGHT).source_frames == probe("a:b.mp4").frames == number
        pid = worker_pid()
    assert probe("a:b.mp4").path == "a:b.mp4"
    assert worker_pid() == pid


def test_a_decoder_that_hangs_is_killed_and_the_file_named(clip):
    probe(clip)
    pid = worker_pid()
    os.kill(pid, signal.SIGSTOP)  # as good as a decoder that never returns
    with pytest.raises(DataError, match=r"a\.mp4: not decoded within 0\.3 s and given up"):
        decode(VideoRef(clip), EIGHT, timeout_s=0.3)
    assert not lives(pid)
    assert len(decode(VideoRef(clip), EIGHT).pixels_THWC) == 8


def test_a_worker_that_died_idle_is_replaced_unnoticed(clip):
    probe(clip)
    supervise._idle[-1].process.kill()
    supervise._idle[-1].process.wait()
    assert decode(VideoRef(clip), EIGHT).backend.startswith("decord")  # not the second try, which leaves decord out


def test_a_worker_that_dies_at_work_is_a_crash(clip):
    probe(clip)
    pid = worker_pid()
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(supervise.Crashed):
        supervise.call("probe", (clip,), clip, 30.0)
    assert probe(clip).frames == 20


def test_our_own_bugs_are_loud(clip):
    with pytest.raises(RuntimeError, match=r"(?s)the decoder process failed:.*KeyError: 'no such job'"):
        supervise.call("no such job", (), clip, 10.0)


def test_a_limit_that_nothing_meets_is_refused(clip):
    with pytest.raises(UserError, match="timeout_s must be a positive number of seconds, got 0"):
        probe(clip, timeout_s=0)


def test_threads_do_not_mix_answers(tmp_path):
    paths = [make.write(tmp_path / f"{n}.mp4", n, 10) for n in (3, 5, 7)]
    seen: dict[int, list[int]] = {3: [], 5: [], 7: []}

    def work(path: str, frames: int) -> None:
        for _ in range(4):
            seen[frames].append(len(decode(VideoRef(path), EIGHT).pixels_THWC))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(paths, seen, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {n: [n] * 4 for n in (3, 5, 7)}
    assert len(supervise._idle) <= supervise.KEPT_WORKERS


def test_a_forked_child_uses_a_worker_of_its_own(clip):
    probe(clip)
    pid = worker_pid()
    supervise._lock.acquire()  # as another thread may at this moment
    child = os.fork()
    if child:
        supervise._lock.release()
    else:
        code = 1
        signal.alarm(30)  # a deadlock ends as a failure
        try:
            ours = decode(VideoRef(clip), EIGHT)
            code = 0 if len(ours.pixels_THWC) == 8 and worker_pid() != pid else 2
            supervise.close_workers()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(decode(VideoRef(clip), EIGHT).times_s_T[0], 0.0)
    assert worker_pid() == pid


def test_a_script_without_main_guard_can_decode_and_ends_its_worker(clip, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from cosmos_reason.types import VideoRef\n"
        "from cosmos_reason.video import FrameSpec, decode, supervise\n"
        "assert 'torch' not in sys.modules\n"
        f"frames = decode(VideoRef({clip!r}), FrameSpec(count=2))\n"
        "print(len(frames.pixels_THWC), supervise._idle[0].process.pid)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-W", "error", script], env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    frames, pid = run.stdout.split()
    assert frames == "2"
    assert not lives(int(pid))


def test_the_worker_does_not_import_torch(clip):
    probe(clip)
    with open(f"/proc/{worker_pid()}/maps") as maps:
        assert "libtorch" not in maps.read()
