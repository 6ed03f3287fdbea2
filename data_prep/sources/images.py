"""Folders of PNG, JPEG or TIFF images: one for each class, or one of images and one of their masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset, noted_as
from data_prep.sources.image_groups import ImageGroups
from data_prep.sources.mask_names import layout_of, masks_among
from data_prep.sources.mask_pixels import Pixels
from data_prep.sources.masks import read_masked
from data_prep.sources.pictures import (
    ENDINGS,
    Manner,
    called,
    common_form,
    parsed_ground,
    parsed_size,
    pillow,
)
from data_prep.sources.reading import digest_of, needed
from data_prep.sources.within import SPLITS, check_beside, inside, is_split, silo_folders
from mpifl.common import InputError, check_there, did_you_mean


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
    silo: str = "",
    group: str = "",
    scale: str = "",
    colours: bool = True,
) -> Dataset:
    """List the images of a folder's class folders, or of those in its `train` and `test`, and decode them
    when asked.

    Classes are the folders' names in their order. Images become uint8 [n, 3, height, width], or [n, 1,
    height, width] if all are grey or `grey` is given, with scale 1/255. Grey ones of 16 bits keep their
    numbers, int32 with scale 1/65535, or int16 with 1/32767; `scale` says another. `size` is WIDTHxHEIGHT, to
    which images are resized, bilinear; without it all must be of one size. `train` and `test` count as such
    only where both are there. What is transparent lies on `ground`. With `masks`, there are no class folders,
    and targets are read as by `read_masked`; `colours` says whether palettes count. With `silo="parent"` the
    folder that has the class folders, or without those the images, names their silo. `group` says which
    images stay together, as `ImageGroups` has it: with "parent" each lies in its group's folder, one deeper.
    """
    pillow()
    parsed_ground(ground)
    manner = Manner(parsed_size(size) if size else None, grey, ground, scale)
    folder = needed("images", data, "photographs (a folder that has a folder of images for each class)")
    if silo not in ("", "parent"):
        raise InputError(f"--option: silo={silo} given; images know silo=parent, the folder above")
    owners = ImageGroups(group)
    if masks:
        check_there(Path(masks))
        pixels = Pixels(values, ignore, colours=colours)
        return read_masked(folder, Path(masks), manner, pixels, owners, by_silo=bool(silo))
    numbered = None if colours else "false"
    for option, given in (("ignore", ignore), ("values", values or None), ("colours", numbered)):
        if given is not None:
            raise InputError(f"--option: {option}={given} given; it goes with masks=DIR, say this, too")
    return _classified(folder, manner, owners, by_silo=bool(silo))


def _classified(folder: Path, manner: Manner, owners: ImageGroups, *, by_silo: bool) -> Dataset:
    """List the images of class folders."""
    more: dict[str, Any] = {}
    split, test_paths, test_y = is_split(folder) and not by_silo, list[Path](), np.empty(0, np.int64)
    if by_silo:
        names, paths, y, more = _of_silos(folder, owners)
    else:
        names = _class_names(folder / "train" if split else folder, folder)
        paths, y = _listed(folder / "train" if split else folder, folder, names, owners)
    if split:
        check_beside(folder, folder, SPLITS, ENDINGS)
        test_paths, test_y = _listed(folder / "test", folder, names, owners)
    every = [*paths, *test_paths]
    _check_no_masks(folder, every)
    form, mixed = common_form(every, manner.size, manner.grey)
    files = {f"{folder.name}/**": digest_of(folder, every)}
    test = (manner.rows(test_paths, form), test_y) if split else None
    more |= {"class_names": tuple(names), **manner.told(every, form), **called(folder, paths, test_paths)}
    more |= owners.of(paths, test_paths, more.get("silo"))
    more |= noted_as(groups=owners.doubt(every), colours=mixed)
    return Dataset(str(folder), manner.rows(paths, form), y, len(names), files, test=test, **more)


def _check_no_masks(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse files that are masks of others: they would be images of a class."""
    if not (masks := masks_among(folder, paths)):
        return
    lying, named = layout_of(folder, paths), "masks=DIR"
    if lying:
        by_silo = " --silo parent" * (lying.images == lying.masks)
        named = f"--data {lying.images} --masks {lying.masks}{by_silo}"
    what = f"looks like the mask of an image by name or pixels, as {len(masks):,} of {len(paths):,} files do"
    raise InputError(f"{masks[0]}: {what}; say {named} to learn masks, or move them out of {folder}")


def _of_silos(folder: Path, owners: ImageGroups) -> tuple[list[str], list[Path], np.ndarray, dict[str, Any]]:
    """Return the classes of all silos, all images and their labels [n], and whose they are; a silo need not
    have every class."""
    places = silo_folders(folder)
    names = sorted({name for place in places for name in _class_names(folder / place, folder)})
    own = [(folder / place, folder, _class_names(folder / place, folder)) for place in places]
    found = [_listed(*one, owners, names) for one in own]
    silo = np.repeat(np.arange(len(places)), [len(y) for _, y in found])
    paths = [path for of_silo, _ in found for path in of_silo]
    more = {"silo": silo, "silo_names": dict(enumerate(places))}
    return names, paths, np.concatenate([y for _, y in found]), more


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
    check_beside(folder, named, names, ENDINGS)
    return names


def _listed(
    folder: Path, named: Path, names: Sequence[str], owners: ImageGroups, every: Sequence[str] = ()
) -> tuple[list[Path], np.ndarray]:
    """Return all images, class by class and by name, and their labels [n], numbers among `every` class;
    refuse other files and empty classes."""
    if unknown := sorted(set(_class_names(folder, named)) - set(names)):
        there = f"{did_you_mean(unknown[0], names)}there are {', '.join(names)[:200]}"
        raise InputError(f"{folder / unknown[0]}: a class that train lacks; {there}")
    classes = [owners.files(folder / name, named) if (folder / name).is_dir() else [] for name in names]
    for name, found in zip(names, classes, strict=True):
        if not found:
            raise InputError(
                f"{folder / name}: an empty class; put images there, or remove the class everywhere"
            )
    paths = [path for found in classes for path in found]
    for path in paths:
        if path.suffix.lower() not in ENDINGS or not path.is_file():
            hint = "; --group parent keeps together what lies in one folder" if path.is_dir() else ""
            what = f"is not an image; a class folder holds only {', '.join(ENDINGS)} files"
            raise InputError(f"{path}: {what}{hint}")
    numbers = np.array([list(every or names).index(name) for name in names])
    return paths, np.repeat(numbers, [len(found) for found in classes])
