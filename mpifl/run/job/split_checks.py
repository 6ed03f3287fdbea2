"""Checks of a job for a split network against the shards, which hold columns, and against its models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, VerticalSpec

if TYPE_CHECKING:
    from mpifl.run.job.job import Job

_LINEAR = (nn.Linear, nn.Flatten, nn.Identity, nn.Sequential)


def check_vertical_data(job: Job, algorithm: Algorithm, spec: AnySpec) -> None:
    """Check that a job's algorithm goes with the layout of the shards, and `[split]` with the silos.

    Raises:
        InputError: the algorithm is for the other layout, or `[split]` does not fit the silos.
    """
    name = job.algorithm["name"]
    if algorithm.layout != spec.layout:
        vertical = spec.layout == "vertical"
        has, is_for = ("columns", "examples") if vertical else ("examples", "columns")
        to_do = "use 'splitnn'" if vertical else "partition with --scheme vertical, or use 'fedavg'"
        what = f"is for silos with {is_for}, and those of {job.shards} have {has}"
        raise InputError(f"[algorithm] name = '{name}': {what}; {to_do}")
    if job.split is None:
        return
    if job.split.protect == "label-dp" and not algorithm.for_federation(spec).task.choices:
        what = "randomises the class of each row, and the shards have " + spec.aim
        raise InputError(f"[split] protect = 'label-dp': {what}; use 'max-norm'")
    if (silos := len(spec.silos)) < 2:
        raise InputError(
            f"shards = '{job.shards}': has one silo, and a split network needs two; use more silos"
        )
    if other := _unaligned(spec):
        what = f"silos 0 and {other} are of two alignments, so that their rows may be different people"
        raise InputError(f"shards = '{job.shards}': {what}; partition or align again")
    try:
        job.split.widths(silos)
    except ValueError as wrong:
        raise InputError(f"[split] {wrong}") from None
    if foreign := sorted(set(map(int, job.split.bottoms)) - set(range(silos))):
        raise InputError(f"[split] bottoms: there is no silo {foreign[0]}; there are {silos}")


def _unaligned(spec: AnySpec) -> int | None:
    """Return the first silo whose shard has the tag of another alignment than silo 0's; None if all agree."""
    if not isinstance(spec, VerticalSpec):
        return None
    first, *others = spec.silos
    return next((entry.silo for entry in others if entry.alignment != first.alignment), None)


def check_bottom(local_steps: int, silo: int, module: nn.Module) -> None:
    """Check that several local steps on one answer of the top are useful for a bottom.

    Raises:
        InputError: the bottom is linear. Its Jacobian never changes, so Q steps equal one step with Q times
            the learning rate.
    """
    if local_steps > 1 and all(isinstance(part, _LINEAR) for part in module.modules() if not _is_shell(part)):
        what = (
            f"the bottom of silo {silo} is linear, and so many steps are one with {local_steps} times the lr"
        )
        raise InputError(f"[algorithm] local_steps = {local_steps}: {what}; use 1, or another bottom")


def _is_shell(part: nn.Module) -> bool:
    """Return whether a module has parts and no parameters of its own."""
    return bool(list(part.children())) and not list(part.parameters(recurse=False))
