"""Texts of a JSON Lines file as sequences of tokens, each with the token that comes next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.reading import needed, noted, unreadable
from data_prep.sources.spool import Spool
from data_prep.sources.table import Silos
from data_prep.sources.tokens import Tokens, tokens_of
from mpifl.common import InputError
from mpifl.data import Targets

IGNORE = -100
"""The target that does not count, as PyTorch's cross entropy has it."""
MOST_LINE = 1 << 24
"""Bytes that a line has fewer of."""
MOST_LENGTH = 1 << 20
LINES = 1 << 10
"""Lines whose tokens are made together."""
FORM = 'a line is {"text": "..."}, or {"prompt": "...", "completion": "..."}'


class Line(NamedTuple):
    """One text: what is given, what is to be learned, and whose it is."""

    number: int
    prompt: str
    text: str
    silo: str | None


def read_jsonl(
    data: Path | None,
    seed: int,
    *,
    tokenizer: str = "bytes",
    length: int = 256,
    end: str = "",
    silo: str = "",
    test: str = "",
) -> Dataset:
    """Read a text from each line, and cut its tokens into sequences of `length`, whose targets are the next
    tokens.

    A line is a JSON object with `text`, or with `prompt` and `completion`; the prompt's tokens are no
    targets. Both x and y are [n, length], int16, or int32 where the vocabulary needs it. What a text lacks
    of its last sequence is filled with its end (or token 0) in x, and -100 in y, which does not count. A
    sequence of -100 alone is left out. `silo` is the field of natural silos; `test` is another file, the
    server's test set. The classes are the tokens.
    """
    path = needed("jsonl", data, "notes.jsonl")
    if not 1 <= length <= MOST_LENGTH:
        raise InputError(f"--option: length={length} given; it must be from 1 to {MOST_LENGTH:,}")
    files: dict[str, str] = {}
    noted(path, files)
    cutter = Cutter(tokens_of(tokenizer, end, files), length, silo)
    x, y, silos = cutter.read(path)
    held = cutter.read(noted(Path(test), files))[:2] if test else None
    targets = Targets(dtype=y.dtype.name, shape=(length,), ignore=IGNORE)
    numbers, names = silos.numbered() if silo else (None, None)
    more: dict[str, Any] = {"test": held, "silo": numbers, "silo_names": names, "targets": targets}
    return Dataset(str(path), x, y, cutter.tokens.size, files, **more)


@dataclass(frozen=True)
class Cutter:
    """What all texts are cut by.

    Attributes:
        tokens: What makes tokens of them.
        length: Of a sequence.
        silo: The field of natural silos, if it is given.
    """

    tokens: Tokens
    length: int
    silo: str

    def read(self, path: Path) -> tuple[np.ndarray, np.ndarray, Silos]:
        """Read a file: sequences and their targets, [n, length], in files that are mapped; silos."""
        x, y, silos, lines = Spool(), Spool(), Silos(), _lines(path, self.silo)
        while some := list(islice(lines, LINES)):
            prompts = self.tokens.encode([line.prompt for line in some])
            texts = self.tokens.encode([line.text for line in some])
            for line, prompt, text in zip(some, prompts, texts, strict=True):
                own_x, own_y = self.cut(prompt, text)
                if not len(own_x):
                    said = "has no token to predict; write more text, or remove the line"
                    raise InputError(f"{path}: line {line.number}: {said}")
                x.append(own_x)
                y.append(own_y)
                silos.append([line.silo] * len(own_x) if line.silo is not None else [])
        if not len(rows := x.rows()):
            raise InputError(f"{path}: has no lines; {FORM}")
        return rows, y.rows(), silos

    def cut(self, prompt: Sequence[int], text: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequences of a text and their targets, [n, length]."""
        end = self.tokens.end
        every = np.array([*prompt, *text, *([] if end is None else [end])], np.int64)
        steps = max(0, len(every) - 1)
        count = -(-steps // self.length)
        x = np.full(count * self.length, end or 0, np.int64)
        y = np.full(count * self.length, IGNORE, np.int64)
        x[:steps], y[:steps] = every[:-1], every[1:]
        y[: max(0, len(prompt) - 1)] = IGNORE
        together = np.stack([x, y]).reshape(2, count, self.length)
        kept = (together[1] != IGNORE).any(axis=1)
        x, y = together[:, kept].astype("int16" if self.tokens.size <= 1 << 15 else "int32")
        return x, y


def _lines(path: Path, silo: str) -> Iterator[Line]:
    """Yield the texts of a file; blank lines are left out."""
    try:
        with path.open("rb") as file:
            number = 0
            while content := file.readline(MOST_LINE):
                number += 1
                if len(content) >= MOST_LINE:
                    raise InputError(f"{path}: line {number}: {MOST_LINE:,} bytes or more; cut the text")
                if content.strip():
                    yield _line(f"{path}: line {number}", number, content, silo)
    except OSError as error:
        raise unreadable(path, error) from None


def _line(where: str, number: int, content: bytes, silo: str) -> Line:
    try:
        found = json.loads(content.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: no JSON in UTF-8 ({str(error)[:80]}); {FORM}") from None
    if not isinstance(found, dict):
        raise InputError(f"{where}: {type(found).__name__}, no object; {FORM}")
    given = [key for key in ("text", "prompt", "completion") if key in found]
    if given not in (["text"], ["prompt", "completion"]):
        raise InputError(f"{where}: has {' and '.join(given) or 'no text'}; {FORM}")
    for key in given:
        _check_text(where, key, found[key])
    prompt, text = ("", found["text"]) if given == ["text"] else (found["prompt"], found["completion"])
    return Line(number, prompt, text, _silo(where, found, silo))


def _check_text(where: str, key: str, text: Any) -> None:
    if not isinstance(text, str):
        raise InputError(f"{where}: {key} is {type(text).__name__}; it must be a text in quotes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{where}: {key} has half a character (\\ud800 to \\udfff); write the text anew"
        ) from None


def _silo(where: str, found: dict[str, Any], field: str) -> str | None:
    if not field:
        return None
    value = found.get(field)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "" or "\0" in str(value):
        said = f"{field}, the silo, is {json.dumps(value)[:40]}"
        raise InputError(f"{where}: {said}; name it by a text or a whole number")
    _check_text(where, field, name := str(value))
    return name
