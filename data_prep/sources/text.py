"""Plain text as sequences of characters, a silo for each speaking role (McMahan et al. 2017, Shakespeare)."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset, noted_as
from data_prep.sources.reading import held_in, known_folder, needed, noted, unreadable
from data_prep.sources.roles import find_roles
from data_prep.sources.within import silo_files
from data_prep.tables import check_method, opened_zip
from mpifl.common import InputError
from mpifl.data.shards import record_of

MOST_PACKED = 1 << 28
"""Bytes of a text in a zip archive; all of Shakespeare is 5.5 million."""
TEST_SHARE = 5
"""The last of so many parts of a text's lines is held for test, rounded up."""
FILES = {"shakespeare": ("100-0.zip", "100-0.txt", "pg100.txt"), "tinyshakespeare": ("input.txt",)}
Windows = tuple[np.ndarray, np.ndarray]
"""Characters as numbers [n, length], and the characters that follow each of them [n, length]."""


def read_known_text(
    name: str, data: Path | None, seed: int, *, min_lines: int = 2, length: int = 80
) -> Dataset:
    """Read `shakespeare` (Project Gutenberg's etext 100) or `tinyshakespeare` (char-rnn's) by speaking role.

    `data` is the file or its folder; all else is as in read_text.
    """
    given = known_folder(name, data, "of " + " or ".join(FILES[name]))
    there = (given / file for file in FILES[name] if (given / file).is_file())
    path = held_in(given, next(there, given))
    if path.is_dir():
        raise InputError(
            f"{path}: has no {' or '.join(FILES[name])}; --data must name the file or its folder"
        )
    return read_text(path, seed, min_lines=min_lines, length=length)


def read_text(
    data: Path | None, seed: int, *, roles: bool = True, min_lines: int = 2, length: int = 80
) -> Dataset:
    """Read a text file, or the one in a zip archive, as next-character sequences of `length` characters.

    With `roles`, each speaking role of each play that has at least `min_lines` lines is a silo. The last
    fifth of its lines, rounded up, is held for its test split (McMahan et al. 2017, section 3). Without, the
    text is one, and the last fifth of its lines is the server's test set. Lines are joined by newlines and
    cut into x [n, length] and y [n, length], which is x moved by one character. What is left at the end (less
    than a sequence and the character after it) is dropped. So is a role that has no whole sequence to train
    on. The classes are the characters that occur, in their order; `class_names` is the vocabulary.

    A folder of .txt files is a silo for each file, by the files' names, and the last fifth of a file's lines
    is its silo's test split. A folder of files in it is one silo, whose text is theirs one after another.
    """
    path = needed("text", data, "book.txt")
    if length < 1 or min_lines < 2:
        raise InputError(f"--option: length={length}, min_lines={min_lines} given; use at least 1 and 2")
    files: dict[str, str] = {}
    if path.is_dir():
        return _of_silos(path, files, length)
    text = text_of(noted(path, files))
    speakers = find_roles(text) if roles else {("", "text"): text.splitlines()}
    if not speakers:
        looked = "no speaking roles ('ROLE:' before a speech, or Gutenberg's Shakespeare)"
        raise InputError(f"{path}: {looked}; add --option roles=false to take it as one text")
    chosen = {
        " / ".join(filter(None, key)): lines for key, lines in speakers.items() if len(lines) >= min_lines
    }
    vocabulary = _vocabulary(chosen)
    cut = {name: _train_and_held(lines, vocabulary, length) for name, lines in chosen.items()}
    kept = {name: windows for name, windows in cut.items() if len(windows[0][0])}
    if not kept:
        raise InputError(
            f"{path}: no text has a sequence of {length} characters; lower --option length or min_lines"
        )
    return replace(_dataset(path, files, vocabulary, kept, by_role=roles), **_left(chosen, kept, length))


def _of_silos(folder: Path, files: dict[str, str], length: int) -> Dataset:
    """Read a folder of texts, one for each silo."""
    paths = silo_files(folder, (".txt",))
    lines = {
        name: [line for path in own for line in text_of(noted(path, files)).splitlines()]
        for name, own in paths.items()
    }
    vocabulary = _vocabulary(lines)
    cut = {name: _train_and_held(own, vocabulary, length) for name, own in lines.items()}
    for name, ((x, _), _) in cut.items():
        if not len(x):
            what = f"has no sequence of {length} characters before the last fifth of its lines"
            raise InputError(f"{paths[name][0]}: {what}; lower --option length, or break its lines")
    return replace(_dataset(folder, files, vocabulary, cut, by_role=True), **_left(lines, cut, length))


def _left(
    texts: Mapping[str, Sequence[str]], cut: Mapping[str, tuple[Windows, Windows]], length: int
) -> dict[str, Any]:
    """Return how many characters are in no sequence, as what a data set was `done`."""
    every = sum(len(line) + 1 for lines in texts.values() for line in lines)
    taken = sum(x.size + (x.size > 0) for pair in cut.values() for x, _ in pair)
    shorter = f"what is left at the end of a split is shorter than length={length}"
    told = f"{every - taken:,} of {every:,} characters are in no sequence: {shorter}"
    return noted_as(text=told if taken < every else "")


def _vocabulary(texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the characters that occur in lines, in their order."""
    return sorted(set("\n").union(*(character for lines in texts.values() for character in lines)))


def _dataset(
    path: Path,
    files: dict[str, str],
    vocabulary: Sequence[str],
    kept: dict[str, tuple[Windows, Windows]],
    *,
    by_role: bool,
) -> Dataset:
    names = tuple(vocabulary)
    if not by_role:
        ((x, y), test), *_ = kept.values()
        return Dataset(
            str(path),
            x,
            y,
            len(names),
            files,
            test=test if len(test[0]) else None,
            class_names=names,
            coded=True,
            encoding=record_of("characters"),
        )
    parts = [windows for pair in kept.values() for windows in pair]
    sizes = [len(x) for x, _ in parts]
    x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    silo = np.repeat(np.arange(len(parts)) // 2, sizes)
    held = np.repeat(np.arange(len(parts)) % 2 == 1, sizes)
    return Dataset(
        str(path),
        x,
        y,
        len(names),
        files,
        class_names=names,
        coded=True,
        silo=silo,
        silo_names=dict(enumerate(kept)),
        held=held,
        encoding=record_of("characters"),
    )


def _train_and_held(lines: Sequence[str], vocabulary: Sequence[str], length: int) -> tuple[Windows, Windows]:
    held = -(-len(lines) // TEST_SHARE)
    return _windows(lines[:-held], vocabulary, length), _windows(lines[-held:], vocabulary, length)


def _windows(lines: Sequence[str], vocabulary: Sequence[str], length: int) -> Windows:
    """Number the characters and cut them into sequences, x uint8 (or int32, of more than 256) and y int64."""
    codes = np.frombuffer("".join(f"{line}\n" for line in lines).encode("utf-32-le"), np.uint32)
    numbers = np.searchsorted(np.array([ord(character) for character in vocabulary], np.uint32), codes)
    count = max(0, len(numbers) - 1) // length
    x, y = (numbers[start : start + count * length].reshape(count, length) for start in (0, 1))
    return x.astype(np.uint8 if len(vocabulary) <= 256 else np.int32), y.astype(np.int64)


def text_of(path: Path) -> str:
    """Return the text of a file, or of the one in a zip archive; refuse what is none in UTF-8."""
    try:
        content = _member(path) if zipfile.is_zipfile(path) else path.read_bytes()
        if (at := content.find(b"\0")) >= 0:
            line = content.count(b"\n", 0, at) + 1
            raise InputError(f"{path}: line {line}: has a NUL character; convert it to text in UTF-8")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a UTF-8 text (byte {error.start}); convert it") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error) as error:
        raise InputError(f"{path}: a damaged zip archive ({error}); fetch it again") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _member(path: Path) -> bytes:
    """Read the only text file of a zip archive."""
    with opened_zip(path) as archive:
        members = [member for member in archive.infolist() if member.filename.lower().endswith(".txt")]
        if len(members) != 1:
            raise InputError(
                f"{path}: holds {len(members)} .txt files, there must be one; unpack it and name a file"
            )
        (member,) = members
        if member.file_size > MOST_PACKED:
            found = f"{member.filename[:40]} has {member.file_size:,} bytes, {MOST_PACKED:,} are the most"
            raise InputError(f"{path}: {found}; unpack it and name the file")
        check_method(member)
        with archive.open(member) as file:
            return b"".join(iter(lambda: file.read(1 << 18), b""))
