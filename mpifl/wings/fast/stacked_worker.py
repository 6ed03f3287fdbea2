"""A worker whose silos train together: a call of a client method stops where it asks for a training.

A call that stops has changed nothing: what it was going to keep or answer is forgotten. When the trainings of
a chunk are done, each call runs again from its beginning, and gets its result. So a call must depend only on
the silo and the message. The whole exchange requires this.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mpifl.exchange.worker_side import Handler, Worker
from mpifl.silo.steps import LocalRun, Training
from mpifl.wings.fast.stacked_training import Failed, Outcome, train_together
from mpifl.wire import AnyReply, Request


class Waits(BaseException):
    """A client method waits for a training. A BaseException, so that the method does not catch it."""

    def __init__(self, asked: Training) -> None:
        super().__init__()
        self.asked = asked


@dataclass
class _ClientCall:
    """One silo's call for a request.

    Attributes:
        handler: Answers the request.
        vectors: The vectors of the request.
        asked: The training that the call waits for, if it waits.
        outcomes: The results of its trainings so far.
        seconds: Its share, by steps, of the time of the common trainings.
        reply: Its answer, once it has one.
    """

    handler: Handler
    silo: int
    request: Request
    vectors: dict[str, Tensor]
    asked: Any = None
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    reply: AnyReply | None = None

    @property
    def steps(self) -> int:
        """How many steps it waits for."""
        steps: int = self.asked.steps
        return steps


class _Done:
    """Answers a call's trainings: first by the results that are there, then by `Waits`."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes = iter(outcomes)

    def __call__(self, asked: Training) -> LocalRun:
        for outcome in self._outcomes:
            return outcome(asked)
        raise Waits(asked)


class Batching(Worker):
    """A worker whose silos train together if possible."""

    def _replies(
        self, handler: Handler, mine: Sequence[int], request: Request, vectors: dict[str, Tensor]
    ) -> list[AnyReply]:
        """Answer a request for some silos, in chunks of silos with similar numbers of examples."""
        examples, size = self._context.spec.silos, self._context.algorithm.local.silos_per_step
        order = sorted(mine, key=lambda silo: -examples[silo].examples["train"])
        found: dict[int, AnyReply] = {}
        for begin in range(0, len(order), size):
            chunk = {
                silo: _ClientCall(handler, silo, request, vectors) for silo in order[begin : begin + size]
            }
            self._carry_out(chunk)
            found |= {silo: call.reply for silo, call in chunk.items() if call.reply is not None}
        return [found[silo] for silo in mine]

    def _carry_out(self, chunk: Mapping[int, _ClientCall]) -> None:
        """Run all calls to their next training, do these trainings together, and repeat until all answer."""
        for call in chunk.values():
            self._ask(call)
        while waiting := [call for call in chunk.values() if call.reply is None]:
            start, steps = time.perf_counter(), [call.steps for call in waiting]
            self._train(waiting)
            spent = time.perf_counter() - start
            for call, own in zip(waiting, steps, strict=True):
                call.seconds += spent * own / sum(steps)
                self._ask(call)

    def _ask(self, call: _ClientCall) -> None:
        """Run a call from its beginning, up to a training that is not done yet."""
        usual, self._trains = self._trains, _Done(call.outcomes)
        try:
            reply = self._guarded(call.handler, call.silo, call.request, call.vectors)
            seconds = self._tells.seconds(reply.seconds + call.seconds)
            call.reply = reply.model_copy(update={"seconds": seconds})
        except Waits as waits:
            call.asked = waits.asked
        finally:
            self._trains = usual

    def _train(self, calls: Sequence[_ClientCall]) -> None:
        """Train what calls wait for. If that fails, train for each call alone, still by stacked steps."""
        try:
            outcomes = train_together(
                [call.asked for call in calls], self._context.algorithm.local.silos_per_step
            )
        except Exception as error:
            if len(calls) == 1:
                calls[0].outcomes.append(Failed(error))
            for call in calls if len(calls) > 1 else []:
                self._ask(call)  # run it again, since its batches have been drawn
                self._train([call] if call.reply is None else [])
            return
        for call, outcome in zip(calls, outcomes, strict=True):
            call.outcomes.append(outcome)
