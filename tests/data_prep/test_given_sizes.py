"""Schemes by what the user states: sizes, counts, an order, merged silos, a function, columns by name."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from data_prep.cli import main
from data_prep.dataset import Dataset, Groups, Order
from data_prep.schemes import cut_whole, find_scheme, resolve
from data_prep.schemes.vertical import named_columns
from mpifl.common import InputError
from mpifl.data.shards import open_vertical, read_federation, read_vertical

drawn = {"n": st.integers(40, 200), "seed": st.integers(0, 1 << 32)}


def data(n, seed, **more):
    rng = np.random.default_rng(seed)
    own = {"silo": rng.integers(0, 4, n), "order": Order("age", rng.normal(size=n)), **more}
    return Dataset("drawn", rng.normal(size=(n, 2)), rng.integers(0, 3, n), 3, {}, **own)


def cut(name, of, seed, silos=None, **options):
    """Cut twice; each example is in one silo, and the seed decides which."""
    scheme = find_scheme(name)
    made, again = (
        cut_whole(scheme, of, silos, np.random.default_rng(seed), resolve(name, scheme, options))
        for _ in "ab"
    )
    assert all(np.array_equal(a, b) for a, b in zip(made.parts, again.parts, strict=True))
    assert np.array_equal(np.sort(np.concatenate(made.parts)), np.arange(len(of)))
    return made


@given(**drawn, first=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_sizes_are_those_that_are_given(n, seed, first):
    of = data(n, seed)
    parts = cut("sizes", of, seed, sizes=f"{first},{n - first - 5},5").parts
    assert [len(part) for part in parts] == [first, n - first - 5, 5]
    parts = cut("sizes", of, seed, sizes="0.5,0.25,1/4").parts
    assert [abs(len(part) - share * n) < 1 for part, share in zip(parts, (0.5, 0.25, 0.25), strict=True)] == [
        True
    ] * 3


@given(**drawn)
@settings(max_examples=30, deadline=None)
def test_counts_are_those_of_the_matrix(n, seed):
    of = data(n, seed)
    there = np.bincount(of.y, minlength=3)
    matrix = np.stack([there // 3, there - there // 3])
    text = ";".join(",".join(map(str, row)) for row in matrix.tolist())
    parts = cut("counts", of, seed, counts=text).parts
    assert [np.bincount(of.y[part], minlength=3).tolist() for part in parts] == matrix.tolist()
    shared = cut("counts", of, seed, counts="1,0.5,0;0,0.5,1").parts
    found = [np.bincount(of.y[part], minlength=3).tolist() for part in shared]
    assert [row[0] for row in found] == [there[0], 0]
    assert abs(found[0][1] - found[1][1]) <= 1


def test_counts_may_stand_in_a_file(tmp_path):
    (tmp_path / "counts.csv").write_text("1,0,0.5\n0,1,0.5\n")
    of = data(90, 1)
    made = cut("counts", of, 1, counts=str(tmp_path / "counts.csv"))
    assert [sorted(set(of.y[part].tolist())) for part in made.parts] == [[0, 2], [1, 2]]


@given(**drawn, silos=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_an_order_is_cut_into_ranges_and_less_strictly_into_overlapping_ones(n, seed, silos):
    of = data(n, seed)
    parts = cut("ordered", of, seed, silos).parts
    assert np.ptp([len(part) for part in parts]) <= 1
    ranges = [(of.order.of[part].min(), of.order.of[part].max()) for part in parts]
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    cut("ordered", of, seed, silos, strictness=0.5)


def test_the_strictness_is_how_far_silos_lie_apart():
    of = data(6000, 0)
    apart = []
    for strictness in (0.0, 0.3, 0.7, 1.0):
        parts = cut("ordered", of, 0, 5, strictness=strictness).parts
        apart.append(np.std([of.order.of[part].mean() for part in parts]))
    assert apart == sorted(apart)
    assert apart[0] < 0.1
    assert apart[-1] > 0.8


def test_a_group_is_as_late_as_its_last_row():
    when = Order("age", np.array([0.0, 9, 1, 1, 2, 2]))
    of = data(6, 0, order=when, groups=Groups("person", np.array([0, 0, 1, 1, 2, 2])))
    assert [sorted(part.tolist()) for part in cut("ordered", of, 0, 3).parts] == [[2, 3], [4, 5], [0, 1]]


@given(**drawn)
@settings(max_examples=20, deadline=None)
def test_merged_silos_have_the_examples_of_all(n, seed):
    of = data(n, seed, silo_names={0: "north", 1: "east", 2: "south", 3: "west"}, silo=np.arange(n) % 4)
    made = cut("natural", of, seed, merge="west+north")
    assert made.names == ["west+north", "east", "south"]
    assert [set(of.silo[part].tolist()) for part in made.parts] == [{0, 3}, {1}, {2}]


OWN = """
import numpy as np

def halves(y, silos, rng):
    return rng.permutation(len(y)) % silos

def by_age(y, silos, rng, order):
    return (order > np.median(order)).astype(int)

def floats(y, silos, rng):
    return np.zeros(len(y))

def short(y, silos, rng):
    return [0, 1]

def beyond(y, silos, rng):
    return np.full(len(y), silos)

def raising(y, silos, rng):
    return y / {}["key"]

def sorting(y, silos, rng):
    y.sort()
    return np.arange(len(y)) % silos

def ordering(y, silos, rng, order):
    order[:] = 0
    return np.arange(len(y)) % silos

def seedless(y):
    return y
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "ownscheme.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("ownscheme", None)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_function_of_ones_own_says_whose_each_example_is(own, grouped):
    groups = Groups("person", np.arange(60) // 3) if grouped else None
    of = data(60, 4, groups=groups)
    assert [len(part) for part in cut("ownscheme:halves", of, 4, 2).parts] == [30, 30]
    parts = cut("ownscheme:by_age", of, 4).parts
    if grouped:
        assert [set(of.groups.of[part]) & set(of.groups.of[other]) for part, other in [parts]] == [set()]
    else:
        assert of.order.of[parts[0]].max() < of.order.of[parts[1]].min()


FAULTS = {
    "ownscheme:floats": "returned float64 [40]; it must be integers [40]",
    "ownscheme:short": "returned int64 [2]; it must be integers [40]",
    "ownscheme:beyond": "returned silos 2 to 2; they are 0 to 1",
    "ownscheme:raising": "KeyError: 'key' (raising, ",
    "ownscheme:sorting": "ValueError: sort array is read-only (sorting, ",
    "ownscheme:ordering": "ValueError: assignment destination is read-only (ordering, ",
    "ownscheme:seedless": "is not a function of this form; write def NAME(y, silos, rng)",
    "ownscheme:nothing": "module 'ownscheme' has no attribute 'nothing'",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_function_is_one_line(own, name):
    with pytest.raises(InputError) as error:
        cut(name, data(40, 0), 0, 2)
    assert FAULTS[name] in str(error.value)
    assert "\n" not in str(error.value)


STATED = {
    "no sizes": ("sizes", {}, "--sizes: '' given; write numbers or shares"),
    "too few": ("sizes", {"sizes": "10,20"}, "--sizes: examples: 30 in all, there are 40"),
    "no number": ("sizes", {"sizes": "10,many"}, "--sizes: '10,many' given"),
    "no class": ("counts", {"counts": "1,0;0,1"}, "--counts: row 0 has 2 numbers; there are 3 classes"),
    "other counts": ("counts", {"counts": "1,1,1;1,1,1"}, "--counts: class 0: 2 in all, there are "),
    "no file": ("counts", {"counts": "nowhere.csv"}, "--counts: nowhere.csv cannot be read"),
    "strictness": ("ordered", {"strictness": 2.0}, "--strictness: 2.0 given; it must be from 0"),
    "merge": ("natural", {"merge": "1+9"}, "--merge: '9' is none; the silos are 0, 1, 2, 3"),
    "merge twice": ("natural", {"merge": "1+2,2"}, "--merge: '2' is there twice"),
}


@pytest.mark.parametrize("fault", STATED)
def test_what_cannot_be_had_is_one_line(fault):
    name, options, said = STATED[fault]
    with pytest.raises(InputError) as error:
        cut(name, data(40, 0), 0, 2 if name == "ordered" else None, **options)
    assert said in str(error.value)


def test_an_order_that_nobody_names_is_refused():
    with pytest.raises(InputError, match="--order: not given; name the column"):
        cut("ordered", data(40, 0, order=None), 0, 2)


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def test_the_commands_write_the_same_bytes(own):
    rng = np.random.default_rng(0)
    np.savez(own / "a.npz", x=rng.random((30, 2)), y=np.arange(30) % 3, age=rng.random(30))
    for out in ("one", "two"):
        words = ["partition", "npz", "--data", own / "a.npz", "--out", own / out]
        assert run(*words, "--scheme", "ordered", "--order", "age", "--silos", 3) == 0
        words[-1] = own / f"own-{out}"
        assert run(*words, "--scheme", "ownscheme:by_age", "--order", "age") == 0
    for form in ("", "own-"):
        spec, again = (read_federation(own / f"{form}{out}") for out in ("one", "two"))
        assert [one.sha256 for one in spec.silos] == [one.sha256 for one in again.silos]
    assert len(spec.scheme["sha256"]) == 64


NAMES = ["age", "sex=f", "sex=m", "bmi"]


def test_columns_go_by_name_and_some_to_several(tmp_path):
    x = np.random.default_rng(0).random((12, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(12) % 2)
    words = ["partition", "npz", "--data", tmp_path / "a.npz", "--scheme", "vertical"]
    words += ["--option", f"feature_names={','.join(NAMES)}", "--columns", "age,sex;bmi,age"]
    assert run(*words, "--out", tmp_path / "out") == 0
    spec = read_vertical(tmp_path / "out")
    assert [entry.columns for entry in spec.silos] == [[0, 1, 2], [0, 3]]
    for entry in spec.silos:
        train = open_vertical(tmp_path / "out", entry, spec)["train"]
        assert np.array_equal(train.x[:], x[:, entry.columns])


COLUMNS = {
    "unknown": ("age,sex;bmj", NAMES, None, "silo 1: no column is called 'bmj'; did you mean 'bmi'?"),
    "nowhere": ("age;bmi", NAMES, None, "'sex=f' is at no silo"),
    "no names": ("age;bmi", None, None, "columns have none; say --option"),
    "silos": ("age,sex;bmi", NAMES, 3, "of 2 silos, --silos says 3"),
}


@pytest.mark.parametrize("fault", COLUMNS)
def test_wrong_columns_are_one_line(fault):
    given_names, names, silos, said = COLUMNS[fault]
    with pytest.raises(InputError) as error:
        named_columns(given_names, names, silos, 0)
    assert said in str(error.value)
