"""The job file described: each key has a meaning, the page follows the models,
the schema takes what a job takes."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from mpifl.algorithms import FedAvg
from mpifl.cli import app
from mpifl.cli.job_tools.job_schema import DIALECT, meanings, schema
from mpifl.cli.job_tools.keys import schema_text, tables
from mpifl.common import InputError, read_toml
from scripts.job_keys import NAMES, PAGE, SCHEMA, names_file, page, schema_file

ROOT = Path(__file__).parents[3]
JOBS = sorted((ROOT / "jobs").rglob("*.toml"))
LEAST = {"name": "a", "shards": "s", "rounds": 1, "model": {"name": "2nn"}}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    made = json.loads(json.dumps(schema()))
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_every_key_has_a_meaning_in_a_sentence() -> None:
    said = {(table, row.name): row.meaning for table, rows in tables().items() for row in rows}
    assert [key for key, meaning in said.items() if not meaning.endswith(".")] == []
    assert [key for key, meaning in said.items() if len(meaning.split()) > 30] == []
    assert [row.name for row in tables()[""] if row.values == "table"] == [], (
        "name its kinds in job_schema.NAMED"
    )
    assert {"", "local", "cohort", "algorithm", "compression", "tracking"} <= set(tables())


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m scripts.job_keys"


def test_the_schema_beside_the_jobs_is_what_the_models_say() -> None:
    assert SCHEMA.read_text() == schema_file(), "run: python -m scripts.job_keys"
    assert schema_text() == schema_file()


def test_the_names_beside_the_jobs_are_what_the_registries_say() -> None:
    assert NAMES.read_text() == names_file(), "run: python -m scripts.job_keys"


def test_what_the_user_wrote_below_a_field_is_its_meaning() -> None:
    class Mine(FedAvg):
        """Another one."""

        mu: float = 1.0
        """How strong
        the pull is."""
        bare: int = 3

    assert meanings(Mine)["mu"] == "How strong the pull is."
    assert "bare" not in meanings(Mine)


def test_the_schema_names_its_dialect() -> None:
    assert schema()["$schema"] == DIALECT


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_schema_takes_the_jobs_of_the_checkout(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    validator.validate(read_toml(path))
    named = path.read_text().splitlines()[0].removeprefix("#:schema ")
    assert (path.parent / named).resolve() == SCHEMA, "its first line leads editors to the schema"


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("", "seed", -1),
        ("", "nosuch", 1),
        ("local", "lr", 0),
        ("local", "optimizer", "adamm"),
        ("cohort", "fraction", 1.5),
        ("algorithm", "name", "fedprx"),
        ("algorithm", "mu", 0.1),
        ("model", "name", "nosuch"),
        ("aggregation", "rule", "best"),
        ("server_optimizer", "tau", 0.1),
    ],
)
def test_the_schema_refuses_what_a_job_refuses(
    table: str, key: str, value: object, validator: jsonschema.Draft202012Validator
) -> None:
    job = copy.deepcopy(LEAST) | ({} if table in ("", "model") else {table: {"name": "fedavg"}})
    if table in ("local", "cohort", "aggregation"):
        job[table] = {}
    if table == "server_optimizer":
        job[table] = {"name": "sgd"}
    validator.validate(job)
    (job[table] if table else job)[key] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(job)


def test_the_schema_takes_the_users_own(validator: jsonschema.Draft202012Validator) -> None:
    own = {"algorithm": {"name": "mine:Mine", "mu": 3}, "model": {"name": "mine:net", "depth": 4}}
    validator.validate(LEAST | own)


def test_the_command_prints_a_table_or_says_which_there_are() -> None:
    printed = CliRunner().invoke(app, ["keys", "cohort"]).stdout
    assert "quorum" in printed
    assert "lr_decay" not in printed
    everything = CliRunner().invoke(app, ["keys"]).stdout
    assert "quorum" in everything
    assert "lr_decay" in everything
    with pytest.raises(InputError, match=r"no such table; there are .*algorithm, local"):
        CliRunner().invoke(app, ["keys", "nosuch"], catch_exceptions=False)


@pytest.mark.parametrize("table", tables())
def test_on_80_columns_a_key_is_followed_by_what_it_means(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["keys", *[table] * bool(table)]).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not {*"│┃━"} & {*"".join(lines)}
    for row in tables()[table]:
        at = lines.index(row.name)
        assert lines[at + 1].startswith(f"    {(row.of and 'of ') or row.values.split()[0]}")


def test_on_a_wide_terminal_keys_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert "┃ key" in CliRunner().invoke(app, ["keys", "local"]).stdout


def test_the_schema_is_printed_or_written(tmp_path: Path) -> None:
    assert json.loads(CliRunner().invoke(app, ["schema"]).stdout)["$schema"] == DIALECT
    assert CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "s.json")]).stdout == ""
    assert (tmp_path / "s.json").read_text() == schema_text()
    with pytest.raises(InputError, match=r"--out .*none/s.json: cannot be written \(No such file"):
        CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "none/s.json")], catch_exceptions=False)
