"""What a training tells of its job before the first round, as far as no rank has to be asked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from mpifl.algorithms import Algorithm
from mpifl.common import count_of
from mpifl.data.shards import AnySpec, VerticalSpec, notes_of
from mpifl.learning import models
from mpifl.run.job import Job, uncalled
from mpifl.training import ModelFacts, Wing, WingsOf
from mpifl.training.beforehand.run_checks import check_wings


def told_at_start(job: Job, spec: AnySpec, source: str, wings_of: WingsOf) -> list[str]:
    """Return what a training will tell of its job, but for what is wrong with an algorithm of one's own.

    Args:
        source: The job's name in an error.
        wings_of: Makes the wings that the job asks for.

    Raises:
        InputError: a wing cannot do what the job asks.
    """
    algorithm = job.build_algorithm().for_federation(spec)
    model = functools.cache(lambda: facts_of_model(job, spec, algorithm))
    told = notes_at_start(job, spec, algorithm, check_wings(job, spec, source, wings_of), model)
    own = uncalled(type(algorithm))
    return [one for one in told if not (own and one.endswith(tuple(own)))]


def facts_of_model(job: Job, spec: AnySpec, algorithm: Algorithm) -> ModelFacts:
    """Return the facts of a job's model, which is built for them unless it is split."""
    if isinstance(spec, VerticalSpec):
        return ModelFacts(0, False, bool(spec.silos[spec.holder].examples.get("test")))
    table, task = job.model, algorithm.task
    module = models.build(table.name, table.arguments, spec.features, task.width(spec), job.seed, task)
    own = algorithm.personal_names(module)
    shared = sum(p.numel() for name, p in module.named_parameters() if p.requires_grad and name not in own)
    kept = any(one.is_floating_point() for name, one in module.named_buffers() if name not in own)
    return ModelFacts(shared, kept, spec.test is not None and not own)


def notes_at_start(
    job: Job, spec: AnySpec, algorithm: Algorithm, wings: Sequence[Wing], model: Callable[[], ModelFacts]
) -> list[str]:
    """Return what a training tells of its job before the first round.

    Notes on ranks, their machines and their memory are not among them.

    Args:
        wings: The wings that the job asks for, whose `check` was called.
        model: Returns the facts of the model; called where a note is of these.
    """
    told = [job.attack.warning, *job.idle(algorithm), _of_epochs(job, len(spec.silos))]
    if job.aggregation.clip is not None and model().statistics:
        told.append("[aggregation] clip: running statistics (BatchNorm) stay unclipped; GroupNorm has none")
    for wing in wings:
        told += wing.notes_of_job(len(spec.silos), model)
    told += _of_target(job, spec, algorithm, model)
    return [*filter(None, told), *notes_of(spec.source, "alike")]


def _of_epochs(job: Job, silos: int) -> str:
    """Return a note on epochs of silos that there are not; "" without such."""
    given = len(job.local.epochs_by_silo or ())
    what = f"[local] epochs_by_silo: has {given} numbers for {count_of(silos, 'silo')}; the last have no use"
    return what if given > silos else ""


def _of_target(job: Job, spec: AnySpec, algorithm: Algorithm, model: Callable[[], ModelFacts]) -> list[str]:
    """Return a note on what a target is compared with, if that is not the test set."""
    evaluate = job.evaluate
    if evaluate.wanted is None or evaluate.split is not None or model().judged:
        return []
    key = "[evaluate] target" + ("_accuracy" if evaluate.target is None else "")
    absent = getattr(spec, "test", None) is None
    why = "there is no test set" if absent else "silos own a part of the model"
    splits = {split for entry in spec.silos for split, examples in entry.examples.items() if examples}
    held_out = bool(splits & {"test", "valid"}) and algorithm.scored_at_silos
    if held_out and evaluate.silos:
        metric = algorithm.task.main_metric.name
        return [f"{key}: is for the {metric} on all that the silos hold out, as {why}"]
    nor = "and [evaluate] silos = false" if held_out else "and silos hold out no data"
    return [f"{key}: {why}, {nor}"]
