"""Where each example was given: the number of its row before any shuffle, and its id where a site asks."""

import json

import h5py
import numpy as np
import pytest
from conftest import with_usual

from data_prep.check import check, faults
from data_prep.cli import main
from mpifl.common import ShardError, sha256_of
from mpifl.data.shards import open_shard, provenance_of, read_federation, texts_of


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


SPEC = """label = "ill"
features = {{ age = {{ kind = "numeric", missing = "drop" }} }}
{}
"""


@pytest.fixture
def table(tmp_path):
    """Forty patients by their ages, of whom each seventh has none and is left out; ages tell the rows."""
    ages = ["" if row % 7 == 3 else str(row) for row in range(40)]
    lines = [f"P-{100 + row} \u00e9,{age},{row % 2}" for row, age in enumerate(ages)]
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(["patient_id,age,ill", *lines]) + "\n", encoding="utf-8")
    path.with_suffix(".toml").write_text(SPEC.format('id = "patient_id"'))
    return path


def cut(source, data, out, *more):
    words = with_usual(more, scheme="iid", silos=3, valid=0.2)
    assert command("partition", source, "--data", data, "--out", out, *words) == 0
    return read_federation(out)


def told(folder, spec):
    """Yield the features of each example [n, ...], and where it was given."""
    entries = [*spec.silos, *(one for one in (spec.test, spec.public) if one)]
    for entry in entries:
        shard, given = open_shard(folder, entry, spec), provenance_of(folder, entry)
        for split in shard.splits:
            yield entry.name, np.asarray(shard[split].x), given.get(split)


@pytest.mark.parametrize(
    "more", [[], ["--compression", "gzip"], ["--public", 0.2], ["--scheme", "dirichlet"]]
)
def test_every_example_of_a_table_is_told_by_its_row_and_id(tmp_path, table, more):
    spec, seen = cut("csv", table, tmp_path / "out", *more), []
    for name, x, given in told(tmp_path / "out", spec):
        assert given.rows.tolist() == x[:, 0].astype(int).tolist()
        if name == "public":
            assert given.ids is None
        else:
            assert texts_of(given.ids).tolist() == [f"P-{100 + row} \u00e9" for row in given.rows]
        seen += given.rows.tolist()
    assert sorted(seen) == [row for row in range(40) if row % 7 != 3]
    assert "P-1" not in (tmp_path / "out" / "federation.json").read_text()


def test_what_shards_keep_is_the_sites_to_say(tmp_path, table):
    folders = {keep: tmp_path / keep for keep in ("row", "id", "none")}
    found = {keep: cut("csv", table, out, "--keep", keep) for keep, out in folders.items()}
    names = {}
    for keep, spec in found.items():
        with h5py.File(folders[keep] / spec.silos[0].file) as file:
            names[keep] = set(file["train"])
    assert names == {
        "none": {"x", "y"},
        "row": {"x", "y", "row"},
        "id": {"x", "y", "row", "id", "id.offsets"},
    }
    assert len({spec.silos[0].sha256 for spec in found.values()}) == 3


def test_without_an_id_in_the_spec_rows_alone_are_kept_and_ids_can_be_named(tmp_path, table, capsys):
    table.with_suffix(".toml").write_text(SPEC.format(""))
    spec = cut("csv", table, tmp_path / "rows")
    assert all(given.ids is None for _, _, given in told(tmp_path / "rows", spec))
    words = "partition", "csv", "--data", table, "--scheme", "iid", "--silos", 3, "--keep", "id"
    assert command(*words, "--out", tmp_path / "no") == 2
    assert "--keep: id given, but" in (line := capsys.readouterr().err)
    assert "--option id=NAME" in line
    spec = cut("csv", table, tmp_path / "named", "--keep", "id", "--option", "id=patient_id")
    assert all(given.ids is not None for _, _, given in told(tmp_path / "named", spec))


def test_a_word_that_is_none_is_refused_before_anything_is_read(tmp_path, capsys):
    words = "partition", "csv", "--data", tmp_path / "none.csv", "--scheme", "iid", "--out", tmp_path / "out"
    assert command(*words, "--keep", "ids") == 2
    assert capsys.readouterr().err == "error: --keep: ids given; did you mean 'id'? there are row, id, none\n"
    assert command(*words[:-4], "--scheme", "vertical", *words[-2:], "--keep", "row") == 2
    assert "vertical shards always have the numbers of their rows" in capsys.readouterr().err


def arrays(n=30):
    x = np.arange(n, dtype=np.float32)[:, None]
    return {
        "x": x,
        "y": np.arange(n) % 2,
        "id": np.arange(n) + 500,
        "x_test": x[:5] + 100,
        "y_test": np.arange(5) % 2,
    }


@pytest.mark.parametrize("source", ["npz", "npy", "hdf5"])
def test_arrays_named_id_are_ids_where_they_are_asked(tmp_path, source):
    given, path = arrays() | {"id_test": np.array([b"a", b"b", b"c", b"d", b"e"])}, tmp_path / f"in.{source}"
    if source == "npz":
        np.savez(path, **given)
    elif source == "npy":
        path.mkdir()
        for name, array in given.items():
            np.save(path / f"{name}.npy", array)
    else:
        with h5py.File(path, "w") as file:
            file.update(given)
    plain = cut(source, path, tmp_path / "plain")
    assert all(one.ids is None for _, _, one in told(tmp_path / "plain", plain))
    spec = cut(source, path, tmp_path / "out", "--keep", "id")
    for name, x, one in told(tmp_path / "out", spec):
        rows = one.rows.tolist()
        assert rows == (x[:, 0].astype(int) - 100 * (name == "test")).tolist()
        assert texts_of(one.ids).tolist() == [
            "abcde"[row] if name == "test" else str(500 + row) for row in rows
        ]


def test_images_are_told_by_their_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(12):
        folder = tmp_path / "in" / ("cat" if number < 6 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((4, 4), number, np.uint8)).save(folder / f"{number:02}.png")
    spec = cut("images", tmp_path / "in", tmp_path / "out", "--keep", "id")
    for _, x, given in told(tmp_path / "out", spec):
        names = [f"{'cat' if row < 6 else 'dog'}/{row:02}.png" for row in x[:, 0, 0, 0]]
        assert texts_of(given.ids).tolist() == names
        assert given.rows.tolist() == x[:, 0, 0, 0].tolist()


def test_sequences_are_told_by_the_text_that_they_are_of(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text("\n\n".join('{"text": "%s"}' % (letter * 7) for letter in "abcdefghijklmnopqrst"))
    spec = cut("jsonl", path, tmp_path / "out", "--option", "length=3")
    for _, x, given in told(tmp_path / "out", spec):
        assert given.rows.tolist() == (x[:, 0] - ord("a")).tolist()


def test_a_site_that_encodes_otherwise_than_agreed_is_told_and_says_no_statistics(tmp_path, table, capsys):
    table.with_suffix(".toml").write_text(SPEC.format('classes = ["0", "1"]'))
    assert command("spec", tmp_path / "agreed.json", "--table", table.with_suffix(".toml")) == 0
    other = SPEC.replace('"drop"', '"drop", mean = 20, deviation = 10')
    table.with_suffix(".toml").write_text(other.format('standardise = "own"\nclasses = ["0", "1"]'))
    words = "import", "csv", "--data", table, "--spec", tmp_path / "agreed.json", "--silo", 0
    assert command(*words, "--out", tmp_path / "site") == 0
    assert (
        "patients.csv: became other numbers than by the spec that the sites agreed on"
        in capsys.readouterr().err
    )
    told = json.loads((tmp_path / "site" / "silo_0000.json").read_text())
    assert "encoding" not in told["source"]


def test_a_sites_own_import_keeps_them_and_its_entry_does_not(tmp_path, table, capsys):
    table.with_suffix(".toml").write_text(SPEC.format('id = "patient_id"\nclasses = ["0", "1"]'))
    assert command("spec", tmp_path / "agreed.json", "--table", table.with_suffix(".toml")) == 0
    words = "import", "csv", "--data", table, "--spec", tmp_path / "agreed.json", "--silo", 0, "--test", 0.3
    assert command(*words, "--out", tmp_path / "site") == 0
    assert "P-1" not in (tmp_path / "site" / "silo_0000.json").read_text()
    assert command("assemble", tmp_path / "site") == 0
    for _, x, given in told(tmp_path / "site", read_federation(tmp_path / "site")):
        assert given.rows.tolist() == x[:, 0].astype(int).tolist()
        assert texts_of(given.ids).tolist() == [f"P-{100 + row} \u00e9" for row in given.rows]
    own, agreed = (
        json.loads(path.read_text())["source"]["encoding"]
        for path in (tmp_path / "site" / "silo_0000.json", tmp_path / "agreed.json")
    )
    assert own == agreed
    assert "became other numbers" not in capsys.readouterr().err
    assert command(*words, "--out", tmp_path / "bare", "--keep", "none") == 0
    with h5py.File(tmp_path / "bare" / "silo_0000.h5") as file:
        assert set(file["train"]) == {"x", "y"}


def test_a_finished_folder_that_keeps_something_else_is_refused(tmp_path, table, capsys):
    cut("csv", table, tmp_path / "out", "--keep", "none")
    words = "partition", "csv", "--data", table, "--out", tmp_path / "out", "--scheme", "iid", "--silos", 3
    words = *words, "--valid", 0.2, "--resume"
    assert command(*words) == 0  # nothing is said of it: as folders of older versions are left as they are
    assert command(*words, "--keep", "row") == 2
    assert "its shards keep none, not --keep row" in capsys.readouterr().err


HARMS = {
    "another dtype": (
        "row",
        lambda one: one.astype("float64"),
        r"train/row is float64 \[.*\], it must be int64",
    ),
    "too few": ("row", lambda one: one[1:], r"train/row is int64 \[.*\], it must be int64"),
    "offsets that fall": ("id.offsets", lambda one: one[::-1].copy(), "id.offsets: begins with"),
    "no offsets": ("id.offsets", lambda one: None, "no such offsets"),
    "no texts": ("id", lambda one: np.full(len(one), 255, np.uint8), "bytes that are no UTF-8"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_shard_that_holds_something_else_under_these_names_is_refused(tmp_path, table, harm):
    entry, (name, change, said) = cut("csv", table, tmp_path / "out").silos[0], HARMS[harm]
    path = tmp_path / "out" / entry.file
    with h5py.File(path, "r+") as file:
        changed = change(file[f"train/{name}"][...])
        del file[f"train/{name}"]
        if changed is not None:
            file[f"train/{name}"] = changed
    entry = entry.model_copy(update={"bytes": path.stat().st_size})
    with pytest.raises(ShardError, match=said):
        provenance_of(tmp_path / "out", entry)
    spec = json.loads((tmp_path / "out" / "federation.json").read_text())
    spec["silos"][0] |= {"bytes": entry.bytes, "sha256": sha256_of(path)}
    (tmp_path / "out" / "federation.json").write_text(json.dumps(spec))
    _, findings = check(tmp_path / "out")
    assert [found.kind for found in faults(findings)] == ["rows"]
