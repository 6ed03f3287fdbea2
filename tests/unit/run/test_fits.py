"""The tables of what goes with what, held against the models of a job and against what `check_job` says."""

from __future__ import annotations

import re
import typing
from typing import Any

import pytest
from pydantic import BaseModel
from unit.fits import JOBS, KEYS, WAYS, Tables, merged

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.common import InputError
from mpifl.run.job import fits, outline
from mpifl.run.job.fits import FITS, IN_EFFECT
from mpifl.run.job.job import _build_algorithm, check_job
from mpifl.run.job.outline import Outline
from mpifl.silo.steps import LOCAL, LocalTraining
from mpifl.wings.sites.what_fits import SITES
from scripts.fits import PAGE, page

ELSEWHERE = {"algorithm", "task", "server_optimizer"}
"""Tables of which `run/job/job_checks.py` says what goes with them."""
BY_ALGORITHM = {"privacy", "aggregation", "data", "security", "clock"}
"""Tables of which each algorithm says whether they go with it."""


LOCAL_KEYS = {f"local.{key}" for key in LocalTraining.model_fields}


def table_of(annotation: Any) -> type[BaseModel] | None:
    kinds = (annotation, *typing.get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def keys_of_a_job() -> set[str]:
    tables = {name: table_of(field.annotation) for name, field in Outline.model_fields.items()}
    return {*tables} | {
        f"{name}.{key}" for name, table in tables.items() if table is not None for key in table.model_fields
    }


def test_each_key_has_a_row_and_each_row_a_cell_for_each_way() -> None:
    for way, cells in LOCAL.cells.items():
        assert {*cells} == {*LocalTraining.model_fields}, way
    keys = keys_of_a_job()
    for way, cells in FITS.cells.items():
        assert {*cells} == (keys if way in LOCAL.cells else keys - LOCAL_KEYS), way
    assert {*JOBS} == keys


def test_every_key_of_a_job_has_a_row_over_sites_or_is_refused_by_name() -> None:
    """`[local]` is the same there; a table that is refused needs no rows of its keys."""
    refused = {key for _, key in SITES.why}
    needed = {key for key in keys_of_a_job() if not {key, key.partition(".")[0]} & refused}
    needed = {key for key in needed if not key.startswith("local.")}
    cells = SITES.cells["sites"].keys()
    assert not needed - cells, "give it a row in mpifl/wings/sites/what_fits.py"
    assert not cells - keys_of_a_job(), "no job has this key"


def test_each_way_is_a_column_and_each_text_belongs_to_a_cell_that_refuses() -> None:
    of_algorithms = {way for kind in ALGORITHMS.values() for way in kind.ways}
    assert {*FITS.cells} == {*IN_EFFECT} | {"asynchronous"}
    assert of_algorithms <= {*LOCAL.cells}
    assert "asynchronous" in of_algorithms
    for table in (LOCAL, FITS):
        for way, key in table.why:
            assert table.cells[way][key] not in ("+", "=", "."), (way, key)


def names_in(job: Tables) -> set[str]:
    """Return the tables and keys that a job gives."""
    tables = {name: value for name, value in job.items() if isinstance(value, dict)}
    return {*job} | {f"{name}.{key}" for name, table in tables.items() for key in table}


def test_each_cell_that_refuses_has_its_line_or_that_of_a_key_it_needs() -> None:
    whys = {(way, f"local.{key}") for way, key in LOCAL.why} | {*FITS.why}
    samples = JOBS | {f"local.{key}": [{"local": one} for one in given] for key, given in KEYS.items()}
    lacking = []
    for way in {*LOCAL.cells, *FITS.cells}:
        cells = {f"local.{key}": cell for key, cell in LOCAL.cells.get(way, {}).items()}
        cells |= FITS.cells.get(way, {})
        refusing = {key for key, cell in cells.items() if cell[0] not in "+=~" and cell != "."}
        alike = ways_of(merged(WAYS[way])) if way in WAYS else {way}  # a sum is of fedsgd alone
        for key in refusing:
            needed = [refusing & (names_in(one) | {key}) for one in samples[key]]
            if not all(any((of, one) in whys for of in alike | {way} for one in keys) for keys in needed):
                lacking.append((way, key))
    assert not lacking, "write its line below the table: what is wrong, and what would do"


def said(job: Tables) -> tuple[str, str]:
    """Return the refusal of a job, and the lines of keys that are of no use."""
    try:
        checked = check_job(job, "job")
    except InputError as error:
        return str(error).removeprefix("job: "), ""
    return "", " ".join(checked.idle(_build_algorithm(checked, "job")))


def ways_of(job: Tables) -> set[str]:
    """Return the ways that a job asks for."""
    checked = check_job(job, "job")
    asked = {way for way, is_asked in IN_EFFECT.items() if is_asked(checked)}
    return asked | {*_build_algorithm(checked, "job").ways}


def outcomes(way: str, job: Tables) -> dict[str, str]:
    """Return what the tables say of all keys that a job gives."""
    found = {}
    for name, value in job.items():
        kind = table_of(Outline.model_fields[name].annotation)
        given = {f"{name}.": (kind, value)} if kind else {}
        for prefix, (model, keys) in {"": (Outline, {name: value}), **given}.items():
            usual = {key: field.default for key, field in model.model_fields.items()}
            fits, where = (LOCAL, "") if prefix == "local." else (FITS, prefix)
            for key, one in keys.items() if way in fits.cells else ():
                if key in usual:  # a model takes arguments beside
                    found[prefix + key] = fits.outcome(way, where + key, one, usual[key])
    return found


@pytest.mark.parametrize("way", WAYS)
def test_each_cell_says_what_becomes_of_its_key(way: str) -> None:
    count, whys = 0, {**{(of, f"local.{key}"): why for (of, key), why in LOCAL.why.items()}, **FITS.why}
    for key, samples in JOBS.items():
        for given in samples:
            told = {*WAYS[way]} | (BY_ALGORITHM if "algorithm" in WAYS[way] else set())
            if ({*given} & told) - {"local", *(["cohort"] if way == "late" else [])} or key in ELSEWHERE:
                continue  # it would ask for another way
            if key.startswith("cohort.late") and "algorithm" in told:
                continue  # `job_checks.py` says with which algorithms a sum may be late
            job = merged(WAYS[way], given)
            ways = ways_of(merged(WAYS[way])) | ways_of(merged(given))
            found = {(of, one): what for of in ways for one, what in outcomes(of, job).items()}
            refused, idle = said(job)
            refusing = [pair for pair, what in found.items() if what == "-"]
            assert bool(refused) is bool(refusing), (given, refused, refusing)
            if refused:
                texts = [whys[pair] for pair in refusing if pair in whys]
                assert any(re.search(pattern(text), refused) for text in texts), (given, refused)
            else:
                ignores = ALGORITHMS[job.get("algorithm", {}).get("name", "fedavg")].ignores
                in_sum = {"fedsgd"} if "sum" in ways else set()  # which draws a batch there
                ignores = ignores - LOCAL_KEYS if given != {"cohort": {"weights": "examples"}} else set()
                vain = "." in {found.get((of, key)) for of in ways - in_sum} or key in ignores
                assert (key in idle) is vain, (given, idle)
            count += 1
    assert count > 60


def pattern(text: str) -> str:
    """Return what a text is like with any values in it."""
    return re.sub(r"\\{.*?\\}", ".*", re.escape(text))


def test_a_new_key_without_a_row_is_refused_in_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {key: cell for key, cell in FITS.cells["usual"].items() if key != "checkpoint.keep"}
    monkeypatch.setitem(FITS.cells, "usual", without)
    FITS._narrow.cache_clear()
    line = "job: nobody has said that the way 'usual' honours checkpoint.keep = 2; leave one of them out"
    with pytest.raises(InputError) as refused:
        check_job(merged({"checkpoint": {"keep": 2}}), "job")
    assert str(refused.value) == line
    assert said(merged()) == ("", "")
    FITS._narrow.cache_clear()


@pytest.mark.parametrize("way", ["private", "silo", "sums", "masks", "split", "rule", "batch_silos"])
def test_a_key_without_a_cell_is_refused_on_that_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {key: cell for key, cell in FITS.cells[way].items() if key != "checkpoint.keep"}
    monkeypatch.setitem(FITS.cells, way, cells)
    FITS._narrow.cache_clear()
    job = merged(WAYS[way], {"checkpoint": {"keep": 2}})
    assert said(job)[0].startswith(f"nobody has said that the way '{way}' honours checkpoint.keep = 2")
    assert said(merged(WAYS[way])) == ("", "")
    FITS._narrow.cache_clear()


def test_a_rule_is_looked_at_before_an_algorithm_is_made() -> None:
    """A job is looked at where torch is not, too."""
    with pytest.raises(ValueError, match="silos count alike"):
        outline.Outline.model_validate(
            merged({"aggregation": {"rule": "median"}, "cohort": {"weights": "examples"}})
        )
    assert fits.why_not("rule", Outline.model_validate(merged())) == ""


def test_the_page_of_what_goes_with_what_is_written_from_the_tables() -> None:
    assert PAGE.read_text() == page(), "run: python -m scripts.fits"
