"""Whose each image is: those in one folder, or with one text in their names, stay together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Groups, renumbered
from data_prep.sources.within import inside
from mpifl.common import InputError

PARENT = "parent"
NUMBERED = re.compile(r"(.*\d.*?)([-_. ])[A-Za-z]*\d+")
"""A name with a number, and behind a mark another number, as pat00_s1 has."""


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

    def doubt(self, paths: Sequence[Path]) -> str:
        """Say that names look like several images of one owner; "" if they do not, or groups are given."""
        found, pattern = ("", "") if self._group else group_seen(paths)
        remedy = f"if they are of one patient, keep them together by --group '{pattern}'"
        return f"{found}; {remedy}" if found else ""

    def _owner(self, path: Path) -> str:
        if self.nested:
            return path.parent.name
        found = self._pattern.search(path.name)
        if found is None or not found[1]:
            raise InputError(f"{path}: --group '{self._group}' finds nothing in its name; change either")
        return found[1]


def group_seen(paths: Sequence[Path]) -> tuple[str, str]:
    """Say how many names have a numbered stem, as others do, and another number behind it; and return the
    pattern that takes such a stem. Both are "" where these are less than half."""
    found = {path: match for path in paths if (match := NUMBERED.fullmatch(path.stem))}
    stems = Counter((path.parent, match[1]) for path, match in found.items())
    names = [path for path, match in found.items() if stems[path.parent, match[1]] > 1]
    if len({(path.parent, found[path][1]) for path in names}) < 2 or 2 * len(names) < len(paths):
        return "", ""
    marks = Counter(found[path][2] for path in names)
    two = ", ".join(path.name for path in names[:2])
    what = f"{len(names):,} images repeat the names of others with another number ({two})"
    return what, f"(.+){re.escape(marks.most_common(1)[0][0])}"
