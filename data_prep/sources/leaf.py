"""LEAF's JSON: users, each with examples of its own, in one file or in several of a folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Converted, Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import dataset_of, with_options
from data_prep.sources.reading import needed, noted_all, unreadable
from data_prep.sources.spool import Spool
from data_prep.sources.table import Keys
from data_prep.sources.within import inside, is_split
from mpifl.common import InputError

MOST_FILE = 1 << 30
"""Bytes of a file, whose text lies in memory."""
MOST_WHOLE = 1 << 53
"""Whole numbers up to here are numbers of float64."""
FORM = '{"users": [...], "num_samples": [...], "user_data": {USER: {"x": [...], "y": [...]}}}'
KINDS = {"i": "numbers", "u": "numbers", "f": "numbers", "U": "texts"}


@with_options
def read_leaf(data: Path | None, wanted: Wanted, *, shape: str = "") -> Dataset:
    """Read a file, or all `.json` files of a folder, or of its `train` and `test`; a user is a natural silo.

    Features become float32 [n, ...], or int64 where all are whole; `shape` is that of an example, as
    `1x28x28`, by default as it is written. `test` is each user's own test split where its users are those of
    `train`, and the server's test set where none of them is. The text of one file lies in memory, and one
    user's examples; those of all in TMPDIR. `--group user` keeps users whole, whatever the scheme.
    """
    path = needed("leaf", data, "femnist, a folder of LEAF's JSON")
    if wanted.silo_names:
        raise InputError(f"--option: silo_names={wanted.silo_names} given; users have names, leave it out")
    files: dict[str, str] = {}
    noted_all(path, files)
    split, rows = path.is_dir() and is_split(path), LeafExamples(_parsed(shape))
    trained = rows.read(path, path / "train" if split else path)
    count = len(rows)
    tested = rows.read(path, path / "test") if split else set()
    if (both := len(tested & trained)) not in (0, len(tested)):
        what = f"{both:,} of the {len(tested):,} users of test are in train, too, and the others not"
        raise InputError(f"{path}: {what}; split all users' examples, or the users")
    x, y, (users, names) = rows.x.rows(), rows.targets(path), rows.users.numbered()
    parts = {"x": x, "y": y, "silo": users, **({"user": users} if wanted.group == "user" else {})}
    if split and not both:  # the users of test are others: these examples are the server's
        arrays = {name: part[:count] for name, part in parts.items()}
        arrays |= {f"{name}_test": part[count:] for name, part in parts.items() if name != "silo"}
    else:
        arrays = parts | ({"held_out": np.arange(len(rows)) >= count} if split else {})
    made = dataset_of(path, arrays, files, wanted)
    stored = np.dtype(np.int64 if rows.whole and not wanted.standardise else np.float32)
    test = made.test and (Converted(made.test[0], stored), made.test[1])
    own = {number: names[number] for number in np.unique(arrays["silo"]).tolist()}
    return replace(made, x=Converted(made.x, stored), test=test, silo_names=own)


class LeafExamples:
    """The examples of all users, as they come.

    Attributes:
        x: Features float64 [n, ...], in a file.
        users: Whose each is.
        whole: Whether all features are whole numbers.
    """

    def __init__(self, shape: tuple[int, ...] | None) -> None:
        self.x, self.users, self.whole = Spool(), Keys(), True
        self._y: list[np.ndarray] = []
        self._shape, self._form = shape, tuple[int, ...]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def read(self, named: Path, path: Path) -> set[str]:
        """Read a file, or those of a folder; return the users."""
        seen = set[str]()
        for file in _files(named, path):
            for user, given in users_of(file):
                self._add(f"{file}: user '{user[:40]}'", user, given)
                seen.add(user)
        if not self._count or not seen:
            raise InputError(f"{path}: has no examples of users; LEAF writes {FORM}")
        return seen

    def targets(self, path: Path) -> np.ndarray:
        """Return the targets of all examples."""
        if len(kinds := {KINDS[y.dtype.kind] for y in self._y}) > 1:
            raise InputError(f"{path}: y is {' and '.join(sorted(kinds))}; make them alike")
        return np.concatenate(self._y)

    def _add(self, where: str, user: str, given: Any) -> None:
        if not isinstance(given, dict) or not {"x", "y"} <= given.keys():
            raise InputError(f"{where} has no x and y; LEAF writes {FORM}")
        if not given["x"] and not given["y"]:
            return
        x, y = (_array(where, name, given[name]) for name in "xy")
        if len(x) != len(y):
            raise InputError(f"{where} has {len(x)} x and {len(y)} y; give each example both")
        if x.dtype.kind == "U":
            other = "docs/howto/formats.md has a function that makes numbers of them"
            raise InputError(f"{where}: x is texts, and leaf reads numbers; {other}")
        if x.dtype.kind in "iu" and max(abs(int(x.max())), abs(int(x.min()))) > MOST_WHOLE:
            raise InputError(f"{where}: x has whole numbers beyond 2^53; store arrays (npy, hdf5)")
        self.whole &= x.dtype.kind in "iu"
        x = self._shaped(where, x.astype(np.float64))
        first = self._y[0] if self._y else y
        if (x.shape[1:], y.shape[1:]) != ((self._form or x.shape[1:]), first.shape[1:]):
            has = f"x of {list(x.shape[1:])} and y of {list(y.shape[1:])}"
            raise InputError(
                f"{where} has {has}, others {list(self._form)} and {list(first.shape[1:])}; make them alike"
            )
        self._form, self._count = x.shape[1:], self._count + len(x)
        self.x.append(x)
        self._y.append(y)
        self.users.append([user], np.zeros(len(x), np.int64))

    def _shaped(self, where: str, x: np.ndarray) -> np.ndarray:
        if x.ndim == 1:
            x = x[:, np.newaxis]
        if self._shape is None:
            return x
        if math.prod(self._shape) != math.prod(x.shape[1:]):
            what = f"an example has {math.prod(x.shape[1:])} numbers, not {math.prod(self._shape)}"
            raise InputError(f"--option: shape={'x'.join(map(str, self._shape))} given; {where}: {what}")
        return x.reshape(len(x), *self._shape)


def users_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the users of a file and what it has of each; only one's is made at a time.

    Raises:
        InputError: it is no such file, a user stands in it twice, or it says of itself what it has not.
    """
    text, told, counts = Text(path), dict[str, Any](), dict[str, int]()
    for key in text.entries():
        if key != "user_data":
            told[key] = text.value()
            continue
        for user in text.entries():
            given = text.value()
            if user in counts or not user or "\0" in user:
                raise InputError(
                    f"{path}: user '{user[:40]}' {'is there twice' if user else 'has no name'}; correct it"
                )
            y = given.get("y") if isinstance(given, dict) else None
            counts[user] = len(y) if isinstance(y, list) else 0
            yield user, given
    if "user_data" not in told and not counts:
        raise InputError(f"{path}: has no user_data; LEAF writes {FORM}")
    for what, found in (("users", [*counts]), ("num_samples", [*counts.values()])):
        said = told.get(what)
        if isinstance(said, list) and sorted(map(str, said)) != sorted(map(str, found)):
            those = f"those of user_data ({len(counts)} users)"
            raise InputError(f"{path}: {what} are not {those}; write it again")


class Text:
    """The text of a JSON file, read value by value: all of its objects would fill the memory."""

    def __init__(self, path: Path) -> None:
        self.path, self._at, self._decoder = path, 0, json.JSONDecoder()
        try:
            if (size := path.stat().st_size) > MOST_FILE:
                raise InputError(f"{path}: {size:,} bytes, {MOST_FILE:,} are the most; split it by users")
            self._text = path.read_text("utf-8-sig")
        except OSError as error:
            raise unreadable(path, error) from None
        except UnicodeDecodeError as error:
            raise self._wrong(error) from None

    def entries(self) -> Iterator[str]:
        """Yield the keys of an object; what stands behind each is to be read before the next."""
        self._next("{")
        self._skip()
        mark = "}" if self._text[self._at : self._at + 1] == "}" else ","
        self._at += mark == "}"
        while mark != "}":
            if not isinstance(key := self.value(), str):
                raise self._wrong("a key is not a text")
            self._next(":")
            yield key
            mark = self._next(",}")

    def value(self) -> Any:
        """Return the value that comes next."""
        self._skip()
        try:
            found, self._at = self._decoder.raw_decode(self._text, self._at)
        except (ValueError, RecursionError) as error:
            raise self._wrong(error) from None
        return found

    def _next(self, marks: str) -> str:
        self._skip()
        mark = self._text[self._at : self._at + 1]
        if not mark or mark not in marks:
            raise self._wrong(f"{' or '.join(marks)} is missing at character {self._at:,}")
        self._at += 1
        return mark

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1] in (" ", "\n", "\r", "\t"):
            self._at += 1

    def _wrong(self, what: object) -> InputError:
        return InputError(
            f"{self.path}: is not LEAF's JSON, or is cut short ({str(what)[:80]}); LEAF writes {FORM}"
        )


def _files(named: Path, path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [file for file in inside(path, named) if file.suffix == ".json"]
    if not found:
        raise InputError(
            f"{path}: has no .json files; --data must name a file of LEAF's, or a folder of them"
        )
    return found


def _array(where: str, name: str, given: Any) -> np.ndarray:
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError):
        array = np.empty(0, object)
    if array.dtype.kind not in KINDS or not array.ndim:
        what = "numbers, or texts as classes, equally many in each example"
        raise InputError(
            f"{where}: {name} is not {what}; correct it, or write a function of your own (module:function)"
        )
    return array


def _parsed(shape: str) -> tuple[int, ...] | None:
    words = shape.lower().replace(",", "x").split("x") if shape else []
    if not all(word.strip().isdecimal() and 0 < int(word) < 1 << 31 for word in words):
        raise InputError(f"--option: shape={shape[:40]} given; it must be that of an example, as 1x28x28")
    return tuple(int(word) for word in words) or None
