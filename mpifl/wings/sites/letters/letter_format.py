"""What letters are made of: the header and contents as JSON, and the bytes of vectors in pieces."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar, cast

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from mpifl.common import Buffer
from mpifl.wings.site import PublicKey
from mpifl.wings.sites.letters.letter_names import LetterFault, LetterName, NotThere
from mpifl.wings.sites.letters.letter_records import AnyRecord, LetterKind, LetterRecord, Number, RunId
from mpifl.wire import DTYPES, MOST_SCALARS, Count, Digest, Message, VectorSpec

PAD = 4096
PIECE = 8 << 20
"""Plain bytes of a piece of the vectors."""
TAG = 16
"""Bytes that a sealed piece is longer than its plain bytes."""
AT_ONCE = 4
"""How many pieces are sealed, written or read at a time: ciphers, digests and disks leave Python's lock."""
_Made = TypeVar("_Made")
_Kind = TypeVar("_Kind", bound=Message)


class Scratch(threading.local):
    """Memory of each thread for one piece, used again for the next: new memory costs more than sealing. It
    begins at a page, for direct writing."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, PIECE + TAG)

    def piece(self, length: int) -> memoryview:
        """Return the memory for a piece."""
        return memoryview(self._memory)[:length]


class LetterHeader(Message):
    """What a letter shows to those who carry it, signed by its sender.

    Attributes:
        sender, to: The identities' public keys.
        length, sha256: Of the sealed contents.
        key: In a hello, the site's run key: a public X25519 key.
    """

    format: Literal[1] = 1
    run: RunId
    kind: LetterKind
    sender: PublicKey
    to: PublicKey
    n: Number
    salt: Digest
    length: Count
    sha256: Digest
    key: PublicKey | None = None


class LetterContents(Message):
    """What is sealed in a letter: its record, its vectors, and the digests of their sealed pieces."""

    record: AnyRecord
    vectors: list[VectorSpec] = Field(default=[], max_length=MOST_SCALARS, fail_fast=True)
    pieces: list[Digest] = Field(default=[], fail_fast=True)

    @classmethod
    def of(cls, record: LetterRecord, vectors: Mapping[str, Tensor], pieces: list[str]) -> LetterContents:
        """Return the contents of a letter that is written."""
        return cls.model_construct(record=cast(AnyRecord, record), vectors=specs_of(vectors), pieces=pieces)

    def lengths(self, name: LetterName, most: int) -> list[int]:
        """Return the plain bytes of each piece.

        Args:
            name: What the letter is called.
            most: Bytes of all vectors, at most.

        Raises:
            LetterFault: record, vectors and pieces do not go together.
        """
        if self.record.kind != name.kind or len({one.name for one in self.vectors}) != len(self.vectors):
            raise LetterFault(f"{name.file}: is a record of another kind, or names a vector twice")
        if odd := [one.dtype for one in self.vectors if one.dtype not in DTYPES]:
            raise LetterFault(f"{name.file}: a vector of {odd[0][:20]!r}; it takes {', '.join(DTYPES)}")
        whole = sum(one.length * DTYPES[one.dtype].itemsize for one in self.vectors)
        if whole > most:
            what = f"has {whole} bytes of vectors, and this run has {most} at most"
            raise LetterFault(f"{name.file}: {what}")
        if len(self.pieces) != -(-whole // PIECE):
            raise LetterFault(f"{name.file}: {len(self.pieces)} pieces for {whole} bytes of vectors")
        return lengths_of(whole)


def lengths_of(whole: int) -> list[int]:
    """Return how many plain bytes each piece has, of so many bytes of vectors."""
    return [min(PIECE, whole - start) for start in range(0, whole, PIECE)]


def read_record(kind: type[_Kind], text: bytes, what: str) -> _Kind:
    """Return what a signed JSON text holds.

    Raises:
        LetterFault: it is something else.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        advice = "let both sides run the same version of mpifl"
        raise LetterFault(f"{what}: {place or 'JSON'}: {first['msg'][:120]}; {advice}") from None


def specs_of(vectors: Mapping[str, Tensor]) -> list[VectorSpec]:
    """Return what announces the vectors."""

    def dtype(vector: Tensor) -> str:
        return str(vector.dtype).removeprefix("torch.")

    return [VectorSpec(name=name, length=v.numel(), dtype=dtype(v)) for name, v in vectors.items()]


def _bytes_of(vector: Tensor) -> memoryview:
    found: memoryview = vector.reshape(-1).view(torch.uint8).numpy().data
    return found


def at_once(work: Callable[..., _Made], *given: Iterable[Any], threads: int = AT_ONCE) -> list[_Made]:
    """Return what is made of each of some things, several at a time; raise the first one's error."""
    todo = [*zip(*given, strict=False)]
    if min(len(todo), threads) < 2:
        return [work(*one) for one in todo]
    with ThreadPoolExecutor(min(len(todo), threads), "mpifl-letters") as pool:
        return [*pool.map(lambda one: work(*one), todo)]


def spans_of(vectors: Iterable[Tensor], lengths: Sequence[int]) -> Iterator[list[memoryview]]:
    """Yield for each piece the places of its bytes in the vectors."""
    rest = [_bytes_of(vector) for vector in vectors if vector.numel()][::-1]
    for length in lengths:
        found = list[memoryview]()
        for _ in range(len(rest)):
            if not length:
                break
            view = rest.pop()
            found.append(view[:length])
            if len(view) > length:
                rest.append(view[length:])
            length -= len(found[-1])
        yield found


def decrypt_into(
    cipher: Any, nth: int, sealed: Buffer, plain: bytearray | memoryview, name: str, sha256: str
) -> None:
    """Open a piece into memory of its plain bytes' length; 0 are the contents.

    Raises:
        NotThere: it is not what was sealed.
        LetterFault: another key has sealed it.
    """
    from cryptography.exceptions import InvalidTag

    with contextlib.suppress(InvalidTag):
        if len(sealed) == len(plain) + TAG:
            cipher.decrypt_into(nonce_of(nth), sealed, None, plain)
            return
    if hashlib.sha256(sealed).hexdigest() != sha256:
        raise NotThere(f"{name}: is not whole")
    what = "does not open by this run's key here"
    raise LetterFault(f"{name}: {what}; take the private folder with which this run began")


def nonce_of(nth: int) -> bytes:
    """Return the nonce of a piece; 0 are the contents."""
    return nth.to_bytes(12, "big")


def padded(text: bytes) -> bytes:
    """Return a text with its length before it and zeros behind it, so that its length shows little."""
    plain = struct.pack("<I", len(text)) + text
    return plain + bytes(-len(plain) % PAD)


def unpadded(plain: bytes) -> bytes:
    """Return the text of `_padded`; for other bytes some text that is no JSON."""
    return plain[4 : 4 + int.from_bytes(plain[:4], "little")]
