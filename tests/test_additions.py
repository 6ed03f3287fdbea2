"""What CONTRIBUTING promises of an addition: each name of a catalogue has its test and its row on a page.

Other files ask for the rest: `unit/tasks/test_degenerate.py` for a formula of each metric, and for each key
of a job `unit/silo/test_fits.py`, `unit/run/test_fits.py` and `unit/tools/test_keys.py`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scenarios
import torch
import vertical
from reference import (
    test_cox,
    test_dptable,
    test_kaplanmeier,
    test_newton,
    test_oracles,
    test_tableone,
    test_vertical,
)
from unit.aggregation.test_weights import centered_clipping, fltrust, gram, krum_scores, weiszfeld

from mpifl.algorithms import ALGORITHMS
from mpifl.cli.job_tools.job_schema import meanings
from mpifl.learning.tasks import TASKS
from mpifl.run.job.tables import AggregationSettings
from mpifl.wings.robust import RULES, built
from mpifl.wings.robust.column_rules import Rule

DOCS = Path(__file__).parents[1] / "docs"


def rows_of(page: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table whose heading line begins so."""
    lines = (DOCS / page).read_text().splitlines()
    start = next(nth for nth, line in enumerate(lines) if line.startswith(heading))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def named(cell: str) -> set[str]:
    """Return the names in a cell, without their quotes."""
    return {name.strip('"') for name in re.findall(r"`([^`]+)`", cell)}


def test_each_metric_has_a_row_that_says_its_tasks_and_arguments() -> None:
    said: dict[str, dict[str, set[str]]] = {task: {} for task in TASKS}
    for names, of, arguments in rows_of("reference/tasks.md", "| metrics | of |"):
        for task in TASKS:
            if (task in of) != of.startswith("all but"):
                said[task] |= dict.fromkeys(named(names), named(arguments))
    for task, kind in TASKS.items():
        assert said[task] == {
            name: {f"{key} = {json.dumps(value)}" for key, value in entry.arguments.items()}
            for name, entry in kind.catalogue.items()
        }, f"give each metric of '{task}' its row and arguments in docs/reference/tasks.md"


def test_each_algorithm_has_a_row() -> None:
    rows = rows_of("reference/algorithms.md", "| `[algorithm] name` |")
    listed = {name for row in rows for name in named(row[0].partition(" with ")[0])}
    assert listed == {*ALGORITHMS}, "give each a row in docs/reference/algorithms.md"


def test_each_algorithm_has_its_paper_as_bibtex() -> None:
    page = (DOCS / "explanation" / "algorithms.md").read_text()
    entries = page.partition("```bibtex")[2].partition("```")[0].split("\n@")[1:]
    names = [re.search(r"keywords = \{(.*?)\}", entry)[1] for entry in entries]  # type: ignore[index]
    lacking = {*ALGORITHMS} - {name for of in names for name in of.split(", ")}
    assert not lacking, "put its paper into docs/explanation/algorithms.md, and its name into keywords"
    for entry in entries:
        assert re.search(r"eprint = \{\d{4}\.\d{5}\}|doi = \{10\.", entry), entry
        assert all(f"{field} = {{" in entry for field in ("title", "author", "year")), entry


def test_each_algorithm_is_held_to_an_oracle() -> None:
    tried = {
        job["algorithm"]["name"]
        for of in (
            test_vertical.JOBS,
            test_newton.JOBS,
            test_tableone.JOBS,
            test_dptable.JOBS,
            test_kaplanmeier.JOBS,
            test_cox.JOBS,
        )
        for job in (*test_oracles.JOBS.values(), *of)
    }
    assert not {*ALGORITHMS} - tried, "give it jobs in CASES of tests/reference/test_oracles.py"


def test_each_algorithm_is_trained_on_several_numbers_of_ranks() -> None:
    jobs = [*scenarios.ALGORITHMS, *vertical.JOBS]
    tried = {job["algorithm"]["name"] for job in jobs if "algorithm" in job}
    assert not {*ALGORITHMS} - tried, "give it a job in ALGORITHMS of tests/mpi/scenarios.py"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_docstring_of_each_algorithm_names_a_paper_with_its_year(name: str) -> None:
    assert re.search(r"\b(19|20)\d\d\b", ALGORITHMS[name].__doc__ or ""), "name its paper: (Author year)"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_that_a_rule_may_combine_says_how_its_silos_train(name: str) -> None:
    kind = ALGORITHMS[name]
    if not (kind.needs_mean or kind.accumulated or kind.layout == "vertical"):
        assert not kind.why_unlike_fedavg().startswith("may differ"), (
            'set unlike_fedavg, "" if as the server does'
        )


ROWS = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
"""The vectors of nine silos."""
OWN = np.linspace(-1, 1, 5)
"""The server's vector, of rules that compare updates with it."""
BY_THE_PAPER = {
    "median": ({}, lambda x: np.median(x, 0)),
    "trimmed": ({"byzantine": 2}, lambda x: np.sort(x, 0)[2:-2].mean(0)),
    "krum": ({"byzantine": 2}, lambda x: x[krum_scores(x, 2).argmin()]),
    "multikrum": ({"byzantine": 2, "m": 3}, lambda x: x[krum_scores(x, 2).argsort()[:3]].mean(0)),
    "rfa": ({}, lambda x: weiszfeld(x, 1e-6, 1000)),
    "centered": ({"tau": 1.0}, lambda x: centered_clipping(x, OWN, 1.0, 1)),
    "fltrust": ({}, lambda x: fltrust(x, OWN)),
}
"""Each rule but the mean once more, as its paper has it: its keys, and a function of the vectors."""


def result_of(rule: str, keys: dict[str, Any]) -> np.ndarray:
    """Return what a rule makes of `ROWS` with the keys of a job."""
    made = built(AggregationSettings(rule=rule, **keys))
    if isinstance(made, Rule):
        return made([torch.from_numpy(row) for row in ROWS]).numpy()
    assert made.weights is not None
    vectors = np.vstack([ROWS, OWN]) if made.reference else ROWS.astype(np.float64)
    return made.weights.weights(gram(vectors), keys.get("byzantine", 0)) @ vectors


@pytest.mark.parametrize("rule", [name for name in RULES if name != "mean"])
def test_each_rule_is_what_its_paper_says(rule: str) -> None:
    assert rule in BY_THE_PAPER, "write it once more in BY_THE_PAPER, naively"
    keys, paper = BY_THE_PAPER[rule]
    np.testing.assert_allclose(result_of(rule, keys), paper(ROWS.astype(np.float64)), rtol=1e-5, atol=1e-6)
    without = {key: value for key, value in keys.items() if key != "byzantine"}
    if without == keys:
        with pytest.raises(ValueError, match=f"byzantine = 2: goes with .* not with '{rule}'"):
            AggregationSettings(rule=rule, byzantine=2, **keys)
    else:
        with pytest.raises(ValueError, match=f"rule = '{rule}' needs byzantine"):
            AggregationSettings(rule=rule, **without)


def test_each_rule_has_a_row() -> None:
    rows = rows_of("explanation/robust.md", "| `[aggregation] rule` |")
    listed = {name for row in rows for name in named(row[0].partition(",")[0])}
    assert listed == {*RULES, "module:name"}


def test_the_keys_of_the_rules_say_in_their_order_which_there_are() -> None:
    said = {key: re.findall(r"\w+", text) for key, text in meanings(AggregationSettings).items()}
    assert [word for word in said["rule"] if word in RULES] == [*RULES]
    taking = [rule for rule, (keys, _) in BY_THE_PAPER.items() if "byzantine" in keys]
    assert [word for word in said["byzantine"] if word in RULES] == taking
