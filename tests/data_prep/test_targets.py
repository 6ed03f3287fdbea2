"""Targets of any kind, from arrays to shards that are checked and shown; every command as typed."""

import hashlib
import json
import re
import sys

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.inspect.summary import summarise
from mpifl.cli import main as mpifl
from mpifl.data.shards.shards import open_shard, read_federation

DRAW = np.random.default_rng(0)
N = 60
X = DRAW.normal(size=(N, 4)).astype("f4")
SILO = np.arange(N) % 3
Y = {
    "a float": DRAW.normal(size=N).astype("f4"),
    "three floats": DRAW.normal(size=(N, 3)).astype("f4"),
    "many floats": DRAW.normal(size=(N, 9)),
    "counts": DRAW.integers(-5, 40, N),
    "labels": DRAW.integers(0, 2, (N, 5)).astype("u1"),
    "bools": DRAW.random(N) < 0.4,
    "masks": np.concatenate([DRAW.integers(0, 3, (N - 1, 8, 8)), np.full((1, 8, 8), 2)]).astype("u1"),
    "tokens": np.where(DRAW.random((N, 7)) < 0.3, -100, DRAW.integers(0, 11, (N, 7))),
    "sequences": np.concatenate([DRAW.integers(0, 11, (N - 1, 7)), np.full((1, 7), 10)]),
}
OPTIONS = {
    "three floats": ["target_names=systolic,diastolic,pulse"],
    "counts": ["targets=values"],
    "labels": ["targets=labels", "target_names=a,b,c,d,e"],
    "tokens": ["ignore=-100"],
}
DTYPES = {"labels": "bool", "many floats": "float64", "counts": "int64", "bools": "bool", "masks": "uint8"}
NO_CLASSES = ["a float", "three floats", "many floats", "counts", "labels", "bools"]


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def source(folder, kind, form="npz", **more):
    """Store the arrays of a kind as a source has them; return what --data names."""
    arrays = {"x": X, "y": Y[kind], "silo": SILO, "x_test": X[:6], "y_test": Y[kind][:6], **more}
    if form == "npz":
        np.savez(folder / "own.npz", **arrays)
        return folder / "own.npz"
    if form == "npy":
        (folder / "own").mkdir()
        for name, array in arrays.items():
            np.save(folder / "own" / f"{name}.npy", array)
        return folder / "own"
    with h5py.File(folder / "own.h5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, chunks=True if form == "chunked" else None)
    return folder / "own.h5"


def options(kind):
    return [word for option in OPTIONS.get(kind, []) for word in ("--option", option)]


def cut(folder, kind, *more, form="npz", scheme="natural", ends=0):
    """Partition a kind; return the folder of shards."""
    given = ["--data", source(folder, kind, form), "--out", folder / "out", "--scheme", scheme]
    run("partition", "hdf5" if form == "chunked" else form, *given, *options(kind), *more, ends=ends)
    return folder / "out"


@pytest.mark.parametrize("form", ["npz", "npy", "hdf5", "chunked"])
@pytest.mark.parametrize("kind", Y)
def test_targets_go_from_a_source_into_shards_to_the_bit(tmp_path, kind, form):
    folder = cut(tmp_path, kind, form=form)
    spec = read_federation(folder)
    for silo, entry in enumerate(spec.silos):
        held = open_shard(folder, entry, spec)["train"].y
        assert held.dtype == (DTYPES.get(kind) or Y[kind].dtype)
        assert (held == Y[kind][silo == SILO]).all()
    assert (open_shard(folder, spec.test, spec)["test"].y == Y[kind][:6]).all()
    assert (spec.classes is None) == (kind in NO_CLASSES)
    assert (spec.targets is None) == (kind == "sequences")
    if spec.targets:
        assert spec.format_version == 2
        assert spec.targets.shape == Y[kind].shape[1:]
        assert spec.targets.ignore == (-100 if kind == "tokens" else None)
    else:
        assert spec.format_version == 1
    if kind == "three floats":
        assert spec.targets.names == ["systolic", "diastolic", "pulse"]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_rows_that_come_in_another_order_take_their_targets_along(tmp_path, compression):
    more = ["--silos", 4, "--valid", 0.2, "--compression", compression, "--jobs", 2]
    folder = cut(tmp_path, "three floats", *more, form="chunked", scheme="iid")
    spec = read_federation(folder)
    rows = {x.tobytes(): y.tobytes() for x, y in zip(X, Y["three floats"], strict=True)}
    found = 0
    for entry in spec.silos:
        for split in open_shard(folder, entry, spec).splits.values():
            assert all(rows[x.tobytes()] == y.tobytes() for x, y in zip(split.x, split.y, strict=True))
            found += len(split)
    assert found == N


@pytest.mark.parametrize("kind", Y)
def test_a_folder_is_checked_and_shown_whatever_its_targets(tmp_path, kind, capsys):
    folder = cut(tmp_path, kind)
    run("check", folder, "--no-duplicates")
    run("check", folder, "--json", ends=1)  # the server's test set is of the training set
    capsys.readouterr()
    run("inspect", folder)
    told = capsys.readouterr().out
    run("inspect", folder, "--features", "--page", tmp_path / "a.html")
    read, page = capsys.readouterr().out, (tmp_path / "a.html").read_text()
    labelled = kind not in NO_CLASSES
    assert (
        ("seen" in told) == ("Label divergence" in told) == ("<h2>Training labels</h2>" in page) == labelled
    )
    assert (
        ("Target skew" in read)
        == ("mean ± deviation</h2>" in page.split("<h2>Features")[0])
        == (not labelled)
    )
    assert "nan" not in read
    assert "nan" not in page


def test_means_and_deviations_of_targets_stand_beside_each_silo(tmp_path, capsys):
    folder = cut(tmp_path, "three floats")
    capsys.readouterr()
    run("inspect", folder, "--features", "--page", tmp_path / "a.html")
    told, page = capsys.readouterr().out, (tmp_path / "a.html").read_text()
    for silo in range(3):
        of_silo = Y["three floats"][silo == SILO].astype("f8")
        for mean, deviation in zip(of_silo.mean(axis=0), of_silo.std(axis=0), strict=True):
            assert f"{mean:.3g} ± {deviation:.2g}" in told
            assert f"<td>{mean:.3g} ± {deviation:.2g}</td>" in page
    assert all(f"<th>{name}</th>" in page for name in ("systolic", "diastolic", "pulse"))


def test_a_folder_of_values_is_compared_with_one_of_classes(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    folders = cut(tmp_path / "a", "a float"), cut(tmp_path / "b", "masks")
    run("inspect", *folders, "--features")
    told = capsys.readouterr().out
    assert "Size skew" in told
    assert "Label divergence" not in told


def test_nan_among_the_targets_of_a_shard_is_a_finding(tmp_path, capsys):
    folder = cut(tmp_path, "a float")
    path, record = folder / "silo_0001.h5", json.loads((folder / "federation.json").read_bytes())
    with h5py.File(path, "r+") as file:
        file["train/y"][17] = np.nan
    record["silos"][1]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "federation.json").write_text(json.dumps(record))
    capsys.readouterr()
    run("check", folder, "--json", "--no-duplicates", ends=1)
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["file"], found["kind"]) == ("silo_0001.h5", "damaged")
    assert found["what"].startswith("train: target is NaN in row 17; ")


NAN = Y["three floats"].copy()
NAN[41, 2] = np.nan
EVENT = np.arange(N) % 2


def lived(times, dtype="f8", event=EVENT):
    """Return arrays of times and events; those of the server are the first ten."""
    y = np.stack([np.resize(times, N), event], 1).astype(dtype)
    return {"y": y, "y_test": y[:6]}


REFUSED = {
    "NaN": ("three floats", {"y": NAN}, [], "y has NaN, first in example 41"),
    "times that become ties": (
        "three floats",
        lived(1.5e9 + 50.0 * np.arange(N)),
        [],
        "y: times 1500000000 and 1500000050 are one in float32; count from a zero nearer to them",
    ),
    "times of float64 near 1": (
        "three floats",
        lived([1, 1 + 1e-9, 1 + 2e-9]),
        ["target_names=time,event"],
        "y: times 1 and 1.000000001 are one in float32",
    ),
    "whole times that become ties": (
        "three floats",
        lived(1_500_000_000 + np.arange(N), "i8"),
        ["targets=values"],
        "y: times 1500000000 and 1500000001 are one in float32",
    ),
    "times that become 0": (
        "three floats",
        lived([1e-300, 5]),
        [],
        "y: time 1e-300 is below 1.2e-38, the smallest number of float32; use another unit",
    ),
    "times that lose digits": ("three floats", lived([1e-40, 1], "f4"), [], "below 1.2e-38"),
    "times that the server holds": (
        "three floats",
        {"y": lived([1, 2])["y"], "y_test": lived([1, 1 + 1e-9])["y_test"]},
        [],
        "y_test: times 1 and 1.000000001 are one",
    ),
    "values that float32 cannot tell apart": (
        "many floats",
        {"y": 1.5e9 + Y["many floats"], "y_test": 1.5e9 + Y["many floats"][:6]},
        [],
        "column 'y[:, 0]' has numbers from 1499999",
    ),
    "floats as classes": (
        "a float",
        {},
        ["targets=classes"],
        "y has dtype float32; class numbers are integers",
    ),
    "counts as labels": ("counts", {}, ["targets=labels"], "y is not 0 or 1 in example"),
    "counts as classes": ("counts", {}, ["targets=classes"], "or say targets=values"),
    "no such kind": (
        "a float",
        {},
        ["targets=numbers"],
        "targets=numbers given; it must be one of classes, v",
    ),
    "ignore no number": ("tokens", {}, ["ignore=pad"], "ignore=pad given; it must be a whole number"),
    "a class ignored": ("masks", {}, ["ignore=1"], "ignore 1 of 3 classes; it is a number that no class has"),
    "values ignored": ("a float", {}, ["ignore=-100"], "ignore -100 of no classes"),
    "ignored by no dtype": ("masks", {}, ["ignore=-100"], "ignore -100 does not fit uint8"),
    "names of other columns": ("three floats", {}, ["target_names=a,b"], "2 different names for 3 columns"),
    "another test set": (
        "three floats",
        {"y_test": Y["many floats"][:6]},
        [],
        "y_test has float64 [9] an example, y has float32 [3]; make them alike",
    ),
    "another dtype of the test set": (
        "masks",
        {"y_test": Y["masks"][:6].astype("i8")},
        [],
        "y_test has dtype in",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_targets_that_are_not_what_is_said_are_refused_in_one_line(tmp_path, case, capsys):
    kind, arrays, given, said = REFUSED[case]
    more = [word for option in given for word in ("--option", option)]
    data = source(tmp_path, kind, **arrays)
    run("partition", "npz", "--data", data, "--out", tmp_path / "out", "--scheme", "natural", *more, ends=2)
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "times",
    [
        1.5e9 + 1000.0 * np.arange(N),  # rounded, each for itself
        DRAW.exponential(300, N),
        [0.1 + 0.2, 0.3, 1],  # the same but for how they were calculated
        [0, 1e-37, 1e30],
    ],
)
def test_times_that_float32_keeps_apart_are_taken_as_they_are(tmp_path, times):
    arrays = lived(times)
    data = source(tmp_path, "three floats", **arrays)
    run("partition", "npz", "--data", data, "--out", tmp_path / "out", "--scheme", "natural")
    silos = read_federation(tmp_path / "out").silos
    assert sum(sum(silo.examples.values()) for silo in silos) == N
    apart = {"x": X, "y_event": EVENT.astype("f4"), "silo": SILO}
    np.savez(tmp_path / "named.npz", **apart, y_time=[*np.ones(N - 1), 1 + 1e-9])
    given = ["--data", tmp_path / "named.npz", "--out", tmp_path / "named", "--scheme", "natural"]
    run("partition", "npz", *given, ends=2)


@pytest.mark.parametrize("scheme", ["dirichlet", "shards", "classes", "concept-drift", "mix"])
@pytest.mark.parametrize("kind", ["a float", "counts", "tokens", "bools"])
def test_a_scheme_that_cuts_by_classes_refuses_targets_without(tmp_path, kind, scheme, capsys):
    if (kind, scheme) == ("tokens", "concept-drift"):
        return  # it has classes to permute
    more = ["--mix", "dirichlet + quantity"] if scheme == "mix" else []
    out = cut(tmp_path, kind, "--silos", 3, *more, scheme=scheme, ends=2)
    error = capsys.readouterr().err
    assert re.match(r"error: --scheme: targets .*; use iid", error)
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("scheme", ["iid", "quantity", "power-law", "feature-noise", "brightness", "mix"])
def test_other_schemes_take_targets_of_any_kind(tmp_path, scheme):
    more = ["--mix", "power-law + feature-noise"] if scheme == "mix" else []
    for kind in ("a float", "labels", "tokens"):
        (tmp_path / kind).mkdir()
        least = ["--min-examples", 1]
        out = cut(tmp_path / kind, kind, "--silos", 3, *least, "--public", 0.1, *more, scheme=scheme)
        run("check", out, "--no-duplicates")


def test_drift_leaves_what_does_not_count_as_it_is(tmp_path):
    out = cut(tmp_path, "tokens", "--silos", 2, "--drifted", 1, scheme="concept-drift")
    spec = read_federation(out)
    held = np.concatenate([open_shard(out, entry, spec)["train"].y for entry in spec.silos])
    assert (held == -100).sum() == (Y["tokens"] == -100).sum()
    assert sum(sum(entry.labels) for entry in spec.silos) == (Y["tokens"] != -100).sum()


def test_an_interrupted_partition_of_values_goes_on_only_with_the_same(tmp_path, capsys):
    out = cut(tmp_path, "a float", "--resume")
    again = ["--out", out, "--scheme", "natural", "--resume"]
    run("partition", "npz", "--data", tmp_path / "own.npz", *again)
    run("partition", "npz", "--data", source(tmp_path, "a float", y=Y["a float"] + 1), *again, ends=2)
    assert "made with other arguments or data" in capsys.readouterr().err


def test_sites_agree_on_targets_and_bring_their_own(tmp_path, capsys):
    agreed, told = tmp_path / "agreed.json", ["--target-dtype", "float32", "--target-shape", "3"]
    run("spec", agreed, "--shape", 4, *told, "--target-names", "systolic,diastolic,pulse")
    assert "float32 values of shape [3] (systolic, diastolic, pulse); send it" in capsys.readouterr().out
    data, out = source(tmp_path, "three floats"), tmp_path / "wards"
    for silo in (0, 1):
        run("import", "npz", "--data", data, "--spec", agreed, "--silo", silo, "--out", out)
    run("assemble", out)
    run("check", out, "--no-duplicates")
    assert read_federation(out).targets == read_federation(cut(tmp_path, "three floats")).targets
    run("spec", tmp_path / "like.json", "--like", out)
    assert json.loads((tmp_path / "like.json").read_text())["targets"]["names"][0] == "systolic"


@pytest.mark.parametrize("kind", ["a float", "many floats", "labels", "masks", "sequences"])
def test_a_site_with_other_targets_is_refused(tmp_path, kind, capsys):
    agreed, out = tmp_path / "agreed.json", tmp_path / "wards"
    run("spec", agreed, "--shape", 4, "--target-dtype", "float32", "--target-shape", "3")
    given = ["--data", source(tmp_path, kind), "--spec", agreed, "--silo", 0, "--out", out]
    run("import", "npz", *given, *options(kind), ends=2)
    error = capsys.readouterr().err
    assert re.search(r"targets are .*, the federation has float32 values of shape \[3\]; convert", error)
    assert error.count("\n") == 1


@pytest.mark.parametrize("kind", ["three floats"])
def test_a_training_of_classes_refuses_other_targets_in_one_line(tmp_path, kind, capsys, monkeypatch):
    out = cut(tmp_path, kind)
    (tmp_path / "job.toml").write_text(
        f'name = "a"\nshards = "{out}"\nrounds = 1\n[model]\nname = "logreg"\n[algorithm]\nname = "fedavg"\n'
    )
    arguments = ["mpifl", "train", str(tmp_path / "job.toml"), "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", arguments)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        mpifl()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert "the shards have float32 values of shape [3], for which use 'regression'" in error
    assert "[task] name = 'classification'" in error
    assert "Traceback" not in error


def test_each_column_of_targets_is_drawn_by_its_name(tmp_path):
    folder = cut(tmp_path, "three floats")
    run("inspect", folder, "--features", "--page", tmp_path / "a.html")
    page, summary = (tmp_path / "a.html").read_text(), summarise(folder, features=True)
    for column, name in enumerate(["systolic", "diastolic", "pulse"]):
        assert f"<h2>Target {name}: mean ± deviation</h2>" in page
        for silo, one in zip(open_all(folder), summary.drawn_targets()[name], strict=True):
            assert one.overall() == pytest.approx((silo[:, column].mean(), silo[:, column].std()))


def open_all(folder):
    """Return the training targets of every silo."""
    spec = read_federation(folder)
    return [np.array(open_shard(folder, entry, spec)["train"].y, np.float64) for entry in spec.silos]
