"""`ask`: how a command line becomes a sample, and what it refuses."""

import pytest

from cosmos_reason.ask import AskRequest, frame_spec, is_simulated, sample_of
from cosmos_reason.errors import UserError
from cosmos_reason.video import FrameSpec


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
