"""A request and its vectors on their way from the server to all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from typing import Any

import torch
from torch import Tensor

from mpifl.sums import REFERENCE
from mpifl.wire import DTYPES, Compute, Done, Request, Spreading, Transport, VectorSpec, is_long, read_request
from mpifl.wire.launching import renumbered


def heard_after(heard: str, record: bytes) -> str:
    """Return the digest of all records that a rank was told, this one the last."""
    return hashlib.blake2b(heard.encode() + record, digest_size=16).hexdigest()


class Undelivered(Compute):
    """A request whose vectors did not come to this rank's node: no silo of it can answer."""


def undelivered(silo: int, request: Undelivered, vectors: Mapping[str, Tensor]) -> Done:
    """Say, as an answer to such a request, that it cannot be carried out."""
    why = f"the vectors of '{request.work}' did not come: a rank on their way hangs"
    return Done(silo=silo, fault=why, passing=True)


class Broadcast:
    """Numbers requests and sends them; every rank takes part in each.

    Attributes:
        hanging: Ranks of this node, at its leader, that did not make their share of the last sum in time, or
            did not receive theirs of the last request.
        heard: A digest of all records that this rank was told so far.
    """

    def __init__(self, transport: Transport, device: torch.device) -> None:
        self._transport, self._device = transport, device
        self._serial = 0
        self._received: dict[str, Tensor] = {}
        self.hanging: set[int] = set()
        self.heard = ""
        self._late_sums: set[int] = set()
        self._wary = False

    def deliver(
        self, request: Request | None, vectors: Mapping[str, Tensor], unreliable: Set[int] = frozenset()
    ) -> tuple[Request, dict[str, Tensor]]:
        """Send a request and its vectors from the server (who gives them) to all ranks; return what this rank
        has.

        Args:
            request: What is asked.
            vectors: Of the message.
            unreliable: Ranks that did not answer the last request in time, or not truly, which carry nothing
                for others.
        """
        if request is not None:
            self._serial += 1
            direct = bool(self._transport.silent)
            resting = sorted(unreliable) if not direct and self._takes_turns(request, unreliable) else None
            told = {"serial": self._serial, "direct": direct, "resting": resting}
            request = request.model_copy(update=told)
        found = read_request(self.tell(request.encode() if request else None))
        spreading = None if found.resting is None else Spreading(self._transport, found.serial, found.resting)
        here = {spec.name: self._vector(spec, vectors, found, spreading) for spec in found.vectors}
        whole = spreading is None or spreading.end()
        self.hanging = self._late_sums | (spreading.hanging if spreading else set())
        if not whole:
            return Undelivered.model_validate(found.model_dump()), {}
        return found, here if found.on_host else {name: self._placed(one) for name, one in here.items()}

    @property
    def told(self) -> dict[str, Any]:
        """What a report says of what this rank was told."""
        return {"hanging": sorted(self.hanging), "heard": self.heard}

    def tell(self, record: bytes | None) -> bytes:
        """Send a record from the server (who gives it) to all ranks, and remember that it was told."""
        told = self._transport.broadcast_record(record)
        self.heard = heard_after(self.heard, told)
        return told

    def note(self, hanging: Set[int], *, lost: bool) -> None:
        """Take note of what came of an exchange's sums: which ranks did not make their share; and whether
        they were lost, so that some rank may hang, and it is not known yet which."""
        self._late_sums = set() if self._transport.is_server else set(hanging)
        self._wary = lost

    def renumber(self, ranks: Mapping[int, int]) -> None:
        """Take note of a death: nobody reads what was received, and some heard more than others.

        Args:
            ranks: The new rank of each survivor by its old one.
        """
        self._received.clear()
        self._late_sums = renumbered(self._late_sums, ranks)
        self.heard = ""

    def _takes_turns(self, request: Request, unreliable: Set[int]) -> bool:
        """Whether the ranks of a node take turns at the pieces of a request's vectors.

        It must be one whose silos may fail, with vectors that nobody but them needs; and a rank that leads
        a node and is unreliable is waited for less where nobody else is involved.
        """
        nodes = self._transport.nodes
        long = any(is_long(spec.length, DTYPES[spec.dtype]) for spec in request.vectors)
        kept = any(spec.name.startswith(REFERENCE) for spec in request.vectors)
        alone = self._wary or any(nodes.is_leader(rank) for rank in unreliable)
        return isinstance(request, Compute) and len(nodes) > 1 and long and not kept and not alone

    def _vector(
        self, spec: VectorSpec, vectors: Mapping[str, Tensor], request: Request, spreading: Spreading | None
    ) -> Tensor:
        """Send a vector from the server to all ranks; return it on the CPU."""
        self._received.pop(spec.name, None)  # what was received last may be written over now
        given, dtype = vectors.get(spec.name), DTYPES[spec.dtype]
        given = None if given is None else given.cpu()
        if spreading is None:
            here = self._transport.broadcast_vector(given, spec.length, dtype, request.direct)
        else:
            here = spreading.deliver(given, spec.length, dtype)
        self._received[spec.name] = here
        return here

    def _placed(self, vector: Tensor) -> Tensor:
        """Return a vector where this rank's silos read it."""
        if self._device.type == "cpu":
            return vector
        return self._transport.memory.pinned(vector).to(self._device, non_blocking=True)
