"""A request and its vectors on their way from the server to all ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mpifl.wire import DTYPES, Request, Transport, VectorSpec, read_request


class Broadcast:
    """Numbers requests and sends them; every rank takes part in each."""

    def __init__(self, transport: Transport, device: torch.device) -> None:
        self._transport, self._device = transport, device
        self._serial = 0
        self._received: dict[str, Tensor] = {}

    def deliver(
        self, request: Request | None, vectors: Mapping[str, Tensor]
    ) -> tuple[Request, dict[str, Tensor]]:
        """Send a request and its vectors from the server (who gives them) to all ranks;
        return what this rank has."""
        if request is not None:
            self._serial += 1
            direct = bool(self._transport.silent)
            request = request.model_copy(update={"serial": self._serial, "direct": direct})
        found = read_request(self._transport.broadcast_record(request.encode() if request else None))
        here = {spec.name: self._vector(spec, vectors.get(spec.name), found.direct) for spec in found.vectors}
        return found, here if found.on_host else {name: self._placed(one) for name, one in here.items()}

    def forget(self) -> None:
        """Let go of what was received; after a death nobody reads it."""
        self._received.clear()

    def _vector(self, spec: VectorSpec, vector: Tensor | None, direct: bool) -> Tensor:
        """Send a vector from the server to all ranks; return it on the CPU."""
        self._received.pop(spec.name, None)  # what was received last may be written over now
        given = None if vector is None else vector.cpu()
        here = self._transport.broadcast_vector(given, spec.length, DTYPES[spec.dtype], direct)
        self._received[spec.name] = here
        return here

    def _placed(self, vector: Tensor) -> Tensor:
        """Return a vector where this rank's silos read it."""
        if self._device.type == "cpu":
            return vector
        return self._transport.memory.pinned(vector).to(self._device, non_blocking=True)
