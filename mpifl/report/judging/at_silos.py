"""How a model does at each silo whose shard can be read here, and at all of them together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from rich.table import Table

from mpifl.common import InputError, Names, ShardError, suggested
from mpifl.data.shards import ShardEntry, open_shard
from mpifl.learning.metrics import MetricInfo, ToldAnswers, answers_told, certainty, counted, joined, pooled
from mpifl.learning.tasks import Task
from mpifl.report.judging.trained import Trained
from mpifl.report.runs import of_groups
from mpifl.silo import Score
from mpifl.silo.parameters import FlatModel

SPLITS = ("test", "valid", "train")
MOST_NAMED = 8
"""Silos in a line."""
ROUNDING = 1e-9
"""Points up to which a value is exact: float64 rounds sums of so many terms."""


@dataclass(frozen=True)
class SilosScored:
    """The scores of silos.

    Attributes:
        task: Whose metrics they are.
        silos: By the silo's name: the split, and the score on it.
        left_out: By the silo's name: why its shard cannot be read here.
    """

    task: Task
    silos: dict[str, tuple[str, Score]]
    left_out: dict[str, str]
    doubt: str = ""
    """What is to be said against intervals of their rows."""

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The loss and the metrics of each silo, by its name."""
        return {name: {"loss": score.loss, **score.metrics} for name, (_, score) in self.silos.items()}

    @property
    def mean(self) -> dict[str, float]:
        """The mean of each figure over the silos that have it, all alike."""
        return {name: fmean(values) if values else math.nan for name, values in self._over()}

    @property
    def weighted(self) -> dict[str, float]:
        """The mean of each metric by the examples of the silos that have it."""
        found = {}
        for name in self.task.infos:
            known = [
                (s.metrics[name], s.examples)
                for _, s in self.silos.values()
                if math.isfinite(s.metrics[name])
            ]
            total = sum(examples for _, examples in known)
            found[name] = sum(value * examples for value, examples in known) / total if total else math.nan
        return found

    @property
    def worst(self) -> dict[str, float]:
        """The worst of each figure over the silos that have it."""
        worst = {"loss": max} | {name: info.worst for name, info in self.task.infos.items()}
        return {name: worst[name](values, default=math.nan) for name, values in self._over()}

    @property
    def worst_silo(self) -> str | None:
        """The name of the silo with the worst main metric; None if no silo has one."""
        main = self.task.main_metric.name
        found = (name for name, each in self.figures.items() if each[main] == self.worst[main])
        return next(found, None)

    @property
    def pooled(self) -> dict[str, float]:
        """The loss and the metrics of all examples together, as far as they add up over silos."""
        scores = [score for _, score in self.silos.values() if not math.isnan(score.loss)]
        known = scores and all(score.weight for score in scores)
        weight = sum(score.weight for score in scores)
        loss = {"loss": sum(score.loss * score.weight for score in scores) / weight} if known else {}
        return {**loss, **pooled(self.task, self.sums, self.single)}

    @property
    def certainty(self) -> dict[str, dict[str, float]]:
        """What is known of the chance in the metrics of all examples together; see `certainty`."""
        return certainty(self.task, self.sums, self.single)

    @property
    def sums(self) -> dict[str, torch.Tensor]:
        """The sums of all silos' states."""
        sums: dict[str, torch.Tensor] = {}
        for _, score in self.silos.values():
            for name, of in score.states.items():
                sums[name] = sums[name].add_(of) if name in sums else of.to_dense().clone()
        return sums

    @property
    def single(self) -> dict[int, torch.Tensor]:
        """The probabilities of single examples of all silos."""
        return joined([(score.examples, score.single) for _, score in self.silos.values()])

    @property
    def counted(self) -> dict[str, int]:
        """How many of all examples each metric counts that leaves out some."""
        return counted(self.task, self.sums, sum(score.examples for _, score in self.silos.values()))

    def _left(self) -> Iterator[str]:
        """Yield a line for each metric that leaves out examples: of how many it is, and at which silos."""
        total = sum(score.examples for _, score in self.silos.values())
        each = {name: counted(self.task, s.states, s.examples) for name, (_, s) in self.silos.items()}
        for metric, count in self.counted.items():
            few = [(name, of[metric]) for name, of in each.items() if metric in of]
            told = [f"{name}: {of:,} of {self.silos[name][1].examples:,}" for name, of in few[:MOST_NAMED]]
            told += [f"{len(few) - MOST_NAMED:,} more"] if len(few) > MOST_NAMED else []
            yield tell_counted(metric, count, total) + f" ({', '.join(told)})" * (len(each) > 1)

    def table(self) -> Table:
        """Return a table with a row for each silo, and below several their means, the worst, all examples."""
        splits = {split for split, _ in self.silos.values()}
        several, infos = len(splits) > 1, self.task.infos
        found = Table(caption=self._caption(splits), caption_justify="left")
        found.add_column("silo", overflow="fold")
        extra = self._extra()
        for heading in [*(["split"] if several else []), "examples", "loss", *infos, *extra]:
            found.add_column(heading, justify="right", no_wrap=True)
        for name, (split, score) in self.silos.items():
            about = [*([split] if several else []), f"{score.examples:,}"]
            more = (cells.get(name, "-") for cells in extra.values())
            found.add_row(name, *about, *_cells(self.figures[name], infos), *more)
        if len(self.silos) == 1:  # whose figures those of all are
            return found
        found.add_section()
        examples = f"{sum(score.examples for _, score in self.silos.values()):,}"
        for name, count, figures in self._below(examples):
            found.add_row(name, *([""] if several else []), count, *_cells(figures, infos))
        return found

    def _extra(self) -> dict[str, dict[str, str]]:
        """Return further columns by silo, as far as they are known: positives, and intervals of metrics."""
        found: dict[str, dict[str, str]] = {}
        for name, (_, score) in self.silos.items():
            answers = ToldAnswers.model_validate(answers_told(self.task, score.states, score.single))
            if self.task.choices == 2 and len(answers.columns) == 1:
                yes = sum(column[1] for column in answers.columns[0])
                found.setdefault("positives", {})[name] = f"{yes:,}"
            for metric, (low, high) in answers.intervals.items():
                write = self.task.infos[metric].write
                found.setdefault(f"{metric}, 95% interval", {})[name] = f"{write(low)} to {write(high)}"
        return found

    def _caption(self, splits: set[str]) -> str:
        main, worst = self.task.main_metric.name, self.worst_silo
        said = [f"split {next(iter(splits))}"] if len(splits) == 1 else []
        said += [f"worst {main}: silo {worst}"] if worst and len(self.silos) > 1 else []
        known = self.certainty.items()
        all_of = "all examples: " * (len(self.silos) > 1)
        sure = [f"{all_of}{tell_certainty(*one)}" for one in known]
        sure += [self.doubt] if self.doubt and any("low" in one for _, one in known) else []
        return "\n".join(["; ".join(said), *self._left(), *sure]).strip()

    def _below(self, examples: str) -> Iterator[tuple[str, str, dict[str, float]]]:
        yield "mean", "", self.mean
        if self.task.infos.keys() - self.pooled.keys():
            yield "mean by examples", "", self.weighted
        yield "worst", "", self.worst
        yield "all examples", examples, self.pooled

    def _over(self) -> Iterator[tuple[str, list[float]]]:
        """Yield each figure's values at the silos that have it."""
        for name in ("loss", *self.task.infos):
            values = [each[name] for each in self.figures.values()]
            yield name, [value for value in values if math.isfinite(value)]


def score_silos(
    trained: Trained, model: FlatModel, split: str | None = None, usual: Sequence[str] = SPLITS[:2]
) -> SilosScored:
    """Score a model on a split of each silo, one shard after another.

    Args:
        split: Which.
        usual: Without `split`, the first of these that a silo has.

    Raises:
        InputError: no silo has such a split that can be read here.
    """
    if split is not None and split not in SPLITS:
        raise InputError(f"--split {split}: is not one of {', '.join(SPLITS)}{suggested(split, SPLITS)}")
    spec, names = trained.spec, Names([entry.name for entry in trained.spec.silos])
    asked = usual if split is None else [split]
    wanted = [(place, entry) for place, entry in enumerate(spec.silos) if _split_of(entry, asked)]
    if not wanted:
        what = f"no silo has a split '{split}'" if split else "no silo holds out examples"
        instead = "use --silos --split train" if split is None else "use another --split"
        raise InputError(f"{trained.folder}/federation.json: {what}; {instead}")
    silos, left_out = {}, {}
    for place, entry in wanted:
        name, which = names[place], _split_of(entry, asked)
        try:
            shard = open_shard(trained.folder, entry, spec)
        except ShardError as error:
            left_out[name] = str(error)
        else:
            score = trained.evaluate(model, shard[which])
            few = {key: of.to_sparse() for key, of in score.states.items()}  # of few rows mostly zeros
            silos[name] = which, replace(score, states=few)
    if not silos:
        first, why = next(iter(left_out.items()))
        raise InputError(f"no silo's shard can be read here; silo {first}: {why}")
    return SilosScored(trained.task, silos, left_out, of_groups(spec.silos))


def tell_counted(name: str, count: int, examples: int) -> str:
    """Write of how many examples a metric is."""
    return f"{name}: of {count:,} of {examples:,} examples, those with a target that is not empty"


def tell_certainty(name: str, known: dict[str, float]) -> str:
    """Write what is known of the chance in a metric's value in one line."""
    said = f"95% interval {known['low']:.2%} to {known['high']:.2%} (DeLong)" if "low" in known else ""
    within = 100 * known.get("within", 0.0)
    most = f"{within:.1g}" if within < 1 else f"{within:.0f}"
    exact = f"at most {most} points from the value of single examples" if within > ROUNDING else ""
    return f"{name}: {'; '.join(filter(None, [said, exact])) or 'exact'}"


def _split_of(entry: ShardEntry, asked: Sequence[str]) -> str:
    """Return the split of a silo that is to be scored, "" where it has no such examples."""
    return next((split for split in asked if entry.examples.get(split)), "")


def _cells(figures: dict[str, float], infos: dict[str, MetricInfo]) -> Iterator[str]:
    """Yield the loss and the metrics as they are written; a dash is a figure that there is not."""
    loss = figures.get("loss", math.nan)
    yield f"{loss:.4f}" if math.isfinite(loss) else "-"
    for name, info in infos.items():
        value = figures.get(name, math.nan)
        yield info.write(value) if math.isfinite(value) else "-"
