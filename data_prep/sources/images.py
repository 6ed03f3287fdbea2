"""Folders of PNG or JPEG images: one for each class, or one of images and one of their masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.masks import Pixels, read_masked
from data_prep.sources.pictures import (
    ENDINGS,
    ImageRows,
    common_shape,
    inside,
    is_split,
    laid,
    parsed_ground,
    parsed_size,
    pillow,
)
from data_prep.sources.reading import digest_of, needed
from mpifl.common import InputError, did_you_mean


def read_images(
    data: Path | None,
    seed: int,
    *,
    size: str = "",
    grey: bool = False,
    masks: str = "",
    ignore: str | None = None,
    values: str = "",
    ground: str = "white",
) -> Dataset:
    """List the images of a folder's class folders, or of those in its `train` and `test`, and decode them
    when asked.

    Classes are the folders' names in their order. Images become uint8 [n, 3, height, width], or [n, 1,
    height, width] if all are grey or `grey` is given, with scale 1/255. `size` is WIDTHxHEIGHT, to which
    images are resized, bilinear; without it all must be of one size. `train` and `test` count as such only
    where both are there. What is transparent lies on `ground`. With `masks`, there are no class folders, and
    targets are read as by `read_masked`.
    """
    pillow()
    wanted, colour = parsed_size(size) if size else None, parsed_ground(ground)
    folder = needed("images", data, "photographs (a folder that has a folder of images for each class)")
    if masks:
        return read_masked(folder, Path(masks), wanted, Pixels(values, ignore), grey=grey, ground=ground)
    for option, given in (("ignore", ignore), ("values", values or None)):
        if given is not None:
            raise InputError(f"--option: {option}={given} given; it goes with masks=DIR, say this, too")
    split = is_split(folder)
    names = _class_names(folder / "train" if split else folder, folder)
    paths, y = _listed(folder / "train" if split else folder, folder, names)
    test_paths, test_y = _listed(folder / "test", folder, names) if split else ([], np.empty(0, np.int64))
    shape = common_shape([*paths, *test_paths], wanted, grey)
    files = {f"{folder.name}/**": digest_of(folder, [*paths, *test_paths])}
    test = (ImageRows(test_paths, shape, bool(size), colour), test_y) if split else None
    x = ImageRows(paths, shape, bool(size), colour)
    more: dict[str, Any] = {"class_names": tuple(names), "laid": laid([*paths, *test_paths], ground)}
    return Dataset(str(folder), x, y, len(names), files, scale=1 / 255, test=test, **more)


def _class_names(folder: Path, named: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(
            f"{folder}: is not a folder; --data must name one with a folder of images for each class"
        )
    names = [path.name for path in inside(folder, named) if path.is_dir()]
    if not names:
        raise InputError(
            f"{folder}: has no folders in it; put the images of each class into a folder of its own"
        )
    return names


def _listed(folder: Path, named: Path, names: Sequence[str]) -> tuple[list[Path], np.ndarray]:
    """Return all images, class by class and by name, and their labels [n];
    refuse other files and empty classes."""
    if unknown := sorted(set(_class_names(folder, named)) - set(names)):
        there = f"{did_you_mean(unknown[0], names)}there are {', '.join(names)[:200]}"
        raise InputError(f"{folder / unknown[0]}: a class that train lacks; {there}")
    classes = [inside(folder / name, named) if (folder / name).is_dir() else [] for name in names]
    for name, found in zip(names, classes, strict=True):
        if not found:
            raise InputError(
                f"{folder / name}: an empty class; put images there, or remove the class everywhere"
            )
    paths = [path for found in classes for path in found]
    for path in paths:
        if path.suffix.lower() not in ENDINGS or not path.is_file():
            raise InputError(f"{path}: is no image; a class folder holds {', '.join(ENDINGS)} files alone")
    return paths, np.repeat(np.arange(len(names)), [len(found) for found in classes])
