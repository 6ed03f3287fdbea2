"""What a job over silos with columns of the same rows may not ask, and what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.data import AnySpec, VerticalSpec
from mpifl.server import SGD
from mpifl.transforms import OWN_KEYS

if TYPE_CHECKING:
    from mpifl.run.job import Job

_ALL = "every silo holds columns of every row"
_ALIKE = f"{_ALL}, and all train on the same batches"
_LINEAR = (nn.Linear, nn.Flatten, nn.Identity, nn.Sequential)


def check_vertical(job: Job, algorithm: Algorithm) -> None:
    """See that a job goes with silos that have columns, where its algorithm is for such.

    Raises:
        InputError: it asks what has no meaning there; the line says what would do.
    """
    name = job.algorithm["name"]
    if algorithm.layout == "horizontal":
        if job.vertical is not None:
            what = f"'{name}' trains one model, which is not split; take 'splitnn', or leave [vertical] out"
            raise InputError(f"[algorithm] name = '{name}': {what}")
        return
    if job.vertical is None:
        what = "the network is split by [vertical], and the job has none; it needs cut, the width of a line"
        raise InputError(f"[algorithm] name = '{name}': {what}")
    for why in (*_of_tables(job), *_of_cohort(job), *_of_local(job, algorithm)):
        raise InputError(why)


def _of_cohort(job: Job) -> Iterator[str]:
    cohort = job.cohort
    if cohort.fraction < 1:
        yield f"[cohort] fraction = {cohort.fraction:g}: {_ALL}, so that all take part; leave it out"
    if cohort.quorum < 1:
        yield f"[cohort] quorum = {cohort.quorum:g}: {_ALL}, so that all must answer; leave it out"
    if cohort.deadline is not None:
        yield f"[cohort] deadline = {cohort.deadline:g}: {_ALL}, so that nobody is left out; leave it out"
    if cohort.select != "uniform":
        yield f"[cohort] select = '{cohort.select}': {_ALL}, so that none is drawn; leave it out"
    if cohort.weights != "examples" and job.aggregation.is_mean:  # other rules set it
        yield f"[cohort] weights = '{cohort.weights}': {_ALL}, and none weighs more; leave it out"


def _of_local(job: Job, algorithm: Algorithm) -> Iterator[str]:
    local = job.local
    if local.epochs_of is not None:
        yield f"[local] epochs_of: {_ALIKE}; take epochs or steps"
    if local.stragglers:
        yield f"[local] stragglers = {local.stragglers:g}: {_ALIKE}; leave it out"
    if local.deadline is not None:
        yield f"[local] deadline = {local.deadline:g}: {_ALIKE}; leave it out"
    if local.accumulate > 1:
        yield f"[local] accumulate = {local.accumulate}: each batch is a step; leave it out"
    if local.compile:
        yield "[local] compile = true: a step is shared with the holder of labels; leave it out"
    if local.batched:
        yield "[local] batched = true: silos have columns, and halves of their own; leave it out"
    if local.precision != "fp32":
        yield f"[local] precision = '{local.precision}': lines are float32; take 'fp32'"
    if local.batch_size != "full" and (why := algorithm.task.why_no_mean()):
        yield f"[local] batch_size = {local.batch_size}: {why}; take 'full'"


def _of_tables(job: Job) -> Iterator[str]:
    optimizer = job.server_optimizer
    if optimizer.get("name", "sgd") != "sgd" or _changed(job):
        yield "[server_optimizer]: there is no mean to step along; [local] says how each half steps"
    if not job.aggregation.is_mean or job.aggregation.clip is not None:
        yield "[aggregation]: lines are not averaged; leave it out"
    if job.compression.up == "topk":
        yield "[compression] up = 'topk': top and bottoms need all of a line; take 'qsgd' or 'bfloat16'"
    if job.compression.error_feedback:
        yield "[compression] error_feedback = true: each line is of other rows than the last; leave it out"
    if job.compression.bucket not in (None, OWN_KEYS["qsgd"]["bucket"]):
        yield f"[compression] bucket = {job.compression.bucket}: each row is a bucket; leave it out"
    if job.attack.kind != "none":
        yield f"[attack] kind = '{job.attack.kind}': is of updates, and these silos send lines; leave it out"
    if job.privacy is not None:
        yield "[privacy]: clips and noises updates, and these silos send lines; leave it out"
    if job.security is not None:
        yield "[security]: sums updates, and these silos send lines; leave it out"
    if job.data.augment is not None:
        yield f"[data] augment = '{job.data.augment}': silos would change their columns apart; leave it out"
    if job.evaluate.at != "server":
        yield f"[evaluate] at = '{job.evaluate.at}': no worker has the whole network; leave it out"
    if job.evaluate.keep_best:
        yield "[evaluate] keep_best = true: bottoms stay at their silos as they are at the end; leave it out"
    if job.checkpoint.mirror:
        yield "[checkpoint] mirror = true: another rank would learn the labels; leave it out"


def _changed(job: Job) -> bool:
    return any(job.server_optimizer.get(key, value) != value for key, value in SGD().model_dump().items())


def check_vertical_data(job: Job, algorithm: Algorithm, spec: AnySpec) -> None:
    """See that a job's algorithm is for what silos of a folder have.

    Raises:
        InputError: it is for the other layout, or the folder has not the silos that `[vertical]` tells of.
    """
    name = job.algorithm["name"]
    if algorithm.layout != spec.layout:
        vertical = spec.layout == "vertical"
        has, is_for = ("columns", "examples") if vertical else ("examples", "columns")
        to_do = "take 'splitnn'" if vertical else "partition with --scheme vertical, or take 'fedavg'"
        what = f"is for silos with {is_for}, and those of {job.shards} have {has}"
        raise InputError(f"[algorithm] name = '{name}': {what}; {to_do}")
    if job.vertical is None:
        return
    if job.vertical.protect == "label-dp" and not algorithm.for_federation(spec).task.choices:
        what = "randomises the class of each row, and the shards have " + spec.aim
        raise InputError(f"[vertical] protect = 'label-dp': {what}; take 'max-norm'")
    if (silos := len(spec.silos)) < 2:
        raise InputError(f"shards = '{job.shards}': has one silo, and a split network needs two; take more")
    if other := _unaligned(spec):
        what = f"silos 0 and {other} are of two alignments, so that their rows may be different people"
        raise InputError(f"shards = '{job.shards}': {what}; partition or align again")
    try:
        job.vertical.widths(silos)
    except ValueError as wrong:
        raise InputError(f"[vertical] {wrong}") from None
    if foreign := sorted(set(map(int, job.vertical.bottoms)) - set(range(silos))):
        raise InputError(f"[vertical] bottoms: there is no silo {foreign[0]}; there are {silos}")


def _unaligned(spec: AnySpec) -> int | None:
    """Return the first silo whose rows another alignment put into their order; its file has its tag."""
    if not isinstance(spec, VerticalSpec):
        return None
    first, *others = spec.silos
    return next((entry.silo for entry in others if entry.alignment != first.alignment), None)


def check_bottom(local_steps: int, silo: int, module: nn.Module) -> None:
    """See that further steps on one answer teach a bottom something.

    Raises:
        InputError: it is linear: its Jacobian never changes, and Q steps are one of a larger learning rate.
    """
    if local_steps > 1 and all(isinstance(part, _LINEAR) for part in module.modules() if not _is_shell(part)):
        what = (
            f"the bottom of silo {silo} is linear, and so many steps are one with {local_steps} times the lr"
        )
        raise InputError(f"[algorithm] local_steps = {local_steps}: {what}; take 1, or another bottom")


def _is_shell(part: nn.Module) -> bool:
    """Tell whether a module does nothing but call its parts."""
    return bool(list(part.children())) and not list(part.parameters(recurse=False))
