"""Predicted masks as PNG files, one a row, and over their images."""

from __future__ import annotations

import colorsys
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.data.shards import encoding_of
from mpifl.report.judging.prediction_tables import Columns

OVER = 0.45
"""The weight of a class's colour over the image."""
MOST_VALUES = 8
"""Pixel values that a line names."""


def palette() -> np.ndarray:
    """Return a colour for each class number, uint8 [256, 3]; that of 0, the background, is black."""
    hues = (np.arange(256) * 0.618034) % 1  # the golden ratio sets neighbours far apart
    colours = np.array([colorsys.hsv_to_rgb(hue, 0.8, 1.0) for hue in hues])
    colours[0] = 0
    return (255 * colours).astype(np.uint8)


def outline(mask: np.ndarray) -> np.ndarray:
    """Return which pixels of a mask [height, width] lie at the edge of a class other than 0, bool."""
    wide = np.pad(mask, 1)
    beside = (wide[1:-1, :-2], wide[1:-1, 2:], wide[:-2, 1:-1], wide[2:, 1:-1])
    found: np.ndarray = (mask > 0) & np.any([one != mask for one in beside], axis=0)
    return found


class MaskFiles:
    """A folder of predicted masks: each pixel is its likeliest class, shown in the colour of that.

    Args:
        folder: The folder; it must be empty, or not be there yet.
        over: Whether an image with the mask over it, and the outline of the true one in the complementary
            colour, is written beside each mask, as `NAME.overlay.png`.

    Attributes:
        count: How many masks were written.
        values: What stands for each class in a mask, uint8 [256]; by default its number.
        originals: Returns the image of a row at its own size, [channels, height, width], where the model saw
            another; masks then have that size.

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
        self._colours, self._expected = palette(), Counter[str]()
        self._classes, self.values = 0, np.arange(256, dtype=np.uint8)
        self.originals: Callable[[int], np.ndarray] | None = None

    def expect(self, about: Columns) -> None:
        """Take what all rows of shards are, as in `write`: names that several would have get row numbers."""
        self._expected = Counter(map(self._name, _rows(about)))

    def take_values(self, source: Mapping[str, Any]) -> None:
        """Write classes by the pixel values that the option `values` of a shard folder's `source` gave them,
        the last one of several. Folders of older versions have them among the options alone."""
        options = source.get("options")
        given = [str(one) for one in options] if isinstance(options, list) else []
        said = [one.removeprefix("values=") for one in given if one.startswith("values=")]
        words = [one.split("/")[-1].strip() for one in "".join(said[-1:]).split(",")]
        known = (encoding_of(source) or {}).get("values")
        words = [str(one) for one in known] if isinstance(known, list) else words
        if all(word.isdecimal() and int(word) < 256 for word in words) and len({*words}) == len(words):
            values = [int(word) for word in words]
            rest = [number for number in range(256) if number not in values]
            self.values = np.array([*values, *rest], np.uint8)

    def told(self) -> str:
        """Say what was written: how many files, and which pixel values stand for the classes."""
        values = self.values[: self._classes].tolist()
        said = f"{self.count:,} files"
        if not values:
            return said
        if len(values) > MOST_VALUES and values == list(range(len(values))):
            return f"{said}; pixels are class numbers, 0 to {values[-1]}"
        first, *known = [
            f"of {value} {{}}class {number}" for number, value in enumerate(values[:MOST_VALUES])
        ]
        each = ", ".join([first.format("are "), *(one.format("") for one in known)])
        return f"{said}; pixels {each}{' and so on' * (len(values) > MOST_VALUES)}"

    def write(
        self, about: Columns, p: np.ndarray, x: Tensor | dict[str, Tensor], y: np.ndarray | None = None
    ) -> None:
        """Write the masks of some rows.

        Args:
            about: What says which rows they are: `id`, or `row` or `place`, and perhaps `silo` and `split`.
            p: The probabilities of classes, [m, classes, height, width].
            x: The images as the model saw them, [m, channels, height, width].
            y: The true masks, [m, height, width], if they are known: overlays have their outlines.

        Raises:
            InputError: they are no masks of images, or cannot be written.
        """
        if p.ndim != 4 or not isinstance(x, Tensor) or tuple(x.shape[-2:]) != p.shape[-2:]:
            what = f"the model answers with shape {list(p.shape[1:])} for a row: not a mask of an image"
            raise InputError(f"--masks {self._folder}: {what}; leave it out")
        if p.shape[1] > 256:
            raise InputError(f"--masks {self._folder}: {p.shape[1]} classes, a PNG has 256; leave it out")
        masks, images, self._classes = p.argmax(1).astype(np.uint8), x.float().cpu().numpy(), p.shape[1]
        try:
            truths = [None] * len(masks) if y is None else y
            for texts, mask, image, truth in zip(_rows(about), masks, images, truths, strict=True):
                own = image if self.originals is None else self.originals(int(texts["row"]))
                self._write_one(self._path(texts), mask, own, truth)
        except OSError as error:
            raise InputError(f"--masks {self._folder}: cannot be written ({error.strerror})") from None

    def _write_one(self, path: Path, mask: np.ndarray, image: np.ndarray, truth: np.ndarray | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        sized = self._image.fromarray(mask).resize(image.shape[:0:-1], self._image.Resampling.NEAREST)
        made, colours = self._image.fromarray(self.values[np.asarray(sized)]), np.zeros_like(self._colours)
        colours[self.values] = self._colours
        made.putpalette(colours.tobytes())
        made.save(path)
        self.count += 1
        if self._over:
            laid = self._laid(np.asarray(sized), image)
            if truth is not None:
                edge = outline(truth)
                laid[edge] = 255 - self._colours[truth[edge] % 256]  # else one colour would say both
            self._image.fromarray(laid).save(path.with_suffix(".overlay.png"))

    def _laid(self, mask: np.ndarray, image: np.ndarray) -> np.ndarray:
        """Return an image [height, width, 3] from dark to light, with a mask's colours over it."""
        grey = image if len(image) == 3 else np.repeat(image.mean(0, keepdims=True), 3, 0)
        low, high = float(grey.min()), float(grey.max())
        shown = np.moveaxis((grey - low) / ((high - low) or 1.0), 0, -1) * 255
        share = np.where(mask > 0, OVER, 0.0)[..., np.newaxis]
        laid: np.ndarray = ((1 - share) * shown + share * self._colours[mask]).round().astype(np.uint8)
        return laid

    def _path(self, texts: Mapping[str, str]) -> Path:
        """Return a row's file: by silo and id without ending; of shards numbered if that is not one row's."""
        name = self._name(texts)
        if "silo" in texts and (not texts.get("id") or self._expected[name] > 1):  # slices have one id
            name = f"{name}-{texts.get('row', texts.get('place', ''))}"
        again = self._named[name]
        self._named[name] += 1
        return self._folder / f"{name}{f'-{again + 1}' if again else ''}.png"

    @staticmethod
    def _name(texts: Mapping[str, str]) -> str:
        """Return where a row's file lies, by its number where nothing else names it; an id that begins with
        its silo does not repeat it."""
        own = re.sub(r"\.(nii\.gz|nii|png|jpe?g|tiff?|bmp|dcm)(?=:|$)", "", texts.get("id", ""), flags=re.I)
        own, silo = own or texts.get("split", ""), texts.get("silo", "")
        parts = own.split("/") if own.startswith(f"{silo}/") else [silo, *own.split("/")]
        named = "/".join(re.sub(r"[^\w.-]", "_", part).lstrip(".") or "_" for part in parts if part)
        return named or texts.get("row", texts.get("place", "0"))


def _rows(about: Columns) -> Iterator[dict[str, str]]:
    """Yield what each row is, as texts."""
    for values in zip(*map(np.asarray, about.values()), strict=True):
        yield dict(zip(about, map(str, values), strict=True))
