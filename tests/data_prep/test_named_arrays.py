"""Arrays x_NAME and y_NAME, from a source into shards that are checked and shown; every command as typed."""

import json
import sys

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.cli import main as mpifl
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation

DRAW = np.random.default_rng(0)
N = 60
SILO = np.arange(N) % 3
X = {"input_ids": DRAW.integers(0, 50, (N, 7)), "age": DRAW.normal(size=N).astype("f4")}
Y = {
    "time": DRAW.random(N).astype("f4"),
    "event": DRAW.integers(0, 2, N).astype("u1"),
    "tokens": np.where(X["input_ids"] > 40, -100, X["input_ids"]),
}
OPTIONS = ["--option", "targets=time:values,event:labels", "--option", "ignore=-100"]


def run(*words, ends=0):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def source(folder, form, x=X, y=Y, **more):
    arrays = {"silo": SILO, **more}
    for part, several in (("x", x), ("y", y)):
        arrays |= {f"{part}_{name}": array for name, array in several.items()}
        arrays |= {f"{part}_test_{name}": array[:6] for name, array in several.items()}
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


def cut(folder, *more, form="npz", scheme="natural", ends=0, **arrays):
    given = ["--data", source(folder, form, **arrays), "--out", folder / "out", "--scheme", scheme]
    run("partition", "hdf5" if form == "chunked" else form, *given, *OPTIONS, *more, ends=ends)
    return folder / "out"


@pytest.mark.parametrize("form", ["npz", "npy", "hdf5", "chunked"])
def test_named_arrays_go_from_a_source_into_shards_to_the_bit(tmp_path, form):
    folder = cut(tmp_path, form=form)
    spec = read_federation(folder)
    assert (spec.classes, spec.format_version) == (None, 2)
    assert {name: (one.dtype, one.shape, one.classes) for name, one in spec.targets.items()} == {
        "time": ("float32", (), None),
        "event": ("bool", (), None),
        "tokens": ("int64", (7,), 41),
    }
    for silo, entry in enumerate(spec.silos):
        held = open_shard(folder, entry, spec)["train"]
        for found, wanted in ((held.x, X), (held.y, Y)):
            assert found.keys() == wanted.keys()
            assert all((found[name] == array[silo == SILO]).all() for name, array in wanted.items())
    held = open_shard(folder, spec.test, spec)["test"]
    assert all((held.x[name] == array[:6]).all() for name, array in X.items())


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_rows_that_come_in_another_order_stay_together(tmp_path, compression):
    more = ["--silos", 4, "--valid", 0.2, "--compression", compression, "--jobs", 2]
    folder = cut(tmp_path, *more, form="chunked", scheme="iid")
    spec, rows = read_federation(folder), {age.tobytes(): at for at, age in enumerate(X["age"])}
    found = []
    for entry in spec.silos:
        for split in open_shard(folder, entry, spec).splits.values():
            at = [rows[age.tobytes()] for age in split.x["age"]]
            assert (split.x["input_ids"] == X["input_ids"][at]).all()
            assert all((split.y[name] == array[at]).all() for name, array in Y.items())
            found += at
    assert sorted(found) == list(range(N))


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        cut(tmp_path / name, "--silos", 3, scheme="iid")
    for path in (tmp_path / "a" / "out").iterdir():
        if path.name != "federation.json":  # which has the digest of the file read
            assert path.read_bytes() == (tmp_path / "b" / "out" / path.name).read_bytes()


def test_a_folder_is_checked_and_shown(tmp_path, capsys):
    folder = cut(tmp_path)
    run("check", folder, "--no-duplicates")
    run("check", folder, "--json", ends=1)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert {one["kind"] for one in found} == {"held out"}  # the server's test set is of the training set
    run("inspect", folder)
    assert "age float32, input_ids int64 7, targets event: bool values" in " ".join(
        capsys.readouterr().out.split()
    )
    run("inspect", folder, "--features", "--page", tmp_path / "a.html")
    told, page = capsys.readouterr().out, (tmp_path / "a.html").read_text()
    assert "features are named arrays, without a mean" in told
    assert "Target skew" in told
    for silo in range(3):
        time = Y["time"][silo == SILO].astype("f8")
        assert f"<td>{time.mean():.3g} ± {time.std():.2g}</td>" in page


@pytest.mark.parametrize("scheme", ["dirichlet", "vertical", "feature-noise", "concept-drift"])
def test_a_scheme_that_takes_one_array_refuses_several(tmp_path, scheme, capsys):
    out = cut(tmp_path, "--silos", 3, scheme=scheme, ends=2)
    error = capsys.readouterr().err
    assert error.startswith("error: --scheme: ")
    assert error.count("\n") == 1
    assert not out.exists()


def test_what_does_not_fit_is_refused_in_one_line(tmp_path, capsys):
    cases = {
        "short": ({"x": {**X, "age": X["age"][:50]}}, "x_input_ids has shape [60, 7]; there are 50 examples"),
        "no targets": ({"y": {}}, "has no array 'y'"),
        "NaN": ({"y": {"time": np.full(N, np.nan)}}, "y_time has NaN, first in example 0"),
        "text": ({"x": {"a": np.full(N, "b")}}, "x_a has dtype str"),
    }
    for name, (arrays, said) in cases.items():
        (tmp_path / name).mkdir()
        out = cut(tmp_path / name, ends=2, **arrays)
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
        assert not out.exists()


def test_beside_x_other_arrays_are_left_alone(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.ones((9, 2)), y=np.arange(9) % 2, x_names=np.array([{}], object))
    run(
        "partition",
        "npz",
        "--data",
        tmp_path / "own.npz",
        "--out",
        tmp_path / "a",
        "--scheme",
        "iid",
        "--silos",
        2,
    )
    assert read_federation(tmp_path / "a").format_version == 1


def test_a_site_brings_its_own_by_the_spec_of_others(tmp_path, capsys):
    agreed, out = cut(tmp_path), tmp_path / "wards"
    given = ["--spec", agreed, "--out", out, *OPTIONS]
    (tmp_path / "own").mkdir()
    small = {**Y, "tokens": np.minimum(Y["tokens"], 9)}  # fewer classes occur here
    run("import", "npz", "--data", source(tmp_path / "own", "npz", y=small), *given, "--silo", 0)
    run("assemble", out)
    run("check", out, "--no-duplicates")
    (tmp_path / "other").mkdir()
    capsys.readouterr()
    odd = source(tmp_path / "other", "npz", x={"ids": X["input_ids"]})
    run("import", "npz", "--data", odd, *given, "--silo", 1, ends=2)
    assert "only the data or the federation has x/age; name arrays as agreed" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["x", "y"])
def test_a_training_of_classes_refuses_named_arrays_in_one_line(tmp_path, which, capsys, monkeypatch):
    arrays = {"silo": SILO, "x": X["age"][:, None], "y": SILO}
    several = X if which == "x" else {"event": Y["event"]}
    arrays |= {f"{which}_{name}": array for name, array in several.items()}
    del arrays[which]
    data = tmp_path / "own.npz"
    np.savez(data, **arrays)
    out, job = tmp_path / "out", tmp_path / "job.toml"
    run("partition", "npz", "--data", data, "--out", out, "--scheme", "natural")
    tables = '[model]\nname = "2nn"\n[algorithm]\nname = "fedavg"\n'
    job.write_text(f'name = "a"\nshards = "{out}"\nrounds = 1\n{tables}')
    monkeypatch.setattr(sys, "argv", ["mpifl", "train", str(job), "--out", str(tmp_path / "run")])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        mpifl()
    error = capsys.readouterr().err
    assert ended.value.code == 2
    said = {
        "x": "'2nn': takes one array; the shards have arrays with names (age, input_ids)",
        "y": "takes class numbers; the shards have arrays with names (event)",
    }
    assert said[which] in error
    assert "Traceback" not in error


def test_a_scale_of_named_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "in.npz", x_a=np.zeros((4, 2), "u1"), x_b=np.zeros((4, 2)), y=np.arange(4) % 2)
    with pytest.raises(InputError, match=r"scale=1/255 given; x is named arrays \(a, b\)"):
        find_source("npz", ["scale=1/255"])(tmp_path / "in.npz", 0)
