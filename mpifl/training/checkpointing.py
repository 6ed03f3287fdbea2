"""Checkpoints of a training: when one begins and when it is committed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.exchange import first_of
from mpifl.exchange.server_side import Outcome
from mpifl.report.observers import Observers
from mpifl.run.folder import CheckpointError, StateWriter, checkpoint
from mpifl.run.job.tables import Checkpoint
from mpifl.training.recovery import Recovery
from mpifl.wire import FileReply, Save, SaveStatus


class CheckpointManager:
    """Lets all ranks write their parts of a checkpoint, and commits it when all are written.

    At most one checkpoint is being written, and the next waits for it. So a failure costs at most `every`
    rounds plus the rounds that writing takes. In the foreground, training waits until the checkpoint is
    written.

    Attributes:
        committed: The round of this training's last committed checkpoint, or -1.
        latest: The sha256 of each silo's file in that checkpoint, for silos that keep state.
    """

    def __init__(
        self, run: Path, table: Checkpoint, server: Server, recovery: Recovery, observers: Observers
    ) -> None:
        self._run = run
        self._table = table
        self._server = server
        self._recovery = recovery
        self._observers = observers
        self._writer = StateWriter()
        self._copy: dict[str, Tensor] = {}
        self._due = False
        self._begun: int | None = None
        self._keeping: list[int] = []
        """The silos that write a file for it. Until it ends they do not move, except after deaths."""
        self._lost: list[int] = []
        """The ranks that had died before it began."""
        self._seconds = 0.0
        self.committed = -1
        self.latest: dict[int, str] = {}

    @property
    def due(self) -> bool:
        """Whether a checkpoint of the server's current state is to begin."""
        round = self._server.round
        return self._due or (round % self._table.every == 0 and round not in (0, self.committed))

    def update(self, should_wait: Callable[[], bool] = lambda: False) -> bool:
        """Commit the checkpoint if it is written, and begin another if one is due.

        Args:
            should_wait: Called after a checkpoint began in the background; tells whether to wait for it.

        Returns:
            Whether a checkpoint of the server's current state has just been committed.
        """
        began, before, round = time.perf_counter(), self.committed, self._server.round
        self._due = self.due
        if not self._due and self._begun is None:
            return False
        if self._begun is not None and not self._writer.writing(self._server_file()):
            self.commit_if_written(wait=False)
        if self._due:
            self._save(self._table.background, should_wait)
        self._seconds += time.perf_counter() - began
        return self.committed == round != before

    def save_now(self) -> bool:
        """Write a checkpoint of the current state if there is none; return whether there is one now."""
        self._due = True
        self._save(background=False)
        return self.committed == self._server.round

    def resume_from(self, round: int) -> None:
        """Note that the training continues from this checkpoint."""
        self.committed = round

    def take_seconds(self) -> float:
        """Return how long checkpoints have delayed the training since the last call, in seconds."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def commit_if_written(self, wait: bool) -> None:
        """Commit the current checkpoint if all ranks have written it; give it up if a rank could not."""
        if self._begun is None:
            return
        answer = self._recovery.run_with_recovery(functools.partial(self._ask_whether_written, wait))
        replies = answer.of(FileReply)
        if any(reply.writing for reply in replies.values()):
            return
        try:
            own = self._writer.digest(self._server_file())
            names, lost = self._recovery.federation.names, [k for k in self._keeping if k not in replies]
            if answer.faults or lost:
                fault = first_of(answer.faults, names) if answer.faults else f"silo {names[lost[0]]} is lost"
                raise CheckpointError(fault)
            digests = {silo: reply.sha256 for silo, reply in replies.items() if reply.sha256}
            self._observers.flush()
            checkpoint.commit(self._run, self._begun, own, digests)
        except (OSError, CheckpointError) as error:
            self._give_up(str(error))
        else:
            self.committed, self._begun = self._begun, None
            self.latest = digests
            checkpoint.keep(self._run, self._table.keep, self.committed)

    def _save(self, background: bool, should_wait: Callable[[], bool] = lambda: True) -> None:
        self.commit_if_written(wait=True)
        while self._due and self.committed != self._server.round:
            self._begin(copied=background)
            if not background or should_wait():
                self.commit_if_written(wait=True)
        self._due = False

    def _begin(self, copied: bool) -> None:
        """Let all ranks begin to write, with states of server and silos that belong to one round.

        If a rank dies meanwhile and its silos move with an older state, the checkpoint is given up and
        another is due.
        """
        self._recovery.run_with_recovery(self._recovery.realign)
        server, diverged = self._server, self._recovery.diverged
        checkpoint.discard(self._run, server.round)
        self._due, self._begun, self._lost = False, server.round, self._dead()
        self._writer.begin(self._server_file(), self._copied(server.state) if copied else server.state)
        oldest = min(checkpoint.committed(self._run), default=0)
        answer = self._recovery.ask(Save, oldest=oldest)
        self._keeping = [silo for silo, reply in answer.of(FileReply).items() if reply.writing]
        if answer.faults:
            self._give_up(first_of(answer.faults, self._recovery.federation.names))
        elif self._recovery.diverged > diverged:
            self._give_up("silos moved meanwhile, with what they kept in an earlier round")

    def _copied(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the state. It reuses the last copy's memory where shapes fit, since new pages cost
        time."""
        before, self._copy = self._copy, {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                copy = before.get(name)
                if copy is None or (copy.shape, copy.dtype) != (value.shape, value.dtype):
                    copy = torch.empty_like(value, device="cpu")
                self._copy[name] = copy.copy_(value)
        return {**state, **self._copy}

    def _ask_whether_written(self, wait: bool) -> Outcome:
        """Ask the silos that write a file whether it is written."""
        if not self._keeping:
            return Outcome()
        asked = self._recovery.federation.cohort(self._keeping, self._server)
        assert self._begun is not None
        return asked.ask(SaveStatus, checkpoint=self._begun, wait=wait)

    def _give_up(self, why: str) -> None:
        """Give up the current checkpoint; the one before it stays, and training continues.

        If a rank died meanwhile, another checkpoint is due at once.
        """
        assert self._begun is not None
        self._due |= self._dead() != self._lost
        what = f"the checkpoint of round {self._begun} could not be written ({why}); training continues"
        self._observers.note(what, once=("checkpoint", why))
        checkpoint.discard(self._run, self._begun)
        self._begun = None

    def _dead(self) -> list[int]:
        return list(self._recovery.federation.transport.lost)

    def _server_file(self) -> Path:
        assert self._begun is not None
        return checkpoint.server_file(self._run, self._begun)
