"""What a job may not ask of its model's buffers, by `[model] buffers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpifl.common import InputError

if TYPE_CHECKING:
    from mpifl.run.job import Job


def check_buffers(job: Job) -> None:
    """See that a job's rules for buffers go with how its updates become one.

    Raises:
        InputError: they do not; the line says what would do.
    """
    if why := _of_halves(job) or _of_rules(job):
        raise InputError(why)


def _of_halves(job: Job) -> str:
    split = job.vertical
    if split is None:
        return ""
    tables = {"vertical.top": split.top if isinstance(split.top, dict) else {}}
    tables |= {f"vertical.bottoms.{silo}": table for silo, table in split.bottoms.items()}
    given = [key for key, table in tables.items() if "buffers" in table] + ["model"] * bool(job.model.buffers)
    if not given:
        return ""
    return f"[{given[0]}] buffers: each party keeps all buffers of its part of a split network; leave it out"


def _of_rules(job: Job) -> str:
    """Say why what silos have made of their buffers cannot be told one by one; "" if it can, or need not."""
    taken = [(name, rule) for name, rule in job.model.buffers.items() if rule != "reset"]
    if not taken:
        return ""
    what = f"[model] buffers: {taken[0][0]} = '{taken[0][1]}'"
    if not job.aggregation.is_mean:
        why = f"a single silo decides it, and [aggregation] rule = '{job.aggregation.rule}' is against that"
        return f"{what}: {why}; take 'reset', or rule = 'mean'"
    if job.security is not None:
        return f"{what}: the server looks at each silo's, and masks hide them; take 'reset'"
    if job.privacy is not None:
        return f"{what}: what buffers learn of examples is protected by nothing; take 'reset'"
    if job.silo.parts > 1:
        return f"{what}: by [silo] parts = {job.silo.parts} no buffer may learn; leave one of them out"
    return ""
