"""What a site seals: RFC 5297 to the byte, like chance to others, and opened as nothing but what it is."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC
from scipy import stats

from mpifl.wings.site import SiteSeal, sealing

SECRET = bytes(range(32))
TEXT = bytes(range(256)) * 40 + b"a silo's state"


def doubled(block: bytes) -> bytes:
    shifted = int.from_bytes(block, "big") << 1
    return ((shifted & (2**128 - 1)) ^ (0x87 if shifted >> 128 else 0)).to_bytes(16, "big")


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def siv(key: bytes, parts: list[bytes], text: bytes) -> bytes:
    """AES-SIV by the formulas of RFC 5297, sections 2.4 to 2.6, for texts of at least 16 bytes."""
    first, second = key[: len(key) // 2], key[len(key) // 2 :]

    def cmac(data: bytes) -> bytes:
        made = CMAC(algorithms.AES(first))
        made.update(data)
        return made.finalize()

    d = cmac(bytes(16))
    for part in parts:
        d = xor(doubled(d), cmac(part))
    v = cmac(text[:-16] + xor(text[-16:], d))
    q = int.from_bytes(v, "big") & ~(1 << 31) & ~(1 << 63)
    return v + Cipher(algorithms.AES(second), modes.CTR(q.to_bytes(16, "big"))).encryptor().update(text)


def test_what_is_sealed_is_what_the_formulas_of_the_standard_say():
    """The oracle itself first, by the nonce-based example of RFC 5297, appendix A.2."""
    key = bytes.fromhex("7f7e7d7c7b7a79787776757473727170404142434445464748494a4b4c4d4e4f")
    parts = [
        bytes.fromhex("00112233445566778899aabbccddeeffdeaddadadeaddadaffeeddccbbaa99887766554433221100"),
        bytes.fromhex("102030405060708090a0"),
        bytes.fromhex("09f911029d74e35bd84156c5635688c0"),
    ]
    text = b"this is some plaintext to encrypt using SIV-AES"
    assert siv(key, parts, text)[:16].hex() == "7bdb6e3b432667eb06f4d14bff2fbd0f"
    own = hmac.new(SECRET, b"mpifl seal\0the run", hashlib.sha512).digest()
    assert SiteSeal(SECRET, "the run").close(TEXT, "round", 3) == siv(own, [b"round", b"3", b"0", b"1"], TEXT)


def test_the_same_state_has_the_same_bytes_and_opens_again():
    sealed = SiteSeal(SECRET, "run").close(TEXT, "round", 3, "silo", 1)
    assert sealed == SiteSeal(SECRET, "run").close(memoryview(TEXT), "round", 3, "silo", 1)
    assert SiteSeal(SECRET, "run").open(sealed, "round", 3, "silo", 1) == TEXT
    assert len(sealed) == len(TEXT) + 16


@pytest.mark.parametrize("where", [0, 7, 15, 16, 17, 5000, -17, -1])
def test_a_byte_that_was_altered_is_seen(where):
    sealed = bytearray(SiteSeal(SECRET, "run").close(TEXT, 3))
    sealed[where] ^= 1
    with pytest.raises(ValueError, match="is not what this site has sealed as 3 of this run, or was altered"):
        SiteSeal(SECRET, "run").open(bytes(sealed), 3)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 5000])
def test_a_file_that_was_cut_short_or_goes_on_is_seen(length):
    sealed = SiteSeal(SECRET, "run").close(TEXT, 3)
    for altered in (sealed[:length], sealed + bytes(length + 1)):
        with pytest.raises(ValueError, match="put back that file"):
            SiteSeal(SECRET, "run").open(altered, 3)


OTHERS = {
    "round": (SECRET, "run", ("round", 10, "silo", 1)),
    "silo": (SECRET, "run", ("round", 20, "silo", 2)),
    "both": (SECRET, "run", ("round", 1, "silo", 20)),
    "glued": (SECRET, "run", ("round", 20, "silo1")),
    "more": (SECRET, "run", ("round", 20, "silo", 1, "")),
    "run": (SECRET, "other", ("round", 20, "silo", 1)),
    "run's name": (SECRET, "run\x00round", (20, "silo", 1)),
    "secret": (bytes(32), "run", ("round", 20, "silo", 1)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_another_has_sealed_or_of_something_else_does_not_open(other):
    secret, run, about = other
    sealed = SiteSeal(SECRET, "run").close(TEXT, "round", 20, "silo", 1)
    with pytest.raises(ValueError, match="is not what this site has sealed"):
        SiteSeal(secret, run).open(sealed, *about)
    assert SiteSeal(secret, run).close(TEXT, *about) != sealed


def test_sealed_bytes_are_like_chance_whatever_was_sealed():
    """Zeros, the same text about other rounds, and what two sealed texts differ in."""
    zeros = SiteSeal(SECRET, "run").close(bytes(1 << 20), 0)
    rounds = b"".join(SiteSeal(SECRET, "run").close(TEXT, round) for round in range(100))
    one, other = (SiteSeal(SECRET, "run").close(bytes([n]) + bytes(1 << 20), 0) for n in (0, 1))
    for sample in (zeros, rounds, xor(one, other)):
        counts = np.bincount(np.frombuffer(sample, np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_a_long_text_is_sealed_in_pieces_that_keep_their_places(monkeypatch):
    monkeypatch.setattr(sealing, "PIECE", 1000)
    seal = SiteSeal(SECRET, "run")
    sealed = seal.close(TEXT, 3)
    assert len(sealed) == len(TEXT) + 16 * -(-len(TEXT) // 1000)
    assert seal.open(sealed, 3) == TEXT
    swapped = sealed[1016:2032] + sealed[:1016] + sealed[2032:]
    for altered in (swapped, sealed[: 1016 * 3], sealed[1016:]):
        with pytest.raises(ValueError, match="was altered"):
            seal.open(altered, 3)
