"""Data sets of an HDF5 file that are called otherwise than x and y, and measurements of 16 bits."""

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation

DRAW = np.random.default_rng(5)
X = DRAW.integers(0, 1 << 16, (20, 4, 3), np.uint16)
Y, PLACE, PERSON = DRAW.integers(0, 3, 20), np.array(["north", "south"] * 10), np.repeat(np.arange(5), 4)
PATHS = ["x=/study/images", "y=/study/table/grade", "silo=/study/place"]


@pytest.fixture
def study(tmp_path):
    with h5py.File(tmp_path / "study.h5", "w") as file:
        file.create_dataset("study/images", data=X, chunks=(3, 4, 3), compression="gzip")
        file["study/table/grade"], file["study/place"], file["study/person"] = Y, PLACE.tolist(), PERSON
        file["x"], file["other"] = np.zeros((2, 2)), h5py.SoftLink("/study/images")
    return tmp_path / "study.h5"


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def test_data_sets_are_found_by_their_paths(study, tmp_path):
    options = [word for option in [*PATHS, "scale=1/65535"] for word in ("--option", option)]
    for out in ("one", "two"):
        words = ["partition", "hdf5", "--data", study, "--out", tmp_path / out, "--scheme", "natural"]
        assert run(*words, *options, "--group", "/study/person") == 2  # persons are at both places
        assert run(*words, *options) == 0
    spec = read_federation(tmp_path / "one")
    assert [entry.name for entry in spec.silos] == ["north", "south"]
    assert (spec.features.dtype, spec.features.shape, spec.features.scale) == ("int32", (4, 3), 1 / 65535)
    for entry, place in zip(spec.silos, ("north", "south"), strict=True):
        train = open_shard(tmp_path / "one", entry, spec)["train"]
        assert np.array_equal(train.x, X[place == PLACE])
        assert np.array_equal(train.y, Y[place == PLACE])
    again = read_federation(tmp_path / "two")
    assert [one.sha256 for one in spec.silos] == [one.sha256 for one in again.silos]


def test_a_group_may_lie_in_a_folder_of_the_file(study):
    data = find_source("hdf5", [*PATHS, "group=/study/person"])(study, 0)
    assert data.groups.of.tolist() == PERSON.tolist()


FAULTS = {
    "no such path": (["x=/study/image"], "x=/study/image given; did you mean '/study/images'? "),
    "a folder": (["x=/study"], "has the data sets /study/images, "),
    "another length": (["x=/study/images", "y=/x"], "y has shape [2, 2]; there are 20 examples"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_path_is_one_line(study, fault):
    options, said = FAULTS[fault]
    with pytest.raises(InputError) as error:
        find_source("hdf5", options)(study, 0)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_measurements_of_16_bits_without_a_sign_keep_their_numbers(tmp_path, kind):
    if kind == "npz":
        np.savez(path := tmp_path / "in.npz", x=X, y=Y, x_test=X[:3], y_test=Y[:3])
    else:
        (path := tmp_path / "in").mkdir()
        np.save(path / "x.npy", X.astype(">u2"))
        np.save(path / "y.npy", Y)
    data = find_source(kind, ["scale=1/65535"])(path, 0)
    assert data.x.dtype == np.int32
    assert np.array_equal(data.x[np.arange(20)], X)
    assert data.features.scale == 1 / 65535
    np.savez(tmp_path / "wide.npz", x=X.astype("uint32"), y=Y)
    with pytest.raises(InputError, match="dtype uint32; convert it to one of"):
        find_source("npz")(tmp_path / "wide.npz", 0)


def test_signed_ones_stay_as_they_are(tmp_path):
    np.savez(tmp_path / "in.npz", x=X.astype(np.int16), y=Y)
    assert find_source("npz", ["scale=1/32767"])(tmp_path / "in.npz", 0).x.dtype == np.int16
