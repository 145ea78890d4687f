"""Each reader against the slow twin: every frame decoded in order by PyAV must be the one that a jump finds."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from contextlib import contextmanager
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from cosmos_reason.errors import DataError
from cosmos_reason.types import VideoRef
from cosmos_reason.video import FrameSpec, container, decode_in_process, readers
from cosmos_reason.video.container import index_video
from cosmos_reason.video.readers import Doubt, read_decord, read_pyav, read_torchcodec
from tests.video import make

# name, encoder, further arguments of make.write
KINDS = {
    "h264.mp4": ("libx264", {"options": {"g": "12", "bf": "3"}}),
    "open.mp4": ("libx264", {"options": {"x264-params": "keyint=10:open-gop=1:bframes=3"}}),
    "hevc.mp4": ("libx265", {"options": {"x265-params": "log-level=none:keyint=10:open-gop=1"}}),
    "av1.mp4": ("libsvtav1", {"options": {"g": "10"}}),
    "vp9.webm": ("libvpx-vp9", {"options": {"g": "10"}}),
    "vp8.webm": ("libvpx", {"options": {"g": "10"}}),
    "bframes.avi": ("mpeg4", {"options": {"g": "10", "bf": "2"}}),
    "motion.avi": ("mjpeg", {"pix_fmt": "yuvj420p"}),
    "program.mpg": ("mpeg2video", {"options": {"g": "10"}}),
    "transport.ts": ("libx264", {"options": {"g": "10"}}),
    "flash.flv": ("libx264", {"options": {"g": "10"}}),
    "lossless.mkv": ("ffv1", {}),
    "tenbit.mov": ("prores", {"pix_fmt": "yuv422p10le"}),
    "fragments.mp4": ("libx264", {"muxer": {"movflags": "frag_keyframe+empty_moov"}, "options": {"g": "10"}}),
    "raw.h264": ("libx264", {"options": {"g": "10"}}),
    "odd.mp4": ("libx264", {"size": (101, 75), "pix_fmt": "yuv444p"}),
    "variable.mp4": ("libx264", {"stamps_ms": [*range(0, 2000, 200), *range(2000, 2990, 33)], "options": {"g": "10"}}),
    "late.mkv": ("libx264", {"stamps_ms": list(range(5000, 9000, 100)), "options": {"g": "10"}}),
}
WANTED = np.array([0, 1, 13, 14, 29, 33, 39])  # neighbours, either side of a key frame, both ends


@pytest.mark.parametrize("name", KINDS)
def test_jumping_finds_the_frames_that_decoding_in_order_shows(name, tmp_path):
    codec, how = KINDS[name]
    path = make.write(tmp_path / name, 40, 10, codec, **how)
    index = index_video(path)
    stamps_s, pictures = make.truth(path)
    assert len(index.stamps_s_N) == len(pictures) == 40
    size = (index.width, index.height)
    found = [read_pyav(index, WANTED, size)]
    try:
        found.append(read_decord(index, WANTED, size))
    except Doubt:
        assert name not in {"h264.mp4", "vp9.webm", "vp8.webm", "flash.flv", "variable.mp4", "late.mkv"}
    for pictures_T in found:
        assert make.numbers(pictures_T.pixels_THWC) == WANTED.tolist(), pictures_T.backend
        # conversion to RGB by two builds of the same library: rounding apart, they are the same pixels
        twin = np.stack([pictures[i] for i in WANTED]).astype(int)
        assert np.abs(pictures_T.pixels_THWC - twin).mean() < 1.0, pictures_T.backend
        if not index.counted:
            np.testing.assert_allclose(pictures_T.times_s_T, stamps_s[WANTED], atol=1e-6)


@pytest.mark.parametrize("name", ["h264.mp4", "hevc.mp4", "vp9.webm"])
def test_a_file_too_large_to_read_through_gives_true_stamps(name, tmp_path, monkeypatch):
    codec, how = KINDS[name]
    path = make.write(tmp_path / name, 200, 10, codec, **how)
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    index = index_video(path)
    assert not index.exact
    with pytest.raises(Doubt, match="huge"):
        read_decord(index, WANTED, (128, 96))
    wanted = np.array([0, 77, 150, 199])
    pictures = read_pyav(index, wanted, (128, 96))
    assert make.numbers(pictures.pixels_THWC) == wanted.tolist()
    np.testing.assert_allclose(pictures.times_s_T, wanted / 10, atol=1e-3)


def test_a_huge_file_whose_pictures_are_elsewhere_is_doubted(tmp_path, monkeypatch):
    """Nothing between 2 s and 32 s: what is nearest to 17 s isn't the picture that the header lets expect there."""
    path = make.write(tmp_path / "a.mkv", 40, 10, stamps_ms=[*range(0, 2000, 100), *range(32_000, 34_000, 100)])
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    index = index_video(path)
    assert not index.exact
    there = np.searchsorted(index.stamps_s_N, [0.0, 1.0, 33.0])
    assert make.numbers(read_pyav(index, there, (128, 96)).pixels_THWC) == [0, 10, 30]
    with pytest.raises(Doubt, match="header misleads"):
        read_pyav(index, np.searchsorted(index.stamps_s_N, [17.0]), (128, 96))


class Stuck:
    """A container that can't be sought in, and whose data break off after `packets` of them."""

    def __init__(self, real, packets: int) -> None:
        self.real, self.packets = real, packets

    def seek(self, *place, **how) -> None:
        raise av.error.PermissionError(1, "Operation not permitted")

    def demux(self, stream):
        for number, packet in enumerate(self.real.demux(stream)):
            if number == self.packets:
                raise av.error.InvalidDataError(2, "Invalid data found when processing input")
            yield packet


@pytest.fixture
def stuck(monkeypatch):
    real = container.open_video

    def after(packets: int) -> None:
        @contextmanager
        def opened(path):
            with real(path) as (source, stream):
                yield Stuck(source, packets), stream

        monkeypatch.setattr(readers, "open_video", opened)

    return after


def test_where_seeking_fails_everything_is_decoded_in_order(tmp_path, stuck, monkeypatch):
    path = make.write(tmp_path / "a.mp4", 100, 5, options={"g": "10"})
    index = index_video(path)
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    estimated = index_video(path)
    stuck(1000)
    assert make.numbers(read_pyav(index, np.array([3, 88]), (128, 96)).pixels_THWC) == [3, 88]
    with pytest.raises(Doubt):  # a scan shows whether it's worth the time
        read_pyav(estimated, np.array([3, 88]), (128, 96))


def test_data_that_break_off_are_a_data_error(tmp_path, stuck):
    index = index_video(make.write(tmp_path / "a.mp4", 100, 10))
    stuck(50)
    with pytest.raises(DataError, match=r"a\.mp4: damaged: its data break off \(invalid data"):
        read_pyav(index, np.array([88]), (128, 96))


FAST = {"decord": read_decord, "torchcodec": read_torchcodec}
INSTALLED = [read_pyav, *(read for name, read in FAST.items() if importlib.util.find_spec(name))]


@pytest.mark.parametrize("name", ["a:b.mp4", "2026-01-01T10:00:00.mp4"])
@pytest.mark.parametrize("read", INSTALLED)
def test_a_colon_in_a_name_makes_no_url_of_it(read, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(make.write(tmp_path / "plain.mp4", 10, 10), name)
    assert make.numbers(read(index_video(name), np.array([2, 7]), (128, 96)).pixels_THWC) == [2, 7]


@pytest.mark.parametrize("rotation", [90, -90, 180])
def test_rotated_video_comes_out_upright(rotation, tmp_path):
    """The display matrix turns counter-clockwise; red is coded at the lower left."""
    index = index_video(make.write(tmp_path / "phone.mp4", 3, 10, rotation=rotation))
    assert (index.width, index.height) == ((128, 96) if rotation == 180 else (96, 128))
    with pytest.raises(Doubt, match="rotation"):
        read_decord(index, np.array([0]), (index.width, index.height))
    picture = read_pyav(index, np.array([1]), (index.width, index.height)).pixels_THWC[0]
    assert picture.shape == (index.height, index.width, 3)
    # lower left, turned: by 90 it goes to the lower right, by -90 to the upper left, by 180 to the upper right
    row, column = {90: (-8, -8), -90: (8, 8), 180: (8, -8)}[rotation]
    red, green, blue = picture[row, column].astype(int)
    assert red > 200
    assert max(green, blue) < 60


def test_transparent_pixels_are_laid_on_white(tmp_path):
    dot = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    dot.paste((255, 0, 0, 255), (0, 0, 8, 8))
    moved = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    moved.paste((255, 0, 0, 255), (24, 24, 32, 32))
    path = tmp_path / "dot.gif"
    dot.save(path, save_all=True, append_images=[moved], duration=100, disposal=2, transparency=0)
    index = index_video(str(path))
    assert index.has_alpha
    first, second = read_pyav(index, np.array([0, 1]), (32, 32)).pixels_THWC
    assert first[2, 2].tolist() == second[28, 28].tolist() == [255, 0, 0]
    assert first[20, 20].tolist() == second[2, 2].tolist() == [255, 255, 255]


@pytest.mark.parametrize("seed", range(3))
def test_concealed_damage_makes_decord_doubtful_and_pyav_certain(seed, tmp_path):
    path = make.overwrite_middle(make.write(tmp_path / "a.mp4", 60, 30), seed=seed)
    index = index_video(path)
    with pytest.raises(Doubt):
        read_decord(index, np.array([0, 59]), (128, 96))
    with pytest.raises(DataError, match="damaged"):
        read_pyav(index, np.array([0, 59]), (128, 96))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mkv", "libx264"),
        ("b.mp4", "libx265"),
        ("c.webm", "libvpx-vp9"),
        ("d.mov", "mpeg2video"),
        ("e.mp4", "mpeg2video"),
    ],
)
def test_a_damaged_file_never_answers_with_wrong_pictures(name, codec, seed, tmp_path):
    """Either the damage is named, or it touched nothing that was asked for."""
    path = make.write(tmp_path / name, 60, 30, codec, options={"g": "60"})
    _, pictures = make.truth(path)
    wanted = np.array([0, 20, 35, 40, 59])
    make.overwrite_middle(path, length=60, seed=seed)
    for read in (read_decord, read_pyav):
        try:
            seen = read(index_video(path), wanted, (128, 96))
        except (DataError, Doubt):
            continue
        difference = np.abs(seen.pixels_THWC.astype(int) - np.stack([pictures[i] for i in wanted]))
        assert difference.mean(axis=(1, 2, 3)).max() < 1, read.__name__


def test_decord_is_doubted_where_it_counts_otherwise(tmp_path):
    index = index_video(make.write(tmp_path / "a.mp4", 20, 10))
    fewer = container.Index(**{**vars(index), "stamps_s_N": index.stamps_s_N[:-1]})
    with pytest.raises(Doubt, match="counts 20 frames, the container holds 19"):
        read_decord(fewer, np.array([0]), (128, 96))
    slower = container.Index(**{**vars(index), "stamps_s_N": index.stamps_s_N * 2})
    with pytest.raises(Doubt, match="stamps differ"):
        read_decord(slower, np.array([0]), (128, 96))


def test_reading_leaves_stderr_as_it_was(tmp_path, capfd):
    index = index_video(make.overwrite_middle(make.write(tmp_path / "a.mp4", 60, 30)))
    with pytest.raises(Doubt):
        read_decord(index, np.array([59]), (128, 96))
    print("still here", file=sys.stderr)
    assert capfd.readouterr().err == "still here\n"


def test_frames_are_scaled_on_arrival(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "DECORD_BATCH_BYTES", 3 * 128 * 96 * 3)  # batches of three
    index = index_video(make.write(tmp_path / "a.mp4", 20, 10))
    for read in (read_decord, read_pyav):
        pictures = read(index, np.arange(20), (64, 48))
        assert pictures.pixels_THWC.shape == (20, 48, 64, 3)
        assert make.numbers(pictures.pixels_THWC) == list(range(20))


def test_theora_from_a_faulty_encoder_shows_sound_pictures_only(sample_videos):
    """libav refuses 1,074 of this file's 1,441 packets; the rest, decoded on, would be green noise."""
    faulty, sound = (index_video(str(sample_videos / name)) for name in ("demo.ogv", "demo.mp4"))
    assert len(faulty.stamps_s_N) == 1441
    wanted = np.arange(100, 1400, 200)
    shown = read_pyav(faulty, wanted, (176, 144))
    assert np.abs(shown.times_s_T - faulty.stamps_s_N[wanted]).max() < 0.5  # key frames are half a second apart
    true = read_pyav(sound, np.searchsorted(sound.stamps_s_N, shown.times_s_T - 1e-3), (176, 144))
    assert np.abs(shown.pixels_THWC.astype(int) - true.pixels_THWC).mean(axis=(1, 2, 3)).max() < 8


def test_after_a_jump_only_pictures_with_their_references_are_shown(tmp_path):
    """Entered between key frames of an open group: what is stored or shown before the next one is passed over."""
    options = {"x265-params": "log-level=none:keyint=10:min-keyint=10:open-gop=1"}
    index = index_video(make.write(tmp_path / "a.mp4", 40, 10, "libx265", options=options))
    with container.open_video(index.path) as (source, stream):
        packets = source.demux(stream)
        for _ in range(4):
            next(packets)
        stamps_s = [time_s for time_s, _ in readers._pictures(index, source, stream, from_key=True)]
    assert stamps_s[0] == pytest.approx(index.keys_s_K[1])
    assert len(stamps_s) == (index.stamps_s_N >= index.keys_s_K[1] - 1e-6).sum()


def test_the_fast_reader_is_the_one_that_is_installed(monkeypatch):
    installed = {"decord", "torchcodec"}
    monkeypatch.setattr(readers.importlib.util, "find_spec", lambda name: object() if name in installed else None)
    assert (readers.fast_reader(), readers.reader_order()) == (read_decord, ("decord", "pyav"))
    installed.remove("decord")
    assert (readers.fast_reader(), readers.reader_order()) == (read_torchcodec, ("torchcodec", "pyav"))
    installed.remove("torchcodec")
    assert (readers.fast_reader(), readers.reader_order()) == (None, ("pyav",))


@pytest.mark.parametrize("fault", ["OSError('libavcodec.so.58: cannot open')", "ImportError('x')", "RuntimeError('x')"])
@pytest.mark.parametrize(("name", "read"), FAST.items())
def test_a_decoder_that_is_installed_but_broken_is_doubted(name, read, fault, tmp_path, monkeypatch):
    index = index_video(make.write(tmp_path / "a.mp4", 5, 10))
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    (tmp_path / "broken" / name).mkdir(parents=True)
    (tmp_path / "broken" / name / "__init__.py").write_text(f"raise {fault}\n")
    monkeypatch.syspath_prepend(tmp_path / "broken")
    with pytest.raises(Doubt, match=f"{name}.* can't be imported"):
        read(index, np.array([0]), (128, 96))
    if name == "decord":
        assert decode_in_process(VideoRef(index.path), FrameSpec(count=2)).backend.startswith("pyav")


def test_torchcodec_is_asked_for_frames_by_time(tmp_path, monkeypatch):
    """torchcodec itself needs system libraries; a stand-in with its documented interface holds ours to it."""
    index = index_video(make.write(tmp_path / "a.mp4", 20, 10))

    class Decoder:
        size, late_s = (128, 96), 0.0

        def __init__(self, source: str, *, dimension_order: str, num_ffmpeg_threads: int) -> None:
            assert (Path(source), dimension_order) == (tmp_path / "a.mp4", "NHWC")

        def get_frame_played_at(self, seconds: float) -> object:
            if seconds > 1.8:
                raise RuntimeError("no more frames")
            picture_HWC = make.picture(round(seconds * 10), *self.size)
            data = types.SimpleNamespace(numpy=lambda: picture_HWC)
            return types.SimpleNamespace(data=data, pts_seconds=seconds + self.late_s)

    monkeypatch.setitem(sys.modules, "torchcodec", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", types.SimpleNamespace(VideoDecoder=Decoder))
    monkeypatch.setattr(readers, "version", lambda name: "9.9")
    pictures = read_torchcodec(index, np.array([3, 7]), (64, 48))
    assert make.numbers(pictures.pixels_THWC) == [3, 7]
    assert pictures.times_s_T.tolist() == pytest.approx([0.3, 0.7])
    assert pictures.backend == "torchcodec 9.9"
    with pytest.raises(Doubt, match="no more frames"):
        read_torchcodec(index, np.array([19]), (64, 48))
    Decoder.late_s = 0.1
    with pytest.raises(Doubt, match=r"not 0\.3"):
        read_torchcodec(index, np.array([3]), (64, 48))
    Decoder.size, Decoder.late_s = (96, 128), 0.0
    with pytest.raises(Doubt, match="not 96 × 128"):
        read_torchcodec(index, np.array([3]), (64, 48))
