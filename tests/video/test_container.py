"""Files that are no video, or a broken one, get one sentence; whole ones get a true index."""

from __future__ import annotations

import os

import av
import numpy as np
import pytest
from PIL import Image

from cosmos_reason.errors import DataError
from cosmos_reason.video import container
from cosmos_reason.video.container import index_video
from cosmos_reason.video.readers import read_pyav
from tests.video import make


def text_file(path):
    path.write_text("This is no video, whatever its name says.\n" * 50)
    return str(path)


def still(path):
    Image.fromarray(make.picture(5)).save(path)
    return str(path)


def cut(path, share, **options):
    whole = make.write(path, 100, 10, **options)
    os.truncate(whole, int(os.path.getsize(whole) * share))
    return whole


def cover_only(path):
    """A music file with a cover picture: libav lists the cover as a video stream."""
    sound, image = make.write_audio(path.with_name("sound.m4a")), still(path.with_name("cover.jpg"))
    with av.open(sound) as source, av.open(image) as art, av.open(str(path), "w") as target:
        music = target.add_stream_from_template(source.streams.audio[0])
        cover = target.add_stream_from_template(art.streams.video[0])
        cover.disposition = av.stream.Disposition.attached_pic
        for packet in art.demux(video=0):
            if packet.size:
                packet.stream = cover
                target.mux(packet)
        for packet in source.demux(audio=0):
            if packet.size:
                packet.stream = music
                target.mux(packet)
    return str(path)


FAULTS = {
    "no such file": lambda d: str(d / "missing.mp4"),
    "no such file; check": lambda d: still(d / "file.png") + "/below.mp4",
    "is a directory": lambda d: str(d),
    "the file is empty": lambda d: (d / "empty.mp4").touch() or str(d / "empty.mp4"),
    "can't be opened as a video|a text file": lambda d: text_file(d / "text.mp4"),
    "a text file, not a video": lambda d: text_file(d / "screen.txt"),
    "audio only": lambda d: make.write_audio(d / "sound.mp4"),
    "audio only, no": lambda d: cover_only(d / "song.mp4"),
    r"a still picture \(png\)": lambda d: still(d / "still.png"),
    r"a still picture \(mjpeg\)": lambda d: still(d / "still.jpg"),
    "a still picture": lambda d: still(d / "picture.avif"),
    "can't be opened as a video": lambda d: cut(d / "index_at_end.mp4", 0.6),
    "truncated or damaged.*its pictures end at": lambda d: cut(
        d / "cut.mp4", 0.6, muxer={"movflags": "faststart"}, options={"g": "10"}
    ),
    "truncated or damaged": lambda d: cut(d / "cut.mkv", 0.6, options={"g": "10"}),
    "truncated or damaged.*end at": lambda d: cut(d / "cut.avi", 0.6, codec="mpeg4"),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_file_that_is_no_whole_video_is_one_sentence_with_its_name(reason, tmp_path):
    path = FAULTS[reason](tmp_path)
    with pytest.raises(DataError, match=reason) as caught:
        index_video(path)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize("name", ["a:b.mp4", "2026-01-01T10:00:00.mp4", "file:a.mp4"])
def test_a_colon_in_a_name_makes_no_url_of_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(make.write(tmp_path / "plain.mp4", 5, 10), name)
    index = index_video(name)
    assert (index.path, len(index.stamps_s_N)) == (name, 5)
    text_file(tmp_path / "x:y.mp4")
    with pytest.raises(DataError) as caught:
        index_video("x:y.mp4")
    assert str(caught.value).startswith("x:y.mp4: ")


# How each container is written so that it can still be opened when its end is missing.
CUT = {
    "cut.mp4": {"muxer": {"movflags": "faststart"}, "options": {"g": "10"}},
    "cut.mkv": {"options": {"g": "10"}},
    "cut.webm": {"codec": "libvpx-vp9", "options": {"g": "10"}},
    "cut.avi": {"codec": "mpeg4", "options": {"g": "10"}},
    "cut.flv": {"options": {"g": "10"}},
}


@pytest.mark.parametrize("share", [0.6, 0.8])
@pytest.mark.parametrize("name", CUT)
def test_a_huge_file_that_is_cut_off_is_named_as_a_small_one_is(name, share, tmp_path, monkeypatch):
    path = cut(tmp_path / name, share, **CUT[name])
    with pytest.raises(DataError, match="truncated or damaged") as small:
        index_video(path)
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    with pytest.raises(DataError) as huge:
        index_video(path)
    assert str(huge.value) == str(small.value)


def test_minutes_missing_from_a_long_film_are_noticed(tmp_path):
    film = make.write_long(tmp_path / "film.mkv", 7200, fps=1, size=(32, 32))
    os.truncate(film, int(os.path.getsize(film) * 0.955))  # its index and two minutes, less than a twentieth
    with pytest.raises(DataError, match=r"its header promises 7200\.00 s, its pictures end at 70\d\d"):
        index_video(film)


@pytest.mark.parametrize(
    ("length_s", "longest_s", "expected"),
    [(4, 0.04, 0.5), (60, 0.04, 3), (7200, 0.04, 10), (7200, 40, 40), (7200, 900, 360)],
)
def test_what_may_be_missing_at_the_end(length_s, longest_s, expected):
    assert container._tolerated_s(length_s, longest_s) == expected


def test_a_last_still_may_stay_as_long_as_others_do(tmp_path):
    """Slides of half a minute: Matroska doesn't say how long the last one stays, but its header counts that in."""
    slides = make.write(tmp_path / "slides.mkv", 40, 10, stamps_ms=[30_000 * i for i in range(40)])
    assert len(index_video(make.retag(slides, "00:19:59.000000000")).stamps_s_N) == 40


@pytest.mark.parametrize("tag", ["12.5", "1:02", "a quarter hour", "9:99:99:99", ""])
def test_a_duration_tag_of_another_form_is_passed_over(tag, tmp_path):
    path = make.retag(make.write(tmp_path / "a.mkv", 30, 10), tag)
    assert len(index_video(path).stamps_s_N) == 30


@pytest.mark.parametrize("name", ["late.mkv", "late.flv", "late.asf"])
def test_a_late_start_is_not_counted_twice(name, tmp_path, monkeypatch):
    """The header's 8 s count from zero here, three seconds of pictures from 5 s on included."""
    codec = "mpeg4" if name == "late.asf" else "libx264"
    path = make.write(tmp_path / name, 30, 10, codec, stamps_ms=list(range(5000, 8000, 100)))
    if name == "late.mkv":
        make.retag(path, "unknown")
    for scan_bytes in (container.SCAN_BYTES, 0):
        monkeypatch.setattr(container, "SCAN_BYTES", scan_bytes)
        np.testing.assert_allclose(index_video(path).stamps_s_N, 5 + np.arange(30) / 10, atol=1e-3)


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(DataError, match="not a regular file"):
        index_video(str(tmp_path / "pipe.mp4"))


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.webm", "a.ts", "a.flv", "a.avi"])
def test_index_agrees_with_decoding_everything(name, tmp_path):
    codec = {"webm": "libvpx-vp9", "avi": "mpeg4"}.get(name.split(".")[1], "libx264")
    path = make.write(tmp_path / name, 30, 10, codec)
    index = index_video(path)
    stamps_s, _ = make.truth(path)
    np.testing.assert_allclose(index.stamps_s_N, stamps_s, atol=1e-9)
    assert (index.width, index.height, index.rotation, index.video_streams) == (128, 96, 0, 1)
    assert index.fps == pytest.approx(10.0)
    assert index.frame_s == pytest.approx(0.1)
    assert not (index.has_audio or index.has_alpha or index.counted or index.lenient)


def test_leading_pictures_that_the_file_discards_are_not_counted(tmp_path):
    """An edit list that begins 13 frames in: the header says 200, 187 can be shown."""
    whole, edited = make.write(tmp_path / "whole.mp4", 200, 10), str(tmp_path / "edited.mp4")
    with av.open(whole) as source, av.open(edited, "w") as target:
        video = target.add_stream_from_template(source.streams.video[0])
        shift = round(1.3 / source.streams.video[0].time_base)
        for packet in source.demux(video=0):
            if packet.size:
                packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, video
                target.mux(packet)
    index = index_video(edited)
    assert (index.header_frames, len(index.stamps_s_N)) == (200, 187)
    stamps_s, pictures = make.truth(edited)
    assert make.number(pictures[0]) == 13
    np.testing.assert_allclose(index.stamps_s_N, stamps_s, atol=1e-9)


def test_pictures_before_the_first_key_frame_are_not_counted(tmp_path):
    """A recording that begins between two key frames: three pictures gone, the next seven lack their key frame."""
    whole, torn = make.write(tmp_path / "whole.mkv", 40, 10, options={"g": "10", "bf": "0"}), str(tmp_path / "torn.mkv")
    with av.open(whole) as source, av.open(torn, "w") as target:
        video = target.add_stream_from_template(source.streams.video[0])
        for packet in list(source.demux(video=0))[3:]:
            if packet.size:
                packet.stream = video
                target.mux(packet)
    index = index_video(torn)
    np.testing.assert_allclose(index.stamps_s_N, np.arange(10, 40) / 10, atol=1e-3)
    pictures = read_pyav(index, np.array([0, 7, 29]), (128, 96))
    assert make.numbers(pictures.pixels_THWC) == [10, 17, 39]


def test_elementary_streams_without_stamps_are_counted(tmp_path):
    raw = make.write(tmp_path / "raw.h264", 30, 10)
    renamed = str(tmp_path / "renamed.mp4")
    os.rename(raw, renamed)
    index = index_video(renamed)
    assert len(index.stamps_s_N) == 30
    assert (np.diff(index.stamps_s_N) > 0).all()


def test_files_too_large_to_read_through_are_described_by_their_header(tmp_path, monkeypatch):
    path = make.write(tmp_path / "a.mp4", 30, 10)
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    index = index_video(path)
    assert not index.exact
    np.testing.assert_allclose(index.stamps_s_N, np.arange(30) / 10)
    assert index_video(path, read_through=True).exact


def test_a_file_whose_sound_is_longer_is_whole_whatever_its_size(tmp_path, monkeypatch):
    path = make.retag(make.write(tmp_path / "a.mkv", 20, 10, audio_s=20.0), "unknown")
    for scan_bytes in (container.SCAN_BYTES, 0):
        monkeypatch.setattr(container, "SCAN_BYTES", scan_bytes)
        index = index_video(path)
        assert (index.exact, len(index.stamps_s_N)) == (True, 20)


@pytest.mark.parametrize(("leading", "open_gop"), [("0", False), ("1", True)])
def test_open_groups_are_noticed(leading, open_gop, tmp_path):
    options = {"x265-params": f"log-level=none:keyint=10:min-keyint=10:open-gop={leading}"}
    assert index_video(make.write(tmp_path / "a.mp4", 40, 10, "libx265", options=options)).open_gop is open_gop
