"""Cryptographic primitives of the package `cryptography`, which is imported when one is needed."""

from __future__ import annotations

import importlib
from typing import Any

from mpifl.common import InputError
from mpifl.common.machine import floors

KEY_BYTES = 32
"""Bytes of a key: public, private or shared."""
BLOCK = 16
"""Bytes of a cipher's block. A buffer for its output needs one spare block."""


def keystream(key: bytes) -> Any:
    """Return AES-256 in counter mode, from counter 0. Use a key only once."""
    needing = "drawing in secret"
    aes = _primitives("ciphers.algorithms", needing).AES(key)
    counter = _primitives("ciphers.modes", needing).CTR(bytes(BLOCK))
    return _primitives("ciphers", needing).Cipher(aes, counter).encryptor()


def sealing(key: bytes) -> Any:
    """Return AES-SIV (RFC 5297); with a key of 64 bytes it is AES-256-SIV."""
    return _primitives("ciphers.aead", "sealing what a site keeps").AESSIV(key)


def in_pieces(key: bytes) -> Any:
    """Return AES-256 in Galois counter mode. With one key, use each nonce of 12 bytes only once."""
    return _primitives("ciphers.aead", "sealing letters").AESGCM(key)


def derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Derive a key from a secret by HKDF-SHA256 (RFC 5869)."""
    needing = "masking"
    hkdf = _primitives("kdf.hkdf", needing).HKDF
    key: bytes = hkdf(_primitives("hashes", needing).SHA256(), KEY_BYTES, salt, purpose).derive(secret)
    return key


class Exchange:
    """A key pair of X25519 (RFC 7748), kept in memory only."""

    def __init__(self, private: bytes | None = None) -> None:
        keys = _primitives("asymmetric.x25519", "a session key")
        made = keys.X25519PrivateKey.generate
        self._private = made() if private is None else keys.X25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def shared(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of a public key.

        Raises:
            ValueError: the other key lies in a small subgroup, so that anyone could compute the secret.
        """
        other = _primitives("asymmetric.x25519", "a session key").X25519PublicKey.from_public_bytes(public)
        secret: bytes = self._private.exchange(other)
        return secret


class Signing:
    """A key pair of Ed25519 (RFC 8032)."""

    def __init__(self, private: bytes) -> None:
        keys = _primitives("asymmetric.ed25519", "a signature")
        self._private = keys.Ed25519PrivateKey.from_private_bytes(private)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        signature: bytes = self._private.sign(message)
        return signature


def signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the owner of an Ed25519 key has signed a message."""
    key = _primitives("asymmetric.ed25519", "a signature").Ed25519PublicKey.from_public_bytes(public)
    try:
        key.verify(signature, message)
    except importlib.import_module("cryptography.exceptions").InvalidSignature:
        return False
    return True


def _primitives(module: str, needing: str) -> Any:
    try:
        primitives = importlib.import_module(f"cryptography.hazmat.primitives.{module}")
    except ImportError:
        what = f"{needing} needs cryptography"
        raise InputError(f"{what}; install it: pip install 'mpifl[privacy]'") from None
    floors.hold("privacy")
    return primitives
