"""LEAF's JSON: users as silos with their names, values as written, and one line for what is wrong."""

import json

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common import InputError
from mpifl.data.shards import open_shard, read_federation

DRAW = np.random.default_rng(2)


def people(names, counts, seed=0, form=(4,), whole=False):
    draw, made = np.random.default_rng(seed), {}
    for name, count in zip(names, counts, strict=True):
        x = draw.integers(0, 9, (count, *form)) if whole else draw.random((count, *form))
        made[name] = {"x": x.tolist(), "y": draw.integers(0, 3, count).tolist()}
    return made


def write(path, made, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(one["y"]) for one in made.values()]
    content = {"users": [*made], "num_samples": counts, "user_data": made, **more}
    path.write_text(json.dumps(content, indent=1))
    return path


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code or 0


def test_users_of_several_files_are_silos_by_their_names(tmp_path):
    first, second = people(["f0012", "f0003"], [5, 8]), people(["a b", "f0012"], [4, 3], 1)
    write(tmp_path / "in" / "all_data_0.json", first)
    write(tmp_path / "in" / "all_data_1.json", second, hierarchies=["x", "y"])
    words = ["partition", "leaf", "--data", tmp_path / "in", "--scheme", "natural", "--option", "shape=1x2x2"]
    for out in ("one", "two"):
        assert run(*words, "--out", tmp_path / out) == 0
    spec, again = (read_federation(tmp_path / out) for out in ("one", "two"))
    assert [entry.sha256 for entry in spec.silos] == [entry.sha256 for entry in again.silos]
    assert sorted(entry.name for entry in spec.silos) == ["a b", "f0003", "f0012"]
    assert (spec.features.shape, spec.features.dtype, spec.classes) == ((1, 2, 2), "float32", 3)
    for entry in spec.silos:
        own = [part[entry.name] for part in (first, second) if entry.name in part]
        train = open_shard(tmp_path / "one", entry, spec)["train"]
        wanted = np.concatenate([np.array(part["x"]) for part in own]).astype(np.float32)
        assert np.array_equal(train.x.reshape(-1, 4), wanted)
        assert train.y.tolist() == [y for part in own for y in part["y"]]


def test_train_and_test_of_the_same_users_are_their_own_splits(tmp_path):
    train, test = people(["u", "v"], [6, 4]), people(["v", "u"], [2, 1], 1)
    write(tmp_path / "train" / "a.json", train)
    write(tmp_path / "test" / "a.json", test)
    data = find_source("leaf", ["group=user"])(tmp_path, 0)
    assert (data.test, data.held.tolist()) == (None, [False] * 10 + [True] * 3)
    assert [data.silo_names[one] for one in data.silo.tolist()] == ["u"] * 6 + ["v"] * 6 + ["u"]
    assert data.groups.of.tolist() == [0] * 6 + [1] * 6 + [0]
    assert np.array_equal(data.x[10:12], np.array(test["v"]["x"], np.float32))


def test_users_of_test_that_train_lacks_are_the_servers(tmp_path):
    write(tmp_path / "train" / "a.json", people(["u", "v"], [6, 4]))
    write(tmp_path / "test" / "a.json", test := people(["w"], [3], 1))
    data = find_source("leaf", ["group=user"])(tmp_path, 0)
    assert (len(data), data.silo_names, data.held) == (10, {0: "u", 1: "v"}, None)
    assert np.array_equal(data.test[0][:], np.array(test["w"]["x"], np.float32))
    assert data.groups.of_test.tolist() == [2] * 3
    write(tmp_path / "test" / "b.json", people(["u"], [2]))
    with pytest.raises(InputError, match="1 of the 2 users of test are in train, too"):
        find_source("leaf")(tmp_path, 0)


def test_whole_numbers_are_tokens_and_texts_are_classes(tmp_path):
    made = people(["u", "v"], [3, 2], whole=True)
    for one in made.values():
        one["y"] = ["well", "ill", "well"][: len(one["y"])]
    data = find_source("leaf")(write(tmp_path / "a.json", made), 0)
    assert (data.x.dtype, data.class_names, data.y.tolist()) == (np.int64, ("ill", "well"), [1, 0, 1, 1, 0])
    assert data.x[:3].tolist() == made["u"]["x"]
    made["w"] = {"x": [[0.5] * 4], "y": ["ill"]}
    assert find_source("leaf")(write(tmp_path / "a.json", made), 0).x.dtype == np.float32


def cut_short(path):
    path.write_text(path.read_text()[:-60])


def changed(**new):
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **new}))


U, V = people(["u", "v"], [3, 2]).values()
FAULTS = {
    "cut short": (cut_short, [], "is not LEAF's JSON, or is cut short"),
    "no JSON": (lambda path: path.write_text("x,y"), [], "is not LEAF's JSON"),
    "no UTF-8": (lambda path: path.write_bytes(b'{"\xff'), [], "is not LEAF's JSON"),
    "no data": (lambda path: path.write_text('{"users": []}'), [], "has no user_data"),
    "nobody": (lambda path: path.write_text('{"user_data": {}}'), [], "has no user"),
    "a list": (lambda path: path.write_text("[1]"), [], "{ is missing at character 0"),
    "no y": (changed(user_data={"u": {"x": [[1]]}}), [], "user 'u' has no x and y"),
    "twice": (
        lambda path: path.write_text('{"user_data": {"u": {"x": [1], "y": [1]}, "u": {"x": [1], "y": [1]}}}'),
        [],
        "user 'u' is there twice",
    ),
    "other counts": (changed(num_samples=[3, 3]), [], "num_samples are not those of user_data"),
    "other users": (changed(users=["u", "w"]), [], "users are not those of user_data (2 users)"),
    "lengths": (changed(user_data={"u": {"x": [[1]], "y": [1, 2]}}), [], "user 'u' has 1 x and 2 y"),
    "texts": (
        changed(user_data={"u": {"x": ["to be"], "y": ["t"]}}),
        [],
        "x is texts, and leaf reads numbers",
    ),
    "ragged": (changed(user_data={"u": {"x": [[1], [1, 2]], "y": [0, 0]}}), [], "x is not numbers"),
    "unlike": (
        changed(user_data={"u": U, "v": {"x": [[1]], "y": [0]}}),
        [],
        "user 'v' has x of [1] and y of []",
    ),
    "both kinds": (
        changed(user_data={"u": U, "v": {**V, "y": ["a", "b"]}}, num_samples=[3, 2]),
        [],
        "y is numbers and texts",
    ),
    "no finite": (
        changed(user_data={"u": {"x": [[float("nan")]] * 2, "y": [0, 1]}}, users=["u"], num_samples=[2]),
        [],
        "x has NaN or infinite values, first in example 0",
    ),
    "another shape": (lambda path: None, ["shape=1x3"], "shape=1x3 given; "),
    "no shape": (lambda path: None, ["shape=big"], "shape=big given; it must be that of an example"),
    "names": (lambda path: None, ["silo_names=a,b"], "users have names, leave it out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_ends_with_one_line_and_leaves_nothing(tmp_path, capsys, fault):
    harm, options, said = FAULTS[fault]
    harm(path := write(tmp_path / "a.json", {"u": U, "v": V}))
    words = [word for option in options for word in ("--option", option)]
    assert (
        run("partition", "leaf", "--data", path, "--out", tmp_path / "out", "--scheme", "natural", *words)
        == 2
    )
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_without_files_is_named(tmp_path):
    with pytest.raises(InputError, match=r"has no \.json files"):
        find_source("leaf")(tmp_path, 0)
