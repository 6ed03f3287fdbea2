"""What is held out: each class its part, the last by an order, what a column says; whole keys to silos."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from data_prep.cli import main
from data_prep.dataset import Dataset, Groups, Order
from data_prep.schemes import Shares
from data_prep.schemes.stratify import apportioned
from mpifl.common import InputError
from mpifl.data.shards import groups_of, open_shard, read_federation


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def dataset(y, **more):
    y = np.asarray(y)
    return Dataset("drawn", np.ones((len(y), 2), "f4"), y, 8, {}, **more)


labelled = st.lists(st.integers(0, 7), min_size=1, max_size=300)
share = st.integers(0, 49).map(lambda percent: percent / 100)


@given(y=labelled, valid=share, test=share, seed=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_each_class_has_its_part_of_what_is_held_out(y, valid, test, seed):
    """Largest remainders, written once more: a part is off its share by less than one row."""
    y, n = np.array(y), len(y)
    splits = Shares(valid, test).split(np.arange(n), seed, 0, dataset(y))
    assert np.array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(n))
    for name, wanted in (("valid", valid), ("test", test)):
        total = round(100 * wanted) * n // 100
        rows = splits.get(name, np.arange(0))
        assert len(rows) == total
        exact = np.bincount(y, minlength=8) * total / n
        assert (np.abs(np.bincount(y[rows], minlength=8) - exact) < 1 + 1e-9).all()
        assert (np.bincount(y[rows], minlength=8) >= np.floor(exact)).all()


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), percent=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_class_keeps_a_row_to_train_on_where_another_can_give_one(sizes, percent):
    sizes = np.array(sizes)
    total = percent * sizes.sum() // 100
    parts = apportioned(int(total), sizes, sizes)
    assert parts.sum() == total
    if any(parts[sizes > 0] == sizes[sizes > 0]):
        rounded_up = parts > total * sizes / sizes.sum()
        spare = (sizes - parts >= 2) & ~rounded_up & (total * sizes % sizes.sum() > 0)
        assert not spare.any()


def test_silos_with_few_rows_of_a_class_test_on_it_too():
    """By rows alone 8 of 23 pairs of silo and class had no test row; each has one that has five rows."""
    rng = np.random.default_rng(0)
    pairs = 0
    for silo in range(6):
        y = rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1])
        test = Shares(test=0.2).split(np.arange(60), 0, silo, dataset(y))["test"]
        often = np.flatnonzero(np.bincount(y, minlength=4) >= 5)
        pairs += len(often)
        assert set(often.tolist()) <= set(y[test].tolist())
    assert pairs > 18


BEFORE = "63111c952c7e7712"
"""Of the splits that an older version drew by rows alone."""


@pytest.mark.parametrize(
    ("shares", "data"),
    [
        (Shares(0.1, 0.23, stratify=False), dataset(np.arange(200) % 3)),
        (Shares(0.1, 0.23), dataset(np.arange(200) % 3, by_rows=True)),
        (Shares(0.1, 0.23), dataset(np.zeros((200, 4), int))),
        (Shares(0.1, 0.23), dataset(np.zeros(200, int))),
        (Shares(0.1, 0.23), None),
    ],
)
def test_what_is_drawn_by_rows_alone_stays_as_it_was(shares, data):
    splits = [shares.split(np.arange(200), 7, silo, data) for silo in range(3)]
    told = b"".join(rows.astype("int64").tobytes() for one in splits for _, rows in sorted(one.items()))
    assert hashlib.sha256(told).hexdigest()[:16] == BEFORE


def test_other_seeds_and_silos_hold_out_others():
    data, shares = dataset(np.arange(100) % 3), Shares(test=0.2)
    drawn = {seed: shares.split(np.arange(100), seed, 0, data)["test"].tolist() for seed in (0, 1)}
    assert drawn[0] != drawn[1]
    assert drawn[0] == shares.split(np.arange(100), 0, 0, data)["test"].tolist()
    assert drawn[0] != shares.split(np.arange(100), 0, 1, data)["test"].tolist()
    named = [shares.split(np.arange(100), 0, 0, data, name)["test"].tolist() for name in ("east", "silo 0")]
    assert named[0] != named[1] == drawn[0]


def test_another_silo_leaves_the_test_rows_of_those_that_were_there(tmp_path):
    """`east` comes before `north` and `south`, whose numbers move; the import of a site alone agrees."""
    rng, rows = np.random.default_rng(0), {}
    for name in ("north", "south", "east"):
        rows[name] = [f"{value:.6f},{value > 0:d},{name}" for value in rng.normal(size=40)]
        table, own = tmp_path / f"{name}.csv", tmp_path / f"{name}-alone.csv"
        table.write_text("\n".join(["a,ill,site", *(row for one in rows.values() for row in one)]) + "\n")
        own.write_text("\n".join(["a,ill,site", *rows[name]]) + "\n")
    spec = 'label = "ill"\nclasses = ["0", "1"]\n[features]\na = "numeric"\n'
    (tmp_path / "spec.toml").write_text(f'silo = "site"\n{spec}')
    (tmp_path / "alone.toml").write_text(spec)
    held = ["--valid", 0.1, "--test", 0.2]
    for name in ("south", "east"):
        words = ["--data", tmp_path / f"{name}.csv", "--option", f"spec={tmp_path / 'spec.toml'}", "--out"]
        assert command("partition", "csv", *words, tmp_path / name, "--scheme", "natural", *held) == 0
    alone = ["csv", "--data", tmp_path / "north-alone.csv", "--option", f"spec={tmp_path / 'alone.toml'}"]
    who = ["--spec", tmp_path / "east", "--silo", 7, "--name", "north", "--out", tmp_path / "alone"]
    assert command("import", *alone, *who, *held) == 0
    folders = [tmp_path / "south", tmp_path / "east"]
    two, three = ({e.name: (f, e) for e in read_federation(f).silos} for f in folders)
    assert three["north"][1].silo == 1
    assert two["north"][1].silo == 0
    for name, (folder, entry) in two.items():
        for split in ("train", "valid", "test"):
            first, second = (
                np.asarray(open_shard(f, e, read_federation(f))[split].x)
                for f, e in ((folder, entry), three[name])
            )
            assert np.array_equal(first, second), (name, split)


def test_the_last_rows_are_those_after_all_others():
    when = np.random.default_rng(0).permutation(50).astype(float)
    data = dataset(np.arange(50) % 2, order=Order("day", when))
    splits = Shares(valid=0.1, test_last=0.3).split(np.arange(50), 0, 0, data)
    assert when[splits["test"]].tolist() == list(range(35, 50))
    assert sorted(when[np.concatenate([splits["train"], splits["valid"]])].tolist()) == list(range(35))
    assert len(splits["valid"]) == 5


def test_a_person_is_as_late_as_the_last_visit_and_stays_whole():
    rng = np.random.default_rng(1)
    whose, when = rng.integers(0, 20, 100), rng.permutation(100).astype(float)
    data = dataset(np.zeros(100, int), order=Order("day", when), groups=Groups("person", whose))
    splits = Shares(test_last=0.3).split(np.arange(100), 0, 0, data)
    last = {who: when[whose == who].max() for who in set(whose.tolist())}
    tested, trained = (set(whose[splits[name]].tolist()) for name in ("test", "train"))
    assert not tested & trained
    assert max(last[who] for who in trained) < min(last[who] for who in tested)
    following = max(trained, key=last.get)
    assert len(splits["test"]) <= 30 < len(splits["test"]) + np.count_nonzero(whose == following)


def table(folder, rows, spec=""):
    """Write a table of 60 visits of three wards; return the words that partition it."""
    (folder / "v.csv").write_text("age,y,ward,day,part\n" + "".join(",".join(row) + "\n" for row in rows))
    (folder / "v.toml").write_text(f'label = "y"\n{spec}\n[features]\nage = "numeric"\n')
    return "partition", "csv", "--data", folder / "v.csv", "--out", folder / "out"


def row(at, **more):
    usual = {
        "age": str(at),
        "y": "ab"[at % 2],
        "ward": f"w{at % 7}",
        "day": f"2020-01-{at % 28 + 1:02} 0{at % 9}:00",
    }
    return list({**usual, "part": "test" if at % 5 == 0 else "train", **more}.values())


def ages(folder):
    """Return the ages in each split of each silo."""
    spec = read_federation(folder)
    shards = [open_shard(folder, entry, spec).splits for entry in spec.silos]
    return [{name: split.x[:, 0].astype(int).tolist() for name, split in one.items()} for one in shards]


@pytest.mark.parametrize(
    "day", [lambda at: f"2021-{at % 12 + 1:02}-{at % 28 + 1:02}", lambda at: f"{at * 37 % 101}"]
)
@pytest.mark.parametrize("how", ["words", "spec", "form"])
def test_a_table_is_held_out_by_a_column_of_dates_or_numbers(tmp_path, day, how):
    days = {at: day(at) for at in range(60)}
    written, spec = days, 'order = "day"' * (how != "words")
    if how == "form" and "-" in days[0]:
        written = {at: ".".join(reversed(one.split("-"))) for at, one in days.items()}
        spec += '\norder_format = "%d.%m.%Y"'
    words = table(tmp_path, [row(at, day=written[at]) for at in days], spec)
    more = ["--order", "day"] * (how == "words")
    assert command(*words, "--scheme", "iid", "--silos", 1, "--test-last", 0.25, *more) == 0
    (splits,) = ages(tmp_path / "out")
    key = (lambda at: days[at]) if "-" in days[0] else (lambda at: int(days[at]))
    assert splits["test"] == sorted(days, key=key)[-15:]
    told = {"name": "iid", "min_examples": 1, "test_last": 0.25, "order": "day"}
    assert read_federation(tmp_path / "out").scheme == told


def test_a_column_of_a_table_says_the_split(tmp_path):
    words = table(tmp_path, [row(at) for at in range(60)], 'held_out = "part"')
    assert command(*words, "--scheme", "iid", "--silos", 3, "--valid", 0.2) == 0
    splits = ages(tmp_path / "out")
    assert sorted(at for one in splits for at in one["test"]) == list(range(0, 60, 5))
    assert all(len(one["valid"]) == (len(one["train"]) + len(one["valid"])) // 5 for one in splits)


BAD = {
    "gap in the order": (
        {"day": ""},
        ["--order", "day", "--test-last", 0.2],
        "line 9: day, the order, is missing",
    ),
    "no date": (
        {"day": "2020-13-01"},
        ["--order", "day", "--test-last", 0.2],
        "line 9: day is '2020-13-01', and there is no such day",
    ),
    "a date in another form": (
        {"day": "01.01.2020"},
        ["--order", "day", "--test-last", 0.2],
        'no number and no date as 2000-12-31; say order = "day" and order_format = "%d.%m.%Y" in the spec',
    ),
    "a form alone": ({}, [], "order_format is for the column that 'order' names; name it, too"),
    "no form": ({}, [], "order_format '%d.%m.%y' has a year of two digits, whose century nobody knows"),
    "a feature's form": ({}, [], "'age' is a feature; state its format there, in place of order_format"),
    "no order": ({}, ["--test-last", 0.2], "--test-last: 0.2 given; say --order COLUMN"),
    "no share": ({}, ["--order", "day"], "--order: day given without --test-last"),
    "both shares": (
        {},
        ["--order", "day", "--test-last", 0.2, "--test", 0.1],
        "and --test 0.1; use one of them",
    ),
    "an unknown split": (
        {"part": "maybe"},
        [],
        "line 9: part is 'maybe'; held_out takes 1 or 0, true or false",
    ),
    "no split": ({"part": ""}, [], "line 9: part, held_out, is missing; fill it in"),
    "split and share": ({}, ["--test", 0.2], "--test: 0.2 given, but the source itself says"),
    "no such column": (
        {},
        ["--order", "dya", "--test-last", 0.2],
        "column 'dya' of the spec is not there; did you mean",
    ),
    "the label": ({}, ["--group", "y"], "--group: 'y' is group, which no model may learn from"),
}


SPECS = {
    "a form alone": 'order_format = "%d.%m.%Y"',
    "no form": 'order = "day"\norder_format = "%d.%m.%y"',
    "a feature's form": 'order = "age"\norder_format = "%d.%m.%Y"',
}


@pytest.mark.parametrize("what", BAD)
def test_bad_columns_are_one_line_and_nothing_is_written(tmp_path, what, capsys):
    change, more, told = BAD[what]
    spec = SPECS.get(what, 'held_out = "part"' * ("split" in what))
    changed = {0 if what == "a date in another form" else 7: change}
    words = table(tmp_path, [row(at, **changed.get(at, {})) for at in range(60)], spec)
    assert command(*words, "--scheme", "iid", "--silos", 2, *more) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.csv", "v.toml"]


def test_ties_where_the_last_rows_begin_are_refused_and_others_are_not(tmp_path, capsys):
    words = table(tmp_path, [row(at, day=str(at // 6)) for at in range(60)])
    more = ["--scheme", "iid", "--silos", 1, "--order", "day", "--test-last"]
    assert command(*words, *more, 0.25) == 2
    assert (
        "6 of silo 0 have the same day where the last 0.25 begin; use another share"
        in capsys.readouterr().err
    )
    assert command(*words, *more, 0.3) == 0
    assert sorted(ages(tmp_path / "out")[0]["test"]) == list(range(42, 60))


def test_fewer_natural_silos_are_dealt_whole_keys(tmp_path, capsys):
    words = table(tmp_path, [row(at) for at in range(60)], 'silo = "ward"')
    assert command(*words, "--scheme", "natural", "--silos", 3, "--seed", 1) == 0
    said = capsys.readouterr().err
    assert (
        "warning: --silos 3: the 7 silos of the data (w0, w1, w2, w3, w4, w5, w6) are dealt to 3, and" in said
    )
    assert "leave --silos out to keep each; --merge w0+w1 joins those that you name" in said
    assert command(*words[:-1], tmp_path / "all", "--scheme", "natural", "--silos", 7) == 0
    assert "dealt to" not in capsys.readouterr().err
    wards = [{at % 7 for at in one["train"]} for one in ages(tmp_path / "out")]
    assert sorted(map(len, wards)) == [2, 2, 3]
    assert sorted(ward for one in wards for ward in one) == list(range(7))
    assert command(*words[:-1], tmp_path / "other", "--scheme", "natural", "--silos", 3, "--seed", 2) == 0
    assert [{at % 7 for at in one["train"]} for one in ages(tmp_path / "other")] != wards
    assert command(*words[:-1], tmp_path / "more", "--scheme", "natural", "--silos", 8) == 2
    assert "--silos: 8 given, but the data names 7; leave it out, or ask for fewer" in capsys.readouterr().err


def test_no_test_share_is_by_class_only_where_it_is_asked(tmp_path):
    words = table(tmp_path, [row(at, y="aaab"[at % 4]) for at in range(60)])
    for out, more in (("a", []), ("b", ["--no-stratify"])):
        assert (
            command(*words[:-1], tmp_path / out, "--scheme", "iid", "--silos", 1, "--test", 0.2, *more) == 0
        )
    a, b = (read_federation(tmp_path / out) for out in "ab")
    assert (a.scheme.get("stratify"), b.scheme.get("stratify")) == (True, None)
    assert a.silos[0].labels == [36, 12]
    assert all(entry.groups is None and groups_of(tmp_path / "a", entry) == {} for entry in a.silos)
    assert b'"groups"' not in (tmp_path / "a/federation.json").read_bytes()


def test_an_order_that_nobody_knows_is_asked_for():
    with pytest.raises(InputError, match=r"--test-last: 0\.2 given; say --order"):
        Shares(test_last=0.2).split(np.arange(5), 0, 0)
