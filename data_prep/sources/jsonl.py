"""Texts of a JSON Lines file as sequences of tokens, each with the token that comes next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.dataset import Beside, Dataset, Groups, noted_as
from data_prep.sources.reading import needed, noted, unreadable
from data_prep.sources.spool import UnevenSpool
from data_prep.sources.table import Keys
from data_prep.sources.text import text_of
from data_prep.sources.tokens import Tokens, encoding_by, tokens_of
from data_prep.sources.within import silo_files
from mpifl.common import InputError
from mpifl.data import Column, Ragged, Targets

IGNORE = -100
"""The target that does not count, as PyTorch's cross entropy has it."""
MOST_LINE = 1 << 24
"""A line must have fewer bytes than this."""
MOST_LENGTH = 1 << 20
ENDINGS = (".jsonl", ".txt")
"""Of files in a folder."""
LINES = 1 << 10
"""Lines whose tokens are made together."""
FORM = 'a line is {"text": "..."}, or {"prompt": "...", "completion": "..."}'


class TextLine(NamedTuple):
    """One text: what is given, what is to be learned, whose it is, and its file in a folder."""

    number: int
    prompt: str
    text: str
    silo: str | None
    group: str | None
    file: Path | None = None

    def id(self, folder: Path) -> str | None:
        """Return the path of its file in a folder, and of several texts in it the line; None without a
        folder."""
        if self.file is None:
            return None
        name = self.file.relative_to(folder).as_posix()
        return name if self.file.suffix.lower() == ".txt" else f"{name}:{self.number}"


def read_jsonl(
    data: Path | None,
    seed: int,
    *,
    tokenizer: str = "bytes",
    length: int = 256,
    end: str = "",
    silo: str = "",
    test: str = "",
    ragged: bool = False,
    inputs: str = "",
    group: str = "",
    one_silo: bool = False,
) -> Dataset:
    """Read a text from each line, and cut it into sequences of `length` tokens; targets are the next tokens.

    A line is a JSON object with `text`, or with `prompt` and `completion`; the prompt's tokens are no
    targets. Both x and y are [n, length], int16, or int32 where the vocabulary needs it. What a text lacks
    of its last sequence is filled with its end (or token 0) in x, and -100 in y, which does not count. A
    sequence of -100 alone is left out. `silo` is the field of natural silos; `test` is another file, the
    server's test set; `group` is the field that says whose a text is. The classes are the tokens.

    With `ragged` nothing is filled: a sequence has at most `length` tokens, and batches are padded. `inputs`
    then may say what a model calls the tokens, and their mask: `input_ids,attention_mask`.

    A folder is a silo for each .jsonl file, .txt file (one text), or folder of such in it, by their names;
    with `one_silo` it is one silo, as that of a site that joins.
    """
    path, files, named = needed("jsonl", data, "notes.jsonl"), dict[str, str](), _named(inputs, ragged)
    if not 1 <= length <= MOST_LENGTH:
        raise InputError(f"--option: length={length} given; it must be from 1 to {MOST_LENGTH:,}")
    _note(path, silo, files)
    cutter = Cutter(tokens_of(tokenizer, end, files), length, silo, group, ragged, one_silo)
    silos, groups, records, of_test, ids = (Keys() for _ in range(5))
    x, y = cutter.read(path, silos, groups, records, ids)
    held = cutter.read(noted(Path(test), files), Keys(), groups, of_test) if test else None
    x, held = named(x), held and (named(held[0]), held[1])
    targets = Targets(dtype=y.dtype.name, shape=(length,), ignore=IGNORE, ragged=ragged)
    numbers, names = silos.numbered() if not one_silo and (silo or path.is_dir()) else (None, None)
    more: dict[str, Any] = {"test": held, "silo": numbers, "silo_names": names, "targets": targets}
    more |= {"encoding": encoding_by(tokenizer, end), "given": records.provenance(ids)}
    more["groups"] = groups.groups(group, len(y), tested=bool(test)) or _of_texts(groups, numbers, len(y))
    more["given_of_test"] = of_test.provenance() if test else None
    told = noted_as(texts=_of_many_lines(path, silos.codes(), records.codes()) if path.is_dir() else "")
    return Dataset(str(path), x, y, cutter.tokens.size, files, **more, **told)


def _of_many_lines(folder: Path, silo: np.ndarray, record: np.ndarray) -> str:
    """Say how many .txt files of a folder have several lines, each of which might be meant as a text; not
    where a silo has several such files, which are its texts."""
    silos = [
        [one for one in files if one.suffix.lower() == ".txt"]
        for files in silo_files(folder, ENDINGS).values()
    ]
    paths = [one for files in silos for one in files if max(map(len, silos)) == 1]
    if not (many := sum(len(text_of(one).split("\n", 2)) > 2 for one in paths)):
        return ""
    texts = np.unique(np.stack([silo, record[: len(silo)]]), axis=1).shape[1]
    what = f"{many:,} files of .txt have several lines, and are a text each: {texts:,} texts in all"
    return f'{what}; one text a line is .jsonl, as {{"text": "..."}}'


def _of_texts(keys: Keys, silo: np.ndarray | None, rows: int) -> Groups | None:
    """Return groups by which sequences of a text stay together, but of a silo's only text; None where each
    would be of one sequence."""
    texts = Groups("text", keys.codes()[:rows])
    of = np.zeros(len(texts.of), np.int64) if silo is None else silo
    owner = np.zeros(int(texts.of.max()) + 1, np.int64)
    owner[texts.of] = of  # a text is of one silo
    alone = np.bincount(owner)[of] == 1
    found = np.where(alone, len(owner) + np.arange(len(of)), texts.of)
    return replace(texts, of=found) if len(np.unique(found)) < len(found) else None


def _note(path: Path, silo: str, files: dict[str, str]) -> None:
    """Note the sha256 of a file, or of all files of a folder, which are the silos then."""
    if path.is_dir() and silo:
        raise InputError(f"--option: silo={silo} given; {path}: its files are the silos, leave it out")
    for some in silo_files(path, ENDINGS).values() if path.is_dir() else [[path]]:
        for file in some:
            noted(file, files)


@dataclass(frozen=True)
class Cutter:
    """What all texts are cut by.

    Attributes:
        tokens: What makes tokens of them.
        length: Of a sequence.
        silo: The field of natural silos, if it is given.
        group: The field that says whose a text is, if it is given.
        ragged: Whether the last sequence of a text is shorter, in place of filled.
        one_silo: Whether a folder's files are of one silo.
    """

    tokens: Tokens
    length: int
    silo: str
    group: str = ""
    ragged: bool = False
    one_silo: bool = False

    def read(
        self, path: Path, silos: Keys, groups: Keys, records: Keys, ids: Keys | None = None
    ) -> tuple[Column, Column]:
        """Read a file: sequences and their targets, [n, length], in files that are mapped; note whose each
        is, the number of its text, and of a folder its name there."""
        x, y = UnevenSpool(ragged=True), UnevenSpool(ragged=True)
        lines = _of_files(path, self.group) if path.is_dir() else text_lines(path, self.silo, self.group)
        while some := list(islice(lines, LINES)):
            prompts = self.tokens.encode([line.prompt for line in some])
            texts = self.tokens.encode([line.text for line in some])
            for line, prompt, text in zip(some, prompts, texts, strict=True):
                own_x, own_y = self.cut(prompt, text)
                if not len(own_x):
                    said = "has no token to predict; write more text, or remove the line"
                    raise InputError(f"{line.file or path}: line {line.number}: {said}")
                x.append(own_x)
                y.append(own_y)
                apart = self.one_silo or (line.file and line.file.parent != path)
                record = f"{line.file.name}:{line.number}" if line.file and apart else str(line.number)
                whose = line.group if self.group else f"{line.silo}:{record}"
                noted_in = (
                    (silos, line.silo),
                    (groups, whose),
                    (records, record),
                    (ids or Keys(), line.id(path)),
                )
                for keys, name in noted_in:
                    names = [] if name is None else [name]
                    keys.append(names, np.zeros(len(own_x) * len(names), np.int64))
        if not len(rows := x.rows()):
            raise InputError(f"{path}: has no lines; {FORM}")
        return self._padded(rows), self._padded(y.rows())

    def _padded(self, rows: Column) -> Column:
        """Return ragged sequences that batches pad with the end, to at most `length`."""
        if not isinstance(rows, Ragged):
            return rows
        return replace(rows, longest=self.length, fill=self.tokens.end or 0)

    def cut(self, prompt: Sequence[int], text: Sequence[int]) -> tuple[Column, Column]:
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
        if not self.ragged:
            return x, y
        lengths = np.minimum(steps - self.length * np.arange(count), self.length)[kept]
        inside = np.arange(self.length) < lengths[:, np.newaxis]
        return Ragged.flat(x[inside], lengths), Ragged.flat(y[inside], lengths)


def _named(inputs: str, ragged: bool) -> Callable[[Any], Any]:
    """Return what gives sequences the names that a model has for them and their mask."""
    if not inputs:
        return lambda x: x
    name, _, mask = inputs.partition(",")
    if not ragged:
        raise InputError(f"--option: inputs={inputs} given of sequences of one length; say ragged=true, too")
    if not re.fullmatch(r"[A-Za-z_]\w{0,31}", name, re.ASCII):
        raise InputError(f"--option: inputs={inputs} given; it must be as input_ids,attention_mask")
    return lambda x: Beside({name: replace(x, mask=mask or None)})


def _of_files(folder: Path, group: str) -> Iterator[TextLine]:
    """Yield the texts of all files of a folder, each of the silo that the file is called by."""
    for name, path in ((name, one) for name, own in silo_files(folder, ENDINGS).items() for one in own):
        if path.suffix.lower() == ".txt":
            if group:
                raise InputError(f"{path}: has no field '{group}', which --group names; leave it out")
            yield TextLine(1, "", text_of(path), name, None, path)
            continue
        line = None
        for line in text_lines(path, "", group):
            yield line._replace(silo=name, file=path)
        if line is None:
            raise InputError(f"{path}: has no lines, and would be a silo; remove it, or write texts")


def text_lines(path: Path, silo: str, group: str) -> Iterator[TextLine]:
    """Yield the texts of a file; blank lines are left out."""
    try:
        with path.open("rb") as file:
            number, seen = 0, dict[tuple[str, str], Any]()
            while content := file.readline(MOST_LINE):
                number += 1
                if len(content) >= MOST_LINE:
                    raise InputError(f"{path}: line {number}: {MOST_LINE:,} bytes or more; cut the text")
                if content.strip():
                    yield _line(f"{path}: line {number}", number, content, (silo, group), seen)
    except OSError as error:
        raise unreadable(path, error) from None


def _line(
    where: str, number: int, content: bytes, fields: tuple[str, str], seen: dict[tuple[str, str], Any]
) -> TextLine:
    try:
        found = json.loads(content.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON in UTF-8 ({str(error)[:80]}); {FORM}") from None
    if not isinstance(found, dict):
        raise InputError(f"{where}: is {type(found).__name__}, not an object; {FORM}")
    given = [key for key in ("text", "prompt", "completion") if key in found]
    if given not in (["text"], ["prompt", "completion"]):
        raise InputError(f"{where}: has {' and '.join(given) or 'no text'}; {FORM}")
    for key in given:
        _check_text(where, key, found[key])
    prompt, text = ("", found["text"]) if given == ["text"] else (found["prompt"], found["completion"])
    silo, group = (
        _key(where, what, found, field, seen) for what, field in zip(("silo", "group"), fields, strict=True)
    )
    return TextLine(number, prompt, text, silo, group)


def _check_text(where: str, key: str, text: Any) -> None:
    if not isinstance(text, str):
        raise InputError(f"{where}: {key} is {type(text).__name__}; it must be a text in quotes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{where}: {key} has half a character (\\ud800 to \\udfff); write the text again"
        ) from None


def _key(
    where: str, what: str, found: dict[str, Any], field: str, seen: dict[tuple[str, str], Any]
) -> str | None:
    if not field:
        return None
    value = found.get(field)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "" or "\0" in str(value):
        said = f"{field}, the {what}, is {json.dumps(value)[:40]}"
        raise InputError(f"{where}: {said}; name it by a text or a whole number")
    _check_text(where, field, name := str(value))
    if type(first := seen.setdefault((what, name), value)) is not type(value):
        said = f"{json.dumps(value)[:40]}, and {json.dumps(first)[:40]} in a line before"
        raise InputError(f"{where}: {field}, the {what}, is {said}; write both alike")
    return name
