"""The parts of a training on the server, and its start: anew, from a checkpoint, or after a dead server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpifl.algorithms import Algorithm, Server
from mpifl.common import RoundLost, count_of
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation, first_of
from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import Observers, Progress, Record
from mpifl.run.folder import checkpoint, note_lost, read_environment, read_metrics
from mpifl.run.job import Job
from mpifl.training.beforehand import differing, moved, notes_at_start, notes_on_broken
from mpifl.training.build import Built
from mpifl.training.checkpointing import CheckpointManager
from mpifl.training.devices import unused_gpus
from mpifl.training.draw_cohort import Selector, round_clock
from mpifl.training.early_stopping import BestModel
from mpifl.training.hosting import BOTTOMS
from mpifl.training.recovery import Recovery, latest_mirror, state_of
from mpifl.training.round_metrics import MetricsCollector
from mpifl.training.wing import ModelFacts, Wing, of_one
from mpifl.wire import Load, Open
from mpifl.wire.launching import library, survivable


@dataclass(frozen=True)
class RunTraining:
    """The parts of one training on the server.

    Attributes:
        job, spec, algorithm: The job, the federation, and the algorithm for it.
        out: The run folder.
        server: The state of the training.
        exchange: Sends requests to the silos.
        observers: Get each round's record, and notes for the user.
        recovery: Keeps the training going when ranks die.
        checkpoints: Writes and commits checkpoints.
        metrics: The figures of each round.
        selector: Chooses the silos of each round.
        best: Records which round's model was best.
        wings: The wings that the job asks for.
    """

    job: Job
    spec: AnySpec
    algorithm: Algorithm
    out: Path
    server: Server
    exchange: Federation
    observers: Observers
    recovery: Recovery
    checkpoints: CheckpointManager
    metrics: MetricsCollector
    selector: Selector
    best: BestModel
    wings: Sequence[Wing]

    @property
    def metric(self) -> MetricInfo:
        """The task's main metric, which judges the training."""
        return self.algorithm.task.main_metric


def assemble(built: Built, out: Path) -> RunTraining:
    """Return the parts of a training on the server."""
    job, spec, server, exchange, wings = built.job, built.spec, built.server, built.exchange, built.wings
    algorithm = job.build_algorithm().for_federation(spec)
    observers = Observers()
    exchange.listen(observers.note)
    sizes = [entry.examples["train"] for entry in spec.silos]
    recovery = Recovery(exchange, server, out, sizes, observers.note, algorithm)
    checkpoints = CheckpointManager(out, job.checkpoint, server, recovery, observers)
    metrics = MetricsCollector(job, spec, algorithm, server, recovery, note=observers.note, wings=wings)
    coins = of_one(wings, lambda wing: wing.coins(len(spec.silos), out), "the draw of silos")
    for wing in wings:
        wing.begin(server, exchange, observers.note)
    return RunTraining(
        job=job,
        spec=spec,
        algorithm=algorithm,
        out=out,
        server=server,
        exchange=exchange,
        observers=observers,
        recovery=recovery,
        checkpoints=checkpoints,
        metrics=metrics,
        selector=Selector(job.cohort, sizes, server, coins, round_clock(algorithm, spec, job.seed)),
        best=BestModel(job.evaluate, algorithm, server, out),
        wings=wings,
    )


def title(job: Job, spec: AnySpec, server: Server, workers: Sequence[Mapping[str, str]]) -> str:
    """Return a training's first line; `workers` holds what each worker reports of itself."""
    devices = sorted({f"{one['host']} {one['device']}, threads {one['threads']}" for one in workers})
    model = _model(job, f"{len(server.model.trained):,}", workers)
    many = f"{len(workers)} worker{'s' * (len(workers) != 1)}"
    where = f"{count_of(len(spec.silos), 'silo')} on {many} ({'; '.join(devices)})"
    return f"{job.name}: {job.algorithm['name']}, {model}, {where}, {library()}"


def _model(job: Job, parameters: str, workers: Sequence[Mapping[str, str]]) -> str:
    """Return the model's name and number of parameters; for a split network, of its parts, as workers
    report."""
    if job.split is None:
        return f"{job.model.name} with {parameters} parameters"
    top = "sum" if job.split.top == "none" else job.split.top["name"]
    names = dict.fromkeys([job.model.name, *(str(one["name"]) for one in job.split.bottoms.values())])
    bottoms = ", ".join(about[BOTTOMS] for about in workers if about.get(BOTTOMS))
    return f"top {top} with {parameters} parameters, bottoms {' and '.join(names)} with {bottoms}"


def open_shards(t: RunTraining) -> dict[str, dict[str, str]]:
    """Let every worker open and verify its shards; return what each worker reports of itself.

    Warnings for the user are noted.

    Raises:
        InputError: a shard is broken, and the quorum does not allow a missing silo.
    """
    faults = t.recovery.ask(Open).faults
    for note in notes_on_broken(t.job, faults, t.exchange.names):
        t.observers.note(note)
    origins, member = t.exchange.transport.origins, t.exchange.membership
    ranks = {str(origins[rank]): about for rank, about in sorted(member.about.items())}
    noted = [*_of_job(t), *_idle_workers(t), *_idle_settings(t), *_other_bits(t, ranks)]
    noted += [unused_gpus(t.job.device, ranks)]
    for warning in filter(None, noted):
        t.observers.note(warning)
    return ranks


def first_progress(t: RunTraining, resume: bool) -> Progress:
    """Give the server and silos their first state; return the progress of the training."""
    if t.exchange.transport.origins[0] != 0:
        return _succeed(t)
    return (_restore(t) if resume else None) or _begin(t)


def _other_bits(t: RunTraining, ranks: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return warnings on ranks that compute other bits than the rest, or than the ranks that began the
    run."""
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
    """Return notes on keys of the job that have no effect here."""
    idle = []
    if t.job.checkpoint.mirror and not survivable():
        idle.append("[checkpoint] mirror = true: it is not used without --survive, so none is made")
    for wing in t.wings:
        idle += wing.notes(t.server, t.exchange)
    return idle


def _of_job(t: RunTraining) -> list[str]:
    """Return notes on the job that need no ranks."""
    model = t.server.model
    facts = ModelFacts(len(model.shared), bool(len(model.statistics)), t.server.judges)
    return notes_at_start(t.job, t.spec, t.algorithm, t.wings, lambda: facts)


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
        t.recovery.ask(Load)  # silos drop what a broken checkpoint gave them
        t.observers.note(f"{t.out}: no checkpoint is whole, starting from round 1")
    return None


def _load(t: RunTraining, round: int, begun: Mapping[str, Any]) -> None:
    """Load a checkpoint at the silos and on the server; CheckpointError if it is not whole."""
    state, silos = checkpoint.read(t.out, round, begun, t.algorithm.server_optimizer.moments)
    t.server.round = round
    if faults := t.recovery.ask(Load, files=dict(silos)).faults:
        raise checkpoint.CheckpointError(first_of(faults, t.exchange.names))
    t.server.state = state


def _succeed(t: RunTraining) -> Progress:
    """Continue after the server's death: from this rank's mirror, else as if resumed. Raise RoundLost if sums
    are masked, and parties give their sums to no other server."""
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
        if t.job.cohort.deadline is not None:  # this rank may have missed a round that silos took part in
            t.recovery.mark_diverged()
    elif restored := _restore(t):
        progress, how = restored, "from the last checkpoint"
    else:
        t.recovery.ask(Load)  # silos drop what they kept
        progress, how = _begin(t), "again"
    t.observers.note(f"rank {me} is the server now and continues {how}, after round {t.server.round}")
    return progress


def _reported_of(t: RunTraining, round: int) -> Record | None:
    """Return the run folder's record of a round, or None."""
    return next((record for record in read_metrics(t.out) if record["round"] == round), None)
