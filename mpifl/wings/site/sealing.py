"""What a site keeps where others may look: sealed, so that it tells them nothing and no change goes unseen.

AES-256-SIV (RFC 5297) seals without a nonce. Its initial vector is a keyed digest of the text and of what it
is about. So no two texts share a key stream, and the same text has the same sealed bytes.
"""

from __future__ import annotations

import hmac

from mpifl.common import Buffer
from mpifl.wings.site.ciphers import sealing

PIECE = 1 << 30
"""Bytes that are sealed at a time; the library takes 2^31 - 1 at most."""
TAG = 16
"""Bytes that sealing adds to a piece."""


class SiteSeal:
    """Seals the texts of one run by the secret of one site.

    Args:
        secret: The site's.
        run: What tells this run from others of the site; the same when it goes on.

    Raises:
        InputError: `cryptography` is needed and not there.
    """

    def __init__(self, secret: bytes, run: str) -> None:
        self._key = hmac.digest(secret, f"mpifl seal\0{run}".encode(), "sha512")
        sealing(self._key)  # which says at the start what is not installed

    def close(self, text: Buffer, *about: str | int) -> bytes:
        """Return a text of at least one byte, sealed.

        Args:
            text: What nobody else is to read.
            about: What it is of, such as a round and a silo; as nothing else does it open.
        """
        seal, pieces = sealing(self._key).encrypt, _cut(text, PIECE)
        return b"".join(seal(piece, _told(about, nth, len(pieces))) for nth, piece in enumerate(pieces))

    def open(self, sealed: Buffer, *about: str | int) -> bytes:
        """Return the text that was sealed about the same.

        Raises:
            ValueError: it was altered, is about something else, or another run or site has sealed it.
        """
        from cryptography.exceptions import InvalidTag

        unseal, pieces = sealing(self._key).decrypt, _cut(sealed, PIECE + TAG)
        try:
            return b"".join(unseal(piece, _told(about, nth, len(pieces))) for nth, piece in enumerate(pieces))
        except InvalidTag:
            what = f"is not what this site has sealed as {' '.join(map(str, about))} of this run"
            to_do = "put back that file, or the key in the site's folder"
            raise ValueError(f"{what}, or was altered; {to_do}") from None


def _told(about: tuple[str | int, ...], nth: int, pieces: int) -> list[bytes]:
    """Return what a piece is of, as a list whose parts RFC 5297 keeps apart."""
    return [str(one).encode() for one in (*about, nth, pieces)]


def _cut(text: Buffer, size: int) -> list[memoryview]:
    view = memoryview(text).cast("B")
    return [view[start : start + size] for start in range(0, max(len(view), 1), size)]
