"""What arrays are called: classes, silos and columns, in a list or by texts in the arrays."""

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import read_federation

X = np.arange(24, dtype=np.float32).reshape(8, 3)
SICK = np.array(["ill", "well ", "ill", "well"] * 2)
WARDS = np.array(["north", "south"] * 4)


def npz(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def npy(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def hdf5(folder, **arrays):
    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array.tolist() if array.dtype.kind == "U" else array
    return folder / "a.h5"


WRITERS = {"npz": npz, "npy": npy, "hdf5": hdf5}


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.mark.parametrize("kind", WRITERS)
def test_texts_in_arrays_are_names(tmp_path, kind):
    path = WRITERS[kind](tmp_path, x=X, y=SICK, silo=WARDS, x_test=X[:2], y_test=np.array(["well", "ill"]))
    data = find_source(kind, ["feature_names=age, sex,bmi"])(path, 0)
    assert (data.class_names, data.classes, np.asarray(data.y).tolist()) == (("ill", "well"), 2, [0, 1] * 4)
    assert (data.silo_names, data.silo.tolist()) == ({0: "north", 1: "south"}, [0, 1] * 4)
    assert (data.feature_names, np.asarray(data.test[1]).tolist()) == (("age", "sex", "bmi"), [1, 0])


def test_texts_of_a_function_are_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = (
        "import numpy as np\n\n\ndef rows(seed):\n    x = np.ones((4, 2), 'f4')\n"
        "    return {'x': x, 'y': ['ill', 'well'] * 2, 'silo': np.array(['b', 'a'] * 2)}\n"
    )
    (tmp_path / "wordy.py").write_text(source)
    data = find_source("wordy:rows")(None, 0)
    assert (data.class_names, data.silo_names, data.silo.tolist()) == (
        ("ill", "well"),
        {0: "a", 1: "b"},
        [1, 0] * 2,
    )


def test_names_are_given_in_a_list_and_stand_in_the_federation(tmp_path):
    path = npz(tmp_path, x=X, y=np.arange(8) % 2, silo=np.arange(8) % 2)
    words = ["partition", "npz", "--data", path, "--out", tmp_path / "o", "--scheme", "natural"]
    for option in ("class_names=well,ill,dead", "feature_names=age,sex,bmi", "silo_names=n,s"):
        words += ["--option", option]
    assert command(*words) == 0
    spec = read_federation(tmp_path / "o")
    assert (spec.class_names, spec.classes) == (["well", "ill", "dead"], 3)
    assert (spec.feature_names, [one.name for one in spec.silos]) == (["age", "sex", "bmi"], ["n", "s"])


BAD = {
    "too few classes": ({}, "class_names=well", "y has 2 classes: give each its own name"),
    "a class twice": (
        {},
        "class_names=well,well",
        "y has 2 classes: give each its own name",
    ),
    "no classes": ({"y": X[:, 0]}, "class_names=a,b", "y has no classes"),
    "names of texts": ({"y": SICK}, "class_names=a,b", "y holds their names, leave it out"),
    "silos of texts": ({"silo": WARDS}, "silo_names=a,b", "silo holds their names, leave it out"),
    "columns": ({}, "feature_names=age,sex", "x has 3 columns: give each its own name"),
    "no columns": ({"x": X.reshape(8, 3, 1)}, "feature_names=age,sex,bmi", "x has no columns"),
    "an empty name": ({"y": np.where(SICK == "ill", "", "p")}, "", "y is empty in example 0; name it"),
    "numbers beside": ({"y": SICK, "x_test": X, "y_test": np.arange(8)}, "", "make them alike"),
}


@pytest.mark.parametrize("what", BAD)
def test_names_that_do_not_fit_are_refused(tmp_path, what):
    arrays, option, said = BAD[what]
    path = npz(tmp_path, **{"x": X, "y": np.arange(8) % 2, "silo": np.arange(8) % 2, **arrays})
    with pytest.raises(InputError, match=r".") as refusal:
        find_source("npz", [option] if option else [])(path, 0)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "feature_names=sex,bmi,age",
            "column 0 is 'sex', the federation has 'age'; name and order them alike",
        ),
        ("", "has no names of columns, the federation has age, sex, bmi; say --option feature_names=..."),
        ("feature_names=age,sex,bmi", None),
    ],
)
def test_an_import_compares_names_and_order(tmp_path, capsys, option, said):
    agreed = ["spec", tmp_path / "agreed.json", "--shape", 3, "--class-names", "well,ill", "--feature-names"]
    assert command(*agreed, "age,sex,bmi") == 0
    words = ["import", "npz", "--data", npz(tmp_path, x=X, y=SICK), "--spec", tmp_path / "agreed.json"]
    words += ["--silo", 0, "--out", tmp_path / "o", *(["--option", option] if option else [])]
    assert command(*words) == (2 if said else 0)
    assert (said or "") in capsys.readouterr().err
