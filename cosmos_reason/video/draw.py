"""Frames you can look at: stamps burnt below the picture, a labelled strip as one image, a still read as one frame.

T frames, H height, W width, C channels (RGB).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames
from cosmos_reason.video.container import check_file

GAP_PX = 4  # between the pictures of a strip
SMALLEST_FONT_PX = 8


def burn_timestamps(frames: Frames) -> Frames:
    """The same frames with a black band below each that reads its stamp, e.g. "1.25 s". The picture stays untouched."""
    height, width = frames.pixels_THWC.shape[1:3]
    bands_THWC = np.stack([_label(f"{time_s:.2f} s", width, height) for time_s in frames.times_s_T])
    return replace(frames, pixels_THWC=np.concatenate([frames.pixels_THWC, bands_THWC], axis=1))


def strip(frames: Frames, labels: Sequence[str] | None = None, columns: int = 8) -> Image.Image:
    """All frames in rows of `columns`, each with its label below (its stamp by default)."""
    count, height, width = frames.pixels_THWC.shape[:3]
    if columns < 1:
        raise UserError(f"a strip needs at least 1 column, got {columns}")
    if labels is not None and len(labels) != count:
        raise UserError(f"a strip of {count} frames needs as many labels, got {len(labels)}")
    texts = [f"{time_s:.2f} s" for time_s in frames.times_s_T] if labels is None else labels
    cells = [
        np.concatenate([picture_HWC, _label(text, width, height)])
        for picture_HWC, text in zip(frames.pixels_THWC, texts, strict=True)
    ]
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    step_x, step_y = width + GAP_PX, cells[0].shape[0] + GAP_PX
    sheet = Image.new("RGB", (columns * step_x - GAP_PX, rows * step_y - GAP_PX), "white")
    for number, cell_HWC in enumerate(cells):
        sheet.paste(Image.fromarray(cell_HWC), (number % columns * step_x, number // columns * step_y))
    return sheet


def save_strip(frames: Frames, path: str | Path, labels: Sequence[str] | None = None, columns: int = 8) -> None:
    """Write the strip as an image file; UserError where the folder is missing or the ending is no image's."""
    try:
        strip(frames, labels, columns).save(path)
    except (OSError, ValueError) as error:
        remedy = "give a .png in a folder that exists"
        raise UserError(f"{path}: the frame strip can't be written ({error}); {remedy}") from None


def load_image(path: str | Path) -> Frames:
    """One still picture as a single frame at 0 s: upright, RGB, what is transparent laid on white."""
    check_file(str(path))
    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened)
            page = Image.new("RGBA", upright.size, (255, 255, 255, 255))
            picture_HWC = np.asarray(Image.alpha_composite(page, upright.convert("RGBA")).convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise DataError(path, f"not a picture that can be read ({error}); give a png, jpg or webp file") from None
    return Frames(picture_HWC[None], np.zeros(1), 0.0, 1, f"pillow {Image.__version__}", asked=1)


def _label(text: str, width: int, height: int) -> np.ndarray:
    """A black band as wide as the picture with white text, as large as fits: about a tenth of the picture's height."""
    size = max(SMALLEST_FONT_PX, height // 10)
    font = ImageFont.load_default(size)
    while size > SMALLEST_FONT_PX and font.getlength(text) > width - 2:
        size -= 1
        font = ImageFont.load_default(size)
    band = Image.new("RGB", (width, max(SMALLEST_FONT_PX, height // 10) + 4), "black")
    pen = ImageDraw.Draw(band)
    pen.text((width / 2, band.height / 2), text, fill="white", font=font, anchor="mm")
    return np.asarray(band)
