"""What a job will move and take up to its target, if it needs as many rounds as a run has needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common import InputError
from mpifl.report.observers import judged
from mpifl.report.runs import read_run
from mpifl.run.job import differing_keys, read_job

ELSEWHERE = ("name", "shards", "rounds", "tracking", "checkpoint", "device", "threads")
"""Keys of a job that change nothing of the rounds to a target, or are compared by other means."""


def until_target(
    path: Path, overrides: Sequence[str], like: Path, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the round at which a run reached a job's target, and what the job will have moved by then.

    Args:
        path: The file of the job that is planned.
        overrides: Keys of it to change.
        like: The folder of a run that is like it.
        figures: The job's plan.

    Returns:
        The run, its round, the job's bytes and seconds up to that round (None without a profile), and the
        keys in which the run's job differs.

    Raises:
        InputError: the job has no target, the folder holds no run, its main metric is another, it did not
            reach the target, or only after the job's last round.
    """
    job = read_job(path, overrides)
    if (target := job.evaluate.wanted) is None:
        raise InputError("--like: the job has no target; give it [evaluate] target, or leave --like out")
    run, metric = read_run(like), job.build_task().main_metric.name
    if run.metric.name != metric:
        raise InputError(f"--like {like}: is judged by {run.metric.name}, and this job by {metric}")
    if (round := run.reached(target)) is None:
        scores = [found[1] for record in run.records if (found := judged(record, run.metric))]
        best = f"its best was {run.metric.best(scores):g}" if scores else "it has no scores"
        raise InputError(f"--like {like}: did not reach {target:g} in {run.rounds} rounds; {best}")
    if round > job.rounds:
        raise InputError(
            f"--like {like}: reached {target:g} in round {round}; this job ends with {job.rounds}"
        )
    taken, forecast = figures["rounds"][:round], figures["forecast"]
    return {
        "run": str(like),
        "target": target,
        "round": round,
        **{key: sum(one[key] for one in taken) for key in ("bytes_sent", "bytes_received")},
        "seconds": sum(forecast["round_seconds"][:round]) if forecast else None,
        "differs": differing_keys(job, read_job(like / "job.toml"), ELSEWHERE),
    }


def told_target(found: Mapping[str, Any]) -> str:
    """Return the line about a target."""
    moved = f"{found['bytes_sent'] + found['bytes_received']:,} bytes"
    taken = "" if found["seconds"] is None else f", {found['seconds']:.1f} s of rounds"
    other = f"; that run has another {', '.join(found['differs'][:4])}" if found["differs"] else ""
    return f"to {found['target']:g}, if as in {found['run']}: {found['round']} rounds, {moved}{taken}{other}"
