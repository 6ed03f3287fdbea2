"""Checkpoints of a training: when one is begun, when it counts, how long it is kept."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.aggregation import is_finite
from mpifl.common import RoundLost
from mpifl.exchange import Outcome
from mpifl.run import Checkpoint, CheckpointError, Writer, checkpoint, note_lost
from mpifl.server import Server
from mpifl.training.recovery import Survival
from mpifl.wire import FileReply, Save, SaveStatus


class Saving:
    """Has all ranks write what they hold of a checkpoint, and commits it when they have.

    At most one is being written; the next waits for it, so that no more than `every` rounds and those that one takes
    are ever at stake. In the foreground a checkpoint is waited for as soon as it is begun.
    """

    def __init__(self, run: Path, table: Checkpoint, server: Server, survival: Survival) -> None:
        self._run, self._table, self._server, self._survival = run, table, server, survival
        self._writer = Writer()
        self._copy: dict[str, Tensor] = {}
        self._due = False
        self._begun: int | None = None
        self._keeping: list[int] = []
        """The silos that have a file in it; they stay where they are until then, but for deaths."""
        self._lost: list[int] = []
        """The ranks that had died when it was begun."""
        self.committed = -1
        """Rounds done at the last checkpoint that counts, if it is of this training."""
        self.seconds = 0.0
        """How long checkpoints have held the training up."""
        self._told = ""
        """Why the last one could not be written, as the user knows."""

    def after_round(self) -> None:
        """Commit what is written by now, and begin a checkpoint where one is due."""
        began = time.perf_counter()
        self._due |= self._server.round % self._table.every == 0
        if not self._due and self._begun is None:
            return
        if self._begun is not None and not self._writer.writing(self._server_file()):
            self._conclude(wait=False)
        if self._due:
            self._save(wait=not self._table.background)
        self.seconds += time.perf_counter() - began

    def last(self) -> bool:
        """Write a checkpoint of the state as it is, unless there is one; return whether there is one then."""
        self._due = True
        self._save(wait=True)
        return self.committed == self._server.round

    def check_finite(self, model: Iterable[Tensor]) -> None:
        """End the run where the model holds NaN or Inf: no file is to say that this is what was learned.

        Raises:
            RoundLost: it does; a checkpoint that was begun is finished first.
        """
        state = self._server.state
        statistics = [state["statistics"]] if "statistics" in state else []
        if all(is_finite(vector) for vector in (*model, *statistics)):
            return
        self._due = False
        self._conclude(wait=True)
        last = f"the last checkpoint is of round {self.committed}" if self.committed >= 0 else "there is no checkpoint"
        what = f"the model is not finite after round {self._server.round}, and is not written; {last}"
        note_lost(self._run, what)
        raise RoundLost(what)

    def _save(self, wait: bool) -> None:
        self._conclude(wait=True)
        while self._due and self.committed != self._server.round:
            self._begin(copied=not wait)
            # Silos may move only with what has just been written.
            if wait or self._survival.federation.would_rebalance():
                self._conclude(wait=True)
        self._due = False

    def _begin(self, copied: bool) -> None:
        server = self._server
        checkpoint.discard(self._run, server.round)
        self._due, self._begun, self._lost = False, server.round, self._dead()
        self._writer.begin(self._server_file(), self._copied(server.state) if copied else server.state)
        answer = self._survival.ask(Save)
        self._keeping = [silo for silo, reply in answer.of(FileReply).items() if reply.writing]
        if answer.faults:
            self._give_up(next(iter(answer.faults.values())))

    def _copied(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy, in the memory of the last one where that fits: fresh pages would take longer to get."""
        before, self._copy = self._copy, {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                copy = before.get(name)
                if copy is None or (copy.shape, copy.dtype) != (value.shape, value.dtype):
                    copy = torch.empty_like(value, device="cpu")
                self._copy[name] = copy.copy_(value)
        return {**state, **self._copy}

    def _conclude(self, wait: bool) -> None:
        """Commit the checkpoint that was begun, if one was and all have written it; give it up if one could not."""
        if self._begun is None:
            return
        answer = self._survival.through(functools.partial(self._saved, wait))
        replies = answer.of(FileReply)
        if any(reply.writing for reply in replies.values()):
            return
        try:
            own = self._writer.digest(self._server_file())
            if faults := [
                *answer.faults.values(),
                *(f"silo {self._survival.federation.names[k]} is lost" for k in self._keeping if k not in replies),
            ]:
                raise CheckpointError(faults[0])
            digests = {silo: reply.sha256 for silo, reply in replies.items() if reply.sha256}
            checkpoint.commit(self._run, self._begun, own, digests)
        except (OSError, CheckpointError) as error:
            self._give_up(str(error))
        else:
            self._follow(digests)

    def _saved(self, wait: bool) -> Outcome:
        """Ask the silos that have a file in the checkpoint whether it is written."""
        if not self._keeping:
            return Outcome()
        asked = self._survival.federation.cohort(self._keeping, self._server)
        assert self._begun is not None
        return asked.ask(SaveStatus, checkpoint=self._begun, wait=wait)

    def _follow(self, digests: dict[int, str]) -> None:
        """Do what a new checkpoint allows: old ones go, and silos that have too slow a rank."""
        assert self._begun is not None
        self.committed, self._begun = self._begun, None
        checkpoint.keep(self._run, self._table.keep, self.committed)
        if self.committed == self._server.round:
            self._survival.through(lambda: self._survival.federation.rebalance(self._server, digests))

    def _give_up(self, why: str) -> None:
        """Let go of the checkpoint that was begun; the one before it stays, and training goes on.

        If a rank died meanwhile, with what it was to write, another is due at once.
        """
        assert self._begun is not None
        self._due |= self._dead() != self._lost
        if why != self._told:
            self._survival.tell(f"the checkpoint of round {self._begun} could not be written ({why}); training goes on")
        self._told = why
        checkpoint.discard(self._run, self._begun)
        self._begun = None

    def _dead(self) -> list[int]:
        return list(self._survival.federation.transport.lost)

    def _server_file(self) -> Path:
        assert self._begun is not None
        return checkpoint.server_file(self._run, self._begun)
