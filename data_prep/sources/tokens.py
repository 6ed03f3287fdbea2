"""Texts as tokens, and back: characters, bytes, or the tokens of a tokenizer that lies in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from data_prep.sources.reading import noted
from mpifl.common import InputError, sha256_of
from mpifl.common.machine import floors
from mpifl.data.shards import record_of

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

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; what is no whole character is written as U+FFFD."""
        ...


class Characters:
    """The characters of a vocabulary; nothing ends a text.

    Args:
        vocabulary: The characters, each by its number.
    """

    end: int | None = None

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.size, self._vocabulary = len(vocabulary), vocabulary
        self._numbers = {character: number for number, character in enumerate(vocabulary)}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the number of each character; raise InputError for one that the vocabulary lacks."""
        for text in texts:
            if (
                at := next((at for at, one in enumerate(text) if one not in self._numbers), None)
            ) is not None:
                line = f"line {text.count(chr(10), 0, at) + 1}: " if "\n" in text else ""
                said = f"{line}character {text[at]!r} of {text[max(0, at - 20) : at + 20]!r}"
                raise InputError(f"{said} is not among the {self.size} of the training; use another")
        return [[self._numbers[character] for character in text] for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the characters."""
        return "".join(self._vocabulary[token] for token in tokens)


class Bytes:
    """The bytes of UTF-8, and one token more that ends a text."""

    size = 257
    end: int | None = 256

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the bytes of each text."""
        return [list(text.encode()) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes, without ends."""
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


class Stored:
    """The tokenizer of a file `tokenizer.json`, as the library tokenizers reads it; no network is asked.

    Texts get no special tokens but the end.

    Args:
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

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with special tokens as they are written."""
        with _refused(self._path, "cannot decode tokens"):
            text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text


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


def encoding_by(tokenizer: str, end: str) -> dict[str, Any]:
    """Return the record of how texts became tokens: by bytes, or by the file that has this sha256."""
    by = tokenizer if tokenizer == "bytes" else sha256_of(Path(tokenizer) / FILE)
    return record_of("tokens", tokenizer=by, end=end)


def tokens_by(record: Mapping[str, Any], characters: Sequence[str] | None, folder: Path | None) -> Tokens:
    """Return what makes the tokens of a training again.

    Args:
        record: Its encoding, of the kind `characters` or `tokens`.
        characters: The names of its classes.
        folder: Where the tokenizer lies, if it is one in a file.

    Raises:
        InputError: the record is damaged, or there is no such tokenizer.
    """
    if record["kind"] == "characters":
        if not characters or any(len(one) != 1 for one in characters):
            raise InputError("class names of the shards are not characters; cut the texts again")
        return Characters(characters)
    if (by := record.get("tokenizer")) == "bytes":
        return Bytes()
    path = (folder or Path()) / FILE
    if folder is None or not path.is_file():
        said = f"no {FILE} in {folder}" if folder else "its texts became tokens by a tokenizer"
        raise InputError(f"--tokenizer: {said}; name the folder of the training's own")
    if by is not None and sha256_of(path) != by:
        raise InputError(f"--tokenizer {folder}: is another than that of the training; name its own")
    return Stored(path, str(record.get("end", "")))


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
