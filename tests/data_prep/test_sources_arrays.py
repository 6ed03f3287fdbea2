"""Arrays in .npy and HDF5 files: bit for bit, read where they are needed, and one line for what is wrong."""

import h5py
import numpy as np
import pytest

from data_prep.cli import main
from data_prep.dataset import all_seen, unseen
from data_prep.sources.hdf5 import ChunkedRows
from data_prep.sources.reading import FiniteRows
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def drawn(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.random((n, 3, 2)).astype(np.float32),
        "y": rng.integers(0, 5, n),
        "x_test": rng.random((9, 3, 2)).astype(np.float32),
        "y_test": rng.integers(0, 5, 9),
        "silo": rng.integers(0, 4, n),
    }


def write_npy(path, arrays):
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def write_hdf5(path, arrays, **layout):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **layout)
    return path


WRITERS = {
    "npy": write_npy,
    "hdf5": write_hdf5,
    "hdf5 chunked": lambda path, arrays: write_hdf5(path, arrays, chunks=True),
    "hdf5 gzip": lambda path, arrays: write_hdf5(path, arrays, chunks=True, compression="gzip", shuffle=True),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_arrays_come_back_bit_for_bit(tmp_path, kind):
    arrays = drawn()
    data = WRITERS[kind](tmp_path / "in", arrays)
    assert (
        command(
            "partition", kind.split()[0], "--data", data, "--out", tmp_path / "out", "--scheme", "natural"
        )
        == 0
    )
    spec = read_federation(tmp_path / "out")
    assert (spec.features.shape, spec.features.dtype, spec.classes) == ((3, 2), "float32", 5)
    for silo, entry in enumerate(spec.silos):
        split, mine = open_shard(tmp_path / "out", entry, spec)["train"], arrays["silo"] == silo
        assert np.array_equal(split.x, arrays["x"][mine])
        assert np.array_equal(split.y, arrays["y"][mine])
    test = open_shard(tmp_path / "out", spec.test, spec)["test"]
    assert np.array_equal(test.x, arrays["x_test"])
    assert np.array_equal(test.y, arrays["y_test"])


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_contiguous_features_are_mapped_and_not_read(tmp_path, kind):
    dataset = find_source(kind)(WRITERS[kind](tmp_path / "in", drawn()), 0)
    assert isinstance(dataset.x, FiniteRows)
    base = dataset.x.rows
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize(
    "at",
    [
        slice(3, 40),
        slice(50, 3, -7),
        slice(3, 50, 4),
        slice(0, 0),
        np.array([59, 0, 7, 7, 31]),
        np.arange(60),
    ],
)
@pytest.mark.parametrize("span", [1, 7, 1000])
def test_chunked_rows_are_those_of_the_array(tmp_path, at, span, monkeypatch):
    monkeypatch.setattr("data_prep.sources.hdf5.SPAN", span * 24)
    x = drawn()["x"]
    with h5py.File(write_hdf5(tmp_path / "in", {"x": x}, chunks=(4, 3, 2))) as file:
        rows = ChunkedRows(tmp_path / "in", "x", file["x"])
        assert np.array_equal(rows[at], x[at])
        assert (rows.shape, rows.dtype, rows.step, rows.sequential) == (x.shape, x.dtype, 4, True)


def test_a_request_reads_each_span_once(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.sources.hdf5.SPAN", 1)
    with h5py.File(write_hdf5(tmp_path / "in", {"x": drawn()["x"]}, chunks=(10, 3, 2))) as file:
        rows, read = ChunkedRows(tmp_path / "in", "x", file["x"]), []
        whole = rows._read
        monkeypatch.setattr(
            rows, "_read", lambda start, stop: read.append((start, stop)) or whole(start, stop)
        )
        rows[np.random.default_rng(0).permutation(60)[:30]]
        assert read == sorted(set(read))
        assert len(read) <= 6


X, Y = np.ones((12, 3)), np.arange(12) % 3
FAULTS = {
    "no x": ({"y": Y}, "has no array 'x'"),
    "no y": ({"x": X}, "has no array 'y'"),
    "lengths differ": ({"x": X, "y": Y[:-1]}, "y has shape [11]; there are 12 examples"),
    "complex labels": ({"x": X, "y": Y * 1j}, "y has dtype complex128"),
    "negative labels": ({"x": X, "y": Y - 1}, "labels from -1 to 1"),
    "silo too short": ({"x": X, "y": Y, "silo": Y[:5]}, "silo has shape [5]"),
    "one axis": ({"x": X[:, 0], "y": Y}, "x has shape [12]"),
    "an empty test set": (
        {"x": X, "y": Y, "x_test": X[:0], "y_test": Y[:0]},
        "x_test is empty; leave it out",
    ),
    "other test shape": ({"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y}, "x_test has float64 [2]"),
    "held out by number": ({"x": X, "y": Y, "held_out": Y}, "held_out is 2 in example 2; it must be 0 or 1"),
    "held out too short": ({"x": X, "y": Y, "held_out": Y[:5] > 0}, "held_out has shape [5]"),
    "held out by floats": ({"x": X, "y": Y, "held_out": Y / 2}, "held_out has dtype float64"),
}


@pytest.mark.parametrize("kind", ["npy", "hdf5", "hdf5 chunked"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_array_is_named(tmp_path, kind, fault):
    arrays, said = FAULTS[fault]
    data = WRITERS[kind](tmp_path / "in", arrays)
    with pytest.raises(InputError, match=r".") as error:
        find_source(kind.split()[0])(data, 0)
    assert said in str(error.value)
    assert str(data) in str(error.value)


def read_all(read, path):
    data = read(path, 0)
    return data.x[:], data.test[0][:]


BEYOND = {
    "above": ({"x": (3, 1e39)}, [], "x has values beyond float32, first 1e+39 in example 3; use another"),
    "below": ({"x": (2, -3.5e38)}, [], "x has values beyond float32, first -3.5e+38 in example 2"),
    "of the test set": ({"x_test": (1, 1e300)}, [], "x_test has values beyond float32, first 1e+300 in exam"),
    "a target": ({"y": (4, 1e39)}, [], "y has values beyond float32, first 1e+39 in example 4; use another"),
    "times its scale": ({"x": (3, 1e30)}, ["scale=1e10"], "x has values beyond float32, first 1e+30"),
    "by its scale alone": ({"x": (3, 1e39)}, ["scale=1e-9"], "x has values beyond float32, first 1e+39"),
    "scale of 0": ({}, ["scale=1e-60"], "scale=1e-60 given; float32 has 1.18e-38 to 3.4e+38"),
    "scale of no end": ({}, ["scale=1e60"], "scale=1e60 given; float32 has 1.18e-38 to 3.4e+38"),
}


@pytest.mark.parametrize("what", BEYOND)
def test_a_value_beyond_float32_is_refused(tmp_path, what):
    harm, options, said = BEYOND[what]
    arrays = {"x": np.ones((6, 2)), "y": np.arange(6.0), "x_test": np.ones((6, 2)), "y_test": np.arange(6.0)}
    for name, (row, value) in harm.items():
        arrays[name][row] = value
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(InputError) as refusal:
        read_all(find_source("npz", options), tmp_path / "in.npz")
    assert said in str(refusal.value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_found_in_every_dtype(dtype, value):
    x = np.full((6, 2), np.finfo("f2").max, dtype)
    assert all_seen(x)
    assert not all_seen(x, 1e38)
    x[4, 1] = value
    assert not all_seen(x)
    assert np.argwhere(unseen(x)).tolist() == [[4, 1]]


def test_integers_that_a_scale_may_bring_beyond_float32_are_refused(tmp_path):
    np.savez(tmp_path / "in.npz", x=np.ones((6, 2), np.int64), y=np.arange(6))
    with pytest.raises(InputError, match=r"scale=1e\+20 given; int64 times this may be beyond float32"):
        find_source("npz", ["scale=1e20"])(tmp_path / "in.npz", 0)
    assert find_source("npz", ["scale=1e18"])(tmp_path / "in.npz", 0).scale == 1e18


def test_the_largest_value_of_float32_is_taken_to_its_rounding(tmp_path):
    most = np.nextafter(np.float64(2) ** 128 * (1 - 2.0**-25), 0)  # rounds to the largest float32
    np.savez(tmp_path / "in.npz", x=np.full((6, 2), most), y=np.full(6, -most))
    data = find_source("npz")(tmp_path / "in.npz", 0)
    assert np.isfinite(data.x[:].astype(np.float32)).all()
    assert np.isfinite(data.y.astype(np.float32)).all()


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_found_where_it_is_read(tmp_path, kind, value, capsys, recwarn):
    arrays = drawn()
    arrays["x"][[17, 30], 1, 1] = value, -value
    data = WRITERS[kind](tmp_path / "in", arrays)
    assert (
        command(
            "partition",
            kind.split()[0],
            "--data",
            data,
            "--out",
            tmp_path / "out",
            "--scheme",
            "iid",
            "--silos",
            "3",
        )
        == 2
    )
    err = capsys.readouterr().err
    assert "NaN or infinite values, first in example" in err
    assert err.count("\n") == 1
    assert not recwarn.list
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_finite_rows_name_the_example_and_let_large_ones_pass():
    x = np.full((6, 2), np.finfo(np.float32).max, np.float64)
    rows = FiniteRows(x, "x", None)
    assert np.array_equal(rows[:], x)
    assert FiniteRows(x[:0], "x", None)[:].shape == (0, 2)
    x[4, 1] = np.nan
    assert np.array_equal(rows[:4], x[:4])
    x[5, 0] = np.inf
    for at in (slice(3, 6), np.array([0, 4]), np.array([5, 0, 4])):
        with pytest.raises(InputError, match="first in example 4"):
            rows[at]


FILES = {
    "text": ("npy", b"x,y\n", "not a .npy file"),
    "cut short": ("npy", None, "damaged or cut short"),
    "objects": ("npy", np.array([[1], [1, 2]], dtype=object), "Python objects"),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_damaged_npy_file_is_named(tmp_path, fault):
    _, content, said = FILES[fault]
    data = write_npy(tmp_path / "in", {"x": X, "y": Y})
    path = data / "x.npy"
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    else:
        path.write_bytes(content or path.read_bytes()[:-8])
    with pytest.raises(InputError, match=r".") as error:
        find_source("npy")(data, 0)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_damaged_hdf5_file_is_named(tmp_path):
    path = write_hdf5(tmp_path / "in.h5", drawn(), chunks=True, compression="gzip", fletcher32=True)
    whole = path.read_bytes()
    with h5py.File(path) as file:
        at = file["x"].id.get_chunk_info(0).byte_offset
    path.write_bytes(whole[: at + 8] + b"\xff" * 40 + whole[at + 48 :])
    with pytest.raises(InputError, match=r"in\.h5: x: rows .* cannot be read"):
        find_source("hdf5")(path, 0).x[:]
    for content in (whole[:-200], b"x,y\n1,2\n", b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not an HDF5 file, or cut short"):
            find_source("hdf5")(path, 0)


def test_a_damaged_list_of_data_sets_is_named(tmp_path):
    path = write_hdf5(tmp_path / "in.h5", drawn())
    whole = path.read_bytes()
    assert b"SNOD" in whole  # a node of the table of symbols
    path.write_bytes(whole.replace(b"SNOD", b"SNO_"))
    with pytest.raises(InputError, match=r"in\.h5: its list of data sets is damaged"):
        find_source("hdf5")(path, 0)


def test_hdf5_of_something_else_than_numbers_is_refused(tmp_path):
    path = write_hdf5(tmp_path / "in.h5", {"x": np.array([b"a", b"b"]), "y": Y[:2]})
    with pytest.raises(InputError, match="store arrays of numbers"):
        find_source("hdf5")(path, 0)


@pytest.mark.parametrize("source", ["npy", "hdf5", "csv", "parquet", "images", "text"])
def test_a_source_that_needs_data_says_so(source, tmp_path):
    with pytest.raises(InputError, match=f"--data: not given; '{source}' needs it"):
        find_source(source)(None, 0)
    with pytest.raises(InputError, match="nowhere"):
        find_source(source)(tmp_path / "nowhere", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["alpha"], "'alpha' given; synthetic takes alpha=0.0, beta=0.0, iid=false, silos=30"),
        (["gamma=1"], "'gamma=1' given; synthetic takes"),
        (["alpha=much"], "alpha=much given; it must be a number"),
        (["silos=2.5"], "silos=2.5 given; it must be a whole number"),
        (["iid=perhaps"], "iid=perhaps given; it must be true or false"),
        (["alpha=1", "alpha=2"], "alpha is given twice; say it once"),
        (["alpha=-1"], "alpha=-1.0 given; a variance is at least 0"),
        (["beta=nan"], "beta=nan given"),
        (["silos=0"], "silos=0 given"),
        (["iid=true", "alpha=1"], "alpha=1 given, but with iid=true all silos have one model"),
        (["beta=0.5", "iid=true"], "beta=0.5 given, but with iid=true"),
    ],
)
def test_a_bad_option_of_a_source_is_named(words, said):
    with pytest.raises(InputError, match=r".") as error:
        find_source("synthetic", words)(None, 0)
    assert said in str(error.value)


def test_a_source_without_options_takes_none():
    with pytest.raises(InputError, match="digits takes none"):
        find_source("digits", ["size=3"])


@pytest.mark.parametrize("kind", [*WRITERS, "npz"])
def test_arrays_say_what_silos_hold_out_and_options_the_rest(tmp_path, kind):
    arrays = {name: array for name, array in drawn().items() if "_test" not in name}
    arrays["x"] = (arrays["x"] * 255).astype(np.uint8)
    arrays["held_out"] = np.arange(60) % 7 < 2
    if kind == "npz":
        np.savez(data := tmp_path / "in.npz", **arrays)
    else:
        data = WRITERS[kind](tmp_path / "in", arrays)
    options = ["--option", "silo_names=north,east,south,west", "--option", "scale=1/255"]
    words = ["partition", kind.split()[0], "--data", data, "--out", tmp_path / "out", "--scheme", "natural"]
    assert command(*words, *options) == 0
    spec = read_federation(tmp_path / "out")
    assert [entry.name for entry in spec.silos] == ["north", "east", "south", "west"]
    assert spec.features.scale == 1 / 255
    for silo, entry in enumerate(spec.silos):
        shard, mine = open_shard(tmp_path / "out", entry, spec), arrays["silo"] == silo
        assert np.array_equal(shard["train"].x, arrays["x"][mine & ~arrays["held_out"]])
        assert np.array_equal(shard["test"].y, arrays["y"][mine & arrays["held_out"]])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("scale=1/0", "scale=1/0 given; it must be a number above 0, such as 1/255"),
        ("scale=-1", "scale=-1 given; it must be a number above 0"),
        ("scale=large", "scale=large given; it must be a number above 0"),
        ("silo_names=a,b", "in: silo has 4 different numbers: give each its own name"),
        ("silo_names=a,b,c,a", "in: silo has 4 different numbers: give each its own name"),
    ],
)
def test_a_bad_option_of_arrays_is_named(tmp_path, capsys, option, said):
    data = write_npy(tmp_path / "in", drawn())
    words = ["--data", data, "--out", tmp_path / "out", "--scheme", "natural", "--option", option]
    assert command("partition", "npy", *words) == 2
    assert said in capsys.readouterr().err


def test_what_lies_in_another_file_is_not_read_in_place_of_ones_own(tmp_path):
    other = write_hdf5(tmp_path / "other.h5", drawn())
    (tmp_path / "secret.bin").write_bytes(bytes(range(96)))
    for name in ("linked", "external"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            if name == "linked":
                file["x"] = h5py.ExternalLink(str(other), "x")
            else:
                where = [(str(tmp_path / "secret.bin"), 0, 96)]
                file.create_dataset("x", (4, 6), "f4", external=where)
            file["y"] = np.arange(4)
        with pytest.raises(InputError, match=rf"{name}\.h5: x lies in another file"):
            find_source("hdf5")(tmp_path / f"{name}.h5", 0)
