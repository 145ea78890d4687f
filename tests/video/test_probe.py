"""What probe says of files whose facts are known."""

from __future__ import annotations

import pytest

from cosmos_reason.errors import DataError
from cosmos_reason.video import container, probe, probe_in_process
from tests.video import make


def test_probe_knows_a_plain_clip(tmp_path):
    path = make.write(tmp_path / "a.mp4", 30, 10, audio_s=1.0)
    info = probe(path)
    assert info == probe_in_process(path)
    assert (info.path, info.codec, info.width, info.height) == (path, "h264", 128, 96)
    assert "mp4" in info.container
    assert (info.frames, info.header_frames, info.has_audio, info.video_streams) == (30, 30, True, 1)
    assert (info.fps, info.duration_s, info.start_s) == pytest.approx((10.0, 3.0, 0.0))


def test_probe_gives_upright_shape_late_start_and_several_streams(tmp_path):
    turned = probe(make.write(tmp_path / "phone.mp4", 3, 10, rotation=90))
    assert (turned.width, turned.height, turned.rotation) == (96, 128, 90)
    late = probe(make.write(tmp_path / "late.mkv", 10, 10, stamps_ms=[5000 + 100 * i for i in range(10)]))
    assert (late.start_s, late.duration_s) == pytest.approx((5.0, 1.0))
    assert probe(make.write(tmp_path / "two.mkv", 3, 10, streams=2)).video_streams == 2


@pytest.mark.parametrize(
    ("ending", "frames", "header_frames", "codec"),
    [
        ("avi", 1441, 1443, "mpeg4"),
        ("m1v", 1441, -1, "mpeg1video"),
        ("gif", 120, 120, "gif"),
        ("swf", 1441, -1, "flv1"),
    ],
)
def test_probe_counts_what_can_be_shown_not_what_headers_claim(ending, frames, header_frames, codec, sample_videos):
    info = probe(str(sample_videos / f"demo.{ending}"))
    assert (info.frames, info.header_frames, info.codec) == (frames, header_frames, codec)
    assert info.duration_s == pytest.approx(5.0 if ending == "gif" else 60.04, abs=0.1)


def test_a_huge_file_is_not_counted(tmp_path, monkeypatch):
    path = make.write(tmp_path / "a.mp4", 30, 10)
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    info = probe_in_process(path)
    assert (info.frames, info.header_frames) == (-1, 30)
    assert (info.fps, info.duration_s) == pytest.approx((10.0, 3.0))


def test_probe_names_a_bad_file(tmp_path):
    with pytest.raises(DataError, match="is a directory"):
        probe(str(tmp_path))
