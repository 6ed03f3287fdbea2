"""Parts of an alignment that need no ranks: ids, points, masks, keys, the common order, the terms."""

import os
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpifl.cli.align.ids import normal_ids, random_order
from mpifl.cli.align.order import ABSENT, places_of, rows_of
from mpifl.cli.align.terms import read_terms
from mpifl.common.errors import InputError

SECRETS = [bytes([n]) * 32 for n in range(1, 4)]
P, A = 2**255 - 19, 486662


def test_ids_are_alike_however_they_are_written():
    name = "Zoë Müller"
    spellings = [name, f"  {name}\t", unicodedata.normalize("NFD", name)]
    assert len({tuple(normal_ids("here", [one])) for one in spellings}) == 1
    assert normal_ids("here", [name]) != normal_ids("here", ["Zoe Muller"])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a", None, " ", "b"], "t.csv: person: 2 of 4 ids are empty"),
        (["a", "b", " a", "a", "b"], "t.csv: person: 3 of 5 rows have an id that an earlier row has"),
        (["\u00eb", "e\u0308"], "1 of 2 rows"),
        ([], "no rows"),
    ],
)
def test_empty_and_double_ids_are_refused_by_their_number_alone(ids, said):
    with pytest.raises(InputError) as refused:
        normal_ids("t.csv: person", ids)
    assert said in str(refused.value)


def test_an_order_is_a_permutation_and_never_the_same():
    one, other = random_order(1000), random_order(1000)
    assert sorted(one) == list(range(1000))
    assert not np.array_equal(one, other)


def elligator(hash):
    """Elligator 2 of Bernstein et al. (2013) for Curve25519, times the cofactor: u alone, whole numbers."""
    r = int.from_bytes(hash, "little") & (1 << 255) - 1
    w = -A * pow(1 + 2 * r * r, -1, P) % P
    on_curve = pow(w**3 + A * w * w + w, (P - 1) // 2, P) in (0, 1)
    u = w if on_curve else (-A - w) % P
    for _ in range(3):  # the point doubled, by u alone
        u = (u * u - 1) ** 2 * pow(4 * u * (u * u + A * u + 1), -1, P) % P
    return u.to_bytes(32, "little")


def test_points_are_elligators_and_libsodiums_own():
    bindings = pytest.importorskip("nacl.bindings")
    import hashlib

    from mpifl.cli.align.curve import Masker, montgomery

    hashes = [hashlib.sha256(bytes([n])).digest() for n in range(40)]
    mapped = [bindings.crypto_core_ed25519_from_uniform(hash) for hash in hashes]
    found = list(montgomery(mapped))
    assert found == [bindings.crypto_sign_ed25519_pk_to_curve25519(point) for point in mapped]
    assert found == [elligator(hash) for hash in hashes]
    hash = hashlib.sha256(b"mpifl align 1" + b"nonce" + b"someone").digest()
    assert Masker(1).points([b"someone"], b"nonce") == elligator(hash)
    many = [b"%d" % n for n in range(4001)]  # more than are converted together
    assert Masker(2).points(many, b"") == b"".join(Masker(1).points([one], b"") for one in many)


def ladder(secret, point):
    """X25519 as RFC 7748 writes it down."""
    k = bytearray(secret)
    k[0], k[31] = k[0] & 248, k[31] & 127 | 64
    scalar, u = int.from_bytes(k, "little"), int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3 = 1, 0, u, 1
    for t in reversed(range(255)):
        if swap := scalar >> t & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        x3, z3 = (d * a + c * b) ** 2 % P, u * (d * a - c * b) ** 2 % P
        e = a * a - b * b
        x2, z2 = a * a * b * b % P, e * (a * a + 121665 * e) % P
        if swap:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, -1, P) % P).to_bytes(32, "little")


def test_masks_go_on_in_any_order_and_by_any_number_of_threads():
    pytest.importorskip("nacl")
    from mpifl.cli.align.curve import Masker

    points = Masker().points([b"a", b"b", b"c", b"d", b"e"], b"")
    a, b, c = (Masker(threads, secret) for threads, secret in zip((1, 2, 7), SECRETS, strict=True))
    masked = a.mask(b.mask(c.mask(points)))
    assert masked == c.mask(a.mask(b.mask(points)))
    first = points[:32]
    for secret in reversed(SECRETS):
        first = ladder(secret, first)
    assert masked[:32] == first
    assert Masker().mask(points) != Masker().mask(points)


@pytest.mark.parametrize("u", [0, 1, P - 1, P])
def test_points_of_small_order_are_refused(u):
    pytest.importorskip("nacl")
    from mpifl.cli.align.curve import Masker

    with pytest.raises(InputError, match="small order"):
        Masker().mask(Masker().points([b"a"], b"") + u.to_bytes(32, "little"))


def masked(numbers):
    """Different numbers as strings of 32 bytes, some of which end in zeros."""
    return b"".join(number.to_bytes(2, "big").ljust(32, b"\0") for number in numbers)


@given(st.lists(st.lists(st.integers(1, 60), unique=True, min_size=1), min_size=2, max_size=5))
@settings(max_examples=200, deadline=None)
def test_the_common_order_is_the_intersection_sorted(sets):
    names, wanted = [f"p{n}" for n in range(len(sets))], set(sets[0]).intersection(*sets[1:])
    if not wanted:
        with pytest.raises(InputError, match="no id is common to p0 and p1"):
            places_of(names, [*map(masked, sets)])
        return
    m, places = places_of(names, [*map(masked, sets)])
    assert m == len(wanted)
    for numbers, at in zip(sets, places, strict=True):
        assert [numbers[row] for row in rows_of(at, m)] == sorted(wanted)


@pytest.mark.parametrize("harmed", [[1, 1, 2], [0, 1, 2]])
def test_masked_ids_that_no_honest_party_sends_are_refused(harmed):
    with pytest.raises(InputError, match="a masked id of party 'b' is zero, or there twice"):
        places_of(["a", "b"], [masked([1, 2, 3]), masked(harmed)])


@pytest.mark.parametrize("places", [[0, 0], [0, 2], [1, 2], [0, ABSENT], [-2, 0], [0, 1 << 62]])
def test_an_order_that_is_none_is_refused(places):
    with pytest.raises(InputError, match="no order of common rows"):
        rows_of(np.array([*places, ABSENT]), 2)


def test_a_key_is_for_its_owner_alone(tmp_path):
    from mpifl.cli.align.keyed import check_of, keyed, read_key

    path = tmp_path / "key"
    path.write_text(f"{'k' * 32}\n")
    for mode, fits in ((0o600, True), (0o400, True), (0o640, False), (0o604, False)):
        path.chmod(mode)
        if fits:
            assert read_key(path) == b"k" * 32
        else:
            with pytest.raises(InputError, match=rf"can be read by others \(mode {mode:04o}\); chmod 600"):
                read_key(path)
    path.chmod(0o600)
    path.write_text("short\n")
    with pytest.raises(InputError, match="has 5 bytes, 16 are the fewest"):
        read_key(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_key(tmp_path / "none")
    import hmac

    one = keyed(b"k" * 32, b"nonce", [b"a", b"b"])
    assert one[32:] == hmac.new(b"k" * 32, b"mpifl align idnonceb", "sha256").digest()
    assert one != keyed(b"l" * 32, b"nonce", [b"a", b"b"])
    assert check_of(b"k" * 32, "d") != check_of(b"l" * 32, "d")


TERMS = 'name = "x"\nparties = ["a", "b"]\nlabels = "b"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TERMS.replace(', "b"]', "]"), "parties: there must be two or more"),
        (TERMS.replace('["a", ', '["b", '), "parties: a name is there twice"),
        (TERMS.replace('labels = "b"', 'labels = "c"'), "labels: 'c' is not one of the parties"),
        (TERMS.replace('labels = "b"\n', ""), "labels: Field required"),
        (TERMS + "test = 0.6\nvalid = 0.4\n", "valid, test: together they leave nothing"),
        (TERMS + "seeds = 1\n", "seeds: Extra inputs"),
        (TERMS.replace('"a"', '"../a"'), "parties: 0: "),
        ("name =", "not TOML"),
    ],
)
def test_terms_that_are_none_are_refused_by_their_key(tmp_path, text, said):
    path = tmp_path / "terms.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_terms(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_terms(tmp_path / os.devnull.strip("/"))
