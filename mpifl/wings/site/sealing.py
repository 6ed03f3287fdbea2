"""Encryption of a site's data in places that others can read: they learn nothing, and changes are detected.

AES-256-SIV (RFC 5297) needs no nonce. Its initial vector is a keyed digest of the text and its labels. So no
two texts share a key stream, and the same text with the same labels has the same encrypted bytes.
"""

from __future__ import annotations

import hmac

from mpifl.common import Buffer
from mpifl.wings.site.ciphers import sealing

PIECE = 1 << 30
"""How many bytes are encrypted at a time; the library takes at most 2^31 - 1."""
TAG = 16
"""Bytes that encryption adds to a piece."""


def sealed_size(size: int) -> int:
    """Return the bytes of an encrypted text, by those of the text."""
    return size + TAG * len(range(0, max(size, 1), PIECE))


class SiteSeal:
    """Encrypts the texts of one run by the secret of one site.

    Args:
        secret: The site's secret.
        run: Identifies the run among the site's runs. A resumed run has the same value.

    Raises:
        InputError: `cryptography` is needed and not installed.
    """

    def __init__(self, secret: bytes, run: str) -> None:
        self._key = hmac.digest(secret, f"mpifl seal\0{run}".encode(), "sha512")
        sealing(self._key)  # so that a missing library is an error at the start

    def close(self, text: Buffer, *about: str | int) -> bytes:
        """Return an encrypted text.

        Args:
            text: The text, at least one byte.
            about: Its labels, such as a round and a silo. `open` needs the same labels.
        """
        seal, pieces = sealing(self._key).encrypt, _cut(text, PIECE)
        return b"".join(seal(piece, _told(about, nth, len(pieces))) for nth, piece in enumerate(pieces))

    def open(self, sealed: Buffer, *about: str | int) -> bytes:
        """Return the text of encrypted bytes, given the labels `about` of `close`.

        Raises:
            ValueError: it was altered, has other labels, or another run or site has encrypted it.
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
    """Return a piece's labels as a list; RFC 5297 keeps the elements of the list separate."""
    return [str(one).encode() for one in (*about, nth, pieces)]


def _cut(text: Buffer, size: int) -> list[memoryview]:
    view = memoryview(text).cast("B")
    return [view[start : start + size] for start in range(0, max(len(view), 1), size)]
