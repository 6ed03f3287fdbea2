"""Pickles made to hurt: each ends in one line that names the file, in bounded time and memory."""

import struct

import pytest
from limited import partitioned


def doubled(times):
    """Pickle {"a": v}, v a list of twice a list of twice a list ...: 2^times numbers in some bytes each."""
    twice = b"".join(b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(times))
    return b"\x80\x02}U\x01a" + b"](" * times + b"](K\x01eq\x00" + twice + b"s."


def of_key(key):
    """Pickle a dict with one entry of this key."""
    return b"\x80\x02}" + key + b"K\x01s."


LONG = b"T" + struct.pack("<i", 1 << 24) + bytes(1 << 24) + b"q\x00"
ENCODE = b"c_codecs\nencode\nq\x01"
WIDE = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x00"
HASH = 2**61 - 1
"""Whole numbers that differ by a multiple of this have the same hash."""
PICKLES = {
    "a list of twice a list, in 213 bytes": (doubled(28), "a list within a list"),
    "a list in itself": (b"\x80\x02}U\x01a]q\x00h\x00as.", "a list within a list"),
    "a hundred thousand lists in each other": (
        b"\x80\x02}U\x01a" + b"]" * 100_000 + b"a" * 99_999 + b"s.",
        "a list within a list",
    ),
    "a key of nested tuples": (of_key(b")" + b"\x85" * 500_000), "a key is no string"),
    "a key of twice a tuple of twice a tuple": (
        of_key(
            b"K\x01\x85q\x00"
            + b"".join(b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(60))
        ),
        "a key is no string",
    ),
    "a name of twice a list of twice a list": (
        doubled(40)[:-2] + b"U\x01b\x93s.",
        "a name is no string",
    ),
    "memory places of one hash": (
        b"\x80\x02}" + b"".join(b"p%d\n" % (5 + n * HASH) for n in range(200_000)) + b".",
        "place",
    ),
    "millions of operations": (b"\x80\x02}U\x01a](" + b"K\x01" * 3_000_000 + b"es.", "operations"),
    "millions of marks": (b"\x80\x02" + b"(" * 3_000_000 + b".", "operations"),
    "millions of dicts": (b"\x80\x02" + b"}" * 30_000_000 + b".", "operations"),
    "one text a thousand times": (b"\x80\x02}U\x01a](" + LONG + b"h\x00" * 5000 + b"es.", "more than"),
    "one text encoded a thousand times": (
        b"\x80\x02}U\x01a](" + WIDE + ENCODE + b"h\x00\x85R" + b"h\x01h\x00\x85R" * 20_000 + b"es.",
        "more than",
    ),
    "one list under many keys": (
        b"\x80\x02}(U\x01a](" + b"K\x01" * 300_000 + b"eq\x00"
        + b"".join(b"U\x05%05dh\x00" % n for n in range(90_000)) + b"u.",
        "more than",
    ),
    "a length beyond the file": (b"\x80\x04}\x8e" + struct.pack("<Q", 1 << 62) + b"abc.", ""),
    "a number of millions of digits": (b"\x80\x02}U\x01aL" + b"9" * 5_000_000 + b"L\ns.", ""),
    "a number of millions of bytes": (
        b"\x80\x02}U\x01a\x8b" + struct.pack("<i", 1 << 22) + b"\x01" * (1 << 22) + b"s.",
        "LONG4",
    ),
    "an opcode's place as a long number": (b"\x80\x02}g" + b"9" * 4000 + b"\n.", ""),
    "an array of a dtype of many": (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\nK\x01\x85R(K\x01K\x00\x85cnumpy\ndtype\n"
        + b"U\x13u1,(99999999,999)f8\x85R(K\x03U\x01|tb\x89U\x00tbs.",
        "something else than numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PICKLES)
def test_a_hostile_pickle_is_refused_in_one_line(tmp_path, fault):
    content, said = PICKLES[fault]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data_batch_1").write_bytes(content)
    line = partitioned(tmp_path, "cifar10", tmp_path / "in")
    assert "data_batch_1: not a pickled dict of arrays" in line
    assert said in line


@pytest.mark.parametrize("ending", ["", ".bin"])
def test_a_batch_of_a_terabyte_is_not_read(tmp_path, ending):
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / f"data_batch_1{ending}").open("wb") as file:
        file.truncate(1 << 40)
    assert f"data_batch_1{ending}: 1,099,511,627,776 bytes" in partitioned(
        tmp_path, "cifar10", tmp_path / "in"
    )
