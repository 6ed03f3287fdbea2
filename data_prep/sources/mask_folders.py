"""Which folders hold masks: by their names, or by pixels beside a folder of images of the same names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.sources.mask_pixels import MOST_LEVELS, NUMBERED
from data_prep.sources.orientation import DAMAGED
from data_prep.sources.pictures import ENDINGS, opened
from mpifl.common import InputError

WORDS = r"masks?|segs?|segmentations?|labels?|labelmaps?|gt|ground[-_ ]?truths?|annotations?|labelsTr"
"""Words for masks in the names of files and folders."""
MASK_FOLDER = re.compile(rf"(?!(?:no|with|without)[-_. ])(?:.+[-_. ])?(?:{WORDS})", re.IGNORECASE)
"""The name of a folder of masks; with_mask and no_mask are classes."""
MOST_FOLDERS = 4
"""Folders beside each other of which one may hold the masks of another; of more, they are classes."""
REFUSED: tuple[type[BaseException], ...] = (*DAMAGED, InputError)
"""What an image raises that is refused later."""
LOOKED_AT = 3
"""Masks, and their images, whose pixels are looked at."""


def is_mask_folder(folder: Path) -> bool:
    """Tell whether a folder holds masks, by its name or by its pixels."""
    try:
        return MASK_FOLDER.fullmatch(folder.name) is not None or _is_drawn(folder)
    except OSError:  # what lies beside it cannot be read
        return False


def _is_drawn(folder: Path) -> bool:
    """Tell whether the images of a folder have few grey levels each, and those of the same names and sizes
    beside it have more: in another folder there, or in none."""
    with os.scandir(folder.parent) as there:
        beside = [one for one in there if not one.name.startswith(".") and one.is_dir()]
    if len(beside) > MOST_FOLDERS:
        return False
    own = _by_name(folder, folder.rglob("*"))
    others = [Path(one) for one in beside if one.name != folder.name]
    theirs = [(folder.parent, folder.parent.iterdir()), *((one, one.rglob("*")) for one in others)]
    return any(_draws(own, _by_name(*one)) for one in theirs) if own else False


def _draws(own: Mapping[str, Path], theirs: Mapping[str, Path]) -> bool:
    """Tell whether images are masks of others of the same names, by the pixels of some."""
    shared = sorted(own.keys() & theirs.keys())
    if len(shared) < 2 or 2 * len(shared) < len(own):
        return False
    names = shared[:: -(-len(shared) // LOOKED_AT)]
    masks, images = ([_levels(of[name]) for name in names] for of in (own, theirs))
    alike = all(mask.size == image.size for mask, image in zip(masks, images, strict=True))
    few = all(0 < mask.many <= MOST_LEVELS for mask in masks)
    return alike and few and any(image.many > MOST_LEVELS for image in images)


def _by_name(folder: Path, files: Iterable[Path]) -> dict[str, Path]:
    """Return the images among some files by their paths in a folder, without ending."""
    images = (path for path in files if path.suffix.lower() in ENDINGS)
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in images}


class _Levels(NamedTuple):
    """How many grey levels an image has, and its size."""

    many: int = 0
    size: tuple[int, int] = (0, 0)


def _levels(path: Path) -> _Levels:
    """Return those of an image, very many if it is in colour; none of a file that is refused later."""
    try:
        with opened(path) as image:
            many = len(np.unique(np.asarray(image))) if image.mode in NUMBERED else 1 << 24
            return _Levels(many, image.size)
    except REFUSED:
        return _Levels()
