"""What the pixels of masks are: their classes, by number or by colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpifl.common import InputError

NUMBERED = ("1", "L", "P", "I;16", "I")
"""Pillow's modes of one number a pixel: a bit, a grey of 8 or 16 bits, or a place in a palette."""
WHITE = 255
BLACK_AND_WHITE, MIXED = [0, WHITE], [0, 1, WHITE]
MOST_LEVELS = 8
"""Levels of masks that are probably classes; of more, edges may have been smoothed."""
SMOOTHED = (
    "if edges were smoothed, threshold the masks, as Pillow's image.point(lambda v: 255 * (v > 127)) does"
)


class Pixels:
    """What the pixels of masks are: their classes, by number or by colour.

    Args:
        values: The numbers that are the classes 0, 1, ..., those of one class with "/" between; each its own
            if empty.
        ignore: The number that does not count.
        colours: Whether pixels of palettes are told by their colours, in place of by their numbers.

    Attributes:
        drawn: By `values`: the number that stands for each class in predicted masks, the last one of several;
            empty where classes are drawn by their own numbers.
    """

    def __init__(self, values: str, ignore: str | None, *, colours: bool = True) -> None:
        self._colours, self._renumbered, self._moved = colours, 0, 0
        self._seen, self.ignore, self._class = dict[int, Path](), ignore, np.arange(256)
        self._palette: tuple[Path, np.ndarray] | None = None
        self._named, self._background, self.drawn = bool(values), "", dict[str, list[int]]()
        if not values:
            return
        said, classes = f"--option: values={values} given", [one.split("/") for one in values.split(",")]
        words = [word.strip() for one in classes for word in one]
        if not all(word.isdecimal() and int(word) < 256 for word in words) or len(set(words)) != len(words):
            form = "as 0,255, or 0,1/255 where two are one class"
            raise InputError(f"{said}; it must be numbers of pixels from 0 to 255, each once, {form}")
        if ignore is not None and (ignore in words or ignore in map(str, range(len(classes)))):
            raise InputError(f"{said}; ignore={ignore} is one of them, or of their classes, use another")
        if (first := min(map(int, classes[0]))) > min(map(int, words)):
            self._background = f"values={values}: pixels of {first} are class 0, the background"
        self.drawn = {"values": [int(one[-1]) for one in classes]}
        self._class = np.full(256, -1)
        for number, one in enumerate(classes):
            self._class[[int(word) for word in one]] = number
        if ignore is not None and ignore.isdecimal() and int(ignore) < 256:
            self._class[int(ignore)] = int(ignore)

    def __call__(self, path: Path, drawn: np.ndarray, palette: list[int] | None) -> np.ndarray:
        """Return the classes of a mask's pixels, uint8 [height, width]."""
        by_colour = palette is not None and self._colours
        numbers = self._by_colour(path, drawn, palette or []) if by_colour else drawn
        there = np.unique(numbers)
        self._seen = dict.fromkeys(there.tolist(), path) | self._seen
        return np.asarray(self._class[numbers], np.uint8)

    def check_named(self) -> None:
        """Refuse masks with numbers that `values` does not name, after a look at all of them."""
        numbers, named = sorted(self._seen), np.flatnonzero(self._class >= 0).tolist()
        if not (others := [number for number in numbers if number not in named]):
            return
        place, seen = self._seen[others[0]], [one for one in numbers if str(one) != self.ignore]
        known = [number for number in seen if number in named]
        if len(others) > MOST_LEVELS:
            what = f"has {len(others):,} grey levels that --values does not name; {SMOOTHED}"
        elif seen == MIXED and named == known and len(others) == 1:
            what = f"has pixels of {others[0]} beside {known[-1]}: masks of 0/1 and of 0/255 are mixed"
            what += "; say --values 0,1/255, or write all alike"
        elif len(known) < 2 <= len(seen) == len(named):
            first, last = ", ".join(map(str, seen[:-1])), seen[-1]
            what = f"masks hold {first} and {last}; say --values {','.join(map(str, seen))}"
        else:
            what = f"has pixels of {others[0]}, which --values does not name; add it"
        raise InputError(f"{place}: {what}")

    def _by_colour(self, path: Path, drawn: np.ndarray, palette: list[int]) -> np.ndarray:
        """Return places in the palette of the first mask that has one, by the colours of pixels."""
        colours = np.zeros((256, 3), np.uint8)
        own = np.array(palette, np.uint8).reshape(-1, 3)[:256]
        colours[: len(own)] = own
        first, known = self._palette = self._palette or (path, colours)
        places = np.arange(256, dtype=np.uint8)
        for place in np.unique(drawn).tolist():
            if not (known[place] == colours[place]).all():
                if not (found := (known == colours[place]).all(axis=1)).any():
                    colour = "#" + bytes(colours[place]).hex()
                    what = f"pixels of the colour {colour}, which the palette of {first} lacks"
                    raise InputError(f"{path}: has {what}; draw all masks with one palette")
                places[place] = int(np.argmax(found))
        moved = int(np.count_nonzero(places[drawn] != drawn))
        self._renumbered, self._moved = self._renumbered + bool(moved), self._moved + moved
        return np.asarray(places[drawn])

    def told(self, masks: int) -> str:
        """Say how many of so many masks the palette of the first one renumbered, or which pixels are the
        background by `values` if they are not the lowest; "" if neither is so."""
        if not self._renumbered or self._palette is None:
            return self._background
        have = f"of {masks:,} masks have another palette order than {self._palette[0].name}"
        moved = f"{self._moved:,} pixels have another number than stored"
        remedy = "--option colours=false takes the numbers as they are"
        return f"{self._renumbered:,} {have}, and are taken by their colours: {moved}; {remedy}"

    def check(self) -> None:
        """Refuse masks whose numbers are grey levels, of which nobody says what they mean."""
        seen = sorted(number for number in self._seen if str(number) != self.ignore)
        if self._named or not are_levels(seen) or (self._palette and seen != BLACK_AND_WHITE):
            return
        last = seen[-1]
        if seen == MIXED:
            what = f"masks of 0 and 1 ({self._seen[1].name}) and of 0 and 255 are mixed"
            to_do = f"say --values {values_for(seen)}, or write all alike; or ignore=255"
            raise InputError(f"{self._seen[last]}: {what}; {to_do} if 255 does not count")
        if not values_for(seen):
            what = f"masks hold {len(seen):,} grey levels up to {last}; {SMOOTHED}"
            raise InputError(f"{self._seen[last]}: {what}; if each is a class, say --values 0,...")
        what = (
            f"masks hold only {', '.join(map(str, seen[:-1]))} and {last}, which would be {last + 1} classes"
        )
        hint = f"say --values {values_for(seen)}, or ignore={last} if {last} does not count"
        raise InputError(f"{self._seen[last]}: {what}; {hint}")


def values_for(numbers: Sequence[int]) -> str:
    """Return what `values` says of levels; "" where edges may have been smoothed."""
    if list(numbers) == MIXED:
        return "0,1/255"
    classes = len(numbers) <= MOST_LEVELS or (2 * len(numbers) < WHITE and not are_levels(numbers[:-1]))
    return ",".join(map(str, numbers)) if classes else ""


def are_levels(numbers: Sequence[int]) -> bool:
    """Tell whether numbers are no classes: of those from 0 to the highest less than half are there, or more
    than half from black to white."""
    grey = len(numbers) > 1 and (numbers[0], numbers[-1]) == (0, WHITE)
    return grey or (len(numbers) > 1 and 2 * len(numbers) < numbers[-1] + 1)
