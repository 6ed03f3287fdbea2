"""The round loop on rank 0, from the first round to the final model; other ranks answer its requests."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from mpifl.common import InputError, RoundLost, Table, code_of, ranks_named
from mpifl.common.machine import accelerators, signals
from mpifl.exchange import Federation
from mpifl.report.observers import Progress, Record, observers, stopped_early
from mpifl.run.folder import (
    FROZEN,
    OWN,
    Claim,
    amend_metrics,
    check_frozen,
    checkpoint,
    claim,
    describe,
    kept_of,
    note_lost,
    read_metrics,
    sha256_of_frozen,
    told_round,
    trim_metrics,
    write_environment,
)
from mpifl.run.job import Job
from mpifl.sums import is_finite
from mpifl.training.build import Built, build
from mpifl.training.hosting import successor
from mpifl.training.long_steps import LongSteps
from mpifl.training.recovery import latest_mirror
from mpifl.training.round_record import LastRound, reportable, score_before, scored_at_end
from mpifl.training.start import RunTraining, assemble, first_progress, open_shards, title
from mpifl.training.wing import WingsOf, core_alone, told_once
from mpifl.wire import Finish, FinishReply, Transport
from mpifl.wire.launching import library, survivable

ATTEMPTS = 3
"""How often a round is tried before too few answers end the run."""
DIVERGED = "if training diverged"
"""What reasons say of updates that are not finite."""


class End(Enum):
    """How a training has ended, unless it was given up."""

    FINISHED = "it is done, and the model is written"
    SAVED = "it was stopped, with a checkpoint written"
    UNSAVED = "it was stopped, and no checkpoint could be written"


def train(
    job: Path | Table | Job,
    out: Path,
    overrides: tuple[str, ...],
    resume: bool,
    transport: Transport,
    force: bool = False,
    on_round: Callable[[Record], bool] = lambda record: False,
    wings_of: WingsOf = core_alone,
) -> End:
    """Train a job; every rank of the world calls this.

    Args:
        job: The job, its tables, or its file; rank 0's value counts.
        out: The run folder.
        overrides: Keys of the job to change, such as `local.lr=0.05`.
        resume: Continue from the latest whole checkpoint in `out`, or start if there is none.
        force: Continue even if keys of the job have changed that affect only the rounds from there on.
        on_round: Called on rank 0 with each round's record; the training stops if it returns True.
        wings_of: Makes the wings that the job asks for.

    Returns:
        How the training ended; always FINISHED on ranks other than the server's.

    Raises:
        InputError: the job, a shard or an argument is wrong; rank 0's error has the line to show.
        RoundLost: too few silos answered in all attempts at a round (a checkpoint is written if possible), or
            the model is not finite.
        DeviceLost: this rank's GPU no longer answers.
    """
    with LongSteps() if transport.is_server else contextlib.nullcontext():
        built = build(job, out, overrides, resume, transport, force=force, wings_of=wings_of)
    device = built.server.model.device
    with accelerators.watched(device), accelerators.rounding(device, tf32=False):
        if not transport.is_server:
            if built.exchange.serve():
                return End.FINISHED
            built, resume = _taken_over(built), True
        with _stopping(built), LongSteps(lambda: built.server.round):
            return _run(assemble(built, out), resume, force, on_round)


@contextlib.contextmanager
def _stopping(built: Built) -> Iterator[None]:
    """Stop the other ranks at the end, and after InputError and RoundLost. Then they wait for the next
    request; after other errors they may not. What wings have started ends in any case."""
    try:
        yield
    except (InputError, RoundLost):
        _stop(built.exchange)
        raise
    finally:
        for wing in built.wings:
            wing.end()
    _stop(built.exchange)


def _taken_over(built: Built) -> Built:
    """Return the build with a new server's state, on a rank that replaces a dead server."""
    server, mirror = successor(built.job, built.spec, built.server), latest_mirror(built.exchange)
    server.round = mirror.round if mirror else 0  # before any request to silos
    return replace(built, server=server)


def _run(t: RunTraining, resume: bool, force: bool, on_round: Callable[[Record], bool]) -> End:
    """Open the shards, claim the run folder, begin or restore, train to the end, and write the model."""
    ranks = open_shards(t)
    with claim(t.out, t.job, t.spec, resume, force) as claimed:
        t.observers.attach(observers(t.job, t.out, t.exchange.names))
        for note in claimed.notes:
            t.observers.note(note)
        progress = first_progress(t, resume)
        t.selector.begin()
        t.best.begin()
        progress = progress.adding(t.best.observe(progress.record))
        t.exchange.move_to_shared_memory(t.server)
        _describe_run(t, progress, claimed, ranks)
        try:
            t.metrics.begin(t.out)
            if not progress.round:
                score_before(t)
            progress = _train_rounds(t, progress, on_round)
            if progress.finished(t.job, t.metric) and progress.record.get("model_round", 0) != t.best.kept:
                progress = _amended(t, progress)  # it ended before, by another keep_best
            saved = t.checkpoints.save_now()
            _tell_early_end(t, progress)
            if finished := progress.finished(t.job, t.metric):
                _finish(t)
        finally:  # last: lines for which there was no room may have it now
            t.observers.end()
        if lost := t.exchange.transport.lost:
            how = "finished" if finished else "stopped"
            t.observers.note(f"{how} without {ranks_named(lost)}, which died")
        return End.FINISHED if finished else End.SAVED if saved else End.UNSAVED


def _tell_early_end(t: RunTraining, progress: Progress) -> None:
    """Tell the user if the training has stopped before its last round: when, why, and what was best."""
    evaluate, records = t.job.evaluate, read_metrics(t.out) or [progress.record]
    told = (t.job.rounds, evaluate.stops_at, t.metric, evaluate.patience)
    if progress.round and (said := stopped_early(records, *told)):
        t.observers.note(said)


def _train_rounds(t: RunTraining, progress: Progress, on_round: Callable[[Record], bool]) -> Progress:
    """Run the remaining rounds, until the training is finished or must stop."""
    if progress.reported:  # a server may have died after its report, before it wrote a checkpoint
        _update_checkpoints(t)
    last = LastRound(t, progress, on_round)
    while not (last.progress.reported and (last.ends or signals.pending())):
        last.began = time.perf_counter()
        if last.progress.reported:  # else a server died after the round, and only its report is missing
            if (scalars := _attempt_round(t, last)) is None:
                return _amended(t, last.spend())
            t.server.round += 1
            last.next(scalars)
            _check_finite(t)
            if t.job.checkpoint.mirror and survivable():
                t.recovery.replicate(last.progress.record)
        last.close()
        if _update_checkpoints(t):
            t.recovery.run_with_recovery(lambda: t.exchange.rebalance(t.server, t.checkpoints.latest))
    last.complete()
    return last.progress


def _attempt_round(t: RunTraining, last: LastRound) -> Record | None:
    """Try a round until enough silos answer; return its figures. None if silos have spent their privacy
    budget since the round before, such as in another run. Raise RoundLost if too few answered in all
    attempts; a checkpoint is written."""
    for nth in range(ATTEMPTS):
        try:
            return _attempted(t, last, nth)
        except RoundLost as lost:
            what = f"round {t.server.round + 1} was lost: {lost}"
            t.exchange.ledger.lose(str(lost))
            if lost.spent and t.server.round:
                t.observers.note(what)
                return None
            if lost.in_vain or nth == ATTEMPTS - 1:
                raise _given_up(t, what, lost) from None
            t.observers.note(what)
    raise AssertionError("unreachable")


def _attempted(t: RunTraining, last: LastRound, nth: int) -> Record:
    """Try a round once; by then the score of the round before is there."""
    try:
        return t.recovery.run_with_recovery(functools.partial(_attempt, t, nth))
    finally:
        last.complete()


def _amended(t: RunTraining, progress: Progress) -> Progress:
    """Note in the last round's record what is told at the end."""
    before = {name: of for name, of in progress.record.items() if name not in ("model_round", "answers")}
    progress = replace(progress, record=before | scored_at_end(t))
    amend_metrics(t.out, progress.record)
    return progress


def _attempt(t: RunTraining, nth: int) -> Record:
    """Draw the cohort and run the algorithm's round."""
    t.recovery.realign()
    drawn = t.selector.select(t.exchange.membership.undrawn)
    cohort = t.exchange.cohort(drawn, t.server, nth)
    scalars = reportable(t.algorithm.round(t.server, cohort), t.algorithm, t.exchange.names)
    t.selector.learn(cohort.losses)
    moved = {} if cohort.update_norm is None else {"update_norm": cohort.update_norm}
    return scalars | moved | t.selector.pass_time(drawn, t.exchange.names)


def _check_finite(t: RunTraining) -> None:
    """End the run if the model holds NaN or Inf, so that no such model is written. Raise RoundLost if it
    does; a checkpoint in progress is finished first."""
    vectors = [*{"w": t.server.state["w"], **t.algorithm.global_model(t.server)}.values()]
    vectors += [t.server.state["statistics"]] if "statistics" in t.server.state else []
    if all(is_finite(vector) for vector in vectors):
        return
    t.checkpoints.commit_if_written(wait=True)
    committed = t.checkpoints.committed
    last = f"the last checkpoint is of round {committed}" if committed >= 0 else "there is no checkpoint"
    what = f"the model's parameters are not finite after round {t.server.round}, and are not written; {last}"
    note_lost(t.out, what)
    raise RoundLost(what)


def _update_checkpoints(t: RunTraining) -> bool:
    """Begin a checkpoint if one is due, and commit it if it is written. Return whether a checkpoint of the
    current state was committed."""
    return t.checkpoints.update(should_wait=t.exchange.would_rebalance)


def _given_up(t: RunTraining, what: str, lost: RoundLost) -> RoundLost:
    """Write a checkpoint, and return the error that ends the run."""
    saved = "a checkpoint is written" if t.checkpoints.save_now() else "no checkpoint could be written"
    note_lost(t.out, what)
    quorum = f"; [cohort] quorum = {t.job.cohort.quorum} of the cohort must answer" if lost.few else ""
    quorum = "; every party must answer" if t.job.split else "" if t.job.needs_all else quorum
    again, code = "continue with --resume", " or code of your own" if t.job.plugins else ""
    if lost.in_vain and not signals.pending():
        again = f"correct it, then {again} (and --force, if the job{code} has changed)"
    elif DIVERGED in what:  # the same job would end so again
        lower = "with a lower [local] lr, train anew with another --out"
        return RoundLost(f"{what}{quorum}; {saved}: {lower}, or {again} --force")
    return RoundLost(f"{what}; {saved}: {again}" if lost.in_vain else f"{what}{quorum}; {saved}, {again}")


def _describe_run(
    t: RunTraining, progress: Progress, claimed: Claim, ranks: dict[str, dict[str, str]]
) -> None:
    """Write the run's environment into its folder, and tell the observers that the run begins. Raise
    InputError if a resumed run has other frozen weights than before."""
    frozen = sha256_of_frozen(t.server.model.module) if t.job.model.save == "trained" else ""
    check_frozen(frozen, t.out, str(t.out))
    done = progress.round - (not progress.reported)
    of_an_end = () if progress.finished(t.job, t.metric) else ("model_round", "answers")
    trim_metrics(t.out, done, of_an_end)
    more: dict[str, Any] = {"silos": told} if (told := t.exchange.names.told) else {}
    more |= {"mpi": library(), "ranks": ranks, "data": describe(t.spec), "metric": t.metric.model_dump()}
    more["metrics"] = [info.model_dump() for info in t.algorithm.task.infos.values()]
    more |= {"resumed_after_round": done, "own_models": t.algorithm.own_models, **kept_of(t.spec)}
    more["code"] = code_of(t.job.plugins.values())
    more |= {FROZEN: frozen} if frozen else {}
    more |= told_once({*more, *OWN}, t.wings, lambda wing: wing.environment(), "of the run's environment")
    changes = [f"{change} after round {done}" for change in claimed.changes]
    write_environment(t.out, changes, **more)
    transport = t.exchange.transport
    workers = [ranks[name] for rank in transport.workers if (name := str(transport.origins[rank])) in ranks]
    t.observers.begin(done, title(t.job, t.spec, t.server, workers))


def _finish(t: RunTraining) -> None:
    """Write the run's model, and send it to every silo; before that write the last one, if it is another.

    Raises:
        Unwritable: it cannot be written here.
        InputError: it cannot be written at a silo.
    """
    server, last = t.server, t.out / "last.safetensors"
    if t.best.kept:
        checkpoint.write_model(last, server.load(server.state["w"]), told_round(server.round))
    else:
        last.unlink(missing_ok=True)
    with t.best.lent() as kept:
        model = server.load(server.state["w"])
        sha256 = checkpoint.write_model(t.out / "model.safetensors", model, told_round(kept))
        vectors = t.algorithm.global_model(server)
        if vectors and "statistics" in server.state:
            vectors["statistics"] = server.state["statistics"]
        answer = t.recovery.ask(Finish, vectors, sha256=sha256, kept=kept)
    if t.best.lacks:
        t.observers.note("no model of the best round is kept; model.safetensors is of the last round")
    if unwritten := [reply.unwritten for reply in answer.of(FinishReply).values() if reply.unwritten]:
        raise InputError(unwritten[0])


def _stop(exchange: Federation) -> None:
    """Stop the other ranks."""
    if hanging := exchange.stop():
        print(f"ended without {ranks_named(hanging)}: no answer", file=sys.stderr, flush=True)
