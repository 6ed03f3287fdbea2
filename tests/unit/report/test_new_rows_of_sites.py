"""New rows of a table in the notation, the unit and the names of one site."""

import shutil

import numpy as np
import pytest
from unit.builders import Alone
from unit.report.test_patients import SPEC, asked, command, patients, probabilities, read, trained

from data_prep.tables import UnlabelledTable
from mpifl.training.loop import train
from mpifl.wings import wings_of

__all__ = ["trained"]


def written(path, rows, columns, delimiter=",", bom=""):
    """Write rows as a CSV table."""
    lines = [delimiter.join(columns), *(delimiter.join(str(row[name]) for name in columns) for row in rows)]
    path.write_text(bom + "\n".join(lines) + "\n")


def test_the_names_are_found_by_the_delimiter_that_the_rows_have(trained):
    rows = [row for row in read(trained / "patients.csv") if row["age"]]
    columns = ["patient", "bmi", "ward", "age"]
    written(trained / "new.csv", rows, columns)
    written(trained / "semicolons.csv", rows, columns, ";", "\ufeff")
    for name in ("new", "semicolons"):
        code, printed, said = asked(
            "predict", trained / "run", trained / f"{name}.csv", "--out", trained / f"p_{name}.csv"
        )
        assert (code, said) == (0, "")
        assert "not read" not in printed
    assert read(trained / "p_new.csv") == read(trained / "p_semicolons.csv")
    assert [one["id"] for one in read(trained / "p_new.csv")] == [row["patient"] for row in rows]


FAR = {
    "the same": (lambda age, row: age, None),
    "another unit": (lambda age, row: age * 12, "age has mean 6"),
    "a smaller number": (lambda age, row: age / 12, "(a factor of 12, as of months beside years)"),
    "some rows": (lambda age, row: age * 12 if row % 10 == 3 else age, "age is over 8 deviations off in "),
}


@pytest.mark.parametrize("which", FAR)
def test_columns_far_from_the_training_are_told_with_figures(trained, which):
    change, wanted = FAR[which]
    rows = [row for row in read(trained / "patients.csv") if row["age"]]
    rows = [{**row, "age": change(float(row["age"]), number)} for number, row in enumerate(rows)]
    written(trained / "new.csv", rows, ["patient", "bmi", "ward", "age"])
    words = ["predict", trained / "run", trained / "new.csv", "--out", trained / "p.csv"]
    if which == "another unit":
        code, _, said = asked(*words)
        assert code
        assert not (trained / "p.csv").exists()
        assert f"{trained / 'new.csv'}: far from the training: age has mean 6" in said
        assert "a spec with the column's factor; --force takes them as they are" in said
        words.append("--force")
    code, printed, _ = asked(*words)
    assert code == 0
    warned = [line for line in printed.splitlines() if "far from the training" in line]
    if wanted is None:
        assert not warned
        return
    (line,) = warned
    assert line.startswith(f"warning: {trained / 'new.csv'}: ")
    assert wanted in line
    assert "bmi" not in line
    assert "--spec" in line


def test_columns_that_kept_their_units_are_named_as_not_compared(tmp_path):
    """Of them the run has no mean and no deviation: another unit would pass without a word."""
    rows = [{"age": 50 * 12, "bmi": 20 + n, "ward": "a"} for n in range(9)]
    written(tmp_path / "new.csv", rows, ["age", "bmi", "ward"])
    columns = {"age": {"kind": "numeric"}, "bmi": {"kind": "numeric", "mean": 24.0, "deviation": 3.0}}
    features = {**columns, "ward": {"kind": "categorical", "levels": ["a"]}}
    stated = {"label": "ill", "standardise": "none", "features": features}
    told = [*UnlabelledTable("csv", tmp_path / "new.csv", stated).told()]
    (line,) = (line for line in told if "age" in line)
    assert line.startswith(f"warning: {tmp_path / 'new.csv'}: the unit of age was not looked at")
    assert "bmi" not in line


ARRAYS = "--scheme", "iid", "--silos", 2, "--feature-names", "age,bmi"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit a regression to columns in their own units, as a table and as arrays; return the folder."""
    folder = tmp_path_factory.mktemp("fitted")
    rows = patients(folder / "patients.csv", count=300)
    unscaled = SPEC.replace('"own"', '"none"').replace('missing = "mean"', 'missing = "drop"')
    (folder / "patients.toml").write_text(unscaled)
    x = np.array([(float(row["age"]), float(row["bmi"])) for row in rows if row["age"] and row["bmi"]])
    y = (x[:, 0] + np.random.default_rng(1).normal(0, 30, len(x)) > 55).astype(np.int64)
    np.savez(folder / "arrays.npz", x=x.astype(np.float32), y=y)
    cut = "partition", "csv", "--data", folder / "patients.csv", "--scheme", "natural"
    command(*cut, "--out", folder / "table")
    command("partition", "npz", "--data", folder / "arrays.npz", "--out", folder / "arrays", *ARRAYS)
    for data in ("table", "arrays"):
        job = {
            "name": "toy",
            "shards": str(folder / data),
            "rounds": 3,
            "device": "cpu",
            "model": {"name": "logreg"},
        }
        job |= {"task": {"name": "binary"}, "algorithm": {"name": "newton", "ridge": 1.0}}
        train(job, folder / f"run_{data}", (), False, Alone(), wings_of=wings_of)
    return folder


@pytest.mark.parametrize("data", ["table", "arrays", "shards"])
@pytest.mark.parametrize("factor", [1, 12, 1 / 12])
def test_a_regression_knows_the_units_of_columns_that_were_not_standardised(fitted, tmp_path, data, factor):
    """Its sums tell mean and deviation of each column, though the shards' description does not."""
    rows = [row for row in read(fitted / "patients.csv") if row["age"] and row["bmi"]]
    rows = [{**row, "age": float(row["age"]) * factor} for row in rows]
    new = tmp_path / {"table": "new.csv", "arrays": "new.npz", "shards": "new"}[data]
    if data == "shards":
        written(tmp_path / "later.csv", rows, list(rows[0]))
        shutil.copy(fitted / "patients.toml", tmp_path / "later.toml")
        command("partition", "csv", "--data", tmp_path / "later.csv", "--scheme", "natural", "--out", new)
    elif data == "table":
        written(new, rows, ["patient", "bmi", "ward", "age"])
    else:
        np.savez(new, x=np.array([(row["age"], float(row["bmi"])) for row in rows], np.float32))
    given = [new] if data != "shards" else ["--data", new]
    run = fitted / f"run_{data.replace('shards', 'table')}"
    words = "predict", run, *given, "--out", tmp_path / "p.csv"
    code, printed, said = asked(*words)
    assert "not looked at" not in printed
    if factor == 1:
        assert (code, "far from the training" in printed) == (0, False)
        return
    if factor == 12:
        assert code
        assert f"{new}: far from the training: age has mean" in said
        code, printed, _ = asked(*words, "--force")
    assert code == 0
    (line,) = (line for line in printed.splitlines() if "far from the training" in line)
    assert line.startswith(f"warning: {new}: far from the training: age has m")
    assert "bmi" not in line


SITE = """label = "ill"
id = "who"
standardise = "own"
missing = ["-"]
[features]
age = { kind = "numeric", missing = "drop", rename = "months", factor = 0.08333333333333333 }
ward = { kind = "categorical", levels = [["a", "A"], "b", "c"] }
bmi = { kind = "numeric", missing = "mean" }
"""


@pytest.fixture
def site(trained):
    """Write new rows as one site has them, and its spec."""
    rows = [row for row in read(trained / "patients.csv") if row["age"]]
    written(trained / "new.csv", rows, ["patient", "bmi", "ward", "age"])
    own = [
        {
            "who": row["patient"],
            "bmi": row["bmi"] or "-",
            "ward": row["ward"].replace("a", "A"),
            "months": int(row["age"]) * 12,
        }
        for row in rows
    ]
    written(trained / "site.csv", own, ["who", "bmi", "ward", "months"], ";")
    (trained / "site.toml").write_text(SITE)
    return trained


def test_a_site_feeds_its_own_table_by_its_own_spec(site):
    assert asked("predict", site / "run", site / "new.csv", "--out", site / "p.csv")[0] == 0
    words = "--spec", site / "site.toml", "--out", site / "own.csv"
    code, printed, said = asked("predict", site / "run", site / "site.csv", *words)
    assert (code, said) == (0, "")
    assert "far from" not in printed
    assert [one["id"] for one in read(site / "own.csv")] == [one["id"] for one in read(site / "p.csv")]
    np.testing.assert_allclose(probabilities(site / "own.csv"), probabilities(site / "p.csv"), rtol=1e-5)


DIFFERS = {
    "a kind": (
        ('bmi = { kind = "numeric", missing = "mean" }', 'bmi = "categorical"'),
        "features.bmi.kind: 'categorical', the training has 'numeric'",
    ),
    "a gap": (
        (', missing = "mean"', ""),
        "features.bmi.missing: none, the training has 'mean'",
    ),
    "levels": (('"b", "c"', '"c", "b"'), "features.ward.levels: a, c, b, the training has a, b, c"),
    "one more": (
        ("[features]", '[features]\nheight = "numeric"'),
        "features.height: the training has no such",
    ),
    "one less": (
        ('bmi = { kind = "numeric", missing = "mean" }\n', ""),
        "features.bmi: not there, and the training has it",
    ),
    "no scale": (
        ('standardise = "own"\n', ""),
        'standardise: is "none", and the training has standardised age',
    ),
    "a mean": (
        (', missing = "mean"', ', missing = "mean", mean = 3, deviation = 2'),
        "features.bmi.mean: 3, the training has 2",
    ),
}


@pytest.mark.parametrize("which", DIFFERS)
def test_a_spec_that_means_other_columns_is_refused_with_what_differs(site, which):
    (old, new), wanted = DIFFERS[which]
    assert old in SITE
    (site / "site.toml").write_text(SITE.replace(old, new))
    words = "--spec", site / "site.toml", "--out", site / "own.csv"
    code, _, said = asked("predict", site / "run", site / "site.csv", *words)
    assert code
    assert f"site.toml: {wanted}" in said


def test_a_spec_is_for_a_table(site):
    words = "--spec", site / "site.toml", "--out", site / "own.csv"
    said = asked("predict", site / "run", "--data", site / "shards", *words)[2]
    assert "site.toml: is for a table of new rows" in said


OF_SITES = """label = "ill"
standardise = "own"
{decimal}[features]
age = {{ kind = "numeric", missing = "drop"{factor} }}
bmi = {{ kind = "numeric", missing = "mean" }}
"""


@pytest.mark.parametrize("decimals", [".", ","])
@pytest.mark.parametrize("first", ["north", "south"])
def test_new_rows_are_read_by_a_named_spec_where_sites_write_in_different_ways(tmp_path, decimals, first):
    """None of them is taken for all: a factor of one site would change the numbers of another silently."""
    rows = [row for row in patients(tmp_path / "all.csv", count=120) if row["age"]]
    south = [{**row, "age": int(row["age"]) * 12} for row in rows]
    for name, own in (("north", rows), ("south", south)):
        mark = "." if name == "north" else decimals
        own = [{**row, "bmi": str(row["bmi"]).replace(".", mark)} for row in own]
        written(tmp_path / f"{name}.csv", own, ["age", "bmi", "ill"], ";")
        how = {
            "decimal": f'decimal = "{mark}"\n' * (mark == ","),
            "factor": ", factor = 0.0833333" * (name == "south"),
        }
        (tmp_path / f"{name}.toml").write_text(OF_SITES.format(**how))
    sites = [tmp_path / f"{name}.csv" for name in sorted(("north", "south"), key=first.__ne__)]
    command("sites", *sites, "--out", tmp_path / "shards")
    job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "device": "cpu"}
    job |= {"model": {"name": "logreg"}, "algorithm": {"name": "fedavg"}, "local": {"lr": 0.1}}
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    for name in ("north", "south"):
        words = "predict", tmp_path / "run", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}.p.csv"
        code, _, said = asked(*words)
        apart = "decimal, factor of age" if decimals == "," else "factor of age"
        assert code
        assert (
            f"--spec is not given, and sites write their tables in different ways ({apart}); name that of"
            in said
        )
        assert asked(*words, "--spec", tmp_path / "shards" / "agreed" / f"{name}.toml")[0] == 0
    np.testing.assert_allclose(
        *(probabilities(tmp_path / f"{n}.p.csv") for n in ("north", "south")), rtol=1e-4
    )
