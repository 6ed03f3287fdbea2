"""Files made to hurt: each ends in one line that names it, in bounded time and memory."""

import functools
import gzip
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from conftest import ROOT
from limited import partitioned

from data_prep.sources.source_registry import find_source
from data_prep.tables.files.stream import pieces
from data_prep.tables.spec import read_spec
from mpifl.common.errors import InputError


def idx(*shape):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@functools.cache
def hundred_megabytes():
    """Return a gzip's member of zeros; it may have any number of them."""
    return gzip.compress(bytes(10**8), 1)


GZIPS = {
    "more than its header promises": (idx(60_000, 28, 28), 40, "holds more than the 47,040,000 values"),
    "as much as its header promises": (idx(4000, 1000, 1000), 40, "values of 4,000,000,000 bytes"),
    "a header of more than there is": (idx(2**32 - 1, 2**32 - 1, 2**32 - 1), 0, "values of 79,228,"),
    "a header of some more than there is": (idx(30_000, 1000, 1000), 0, "values of 30,000,000,000 bytes"),
}


@pytest.mark.parametrize("fault", GZIPS)
def test_a_gzip_that_expands_beyond_its_header_or_measure_is_refused(tmp_path, fault):
    header, members, said = GZIPS[fault]
    content = gzip.compress(header) + members * (hundred_megabytes() if members else b"")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train-images-idx3-ubyte.gz").write_bytes(content)
    (tmp_path / "in" / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(0)))
    line = partitioned(tmp_path, "mnist", tmp_path / "in")
    assert "train-images-idx3-ubyte.gz: " in line
    assert said in line


def described(shape="(4, 2)", descr="'<f4'", version=1, more="", values=bytes(32)):
    """Write a .npy file by hand."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {more}}}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + values


HEADERS = {
    "a shape of terabytes": (described("(1000000000000, 1000)"), "its header promises"),
    "a shape beyond all numbers": (described("(1" + "0" * 400 + ", 2)"), "header"),
    "a negative shape": (described("(-4, 2)"), "header"),
    "no shape": (described("None"), "header"),
    "a long header": (described(more=" " * 60_000), "a header of 60,"),
    "a header of 50 MB": (lambda: described(more=" " * 50_000_000, version=2), "a header of 50,"),
    "a deep header": (described(more="'a': " + "-" * 3000 + "1"), "header"),
    "a header of parentheses": (described(more="'a': " + "(" * 3000), "header"),
    "a header that is code": (described(more="'a': __import__('os').mkdir('sprung')"), "header"),
    "a dtype of gigabytes": (described("(4,)", "'<U1000000000'"), "header"),
    "a dtype of nothing": (described("(1000000000000000,)", "'<U0'"), "header"),
    "a dtype that is none": (described(descr="'what'"), "header"),
    "many axes": (described("(" + "1, " * 900 + ")"), "header"),
    "no examples of a trillion trillion": (described("(0, 1000000000000000000000000)"), "header"),
    "objects": (described(descr="'|O'"), "Python objects"),
    "half of its values": (described(values=bytes(16)), "its header promises"),
}


PACKED = ("a shape of terabytes", "a header of 50 MB", "objects", "half of its values")
"""The headers that an archive is tried with, too; with all of them by MPIFL_SLOW=1."""
HEADED = [(fault, "npy") for fault in HEADERS] + [
    pytest.param(fault, "npz", marks=[] if fault in PACKED else pytest.mark.slow) for fault in HEADERS
]


@pytest.mark.parametrize(("fault", "kind"), HEADED)
def test_a_hostile_header_of_an_array_is_refused(tmp_path, kind, fault):
    content, said = HEADERS[fault]
    content = content() if callable(content) else content
    arrays, data = {"x": content, "y": described("(4,)", "'<i8'")}, tmp_path / "in"
    if kind == "npz":
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                archive.writestr(f"{name}.npy", array)
    else:
        data.mkdir()
        for name, array in arrays.items():
            (data / f"{name}.npy").write_bytes(array)
    line = partitioned(tmp_path, kind, data)
    assert str(data) in line
    assert said in line
    assert not (ROOT / "sprung").exists()


def archive_of(path, members, method=zipfile.ZIP_DEFLATED):
    """Write a zip archive of members that come in pieces."""
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        for name, pieces in members.items():
            with archive.open(name, "w", force_zip64=True) as file:
                for piece in pieces:
                    file.write(piece)
    return path


@pytest.fixture(scope="module")
def gigabyte(tmp_path_factory):
    """An .npz file of some MB, whose x has 1.2 GB."""
    pieces = [described("(300000, 1000)", values=b""), *[bytes(10**8)] * 12]
    members = {"x.npy": pieces, "y.npy": [described("(4,)", "'<i8'")]}
    return archive_of(tmp_path_factory.mktemp("packed") / "in.npz", members)


def test_an_npz_that_unpacks_to_gigabytes_is_refused(tmp_path, gigabyte):
    assert "in.npz: arrays of 1,200,000," in partitioned(tmp_path, "npz", gigabyte)


def test_an_npz_that_lies_about_its_length_is_refused(tmp_path, gigabyte):
    with zipfile.ZipFile(gigabyte) as archive:
        true = struct.pack("<Q", archive.getinfo("x.npy").file_size)
        said = struct.pack("<I", archive.getinfo("x.npy").file_size)
    content = (
        gigabyte.read_bytes().replace(true, struct.pack("<Q", 10**8)).replace(said, struct.pack("<I", 10**8))
    )
    (tmp_path / "in.npz").write_bytes(content)
    assert "in.npz: x is damaged (its header promises 1,200," in partitioned(
        tmp_path, "npz", tmp_path / "in.npz"
    )


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_an_npz_packed_by_what_numpy_does_not_use_is_refused(tmp_path, method):
    path = archive_of(
        tmp_path / "in.npz", {"x.npy": [described()], "y.npy": [described("(4,)", "'<i8'")]}, method
    )
    assert "packed by another method than deflate" in partitioned(tmp_path, "npz", path)


@pytest.mark.parametrize(("source", "name"), [("npz", "x.npy"), ("text", "a.txt")])
def test_an_archive_of_very_many_files_is_refused(tmp_path, source, name):
    path = archive_of(tmp_path / "in.zip", {name: [b"abc"]} | {f"{n:05}": [] for n in range(30_000)})
    assert "in.zip: " in (line := partitioned(tmp_path, source, path))
    assert "a table of contents of" in line


def test_a_text_in_a_zip_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path = archive_of(tmp_path / "in.zip", {"a.txt": [b"A: b\n" * 10**7] * 6})
    assert "in.zip: a.txt has 300,000,000 bytes" in partitioned(tmp_path, "text", path)


def png(width, height, *chunks):
    """Write a PNG of that size; its pixels are lacking."""

    def chunk(kind, content):
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*one) for one in chunks) + chunk(b"IEND", b"")


IMAGES = {
    "billions of pixels": (png(60_000, 60_000), "at most 67,108,864 pixels"),
    "a hundred million pixels": (
        png(10_000, 10_000, (b"IDAT", zlib.compress(bytes(10)))),
        "at most 67,108,864 pixels",
    ),
    "a comment of 100 MB": (
        lambda: png(
            2, 2, (b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8), 1)), (b"IDAT", zlib.compress(bytes(14)))
        ),
        "image",
    ),
    "nothing but a name": (b"\x89PNG\r\n\x1a\n", "is not a PNG, JPEG or TIFF"),
    "no width": (png(0, 5), "image"),
}


@pytest.mark.parametrize("fault", IMAGES)
def test_a_hostile_image_is_refused(tmp_path, fault):
    pytest.importorskip("PIL")
    content, said = IMAGES[fault]
    content = content() if callable(content) else content
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.png").write_bytes(content)
    line = partitioned(tmp_path, "images", tmp_path / "in")
    assert "1.png: " in line
    assert said in line


def test_images_are_not_resized_beyond_measure(tmp_path):
    pytest.importorskip("PIL")
    line = partitioned(tmp_path, "images", tmp_path, "--option", "size=100000x100000")
    assert "size=100000x100000 given; it must be at most 67,108,864 pixels" in line


SPEC = 'label = "y"\n[features]\nx = "numeric"\n'
TABLES = {
    "a line of 20 MB": ((b"x,y\n1,2\n", *[b"3" * 10**6] * 20), "line 3: longer than 16,777,216 characters"),
    "a header of 20 MB": ((b"x,y", *[b",z" * 10**6] * 10), "line 1: longer than 16,777,216 characters"),
    "a field of a megabyte": ((b"x,y\n1,2\n" + b"3" * 10**6 + b",4\n",), "field larger than field limit"),
    "a quoted field without end": ((b'x,y\n1,2\n"' + b"3\n" * 10**6,), "field larger than field limit"),
    "a row of many lines": (
        (b"x,y\n1,2\n", *[b'"' + b"a" * 120 + b'\n",'] * 140_000),
        "longer than 16,777,216 characters",
    ),
    "many long rows": ((b"x,y\n", *[(b"," * 10**7 + b"\n")] * 3), "10000001 values, there are 2 columns"),
    "zeros": ((bytes(10**6),), "has a NUL character"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_hostile_table_is_refused(tmp_path, fault):
    pieces, said = TABLES[fault]
    with (tmp_path / "in.csv").open("wb") as file:
        file.writelines(pieces)
    (tmp_path / "in.toml").write_text(SPEC)
    line = partitioned(tmp_path, "csv", tmp_path / "in.csv")
    assert "in.csv: " in line
    assert said in line


@pytest.mark.parametrize(
    "content",
    ["a = " + "[" * 100_000, "a" + ".a" * 2_000_000 + " = 1", "a = 1\n" + "#" * 10_000_000],
    ids=len,
)
def test_a_hostile_spec_of_a_table_is_refused(tmp_path, content):
    (tmp_path / "in.csv").write_text("x,y\n1,2\n")
    (tmp_path / "in.toml").write_text(content)
    assert "in.toml: " in partitioned(tmp_path, "csv", tmp_path / "in.csv")


def test_a_parquet_table_that_unpacks_beyond_measure_is_refused(tmp_path, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": np.zeros(200_000), "y": np.zeros(200_000), "other": np.zeros(200_000)})
    parquet.write_table(table, tmp_path / "in.parquet", compression="zstd", use_dictionary=False)
    (tmp_path / "in.toml").write_text(SPEC)
    assert len(find_source("parquet")(tmp_path / "in.parquet", 0)) == 200_000
    monkeypatch.setattr("data_prep.tables.files.unpacking.FREE", 1 << 20)
    with pytest.raises(InputError, match=r"in\.parquet: columns of 3,2\d\d,\d* bytes out of"):
        find_source("parquet")(tmp_path / "in.parquet", 0)


def test_a_parquet_text_that_many_rows_have_is_made_once(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows, text = 4_000, "x" * 65_536
    table = pyarrow.table({"x": np.zeros(rows), "y": ["a", "b"] * (rows // 2), "word": [text] * rows})
    parquet.write_table(table, tmp_path / "in.parquet", compression="zstd")
    assert (tmp_path / "in.parquet").stat().st_size < 50_000
    (tmp_path / "in.toml").write_text('label = "y"\n[features]\nx = "numeric"\nword = "categorical"\n')
    del table
    spec = read_spec(tmp_path / "in.toml")
    tracemalloc.start()
    try:
        before = pyarrow.total_allocated_bytes()
        for piece in pieces("parquet", tmp_path / "in.parquet", spec):
            assert piece.columns["word"][0] == piece.columns["word"][-1] == text
            assert pyarrow.total_allocated_bytes() - before < 1 << 24
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()
