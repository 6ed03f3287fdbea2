"""The format of letters: a signed header, a sealed record, and vectors in sealed pieces.

    NNNNNN-KIND.msg = "MPIFLS01" | u32 length | header | Ed25519 signature, 64 bytes | sealed contents
    NNNNNN-KIND-SHA.part = a sealed piece of the vectors, 8 MiB of plain bytes at most

The header is JSON. The signature covers b"mpifl letter 1\\0" and the header. Contents and pieces are sealed
by AES-256-GCM with a key of this letter alone: HKDF-SHA256 of what X25519 makes of both sides' run keys, with
a salt that is drawn for each letter. The nonce is the number of the piece, and the contents are piece 0. The
header has the digest of the contents, and the contents those of the pieces. A reader goes by tags of pieces.
All is closed and opened piece by piece.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.common import InputError, write_atomic
from mpifl.wings.site import Exchange, Identity, derived, has_signed, in_pieces
from mpifl.wings.sites.letters.letter_format import (
    PAD,
    PIECE,
    TAG,
    LetterContents,
    LetterHeader,
    Scratch,
    at_once,
    decrypt_into,
    lengths_of,
    nonce_of,
    padded,
    read_record,
    spans_of,
    unpadded,
)
from mpifl.wings.sites.letters.letter_names import LetterFault, LetterName, NotThere, letter_of
from mpifl.wings.sites.letters.letter_records import (
    LAST_NUMBER,
    MOST_OF,
    LetterRecord,
    SignedHeader,
)
from mpifl.wings.sites.letters.piece_files import write_piece
from mpifl.wire import DTYPES, MOST_SCALARS

MAGIC, SIGNATURE = b"MPIFLS01", 64
MOST_HEADER, MOST_LIST = 1 << 16, 2 << 20
"""Bytes of a header, and of the contents beside the record: names of vectors and digests of pieces."""
PURPOSE = "letter"
Get = Callable[[str, int, int], bytes]
"""Returns bytes of a file: (name, start, length)."""
Stage = Callable[[str, memoryview], None]
"""Takes a piece before it leaves: (name, content)."""


def most_bytes(name: str) -> int:
    """Return how long a file of a letter may be, at most; 0 for other names."""
    if (letter := letter_of(name)) is None:
        return 0
    head = len(MAGIC) + 4 + MOST_HEADER + SIGNATURE
    return PIECE + TAG if name.endswith(".part") else head + MOST_OF[letter.kind] + MOST_LIST + PAD + TAG


@dataclass(frozen=True)
class Sealed:
    """A letter that is closed: files in the sender's own folder.

    Attributes:
        parts: The names of its pieces.
        sha256: The digest of the letter's file, and through it of all pieces.
        bytes: Of the letter and its pieces.
        lengths: Elements of each vector.
    """

    name: LetterName
    record: LetterRecord
    parts: tuple[str, ...]
    sha256: str
    bytes: int
    lengths: Mapping[str, int]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all its files, the letter last."""
        return *self.parts, self.name.file


@dataclass(frozen=True)
class Letter:
    """A letter that was opened.

    Attributes:
        n: Its number.
        record: Its record; the class is the letter's kind.
        vectors: Its vectors, on the CPU.
        signed: Its header and signature, which can be passed on (`header_of`).
        key: In a hello, the site's run key.
        bytes: Of the letter and its pieces.
    """

    n: int
    record: Any
    vectors: Mapping[str, Tensor]
    signed: SignedHeader
    key: str | None
    bytes: int

    @property
    def sha256(self) -> str:
        """The digest of the header, by which a welcome names a hello."""
        return hashlib.sha256(self.signed.header.encode()).hexdigest()


@dataclass(frozen=True)
class Opening:
    """A letter whose header is valid and whose contents are not opened yet."""

    header: LetterHeader
    signed: SignedHeader
    start: int
    """Where the sealed contents begin in the file."""

    @property
    def size(self) -> int:
        """Bytes of the letter's file."""
        return self.start + self.header.length


class Post:
    """Closes and opens letters between two parties of one run.

    Attributes:
        run: The run's id.
        other: The public key of the other party's identity.
        other_key: The other party's run key; None at the coordinator until the site's hello.

    Args:
        identity: Signs.
        exchange: This party's run key.
        largest: Bytes of all vectors of a letter that is read, at most.
    """

    def __init__(
        self,
        run: str,
        identity: Identity,
        exchange: Exchange,
        other: str,
        other_key: str | None,
        largest: int,
    ) -> None:
        self.run, self.other, self.other_key = run, other, other_key
        self._identity, self._exchange, self._largest = identity, exchange, largest
        self._secrets: dict[str, bytes] = {}

    def close(
        self,
        n: int,
        record: LetterRecord,
        vectors: Mapping[str, Tensor],
        folder: Path,
        stage: Stage | None = None,
    ) -> Sealed:
        """Close a letter into files of a folder.

        Args:
            stage: Is given each piece while it is in memory, too.

        Raises:
            InputError: the number, the record or the vectors are beyond their bounds.
            OSError: the files cannot be written.
        """
        name, most = LetterName(n, record.kind), MOST_OF[record.kind]
        if not 0 <= n <= LAST_NUMBER or len(record.encode()) > most or len(vectors) > MOST_SCALARS:
            bounds = f"numbers up to {LAST_NUMBER}, {most} bytes of JSON and {MOST_SCALARS} vectors"
            raise InputError(f"letter {name.file}: letters of this kind have {bounds} at most")
        about: dict[str, str | int] = {"run": self.run, "kind": record.kind, "to": self.other}
        about |= {"sender": self._identity.public} | {"n": n, "salt": os.urandom(32).hex()}
        cipher = in_pieces(self._key(about))
        held = [vector.detach().cpu().contiguous() for vector in vectors.values()]
        lengths = lengths_of(sum(vector.nbytes for vector in held))
        written = _writing(cipher, name, folder, stage)
        found = at_once(written, range(1, len(lengths) + 1), lengths, spans_of(held, lengths))
        parts = tuple(map(name.part, found))
        contents = LetterContents.of(record, vectors, found).encode()
        body = cipher.encrypt(nonce_of(0), padded(contents), None)
        about |= {"length": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        key = self._exchange.public.hex() if record.kind == "hello" else None
        header = LetterHeader.model_validate({**about, "key": key}).encode()
        signature = bytes.fromhex(self._identity.sign(PURPOSE, header))
        letter = b"".join([MAGIC, struct.pack("<I", len(header)), header, signature, body])
        write_atomic(folder / name.file, letter, 0o600)
        digest = hashlib.sha256(letter).hexdigest()
        size = len(letter) + sum(lengths) + TAG * len(lengths)
        told = {key: vector.numel() for key, vector in vectors.items()}
        return Sealed(name, record, parts, digest, size, told)

    def look(self, name: LetterName, get: Get) -> Opening:
        """Return a letter's header, whose signature is valid.

        Raises:
            NotThere: this is no letter from the other party to this one, of this run, kind and number.
            LetterFault: the other party has signed it, and it is no header.
        """
        start = get(name.file, 0, 12 + MOST_HEADER + SIGNATURE)
        length = struct.unpack("<I", start[8:12])[0] if len(start) >= 12 and start[:8] == MAGIC else -1
        at = 12 + length
        header, signature = start[12:at], start[at : at + SIGNATURE].hex()
        if not 0 < length <= MOST_HEADER or len(signature) < 2 * SIGNATURE:
            raise NotThere(f"{name.file}: is no letter")
        if not has_signed(self.other, PURPOSE, signature, header):
            raise NotThere(f"{name.file}: is not signed by {self.other[:8]}...")
        told = read_record(LetterHeader, header, f"{name.file}: its header")
        wanted = (self.run, name.kind, self.other, self._identity.public, name.n)
        if (told.run, told.kind, told.sender, told.to, told.n) != wanted:
            raise NotThere(f"{name.file}: is a letter of another run, kind, number or receiver")
        if (told.key is None) is (name.kind == "hello"):
            raise LetterFault(f"{name.file}: a hello names a run key, and no other letter does")
        return Opening(told, SignedHeader(header=header.decode(), signature=signature), at + SIGNATURE)

    def open(
        self, name: LetterName, opening: Opening, get: Get, sizes: Mapping[str, int], threads: int = 1
    ) -> Letter:
        """Return a letter.

        Args:
            get: Returns bytes of a file.
            sizes: Bytes of each file that is there.
            threads: How many threads may call `get` at a time.

        Raises:
            NotThere: it is not whole.
            LetterFault: what is inside is wrong.
        """
        header = opening.header
        if header.length > MOST_OF[name.kind] + MOST_LIST + PAD + TAG:
            raise LetterFault(f"{name.file}: its contents have {header.length} bytes, which are too many")
        body = get(name.file, opening.start, header.length)
        if len(body) != header.length or hashlib.sha256(body).hexdigest() != header.sha256:
            raise NotThere(f"{name.file}: is not whole")
        cipher = in_pieces(self._key(header.model_dump(), header.key))
        plain = bytearray(max(len(body) - TAG, 0))
        decrypt_into(cipher, 0, body, plain, name.file, header.sha256)
        told = read_record(LetterContents, unpadded(bytes(plain)), name.file)
        lengths = told.lengths(name, self._largest)
        names = [name.part(digest) for digest in told.pieces]
        for part, length in zip(names, lengths, strict=True):
            if sizes.get(part, 0) != length + TAG:
                have = f"{sizes.get(part, 0) >> 10} of {length + TAG >> 10} KiB"
                raise NotThere(f"{part}: {have} are there")
        vectors = {one.name: torch.empty(one.length, dtype=DTYPES[one.dtype]) for one in told.vectors}
        scratch = Scratch()

        def read(nth: int, part: str, digest: str, length: int, spans: list[memoryview]) -> None:
            plain = spans[0] if len(spans) == 1 else scratch.piece(length)
            decrypt_into(cipher, nth, get(part, 0, length + TAG), plain, part, digest)
            for span in spans if len(spans) > 1 else ():
                span[:] = plain[: len(span)]
                plain = plain[len(span) :]

        room = spans_of(vectors.values(), lengths)
        at_once(read, range(1, len(lengths) + 1), names, told.pieces, lengths, room, threads=threads)
        whole = opening.size + sum(lengths) + TAG * len(lengths)
        return Letter(header.n, told.record, vectors, opening.signed, header.key, whole)

    def _key(self, header: Mapping[str, Any], key: str | None = None) -> bytes:
        """Return the key of one letter.

        Args:
            header: Its header.
            key: The other party's run key, where the header has it: in a hello.
        """
        theirs = key or self.other_key
        if theirs is None:
            raise NotThere(f"the run key of {self.other[:8]}... is not known yet")
        if theirs not in self._secrets:
            try:
                self._secrets = {theirs: self._exchange.shared(bytes.fromhex(theirs))}
            except ValueError:
                raise LetterFault(f"the run key {theirs[:8]}... gives a secret that all know") from None
        said = [header[one] for one in ("run", "kind", "sender", "to", "n")]
        return derived(self._secrets[theirs], bytes.fromhex(header["salt"]), f"mpifl letter {said}".encode())


def _writing(
    cipher: Any, name: LetterName, folder: Path, stage: Stage | None
) -> Callable[[int, int, list[memoryview]], str]:
    """Return what seals a piece, writes it to the folder and returns its digest; see `Post.close`."""
    scratch = Scratch()

    def written(nth: int, length: int, spans: list[memoryview]) -> str:
        sealed = scratch.piece(length + TAG)
        cipher.encrypt_into(nonce_of(nth), spans[0] if len(spans) == 1 else b"".join(spans), None, sealed)
        found = hashlib.sha256(sealed).hexdigest()
        if stage is not None:
            stage(name.part(found), sealed)
        write_piece(folder / name.part(found), sealed)  # the disk writes while others are sealed
        return found

    return written


def header_of(run: str, kind: str, key: str, signed: SignedHeader) -> LetterHeader:
    """Return a header that its reader has passed on.

    Raises:
        LetterFault: the owner of the key has not signed it, or it is of another run or kind.
    """
    if not has_signed(key, PURPOSE, signed.signature, signed.header.encode()):
        raise LetterFault(f"a header is passed on as that of {key[:8]}..., who has not signed it")
    told = read_record(LetterHeader, signed.header.encode(), "a header that is passed on")
    if (told.run, told.kind, told.sender) != (run, kind, key):
        raise LetterFault(f"a header that is passed on is of another run or kind ({told.kind})")
    return told
