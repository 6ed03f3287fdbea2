"""Whose each image is: those in one folder, or with one text in their names, stay together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Groups, renumbered
from data_prep.sources.mask_names import masks_beside, stem_of
from data_prep.sources.within import inside
from mpifl.common import InputError

PARENT = "parent"
NUMBERED = re.compile(r"(.*\d.*?)[-_. ][A-Za-z]*\d+")
"""A name with a number, and behind a mark another number, as pat00_s1 has."""
LETTERED = re.compile(r"(.*\d)([-_. ]?[A-Za-z][-_. A-Za-z]*)")
"""A name with letters or words behind its last number, as K0110a, K0110_left and P001_L_CC have."""
SLICED = re.compile(r"(.*\d)[-_. ]?(?:slice|image|img|im|sl|s|z|frame|view|scan)[-_. ]?\d+", re.IGNORECASE)
"""A name that ends with the number of a slice, as P003_slice2 does."""
PATTERNS = ("(.+)_", "(.+)-", "(.+) ", r"(.+)\..+\.", r"(.+\d)", r"(\D*\d+)")
"""What `group` may say of names, the plainest first."""


class ImageGroups:
    """Whose images are, by what `group` says of them.

    Args:
        group: "parent", for the folder that an image lies in; a regular expression with one group, which is
            searched for in the file's name; "" if each is by itself.

    Raises:
        InputError: it is neither.
    """

    def __init__(self, group: str) -> None:
        self._group, self.nested, self._pattern = group, group == PARENT, re.compile("")
        if not group or self.nested:
            return
        want = "images know --group parent, or a regular expression with one group, as 'pat(\\d+)_'"
        try:
            self._pattern = re.compile(group)
        except re.error as error:
            raise InputError(f"--group: '{group}' given, which is wrong ({error}); {want}") from None
        if self._pattern.groups != 1:
            raise InputError(f"--group: '{group}' given, with {self._pattern.groups} groups; {want}")

    def files(self, folder: Path, named: Path) -> list[Path]:
        """List what a folder holds, or with `parent` what each of its folders holds."""
        found = inside(folder, named)
        if not self.nested:
            return found
        for path in found:
            if not path.is_dir():
                what = "--group parent takes a folder for each group there, and nothing else"
                raise InputError(f"{path}: {what}; move it into one, or say --group PATTERN")
        return [path for of_one in found for path in inside(of_one, named)]

    def of(self, paths: Sequence[Path], tested: Sequence[Path], silo: np.ndarray | None) -> dict[str, Any]:
        """Return what a data set says of the groups of its images, and of the server's test images; two silos
        have none in common."""
        if not self._group:
            return {}
        whose = [""] * len(paths) if silo is None else [str(one) for one in silo.tolist()]
        own = [f"{one}/{self._owner(path)}" for one, path in zip(whose, paths, strict=True)]
        of_test = [f"/{self._owner(path)}" for path in tested]
        of, *more = renumbered([np.array(own), *([np.array(of_test)] if tested else [])])
        return {"groups": Groups(self._group, of, more[0] if more else None)}

    def doubt(self, paths: Sequence[Path], *, classes: bool = True) -> str:
        """Say that names look like several images of one owner; "" if they do not, or groups are given."""
        found, pattern = ("", "") if self._group else group_seen(paths, classes=classes)
        remedy = f"if they are of one patient, keep them together by --group '{pattern or 'PATTERN'}'"
        return f"{found}; {remedy}" if found else ""

    def _owner(self, path: Path) -> str:
        if self.nested:
            return path.parent.name
        found = self._pattern.search(path.name)
        if found is None or not found[1]:
            raise InputError(f"{path}: --group '{self._group}' finds nothing in its name; change either")
        return found[1]


def group_seen(paths: Sequence[Path], *, classes: bool) -> tuple[str, str]:
    """Say how many names are those of others but for a number, letters or words at their ends; and return the
    pattern that takes what they share, if a plain one does. Both are "" where these are less than half.

    Numbers count within a folder. Letters count over the folders of all `classes`, unless each folder's names
    all end with the same ones.
    """
    images = sorted({*paths} - {*masks_beside(paths)})
    owners = {path: _shared_name(stem_of(path)) for path in images}
    endings: dict[Path, set[str]] = {}
    for path in images:
        endings.setdefault(path.parent, set()).add(
            found[2] if (found := LETTERED.fullmatch(stem_of(path))) else ""
        )
    told = classes and any(len(those) > 1 for those in endings.values())
    wide = {of for path, of in owners.items() if told and LETTERED.fullmatch(stem_of(path))}
    named: dict[tuple[Path, str], list[Path]] = {}
    for path, owner in owners.items():
        named.setdefault((path.parents[owner in wide], owner), []).append(path)
    several = [those for those in named.values() if len({stem_of(path) for path in those}) > 1]
    if len(several) < 2 or 2 * (count := sum(map(len, several))) < len(images):
        return "", ""
    two = " and ".join(path.name for path in several[0][:2])
    what = f"{count:,} images have the names of others but for their ends ({two})"
    return what, next((one for one in PATTERNS if _takes(one, owners)), "")


def _shared_name(stem: str) -> str:
    """Return a name without what may tell the images of one patient apart; the whole name if nothing may."""
    if lettered := LETTERED.fullmatch(stem):
        sliced = SLICED.fullmatch(lettered[1])
        return sliced[1] if sliced else lettered[1]
    if numbered := NUMBERED.fullmatch(stem):
        sided = LETTERED.fullmatch(numbered[1])
        return sided[1] if sided else numbered[1]
    return stem


def _takes(pattern: str, owners: Mapping[Path, str]) -> bool:
    """Tell whether a pattern parts all names as their owners do."""
    found = {
        (match[1] if (match := re.search(pattern, path.name)) else "", of) for path, of in owners.items()
    }
    return len({one for one, _ in found}) == len({of for _, of in found}) == len(found)
