"""Texts as tokens: bytes, or the tokens of a tokenizer that lies in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_prep.sources.reading import noted
from mpifl.common import InputError
from mpifl.common.machine import floors

FILE = "tokenizer.json"
MOST_BYTES = 1 << 28
"""Bytes of a tokenizer; one of 250,000 tokens has 17 million."""


class Tokens(Protocol):
    """What makes tokens of texts.

    Attributes:
        size: How many different tokens there are: 0 to size - 1.
        end: The token that ends a text; None adds none.
    """

    size: int
    end: int | None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, without its end."""
        ...


class Bytes:
    """The bytes of UTF-8, and one token more that ends a text."""

    size = 257
    end: int | None = 256

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the bytes of each text."""
        return [list(text.encode()) for text in texts]


class Stored:
    """The tokenizer of a file `tokenizer.json`, as the library tokenizers reads it; no network is asked.

    Texts get no special tokens but the end.

    Args:
        path: The file.
        end: The token that ends a text, as it is written; none if empty.

    Raises:
        InputError: the file is no tokenizer, or has no such token.
    """

    def __init__(self, path: Path, end: str) -> None:
        library, self._path = _library(), path
        with _refused(path, "not a tokenizer of the library tokenizers"):
            self._tokenizer = library.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.size = 1 + max(self._tokenizer.get_vocab().values(), default=0)
        self.end: int | None = self._tokenizer.token_to_id(end) if end else None
        if end and self.end is None:
            raise InputError(f"--option: end={end} given; {path} has no such token")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text."""
        with _refused(self._path, "cannot encode a text"):
            found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]


def tokens_of(tokenizer: str, end: str, files: dict[str, str]) -> Tokens:
    """Return what makes tokens: `bytes`, or the tokenizer in a folder, whose sha256 is noted in `files`."""
    if tokenizer == "bytes":
        if end:
            raise InputError(
                f"--option: end={end} given, and tokenizer=bytes has an end of its own; leave it out"
            )
        return Bytes()
    path = Path(tokenizer) / FILE
    if not path.is_file():
        has = f"tokenizer={tokenizer} given, a folder without {FILE}"
        raise InputError(f"--option: {has}; name one that has it, or say tokenizer=bytes")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a tokenizer has at most {MOST_BYTES:,}")
    return Stored(noted(path, files), end)


@contextmanager
def _refused(path: Path, what: str) -> Iterator[None]:
    """Say that the library refused a file: it raises nothing more special, and a panic of Rust is no
    Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise InputError(f"{path}: {what} ({str(error)[:100]}); save it again with Tokenizer.save") from None


def _library() -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError("SOURCE: a tokenizer needs tokenizers; pip install 'mpifl[text]'") from None
    floors.hold("text")
    return Tokenizer
