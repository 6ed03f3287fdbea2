"""The cells of a paper's table as runs: cut the data, train what is not done, read what came of it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from mpifl.cli.sweep.running import LOST, run_task
from mpifl.cli.sweep.settings_grid import GridRun, readable
from mpifl.common.errors import InputError
from mpifl.data.shards.vertical_spec import read_any
from mpifl.report.runs.run_summary import Summary
from mpifl.run.job.job import read_job

ROOT = Path(__file__).resolve().parents[2]
QUICK_ROUNDS = 2
QUICK = ("evaluate.every=1", "checkpoint.every=10", "local.compile=false", f"rounds={QUICK_ROUNDS}")
UNLESS_GIVEN = ("option", "valid", "test", "public")
"""Of the flags of `data_prep partition`, those that `federation.json` names only if they were given."""
BY_ROWS = "--no-stratify"
"""The one flag without a value: rows are held out as they were before classes had their parts."""


@dataclass(frozen=True)
class Cut:
    """A data set in silos: the words that `data_prep partition` is given, and those of its tiny version."""

    name: str
    words: str
    quick: str

    def folder(self, seed: int, quick: bool) -> Path:
        return Path("shards", "papers", f"{self.name}{'-quick' if quick else ''}-seed{seed}")

    def source(self, seed: int, quick: bool) -> str:
        """Return the words that `data_prep partition` is given beside the seed and the folder."""
        return self.quick if quick else self.words

    def make(self, seed: int, quick: bool) -> None:
        """Cut the data, unless it has been.

        Raises:
            InputError: it has been, with other words.
        """
        out = self.folder(seed, quick)
        if out.exists():
            self._check(out, seed, quick)
        else:
            words = self.source(seed, quick).split()
            command = [
                sys.executable,
                "-m",
                "data_prep",
                "partition",
                *words,
                "--seed",
                str(seed),
                "--out",
                str(out),
            ]
            if code := subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
                raise SystemExit(code)  # it has said why

    def _check(self, out: Path, seed: int, quick: bool) -> None:
        """Hold what `federation.json` says of a cut against the words."""
        source, *flags = (self.quick if quick else self.words).split()
        by_rows = [flag for flag in flags if flag == BY_ROWS]
        flags = [flag for flag in flags if flag != BY_ROWS]
        asked: dict[str, list[str]] = {"source": [source], "seed": [str(seed)]}
        for flag, value in zip(flags[::2], flags[1::2], strict=True):
            asked.setdefault(flag.removeprefix("--").replace("-", "_"), []).append(value)
        spec = read_any(out)
        said = {**spec.scheme, "scheme": spec.scheme["name"], "silos": len(spec.silos), "seed": spec.seed,
                "source": spec.source["name"], "option": spec.source.get("options", [])}  # fmt: skip
        keys = dict.fromkeys([*asked, *UNLESS_GIVEN, *(["stratify"] if by_rows else [])])
        if different := [key for key in keys if _plain(asked.get(key)) != _plain(said.get(key))]:
            raise InputError(
                f"{out}: was cut otherwise, by another {', '.join(different)}; remove it to cut it again"
            )


def _plain(given: object) -> list[object]:
    """Return what a flag was given as a list that can be compared: 0.10 as 0.1, nothing as nothing."""
    values = given if isinstance(given, list) else [] if given is None else [given]
    return [float(value) if re.fullmatch(r"[\d.]+", str(value)) else value for value in values]


@dataclass(frozen=True)
class Cell:
    """A cell: what the paper says, and the runs that answer it, one for each of `tried` and of `seeds`."""

    name: str
    paper: str
    cut: Cut
    settings: tuple[str, ...] = ()
    rounds: int | None = None
    """The most rounds, if not the job's."""
    tried: tuple[tuple[str, ...], ...] = ((),)
    """Settings among which the best is taken, as the papers do."""
    seeds: tuple[int, ...] = (7,)
    of_seeds: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Settings of the runs of one seed alone."""
    quick: tuple[str, ...] = ()
    """Settings of its tiny version."""


@dataclass(frozen=True)
class Table:
    """A table: its job, its cells, and how the runs of one become figures."""

    title: str
    job: str
    cells: tuple[Cell, ...]
    headings: tuple[str, ...]
    figures: Callable[[list[Summary]], tuple[str, ...]]
    """Of the runs over the seeds."""
    cost: Callable[[Summary], float | None] = lambda run: None
    """What is least in the best run: the rounds to what the table asks for,
    where it asks for such, or the errors."""
    quick: tuple[str, ...] = ()
    published: str = "the paper"
    """What heads the figures that stand beside."""

    @property
    def path(self) -> Path:
        return ROOT / "jobs" / "papers" / self.job


@dataclass(frozen=True)
class Reproduction:
    """A table's runs in a folder."""

    table: Table
    out: Path
    quick: bool = False
    ranks: int = 1
    retry: bool = False

    def train(self, cell: Cell) -> int:
        """Train what of a cell is not done; return 0, or the exit code of a run that ended otherwise.

        A run that was lost (here: diverged) counts as done, unless `retry`.
        Where fewest rounds win, a later one of `tried` goes on for as many as the best so far took, no
        longer.

        Raises:
            InputError: the data were cut otherwise, or a run was made by other settings than the cell has
                now.
        """
        limit = cell.rounds
        for settings in self._tried(cell):
            for seed in self._seeds(cell):
                cell.cut.make(seed, self.quick)
                if why := self._why_other(cell, settings, seed):
                    raise InputError(f"{why}; remove it, or reproduce into another folder by --out")
                task = self._task(cell, settings, seed, limit)
                over = task.state == "done" or (task.state == "lost" and not self.retry)
                # each run is one of its own: what another has spent of a privacy budget does not count
                with site((self.out / "sites" / task.run.name).absolute()):
                    code = 0 if over else run_task(task, self.table.path, self.ranks)
                if code not in (0, LOST):
                    print(f"{task.run}: exit code {code}; {task.log} says why", file=sys.stderr)
                    return code
                if limit and (run := task.summary()) and (took := self.table.cost(run)) is not None:
                    limit = min(limit, math.ceil(took))
        return 0

    def row(self, cell: Cell) -> list[str]:
        """Return a line of the table, from what runs there are."""
        done = list(self._done(cell))
        if not done:
            blank = [""] * (len(self.table.headings) - 1)
            return [
                cell.name,
                "lost" if self._lost(cell) else "other settings" if any(self._others(cell)) else "not run",
                *blank,
                cell.paper or "–",
                *([""] * len(self._search_headings)),
                "",
                "",
            ]
        settings, runs = min(done, key=lambda pair: self._mean_cost(pair[1]))
        chosen = {
            "of that": self._ratio(cell, runs),
            "chosen": ", ".join(s.partition(".")[2] for s in settings),
        }
        searched = [chosen[heading] for heading in self._search_headings]
        rounds = f"{mean(run.rounds for run in runs):.0f}"
        seconds = f"{sum(run.total('seconds') for run in runs):.0f}"
        return [cell.name, *self.table.figures(runs), cell.paper or "–", *searched, rounds, seconds]

    def markdown(self) -> str:
        """Return the whole table; cells without runs say so."""
        head = ["", *self.table.headings, self.table.published, *self._search_headings, "rounds", "seconds"]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *(self.row(cell) for cell in self.table.cells)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    @property
    def _search_headings(self) -> list[str]:
        searched = any(any(cell.tried) for cell in self.table.cells)
        in_rounds = any(cell.paper.isdecimal() for cell in self.table.cells)
        return [*(["of that"] if searched and in_rounds else []), *(["chosen"] if searched else [])]

    def _done(self, cell: Cell) -> Iterator[tuple[tuple[str, ...], list[Summary]]]:
        """Yield the settings of which every seed has been run, and its runs."""
        for settings in self._tried(cell):
            own = [seed for seed in self._seeds(cell) if not self._why_other(cell, settings, seed)]
            found = [self._task(cell, settings, seed, cell.rounds).summary() for seed in own]
            runs = [run for run in found if run is not None and run.finished]
            if len(runs) == len(self._seeds(cell)):
                yield settings, runs

    def _others(self, cell: Cell) -> Iterator[str | None]:
        """Yield of each run of a cell why it is not the cell's."""
        return (
            self._why_other(cell, tried, seed) for tried in self._tried(cell) for seed in self._seeds(cell)
        )

    def _why_other(self, cell: Cell, tried: tuple[str, ...], seed: int) -> str | None:
        """Return the run folder and why its run is not the cell's:
        settings that were changed since, other data."""
        task = self._task(cell, tried, seed, cell.rounds)
        why = task.of_another(readable(task.job.shards))
        return why and f"{task.run}: {why}"

    def _lost(self, cell: Cell) -> bool:
        """Whether every setting of a cell was lost with some seed."""
        seeds = self._seeds(cell)
        each = (
            [self._task(cell, tried, seed, cell.rounds).state for seed in seeds]
            for tried in self._tried(cell)
        )
        return all("lost" in states for states in each) and not any(self._others(cell))

    def _ratio(self, cell: Cell, runs: list[Summary]) -> str:
        cost = self._mean_cost(runs)
        return f"{cost / int(cell.paper):.2f}" if cell.paper.isdecimal() and math.isfinite(cost) else ""

    def _mean_cost(self, runs: list[Summary]) -> float:
        costs = [self.table.cost(run) for run in runs]
        return mean(math.inf if cost is None else cost for cost in costs)

    def _task(self, cell: Cell, tried: tuple[str, ...], seed: int, limit: int | None) -> GridRun:
        name = re.sub(r"[^\w.,=-]+", "", "_".join([cell.name, *tried, f"seed{seed}"]))
        own = (f"shards={cell.cut.folder(seed, self.quick)}", f"seed={seed}")
        settings = [*cell.settings, *tried, *cell.of_seeds.get(seed, ()), *own]
        settings += [f"rounds={limit}"] if limit else []
        settings += [*self.table.quick, *cell.quick, *QUICK] if self.quick else []
        last = tuple({setting.partition("=")[0]: setting for setting in settings}.values())
        return GridRun(0, name, self.out / name, last, read_job(self.table.path, last))

    def _tried(self, cell: Cell) -> tuple[tuple[str, ...], ...]:
        return cell.tried[:1] if self.quick else cell.tried

    def _seeds(self, cell: Cell) -> tuple[int, ...]:
        return cell.seeds[:1] if self.quick else cell.seeds


@contextlib.contextmanager
def site(folder: Path) -> Iterator[None]:
    """Have the programs that are started meanwhile keep their site's folder there."""
    before = os.environ.get("MPIFL_SITE")
    os.environ["MPIFL_SITE"] = str(folder)
    try:
        yield
    finally:
        del os.environ["MPIFL_SITE"]
        os.environ.update({} if before is None else {"MPIFL_SITE": before})


def use_this_tree() -> None:
    """Have the programs that are started run the tree that this file stands in, whatever is installed."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
