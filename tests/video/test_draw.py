"""Stamps below pictures, strips and stills, checked pixel by pixel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames, VideoRef
from cosmos_reason.video import FrameSpec, burn_timestamps, decode_in_process, load_image, save_strip, strip
from cosmos_reason.video.draw import GAP_PX, _label
from tests.video import make


def frames(times_s, width=128, height=96) -> Frames:
    pixels_THWC = np.stack([make.picture(i + 1, width, height) for i in range(len(times_s))])
    return Frames(pixels_THWC, np.array(times_s, dtype=np.float64), 4.0, len(times_s), "pyav")


def test_burning_leaves_the_picture_and_adds_a_band():
    before = frames([0.0, 1.25, 1.25])
    after = burn_timestamps(before)
    np.testing.assert_array_equal(after.pixels_THWC[:, :96], before.pixels_THWC)
    bands = after.pixels_THWC[:, 96:]
    assert bands.shape[1] >= 9
    assert (bands.max(axis=(1, 2, 3)) > 200).all()  # white text
    assert bands.min() == 0
    np.testing.assert_array_equal(bands[1], bands[2])  # the same stamp reads the same
    assert (bands[0] != bands[1]).any()
    np.testing.assert_array_equal(after.times_s_T, before.times_s_T)


@pytest.mark.parametrize("name", ["late.mkv", "late.mp4"])
def test_labels_of_a_clip_that_starts_late_read_its_own_clock(name, tmp_path):
    """Stamps from 5 s on and unevenly: a label counted from zero, or by a rate, would read something else."""
    path = make.write(tmp_path / name, 4, 10, stamps_ms=[5000, 5100, 5250, 6000])
    burnt = burn_timestamps(decode_in_process(VideoRef(path), FrameSpec(count=4)))
    labels = [_label(text, 128, 96) for text in ("5.00 s", "5.10 s", "5.25 s", "6.00 s")]
    np.testing.assert_array_equal(burnt.pixels_THWC[:, 96:], np.stack(labels))


def test_a_clip_without_a_rate_is_labelled_too():
    one = replace(frames([5.0]), source_fps=0.0)
    np.testing.assert_array_equal(burn_timestamps(one).pixels_THWC[0, 96:], _label("5.00 s", 128, 96))


@pytest.mark.parametrize("size", [(64, 64), (8, 8), (640, 360)])
def test_text_keeps_clear_of_the_band_s_sides(size):
    band = burn_timestamps(frames([12345.67], *size)).pixels_THWC[0, size[1] :]
    if size[0] >= 64:
        assert band[:, 0].max() == band[:, -1].max() == 0
    assert band.shape[1] == size[0]


def test_strip_lays_frames_in_rows():
    seen = frames([0.0, 0.5, 1.0])
    sheet = np.asarray(strip(seen, columns=2))
    cell_height = (sheet.shape[0] - GAP_PX) // 2
    assert sheet.shape == (2 * cell_height + GAP_PX, 2 * 128 + GAP_PX, 3)
    np.testing.assert_array_equal(sheet[:96, :128], seen.pixels_THWC[0])
    np.testing.assert_array_equal(sheet[:96, 128 + GAP_PX :], seen.pixels_THWC[1])
    below = cell_height + GAP_PX
    np.testing.assert_array_equal(sheet[below : below + 96, :128], seen.pixels_THWC[2])
    assert (sheet[below:, 128:] == 255).all()  # no fourth frame


def test_strip_takes_labels_and_refuses_wrong_ones():
    seen = frames([0.0, 0.5])
    assert strip(seen, labels=["before", "after"]).size == strip(seen).size
    assert np.asarray(strip(seen, labels=["before", "after"])).tobytes() != np.asarray(strip(seen)).tobytes()
    with pytest.raises(UserError, match="2 frames needs as many labels, got 1"):
        strip(seen, labels=["before"])
    with pytest.raises(UserError, match="at least 1 column, got 0"):
        strip(seen, columns=0)


def test_strip_is_saved_or_the_reason_given(tmp_path):
    save_strip(frames([0.0, 0.5]), tmp_path / "strip.png")
    with Image.open(tmp_path / "strip.png") as image:
        assert image.size[0] == 2 * 128 + GAP_PX
    for bad in (tmp_path / "nowhere" / "strip.png", tmp_path / "strip.unknown"):
        with pytest.raises(UserError, match="can't be written"):
            save_strip(frames([0.0]), bad)


def test_a_still_is_one_upright_frame(tmp_path):
    image = Image.fromarray(make.picture(9))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    seen = load_image(tmp_path / "turned.png")
    np.testing.assert_array_equal(seen.pixels_THWC[0], np.rot90(make.picture(9), k=-1))
    assert (seen.times_s_T.tolist(), seen.source_fps, seen.source_frames, seen.asked) == ([0.0], 0.0, 1, 1)


def test_transparent_parts_of_a_still_are_white(tmp_path):
    Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (load_image(tmp_path / "clear.png").pixels_THWC == 255).all()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("a.png", b"no picture", "not a picture"), ("b.png", b"", "is empty"), ("c.png", None, "no such file")],
)
def test_what_is_no_still_is_a_data_error(name, content, reason, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.*{reason}"):
        load_image(tmp_path / name)


def test_a_cut_still_is_a_data_error(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "cut.png")
    data = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="not a picture that can be read"):
        load_image(tmp_path / "cut.png")
