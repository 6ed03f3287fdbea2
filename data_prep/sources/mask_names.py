"""Which files are masks of images, by their names and their folders'."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep.sources.mask_folders import WORDS, is_mask_folder
from data_prep.sources.mask_pixels import NUMBERED
from data_prep.sources.pictures import ENDINGS, opened

MASK_NAME = re.compile(rf"(.+?)[-_. ](?:{WORDS})(?:[-_. ]?\d+)?", re.IGNORECASE)
"""A mask's name: its image's, and a word for masks, as X_mask and X_seg_1 have."""
CHANNEL = "_0000"
"""What the name of a volume may have more than its mask's: the number of its only channel."""
MOST_NAMED = 3
"""Files in a line."""
Place = tuple[tuple[str, ...], str]
"""The folders of a file, and its name."""


class Layout(NamedTuple):
    """Where images and their masks lie: in two folders or in one, and whether in that one apart."""

    images: Path
    masks: Path
    inner: bool


def image_of(stem: str) -> str:
    """Return the name of the image that a mask is of, as X of X_mask; "" of a name that is not a mask's."""
    found = MASK_NAME.fullmatch(stem)
    return found[1] if found else ""


def masks_beside(paths: Iterable[Path]) -> list[Path]:
    """Return the files that are masks of others among them in the same folder, as X_mask.png is of X.png."""
    listed = list(paths)
    there = {(path.parent, stem_of(path)) for path in listed}
    return [path for path in listed if (path.parent, image_of(stem_of(path))) in there]


def masked_among(folder: Path, paths: Sequence[Path]) -> dict[Path, Path]:
    """Return the images of the files that are masks of others among them below a folder: beside them, or of
    the same names in a folder of masks beside theirs, as site/seg/X.png is of site/img/X.png."""
    images: dict[Place, Path] = {}
    is_mask = functools.cache(is_mask_folder)
    for path in paths:
        for place in _places(folder, path, is_mask, masks=False):
            images.setdefault(place, path)
    there = {(path.parent, stem_of(path)): path for path in paths}
    found: dict[Path, Path] = {}
    for path in paths:
        image = there.get((path.parent, image_of(stem_of(path))))
        apart = (images[place] for place in _places(folder, path, is_mask, masks=True) if place in images)
        if image or ((image := next(apart, None)) and _is_numbered(path)):
            found[path] = image
    return found


def masks_among(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the files that are masks of others among them below a folder."""
    return [*masked_among(folder, paths)]


def without_masks(folder: Path, paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the files below a folder that are no masks of others, and a line on those that are, if any."""
    masks = {*masks_among(folder, paths)}
    named = ", ".join(path.relative_to(folder).as_posix() for path in sorted(masks)[:MOST_NAMED])
    what = f"{folder}: {len(masks):,} of {len(paths):,} files are masks by names or pixels, and are left out"
    more = ", ..." * (len(masks) > MOST_NAMED)
    return [path for path in paths if path not in masks], [f"{what}: {named}{more}"] if masks else []


def _is_numbered(path: Path) -> bool:
    """Tell whether an image has one number a pixel, as masks have; volumes have."""
    if path.suffix.lower() not in ENDINGS:
        return True
    with opened(path) as image:
        return image.mode in NUMBERED


def layout_of(folder: Path, paths: Sequence[Path]) -> Layout | None:
    """Return where the images that have masks, and these, lie among files below a folder; None where less
    than half of all images have one."""
    of = masked_among(folder, paths)
    masks, images = [*of], sorted({*of.values()})
    if not masks or 2 * len(masks) < len(paths) - len(masks):
        return None
    tops = [{path.relative_to(folder).parts[0] for path in those} for those in (images, masks)]
    apart = any(map(is_mask_folder, _above(folder, masks[0])))
    inner = apart and {path.parent for path in images}.isdisjoint(path.parent.parent for path in masks)
    if inner and [len(names) for names in tops] == [1, 1] and tops[0] != tops[1]:
        return Layout(folder / tops[0].pop(), folder / tops[1].pop(), False)
    return Layout(folder, folder, inner)


def folders_of(images: Path, masks: Path) -> tuple[Path, Path]:
    """Return where images and masks lie. If both are given as one folder that has a folder of each, these are
    it; and the one folder twice if it has not."""
    if not (images.is_dir() and masks.is_dir() and images.samefile(masks)):
        return images, masks
    folders = [path for path in images.iterdir() if path.is_dir() and not path.name.startswith(".")]
    drawn = [path for path in folders if is_mask_folder(path)]
    if len(drawn) != 1 or len(folders) > 2:
        return images, images
    return next((path for path in folders if path not in drawn), images), drawn[0]


def stem_of(path: Path) -> str:
    """Return the name of a file without its ending, .nii.gz being one."""
    return Path(path.name.removesuffix(".gz")).stem


def _places(folder: Path, path: Path, is_mask: Callable[[Path], bool], *, masks: bool) -> Iterator[Place]:
    """Yield the folders and the name of a file: of an image with all folders, and without each in turn; of
    `masks` without each folder of masks, by their names and their images'."""
    above, stem = path.relative_to(folder).parts[:-1], stem_of(path)
    named = [is_mask(one) for one in _above(folder, path)]
    volume = path.suffix.lower() not in ENDINGS
    names = [stem, image_of(stem)] if masks else [stem, *([stem.removesuffix(CHANNEL)] * volume)]
    for at in range(len(above)):
        if named[at] if masks else not any(named):
            yield from (((*above[:at], *above[at + 1 :]), name) for name in names)
    if not masks and not any(named):
        yield above, stem


def _above(folder: Path, path: Path) -> list[Path]:
    """Return the folders between a folder and a file below it, the outer one first."""
    return [*itertools.accumulate(path.relative_to(folder).parts[:-1], Path.joinpath, initial=folder)][1:]
