"""The same person on one side only: groups stay in one split of one silo, whatever cuts and holds out."""

import itertools
import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import with_usual
from hypothesis import assume, given, settings, strategies as st

from data_prep.cli import main
from data_prep.dataset import Dataset, Groups, Order
from data_prep.schemes import SCHEMES, Shares, cut_whole, resolve
from data_prep.sources import group_seen
from mpifl.common import InputError, sha256_of
from mpifl.data.shards import (
    groups_of,
    open_shard,
    open_vertical,
    provenance_of,
    read_federation,
    read_vertical,
    texts_of,
)

MIXES = [
    "dirichlet alpha=0.5 + quantity alpha=2",
    "shards + quantity alpha=5 + concept-drift",
    "natural + rotation",
]
EVERY = [(name, {}) for name, scheme in SCHEMES.items() if scheme.layout == "horizontal"]
STATED = {"sizes": {"sizes": "0.5,0.2,0.3"}, "counts": {"counts": "1,0.5,0;0,0.5,1"}}
EVERY = [(name, STATED.get(name, given)) for name, given in EVERY]
EVERY += [("mix", {"mix": mix}) for mix in MIXES]


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def visits(persons, seed, mixed=True, most=9):
    """Make rows of persons in a mixed order: images, labels, natural silos, whose each is."""
    rng = np.random.default_rng(seed)
    whose = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, most, persons)))
    label, silo = rng.integers(0, 3, persons)[whose], rng.integers(0, 3, persons)[whose]
    if mixed:
        label = np.where(rng.random(len(whose)) < 0.3, rng.integers(0, 3, len(whose)), label)
    x = rng.integers(0, 256, (len(whose), 1, 4, 4)).astype("uint8")
    return x, label, silo, whose


def dataset(persons, seed, mixed=True):
    x, y, silo, whose = visits(persons, seed, mixed)
    when = Order("age", np.random.default_rng(seed).random(len(y)))
    more = {"groups": Groups("person", whose), "order": when}
    return Dataset("drawn", x, y, 3, {}, scale=1 / 255, silo=silo, **more)


@pytest.mark.parametrize(("name", "given_options"), EVERY)
@given(
    persons=st.integers(8, 120),
    silos=st.integers(1, 6),
    seed=st.integers(0, 1 << 32),
    shares=st.tuples(*[st.sampled_from([0.0, 0.1, 0.3])] * 3),
)
@settings(max_examples=25, deadline=None)
def test_no_person_is_in_two_splits_or_at_two_silos(name, given_options, persons, silos, seed, shares):
    scheme, data = SCHEMES[name], dataset(persons, seed, mixed=name != "classes")
    options, held = resolve(name, scheme, {**given_options, "min_examples": 1}), Shares(*shares)
    natural = scheme.by(options) == "silo"
    try:
        private, public = held.set_public_aside(data, seed, natural=natural)
        kept = data.pick(private)
        count = None if name in STATED else min(silos, 3) if natural else silos
        cut = cut_whole(scheme, kept, count, np.random.default_rng(seed), options)
        splits = [held.split(private[part], seed, silo, data) for silo, part in enumerate(cut.parts)]
    except InputError:
        assume(persons < 12 * silos or max(shares) > 0)  # a silo or a share too small for a whole person
        return
    places = [*(rows for silo in splits for rows in silo.values()), *([public] if len(public) else [])]
    assert sorted(np.concatenate(places).tolist()) == list(range(len(data)))
    persons_of = [set(data.groups.of[rows].tolist()) for rows in places]
    assert sum(map(len, persons_of)) == len(set.union(*persons_of))


@pytest.mark.parametrize("mixed", [False, True])
def test_exactly_so_many_classes_and_whole_persons_of_several_classes_do_not_go_together(mixed):
    data, options = dataset(60, 1, mixed), {"classes": 2, "min_examples": 1}
    if not mixed:
        parts = cut_whole(SCHEMES["classes"], data, 5, np.random.default_rng(0), options).parts
        assert [len(set(data.y[part].tolist())) for part in parts] == [2] * 5
        return
    with pytest.raises(InputError, match=r"--group: \d+ groups of person have rows of several: .* classes"):
        cut_whole(SCHEMES["classes"], data, 5, np.random.default_rng(0), options)
    mix = {"mix": "classes classes=2 + quantity alpha=5", "min_examples": 1}
    with pytest.raises(InputError, match="--group: "):
        cut_whole(SCHEMES["mix"], data, 5, np.random.default_rng(0), mix)


def test_persons_at_two_natural_silos_are_refused_with_their_rows():
    data = dataset(40, 2)
    data.silo[:] = np.arange(len(data)) % 2
    with pytest.raises(InputError, match=r"--group: \d+ groups .* one has rows \d+.* 2 silos, and natural"):
        cut_whole(SCHEMES["natural"], data, None, np.random.default_rng(0), {"min_examples": 1})


@given(persons=st.integers(5, 80), seed=st.integers(0, 1 << 32), share=st.sampled_from([0.1, 0.2, 0.4]))
@settings(max_examples=60, deadline=None)
def test_a_share_of_whole_persons_is_never_too_much_and_no_person_that_fits_is_left(persons, seed, share):
    data = dataset(persons, seed)
    try:
        splits = Shares(test=share).split(np.arange(len(data)), seed, 0, data)
    except InputError:
        splits = {}
    if not splits:
        assert min(np.bincount(data.groups.of)) > int(share * len(data))
        return
    room = int(share * len(data)) - len(splits["test"])
    assert room >= 0
    left = np.unique(data.groups.of[splits["train"]], return_counts=True)[1]
    assert np.count_nonzero(left <= room) <= data.classes, "but for one of each class that is trained on"


@given(
    counts=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    seed=st.integers(0, 1 << 32),
    shares=st.sampled_from([(0.0, 0.2), (0.2, 0.2), (0.1, 0.4), (0.3, 0.0)]),
    mixed=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_every_class_of_two_groups_is_trained_on_and_tested(counts, seed, shares, mixed):
    """Classes of few groups are dealt first; rows of a person may be of another class, too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, sum(counts))
    whose = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    y = np.repeat(np.arange(len(counts)), counts)[whose]
    y = np.where(mixed & (rng.random(len(y)) < 0.2), rng.integers(0, len(counts), len(y)), y)
    x = np.zeros((len(y), 1), "float32")
    data = Dataset("drawn", x, y, len(counts), {}, groups=Groups("person", whose))
    try:
        splits = Shares(*shares).split(np.arange(len(y)), seed, 0, data)
    except InputError:
        return
    of = {label: set(whose[y == label].tolist()) for label in range(len(counts))}
    dealt = {name: set(whose[rows].tolist()) for name, rows in splits.items()}
    share_of = dict(zip(("valid", "test"), shares, strict=True))
    asked = [name for name in ("test", "valid") if share_of[name]]
    largest = {label: max((sizes[one] for one in of[label]), default=0) for label in of}
    for label, persons in of.items():
        if len(persons) > 1:
            assert persons & dealt["train"], "a class is left to train on"
        for nth, name in enumerate(asked):
            fits = sum(largest.values()) <= int(share_of[name] * len(y))
            if fits and not mixed and len(persons) > nth + 1:
                assert persons & dealt[name], (name, label)


def test_a_rare_outcome_of_few_patients_is_in_the_test_rows():
    """Of 60 patients three are ill, and the share of a split is less than one of them."""
    whose = np.repeat(np.arange(60), 5)
    y = (whose < 3).astype("int64")
    data = Dataset("drawn", np.zeros((300, 1), "float32"), y, 2, {}, groups=Groups("patient", whose))
    for seed in range(20):
        splits = Shares(0.1, 0.1).split(np.arange(300), seed, 0, data)
        assert {name: int(y[rows].sum()) for name, rows in splits.items()} == dict.fromkeys(splits, 5)


def write_npz(folder, seed=3, rename=lambda person: person, persons=80, **more):
    x, y, silo, whose = visits(persons, seed)
    path = folder / "visits.npz"
    np.savez(path, x=x, y=y, silo=silo, person=rename(whose), **more)
    return path


def partition(path, out, *more, source="npz", scheme="iid"):
    usual = {"scheme": scheme, "silos": 3, "valid": 0.1, "test": 0.2, "group": "person"}
    return command("partition", source, "--data", path, "--out", out, *with_usual(more, **usual))


def owners(folder):
    """Return whose the examples of each split of a folder are, by number, and the rows."""
    spec = read_federation(folder)
    entries = [*spec.silos, *filter(None, [spec.public, spec.test])]
    shards = {entry.file: open_shard(folder, entry, spec) for entry in entries}
    groups = {(e.file, split): of for e in entries for split, of in groups_of(folder, e).items()}
    rows = {at: np.asarray(shards[at[0]][at[1]].x) for at in groups}
    return groups, rows


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_shards_keep_whose_each_row_is_by_a_number_that_is_no_id(tmp_path, compression):
    path = write_npz(tmp_path, rename=lambda person: 10_000 - 7 * person)
    assert partition(path, tmp_path / "out", "--public", 0.1, "--compression", compression) == 0
    groups, rows = owners(tmp_path / "out")
    x, _, _, whose = visits(80, 3)
    person = {row.tobytes(): one for row, one in zip(x, whose.tolist(), strict=True)}
    pairs = {
        (n, person[r.tobytes()]) for at in groups for n, r in zip(groups[at].tolist(), rows[at], strict=True)
    }
    assert len(pairs) == len({number for number, _ in pairs}) == len({one for _, one in pairs}) == 80
    entries = read_federation(tmp_path / "out").silos
    assert all(e.groups == {s: len(set(groups[e.file, s].tolist())) for s in e.examples} for e in entries)


def test_ids_of_other_names_make_the_same_bytes_and_another_seed_makes_others(tmp_path):
    renames = {
        "a": lambda person: person,
        "b": lambda person: np.array([f"P{hash((7, one))}" for one in person]),
    }
    for name, rename in renames.items():
        (tmp_path / name).mkdir()
        assert partition(write_npz(tmp_path / name, rename=rename), tmp_path / name / "out", "--jobs", 2) == 0
    assert partition(tmp_path / "a/visits.npz", tmp_path / "other", "--seed", 1) == 0
    first, same, other = (
        [(folder / f"silo_000{silo}.h5").read_bytes() for silo in range(3)]
        for folder in (tmp_path / "a/out", tmp_path / "b/out", tmp_path / "other")
    )
    assert first == same
    assert first != other


def own(seed, data):
    with np.load(data) as arrays:
        return {
            **{name: arrays[name] for name in ("x", "y")},
            "person": [f"p{one}" for one in arrays["person"]],
        }


def as_source(kind, folder, path):
    """Return the same visits as another source has them: its name, its data."""
    with np.load(path) as arrays:
        stored = dict(arrays)
    person = np.array([f"p{one:03}" for one in stored["person"]])
    if kind == "npy":
        (folder / "npy").mkdir()
        for name, array in {**stored, "person": person}.items():
            np.save(folder / "npy" / f"{name}.npy", array)
        return "npy", folder / "npy"
    if kind == "hdf5":
        with h5py.File(folder / "v.h5", "w") as file:
            file.update({**stored, "person": person.astype("S4")})
        return "hdf5", folder / "v.h5"
    if kind == "hdf5 texts":
        with h5py.File(folder / "v.h5", "w") as file:
            file.update({name: array for name, array in stored.items() if name != "person"})
            file.create_dataset("person", data=person.astype(object), dtype=h5py.string_dtype())
        return "hdf5", folder / "v.h5"
    if kind == "own":
        return f"{__name__}:own", path
    if kind == "jsonl":
        lines = ({"text": f"visit {row} of nobody", "person": one} for row, one in enumerate(person.tolist()))
        (folder / "v.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return "jsonl", folder / "v.jsonl"
    return as_table(kind, folder, stored["y"], person)


def as_table(kind, folder, y, person):
    (folder / "v.toml").write_text('label = "y"\n[features]\nage = "numeric"\n')
    columns = {"age": np.arange(len(y)) / 8, "y": [f"c{one}" for one in y], "person": person}
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "v.parquet")
        return "parquet", folder / "v.parquet"
    rows = zip(*(map(str, column) for column in columns.values()), strict=True)
    (folder / "v.csv").write_text("\n".join([",".join(columns), *map(",".join, rows)]) + "\n")
    return "csv", folder / "v.csv"


@pytest.mark.parametrize("kind", ["npy", "hdf5", "hdf5 texts", "own", "jsonl", "csv", "parquet"])
def test_every_source_with_columns_keeps_persons_whole(tmp_path, kind, capsys):
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet")
    source, data = as_source(kind, tmp_path, write_npz(tmp_path))
    assert partition(data, tmp_path / "out", source=source) == 0
    spec = read_federation(tmp_path / "out")
    assert sum(sum(entry.groups.values()) for entry in spec.silos) == 80
    assert spec.scheme["group"] == "person"
    assert command("check", tmp_path / "out") == 0
    capsys.readouterr()
    assert command("inspect", tmp_path / "out") == 0
    assert "Groups of person: 80, with" in capsys.readouterr().out


def test_a_spec_names_the_group_of_a_table(tmp_path):
    source, data = as_source("csv", tmp_path, write_npz(tmp_path))
    spec = tmp_path / "v.toml"
    spec.write_text('group = "person"\n' + spec.read_text())
    words = ["--scheme", "dirichlet", "--silos", 3, "--test", 0.2, "--out", tmp_path / "out"]
    assert command("partition", source, "--data", data, *words) == 0
    assert sum(sum(entry.groups.values()) for entry in read_federation(tmp_path / "out").silos) == 80
    spec.write_text(spec.read_text() + 'person = "categorical"\n')
    assert command("partition", source, "--data", data, *words[:-1], tmp_path / "no") == 2


@pytest.mark.parametrize("how", ["partition", "import"])
def test_ids_that_are_trained_on_and_held_out_are_told_of(tmp_path, how, capsys):
    """An id of persons without a group says the same of its rows, in every command that looks at shards."""
    source, data = as_source("csv", tmp_path, write_npz(tmp_path))
    spec, out = tmp_path / "v.toml", tmp_path / "out"
    cut = ["--test", 0.2, "--seed", 1]

    def made(key):
        spec.write_text(f'{key} = "person"\nstandardise = "own"\n' + as_told)
        shutil.rmtree(out, ignore_errors=True)
        if how == "partition":
            words = ["partition", source, "--data", data, "--out", out, "--scheme", "iid", "--silos", 2, *cut]
        else:
            words = ["sites", data, data.with_name("w.csv"), "--spec", spec, "--out", out, *cut]
        assert command(*words) == 0
        return " ".join(capsys.readouterr().err.split())

    as_told = spec.read_text()
    data.with_name("w.csv").write_text(re.sub(r"(?m)^(?=[0-9])", "9", data.read_text()))
    said = made("id")
    held, trained = set(), set()
    federation, by_site = read_federation(out), how == "import"
    for entry in federation.silos:
        for split, given_at in provenance_of(out, entry).items():
            ids = {(entry.silo * by_site, one) for one in texts_of(given_at.ids)}
            (trained if split == "train" else held).update(ids)
    told = f"{len(held & trained)} of {len(held)} ids of held-out rows are also trained on"
    assert len(held & trained) > 10
    assert told in said
    assert command("check", out) == 0
    assert told in " ".join(re.sub("[│\n]", " ", capsys.readouterr().out).split())
    assert "also trained on" not in made("group")


def test_rows_of_columns_keep_persons_whole_too(tmp_path):
    path = write_npz(tmp_path)
    assert partition(path, tmp_path / "out", scheme="vertical") == 0
    spec = read_vertical(tmp_path / "out")
    _, _, _, whose = visits(80, 3)
    for entry in spec.silos:
        splits, groups = open_vertical(tmp_path / "out", entry, spec), groups_of(tmp_path / "out", entry)
        persons = [set(whose[split.id].tolist()) for split in splits.values()]
        assert sum(map(len, persons)) == len(set.union(*persons)) == 80
        assert entry.groups == {split: len(set(of.tolist())) for split, of in groups.items()}
    assert command("check", tmp_path / "out") == 0


def plant(folder, silo, split, number):
    """Give the first example of a split another group, in file and description."""
    spec = read_federation(folder)
    path = folder / spec.silos[silo].file
    with h5py.File(path, "r+") as file:
        file[f"{split}/group"][0] = number
        counts = {name: len(set(file[f"{name}/group"][:].tolist())) for name in file}
    told = {"bytes": path.stat().st_size, "sha256": sha256_of(path), "groups": counts}
    spec.silos[silo] = spec.silos[silo].model_copy(update=told)
    spec.write(folder)


def findings(folder, capsys):
    capsys.readouterr()
    code = command("check", folder, "--json", "--no-duplicates")
    return code, [(one["file"], one["what"]) for one in json.loads(capsys.readouterr().out)["findings"]]


@pytest.mark.parametrize(
    ("at", "number_of", "told"),
    [
        ((0, "test"), (0, "train"), ("silo_0000.h5", "1 group is in train and in test, too")),
        (
            (2, "valid"),
            (1, "train"),
            ("silo_0001.h5", "1 group is in train and in silo_0002.h5, too (valid)"),
        ),
    ],
)
def test_check_counts_persons_on_two_sides_and_fails(tmp_path, at, number_of, told, capsys):
    folder = tmp_path / "out"
    assert partition(write_npz(tmp_path), folder, "--scale", "1/255") == 0
    entry = read_federation(folder).silos[number_of[0]]
    plant(folder, *at, groups_of(folder, entry)[number_of[1]][0])
    code, found = findings(folder, capsys)
    assert code == 1
    assert [(file, what.partition(";")[0]) for file, what in found] == [told]


def test_sites_keep_their_own_persons_whole_and_what_cannot_be_seen_is_said(tmp_path, capsys):
    path = write_npz(tmp_path)
    words = ["--shape", "1,4,4", "--dtype", "uint8", "--scale", "1/255", "--classes", 3]
    assert command("spec", tmp_path / "spec.json", *words) == 0
    for silo in (0, 1):
        site = ["--spec", tmp_path / "spec.json", "--silo", silo, "--out", tmp_path / "all"]
        more = ["--valid", 0.2, "--test", 0.2, "--seed", silo, "--group", "person"]  # the scale is the spec's
        assert command("import", "npz", "--data", path, *site, *more) == 0
    assert command("assemble", tmp_path / "all") == 0
    spec = read_federation(tmp_path / "all")
    assert [sum(entry.groups.values()) for entry in spec.silos] == [80, 80]
    assert spec.scheme == {"name": "import", "valid": 0.2, "test": 0.2, "stratify": True, "group": "person"}
    code, found = findings(tmp_path / "all", capsys)
    assert code == 0
    assert found == [
        (
            "federation.json",
            "each site numbers its own groups: whether one person is at two sites cannot be seen",
        )
    ]
    plant(tmp_path / "all", 1, "test", groups_of(tmp_path / "all", spec.silos[1])["train"][0])
    assert findings(tmp_path / "all", capsys)[0] == 1


def test_groups_of_one_row_are_told_of(tmp_path, capsys):
    path = write_npz(tmp_path, rename=lambda person: np.arange(len(person)))
    assert partition(path, tmp_path / "out") == 0
    assert "warning: every group has one row, as if the column numbered records" in capsys.readouterr().err


def test_a_kept_folder_of_other_groups_is_not_taken_up(tmp_path, capsys):
    path = write_npz(tmp_path)
    assert partition(path, tmp_path / "out", "--resume") == 0
    assert partition(path, tmp_path / "out", "--resume") == 0
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, "person": arrays["person"] // 2})
    assert partition(path, tmp_path / "out", "--resume") == 2
    assert "made with other arguments or data" in capsys.readouterr().err


BAD = {
    "no such array": ({}, ["--group", "persn"], "--group: ", "no array 'persn'; did you mean 'person'?"),
    "one group alone": ({"person": lambda p: 0 * p}, [], "--group: ", "a single group cannot be split"),
    "a gap": (
        {"person": lambda p: np.where(p == 3, np.nan, p)},
        [],
        "person, the group, is missing in example",
        "",
    ),
    "an empty text": (
        {"person": lambda p: np.where(p == 3, "", "a")},
        [],
        "the group, is missing in example",
        "",
    ),
    "halves": ({"person": lambda p: p + 0.5}, [], "groups are whole numbers or texts", ""),
    "another length": ({"person": lambda p: p[1:]}, [], "person has dtype", "one for each example"),
    "larger than the share": (
        {"person": lambda p: p % 4},
        ["--silos", 1],
        "--valid: 0.1 of the",
        "of its groups that are left the smallest has",
    ),
    "one at a silo": ({"person": lambda p: p % 3}, [], "its one group has", "fewer silos"),
    "too few": ({"person": lambda p: p % 2}, [], "--silos: ", "each of the 2 groups of person counts as one"),
    "parted by held_out": (
        {"held_out": lambda p: np.arange(len(p)) % 2},
        ["--test", 0],
        "held_out splits",
        "all rows",
    ),
    "in the test set": (
        {
            "x_test": lambda p: np.zeros((2, 1, 4, 4), "u1"),
            "y_test": lambda p: p[:2] % 3,
            "person_test": lambda p: p[:2],
        },
        [],
        "groups of person are in the server's test set, too, one at row",
        "",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_groups_are_one_line_and_nothing_is_written(tmp_path, what, capsys):
    changes, words, *told = BAD[what]
    _, _, _, whose = visits(80, 3)
    x, y, silo, _ = visits(80, 3)
    arrays = {
        "x": x,
        "y": y,
        "silo": silo,
        "person": whose,
        **{name: made(whose) for name, made in changes.items()},
    }
    np.savez(tmp_path / "visits.npz", **arrays)
    assert partition(tmp_path / "visits.npz", tmp_path / "out", *words) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in told)
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["visits.npz"]


def test_a_row_of_a_table_without_its_group_is_named(tmp_path, capsys):
    (tmp_path / "v.csv").write_text("age,y,person\n1,a,p\n2,b,\n")
    (tmp_path / "v.toml").write_text('label = "y"\n[features]\nage = "numeric"\n')
    assert partition(tmp_path / "v.csv", tmp_path / "out", source="csv") == 2
    assert "line 3: person, the group, is missing; fill it in or remove the row" in capsys.readouterr().err


def grouped(seed, group: int = 3):
    rng = np.random.default_rng(seed)
    return rng.random((40, 2)), rng.integers(0, 2, 40)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "digits",
            "--group: digits has no column that says it; it is for npz, npy, hdf5, csv, parquet, images, ",
        ),
        (f"{__name__}:grouped", "has a parameter 'group' of its own; call it otherwise"),
    ],
)
def test_what_has_no_groups_says_so(tmp_path, source, told, capsys):
    words = ["--scheme", "iid", "--silos", 2, "--group", "person"]
    assert command("partition", source, "--out", tmp_path / "out", *words) == 2
    assert told in capsys.readouterr().err


def slices(folder, deeper, *, masks):
    """Write slices of patients at two sites; return the words that name them."""
    image = pytest.importorskip("PIL.Image")
    for site, of_class, patient, at in itertools.product("ab", "yn", range(6), "01"):
        kind, number = ("" if masks else of_class), ord(site) + 10 * patient
        name = f"pat{patient:02}{'/' if deeper else '_'}{of_class}{at}"
        for part in ("scans", "masks") if masks else ("scans",):
            file = folder / part / site / kind / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.full((4, 4), number if part == "scans" else 0, np.uint8)
            pixels[0, 0] = at == "1"
            image.fromarray(pixels).save(file)
    return ["--data", folder / "scans", *(["--masks", folder / "masks"] if masks else [])]


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("deeper", [False, True])
def test_slices_of_a_patient_stay_together(tmp_path, deeper, masks, capsys):
    data = slices(tmp_path, deeper, masks=masks)
    cut = ["partition", "images", *data, "--scheme", "natural", "--silo", "parent", "--test", 0.34]
    group = "parent" if deeper else r"pat(\d+)_"
    assert command(*cut, "--group", group, "--out", tmp_path / "out") == 0
    assert "warning" not in capsys.readouterr().err
    groups, rows = owners(tmp_path / "out")
    owner = {at: x[:, 0, 1, 1] for at, x in rows.items()}  # a number that each patient of a site has alone
    assert sorted(np.concatenate([*owner.values()]).tolist()) == sorted(
        ord(site) + 10 * patient for site in "ab" for patient in range(6) for _ in range(4)
    )
    pairs = {(int(of), int(who)) for at in groups for of, who in zip(groups[at], owner[at], strict=True)}
    assert len(pairs) == 12
    splits = [set(of.tolist()) for of in owner.values()]
    assert len(splits) == 4
    assert sum(map(len, splits)) == len(set.union(*splits))
    agreed = tmp_path / "out/federation.json"
    site = ["--data", tmp_path / "scans/a", *(["--masks", tmp_path / "masks/a"] if masks else [])]
    words = ["--spec", agreed, "--silo", 0, "--test", 0.34, "--group", group, "--out", tmp_path / "site"]
    assert command("import", "images", *site, *words) == 0
    capsys.readouterr()
    assert command(*cut, "--out", tmp_path / "whole") == (2 if deeper else 0)
    said = capsys.readouterr().err
    if deeper:
        assert "--group parent keeps together what lies in one folder" in said
        return
    told = "48 images have the names of others but for their ends (pat00_"
    assert told in said
    assert "keep them together by --group '(.+)_'" in said
    code, found = findings(tmp_path / "whole", capsys)
    assert (code, any(told in line for _, line in found)) == (0, True)
    for wrong, line in (
        ("pat", "with 0 groups; images know --group parent"),
        ("(", "which is wrong"),
        (r"id(\d+)", "finds nothing in its name"),
    ):
        assert command(*cut, "--group", wrong, "--out", tmp_path / "none") == 2
        assert line in capsys.readouterr().err


NAMES = [  # what names of six patients end with; what `group` takes, or nothing
    (("{}-a", "{}-b"), "(.+)-"),
    (("{}_a", "{}_b"), "(.+)_"),
    (("{}a", "{}b"), r"(.+\d)"),
    (("{}", "{}b"), r"(.+\d)"),
    (("{}_left", "{}_right"), "(.+)_"),
    (("{}_L_CC", "{}_R_MLO"), r"(.+\d)"),
    (("{}_left_1", "{}_right_1"), r"(\D*\d+)"),
    (("{}_slice2b", "{}_slice3c"), "(.+)_"),
    (("{}_slice2_left", "{}_slice3_right"), r"(\D*\d+)"),
    (("{}", "{}_2"), r"(\D*\d+)"),
    (("{}.1", "{}.2"), r"(.+)\..+\."),
    (("site1_{}_a", "site1_{}_b"), "(.+)_"),
    (("{}-a", "{}_b"), r"(.+\d)"),
    (("{}_a",), ""),
    (("{}a",), ""),
    (("{}",), ""),
    (("{}", "{}_mask"), ""),
]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("ends", "pattern"), NAMES)
def test_images_of_one_patient_are_seen_by_their_names(ends, pattern, apart):
    in_one = not apart or ends[-1][-1].isdecimal() or "{}_mask" in ends
    folders = ("ill", "ill") if in_one else ("ill", "well")
    paths = [
        Path("in", folders[(at + patient) % 2], end.format(f"K{patient:04}") + ".png")
        for patient in range(6)
        for at, end in enumerate(ends)
    ]
    told, found = group_seen(paths[::-1], classes=True)
    assert (found, bool(told)) == (pattern, bool(pattern))
    if pattern:
        assert f"({ends[0].format('K0000')}.png and {ends[1].format('K0000')}.png)" in told
        of = [re.search(pattern, path.name)[1] for path in paths]
        assert len({*of}) == 6
        assert of == [one for one in of[:: len(ends)] for _ in ends]


@pytest.mark.parametrize(
    "names",
    [
        ["cat/0001_cat", "cat/0002_cat", "dog/0001_dog", "dog/0002_dog"],  # each class's own word
        ["one/2019a", "one/2020b", "two/2021a", "two/2022b"],
        ["one/a1_x", "one/a1_y", "one/a2_x", "one/a3_x", "one/a4_x", "one/a5_y"],  # one pair alone
        ["one/IMG_1234", "one/IMG_1235", "two/IMG_1236", "two/IMG_1237"],
        ["one/left", "one/right", "two/left", "two/right"],
    ],
)
def test_names_that_are_alike_by_chance_are_no_patients(names):
    assert group_seen([Path("in", f"{name}.jpg") for name in names], classes=True) == ("", "")
