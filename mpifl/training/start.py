"""Where a training begins: anew, at its last checkpoint, or where a server that died left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import InputError, RoundLost
from mpifl.exchange import first_of
from mpifl.report.observers import Progress, Record
from mpifl.run.folder import checkpoint, note_lost, read_environment, read_metrics
from mpifl.training.beforehand import differing, moved
from mpifl.training.recovery import latest_mirror, state_of
from mpifl.training.run_parts import RunTraining
from mpifl.wire import Load, Open
from mpifl.wire.launching import survivable


def open_shards(t: RunTraining) -> dict[str, dict[str, str]]:
    """Have every worker open and verify its shards; return what each worker says of itself.

    What the user should know before the training starts is noted.

    Raises:
        InputError: a shard is broken, and the quorum does not allow for that.
    """
    faults = t.recovery.ask(Open).faults
    if faults and t.job.cohort.quorum == 1.0:
        first, more = first_of(faults, t.exchange.names), len(faults) - 1
        others = f" (and {more} more silos)" if more else ""
        without = "" if t.job.split else "; [cohort] quorum below 1 would go on without"
        raise InputError(f"{first}{others}{without}")
    for silo, why in faults.items():
        t.observers.note(f"going on without silo {t.exchange.names[silo]} while it is broken: {why}")
    origins, member = t.exchange.transport.origins, t.exchange.membership
    ranks = {str(origins[rank]): about for rank, about in sorted(member.about.items())}
    noted = [
        t.job.attack.warning,
        *_idle_workers(t),
        *_idle_settings(t),
        *_other_bits(t, ranks),
    ]
    for warning in filter(None, noted):
        t.observers.note(warning)
    return ranks


def first_progress(t: RunTraining, resume: bool) -> Progress:
    """Give server and silos the state to start from; return how far the training has come."""
    if t.exchange.transport.origins[0] != 0:
        return _succeed(t)
    return (_restore(t) if resume else None) or _begin(t)


def _other_bits(t: RunTraining, ranks: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say which ranks compute other bits than the others, or than those did who have begun this run."""
    before = read_environment(t.out).get("ranks", {})
    return [
        differing({int(rank): about for rank, about in ranks.items()}),
        moved([*before.values()], [*ranks.values()]),
    ]


def _idle_workers(t: RunTraining) -> list[str]:
    silos, workers = len(t.spec.silos), len(t.exchange.transport.workers)
    if silos >= workers:
        return []
    return [f"{workers - silos} of {workers} workers have no silo and stay idle: there are {silos}"]


def _idle_settings(t: RunTraining) -> list[str]:
    """Say which keys of the job can have no effect here."""
    idle = t.job.idle(t.algorithm)
    if t.job.checkpoint.mirror and not survivable():
        idle.append("[checkpoint] mirror = true: without --survive nobody looks into it, and none is made")
    if t.job.aggregation.clip is not None and len(t.server.model.statistics):
        idle.append("[aggregation] clip: running statistics (BatchNorm) stay unclipped; GroupNorm has none")
    for wing in t.wings:
        idle += wing.notes(t.server, t.exchange)
    return idle + t.metrics.target_notes()


def _begin(t: RunTraining) -> Progress:
    t.server.state = t.server.begun(t.algorithm.begin)
    checkpoint.write_model(t.out / "initial.safetensors", t.server.model)
    return Progress()


def _restore(t: RunTraining) -> Progress | None:
    """Load the latest whole checkpoint, on the server and at the silos; return None if there is none."""
    server, rounds = t.server, checkpoint.rounds(t.out)
    begun = server.begun(t.algorithm.begin) if rounds else {}
    for round in rounds:
        try:
            _load(t, round, begun)
        except checkpoint.CheckpointError as error:
            t.observers.note(f"{error}; using the checkpoint before it")
            continue
        t.checkpoints.resume_from(round)
        for later in rounds[: rounds.index(round)]:
            checkpoint.set_aside(t.out, later)
        if not t.algorithm.aligned(server, t.exchange.everyone(server)):
            t.recovery.mark_diverged()
        return Progress(round, _reported_of(t, round) or {"round": round, **t.metrics.evaluate_if_due()})
    server.round = 0
    if rounds:
        t.recovery.ask(Load)  # silos forget what a broken checkpoint gave them
        t.observers.note(f"{t.out}: no checkpoint is whole, starting anew")
    return None


def _load(t: RunTraining, round: int, begun: Mapping[str, Any]) -> None:
    """Load a checkpoint at the silos and on the server; CheckpointError if it is not whole."""
    state, silos = checkpoint.read(t.out, round, begun, t.algorithm.server_optimizer.moments)
    t.server.round = round
    if faults := t.recovery.ask(Load, files=dict(silos)).faults:
        raise checkpoint.CheckpointError(first_of(faults, t.exchange.names))
    t.server.state = state


def _succeed(t: RunTraining) -> Progress:
    """Go on where the server died: after the round that this rank has a mirror of, else as if resumed.

    Raises:
        RoundLost: sums are masked, and parties hand theirs over to no other server.
    """
    me = t.exchange.transport.origins[0]
    if t.job.secure:
        what = f"rank {me} cannot take the dead server's place: by [security] no party hands it a sum"
        note_lost(t.out, what)
        raise RoundLost(f"{what}; start all ranks again with --resume")
    if mirror := latest_mirror(t.exchange):
        t.server.state = state_of(mirror)
        reported = _reported_of(t, mirror.round)
        progress = Progress(mirror.round, reported or dict(mirror.figures), reported is not None)
        how = "from the mirror"
        if mirror.round in checkpoint.committed(t.out):
            t.checkpoints.resume_from(mirror.round)
        if t.job.cohort.deadline is not None:  # this rank may have slept through a round, and silos not
            t.recovery.mark_diverged()
    elif restored := _restore(t):
        progress, how = restored, "from the last checkpoint"
    else:
        t.recovery.ask(Load)  # silos forget what they kept
        progress, how = _begin(t), "anew"
    t.observers.note(f"rank {me} is the server now and goes on {how}, after round {t.server.round}")
    return progress


def _reported_of(t: RunTraining, round: int) -> Record | None:
    """Return what the run folder says of a round, if it does."""
    return next((record for record in read_metrics(t.out) if record["round"] == round), None)
