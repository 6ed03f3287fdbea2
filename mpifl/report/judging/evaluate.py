"""The model of a run, scored again: on the test set, or at each silo."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import write_named
from mpifl.data.shards import FederationSpec, notes_of, open_shard
from mpifl.learning.metrics import MetricInfo, answers_told, certainty, counted
from mpifl.learning.tasks import Task
from mpifl.report.judging.at_silos import SPLITS, SilosScored, score_silos, tell_certainty, tell_counted
from mpifl.report.judging.given_shards import check_classes, check_fit, shards_at, spec_of
from mpifl.report.judging.trained import Trained, Which, module_of, read_job_of, read_trained, told_model
from mpifl.report.observers import wide_console
from mpifl.report.runs import of_groups
from mpifl.silo import Score
from mpifl.silo.parameters import FlatModel


def evaluate_run(
    run: Path,
    trusted: Collection[str] = (),
    last: Which = False,
    file: Path | None = None,
    metrics: Sequence[str] = (),
    threshold: float | None = None,
) -> None:
    """Score the model of a run on its shard folder's test set and print the figures. Where there is no test
    set, score it at each silo, as `evaluate_silos` does.

    Args:
        trusted: The plug-ins that its job may import.
        last: Score the model of the last round, or of the beginning.
        file: A JSON file to write.
        metrics: Further metrics by which it is judged.
        threshold: The probability above which it answers yes; by default that of its job.

    Raises:
        InputError: the run has no model yet, no rows are held out, the shards are others, or it needs code
            that is not trusted.
    """
    trained = read_trained(run, trusted, file is not None, metrics, threshold)
    folder, spec = trained.folder, trained.spec
    if spec.test is None:
        print(f"note: {folder} has no test set; each silo is scored, as by --silos")
        _score_silos(trained, last, file)
        return
    model, about = trained.model(last), told_model(run, trained.job, last)
    score = trained.evaluate(model, open_shard(folder, spec.test, spec)["test"])
    task = trained.task
    _tell_sizes(spec)
    tell_score(score, "test", task.infos)
    for name, count in counted(task, score.states, score.examples).items():
        print(f"test {tell_counted(name, count, score.examples)}")
    for name, known in certainty(task, score.states, score.single).items():
        print(f"test {tell_certainty(name, known)}")
        if "low" in known and (doubt := of_groups([spec.test])):
            print(f"test {name}: {doubt}")
    tell_threshold(task)
    write_figures(file, {"run": str(run), **about, "test": as_record(score, task)})


def tell_score(score: Score, split: str, infos: Mapping[str, MetricInfo]) -> None:
    """Print a score on a split in one line."""
    found = [f"{split} {name} {info.write(score.metrics[name])}" for name, info in infos.items()]
    print(", ".join([f"{split} loss {score.loss:.4f}", *found, f"{score.examples} examples"]))


def tell_threshold(task: Task) -> None:
    """Print above which probability a task answers yes, where it counts such answers."""
    if of := task.of_answers:
        print(f"note: {', '.join(of)}: yes is answered above a probability of {task.cut_off:g} (--threshold)")


def evaluate_silos(
    run: Path,
    trusted: Collection[str] = (),
    last: Which = False,
    file: Path | None = None,
    split: str | None = None,
    metrics: Sequence[str] = (),
    threshold: float | None = None,
) -> None:
    """Score the model of a run on a split of each silo and print the figures of each and of all.

    Arguments are those of `evaluate_run`, and the split: by default `test`, or `valid` at a silo without it.

    Raises:
        InputError: as of `evaluate_run`, or no silo has such a split that can be read here.
    """
    _score_silos(read_trained(run, trusted, file is not None, metrics, threshold), last, file, split)


def _score_silos(trained: Trained, last: Which, file: Path | None, split: str | None = None) -> None:
    """Score the model of a run at each silo; see `evaluate_silos`."""
    run = trained.run
    model, about = trained.model(last), told_model(run, trained.job, last)
    found = score_silos(trained, model, split)
    _tell_sizes(trained.spec)
    _tell(found)
    tell_threshold(found.task)
    if trained.job.privacy is not None:
        told = "the epsilon of the run covers its training, and not the figures of each silo above"
        print(f"note: {told}; they tell of the silo's rows")
    write_figures(file, {"run": str(run), **about, **in_full(found)})


def evaluate_shards(
    run: Path,
    data: Path,
    trusted: Collection[str] = (),
    last: Which = False,
    file: Path | None = None,
    split: str | None = None,
    force: bool = False,
    metrics: Sequence[str] = (),
    threshold: float | None = None,
) -> None:
    """Score the model of a run on shards that need not be the run's own, such as a later site's, and print
    the figures of each and of all.

    Arguments are those of `evaluate_run`, and these:

    Args:
        data: A shard folder, or one shard beside what describes it.
        split: Which; by default `test`, else `valid`, and of a shard that has neither `train`.
        force: Take shards that another spec has cut.

    Raises:
        InputError: the run has no model yet, the examples are not such as it has learned from, or
            no shard has such a split that can be read here.
    """
    job, shards = read_job_of(run, trusted, metrics, threshold), shards_at(data)
    taken = spec_of(run, job) or shards.spec
    check_fit(run, data, shards.spec, taken, force)
    check_classes(run, data, shards.spec, taken)
    silos = [entry.model_copy(update={"name": name}) for name, entry in shards.entries.items()]
    spec = shards.spec.model_copy(update={"silos": silos, "test": None, "public": None})
    trained = Trained(run, job, shards.folder, spec, file is not None)
    model, about = FlatModel(module_of(run, job, taken, last)), told_model(run, job, last)
    found = score_silos(trained, model, split, SPLITS)
    _tell_sizes(spec)
    _tell(found)
    tell_threshold(found.task)
    write_figures(file, {"run": str(run), **about, "data": str(data), **in_full(found)})


def _tell_sizes(spec: FederationSpec) -> None:
    """Say which masks `data-prep` has resized, by what it noted for all silos or for each site."""
    for line in notes_of(spec.source, "sizes"):
        print(f"note: {line}")


def _tell(found: SilosScored) -> None:
    """Print the figures of silos, and which are left out."""
    screen = wide_console()
    screen.print(found.table())
    for name, why in found.left_out.items():
        screen.print(f"silo {name} left out: {why}", soft_wrap=True)


def as_record(score: Score, task: Task) -> dict[str, Any]:
    """Return a score by the names of its figures; None is one that is undefined."""
    about, answers = (of(task, score.states, score.single) for of in (certainty, answers_told))
    return {
        "examples": score.examples,
        "loss": _known(score.loss),
        **_all_known({name: score.metrics[name] for name in task.infos}),
        **_certain(about),
        **_counted(counted(task, score.states, score.examples)),
        **({"answers": answers} if answers else {}),
    }


def in_full(found: SilosScored) -> dict[str, Any]:
    """Return the figures of all silos as the JSON file has them."""
    task = found.task
    silos = {name: {"split": split, **as_record(score, task)} for name, (split, score) in found.silos.items()}
    over = {"mean": found.mean, "weighted": found.weighted, "worst": found.worst, "pooled": found.pooled}
    together = {kind: _all_known(figures) for kind, figures in over.items()}
    together["pooled"] |= {**_certain(found.certainty), **_counted(found.counted)}
    answers = answers_told(task, found.sums, found.single)
    return {
        "silos": silos,
        **together,
        "answers": answers,
        "worst_silo": found.worst_silo,
        "left_out": found.left_out,
    }


def _certain(about: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return `auroc_low`, `auroc_high` and `auroc_within` of each metric of which they are known."""
    return {f"{name}_{key}": value for name, known in about.items() for key, value in known.items()}


def _counted(counts: dict[str, int]) -> dict[str, float]:
    """Return `dice_examples` of each metric that leaves out examples."""
    return {f"{name}_examples": count for name, count in counts.items()}


def _all_known(figures: dict[str, float]) -> dict[str, float | None]:
    return {name: _known(value) for name, value in figures.items()}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_figures(file: Path | None, content: dict[str, Any]) -> None:
    """Write figures to a JSON file, if one is named.

    Raises:
        InputError: it cannot be written.
    """
    if file is None:
        return
    write_named("--json", file, json.dumps(content, indent=1, allow_nan=False) + "\n")
    print(f"json: {file}")
