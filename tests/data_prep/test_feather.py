"""Tables of Arrow, as Feather files are: the numbers of a Parquet table, within limits, or one line."""

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from data_prep.tables.files import lines as limits
from mpifl.common import InputError

pyarrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")
SPEC = """
label = "y"
[features]
a = { kind = "numeric", missing = "mean" }
town = { kind = "categorical", missing = "level" }
seen = { kind = "date", since = "2020-01-01" }
"""


def table(rows=500):
    draw = np.random.default_rng(3)
    towns = pyarrow.array([None if n % 7 == 0 else ["Köln", "Łódź"][n % 2] for n in range(rows)])
    return pyarrow.table({
        "y": pyarrow.array([["no", "yes"][n % 3 == 0] for n in range(rows)], pyarrow.large_string()),
        "a": pyarrow.array([None if n % 11 == 0 else one for n, one in enumerate(draw.normal(size=rows))]),
        "town": towns.dictionary_encode(),
        "lists": pyarrow.array([[n] for n in range(rows)]),
        "seen": pyarrow.array(draw.integers(0, 10**12, rows), pyarrow.timestamp("ms", "UTC")),
    })  # fmt: skip


def in_batches(opened, path, rows):
    with opened(path, rows.schema) as out:
        for batch in rows.to_batches(max_chunksize=70):
            out.write_batch(batch)


WRITERS = {
    "lz4.feather": lambda path, rows: feather.write_feather(rows, path),
    "zstd.feather": lambda path, rows: feather.write_feather(rows, path, compression="zstd", chunksize=70),
    "plain.feather": lambda path, rows: feather.write_feather(rows, path, compression="uncompressed"),
    "file.arrow": lambda path, rows: in_batches(ipc.new_file, path, rows),
    "stream.arrows": lambda path, rows: in_batches(ipc.new_stream, path, rows),
}


def written(folder, name, rows, spec=SPEC):
    folder.mkdir(exist_ok=True)
    WRITERS[name](folder / name, rows)
    (folder / name).with_suffix(".toml").write_text(spec)
    return folder / name


def refused(path, kind="parquet"):
    with pytest.raises(InputError) as refusal:
        find_source(kind)(path, 0)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_of_arrow_gives_the_numbers_of_parquet(tmp_path, monkeypatch, name):
    rows = table()
    parquet.write_table(rows, tmp_path / "t.parquet")
    (tmp_path / "t.toml").write_text(SPEC)
    wanted = find_source("parquet")(tmp_path / "t.parquet", 0)
    path = written(tmp_path / "in", name, rows)
    for most in (limits.ROWS, 64):
        monkeypatch.setattr(limits, "ROWS", most)
        found = find_source("parquet")(path, 0)
        assert np.asarray(found.x).tobytes() == np.asarray(wanted.x).tobytes()
        assert (found.y.tolist(), found.feature_names) == (wanted.y.tolist(), wanted.feature_names)


def test_a_folder_of_feather_files_is_one_table_and_draft_reads_it(tmp_path, capsys):
    for number, ward in enumerate(["north", "south"]):
        WRITERS["lz4.feather"](tmp_path / f"t-{number}.feather", table().drop_columns("lists"))
        (tmp_path / f"in/ward={ward}").mkdir(parents=True)
        (tmp_path / f"t-{number}.feather").rename(tmp_path / f"in/ward={ward}/t.feather")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "draft",
                str(tmp_path / "in"),
                "--label",
                "y",
                "--silo",
                "ward",
                "--out",
                str(tmp_path / "in.toml"),
            ]
        )
    assert not ended.value.code
    found = find_source("parquet")(tmp_path / "in", 0)
    assert (len(found), found.silo_names) == (1000, {0: "north", 1: "south"})


def test_a_table_of_arrow_that_unpacks_beyond_measure_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    rows = pyarrow.table({"x": np.zeros(1 << 20), "y": np.zeros(1 << 20)})
    spec = 'label = { kind = "numeric", column = "y" }\n[features]\nx = "numeric"\n'
    path = written(tmp_path, "zstd.feather", rows, spec)
    feather.write_feather(rows, path, compression="zstd", chunksize=1 << 20)
    assert len(find_source("parquet")(path, 0)) == 1 << 20
    monkeypatch.setattr("data_prep.tables.files.unpacking.FREE", 1 << 20)
    before = pyarrow.total_allocated_bytes()
    assert "zstd.feather: columns of 16,777,216 bytes out of" in refused(path)
    assert pyarrow.total_allocated_bytes() - before < 1 << 20
    words = pyarrow.table({"x": np.zeros(9), "y": pyarrow.array(["x" * (1 << 21)] * 9).dictionary_encode()})
    path = written(tmp_path, "lz4.feather", words, 'label = "y"\n[features]\nx = "numeric"\n')
    assert "lz4.feather: columns of 2,097," in refused(path)


def test_a_column_of_lists_is_named(tmp_path):
    path = written(tmp_path, "lz4.feather", table(), f'{SPEC}lists = "numeric"\n')
    assert "lz4.feather: column 'lists' is list<" in (said := refused(path))
    assert "remove it from the table, or make plain columns of it" in said


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"ARROW1\0\0", b"FEA1" + bytes(60), b"a,y\n1,2\n" * 9])
def test_what_is_no_table_of_arrow_is_one_line(tmp_path, content):
    (tmp_path / "t.feather").write_bytes(content)
    (tmp_path / "t.toml").write_text(SPEC)
    assert refused(tmp_path / "t.feather").startswith(f"{tmp_path / 't.feather'}: ")


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_of_arrow_that_is_cut_short_is_one_line(tmp_path, name):
    path = written(tmp_path, name, table())
    content = path.read_bytes()
    for size in range(0, len(content) - 700, 97):
        path.write_bytes(content[:size])
        refused(path)


def test_a_table_that_is_read_as_the_other_kind_names_its_source(tmp_path):
    path = written(tmp_path, "lz4.feather", table())
    assert refused(path, "csv").endswith("read as csv, and named as parquet; give parquet as the source")
    (tmp_path / "t.csv").write_text("a,y\n")
    (tmp_path / "t.toml").write_text(SPEC)
    assert refused(tmp_path / "t.csv").endswith("read as parquet, and named as csv; give csv as the source")
