"""Predicted masks as PNG files, one a row, and over their images."""

from __future__ import annotations

import colorsys
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.report.judging.prediction_tables import Columns

OVER = 0.45
"""The weight of a class's colour over the image."""


def palette() -> np.ndarray:
    """Return a colour for each class number, uint8 [256, 3]; that of 0, the background, is black."""
    hues = (np.arange(256) * 0.618034) % 1  # the golden ratio sets neighbours far apart
    colours = np.array([colorsys.hsv_to_rgb(hue, 0.8, 1.0) for hue in hues])
    colours[0] = 0
    return (255 * colours).astype(np.uint8)


class MaskFiles:
    """A folder of predicted masks: each pixel is the number of its likeliest class, shown in its colour.

    Args:
        folder: The folder; it must be empty, or not be there yet.
        over: Whether an image with the mask over it is written beside each mask, as `NAME.overlay.png`.

    Attributes:
        count: How many masks were written.

    Raises:
        InputError: the folder has files or cannot be written, or Pillow is not installed.
    """

    def __init__(self, folder: Path, *, over: bool = False) -> None:
        try:
            from PIL import Image
        except ImportError:
            raise InputError(f"--masks {folder}: needs Pillow; pip install 'mpifl[images]'") from None
        floors.hold("images")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"--masks {folder}: is there and not empty; name another folder")
        self._image: Any = Image
        self._folder, self._over, self._named, self.count = folder, over, Counter[str](), 0
        self._colours = palette()

    def write(self, about: Columns, p: np.ndarray, x: Tensor | dict[str, Tensor]) -> None:
        """Write the masks of some rows.

        Args:
            about: What says which rows they are: `id`, or `row` or `place`, and perhaps `silo` and `split`.
            p: The probabilities of classes, [m, classes, height, width].
            x: The images as the model saw them, [m, channels, height, width].

        Raises:
            InputError: they are no masks of images, or cannot be written.
        """
        if p.ndim != 4 or not isinstance(x, Tensor) or tuple(x.shape[-2:]) != p.shape[-2:]:
            what = f"the model answers with shape {list(p.shape[1:])} for a row: not a mask of an image"
            raise InputError(f"--masks {self._folder}: {what}; leave it out")
        if p.shape[1] > 256:
            raise InputError(f"--masks {self._folder}: {p.shape[1]} classes, a PNG has 256; leave it out")
        masks, images = p.argmax(1).astype(np.uint8), x.float().cpu().numpy()
        try:
            for row, (mask, image) in enumerate(zip(masks, images, strict=True)):
                self._write_one(self._path(about, row), mask, image)
        except OSError as error:
            raise InputError(f"--masks {self._folder}: cannot be written ({error.strerror})") from None

    def _write_one(self, path: Path, mask: np.ndarray, image: np.ndarray) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = self._image.fromarray(mask)
        made.putpalette(self._colours.tobytes())
        made.save(path)
        self.count += 1
        if self._over:
            self._image.fromarray(self._laid(mask, image)).save(path.with_suffix(".overlay.png"))

    def _laid(self, mask: np.ndarray, image: np.ndarray) -> np.ndarray:
        """Return an image [height, width, 3] from dark to light, with a mask's colours over it."""
        grey = image if len(image) == 3 else np.repeat(image.mean(0, keepdims=True), 3, 0)
        low, high = float(grey.min()), float(grey.max())
        shown = np.moveaxis((grey - low) / ((high - low) or 1.0), 0, -1) * 255
        share = np.where(mask > 0, OVER, 0.0)[..., np.newaxis]
        laid: np.ndarray = ((1 - share) * shown + share * self._colours[mask]).round().astype(np.uint8)
        return laid

    def _path(self, about: Columns, row: int) -> Path:
        """Return a row's file: by its id without its ending; of a shard with its number, by silo."""
        texts = {name: str(np.asarray(column)[row]) for name, column in about.items()}
        own = re.sub(r"\.(nii\.gz|nii|png|jpe?g|tiff?|bmp|dcm)(?=:|$)", "", texts.get("id", ""), flags=re.I)
        if "silo" in texts:  # slices of a volume have one id
            own = f"{own or texts['split']}-{texts.get('row', texts.get('place', ''))}"
        parts = [texts.get("silo", ""), *own.split("/")]
        clean = [re.sub(r"[^\w.-]", "_", part).lstrip(".") or "_" for part in parts if part]
        name = "/".join(clean)
        again = self._named[name]
        self._named[name] += 1
        return self._folder / f"{name}{f'-{again + 1}' if again else ''}.png"
