"""A site's own data becomes its one shard, by a spec without data; the entries alone make the federation."""

import json
import shutil

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.dataset.dataset import Dataset
from data_prep.site import site
from mpifl.common import InputError
from mpifl.data.shards.shards import open_shard, read_federation, read_spec
from mpifl.report.judging import shards_at


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def example(n=40, classes=3, seed=0, width=4, dtype="f4"):
    rng = np.random.default_rng(seed)
    return (100 * rng.random((n, width))).astype(dtype), np.arange(n) % classes


@pytest.fixture
def spec(tmp_path):
    words = ["--shape", "4", "--classes", 3, "--scale", 0.5, "--offset", -1, "--name", "clinics"]
    assert command("spec", tmp_path / "spec.json", *words) == 0
    return tmp_path / "spec.json"


def bring(tmp_path, spec, x, y, silo, *more, out="out"):
    path = tmp_path / f"site{silo}.npz"
    np.savez(path, x=x, y=y)
    return command(
        "import", "npz", "--data", path, "--spec", spec, "--silo", silo, "--out", tmp_path / out, *more
    )


def test_sites_that_see_one_another_never_make_a_federation(tmp_path, spec):
    sites = {silo: example(20 + silo, seed=silo) for silo in (1, 0, 2)}
    for silo, (x, y) in sites.items():
        assert bring(tmp_path, spec, x, y, silo, "--name", f"clinic {silo}", out=f"at{silo}") == 0
        made = sorted(path.name for path in (tmp_path / f"at{silo}").iterdir())
        assert made == [f"silo_{silo:04d}.h5", f"silo_{silo:04d}.json"]
    (tmp_path / "server").mkdir()
    for silo in sites:
        name = f"silo_{silo:04d}.json"
        (tmp_path / "server" / name).write_bytes((tmp_path / f"at{silo}" / name).read_bytes())
    assert command("assemble", tmp_path / "server") == 0
    merged = read_federation(tmp_path / "server")
    assert (merged.name, merged.features.scale, merged.features.offset) == ("clinics", 0.5, -1)
    assert [entry.name for entry in merged.silos] == ["clinic 0", "clinic 1", "clinic 2"]
    for silo, (x, y) in sites.items():
        split = open_shard(tmp_path / f"at{silo}", merged.silos[silo], merged)["train"]
        assert (split.x.tobytes(), split.y.tolist()) == (x.tobytes(), y.tolist())


def test_an_entry_tells_nothing_but_counts(tmp_path, spec):
    bring(tmp_path, spec, *example(), 0)
    told = json.loads((tmp_path / "out" / "silo_0000.json").read_text())
    assert told["source"] == {"name": "npz"}
    assert set(told["silos"][0]) == {"silo", "name", "file", "examples", "labels", "bytes", "sha256"}


def test_a_share_is_held_out_and_the_sources_own_test_set_stays_one(tmp_path, spec):
    x, y = example(100)
    assert bring(tmp_path, spec, x, y, 0, "--valid", 0.1, "--test", 0.2, "--seed", 4) == 0
    assert read_spec(tmp_path / "out" / "silo_0000.json").silos[0].examples == {
        "train": 70,
        "valid": 10,
        "test": 20,
    }
    np.savez(tmp_path / "b.npz", x=x, y=y, x_test=x[:7], y_test=y[:7])
    words = [
        "import",
        "npz",
        "--data",
        tmp_path / "b.npz",
        "--spec",
        spec,
        "--out",
        tmp_path / "b",
        "--valid",
        0.1,
    ]
    assert command(*words, "--silo", 3) == 0
    entry = read_spec(tmp_path / "b" / "silo_0003.json").silos[0]
    assert entry.examples == {"train": 90, "valid": 10, "test": 7}


def test_the_server_brings_its_test_set(tmp_path, spec):
    bring(tmp_path, spec, *example(), 0)
    x, y = example(9, seed=5)
    np.savez(tmp_path / "t.npz", x=x, y=y)
    words = ["import", "npz", "--data", tmp_path / "t.npz", "--spec", spec, "--out", tmp_path / "out"]
    assert command(*words, "--server") == 0
    assert command("assemble", tmp_path / "out") == 0
    merged = read_federation(tmp_path / "out")
    assert open_shard(tmp_path / "out", merged.test, merged)["test"].x.tobytes() == x.tobytes()
    assert command("check", tmp_path / "out") == 0


def source_of(data):
    return lambda name, options=(): lambda path, seed: data


def test_labels_get_the_numbers_of_the_federations_names(tmp_path, monkeypatch, capsys):
    words = ["--shape", "4", "--class-names", "bird, cat, dog", "--feature-names", "a,b,c,d"]
    assert command("spec", tmp_path / "spec.json", *words) == 0
    x, y = example(10, classes=2)
    data = Dataset("photos", x, y, 2, {}, class_names=("dog", "bird"), feature_names=("a", "b", "c", "d"))
    monkeypatch.setattr(site, "find_source", source_of(data))
    common = ["import", "npz", "--spec", tmp_path / "spec.json", "--silo", 0]
    assert command(*common, "--out", tmp_path / "out") == 0
    made = read_spec(tmp_path / "out" / "silo_0000.json")
    assert open_shard(tmp_path / "out", made.silos[0], made)["train"].y.tolist() == [2, 0] * 5
    capsys.readouterr()
    for change, said in (
        ({"class_names": ("dog", "wolf")}, "photos: has a class 'wolf', the federation has bird, cat, dog"),
        ({"feature_names": ("a", "c", "b", "d")}, "photos: column 1 is 'c', the federation has 'b'"),
    ):
        named = {"class_names": ("dog", "bird"), "feature_names": ("a", "b", "c", "d")}
        wrong = Dataset("photos", x, y, 2, {}, **{**named, **change})
        monkeypatch.setattr(site, "find_source", source_of(wrong))
        assert command(*common, "--out", tmp_path / "no") == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "no").exists()


X, Y = example()
WRONG = {
    "shape": (X[:, :3], Y, "features of shape [3], the federation has [4]"),
    "dtype": (X.astype("f8"), Y, "features of dtype float64, the federation has float32"),
    "labels": (X, Y + 1, "labels from 1 to 3, the federation's 3 classes take 0 to 2"),
    "no examples": (X[:0], Y[:0], "has no examples"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_does_not_fit_the_spec_is_refused(tmp_path, spec, capsys, fault):
    x, y, said = WRONG[fault]
    capsys.readouterr()
    assert bring(tmp_path, spec, x, y, 0, out="new/out") == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert not (tmp_path / "new").exists()


def test_another_scale_is_refused(tmp_path, spec, monkeypatch, capsys):
    monkeypatch.setattr(site, "find_source", source_of(Dataset("pixels", X, Y, 3, {}, scale=1 / 255)))
    assert command("import", "npz", "--spec", spec, "--silo", 0, "--out", tmp_path / "out") == 2
    assert "pixels: scale 0.00392156862745098, the federation has 0.5" in capsys.readouterr().err


def test_what_is_there_is_never_overwritten(tmp_path, spec, capsys):
    assert bring(tmp_path, spec, X, Y, 0) == 0
    before = (tmp_path / "out" / "silo_0000.h5").read_bytes()
    assert bring(tmp_path, spec, X + 1, Y, 0) == 2
    said = (
        f"--silo 0: is taken, by {tmp_path / 'out' / 'silo_0000.h5'}; give the number that the sites agreed"
    )
    assert said in capsys.readouterr().err
    assert bring(tmp_path, spec, X + 1, Y, 1, "--valid", 0.4) == 0
    assert (tmp_path / "out" / "silo_0000.h5").read_bytes() == before
    assert command("assemble", tmp_path / "out") == 0
    lacks = "silo 0 has no valid rows, which 1 other has: figures on valid rows are without it; import again"
    assert f"warning: {lacks} with --valid" in capsys.readouterr().err
    assert command("assemble", tmp_path / "out") == 2
    assert "has a federation.json already" in capsys.readouterr().err
    mine, kept = tmp_path / "out" / "silo_0001.json", (tmp_path / "out" / "silo_0001.json").read_text()
    other = json.loads(kept)
    other["silos"][0]["sha256"] = "0" * 64
    mine.write_text(json.dumps(other))
    assert command("assemble", tmp_path / "out") == 2
    said = f"{mine}: is of silo 1, which is silo 1 in federation.json already; import it again with another"
    assert f"{said} number, as --silo 2" in capsys.readouterr().err
    mine.write_text(kept)
    (tmp_path / "out" / "silo_0001.json").rename(tmp_path / "entry")  # as `partition` leaves a folder
    assert command("assemble", tmp_path / "out") == 2
    whole = "is a federation already, and no site's entry goes with silo_0001.h5; train on it as it is, or"
    assert f"out: {whole} cut all silos anew" in capsys.readouterr().err
    for path in (tmp_path / "out" / "federation.json", spec):
        before = path.read_bytes()
        assert command("spec", path, "--shape", 4, "--classes", 3) == 2
        assert f"error: {path}: is there already; remove it or name another" in capsys.readouterr().err
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("silos", "said"),
    [([], "holds no silo_*.json"), ([0, 2], "silo 1 is missing"), ([1], "silo 0 is missing")],
)
def test_a_silo_that_is_missing_is_named(tmp_path, spec, capsys, silos, said):
    (tmp_path / "out").mkdir()
    for silo in silos:
        bring(tmp_path, spec, X, Y, silo)
    assert command("assemble", tmp_path / "out") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out" / "federation.json").exists()


def test_a_silo_that_two_sites_claim_is_named(tmp_path, spec, capsys):
    for silo in (0, 1):
        bring(tmp_path, spec, X, Y, silo)
    twice = (tmp_path / "out" / "silo_0001.json").read_text()
    (tmp_path / "out" / "silo_0002.json").write_text(twice)
    assert command("assemble", tmp_path / "out") == 2
    assert "silo 1 is there twice (silo_0001.h5 and silo_0001.h5)" in capsys.readouterr().err


def test_sites_with_different_specs_are_told_apart(tmp_path, spec, capsys):
    bring(tmp_path, spec, X, Y, 0)
    command("spec", tmp_path / "other.json", "--shape", 4, "--classes", 4, "--scale", 0.5, "--offset", -1)
    bring(tmp_path, tmp_path / "other.json", X, Y, 1)
    assert command("assemble", tmp_path / "out") == 2
    assert "silo_0001.json: has name federation, silo_0000.json has clinics" in capsys.readouterr().err


def test_a_spec_is_taken_from_a_federation(tmp_path, spec):
    bring(tmp_path, spec, X, Y, 0)
    command("assemble", tmp_path / "out")
    assert command("spec", tmp_path / "again.json", "--like", tmp_path / "out") == 0
    again, first = read_spec(tmp_path / "again.json"), read_spec(spec)
    assert again == first
    assert bring(tmp_path, tmp_path / "out", X, Y, 1) == 0  # and a whole federation serves as one


def test_what_is_given_goes_before_what_a_federation_says(tmp_path, spec):
    like = ["spec", tmp_path / "new.json", "--like", spec]
    given = [
        "--scale",
        2,
        "--offset",
        0,
        "--dtype",
        "uint8",
        "--shape",
        "2,2",
        "--classes",
        5,
        "--name",
        "wards",
    ]
    assert command(*like, *given) == 0
    made = read_spec(tmp_path / "new.json")
    wanted = {"shape": (2, 2), "dtype": "uint8", "scale": 2.0, "offset": 0.0}
    assert (made.features.model_dump(), made.classes, made.name) == (wanted, 5, "wards")


@pytest.mark.parametrize("words", [["--test", 0.2], ["--valid", 0.1], ["--name", "ward"]])
def test_the_server_holds_nothing_out_and_has_no_name(tmp_path, spec, capsys, words):
    np.savez(tmp_path / "t.npz", x=X, y=Y)
    common = [
        "import",
        "npz",
        "--data",
        tmp_path / "t.npz",
        "--spec",
        spec,
        "--out",
        tmp_path / "out",
        "--server",
    ]
    assert command(*common, *words) == 2
    assert f"{words[0]}: {words[1]} given, but --server" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--classes", 3], "--shape: not given"),
        (["--shape", "4x"], "--shape, --dtype: shape"),
        (["--shape", "4", "--classes", 3, "--dtype", "float8"], "dtype float8 given"),
        (["--shape", "4"], "--classes: 0 given"),
        (
            ["--shape", "4", "--classes", 3, "--class-names", "a,b"],
            "--class-names: 2 different names given",
        ),
        (
            ["--shape", "2", "--classes", 3, "--feature-names", "a,a"],
            "--feature-names: 1 different names given",
        ),
        (["--like", "nowhere"], "nowhere: is not there"),
    ],
)
def test_a_bad_spec_is_refused(tmp_path, capsys, words, said):
    assert command("spec", tmp_path / "spec.json", *words) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "spec.json").exists()


@pytest.mark.parametrize("words", [[], ["--silo", 1, "--server"], ["--silo", -1]])
def test_a_silo_has_one_number(tmp_path, spec, capsys, words):
    assert command("import", "npz", "--spec", spec, "--out", tmp_path / "out", "--data", spec, *words) == 2
    assert "--silo: " in capsys.readouterr().err


TABLE = """
label = {label}
{more}
[features]
age = "numeric"
sex = {{ kind = "categorical", levels = ["f", "m"] }}
stage = {{ kind = "categorical", levels = ["I", "II"], encoding = "ordinal", missing = "drop" }}
pain = {{ kind = "categorical", levels = ["no", "yes"], missing = "level" }}
seen = {{ kind = "date", since = "2000-01-01" }}
"""
COLUMNS = ["age", "sex=f", "sex=m", "stage", "pain=no", "pain=yes", "pain=missing", "seen"]
TAUGHT = {
    "classes": ('"ill"', 'classes = ["no", "yes"]', (["no", "yes"], None)),
    "a threshold": ('"ill"', "threshold = 0.5", (["<= 0.5", "> 0.5"], None)),
    "values": ('{ kind = "numeric", column = "ill" }', "", (None, ["ill"])),
    "labels": ('{ kind = "multilabel", columns = ["ill", "worse"] }', "", (None, ["ill", "worse"])),
    "survival": ('{ kind = "survival", time = "days", event = "ill" }', "", (None, ["time", "event"])),
}
ROW = (
    "age,sex,stage,pain,seen,ill,worse,days\n50,f,I,,2000-01-02,{ill},0,3\n51,m,II,no,2000-01-03,{ill},1,4\n"
)


def table(folder, label, more=""):
    path = folder / "own.toml"
    path.write_text(TABLE.format(label=label, more=more))
    return path


@pytest.mark.parametrize("taught", TAUGHT)
def test_sites_agree_on_the_spec_of_a_table_and_count_nothing(tmp_path, taught):
    label, more, (classes, targets) = TAUGHT[taught]
    path, agreed = table(tmp_path, label, more), tmp_path / "agreed.json"
    assert command("spec", agreed, "--table", path) == 0
    said = read_spec(agreed)
    assert (said.name, said.feature_names, said.features.shape) == ("own", COLUMNS, (8,))
    assert (said.class_names, said.targets and said.targets.names) == (classes, targets)
    path.with_suffix(".csv").write_text(ROW.format(ill="yes" if taught == "classes" else "1"))
    words = ["--data", tmp_path / "own.csv", "--spec", agreed, "--silo", 0, "--out", tmp_path / "site"]
    assert command("import", "csv", *words) == 0
    assert command("assemble", tmp_path / "site") == 0
    assert command("check", tmp_path / "site") == 0
    assert read_federation(tmp_path / "site").targets == said.targets


OPEN = {
    "classes": ('"ill"', "", "own.toml: classes: not stated"),
    "levels": ('"ill"', "threshold = 1", "own.toml: features.sex.levels: not stated"),
}


@pytest.mark.parametrize("what", OPEN)
def test_a_spec_that_leaves_something_to_the_table_is_no_agreement(tmp_path, capsys, what):
    label, more, said = OPEN[what]
    path = table(tmp_path, label, more)
    if what == "levels":
        path.write_text(path.read_text().replace(', levels = ["f", "m"]', ""))
    assert command("spec", tmp_path / "agreed.json", "--table", path) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "agreed.json").exists()


def test_a_spec_has_one_model(tmp_path, spec, capsys):
    path = table(tmp_path, '"ill"', "threshold = 1")
    assert command("spec", tmp_path / "new.json", "--table", path, "--like", spec) == 2
    assert "use one of them" in capsys.readouterr().err


def test_columns_of_another_number_and_silos_beyond_counting_are_refused(tmp_path, monkeypatch, capsys):
    words = ["--shape", "4", "--classes", 2, "--feature-names", "a,b,c,d"]
    assert command("spec", tmp_path / "spec.json", *words) == 0
    said = json.loads((tmp_path / "spec.json").read_text())
    (tmp_path / "spec.json").write_text(json.dumps(said | {"feature_names": ["a", "b", "c"]}))
    x, y = example(10, classes=2)
    data = Dataset("table", x, y, 2, {}, feature_names=("a", "b", "c", "d"))
    monkeypatch.setattr(site, "find_source", source_of(data))
    common = ["import", "npz", "--spec", tmp_path / "spec.json", "--out", tmp_path / "out"]
    assert command(*common, "--silo", 0) == 2
    assert "table: has a column 'd', which the federation has not" in capsys.readouterr().err
    assert command(*common, "--silo", "99999999999999999999") == 2
    assert "--silo: 99999999999999999999 given" in capsys.readouterr().err


def test_a_file_of_the_server_without_a_test_set_is_refused(tmp_path, spec, capsys):
    bring(tmp_path, spec, *example(), 0)
    (tmp_path / "out" / "test.json").write_bytes(spec.read_bytes())
    assert command("assemble", tmp_path / "out") == 2
    assert "test.json: has no test set" in capsys.readouterr().err


def test_a_scale_may_be_a_quotient_as_in_partition(tmp_path, capsys):
    words = ["--shape", "1,8,8", "--dtype", "uint8", "--classes", 2]
    assert command("spec", tmp_path / "spec.json", *words, "--scale", "1/255") == 0
    assert read_spec(tmp_path / "spec.json").features.scale == 1 / 255
    capsys.readouterr()
    assert command("spec", tmp_path / "other.json", *words, "--scale", "1/0") == 2
    told = capsys.readouterr().err
    assert told == "error: --scale: 1/0 given; it must be a number above 0, such as 1/255\n"


def test_a_silo_joins_the_shards_of_a_partition_and_can_be_scored_alone(tmp_path, capsys):
    x, y = example()
    np.savez(tmp_path / "two.npz", x=x, y=y, silo=np.array(["north", "south"])[np.arange(40) // 20])
    cut = ["--data", tmp_path / "two.npz", "--scheme", "natural", "--test", 0.2, "--out", tmp_path / "more"]
    assert command("partition", "npz", *cut) == 0
    known = read_federation(tmp_path / "more")
    assert (
        bring(tmp_path, tmp_path / "more", x + 1000, y, 2, "--name", "late", "--test", 0.2, out="late") == 0
    )
    found = shards_at(tmp_path / "late")
    assert (list(found.entries), found.spec.classes) == (["late"], 3)
    for gone in (tmp_path / "nowhere", tmp_path / "late" / "silo_0009.h5"):
        with pytest.raises(InputError, match=f"^{gone}: is not there; name a shard folder"):
            shards_at(gone)
    for path in (tmp_path / "late").iterdir():
        shutil.copy(path, tmp_path / "more")
    before = (tmp_path / "more" / "federation.json").rename(tmp_path / "kept.json").read_bytes()
    assert command("assemble", tmp_path / "more") == 2
    said = "silo 0 is missing: silo_0000.h5 is there, and what describes it is not; put its silo_0000.json"
    assert said in capsys.readouterr().err
    (tmp_path / "kept.json").rename(tmp_path / "more" / "federation.json")
    capsys.readouterr()
    assert command("assemble", tmp_path / "more") == 0
    assert "warning" not in capsys.readouterr().err
    assert command("check", tmp_path / "more") == 0
    whole = read_federation(tmp_path / "more")
    assert [entry.name for entry in whole.silos] == ["north", "south", "late"]
    assert (whole.silos[:2], whole.scheme["name"]) == (known.silos, "import")
    assert len(open_shard(tmp_path / "more", whole.silos[2], whole)["test"]) == 8
    assert before != (tmp_path / "more" / "federation.json").read_bytes()
    capsys.readouterr()
    assert command("assemble", tmp_path / "more") == 2
    assert "is a federation already" in capsys.readouterr().err
