"""What partition, check and inspect warn of: labels that nobody meant so, and nothing where all is meant."""

import json

import numpy as np
import pytest
from unit.builders import Alone

from data_prep.cli import main
from mpifl.training.loop import train
from mpifl.wings import wings_of


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


X = np.random.default_rng(0).random((24, 3)).astype(np.float32)
LABELS = np.arange(24) % 3
MASKS = np.where(np.random.default_rng(0).random((24, 2, 2)) < 0.5, 0, 255).astype(np.uint8)
TEST = {"x_test": X[:2] + 1, "y_test": np.array([1, 3])}
ARRAYS = {
    "all is well": ({"y": LABELS}, [], []),
    "classes from 1": (
        {"y": LABELS + 1},
        ["class 0 without a training example; number them from 0, not"],
        [],
    ),
    "gaps": ({"y": LABELS * 3}, ["classes 1, 2, 4, 5 without a training example; the model has outputs"], []),
    "many gaps": ({"y": LABELS * 9}, ["classes 1, 2, 3, 4, 5 and 11 more without"], []),
    "a test class": (
        {"y": LABELS, **TEST},
        ["the test set has class 3, 1 times, and no silo trains on it"],
        [],
    ),
    "both": (
        {"y": LABELS * 2, **TEST},
        ["the test set has classes 1, 3, 2 times, and no silo trains on them"],
        [],
    ),
    "masks of 0 and 255": ({"y": MASKS}, ["labels are only 0 and 255, in 256 classes"], []),
    "masks of grey images": (
        {"x": np.zeros((24, 2, 2), np.uint8) + MASKS // 3, "y": MASKS},
        ["labels are only 0 and 255, in 256 classes", "x is uint8 without a scale, which a model takes"],
        [],
    ),
    "masks of 0 and 1": ({"y": MASKS // 255}, [], []),
    "masks of 0, 255 and 7": (
        {"y": np.where(np.arange(24)[:, None, None] % 2, MASKS, 7)},
        ["classes 1, 2, 3, 4, 5 and 248 more without a training example"],
        [],
    ),
    "silos": (
        {"y": LABELS, "silo": LABELS},
        ["silos 'north' and 'North' differ only by case; spell them alike"],
        ["silo_names=north,North,south"],
    ),
    "tokens": (
        {"x": LABELS[:, None].repeat(4, 1), "y": LABELS[:, None].repeat(4, 1) * 2},
        ["x is int64 without a scale, which a model takes for tokens; if they are measurements, say"],
        [],
    ),
    "pixels": (
        {"x": np.zeros((24, 4, 4), np.uint8) + MASKS[:, :1, :1], "y": LABELS},
        ["x is uint8 without a scale, which a model takes for tokens; if they are pixels, say --option"],
        [],
    ),
    "pixels with a scale": ({"x": np.zeros((24, 4, 4), np.uint8), "y": LABELS}, [], ["scale=1/255"]),
    "bytes": ({"x": np.zeros((24, 4), np.uint8), "y": LABELS}, [], []),
    "integers with a scale": ({"x": LABELS[:, None].repeat(4, 1).astype("i2"), "y": LABELS}, [], ["scale=1"]),
    "floats of 0 and 1": (
        {"y": (LABELS > 0) * 1.0},
        ["y is float64 and holds only 0 and 1, which are learned as values; say --option targets=labels"],
        [],
    ),
    "blanks": (
        {"y": np.array(["ok", "ok ", "ill"])[LABELS], "silo": np.array(["A", "B", " A"])[LABELS]},
        [
            "y has 1 texts with and without blanks at their ends, taken for one: 'ok' and 'ok '",
            "silo has 1 texts with and without blanks at their ends, taken for one: ' A' and 'A'",
        ],
        [],
    ),
    "arrays that nobody reads": (
        {"y": LABELS, "patient": LABELS, "sample_weight": X[:, 0], "order": LABELS},
        ["arrays that are not read: patient, sample_weight; --group NAME, --order NAME and"],
        ["order=order"],
    ),
    "names with blanks": (
        {"y": LABELS, "silo": LABELS},
        ["silos 'the north' and 'the north' differ only by blanks; spell them alike"],
        ["silo_names=the north,the  north,south"],
    ),
    "values": ({"y": X[:, 0]}, [], []),
    "labels": ({"y": np.ones((24, 2), bool)}, [], []),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_partition_check_and_inspect_warn_once(tmp_path, capsys, what):
    arrays, warnings, options = ARRAYS[what]
    np.savez(tmp_path / "in.npz", **{"x": X, **arrays})
    words = [word for option in options for word in ("--option", option)]
    scheme = ["--scheme", "natural"] if "silo" in arrays else ["--scheme", "iid", "--silos", 2]
    out = tmp_path / "out"
    run("partition", "npz", "--data", tmp_path / "in.npz", "--out", out, *scheme, *words)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(warnings)
    assert all(line.startswith(f"warning: {said}") for line, said in zip(told, warnings, strict=True))
    run("check", out, "--json", "--no-duplicates")
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [f"warning: {' '.join(one['what'].split())}" for one in found] == told
    assert {one["severity"] for one in found} <= {"warning"}
    run("inspect", out)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("Warning: ") == len(warnings)
    assert all(f"Warning: {said}" in shown for said in warnings)


def table(folder, spec, *rows):
    (folder / "t.csv").write_text("\n".join(["a,s,y", *rows]) + "\n")
    (folder / "t.toml").write_text(spec)
    return folder / "t.csv"


def test_classes_and_levels_that_differ_by_case_are_told(tmp_path, capsys):
    spec = 'label = "y"\n[features]\na = "numeric"\ns = "categorical"\n'
    rows = [f"{n},{'fFm'[n % 3]},{['Ill', 'ill', 'well'][n % 3]}" for n in range(12)]
    data = table(tmp_path, spec, *rows)
    words = ("partition", "csv", "--data", data, "--scheme", "iid", "--silos", 2, "--out", tmp_path / "out")
    run(*words)
    assert capsys.readouterr().err.splitlines() == [
        "warning: classes 'Ill' and 'ill' differ only by case; spell them alike if they are the same",
        "warning: levels 's=F' and 's=f' differ only by case; spell them alike if they are the same",
    ]


def test_a_class_that_is_stated_and_does_not_occur_is_told_by_its_name(tmp_path, capsys):
    spec = 'label = "y"\nclasses = ["well", "ill", "dead"]\n[features]\na = "numeric"\n'
    data = table(tmp_path, spec, *(f"{n},f,{['well', 'ill'][n % 2]}" for n in range(12)))
    words = ("partition", "csv", "--data", data, "--scheme", "iid", "--silos", 2, "--out", tmp_path / "out")
    run(*words)
    said = "warning: class 'dead' without a training example; a model cannot learn it\n"
    assert capsys.readouterr().err == said


def test_the_characters_of_a_text_are_no_doubtful_names(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("To be, or not to be: that is the question. aAbB\n" * 20)
    words = ("--option", "roles=false", "--option", "length=8", "--scheme", "iid", "--silos", 2)
    run("partition", "text", "--data", tmp_path / "t.txt", "--out", tmp_path / "out", *words)
    said = (
        "14 of 960 characters are in no sequence: what is left at the end of a split is shorter than length=8"
    )
    assert capsys.readouterr().err == f"warning: {said}\n"
    assert json.loads((tmp_path / "out" / "federation.json").read_text())["source"]["notes"] == {"text": said}


def test_texts_of_silos_get_no_advice_on_classes(tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    for name, text in {"one": "abab baba abba\n", "two": "xyxy zzyx yxxy\n"}.items():
        (tmp_path / "texts" / f"{name}.txt").write_text(text * 20)
    words = ("--option", "roles=false", "--option", "length=8", "--scheme", "natural")
    run("partition", "text", "--data", tmp_path / "texts", *words, "--out", tmp_path / "out")
    capsys.readouterr()
    run("inspect", tmp_path / "out")
    assert "Labels differ" not in capsys.readouterr().out


def test_a_class_that_a_silo_trains_on_and_never_tests_is_told(tmp_path, capsys):
    y, person = np.repeat([0, 1], [45, 5]), np.repeat(np.arange(10), 5)  # all positives are of one person
    np.savez(tmp_path / "in.npz", x=X[np.arange(50) % 24], y=y, p=person, silo=np.repeat(["north"], 50))
    words = ("--scheme", "natural", "--test", 0.2, "--group", "p", "--class-names", "well,ill")
    run("partition", "npz", "--data", tmp_path / "in.npz", *words, "--out", tmp_path / "out")
    said = "silo 'north' has 5 training examples of class 'ill', and its test split has none"
    alike = "silo 'north': all 10 test rows are of class 'well', so scores on it tell nothing"
    printed = capsys.readouterr().err
    assert [f"warning: {line}\n" in printed for line in (said, alike)] == [True, True]
    run("check", tmp_path / "out", "--json", "--no-duplicates")
    found = [one["what"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert [line in found for line in (said, alike)] == [True, True]
    job = {"name": "j", "shards": str(tmp_path / "out"), "rounds": 1, "model": {"name": "logreg"}}
    train({**job, "device": "cpu"}, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    assert alike in capsys.readouterr().err


def test_a_silo_whose_validation_masks_are_empty_is_told(tmp_path, capsys):
    y = np.zeros((24, 4, 4), np.int64)
    y[:12, 1:3, 1:3] = 1
    silo = np.repeat(["north", "south"], 12)
    np.savez(tmp_path / "in.npz", x=np.zeros((24, 4, 4, 1), np.float32), y=y, silo=silo)
    words = ("--scheme", "natural", "--valid", 0.25, "--class-names", "none,tumour")
    run("partition", "npz", "--data", tmp_path / "in.npz", *words, "--out", tmp_path / "out")
    said = "silo 'south': all 3 valid images have masks of class 'none', so scores on it tell nothing"
    assert f"warning: {said}\n" in capsys.readouterr().err


def test_vertical_folders_warn_too(tmp_path, capsys):
    np.savez(tmp_path / "in.npz", x=X, y=LABELS + 1)
    words = ("--scheme", "vertical", "--silos", 2, "--out", tmp_path / "out")
    run("partition", "npz", "--data", tmp_path / "in.npz", *words)
    said = "class 0 without a training example; number them from 0, not from 1, and skip hidden folders"
    assert capsys.readouterr().err == f"warning: {said}\n"
    run("check", tmp_path / "out", "--json")
    assert [one["what"] for one in json.loads(capsys.readouterr().out)["findings"]] == [said]
    run("inspect", tmp_path / "out")
    assert capsys.readouterr().out.count(f"Warning: {said}") == 1


def csv_of(folder, lines, spec):
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "t.toml").write_text(spec)
    return [
        "partition",
        "csv",
        "--data",
        folder / "t.csv",
        "--out",
        folder / "o",
        "--scheme",
        "iid",
        "--silos",
        2,
    ]


MEASURED = {
    "as many as rows": (
        [f"{n}" for n in range(60)],
        "60 classes in 60 training examples, fewer than 5 of each",
    ),
    "temperatures": (
        [f"{36 + n % 20 / 10:.1f}" for n in range(200)],
        "20 classes, most of them numbers with fractions, as '36.1'",
    ),
    "digits": ([str(n % 10) for n in range(100)], None),
    "names": ([f"k{n % 12}" for n in range(100)], None),
    "few": ([f"{n % 3}.5" for n in range(12)], None),
}


@pytest.mark.parametrize("what", MEASURED)
def test_a_label_of_measurements_is_told(tmp_path, what, capsys):
    labels, said = MEASURED[what]
    lines = ["a,y", *(f"{n},{label}" for n, label in enumerate(labels))]
    run(*csv_of(tmp_path, lines, 'label = "y"\n[features]\na = "numeric"\n'))
    told = capsys.readouterr().err
    assert (said or "") in told
    assert ("learn them as values: a table's label takes kind = 'numeric'" in told) == bool(said)


NAMES = {
    "a row": (["19.5", "F", "ill"], "the columns' names look like a row: 19.5, F; if they are one, state"),
    "names": (["age", "sex", "ill"], None),
    "years": (["2019", "sex", "ill"], None),
}


@pytest.mark.parametrize("what", NAMES)
def test_names_of_columns_that_look_like_a_row_are_told(tmp_path, what, capsys):
    (age, sex, sick), said = NAMES[what]
    lines = [
        f"{age},{sex},{sick}",
        *(f"{20 + n}.5,{'MF'[n % 2]},{('ill', 'well')[n % 3 > 1]}" for n in range(60)),
    ]
    spec = f'label = "{sick}"\n[features]\n"{age}" = "numeric"\n"{sex}" = "categorical"\n'
    run(*csv_of(tmp_path, lines, spec))
    told = capsys.readouterr().err
    assert (said or "") in told
    assert ("look like a row" in told) == bool(said)


def test_columns_that_are_numbered_are_no_row(tmp_path, capsys):
    lines = ["0,1,2", *(f"{n},{n * 2},{'pq'[n % 2]}" for n in range(20))]
    run(*csv_of(tmp_path, lines, 'label = "2"\n[features]\n0 = "numeric"\n1 = "numeric"\n'))
    assert "look like a row" not in capsys.readouterr().err


def test_names_for_a_table_that_has_a_line_of_them_are_refused(tmp_path, capsys):
    csv_of(tmp_path, ["age,sex,ill", *(f"{20 + n},{'MF'[n % 2]},{n % 2}" for n in range(20))], "")
    words = ["draft", tmp_path / "t.csv", "--names", "a,b,c", "--label", "c", "--force"]
    run(*words, ends=2)
    told = capsys.readouterr().err
    assert (
        "t.csv: a is 'age' (line 1), and a number in every other row: a line of names; leave --names" in told
    )


def test_draft_says_what_a_label_of_many_values_is(tmp_path, capsys):
    csv_of(tmp_path, ["a,y", *(f"{n},{36 + n / 7:.2f}" for n in range(80))], "")
    run("draft", tmp_path / "t.csv", "--label", "y", "--force")
    told = capsys.readouterr().out
    assert (
        "label: y has over 50 different values, first '36.00' (line 2); --kind numeric learns it as" in told
    )
