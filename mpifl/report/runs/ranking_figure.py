"""By which figure runs are judged: whose rows it is of and which model's, the same for all of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mpifl.common.machine import runnable
from mpifl.report.observers import HELD_OUT
from mpifl.report.runs import chance
from mpifl.report.runs.run_summary import VALID_ROWS, Record, Summary
from mpifl.report.runs.seeds import Group
from mpifl.report.runs.silo_data import rows_in, trained_on
from mpifl.report.runs.units import listed
from mpifl.run.folder import number, read_environment

SERVER, TEST, VALID = "the server's test set", HELD_OUT, "the silos' validation rows"
"""Whose rows a figure is of. With `[evaluate] split = "valid"` the first two are scored once, at the end."""
EVALUATED = {SERVER: (), TEST: ("--silos",), VALID: ("--silos", "--split", "valid")}
"""What `mpifl evaluate` takes to score a model on these rows."""


@dataclass(frozen=True)
class Judged:
    """What runs are judged by.

    Attributes:
        rows: SERVER, TEST or VALID.
        of: The runs that have such a figure.
        without: Those that have none.
        own: Whether silos of some are scored with models of their own.
        apart: Whether the rows of some are others.
        diverged: Settings of which a run has diverged, by name; they are not ranked.
        apart_seeds: Settings that have too few seeds, and so shards, in common with the others; nor are they.
        some_seeds: Whether settings are ranked by fewer seeds than they have, those that all of them have.
    """

    rows: str
    of: Sequence[Summary]
    without: Sequence[Summary] = ()
    own: bool = False
    apart: bool = False
    diverged: Sequence[str] = ()
    apart_seeds: Sequence[str] = ()
    some_seeds: bool = False

    def value(self, run: Summary) -> float | None:
        """Return a run's figure."""
        return dict(_offered(run)).get(self.rows)

    @property
    def silo_rows(self) -> str:
        """Which rows of silos their figures beside it are of, the same for all runs; "" where that is plain.

        These are test rows, unless the runs are judged by validation rows, or some have no figures of others.
        """
        kinds = {run.silo_rows for run in self.of}
        return VALID_ROWS if self.rows == VALID or VALID_ROWS in kinds else max(kinds, default="")

    @cached_property
    def examples(self) -> int:
        """On how many rows a run is judged; 0 where its shard folder does not tell."""
        run = self.of[0]
        split = "valid" if self.rows == VALID else "test" if run.by_valid else None
        return rows_in(trained_on(run, read_environment(run.run)), self.rows == SERVER, split)

    @cached_property
    def counted(self) -> bool:
        """Whether it is known what chance makes of these rows."""
        return not self.apart and chance.counts(self.of[0].metric) and self.examples > 0

    def interval(self, value: float) -> tuple[float, float] | None:
        """Return where a figure lies with 95% by these rows, if that is known."""
        return chance.interval(value, self.examples) if self.counted else None

    def difference(self, one: float, other: float) -> chance.Difference | None:
        """Return the difference of two figures by these rows, if that is known."""
        return chance.by_rows(one, other, self.examples) if self.counted else None

    def left_out(self) -> list[str]:
        """Say which runs and settings are not ranked, and why."""
        without, said = [str(run.run) for run in self.without], list[str]()
        if without:
            words = ["mpifl", "evaluate", without[0], *EVALUATED[self.rows]]
            gives = f"{runnable(shlex.join(words))} scores a model so"
            said.append(f"These runs lack this figure and are not ranked: {listed(without)}; {gives}.")
        if self.diverged:
            many = "these settings have" if len(self.diverged) > 1 else "this setting has"
            said.append(f"Not ranked, since {many} a run that diverged: {listed(self.diverged)}.")
        if self.apart_seeds:
            why = "which have shards of their own, in common with the others"
            said.append(f"Not ranked, since fewer than two seeds, {why}: {listed(self.apart_seeds)}.")
        return said

    def told_of_silos(self, run: Summary) -> Record:
        """Return what tells of a run's silos, of these rows."""
        return run.of_model if self.silo_rows == VALID_ROWS else run.of_silos

    def curve(self) -> str:
        """Return the key of rounds whose curve is drawn, of validation rows where the end has others."""
        metric, told = self.of[0].metric, [record for run in self.of for record in run.records]
        held = [metric.pooled, metric.weighted]
        order = [metric.test, *held] if self.rows == SERVER else [*held, metric.test]
        return next(
            (key for key in order if any(number(record, key) is not None for record in told)), order[0]
        )

    @property
    def where(self) -> str:
        """Whose rows the figure is of, in words: a split network's test rows lie at silos."""
        split = any("split" in run.job for run in self.of)
        return "the silos' test rows" if split and self.rows == SERVER else self.rows

    def words(self) -> str:
        """Say what the figure is of."""
        rounds, kept = {run.of_model["round"] for run in self.of}, [run.model_round for run in self.of]
        which = "best" if all(kept) else "best or last scored" if any(kept) else "last scored"
        last = f"round {rounds.pop():,}" if len(rounds) == 1 else f"each run's {which} round"
        said = f"{self.of[0].metric.label} on {self.where}, after {last}"
        if not self.own:
            return said
        model = "the server's model" if self.rows == SERVER else "the model of each silo where it has its own"
        return f"{said}, by {model}"


def of_baseline(summaries: Sequence[Summary]) -> str:
    """Say where the federated and the pooled model of one baseline are compared; "" of other runs."""
    runs = [one.run for one in summaries]
    folders = {run.absolute().parent for run in runs}
    of_one = sorted(run.name for run in runs) == ["federated", "pooled"] and len(folders) == 1
    if not of_one or not (runs[0].absolute().parent / "baseline.json").is_file():
        return ""
    page = runs[0].parent / "baseline.html"
    return f"Both are of one baseline, which compares them on the same test rows: {page}."


def name_of(test: chance.Difference) -> str:
    """Return what a test is called in a table."""
    return "paired" if test.paired else "Welch"


def judged_by_all(found: Sequence[Group]) -> Judged | None:
    """Return what groups of runs, all of one main metric, are judged by; None if none was scored.

    It is a figure that all have: of test rows before validation rows. Where silos are scored with models of
    their own, the silos' rows come first: the server's test set would judge a model that they do not use. A
    search is judged by the validation rows, if its rounds are scored on these.
    """
    runs = [run for group in found for run in group.runs]
    offered = {run.run: dict(_offered(run)) for run in runs}
    own = any(run.own_models for run in runs)
    order = (TEST, VALID, SERVER) if own else (SERVER, TEST, VALID)
    if all(run.search and run.by_valid for run in runs):
        order = (VALID, TEST, SERVER)
    counts = {rows: sum(rows in each for each in offered.values()) for rows in order}
    if not (most := max(counts.values(), default=0)):
        return None
    rows = next(rows for rows in order if counts[rows] == most)
    parts: tuple[list[Summary], list[Summary]] = ([], [])
    for run in runs:
        parts[rows not in offered[run.run]].append(run)
    key, scored = "test" if rows == SERVER else "sha256", {run.run for run in parts[0]}
    data = {
        frozenset(run.data.get(key) for run in group.runs if run.run in scored) - {None} for group in found
    }
    return Judged(rows, *parts, own, apart=len(data - {frozenset()}) > 1)


def _offered(run: Summary) -> Iterator[tuple[str, float]]:
    """Yield the figures by which a run could be judged, each kind of rows once."""
    metric, final, last = run.metric, run.at_end, run.of_model
    at_test = final if final or run.by_valid else last
    for rows, record, keys in (
        (SERVER, at_test, (metric.test,)),
        (TEST, at_test, (metric.pooled, metric.weighted)),
        (VALID, last if run.by_valid else {}, (metric.pooled, metric.weighted)),
    ):
        values = (number(record, key) for key in keys)
        if (value := next((one for one in values if one is not None), None)) is not None:
            yield rows, value
