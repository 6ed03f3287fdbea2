"""Vertical shards: columns of the same rows over silos, the labels at one."""

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from data_prep.check.vertical_check import check_columns
from data_prep.cli import main
from data_prep.cut.cut_columns import partition_columns
from data_prep.cut.partitioning import WriteOptions
from data_prep.schemes.holdout import Shares
from data_prep.schemes.lookup import SCHEMES
from data_prep.schemes.vertical import deal_columns
from mpifl.common.errors import InputError, ShardError
from mpifl.common.files import sha256_of
from mpifl.data.shards.column_shards import open_vertical
from mpifl.data.shards.shards import read_federation
from mpifl.data.shards.vertical_spec import is_vertical, read_vertical


def source(folder, n=40, shape=(2, 3), test=0, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {"x": rng.normal(size=(n, *shape)).astype("float32"), "y": np.arange(n) % 3}
    if test:
        arrays |= {"x_test": rng.normal(size=(test, *shape)).astype("float32"), "y_test": np.arange(test) % 3}
    np.savez(folder / "own.npz", **arrays)
    return arrays


def cut(folder, silos, *, shares=None, seed=0, manner=None, out="out", **options):
    data, to = folder / "own.npz", folder / out
    more = {"options": options, "shares": shares or Shares(), "manner": manner}
    return to, partition_columns("npz", data, to, "vertical", silos, seed, **more)


@given(
    width=st.integers(1, 60),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
    way=st.sampled_from(["shuffled", "contiguous"]),
)
@settings(max_examples=100, deadline=None)
def test_columns_are_a_partition_into_near_equal_blocks(width, share, seed, way):
    silos = max(1, round(share * width))
    dealt = deal_columns((width,), silos, np.random.default_rng(seed), columns=way)
    assert len(dealt) == silos
    assert np.array_equal(np.sort(np.concatenate(dealt)), np.arange(width))
    assert np.ptp([len(block) for block in dealt]) <= 1
    assert all((np.diff(block) > 0).all() for block in dealt)
    assert way == "shuffled" or np.array_equal(np.concatenate(dealt), np.arange(width))


def test_shares_of_columns_are_those_of_a_dirichlet_distribution():
    # n_k - 1 is Dirichlet-multinomial: variance N p (1 - p) (N + K a) / (1 + K a) with p = 1 / K
    columns, silos, alpha, draws = 40, 4, 0.5, 4000
    n, p, rng = columns - silos, 1 / silos, np.random.default_rng(0)
    dealt = [deal_columns((columns,), silos, rng, alpha=alpha) for _ in range(draws)]
    counts = np.array([[len(block) for block in blocks] for blocks in dealt])
    assert counts.min() == 1
    assert (counts.sum(axis=1) == columns).all()
    variance = n * p * (1 - p) * (n + silos * alpha) / (1 + silos * alpha)
    assert np.allclose(counts.mean(axis=0), columns / silos, atol=4 * np.sqrt(variance / draws))
    assert np.allclose(counts.var(axis=0), variance, rtol=0.1)
    at_first = np.bincount(np.concatenate([blocks[0] for blocks in dealt]), minlength=columns) / draws
    assert np.allclose(at_first, p, atol=0.04)


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e9])
def test_every_silo_has_a_column_however_skewed(alpha):
    dealt = deal_columns((9,), 8, np.random.default_rng(0), alpha=alpha, columns="contiguous")
    assert np.array_equal(np.concatenate(dealt), np.arange(9))
    assert min(map(len, dealt)) == 1


def test_silos_get_the_numbers_of_columns_that_are_asked(tmp_path):
    arrays = source(tmp_path)
    out, spec = cut(tmp_path, None, sizes="1,5", columns="contiguous")
    assert [entry.columns for entry in spec.silos] == [[0], [1, 2, 3, 4, 5]]
    assert spec.scheme["sizes"] == "1,5"
    x = open_vertical(out, spec.silos[1], spec)["train"].x
    assert np.array_equal(x, arrays["x"].reshape(40, -1)[:, 1:])


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6)])
@pytest.mark.parametrize(("along", "axis"), [("height", -2), ("width", -1)])
def test_images_are_cut_into_images(tmp_path, shape, along, axis):
    images = source(tmp_path, shape=shape)["x"]
    out, spec = cut(tmp_path, 2, along=along, columns="contiguous")
    for entry, part in zip(spec.silos, np.split(images, 2, axis=axis), strict=True):
        x = open_vertical(out, entry, spec)["train"].x
        assert np.array_equal(x, part)
        assert entry.features.shape == part.shape[1:]
        assert np.array_equal(x.reshape(40, -1), images.reshape(40, -1)[:, entry.columns])
    assert check_columns(out)[1] == []


def test_only_images_have_a_width(tmp_path):
    source(tmp_path, shape=(6,))
    with pytest.raises(InputError, match=r"--along: width is of images, examples have the shape \[6\]"):
        cut(tmp_path, 2, along="width")


@given(
    n=st.integers(3, 40),
    silos=st.integers(1, 6),
    holder=st.integers(0, 5),
    test=st.integers(0, 5),
    valid=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_silos_have_the_same_rows_and_one_the_labels(n, silos, holder, test, valid, seed):
    with tempfile.TemporaryDirectory() as name:
        folder, holder = Path(name), holder % silos
        arrays = source(folder, n, test=test, seed=seed)
        out, spec = cut(folder, silos, shares=Shares(valid), seed=seed, label_silo=holder)
        assert spec == read_vertical(out)
        x = np.concatenate([arrays["x"], arrays.get("x_test", arrays["x"][:0])]).reshape(n + test, -1)
        y = np.concatenate([arrays["y"], arrays.get("y_test", arrays["y"][:0])])
        assert sorted(at for entry in spec.silos for at in entry.columns) == list(range(6))
        ids = []
        for entry in spec.silos:
            splits = open_vertical(out, entry, spec)
            ids.append({name: split.id.tolist() for name, split in splits.items()})
            for split in splits.values():
                assert np.array_equal(split.x, x[split.id][:, entry.columns])
                assert (split.y is None) == (entry.silo != holder)
                assert split.y is None or np.array_equal(split.y, y[split.id])
        assert all(one == ids[0] for one in ids)
        assert sorted(itertools.chain(*ids[0].values())) == list(range(n + test))
        assert [one.kind for one in check_columns(out)[1] if one.kind != "classes"] == []


def test_the_same_seed_gives_the_same_bytes_and_another_other_columns(tmp_path):
    source(tmp_path)
    (a, one), (b, two), (_, other) = (
        cut(tmp_path, 3, seed=seed, out=out) for seed, out in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert one == two
    assert [(a / e.file).read_bytes() for e in one.silos] == [(b / e.file).read_bytes() for e in two.silos]
    assert [e.columns for e in one.silos] != [e.columns for e in other.silos]


def test_pieces_and_compression_change_nothing_that_is_read(tmp_path, monkeypatch):
    source(tmp_path, n=50)
    plain, spec = cut(tmp_path, 2, shares=Shares(test=0.3))
    monkeypatch.setattr("data_prep.cut.cut_columns.PIECE", 100)
    pieced, again = cut(tmp_path, 2, shares=Shares(test=0.3), out="pieced")
    packed, small = cut(
        tmp_path, 2, shares=Shares(test=0.3), out="packed", manner=WriteOptions(compression="gzip")
    )
    assert again == spec
    for a, b in zip(spec.silos, small.silos, strict=True):
        one, two = open_vertical(plain, a, spec), open_vertical(packed, b, small)
        assert all(np.array_equal(one[name].x, two[name].x) for name in one)
        assert isinstance(one["train"].x, np.memmap)
    assert is_vertical(pieced)


@pytest.mark.parametrize(
    ("silos", "options", "said"),
    [
        (7, {}, "--silos: 7 given; 6 columns go to 1 to 6 silos"),
        (None, {}, "--silos: not given"),
        (2, {"label_silo": 2}, "--label-silo: 2 given; the silos are 0 to 1"),
        (2, {"columns": "some"}, "--columns: 'some' given"),
        (2, {"sigma": 0.5}, "--sigma: --scheme vertical does not take it"),
        (2, {"alpha": -1.0}, "--alpha: -1.0 given; it must be above 0"),
        (2, {"alpha": 1.0, "sizes": "2,4"}, "--alpha: --sizes says how many columns each silo has"),
        (3, {"sizes": "2,4"}, "--sizes: 2 silos, --silos says 3"),
        (None, {"sizes": "2,3"}, "--sizes: 5 columns in all; there are 6 to deal"),
        (None, {"sizes": "6,0"}, "--sizes: '6,0' given; it is a number of columns for each silo"),
        (None, {"sizes": "six"}, "--sizes: 'six' given"),
        (2, {"along": "depth"}, "--along: 'depth' given; did you mean 'width'\\? it is flat, height, width"),
        (3, {"along": "height"}, "--silos: 3 given; 2 columns go to 1 to 2 silos"),
        (2, {"min_examples": 41}, "own.npz has 40 examples, which every silo has, 41 asked; lower it"),
        (2, {"shares": Shares(public=0.1)}, "--public"),
        (2, {"manner": WriteOptions(resume=True)}, "--resume"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_left(tmp_path, silos, options, said):
    source(tmp_path)
    with pytest.raises(InputError, match=said):
        cut(tmp_path, silos, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["own.npz"]


def test_a_share_for_testing_beside_the_sources_own_test_set_is_refused(tmp_path):
    source(tmp_path, test=4)
    with pytest.raises(InputError, match="--test"):
        cut(tmp_path, 2, shares=Shares(test=0.2))


def test_it_cuts_no_examples():
    with pytest.raises(InputError, match="columns, not examples"):
        SCHEMES["vertical"](None, 2, np.random.default_rng(0), {})


def test_the_commands_know_it_and_horizontal_training_refuses_it(tmp_path, capsys):
    source(tmp_path)
    out = tmp_path / "out"
    words = ["partition", "npz", "--data", str(tmp_path / "own.npz"), "--out", str(out), "--silos", "2"]
    for line in (
        [*words, "--scheme", "vertical", "--label-silo", "1"],
        ["inspect", str(out)],
        ["check", str(out)],
    ):
        with pytest.raises(SystemExit) as done:
            main(line)
        assert done.value.code == 0
    said = capsys.readouterr().out
    assert "2 silos of 3 columns each, the same rows (40 train), labels at silo 1" in said
    assert "2 silos, nothing wrong" in said
    with pytest.raises(ShardError, match="vertical shards are not for training one model on all features"):
        read_federation(out)
    job = f'name="v"\nshards="{out}"\nrounds=1\n[model]\nname="logreg"\n[algorithm]\nname="fedavg"\n'
    (tmp_path / "job.toml").write_text(job)
    command = [
        sys.executable,
        "-m",
        "mpifl",
        "train",
        str(tmp_path / "job.toml"),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("have columns; use 'splitnn'")
    assert not (tmp_path / "run").exists()


def altered(out, silo, change, resign=True):
    """Change a shard, and let federation.json agree with its new bytes."""
    said = json.loads((out / "federation.json").read_text())
    entry = said["silos"][silo]
    with h5py.File(out / entry["file"], "r+") as file:
        change(file, entry)
    if resign:
        entry |= {"sha256": sha256_of(out / entry["file"]), "bytes": (out / entry["file"]).stat().st_size}
    (out / "federation.json").write_text(json.dumps(said))


def swap_ids(file, entry):
    file["train/id"][...] = file["train/id"][...][::-1]


def put_nan(file, entry):
    file["train/x"][3] = np.nan


def take_labels(file, entry):
    del file["train/y"]


def other_label(file, entry):
    file["train/y"][0] = 2


def large_label(file, entry):
    file["train/y"][0] = 3


def other_column(file, entry):
    entry["columns"][0] = entry["columns"][1]


def other_tag(file, entry):
    entry["alignment"] = file.attrs["alignment"] = "0" * 32


@pytest.mark.parametrize(
    ("silo", "change", "resign", "kind"),
    [
        (1, swap_ids, True, "rows"),
        (1, put_nan, True, "not finite"),
        (0, take_labels, True, "damaged"),
        (0, other_label, True, "label counts"),
        (0, large_label, True, "damaged"),
        (0, other_column, True, "columns"),
        (1, other_tag, True, "alignment"),
        (1, put_nan, False, "damaged"),
    ],
)
def test_check_finds_what_is_wrong(tmp_path, silo, change, resign, kind):
    source(tmp_path)
    out, _ = cut(tmp_path, 2)
    altered(out, silo, change, resign)
    assert [finding.kind for finding in check_columns(out)[1]] == [kind]


def test_check_finds_rows_that_are_trained_on_and_held_out(tmp_path, capsys):
    x, y = np.arange(80.0).reshape(40, 2), np.arange(40) % 3
    x[7], y[7] = x[4], y[4]
    x_test, y_test = np.stack([x[9], x[11] * [1, 2]]), y[[9, 11]]
    np.savez(tmp_path / "own.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    out, _ = cut(tmp_path, 2)
    found = [(finding.kind, finding.severity, finding.what) for finding in check_columns(out)[1]]
    assert found == [
        ("held out", "fault", "1 example trained on here is held out too, first train 9 = test 0"),
        ("duplicates", "warning", "1 example more than once, first train 4 = train 7"),
    ]
    assert check_columns(out, duplicated=False)[1] == []
    with pytest.raises(SystemExit) as done:
        main(["check", str(out)])
    assert done.value.code == 1
    assert "whole rows" in capsys.readouterr().out


def test_check_finds_a_person_in_two_splits(tmp_path):
    source(tmp_path, test=4)
    out, _ = cut(tmp_path, 2)
    for silo in (0, 1):
        altered(out, silo, lambda file, _: file["test/id"].__setitem__(0, 3))
    assert [finding.what for finding in check_columns(out)[1]] == ["an id occurs more than once"] * 2


def test_check_finds_a_missing_file_and_a_stray_one(tmp_path):
    source(tmp_path)
    out, spec = cut(tmp_path, 2)
    (out / spec.silos[0].file).rename(out / "other.h5")
    assert [finding.kind for finding in check_columns(out)[1]] == ["extra", "missing"]


TARGETS = {
    "values": (np.linspace(-1, 1, 80).reshape(40, 2), []),
    "labels": (np.arange(120).reshape(40, 3) % 2 == 0, []),
    "bytes": ((np.arange(40) % 3).astype("uint8"), ["targets=classes", "ignore=9"]),
}


@pytest.mark.parametrize("kind", [*TARGETS, "named"])
def test_targets_of_any_kind_go_to_their_holder(tmp_path, kind):
    x = np.random.default_rng(0).normal(size=(40, 5)).astype("float32")
    if kind == "named":
        y, options = {"y_time": np.arange(40.0), "y_event": np.arange(40) % 2}, ["targets=time:values"]
        np.savez(tmp_path / "own.npz", x=x, **y)
    else:
        y, options = TARGETS[kind]
        np.savez(tmp_path / "own.npz", x=x, y=y)
    more = {"options": {"label_silo": 1}, "shares": Shares(test=0.2), "source_options": options}
    out = tmp_path / "out"
    assert partition_columns("npz", tmp_path / "own.npz", out, "vertical", 2, 0, **more) == read_vertical(out)
    spec = read_vertical(out)
    assert spec.holder == 1
    for split in open_vertical(out, spec.silos[1], spec).values():
        if kind == "named":
            assert all(np.array_equal(split.y[name], y[f"y_{name}"][split.id]) for name in ("time", "event"))
        else:
            assert np.array_equal(split.y, y[split.id])
    assert check_columns(out)[1] == []


def test_the_tag_says_which_rows_these_are_and_in_which_order(tmp_path):
    source(tmp_path)
    of = lambda out, **more: {e.alignment for e in cut(tmp_path, 2, out=out, **more)[1].silos}  # noqa: E731
    tag = of("a")
    assert len(tag) == 1
    assert of("b") == tag
    assert of("c", seed=1) != tag
    assert of("d", shares=Shares(test=0.1)) != tag
    source(tmp_path, seed=1)
    assert of("e") != tag
