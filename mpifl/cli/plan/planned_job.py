"""The plan of a job as figures, and as the tables that the command `plan` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.cli.plan.forecast import checkpoints_of, forecast, told
from mpifl.cli.plan.played_rounds import MessageClass, Played, play
from mpifl.cli.plan.profile import read_profile, seen
from mpifl.cli.plan.target_costs import told_target
from mpifl.common import InputError, count_of
from mpifl.data.shards import AnySpec
from mpifl.report.observers import print_table
from mpifl.report.runs import units
from mpifl.run.folder import checkpoint
from mpifl.run.job import Job, is_silo_level, read_job
from mpifl.training.beforehand import plan_wings, validate_job
from mpifl.wings import wings_of

NOT_MEASURED = [
    "time and memory: not measured; mpifl doctor JOB --profile FILE does, then plan --profile FILE"
]
"""What a plan without a profile says of them."""


def planned(
    path: Path,
    overrides: Sequence[str] = (),
    profile: Path | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> dict[str, Any]:
    """Return the plan of a job.

    Args:
        path: The job file.
        overrides: Keys of the job to change.
        profile: What the job has taken on this machine.
        ranks, nodes: The world to forecast; by default the only one that the profile has seen.

    Raises:
        InputError: the job would be refused, cannot be planned, or the profile does not fit.
    """
    job = read_job(path, overrides)
    if profile is None and (ranks or nodes):
        what = "bytes do not depend on it; time and memory are forecast from a profile alone"
        raise InputError(f"--ranks, --nodes: {what}: give --profile FILE, too")
    world = seen(read_profile(profile, job), ranks, nodes, profile) if profile else None
    spec = validate_job(job, str(path), wings_of)
    plan_wings(job, spec, str(path), wings_of(job))
    played = play(job)
    classes = sum((Counter(one.classes) for one in played.rounds), Counter[MessageClass]())
    return {
        "job": job.model_dump_json(exclude_none=True),
        "name": job.name,
        "silos": len(spec.silos),
        "parameters": played.parameters,
        "exact": not (played.at_most or played.unknown),
        "at_most": played.at_most,
        "unknown": played.unknown,
        "rounds": [
            {"silos": len(one.silos), "bytes_sent": one.sent, "bytes_received": one.received,
             "bytes_of_silo_max": one.of_silo_max}
            for one in played.rounds
        ],
        "messages": [{"work": key.work, "part": key.part, "bytes": n} for key, n in classes.items()],
        "checkpoint": _checkpoint(job, played),
        "epsilon": _epsilon(job, spec),
        "forecast": forecast(job, spec, played, world) if world else None,
    }  # fmt: skip


def _checkpoint(job: Job, played: Played) -> dict[str, Any]:
    """Return the bytes of the files of a checkpoint after the last round, and of all that are kept."""
    digest = "0" * 64
    told = len(checkpoint.description(job.rounds, digest, dict.fromkeys(played.silo_states, digest)))
    silos, files = sum(played.silo_states.values()), len(played.silo_states)
    one, kept = (
        played.server_state + silos + told,
        min(job.checkpoint.keep, checkpoints_of(job)),
    )
    found = {"server": played.server_state, "silos": silos, "files_of_silos": files, "description": told}
    return {**found, "bytes": one, "kept": kept, "bytes_kept": one * kept}


def _epsilon(job: Job, spec: AnySpec) -> float | None:
    """Return the largest epsilon of a silo after the last round; None without `[privacy]`."""
    from mpifl.wings.dpsgd import figures_of_plan, figures_of_rounds, mechanism_of, plans

    if job.privacy is None:
        return None
    if is_silo_level(job):
        return figures_of_rounds(job, mechanism_of(job, len(spec.silos)), job.rounds)
    of_silos = plans(job, spec, job.build_algorithm().for_federation(spec))
    return max(figures_of_plan(job, of_silos, job.rounds))


def show_plan(figures: Mapping[str, Any]) -> None:
    """Print a plan."""
    rounds = figures["rounds"]
    sure = "at most" if figures["at_most"] else "but for what is not known" if figures["unknown"] else "exact"
    total = {key: sum(one[key] for one in rounds) for key in ("bytes_sent", "bytes_received")}
    counts = f"{count_of(len(rounds), 'round')}, {count_of(figures['silos'], 'silo')}"
    counts += f", {figures['parameters']:,} parameters"
    print(f"{figures['name']}: {counts}; bytes that move, {sure}")
    rows = [[f"{one['work']} {one['part']}", f"{one['bytes']:,}"] for one in figures["messages"]]
    rows += [
        ["server to silos", f"{total['bytes_sent']:,}"],
        ["silos to server", f"{total['bytes_received']:,}"],
    ]
    print_table("all rounds", ["messages", "bytes"], rows)
    spread = {key: [one[key] for one in rounds] for key in (*total, "bytes_of_silo_max")}
    print_table(
        "a round", ["bytes", "least", "most"],
        [[name, f"{min(of):,}", f"{max(of):,}"] for name, of in spread.items()],
    )  # fmt: skip
    kept = figures["checkpoint"]
    print(
        f"a checkpoint: {kept['bytes']:,} bytes (server {kept['server']:,}, {kept['files_of_silos']} silos' "
        f"files {kept['silos']:,}); {kept['kept']} are kept: {units.size(kept['bytes_kept'])}"
    )
    if figures["epsilon"] is not None:
        print(f"epsilon after the last round, of a silo that is in all: {figures['epsilon']:.4f}")
    for line in told(figures["forecast"]) if figures["forecast"] else NOT_MEASURED:
        print(line)
    if "to_target" in figures:
        print(told_target(figures["to_target"]))
    for line in figures["at_most"]:
        print(f"at most: {line}")
    for line in figures["unknown"]:
        print(f"not known: {line}")
