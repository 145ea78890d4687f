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


@pytest.mark.parametrize(("leading", "open_gop"), [("0", False), ("1", True)])
def test_open_groups_are_noticed(leading, open_gop, tmp_path):
    options = {"x265-params": f"log-level=none:keyint=10:min-keyint=10:open-gop={leading}"}
    assert index_video(make.write(tmp_path / "a.mp4", 40, 10, "libx265", options=options)).open_gop is open_gop
