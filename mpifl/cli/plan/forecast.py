"""What a job will take in time and memory in a world that its profile has seen, and what to ask SLURM for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mpifl.cli.plan.played_rounds import Played
from mpifl.cli.plan.profile import SeenWorld, loads
from mpifl.data.shards import AnySpec
from mpifl.exchange.server_side import place
from mpifl.report.runs import units
from mpifl.run.job import Job

TIME_MARGIN, MEMORY_MARGIN = 1.5, 1.25
"""By what forecasts are multiplied before SLURM is asked for that much."""
SAVING = 180
"""Seconds that are added: SLURM signals a job as much earlier that it may save."""
MEGABYTE = 1 << 20


def forecast(job: Job, spec: AnySpec, played: Played, seen: SeenWorld) -> dict[str, Any]:
    """Return the seconds of each round and to the end, the memory, and the options of sbatch that follow."""
    usual = seen.communication_seconds + seen.server_seconds
    rounds = [
        usual
        + (seen.first_seconds if nth == 0 else 0.0)
        + seen.step_seconds * max(loads(job, spec, one.silos, seen.ranks, nth).values(), default=0)
        for nth, one in enumerate(played.rounds)
    ]
    scored = sum(not nth % job.evaluate.every or nth == job.rounds for nth in range(1, job.rounds + 1))
    parts = {
        "start": seen.start_seconds,
        "rounds": sum(rounds),
        "evaluations": scored * seen.evaluation_seconds,
        "checkpoints": checkpoints_of(job) * seen.checkpoint_seconds,
    }
    worker, whole = later_states(spec, played, seen)
    seconds, node = sum(parts.values()), seen.node_bytes + whole
    minutes = math.ceil((TIME_MARGIN * seconds + SAVING) / 60)
    megabytes = math.ceil(MEMORY_MARGIN * node / MEGABYTE / 100) * 100
    return {
        "ranks": seen.ranks,
        "nodes": seen.nodes,
        "round_seconds": [round(one, 6) for one in rounds],
        "seconds": seconds,
        "of_it": parts,
        "server_bytes": seen.server_bytes + (worker if seen.ranks == 1 else 0),
        "worker_bytes": seen.worker_bytes + worker,
        "node_bytes": node,
        "memory_at_least": job.build_algorithm().timed,
        "sbatch": {"time": f"{minutes // 60}:{minutes % 60:02d}:00", "mem": f"{megabytes}M"},
    }


def checkpoints_of(job: Job) -> int:
    """Return how many checkpoints a training writes: one at its end, too."""
    return -(-job.rounds // job.checkpoint.every)


def later_states(spec: AnySpec, played: Played, seen: SeenWorld) -> tuple[int, int]:
    """Return the bytes of the states of silos that came after the measured rounds: of the worker with most,
    and of all."""
    first = {silo for one in played.rounds[: seen.rounds] for silo in one.silos}
    sizes = [entry.examples["train"] for entry in spec.silos]
    placed = place(sizes, range(1, seen.ranks) if seen.ranks > 1 else range(1))
    of_ranks = [
        sum(played.silo_states.get(silo, 0) for silo in held if silo not in first)
        for held in placed.values()
    ]  # fmt: skip
    return max(of_ranks, default=0), sum(of_ranks)


def told(figures: dict[str, Any]) -> Sequence[str]:
    """Return the lines about time, memory and what to ask SLURM for."""
    peak = {key: units.size(figures[f"{key}_bytes"]) for key in ("server", "worker", "node")}
    rounds, parts = figures["round_seconds"], figures["of_it"]
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
    asks = figures["sbatch"]
    world = f"{figures['ranks']} ranks on {figures['nodes']} node{'s' * (figures['nodes'] > 1)}"
    least = "at least " * figures["memory_at_least"]
    return [
        f"measured on {world}: a round {min(rounds):.3g} to {max(rounds):.3g} s, "
        f"in all {figures['seconds']:.1f} s ({spent})",
        f"memory, {least}at its peak: server {peak['server']}, "
        f"a worker {peak['worker']}, a node {peak['node']}",
        f"sbatch --nodes={figures['nodes']} --time={asks['time']} --mem={asks['mem']}"
        f"   (time: {TIME_MARGIN:g} times the seconds, and {SAVING} s to save; "
        f"memory: {MEMORY_MARGIN:g} times a node's)",
    ]
