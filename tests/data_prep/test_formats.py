"""The page of formats: each recipe, as it stands there, on a file that a package writes."""

import json
import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from data_prep.cli import main
from data_prep.sources import SOURCES
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError

PAGE = (ROOT / "docs/howto/formats.md").read_text()
BLOCKS = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", re.DOTALL | re.MULTILINE)
RECIPES = dict(BLOCKS.findall(PAGE))
DRAW = np.random.default_rng(0)
X, Y, SITE = DRAW.normal(size=(6, 2, 50)), np.array([0, 1, 2] * 2), np.array([3, 4] * 3)
SOUND = DRAW.integers(-(1 << 15), 1 << 15, (4, 80)).astype(np.int16)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Return what runs a recipe on a path, as the command does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(title, path):
        (tmp_path / "recipe.py").write_text(RECIPES[title])
        sys.modules.pop("recipe", None)
        out = ["--out", str(tmp_path / "out"), "--scheme", "iid", "--silos", "2"]
        with pytest.raises(SystemExit) as ended:
            main(["partition", "recipe:examples", "--data", str(path), *out])
        assert not ended.value.code
        return find_source("recipe:examples")(path, 0)

    yield run
    sys.modules.pop("recipe", None)


def test_the_page_names_sources_and_recipes_that_there_are():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert {name for _, say in rows for name in re.findall(r"`partition (\w+)", say)} <= {*SOURCES}
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in RECIPES}
    assert {anchor for _, say in rows for anchor in re.findall(r"\(#([^)]+)\)", say)} == anchors


def test_stata_by_pandas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"age": [40.0, 51.5, 63.0, 38.0], "ill": ["no", "yes", "yes", "no"]})
    table.to_stata("own.dta", write_index=False)
    exec(RECIPES["Tables that pandas reads"], {})
    (tmp_path / "own.toml").write_text('label = "ill"\n[features]\nage = "numeric"\n')
    data = find_source("parquet")(tmp_path / "own.parquet", 0)
    assert (data.x[:].ravel().tolist(), data.y.tolist()) == ([40.0, 51.5, 63.0, 38.0], [0, 1, 1, 0])


def test_hugging_faces_datasets(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    table = {"age": [40.0, 51.5, 63.0, 38.0], "ill": ["no", "yes", "yes", "no"]}
    datasets.Dataset.from_dict(table).save_to_disk("own")
    exec(RECIPES["Hugging Face's datasets"], {})
    (tmp_path / "own.toml").write_text('label = "ill"\n[features]\nage = "numeric"\n')
    data = find_source("parquet")(tmp_path / "own.parquet", 0)
    assert (data.x[:].ravel().tolist(), data.y.tolist()) == (table["age"], [0, 1, 1, 0])


def test_matlab(tmp_path, recipe):
    from scipy.io import savemat

    savemat(tmp_path / "own.mat", {"signals": X, "labels": Y[:, None] + 1, "site": SITE[:, None]})
    data = recipe("MATLAB", tmp_path / "own.mat")
    assert np.array_equal(data.x[:], X.astype(np.float32))
    assert (data.y.tolist(), data.silo.tolist()) == (Y.tolist(), SITE.tolist())


def leaf(folder, made):
    """Write examples of users as LEAF does, by split."""
    for split, users in made.items():
        (folder / split).mkdir(parents=True)
        sizes = [len(own["y"]) for own in users.values()]
        content = {"users": [*users], "num_samples": sizes, "user_data": users}
        (folder / split / "all_data.json").write_text(json.dumps(content))
    return folder


def test_cifars_python_version(tmp_path, recipe):
    (folder := tmp_path / "cifar-10-batches-py").mkdir()
    x = DRAW.integers(0, 256, (6, 4, 3072), np.uint8)
    for number, name in enumerate((*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")):
        entries = {"data": x[number], "labels": [number, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=2))
    data = recipe("CIFAR's Python version", folder)
    assert np.array_equal(data.x[:].reshape(5, 4, -1), x[:5])
    assert data.y.reshape(5, 4)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(data.test[0][:].reshape(4, -1), x[5])


def test_leafs_shakespeare(tmp_path, recipe):
    text = "to be or not to be, that is the question"
    own = [
        {"x": [text[at : at + 8] for at in each], "y": [text[at + 8] for at in each]}
        for each in ((0, 5), (9,))
    ]
    made = {"train": dict(zip(("HAMLET", "ROMEO"), own, strict=True))}
    made["test"] = dict(zip(("HAMLET", "ROMEO"), own[::-1], strict=True))
    data = recipe("LEAF's Shakespeare", leaf(tmp_path / "in", made))
    known = np.unique([*text[:18]])
    wanted = [text[at : at + 9] for at in (0, 5, 9, 9, 0, 5)]
    assert ["".join(known[row]) for row in data.x[:]] == [one[:-1] for one in wanted]
    assert ["".join(known[row]) for row in data.y] == [one[1:] for one in wanted]
    assert [data.silo_names[one] for one in data.silo.tolist()] == ["HAMLET"] * 2 + ["ROMEO"] + ["HAMLET"] + [
        "ROMEO"
    ] * 2
    assert data.held.tolist() == [False] * 3 + [True] * 3


def test_leafs_sentiment140(tmp_path, recipe):
    def own(*texts):
        return {
            "x": [["7", "Mon Apr 06", "NO_QUERY", "u", text] for text in texts],
            "y": [0, 1][: len(texts)],
        }

    train = {"u1": own("so so bad", "So GOOD"), "u2": own("bad bad bad so", "fine")}
    made = {"train": train, "test": {"u1": own("so unseen"), "u2": own("fine")}}
    data = recipe("LEAF's Sentiment140", leaf(tmp_path / "in", made))
    assert data.x[:, :4].tolist() == [
        [1, 1, 2, 0],
        [1, 3, 0, 0],
        [2, 2, 2, 1],
        [4, 0, 0, 0],
        [1, 0, 0, 0],
        [4, 0, 0, 0],
    ]
    assert (data.x.shape, data.y.tolist()) == ((6, 25), [0, 1, 0, 1, 0, 0])
    assert data.held.tolist() == [False] * 4 + [True] * 2


def test_wav(tmp_path, recipe):
    from scipy.io import wavfile

    for at, sound in enumerate(SOUND):
        (folder := tmp_path / "in" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        wavfile.write(folder / f"{at}.{['wav', 'WAV'][at // 2]}", 100, sound)
        (folder / "._0.wav").write_bytes(b"what macOS leaves")
    (tmp_path / "in" / ".DS_Store").mkdir()
    (tmp_path / "in" / "Read me.txt").write_text("")
    data = recipe("WAV", tmp_path / "in")
    assert np.array_equal(data.x[:][:, :80], (SOUND[[0, 2, 1, 3]] / 32768).astype(np.float32))
    assert (data.x.shape, data.y.tolist()) == ((4, 100), [0, 0, 1, 1])
    wavfile.write(path := tmp_path / "in" / "a" / "0.wav", 100, SOUND[0].astype(np.uint8))
    with pytest.raises(InputError, match=rf"ValueError: {path} has uint8; write it with 16 bits"):
        find_source("recipe:examples")(tmp_path / "in", 0)


def test_fasta(tmp_path, recipe):
    (tmp_path / "own.fa").write_text(">s1 promoter\nACG\nTN\n>s2 other\nTTTTT\n")
    data = recipe("FASTA", tmp_path / "own.fa")
    assert (data.x[:].tolist(), data.class_names) == ([[0, 1, 2, 3, 4], [3] * 5], ("other", "promoter"))
    assert data.y.tolist() == [1, 0]


def test_flac(tmp_path, recipe):
    soundfile = pytest.importorskip("soundfile")
    for at, sound in enumerate(SOUND):
        (folder := tmp_path / "in" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / f"{at}.flac", sound, 8000)
    data = recipe("FLAC and OGG", tmp_path / "in")
    assert np.array_equal(data.x[:][:, 0, :80], (SOUND[[0, 2, 1, 3]] / 32768).astype(np.float32))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # wfdb's own, of a newer pandas
def test_wfdb(tmp_path, recipe):
    wfdb = pytest.importorskip("wfdb")
    (tmp_path / "in").mkdir()
    for at in range(4):
        more = {
            "fmt": ["16"] * 2,
            "comments": ["well" if at % 2 else "ill"],
            "write_dir": str(tmp_path / "in"),
        }
        wfdb.wrsamp(f"r{at}", fs=5, units=["mV"] * 2, sig_name=["I", "II"], p_signal=X[at].T, **more)
    data = recipe("WFDB", tmp_path / "in")
    wanted = [wfdb.rdrecord(str(tmp_path / "in" / f"r{at}")).p_signal.T for at in range(4)]
    assert np.array_equal(data.x[:], np.array(wanted, np.float32))
    assert (data.class_names, data.y.tolist()) == (("ill", "well"), [0, 1, 0, 1])


def test_zarr(tmp_path, recipe):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "own.zarr"), mode="w")
    for name, array in (("x", X), ("y", Y)):
        group.create_array(name, data=array)
    data = recipe("Zarr", tmp_path / "own.zarr")
    assert np.array_equal(data.x[:], X)
    assert data.y.tolist() == Y.tolist()


def test_root(tmp_path, recipe):
    uproot = pytest.importorskip("uproot")
    with uproot.recreate(tmp_path / "own.root") as file:
        file["events"] = {"px": X[:, 0, 0], "py": X[:, 1, 0], "kind": Y.astype(np.int32)}
    data = recipe("ROOT", tmp_path / "own.root")
    assert np.array_equal(data.x[:], X[:, :, 0].astype(np.float32))
    assert data.y.tolist() == Y.tolist()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # anndata's own, of a newer pandas
def test_anndata(tmp_path, recipe):
    anndata = pytest.importorskip("anndata")
    names = {"cell_type": ["T", "B", "T", "B", "B", "T"], "donor": ["d1", "d2"] * 3}
    index = pd.Index([f"c{at}" for at in range(6)], dtype=object)
    obs = pd.DataFrame(names, index, dtype=object)  # texts of pandas 3 are written by newer ones alone
    var = pd.DataFrame(index=pd.Index([f"g{at}" for at in range(50)], dtype=object))
    anndata.AnnData(X[:, 0].astype(np.float32), obs=obs, var=var).write_h5ad(tmp_path / "own.h5ad")
    data = recipe("anndata", tmp_path / "own.h5ad")
    assert np.array_equal(data.x[:], X[:, 0].astype(np.float32))
    assert (data.class_names, data.silo_names) == (("B", "T"), {0: "d1", 1: "d2"})


def test_netcdf(tmp_path, recipe):
    xarray = pytest.importorskip("xarray")
    parts = {"pressure": (("day", "level", "hour"), X), "rain": (("day",), X[:, 0, 0])}
    xarray.Dataset(parts).to_netcdf(tmp_path / "own.nc", engine="scipy")
    data = recipe("NetCDF", tmp_path / "own.nc")
    assert np.array_equal(data.x[:], X.astype(np.float32))
    assert np.array_equal(data.y, X[:, 0, 0])
