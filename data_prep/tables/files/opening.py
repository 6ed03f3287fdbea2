"""Files of tables by their names: what kind they are, which spec is theirs, and how they are packed."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_prep.tables.files.arrow import library
from data_prep.tables.files.unpacking import check_unpacked
from mpifl.common import InputError

PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a CSV table is compressed, by the ending of its name."""

ARFF = "pandas.DataFrame(scipy.io.arff.loadarff({})[0])"
OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("a spreadsheet", "pandas.read_excel({})")),
    ".dta": ("Stata's", "pandas.read_stata({})"),
    **dict.fromkeys((".sav", ".zsav"), ("SPSS's", "pandas.read_spss({})")),
    **dict.fromkeys((".sas7bdat", ".xpt"), ("SAS's", "pandas.read_sas({})")),
    ".arff": ("ARFF", ARFF),
}
"""What files of other programs are, by their endings, and how pandas reads them."""


ARROW = (".feather", ".arrow", ".arrows")
"""Endings of files and streams of Arrow, which are tables like those of Parquet."""


class Readable(Protocol):
    """What bytes are read from, some at a time; none are the end."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many."""


def kind_of(path: Path) -> str:
    """Return the kind of a table by its ending, or by that of one in a folder: Parquet, or else CSV."""
    files = path.rglob("*") if path.is_dir() else [path]
    return "parquet" if any(one.suffix in (".parquet", *ARROW) for one in files) else "csv"


def check_not_of_others(path: Path) -> None:
    """Refuse a table of another program, with the line of Python that makes Parquet of it."""
    if path.suffix.lower() in OTHERS:
        what, read = OTHERS[path.suffix.lower()]
        made = f"{read.format(repr(str(path)))}.to_parquet({str(path.with_suffix('.parquet'))!r})"
        raise InputError(f"{path}: {what}, which is not read; make Parquet of it in Python: {made}")


def spec_beside(path: Path) -> Path:
    """Return a table's spec by its name: that of a folder, or of the file before it was packed."""
    if path.is_dir():
        return path.resolve().with_name(f"{path.resolve().name}.toml")
    return (path.with_suffix("") if path.suffix in PACKED else path).with_suffix(".toml")


def check_encoding(encoding: str) -> None:
    """Raise ValueError for what is no encoding of texts."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise ValueError(
            f"'{encoding}' is not a known encoding; try 'cp1252', 'latin-1' or 'utf-16'"
        ) from None


@contextmanager
def opened(path: Path, encoding: str) -> Iterator[Readable]:
    """Lend a CSV table as bytes of UTF-8, unpacked if need be; raise InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            packed = PACKED.get(path.suffix)
            content: Readable = _Unpacked(path, file, packed) if packed else file
            yield content if codecs.lookup(encoding).name == "utf-8" else _Decoded(path, content, encoding)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); --data must name the table") from None


class _Unpacked:
    """The content of a compressed file, which unpacks to no more than any file may."""

    def __init__(self, path: Path, file: Any, packed: str) -> None:
        self._path, self._size = path, 0
        self._stream = library().CompressedInputStream(file, packed)

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""
        try:
            content: bytes = self._stream.read(size)
        except (OSError, library().ArrowException) as error:
            what = f"not whole, or damaged ({str(error).splitlines()[0]})"
            raise InputError(f"{self._path}: {what}; compress the table again") from None
        self._size += len(content)
        check_unpacked(self._path, "a table", self._size)
        return content


class _Decoded:
    """Text of another encoding as bytes of UTF-8."""

    def __init__(self, path: Path, file: Readable, encoding: str) -> None:
        self._path, self._file, self._encoding = path, file, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int, /) -> bytes:
        """Return some bytes, which may be more."""
        try:
            while content := self._file.read(size):
                if text := self._decoder.decode(content):
                    return text.encode()
            return self._decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            what = f"not a CSV table in {self._encoding}, or damaged ({error})"
            raise InputError(f"{self._path}: {what}; correct 'encoding' of the spec") from None
