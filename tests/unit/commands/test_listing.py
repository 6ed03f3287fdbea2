"""What may be named: each name of each registry with a line of its own docstring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT
from typer.testing import CliRunner

from data_prep.schemes import SCHEMES
from data_prep.sources import SOURCES
from mpifl.cli import app
from mpifl.cli.job_tools import examples, jobs, jobs_folder, schema, summary
from mpifl.cli.listing import _kinds
from mpifl.common import InputError
from mpifl.learning.tasks import TASKS

KINDS = _kinds()


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["list", *arguments], catch_exceptions=False).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_each_name_has_a_sentence_that_says_what_it_is(kind: str) -> None:
    said = {item.name: item.what for item in KINDS[kind].items()}
    assert said
    assert {name: what for name, what in said.items() if not what.endswith((".", ";"))} == {}
    assert {name: what for name, what in said.items() if not 10 <= len(what) <= 240} == {}


def test_the_lists_are_what_the_schema_of_the_job_file_takes() -> None:
    made = schema()
    tables, listed = made["$defs"], {kind: {item.name for item in KINDS[kind].items()} for kind in KINDS}

    def named(table: str) -> set[str]:
        return {name.partition(".")[2] for name in tables if name.startswith(f"{table}.")}

    def values(table: str, key: str) -> set[str]:
        entry = tables[table]["properties"][key]
        return {one for part in [entry, *entry.get("anyOf", ())] for one in part.get("enum", ())}

    assert listed["algorithms"] == named("algorithm")
    assert listed["server-optimizers"] == named("server_optimizer")
    assert listed["tasks"] == named("task")
    assert listed["models"] == values("Model", "name")
    assert listed["rules"] == values("AggregationSettings", "rule")
    assert listed["selections"] == values("CohortTable", "select")
    assert listed["optimizers"] == values("LocalTraining", "optimizer")
    assert listed["codecs"] == values("CompressionSettings", "upload") - {"none"}
    for task in TASKS:
        of_it = {item.name for item in KINDS["metrics"].items() if task in item.of}
        keys = tables[f"task.{task}"]["properties"]
        assert of_it == set(keys["metrics"]["anyOf"][0]["items"]["anyOf"][0]["enum"])
        assert {one.name for one in KINDS["losses"].items() if task in one.of} == set(
            keys["loss"]["anyOf"][0]["enum"]
        )


def test_the_keys_of_an_algorithm_are_listed_as_a_job_writes_them() -> None:
    assert {item.name: item.keys for item in KINDS["algorithms"].items()}["ditto"] == ("lambda",)


def test_scripts_read_json() -> None:
    assert [one["name"] for one in json.loads(run("schemes", "--json"))] == list(SCHEMES)
    assert [one["name"] for one in json.loads(run("sources", "--json"))] == list(SOURCES)
    assert json.loads(run("--json")).keys() == KINDS.keys()
    metrics = {one["name"]: one for one in json.loads(run("metrics", "--json"))}
    assert metrics["rmse"] == {
        "name": "rmse",
        "what": "The root of the mean squared error.",
        "of": ["regression", "counts"],
        "better": "lower",
    }


def test_people_read_a_line_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = run("rules").splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [item.name for item in KINDS["rules"].items()]
    assert lines[-1] == "named by [aggregation] rule; or your own, package.module:name"
    assert {line.split()[0] for line in run().splitlines()[1:-1]} == set(KINDS)


@pytest.mark.parametrize("kind", ["", *KINDS, "schemes", "sources"])
def test_on_80_columns_nothing_is_cut_into_narrow_columns(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*[kind] * bool(kind)).splitlines()
    assert max(map(len, lines[:-1])) <= 80
    begun = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    assert set(begun) <= {0, 4}, "a cell of a table goes on in the line below"


def test_jobs_are_told_in_whole_sentences_and_where_they_lie() -> None:
    for name, what in jobs().items():
        assert what.count("(") == what.count(")"), f"{name}: {what}"
    assert jobs()["synthetic-logreg"].startswith("synthetic(1, 1) of Li et al. 2020 (FedProx, sec. 5.1")
    assert run("jobs").splitlines()[-1] == f"named by mpifl train NAME; their files lie in {jobs_folder()}"


def test_a_kind_that_there_is_not_is_told_with_those_there_are() -> None:
    with pytest.raises(
        InputError,
        match=r"mpifl list algorithm: no such kind; did you mean 'algorithms'\? there are algorithms, models",
    ):
        run("algorithm")


def test_a_docstring_becomes_what_a_thing_is() -> None:
    assert summary("Return the mean\nof all.\n\nMore.") == "The mean of all."
    assert summary("w += lr * delta.") == "w += lr * delta."


def copied(*arguments: str) -> str:
    return CliRunner().invoke(app, ["examples", *arguments], catch_exceptions=False).stdout


def test_examples_are_listed_and_copied_with_all_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {page.parent.name for page in ROOT.glob("docs/examples/*/README.md")}
    assert {*examples()} == folders
    assert folders <= {line.split()[0] for line in copied().splitlines() if line}
    for name in folders:
        told = copied(name)
        assert told.endswith(f"bash {name}/run.sh\n")
        there = {path.name for path in (ROOT / "docs/examples" / name).iterdir() if path.is_file()}
        assert {path.name for path in Path(name).iterdir()} == there
    assert "mine/run.sh" in copied("lora", "mine")


def test_an_example_that_cannot_be_copied_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copied("lora")
    Path("file").touch()
    for arguments, line in {
        ("clinic",): "mpifl examples clinic: no such example; did you mean 'clinics'?",
        ("lora",): "lora: is there already; name another folder: mpifl examples lora FOLDER",
        ("lora", "file/lora"): "file/lora: cannot be written (Not a directory)",
    }.items():
        with pytest.raises(InputError) as caught:
            copied(*arguments)
        assert str(caught.value).startswith(line)
