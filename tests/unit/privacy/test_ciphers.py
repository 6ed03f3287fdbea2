"""The primitives, held against the vectors of their standards."""

from __future__ import annotations

import pytest

from mpifl.wings.site.ciphers import Exchange, Signing, derived, keystream, signed

ALICE, BOB = (
    ("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
     "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"),
    ("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
     "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"),
)  # fmt: skip


def test_x25519_is_that_of_rfc_7748_section_6_1():
    alice, bob = (Exchange(bytes.fromhex(private)) for private, _ in (ALICE, BOB))
    assert (alice.public.hex(), bob.public.hex()) == (ALICE[1], BOB[1])
    expected = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert alice.shared(bob.public).hex() == bob.shared(alice.public).hex() == expected
    assert Exchange().public != Exchange().public


def test_ed25519_is_that_of_rfc_8032_section_7_1():
    key = Signing(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    assert key.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = key.sign(b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert signed(key.public, signature, b"")
    assert not signed(key.public, signature, b"x")
    assert not signed(key.public, b"short", b"")
    assert not signed(bytes([255] * 32), signature, b"")


def test_keys_are_derived_as_in_rfc_5869_appendix_a_1():
    key = derived(bytes([0x0B] * 22), bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert key.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


def test_the_keystream_begins_with_the_cipher_of_zero():
    """The known answer of AES-256 for key and block of zeros (NIST's AESAVS, and GCM's H of test case 13)."""
    assert keystream(bytes(32)).update(bytes(16)).hex() == "dc95c078a2408989ad48a21492842087"


@pytest.mark.parametrize("point", [bytes(32), bytes([1, *[0] * 31])])
def test_points_of_small_order_share_no_secret(point):
    with pytest.raises(ValueError):
        Exchange().shared(point)
