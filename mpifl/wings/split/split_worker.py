"""How a rank runs its silos in a dialogue: all silos exchange messages at once, and the server leads."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torch import Tensor

from mpifl.algorithms import Algorithm, Lead
from mpifl.exchange.worker_side import Worker
from mpifl.wings.split.activation_codecs import ActivationCodecs
from mpifl.wings.split.dialogue import Dialogue, DialogueLead
from mpifl.wings.split.split_clients import SplitClient, client_of, follow
from mpifl.wings.split.split_messages import SplitMessages
from mpifl.wire import AnyReply, Converse, Transport


class Converses:
    """Runs the dialogue of a rank's silos with the server.

    Args:
        worker: The worker that hosts the silos.
        algorithm: The job's algorithm.
        codecs: Encode messages.
    """

    def __init__(
        self, worker: Worker, algorithm: Algorithm, transport: Transport, codecs: ActivationCodecs
    ) -> None:
        self._worker, self._algorithm = worker, algorithm
        self._transport, self._codecs = transport, codecs

    def __call__(
        self, mine: Sequence[int], request: Converse, vectors: dict[str, Tensor], lead: Lead | None
    ) -> list[AnyReply]:
        """Answer a request; see `Together`."""
        clients = {silo: self._client(silo, request, vectors) for silo in mine}
        lines = SplitMessages(self._transport, request.serial)
        written = self._codecs.writing(request.work, request.round)
        if lead is not None:
            assert isinstance(lead, DialogueLead)
            Dialogue(lead, request.cohort, clients, lines, *written).run()
        else:
            follow([*clients.values()], lines, request.longest, *written)
        return [client.reply for client in clients.values() if client.reply is not None]

    def _client(self, id: int, request: Converse, vectors: dict[str, Tensor]) -> SplitClient:
        worker = self._worker
        lend = functools.partial(worker.lend, id, request.round, work=request.work)
        keep, fault = functools.partial(worker.states.keep, id), functools.partial(worker.fault, id)
        return client_of(id, lend, self._algorithm, request, vectors=vectors, keep=keep, fault=fault)
