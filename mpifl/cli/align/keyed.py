"""Keyed hashes of ids, for parties that share a key. Without the key they reveal nothing."""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mpifl.common import InputError, read_whole

LEAST, MOST = 16, 4096
"""The fewest and the most bytes of a key."""
_MAKE = "make one by: (umask 077; openssl rand -hex 32 > align.key)"


def read_key(path: Path) -> bytes:
    """Return the key in a file, without the end of the line; refuse a file that others can read."""
    try:
        found = path.stat()
        key = read_whole(path, MOST).strip()
    except OSError as error:
        raise InputError(f"--key: {path} cannot be read ({error.strerror}); {_MAKE}") from None
    if found.st_uid != os.getuid():
        raise InputError(f"--key: {path} belongs to another user; make a copy that is yours alone")
    if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
        raise InputError(f"--key: {path} can be read by others (mode {mode:04o}); chmod 600 {path}")
    if len(key) < LEAST:
        raise InputError(f"--key: {path} has {len(key)} bytes, {LEAST} are the fewest; {_MAKE}")
    return key


def keyed(key: bytes, nonce: bytes, ids: Iterable[bytes]) -> bytes:
    """Return HMAC-SHA-256 of each id, 32 bytes each."""
    return b"".join(hmac.digest(key, b"mpifl align id" + nonce + id, "sha256") for id in ids)


def check_of(key: bytes, digest: str) -> str:
    """Return a digest that is equal at two parties if their keys are, and reveals nothing else of a key."""
    return hmac.digest(key, b"mpifl align key" + digest.encode(), "sha256").hex()
