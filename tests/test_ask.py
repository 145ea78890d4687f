"""`ask`: how a command line becomes a sample, what it refuses, and the whole way on real video."""

import json
import subprocess
import sys
from importlib.resources import files

import pytest
from PIL import Image

from cosmos_reason import ask
from cosmos_reason.ask import AskRequest, frame_spec, is_simulated, peak_memory_mb, sample_of
from cosmos_reason.backends import local
from cosmos_reason.errors import DataError, UserError
from cosmos_reason.video import FrameSpec

ENDINGS = ("3g2", "3gp", "asf", "avi", "f4v", "flv", "gif", "m1v", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg")
ENDINGS += ("ogg", "ogv", "rm", "swf", "vob", "webm", "wmv")
COLLISION = str(files("cosmos_reason") / "assets" / "clips" / "videos" / "collision.mp4")


@pytest.fixture(scope="module")
def nano():
    return local.LocalBackend("nano")


@pytest.fixture
def loaded(monkeypatch, nano):
    """The shipped model, loaded once for all questions."""
    monkeypatch.setattr(local, "LocalBackend", lambda name: nano)


@pytest.mark.parametrize(
    ("question", "options", "kind"),
    [
        ("Did the arm close the drawer?", (), "binary"),
        ("Which moves first?", ("red", "blue"), "choice"),
        ("What happens?", (), "text"),
    ],
)
def test_the_kind_follows_from_the_question(question, options, kind):
    assert sample_of(AskRequest("a.mp4", question, options)).kind == kind


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (AskRequest("a.mp4", " "), "question is empty"),
        (AskRequest("a.mp4", "Which?", ("one",)), "wanted none, or 2 to 10"),
        (AskRequest("a.mp4", "Which?", ("a", "b"), kind="binary"), "go together"),
        (AskRequest("a.mp4", "Where?", kind="trajectory"), "cannot be asked here"),
    ],
)
def test_what_cannot_be_asked_says_why(request_, message):
    with pytest.raises(UserError, match=message):
        sample_of(request_)


def test_a_rate_replaces_the_count():
    default = FrameSpec(count=8)
    assert frame_spec(AskRequest("a", "q"), default).count == 8
    assert frame_spec(AskRequest("a", "q", max_frames=4), default).count == 4
    spec = frame_spec(AskRequest("a", "q", fps=2.0), default)
    assert (spec.fps, spec.count, spec.max_frames) == (2.0, None, 8)


def test_a_simulated_clip_is_known_by_its_state_file(tmp_path):
    (tmp_path / "timelines").mkdir()
    (tmp_path / "timelines" / "x.json").write_text("{}")
    assert is_simulated(str(tmp_path / "videos" / "x.mp4"))
    assert not is_simulated(str(tmp_path / "videos" / "y.mp4"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_container_is_answered(ending, sample_videos, loaded, capsys):
    video = str(sample_videos / f"demo.{ending}")
    answered = ask.main(AskRequest(video, "Does anything move?", json=True))
    assert answered.text
    assert answered.status in ("ok", "malformed", "truncated")
    assert len(answered.frame_times_s) == 8
    assert answered.notice.startswith("note: nano has learned from simulated")
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed)["text"] == answered.text


def test_the_screen_shows_times_reasoning_and_answer(loaded, tmp_path, capsys):
    strip = tmp_path / "seen.png"
    request = AskRequest(COLLISION, "Which ball is there?", ("black", "white"), max_frames=4, strip=strip)
    answered = ask.main(request)
    printed = capsys.readouterr().out
    times = " ".join(f"{t:.2f}" for t in answered.frame_times_s)
    assert printed.startswith(f"frames seen at {times} s (4 of 16, ")
    assert f"frame strip: {strip}" in printed
    assert answered.text in printed
    assert printed.splitlines()[-1].startswith("answer: ")
    assert answered.notice == ""  # a simulated clip is what nano knows
    with Image.open(strip) as picture:
        assert picture.width > 4 * 64


def test_a_span_and_burnt_times_are_what_is_seen(loaded):
    answered = ask.main(AskRequest(COLLISION, "Does it move?", start_s=0.5, end_s=1.0, timestamps=True, json=True))
    assert min(answered.frame_times_s) >= 0.5 and max(answered.frame_times_s) <= 1.0


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"max_frames": 0}, UserError, "at least 1"),
        ({"fps": 0.0}, UserError, "fps must be a positive"),
        ({"start_s": 99.0}, DataError, "99"),
        ({"video": "no_such.mp4"}, DataError, "no_such.mp4"),
    ],
)
def test_what_cannot_be_seen_says_why(loaded, changes, kind, message):
    with pytest.raises(kind, match=message):
        ask.main(AskRequest(**{"video": COLLISION, "question": "Does it move?", **changes}))


def test_a_rate_beyond_the_budget_is_said(loaded, sample_videos):
    many = ask.main(AskRequest(str(sample_videos / "demo.mp4"), "Does it move?", fps=4.0, json=True))
    assert "4 frames a second were asked for; 8 frames were taken, 0.12 a second" in many.notice
    few = ask.main(AskRequest(COLLISION, "Does it move?", fps=4.0, json=True))
    assert few.notice == ""


def test_the_peak_is_ours_and_not_that_of_the_process_that_started_us():
    program = "from cosmos_reason.ask import peak_memory_mb as peak; print(peak())"
    ballast = bytearray(b"1" * 600_000_000)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(ballast) and 5 < float(said.stdout) < 400
    assert peak_memory_mb() > 600
