"""A training from a job file to a model: build everything on every rank, then the round loop on rank 0."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, RoundLost, ranks_named, signals
from mpifl.data import FederationSpec
from mpifl.exchange import Federation
from mpifl.run import Claim, Job, checkpoint, claim, describe, note_lost, read_metrics, trim_metrics, write_environment
from mpifl.server import Server
from mpifl.tracking import Observer, Record, check_packages, observers, reached
from mpifl.training.build import build, successor
from mpifl.training.checkpointing import Saving
from mpifl.training.metrics import Recorder, reportable, title
from mpifl.training.recovery import Survival, latest_mirror, state_of
from mpifl.training.rehearsal import memory_notes
from mpifl.training.sampling import sample
from mpifl.wire import Finish, FinishReply, Load, Open, Transport, library, survivable

ATTEMPTS = 3
"""How often a round is asked before too few answers end the run."""


class End(Enum):
    """How a training ends that is not lost."""

    FINISHED = "it is done, and the model is written"
    SAVED = "a signal stopped it, with a checkpoint written"
    UNSAVED = "a signal stopped it, and no checkpoint could be written"


def train(
    job_file: Path, out: Path, overrides: tuple[str, ...], resume: bool, transport: Transport, force: bool = False
) -> End:
    """Train as a job file says; every rank of the world calls this.

    Args:
        job_file: The job; read by rank 0 only.
        out: The run folder.
        overrides: Keys of the job to change, such as `local.lr=0.05`.
        resume: Go on from the latest whole checkpoint in `out`, or start if there is none.
        transport: The world.
        force: Go on even where the job has changed in keys that only change the training from there on.

    Returns:
        How it ended; on other ranks than the server's FINISHED always.

    Raises:
        InputError: the job, a shard or an argument is wrong; on rank 0 with the line to show.
        RoundLost: too few silos answered, again and again; a checkpoint was written.
    """
    job, spec, server, federation = build(job_file, out, overrides, resume, transport, force)
    if not transport.is_server:
        if federation.serve():
            return End.FINISHED
        server, resume = successor(job, spec, server), True
        mirror = latest_mirror(federation)
        server.round = mirror.round if mirror else 0  # before silos are asked anything
    try:
        end = _Training(job, spec, out, server, federation).run(resume, force)
    except (InputError, RoundLost):  # all ranks wait for the next request; after any other error they may not
        _stop(federation)
        raise
    _stop(federation)
    return end


def _stop(federation: Federation) -> None:
    if hanging := federation.stop():
        print(f"ended without {ranks_named(hanging)}: no answer", file=sys.stderr, flush=True)


class _Training:
    """The server's side of one training."""

    def __init__(self, job: Job, spec: FederationSpec, out: Path, server: Server, federation: Federation) -> None:
        self._job, self._spec, self._out = job, spec, out
        self._server, self._federation = server, federation
        self._algorithm: Algorithm = job.build_algorithm()
        self._observers: list[Observer] = []
        self._sizes = [entry.examples["train"] for entry in spec.silos]
        federation.listen(functools.partial(self._tell, "note"))
        self._survival = Survival(federation, server, out, self._sizes, self._algorithm.realign)
        self._saving = Saving(out, job.checkpoint, server, self._survival)
        self._recorder = Recorder(job, spec, self._algorithm, server, self._survival)
        self._unreported: dict[str, Any] | None = None
        """What a round brought that a server did which died before it had said so."""
        self._told: Record | None = None
        """Of a round that it had told of: what it did not come to is looked after now."""

    def run(self, resume: bool, force: bool) -> End:
        """Open the shards, take the run folder, begin or restore, go round until the end, and leave the model."""
        check_packages(self._job)
        ranks, warnings = self._open_shards()
        with claim(self._out, self._job, self._spec, resume, force) as claimed:
            self._observers = observers(self._job, self._out, self._federation.names)
            for note in warnings + claimed.notes:
                self._tell("note", note)
            self._survival.listen(lambda note: self._tell("note", note))
            if self._federation.transport.origins[0] != 0:
                self._succeed()
            elif not (resume and self._restore()):
                self._begin()
            self._federation.move_to_shared_memory(self._server)
            return self._run(ranks, claimed)

    def _run(self, ranks: dict[str, dict[str, str]], claimed: Claim) -> End:
        done = self._server.round - (self._unreported is not None)
        trim_metrics(self._out, done)
        names: dict[str, Any] = {"silos": told} if (told := self._federation.names.told) else {}
        names["metric"] = self._algorithm.task.main_metric.model_dump()
        changes = [f"{change} after round {done}" for change in claimed.changes]
        write_environment(
            self._out, changes, mpi=library(), ranks=ranks, data=describe(self._spec), resumed_after_round=done, **names
        )
        self._tell("begin", done, title(self._job, self._spec, self._server, ranks))
        try:
            end = self._rounds()
        finally:
            self._tell("end")
        if end is End.FINISHED:
            self._finish()
        if lost := self._federation.transport.lost:
            how = "finished" if end is End.FINISHED else "stopped"
            self._tell("note", f"{how} without {ranks_named(lost)}, which died")
        return end

    def _rounds(self) -> End:
        """Run the rounds that are left, until the training is done or interrupted."""
        job, server = self._job, self._server
        done = self._told is not None and self._follow(self._told)
        done = done or (self._unreported is not None and self._report(self._unreported, time.perf_counter()))
        while server.round < job.rounds and not done and not signals.pending():
            began = time.perf_counter()
            scalars = self._retry_lost_rounds()
            server.round += 1
            self._saving.check_finite(self._algorithm.global_model(server).values())
            if job.checkpoint.mirror and survivable():
                self._survival.mirror(scalars)
            done = self._report(scalars, began)
        saved = self._saving.last()
        return End.FINISHED if done or server.round >= job.rounds else End.SAVED if saved else End.UNSAVED

    def _round(self, attempt: int) -> dict[str, float]:
        server, federation = self._server, self._federation
        present: Sequence[int] = range(federation.population)  # of thousands, copied only if some are not there
        sizes = self._sizes
        if absent := federation.membership.unavailable:
            present = [silo for silo in present if silo not in absent]
            sizes = [sizes[silo] for silo in present]
        drawn = [present[nth] for nth in sample(self._job.cohort, sizes, self._job.seed, server.round)]
        cohort = federation.cohort(drawn, server, attempt)
        return reportable(self._algorithm.round(server, cohort), self._algorithm)

    def _report(self, scalars: dict[str, Any], began: float) -> bool:
        """Say what a round brought, and do what follows; return whether the target is reached."""
        record = self._recorder.record(scalars, began)
        if self._saving.seconds:
            record["seconds_checkpoint"], self._saving.seconds = self._saving.seconds, 0.0
        self._tell("round", record)
        return self._follow(record)

    def _follow(self, record: Record) -> bool:
        """Write a checkpoint where one is due; return whether the target is reached."""
        self._saving.after_round()
        return self._job.evaluate.stop_at_target and self._reached(record)

    def _retry_lost_rounds(self) -> dict[str, float]:
        server = self._server
        for attempt in range(ATTEMPTS):
            try:
                return self._survival.through(functools.partial(self._round, attempt))
            except RoundLost as lost:
                what = f"round {server.round + 1} was lost: {lost}"
                self._federation.ledger.lose(str(lost))
                if lost.in_vain or attempt == ATTEMPTS - 1:
                    raise self._given_up(what, lost.in_vain) from None
                self._tell("note", what)
        raise AssertionError("unreachable")

    def _given_up(self, what: str, in_vain: bool) -> RoundLost:
        """Write a checkpoint, and return how the run ends."""
        saved = "a checkpoint is written" if self._saving.last() else "no checkpoint could be written"
        note_lost(self._out, what)
        quorum = f"; [cohort] quorum = {self._job.cohort.quorum} of the cohort must answer"
        return RoundLost(
            f"{what}; {saved}: mend it, and go on with --resume"
            if in_vain
            else f"{what}{quorum}; {saved}, go on with --resume"
        )

    def _reached(self, record: Record) -> bool:
        return reached(record, self._algorithm.task.main_metric, self._job.evaluate.wanted)

    def _open_shards(self) -> tuple[dict[str, dict[str, str]], list[str]]:
        """Have every worker open and verify its shards; a broken one ends the run unless the quorum allows for it.

        Returns:
            What each worker says of itself, and what the user should be warned of.
        """
        opened = self._survival.ask(Open)
        if opened.faults and self._job.cohort.quorum == 1.0:
            first = next(iter(opened.faults.values()))
            more = f" (and {len(opened.faults) - 1} more silos)" if len(opened.faults) > 1 else ""
            raise InputError(f"{first}{more}; [cohort] quorum below 1 would go on without")
        names = self._federation.names
        warnings = [f"going on without silo {names[k]} while it is broken: {why}" for k, why in opened.faults.items()]
        silos, workers = len(self._spec.silos), len(self._federation.transport.workers)
        if silos < workers:
            warnings.append(f"{workers - silos} of {workers} workers have no silo and stay idle: there are {silos}")
        origins = self._federation.transport.origins
        about = {str(origins[rank]): about for rank, about in sorted(self._federation.membership.about.items())}
        return about, warnings + self._idle_settings()

    def _idle_settings(self) -> list[str]:
        """Say which keys of the job can have no effect here."""
        idle = self._job.idle(self._algorithm)
        if self._job.checkpoint.mirror and not survivable():
            idle.append("[checkpoint] mirror = true: without --survive nobody looks into it, and none is made")
        hosted = [len(silos) for silos in self._federation.membership.placed.values()]
        idle += memory_notes(self._job, hosted, len(self._server.model.shared))
        return idle + self._recorder.target_notes()

    def _begin(self) -> None:
        self._server.state = self._server.begun(self._algorithm.begin)
        checkpoint.write_model(self._out / "initial.safetensors", self._server.model)

    def _succeed(self) -> None:
        """Go on where the server was that died: after the round that this rank has a mirror of, else as if resumed."""
        if mirror := latest_mirror(self._federation):
            self._told = self._told_of(mirror.round)
            self._unreported = None if self._told else dict(mirror.scalars)
            self._server.state = state_of(mirror, self._server.model.device)
        elif not self._restore():
            self._survival.ask(Load)  # silos forget what they kept
            self._begin()
        how = "from the mirror" if mirror else "from the last checkpoint" if self._server.round else "anew"
        me = self._federation.transport.origins[0]
        self._tell("note", f"rank {me} is the server now and goes on {how}, after round {self._server.round}")

    def _told_of(self, round: int) -> Record | None:
        return next((record for record in read_metrics(self._out) if record["round"] == round), None)

    def _restore(self) -> bool:
        """Load the latest checkpoint that is whole, on the server and at the silos; return whether there is one."""
        rounds, moments = checkpoint.rounds(self._out), self._algorithm.server_optimizer.moments
        begun = self._server.begun(self._algorithm.begin) if rounds else {}
        for round in rounds:
            try:
                state, silos = checkpoint.read(self._out, round, begun, moments)
                self._server.round = round
                loaded = self._survival.ask(Load, files=dict(silos))
                if loaded.faults:
                    raise checkpoint.CheckpointError(next(iter(loaded.faults.values())))
            except checkpoint.CheckpointError as error:
                self._tell("note", f"{error}; using the checkpoint before it")
                continue
            device = self._server.model.device
            self._server.state = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in state.items()}
            self._saving.committed = round
            if not self._algorithm.aligned(self._server, self._federation.everyone(self._server)):
                self._survival.realign()
            self._told = self._told_of(round) or self._recorder.evaluated()
            return True
        self._server.round = 0
        if rounds:
            self._survival.ask(Load)  # silos forget what a broken checkpoint gave them
            self._tell("note", f"{self._out}: no checkpoint is whole, starting anew")
        return False

    def _finish(self) -> None:
        """Write the model, and let every silo have it.

        Raises:
            Unwritable: it cannot be written here, or where a silo is.
        """
        server = self._server
        model = server.load(server.state["w"])
        sha256 = checkpoint.write_model(self._out / "model.safetensors", model)
        vectors = self._algorithm.global_model(server)
        if "statistics" in server.state:
            vectors["statistics"] = server.state["statistics"]
        answer = self._survival.ask(Finish, vectors, sha256=sha256)
        if unwritten := [reply.unwritten for reply in answer.of(FinishReply).values() if reply.unwritten]:
            raise InputError(unwritten[0])

    def _tell(self, what: str, *told: Any) -> None:
        for observer in self._observers:
            getattr(observer, what)(*told)
