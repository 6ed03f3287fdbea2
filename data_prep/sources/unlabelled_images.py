"""Images without labels, brought to the form that a model has learned from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.sources.mask_names import without_masks
from data_prep.sources.pictures import ENDINGS, Form, ImageRows, form_of, opened, parsed_ground, pillow
from data_prep.sources.reading import held_in
from mpifl.common import InputError, check_there
from mpifl.data.shards import Provenance, ids_of

PIECE = 256
"""Images that are decoded at a time."""
MOST_NAMED = 20
"""Files in a line."""


class UnlabelledImages:
    """All images in a folder and below, in the order of their paths; hidden files and masks are left out.

    Args:
        record: The encoding of the training's images.

    Attributes:
        told: Lines about files that are there and not read.

    Raises:
        InputError: there are none, or one is of another size or kind than the training's.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        pillow()
        check_there(folder, "--images")
        if not folder.is_dir():
            raise InputError(f"--images {folder}: is not a folder; name one of {', '.join(ENDINGS)} files")
        there = sorted(path for path in folder.rglob("*") if path.is_file() and not _hidden(folder, path))
        self._folder = folder
        pictures = [held_in(folder, path) for path in there if path.suffix.lower() in ENDINGS]
        self._paths, left = without_masks(folder, pictures)
        if not self._paths:
            raise InputError(f"--images {folder}: has no images; there must be {', '.join(ENDINGS)} files")
        form, resize = _form(folder, record)
        self._learned, found = form, [form_of(path) for path in self._paths]
        for path, own in zip(self._paths, found, strict=True):
            _check(path, own, form, resize=resize, grey=bool(record.get("grey")))
        self._ground = parsed_ground(str(record.get("ground", "white")))
        self._rows = ImageRows(self._paths, form, resize, self._ground)
        others = [path.relative_to(folder).as_posix() for path in there if path.suffix.lower() not in ENDINGS]
        more = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
        unread = f"{folder}: not read, as they are not images: {', '.join(others[:MOST_NAMED])}{more}"
        self.told = [*left, *([unread] if others else [])]
        if many := sum(own[1:3] != form[1:3] for own in found):
            what = (
                f"{many:,} of {len(found):,} images are resized to {form.width}x{form.height} for the model"
            )
            self.told.append(f"{folder}: {what}; --masks writes each mask in the size of its image")

    def read(self) -> Iterator[tuple[np.ndarray, Provenance]]:
        """Yield the images [m, channels, height, width], some at a time, with their places and paths."""
        names = ids_of(path.relative_to(self._folder).as_posix() for path in self._paths)
        for start in range(0, len(self._paths), PIECE):
            places = np.arange(start, min(start + PIECE, len(self._paths)))
            yield self._rows[places], Provenance(places, names[places])

    def original(self, place: int) -> np.ndarray:
        """Return an image at the size that it has in its file, [channels, height, width]."""
        path = self._paths[place]
        _, height, width, _ = form_of(path)
        form = self._learned._replace(height=height, width=width)
        found: np.ndarray = ImageRows([path], form, False, self._ground)[:][0]
        return found


def _hidden(folder: Path, path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _form(folder: Path, record: Mapping[str, Any]) -> tuple[Form, bool]:
    """Return what the training's images were brought to, and whether others are resized."""
    try:
        channels, depth, (height, width) = record["channels"], record["depth"], record["size"]
        form = Form(int(channels), int(height), int(width), str(depth))
        _ = form.scale
    except (KeyError, TypeError, ValueError):
        what = "the run's record of its images is not whole"
        raise InputError(f"{folder}: {what}; cut these by data-prep, and name them by --data") from None
    return form, bool(record.get("resize"))


def _check(path: Path, found: Form, learned: Form, *, resize: bool, grey: bool) -> None:
    """Refuse an image that cannot become one as the training's were."""
    if not resize and found[1:3] != learned[1:3]:
        wanted = f"the model learned from {learned.width}x{learned.height}"
        raise InputError(f"{path}: {found.width}x{found.height} pixels, {wanted}; resize it")
    if found.depth != learned.depth:
        with opened(path) as image:
            highest = int(np.asarray(image).max(initial=0))
        what = f"pixels are {found.depth}, {highest:,} the highest, the model learned from {learned.depth}"
        way = "divide" if learned.depth == "uint8" else "multiply"
        raise InputError(
            f"{path}: {what}; {way} pixels as the training's images were, and save {learned.depth}"
        )
    if found.channels > learned.channels and not grey:
        raise InputError(f"{path}: is in colour, the model learned from grey images; convert it")
