"""A run folder read with open eyes: what its rounds came to, and what is to be said against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from mpifl import __version__
from mpifl.common import InputError, one_line
from mpifl.learning.metrics import ACCURACY, MetricInfo, ToldAnswers, read_answers
from mpifl.report.observers import at_end, judged, reached, stopped_early, worst_silo
from mpifl.report.runs.chance import LOSSES, names_divergence, unlearnt
from mpifl.report.runs.kept_job import (
    BYTES,
    changed_by_force,
    further,
    infos_of,
    is_round,
    metric_of,
    read_tables,
    target_of,
    trains_alone,
    unprotected,
)
from mpifl.report.runs.units import gaps
from mpifl.run.folder import number, read_environment, read_metrics, why_lost

Record = dict[str, Any]
A_RUN = "name the folder of a run (mpifl train ... --out RUN)"
PLAIN = MetricInfo(name="figure")
"""How figures are written of which nothing is known."""
TEST_ROWS, VALID_ROWS = "test rows", "validation rows"


@dataclass(frozen=True)
class Summary:
    """What a run came to; None where it cannot be told."""

    run: Path
    records: list[Record]
    job: Mapping[str, Any] = field(default_factory=dict)
    """The tables of its job.toml."""
    finished: bool = True
    stopped: str = ""
    """Where it is finished before its last round: when, why, and which round was best."""
    remarks: tuple[str, ...] = ()
    """What to know before comparing it, in a few words each."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What it was trained on, as `describe` of `run/folder` tells it."""
    code: Mapping[str, str] = field(default_factory=dict)  # sha256 by module of the user's own
    forced: tuple[str, ...] = ()
    """What of its training was changed on the way, by --force."""
    metric: MetricInfo = ACCURACY
    """The main metric: the one that it is judged by."""
    beside: tuple[MetricInfo, ...] = ()
    """The others, as far as it notes them."""
    own_models: bool = False  # whether its silos are scored with models of their own
    before: Record = field(default_factory=dict)  # how pretrained weights scored before round 1
    search: bool = False
    """Whether it is looked at as one of a search, which ranks by the rows that rounds are scored on."""
    called: str = ""  # what its setting is called, if that was asked for
    rows: int = 0  # on how many a round is judged; 0 where that is not known
    rows_of_silos: int = 0  # on how many rounds score silos, all together; likewise
    commonest: float | None = None
    """The share of the most common class in the silos' scored rows, where these could be counted; where silos
    have models of their own, each silo's class."""

    @property
    def rounds(self) -> int:
        """The rounds that it has done."""
        return int(self.records[-1]["round"])

    @property
    def diverged(self) -> bool:
        """Whether it is known to have diverged, by what is said against it."""
        return any(map(names_divergence, self.remarks))

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The rounds that it has done and that are not recorded, as (first, last); no sum has them."""
        done = [0, *(int(record["round"]) for record in self.records)]
        return [(one + 1, other - 1) for one, other in pairwise(done) if other > one + 1]

    @property
    def model_round(self) -> int | None:
        """The round of the model that it has left, if that is its best one; None if it is the last."""
        found = number(self.records[-1], "model_round")
        return None if found is None else int(found)

    @property
    def of_model(self) -> Record:
        """The round of the model that it has left, or of a run that keeps no best one the last that was
        evaluated, or else the last."""
        if (kept := self.model_round) is not None:
            return next((record for record in self.records if record["round"] == kept), {"round": kept})
        scored = (*self.metric.judged_by, f"{self.metric.silo}_mean")
        evaluated = (r for r in reversed(self.records) if any(name in r for name in scored))
        return next(evaluated, self.records[-1])

    @property
    def at_end(self) -> Record:
        """What was scored once, at the end, if rounds look at validation rows; empty of another run."""
        return self.records[-1].get("final") or {}

    @property
    def answers(self) -> dict[str, ToldAnswers]:
        """What its model answered at the end to the server's test set ("test") and to what silos hold out."""
        return read_answers(self.records[-1].get("answers"))

    @property
    def by_valid(self) -> bool:
        """Whether its rounds look at validation rows, and test rows are scored once, at the end."""
        return self.job.get("evaluate", {}).get("split") is not None

    @property
    def of_silos(self) -> Record:
        """What tells of silos: the end, where it was scored on their test rows, or else the last round."""
        told = any(name == "silos" or name.startswith(f"{self.metric.silo}_") for name in self.at_end)
        return self.at_end if told else self.of_model

    @property
    def silo_rows(self) -> str:
        """Which rows of silos single figures of them are of; "" of what they hold out in every round."""
        return "" if not self.by_valid else VALID_ROWS if self.of_silos is not self.at_end else TEST_ROWS

    @property
    def model_words(self) -> str:
        """Which model its figures are of, in words; "" if it is the last one."""
        return "" if self.model_round is None else f"the best model, of round {self.model_round:,}"

    @property
    def without_test(self) -> str:
        """The remark on a run whose model no test set of the server has scored."""
        return f"without test {self.metric.name}"

    @property
    def target(self) -> float | None:
        """The value of the main metric that its job waits for."""
        return target_of(self.job)

    def info(self, name: str) -> MetricInfo:
        """Return how a metric of this name is written; a plain number if the run notes none of that name."""
        plain = PLAIN.model_copy(update={"name": name})
        return next((one for one in (self.metric, *self.beside) if one.name == name), plain)

    def figure(self, name: str) -> float | None:
        """Return a figure of the round of its model."""
        return number(self.of_model, name)

    def best(self) -> float | None:
        """Return the best value of the main metric on the test set."""
        values = [value for r in self.records if (value := number(r, self.metric.test)) is not None]
        return self.metric.best(values) if values else None

    def final(self) -> float | None:
        """Return the main metric on test data, where that was scored at the end alone."""
        return (judged(self.at_end, self.metric) or (None, None))[1]

    @property
    def main(self) -> tuple[str, float] | None:
        """The key and the value that it ended with: of test data at the end, or of its model's round."""
        last = {key: self.of_model.get(key) for key in [self.judged_by or ""]}
        return judged(self.at_end, self.metric) or judged(last, self.metric)

    @property
    def personal(self) -> bool:
        """Whether silos use models of their own beside a shared one, which the server's test set scores."""
        return self.own_models and "split" not in self.job

    @property
    def worst_silo(self) -> str | None:
        """The name of the silo that the last scored model serves worst."""
        return worst_silo(self.of_silos, self.metric)

    @property
    def epsilon(self) -> float | None:
        """The largest epsilon of its silos, of the last round that says it; None without `[privacy]`."""
        return next((e for r in reversed(self.records) if (e := number(r, "epsilon")) is not None), None)

    @property
    def clock(self) -> float | None:
        """The virtual seconds that its rounds took; None without `[clock]`."""
        return number(self.records[-1], "virtual_seconds")

    @property
    def together(self) -> str:
        """The key of the main metric on all that silos hold out: pooled, or else the mean by examples."""
        pooled = any(number(record, self.metric.pooled) is not None for record in self.records)
        return self.metric.pooled if pooled else self.metric.weighted

    def total(self, *names: str, until: int | None = None) -> float:
        """Add up figures over the rounds, up to and with the round `until`."""
        counted = [r for r in self.records if until is None or r["round"] <= until]
        return sum(number(r, name) or 0.0 for r in counted for name in names)

    @property
    def judged_by(self) -> str | None:
        """The key of a round that a target is for."""
        return next((found[0] for record in self.records if (found := judged(record, self.metric))), None)

    def reached(self, target: float) -> int | None:
        """Return the first round at the target: on the test set, or else on what silos hold out."""
        return next((r["round"] for r in self.records if reached(r, self.metric, target)), None)

    def figures(self, target: float | None) -> dict[str, float | None]:
        """Return every figure by the name that it has in files; sums over the rounds, in seconds and bytes.

        Where rounds are missing there is no sum, and nobody knows which was the first at the target.
        """
        name, silo, told = self.metric.name, self.metric.silo, self.of_silos
        deviation, pooled = number(told, f"{silo}_std"), self.metric.pooled
        sums = {sum: None if self.missing else self.total(sum) for sum in ("seconds", *BYTES)}
        sums |= dict.fromkeys(BYTES) if trains_alone(self.job) else {}  # what is sent is of no use to these
        return {
            "rounds_done": float(self.rounds),
            **({} if self.model_round is None else {"model_round": float(self.model_round)}),
            self.metric.test: self.figure(self.metric.test),
            f"best_{name}": self.best(),
            f"final_{name}": self.final(),
            "test_loss": self.figure("test_loss"),
            "train_loss": number(self.of_model if self.model_round else self.records[-1], "train_loss"),
            **{key: number(told, key) for key in (f"{silo}_mean", self.metric.weighted, f"{silo}_worst")},
            pooled: number(told, pooled),
            f"{silo}_variance": None if deviation is None else deviation**2,
            **sums,
            **({} if self.epsilon is None else {"epsilon": self.epsilon}),
            **({} if self.clock is None else {"virtual_seconds": self.clock}),
            **({} if target is None else self._to_target(target)),
            **further([one for one in self.beside if one != self.metric], self.of_model, told, self.at_end),
        }

    def _to_target(self, target: float) -> dict[str, float | None]:
        """Return what it took until the first round at the target, the round included."""
        round = None if self.missing else self.reached(target)
        seconds = None if round is None else self.total("seconds", until=round)
        carried = None if round is None or trains_alone(self.job) else self.total(*BYTES, until=round)
        rounds = None if round is None else float(round)
        found = {"rounds_to_target": rounds, "seconds_to_target": seconds, "bytes_to_target": carried}
        if self.clock is not None:
            then = (number(r, "virtual_seconds") for r in self.records if r["round"] == round)
            found["virtual_seconds_to_target"] = next(then, None)
        return found


def read_run(run: Path, read: Sequence[Record] | None = None) -> Summary:
    """Read a run folder.

    Args:
        read: The rounds of its metrics.jsonl, if they were read already.

    Raises:
        InputError: it holds no round that this program can read; the line says why.
    """
    if not run.is_dir():
        raise InputError(f"{run}: is not a folder; {A_RUN}")
    environment = read_environment(run)
    metric, lost = metric_of(environment), why_lost(run)
    if not (records := _checked(run, read_metrics(run) if read is None else read, metric)):
        raise InputError(f"{run}: {lost or f'no rounds in metrics.jsonl; {A_RUN}'}")
    job, wrong = read_tables(run / "job.toml")
    (finished, stopped), forced = _end(run, job, records, metric), changed_by_force(environment)
    summary = Summary(
        run=run,
        records=records,
        job=job,
        finished=finished,
        stopped=stopped,
        **{key: environment.get(key, {}) for key in ("data", "code")},
        forced=forced,
        metric=metric,
        beside=infos_of(environment.get("metrics", ())),
        own_models=environment.get("own_models") is True,
        before=environment.get("before", {}),
    )
    remarks = (*gaps(summary.missing), *wrong, *_remarks(summary, lost, environment.get("versions", {})))
    return replace(summary, remarks=tuple(map(one_line, remarks)))


def _remarks(summary: Summary, lost: str | None, versions: Mapping[str, str]) -> Iterator[str]:
    """Yield what is to be said against a run whose tables could be read."""
    last = summary.records[-1]
    if lost:
        yield lost
    elif not summary.finished:
        planned = f" of {summary.job['rounds']}" if "rounds" in summary.job else ""
        yield f"unfinished: {last['round']}{planned} rounds"
    if (version := versions.get("mpifl")) not in (None, __version__):
        yield f"written by another version: mpifl {version}, this is {__version__}"
    if summary.forced:
        yield f"changed by --force: {'; '.join(summary.forced)}"
    if not summary.by_valid and not any(summary.metric.test in record for record in summary.records):
        yield summary.without_test
    if odd := [name for key, name in LOSSES.items() if key in last and number(last, key) is None]:
        yield f"diverged: its {' and its '.join(odd)} {'are' if odd[1:] else 'is'} not finite"
    yield from (*unlearnt(summary), *unprotected(summary.job, summary.records))


def _checked(run: Path, records: Sequence[Record], metric: MetricInfo) -> list[Record]:
    path = run / "metrics.jsonl"
    before: int = 0
    for record in records:
        if not is_round(record, metric):
            what = f"round {record['round']} is not as mpifl {__version__} writes it"
            raise InputError(f"{path}: {what}: of another version?")
        if (round := record["round"]) <= before:
            raise InputError(f"{path}: has round {round} after round {before}; two runs wrote to one folder")
        before = round
    return list(records)


def _end(run: Path, job: Mapping[str, Any], records: list[Record], metric: MetricInfo) -> tuple[bool, str]:
    """Return whether a run has left its model and has nothing more to do, and how it stopped early, if so."""
    evaluate, last = job.get("evaluate", {}), records[-1]
    target = target_of(job) if evaluate.get("stop_at_target") else None
    told = (job.get("rounds", 0), target, metric, evaluate.get("patience"))
    finished = (run / "model.safetensors").exists() and bool(at_end(last["round"], last, *told))
    return finished, stopped_early(records, *told) if finished else ""
