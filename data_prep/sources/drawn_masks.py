"""What a folder of images and one of their masks look like, before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.sources.mask_names import Layout, layout_of, masks_among, without_masks
from data_prep.sources.mask_pixels import NUMBERED, SMOOTHED, are_levels, values_for
from data_prep.sources.nifti import ENDINGS as VOLUMES
from data_prep.sources.orientation import DAMAGED
from data_prep.sources.pictures import ENDINGS, form_of, opened, told_depths

MOST_READ = 200
"""Masks whose pixels are looked at."""


class SeenMasks(NamedTuple):
    """Whether images are all of one size, what `values` says of masks whose numbers are levels, as 0,255, and
    why nothing would do."""

    one_size: bool
    values: str
    refused: str


def look_at_masks(images: Path, masks: Path) -> SeenMasks:
    """Look at the sizes of all images, and at the pixels of the first masks.

    Raises:
        InputError: a file is no image.
    """
    drawn = masks_among(images, [*_pictures(images)]) if images.samefile(masks) else [*_pictures(masks)]
    sizes = {form_of(path)[1:3] for path in {*_pictures(images)} - {*drawn}}
    seen = np.zeros(256, bool)
    for path in drawn[:MOST_READ]:
        seen[_numbers_in(path)] = True
    found = np.flatnonzero(seen).tolist()
    values = values_for(found) if are_levels(found) else ""
    refused = f"{masks}: masks hold {len(found):,} grey levels; {SMOOTHED}"
    return SeenMasks(len(sizes) < 2, values, refused if are_levels(found) and not values else "")


def of_other_kinds(images: Sequence[Path]) -> str:
    """Say which image has pixels of another kind than others; "" if none has."""
    return told_depths(images, [form_of(path) for path in images])


def layout_seen(folder: Path) -> Layout | None:
    """Return where the images and masks of a folder lie, if most of its images have a mask there."""
    return layout_of(folder, [*_pictures(folder, VOLUMES)]) if folder.is_dir() else None


def images_in(folder: Path) -> list[Path]:
    """Return the images in a folder and below, volumes too, by their paths, without masks among them."""
    return without_masks(folder, [*_pictures(folder, VOLUMES)])[0]


def has_images(folder: Path) -> bool:
    """Tell whether there are images in a folder, or in folders of it."""
    return any(True for _ in _pictures(folder))


def _pictures(folder: Path, more: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield the images in a folder, by their paths, and files with more endings."""
    for path in sorted(folder.rglob("*")):
        named = path.name.lower().endswith((*ENDINGS, *more))
        if named and not path.name.startswith(".") and path.is_file():
            yield path


def _numbers_in(path: Path) -> np.ndarray:
    """Return the numbers of a mask's pixels; none of a mask that is refused later."""
    try:
        with opened(path) as image:
            drawn = np.asarray(image) if image.mode in NUMBERED else np.zeros(0)
    except DAMAGED:
        return np.zeros(0, np.uint8)
    return np.unique(drawn.astype(np.uint8))
