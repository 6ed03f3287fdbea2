"""A user's own function as a source: what it may make, its options, and a line for what is wrong."""

import hashlib
import sys

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources import own
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards import provenance_of, texts_of
from mpifl.data.shards.shards import open_shard, read_federation

OWN = """
import numpy as np

N = 30

def arrays(seed, shift=0.0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(N, 3)).astype("f4") + np.float32(shift)
    return x, draw.integers(0, 3, N), np.arange(N) % 4

def whole(seed):
    x, y, silo = arrays(seed)
    return {"x": x, "y": y, "silo": silo, "x_test": x[:5], "y_test": y[:5]}

def pieces(seed, *, step: int = 7, shift=0.0):
    x, y, silo = arrays(seed, shift)
    for at in range(0, N, step):
        yield x[at:at + step], y[at:at + step], silo[at:at + step]

def listed(seed):
    return [(x, y) for x, y, _ in pieces(seed)]

def values(seed):
    x, _, silo = arrays(seed)
    return x, x[:, :2] * 2, silo

def scaled(seed, scale=1.0):
    x, y, silo = arrays(seed)
    return x * scale, y, silo

def anything(seed, **options):
    return np.full((6, 2), float(options["value"])), np.zeros(6, int) + int(options["y"])

def of_a_file(seed, data, times):
    x = np.loadtxt(data) * float(times)
    return x, np.zeros(len(x), int)

def integer(seed): return 3
def text(seed): return "x"
def array(seed): return np.zeros((4, 2))
def nothing(seed): return []
def four(seed): return np.zeros((4, 2)), 1, 2, 3
def not_arrays(seed): return np.zeros((4, 2)), "y"
def ragged(seed): return [np.zeros((2, 2)), np.zeros((3, 1))], [0, 1]
def uneven(seed): return np.zeros((4, 2)), np.zeros(3, int)
def named(seed):
    return {"x": arrays(seed)[0], "y": np.zeros(N, int), "id": np.array([f"p{n}" for n in range(N)])}
def no_y(seed): return {"x": np.zeros((4, 2))}
def no_seed(): return arrays(0)
def needs(seed, much): return arrays(0)
def flat(seed): return np.zeros(4), np.zeros(4, int)
def infinite(seed): return np.full((4, 2), np.inf), np.zeros(4, int)
def objects(seed): return np.array([[object()]]), [0]
number = 5

def another_form(seed):
    yield np.zeros((4, 2)), np.zeros(4, int)
    yield np.zeros((4, 3)), np.zeros(4, int)

def another_dtype(seed):
    yield np.zeros((4, 2)), np.zeros(4, int)
    yield np.zeros((4, 2)), np.zeros(4)

def silo_once(seed):
    yield np.zeros((4, 2)), np.zeros(4, int), np.zeros(4, int)
    yield np.zeros((4, 2)), np.zeros(4, int)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """Put the module into the folder where commands run; forget it afterwards."""
    (tmp_path / "madeup.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("madeup", None)


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def arrays(seed, shift=0.0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(30, 3)).astype("f4") + np.float32(shift)
    return x, draw.integers(0, 3, 30), np.arange(30) % 4


@pytest.mark.parametrize("name", ["arrays", "whole", "pieces", "listed"])
def test_what_a_function_makes_is_the_data_set(module, name):
    dataset = find_source(f"madeup:{name}")(None, 9)
    x, y, silo = arrays(9)
    assert (np.asarray(dataset.x[:]).tolist(), dataset.y.tolist()) == (x.tolist(), y.tolist())
    assert (dataset.silo is None) == (name == "listed")
    assert dataset.silo is None or dataset.silo.tolist() == silo.tolist()
    assert (dataset.test is not None) == (name == "whole")
    assert dataset.files == {"madeup.py": hashlib.sha256(OWN.encode()).hexdigest()}


def test_the_command_writes_the_same_bits_for_any_jobs_and_pieces(module, capsys):
    digests = []
    for number, (jobs, step) in enumerate([(1, 7), (3, 7), (1, 30)]):
        words = ["--seed", 2, "--scheme", "natural", "--jobs", jobs, "--name", "own"]
        out = module / str(number)
        run(
            "partition",
            "madeup:pieces",
            *words,
            "--option",
            f"step={step}",
            "--option",
            "shift=1",
            "--out",
            out,
        )
        digests.append([entry.sha256 for entry in read_federation(out).silos])
    assert digests[0] == digests[1] == digests[2]
    assert len(digests[0]) == 4
    spec = read_federation(module / "0")
    assert spec.source["name"] == "madeup:pieces"
    assert open_shard(module / "0", spec.silos[1], spec)["train"].x.tolist() == arrays(2, 1)[0][1::4].tolist()
    run("check", module / "0")
    run("inspect", module / "0")
    assert "madeup:pieces" in capsys.readouterr().out


def test_targets_are_said_as_for_arrays_of_a_file(module):
    dataset = find_source("madeup:values", ["target-names=low,high"])(None, 0)
    assert (dataset.classes, dataset.targets.names) == (None, ["low", "high"])
    assert find_source("madeup:arrays", ["targets=values"])(None, 0).classes is None


def test_silos_are_named_and_measurements_scaled_as_those_of_a_file(module):
    dataset = find_source("madeup:arrays", ["silo_names=a,b,c,d", "scale=1/2"])(None, 0)
    assert dataset.silo_names == {0: "a", 1: "b", 2: "c", 3: "d"}
    assert dataset.scale == 0.5


def test_an_option_of_the_function_is_its_own(module):
    dataset = find_source("madeup:scaled", ["scale=2", "silo_names=a,b,c,d"])(None, 9)
    assert np.array_equal(dataset.x[:], 2 * arrays(9)[0])
    assert (dataset.scale, len(dataset.silo_names)) == (None, 4)


def test_options_reach_the_function(module):
    dataset = find_source("madeup:anything", ["value=2.5", "y=1"])(None, 0)
    assert (np.asarray(dataset.x[:]) == 2.5).all()
    assert dataset.y.tolist() == [1] * 6
    (module / "own.txt").write_text("1 2\n3 4\n")
    assert find_source("madeup:of_a_file", ["times=2"])(module / "own.txt", 0).x[:].tolist() == [
        [2, 4],
        [6, 8],
    ]


def test_texts_of_ids_are_taken_or_left_as_those_of_a_file(module, capsys):
    cut = ["--scheme", "iid", "--silos", 2]
    run("partition", "madeup:named", *cut, "--out", "out")
    said = capsys.readouterr().err
    assert "arrays that are not read: id; --group NAME, --order NAME and --option id=NAME use one" in said
    for out, words in (("kept", ["--keep", "id"]), ("asked", ["--keep", "id", "--option", "id=id"])):
        run("partition", "madeup:named", *cut, *words, "--out", out)
        entry = read_federation(module / out).silos[0]
        assert all(text.startswith("p") for text in texts_of(provenance_of(module / out, entry)["train"].ids))


def test_a_site_imports_what_its_function_makes(module):
    run("spec", "agreed.json", "--shape", 3, "--classes", 3)
    run("import", "madeup:arrays", "--spec", "agreed.json", "--silo", 0, "--out", "site")
    run("assemble", "site")
    assert read_federation(module / "site").silos[0].examples == {"train": 30}


FAULTS = {
    "integer": "madeup:integer: returned int; it returns or yields (x, y)",
    "text": "madeup:text: returned str",
    "array": "madeup:array: returned ndarray",
    "nothing": "madeup:nothing: made no examples",
    "four": "madeup:four: piece 0 is tuple of 4",
    "not_arrays": "madeup:not_arrays: y of piece 0 is str with dtype <U1 and shape []",
    "ragged": "madeup:ragged: x of piece 0 is not an array (all the input array dimensions",
    "uneven": "madeup:uneven: piece 0 has 4 rows of x and 3 of y",
    "no_y": "madeup:no_y: has no array 'y'",
    "no_seed": "'madeup:no_seed' is not a function of a seed",
    "needs": "missing a required argument: 'much'; give it as --option",
    "flat": "madeup:flat: x has shape [4]; it must be [examples, features, ...]",
    "infinite": "madeup:infinite: x has NaN or infinite values, first in example ",
    "objects": "madeup:objects: x of piece 0 is ndarray with dtype object",
    "number": "'madeup:number' is not a function of a seed",
    "another_form": "piece 1 has x of float64 [3], the first one float64 [2]",
    "another_dtype": "piece 1 has y of float64 [], the first one int64 []",
    "silo_once": "piece 1 has x, y, the first one x, y, silo",
    "absent": "SOURCE = 'madeup:absent': module 'madeup' has no attribute 'absent'",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_return_ends_the_command_with_one_line(module, capsys, name):
    run("partition", f"madeup:{name}", "--out", "out", "--scheme", "iid", "--silos", 2, ends=2)
    error = capsys.readouterr().err
    assert FAULTS[name] in error
    assert error.count("\n") == 1
    assert not (module / "out").exists()


@pytest.mark.parametrize(
    ("name", "option", "said"),
    [
        ("madeup:arrays", "size=3", "madeup:arrays takes shift=0.0, targets="),
        ("madeup:arrays", "shift=far", "shift=far given; it must be a number"),
        (
            "nowhere:arrays",
            "shift=1",
            "No module named 'nowhere'; it is looked for in ",
        ),
        ("madeup", "shift=1", "or your own 'module:function'"),
    ],
)
def test_a_wrong_option_or_name_is_refused(module, name, option, said):
    with pytest.raises(InputError) as error:
        find_source(name, [option])(None, 0)
    assert said in str(error.value)


def test_data_that_a_function_does_not_take_is_refused(module):
    with pytest.raises(InputError, match=r"--data: own\.csv given, but 'madeup:arrays' has no parameter"):
        find_source("madeup:arrays")("own.csv", 0)


UNEVEN = """
import numpy as np

def one(seed):
    yield [np.arange(2), np.arange(2)], [[0], [1]]
    yield [np.arange(3), np.arange(0)], [[0, 1, 1], []]

def alike(seed):
    yield [[1, 2], [3, 4.5]], [0, 1]

def named(seed):
    ids = [np.arange(n) % 5 for n in (3, 1, 4)]
    return {"x_ids": ids, "x_age": np.arange(3.0), "y": np.array([0, 1, 1])}
"""


def test_lists_of_arrays_of_unequal_lengths_are_ragged_and_those_of_one_length_are_not(module):
    (module / "madeup.py").write_text(UNEVEN)
    found = find_source("madeup:one", ["ignore=-100", "fill=9"])(None, 0)
    assert [found.x[i].tolist() for i in range(4)] == [[0, 1], [0, 1], [0, 1, 2], []]
    assert (found.features.shape, found.features.ragged, found.features.fill) == ((3,), True, 9)
    assert (found.classes, found.targets.ragged, found.targets.shape) == (2, True, (3,))
    found = find_source("madeup:alike")(None, 0)
    assert found.x[:].tolist() == [[1, 2], [3, 4.5]]
    assert not found.features.ragged
    found = find_source("madeup:named", ["mask=ids_mask"])(None, 0)
    assert (found.features["ids"].mask, found.features["age"].ragged) == ("ids_mask", False)
    assert found.pick(np.array([2, 0])).x.arrays["ids"][0].tolist() == [0, 1, 2, 3]


def test_masked_values_are_not_taken_for_values():
    masked = np.ma.masked_array(np.ones((2, 2)), [[False, True], [False, False]])
    for value in (masked, [masked, np.ones((1, 2))]):
        with pytest.raises(InputError, match="m: x has masked values"):
            own._array("m", "x", value)
    assert own._array("m", "x", np.ma.masked_array(np.ones((2, 2)))).shape == (2, 2)


FROM_FOLDER = """
import numpy as np

def rows(seed, data):
    files = [data] if data.is_file() else sorted(data.glob("**/*.txt"))
    x = np.concatenate([np.loadtxt(file, ndmin=2) for file in files])
    return x, np.arange(len(x)) % 2
"""


@pytest.mark.parametrize("form", ["file", "folder"])
@pytest.mark.parametrize("change", ["values", "name", "nothing", "hidden"])
def test_resuming_looks_at_what_data_names(module, capsys, form, change):
    (module / "offhand.py").write_text(FROM_FOLDER)
    sys.modules.pop("offhand", None)
    (folder := module / "data" / "north").mkdir(parents=True)
    np.savetxt(folder / "a.txt", np.arange(40.0).reshape(20, 2))
    data = folder / "a.txt" if form == "file" else folder.parent
    words = ["partition", "offhand:rows", "--data", str(data), "--scheme", "iid", "--silos", "2"]
    words += ["--out", str(module / "out"), "--resume"]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    if change == "values":
        np.savetxt(folder / "a.txt", np.arange(40.0).reshape(20, 2) * 2)
    elif change == "name":
        (folder / "a.txt").rename(folder / "b.txt")
        words[3] = str(folder / "b.txt") if form == "file" else words[3]
    elif change == "hidden":
        (folder / ".DS_Store").write_text("x")
    same = change in ("nothing", "hidden")
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == (0 if same else 2)
    assert same or "made with other arguments or data" in capsys.readouterr().err


RAISING = """
import numpy as np

def rows(n):
    return np.ones((n, 2)), np.zeros(n, int)

def at_once(seed):
    return rows("four")

def later(seed):
    yield rows(4)
    raise KeyError("age")

def deep(seed):
    return np.zeros((4, 2)).reshape(3), 0

def silent(seed):
    raise RuntimeError

def defaulted(seed, data="own.txt"):
    x = np.loadtxt(data)
    return x, np.zeros(len(x), int)

def required(seed, data):
    return rows(4)
"""
PLACES = {
    "at_once": ("TypeError: ", "rows", 5),
    "later": ("KeyError: 'age'", "later", 12),
    "deep": ("ValueError: cannot reshape array of size 8 into shape (3,)", "deep", 15),
    "silent": ("RuntimeError (", "silent", 18),
}


@pytest.mark.parametrize("name", PLACES)
def test_an_exception_of_a_function_is_one_line_with_its_place(module, capsys, name):
    (module / "raising.py").write_text(RAISING)
    sys.modules.pop("raising", None)
    run("partition", f"raising:{name}", "--out", "out", "--scheme", "iid", "--silos", 2, ends=2)
    error = capsys.readouterr().err
    said, function, line = PLACES[name]
    assert f"error: raising:{name}: {said}" in error
    assert f"({function}, {module / 'raising.py'}, line {line}); correct it there" in error
    assert error.count("\n") == 1
    assert not (module / "out").exists()


@pytest.mark.parametrize(("text", "place"), [("x = (\n", 1), ("\nx = undefined\n", 2)])
def test_a_module_that_cannot_be_imported_is_one_line(module, text, place):
    (module / "broken.py").write_text(text)
    sys.modules.pop("broken", None)
    with pytest.raises(InputError, match=rf"SOURCE = 'broken:f': .*broken\.py:{place}: \w+Error: "):
        find_source("broken:f")


def test_a_default_of_data_is_kept(module):
    (module / "raising.py").write_text(RAISING)
    sys.modules.pop("raising", None)
    (module / "own.txt").write_text("1 2\n3 4\n")
    (module / "other.txt").write_text("5 6\n7 8\n")
    assert find_source("raising:defaulted")(None, 0).x[:].tolist() == [[1, 2], [3, 4]]
    assert find_source("raising:defaulted")(module / "other.txt", 0).x[:].tolist() == [[5, 6], [7, 8]]
    assert len(find_source("raising:required")(None, 0)) == 4
