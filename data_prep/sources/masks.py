"""Images with a mask each: the class of every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.aims import Wanted, aim_of
from data_prep.sources.orientation import DAMAGED, orientation_of, turned
from data_prep.sources.pictures import (
    ENDINGS,
    ImageRows,
    Shape,
    common_shape,
    inside,
    is_split,
    is_turned,
    opened,
    pillow,
    shape_of,
)
from data_prep.sources.reading import digest_of
from data_prep.sources.spool import Spool
from mpifl.common import InputError

NUMBERED = ("1", "L", "P")
"""Pillow's modes of one number a pixel: a bit, a grey, or a place in a palette."""
Pairs = list[tuple[Path, Path]]
"""Images and their masks."""


def read_masked(
    folder: Path, masks: Path, size: tuple[int, int] | None, *, grey: bool, ignore: str | None
) -> Dataset:
    """Read the images of a folder, or of its `train` and `test`, and masks of the same names in another.

    A mask is a PNG image of its image's size, named as it but for the ending. The number of each pixel (its
    grey, or its place in the palette) is the pixel's class: targets are uint8 [n, height, width]. Resized to
    `size` (height, width), images are interpolated bilinearly, and masks take the nearest pixel.

    Args:
        folder: The images.
        masks: The masks, in `train` and `test` where the images are.
        size: What both are resized to, if it is given.
        grey: Take images as grey.
        ignore: The number of pixels that do not count.

    Raises:
        InputError: an image has no mask or a mask no image, their sizes differ, or a file is none.
    """
    parts = ("train", "test") if is_split(folder) else (".",)
    paired = [_pairs(part, folder, masks) for part in parts]
    images, drawn = ([pair[at] for pairs in paired for pair in pairs] for at in (0, 1))
    shape = common_shape(images, size, grey)
    for pairs in paired:
        _check_sizes(pairs)
    resize = size is not None
    y, *held = [_decoded(pairs, shape, resize) for pairs in paired]
    aim = aim_of(masks, y, held[0] if held else None, Wanted("classes", "", ignore))
    x, *x_held = [ImageRows([image for image, _ in pairs], shape, resize) for pairs in paired]
    test = (x_held[0], aim.fitted(held[0])) if held else None
    files = {
        f"{folder.name}/**": digest_of(folder, images),
        f"masks={masks.name}/**": digest_of(masks, drawn),
    }
    y, classes = aim.fitted(y), aim.classes
    return Dataset(str(folder), x, y, classes, files, scale=1 / 255, test=test, targets=aim.targets)


def _pairs(part: str, images: Path, masks: Path) -> Pairs:
    """Return the images of a part of a folder by name, each with its mask."""
    of_images = _by_stem(images / part, images, ENDINGS, "--data")
    of_masks = _by_stem(masks / part, masks, (".png",), "--option masks")
    images, masks = images / part, masks / part
    for stem, path in of_images.items():
        if stem not in of_masks:
            raise InputError(f"{path}: has no mask; put {stem}.png into {masks}, or remove the image")
    for stem, path in of_masks.items():
        if stem not in of_images:
            raise InputError(f"{path}: a mask without its image; put that into {images}, or remove the mask")
    return [(path, of_masks[stem]) for stem, path in of_images.items()]


def _by_stem(folder: Path, named: Path, endings: Sequence[str], option: str) -> dict[str, Path]:
    """Return the files of a folder by their names without ending; refuse others."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; {option} must name one of {', '.join(endings)} files")
    found: dict[str, Path] = {}
    for path in inside(folder, named):
        if path.suffix.lower() not in endings or not path.is_file():
            raise InputError(f"{path}: is none of {', '.join(endings)}; such files alone may stand there")
        if path.stem in found:
            raise InputError(f"{path}: {found[path.stem].name} has the same name; rename one, and its mask")
        found[path.stem] = path
    if not found:
        raise InputError(f"{folder}: is empty; put {', '.join(endings)} files there")
    return found


def _check_sizes(pairs: Pairs) -> None:
    for image, mask in pairs:
        (_, *wanted), (_, *found) = shape_of(image), shape_of(mask)
        if found != wanted:
            other = f"its image {image.name} has {wanted[1]}x{wanted[0]}"
            other += ", turned as its EXIF data say" * is_turned(image)
            raise InputError(f"{mask}: {found[1]}x{found[0]} pixels, {other}; make them alike")


def _decoded(pairs: Pairs, shape: Shape, resize: bool) -> np.ndarray:
    """Decode all masks, uint8 [n, height, width], into a file that is mapped."""
    spool = Spool()
    for _, mask in pairs:
        spool.append(_numbers(mask, shape[1:], resize)[None])
    return spool.rows()


def _numbers(path: Path, form: tuple[int, ...], resize: bool) -> np.ndarray:
    """Decode a mask, uint8 [height, width]."""
    height, width = form
    with opened(path) as image:
        if image.mode not in NUMBERED or image.format != "PNG":
            what = f"a mask of {image.format} in mode {image.mode}, and one number a pixel is its class"
            raise InputError(f"{path}: {what}; store it as PNG, in grey or with a palette")
        try:
            mask = turned(image, orientation_of(path, image))
            mask = mask.resize((width, height), pillow().Resampling.NEAREST) if resize else mask
            return np.asarray(mask).astype(np.uint8)
        except DAMAGED as error:
            raise InputError(f"{path}: the mask is damaged or cut short ({error}); replace it") from None
