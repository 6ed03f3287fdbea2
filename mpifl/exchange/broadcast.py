"""Broadcast of a request and its vectors from the server to all ranks."""

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
    """Return the digest of all records that a rank has received.

    Args:
        heard: The digest of all records before.
        record: The latest record.
    """
    return hashlib.blake2b(heard.encode() + record, digest_size=16).hexdigest()


class Undelivered(Compute):
    """A request whose vectors did not come to this rank's node, so that none of its silos can answer."""


def undelivered(silo: int, request: Undelivered, vectors: Mapping[str, Tensor]) -> Done:
    """Answer such a request with a fault."""
    why = f"the vectors of '{request.work}' did not come: a rank on their way hangs"
    return Done(silo=silo, fault=why, passing=True)


class Broadcast:
    """Numbers requests and sends them; every rank takes part in each broadcast.

    Attributes:
        hanging: At a node's leader: late ranks of the node. They did not make their share of the last sum in
            time, or did not receive their pieces of the last request.
        heard: The digest of all records that this rank has received.
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
        """Send a request and its vectors from the server, which gives them, to all ranks; return both here.

        Args:
            request: The request; None at other ranks.
            vectors: The vectors of the message; empty at other ranks.
            unreliable: Ranks whose last answer was late or refused; they relay nothing.
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
        """The fields of a report that this broadcast knows."""
        return {"hanging": sorted(self.hanging), "heard": self.heard}

    def tell(self, record: bytes | None) -> bytes:
        """Send a record from the server, which gives it, to all ranks; add it to the digest and return it."""
        told = self._transport.broadcast_record(record)
        self.heard = heard_after(self.heard, told)
        return told

    def note(self, hanging: Set[int], *, lost: bool) -> None:
        """Note the outcome of an exchange's sums.

        Args:
            hanging: Ranks that did not make their share in time.
            lost: Whether the sums were lost. Then a rank may hang, and nobody knows yet which.
        """
        self._late_sums = set() if self._transport.is_server else set(hanging)
        self._wary = lost

    def renumber(self, ranks: Mapping[int, int]) -> None:
        """Note a death: forget the received vectors, and begin the digest anew, since ranks may differ.

        Args:
            ranks: The new rank of each survivor by its old one.
        """
        self._received.clear()
        self._late_sums = renumbered(self._late_sums, ranks)
        self.heard = ""

    def _takes_turns(self, request: Request, unreliable: Set[int]) -> bool:
        """Return whether the ranks of a node relay the pieces of a request's vectors round robin.

        They do only if silos may fail in this request, and only silos need its vectors. If a node's leader is
        unreliable, the leaders alone relay: the wait for it is shorter then.
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
        self._received.pop(spec.name, None)  # the memory of the last vector may be reused now
        given, dtype = vectors.get(spec.name), DTYPES[spec.dtype]
        given = None if given is None else given.cpu()
        if spreading is None:
            here = self._transport.broadcast_vector(given, spec.length, dtype, request.direct)
        else:
            here = spreading.deliver(given, spec.length, dtype)
        self._received[spec.name] = here
        return here

    def _placed(self, vector: Tensor) -> Tensor:
        """Return a vector on the device on which this rank's silos read it."""
        if self._device.type == "cpu":
            return vector
        return self._transport.memory.pinned(vector).to(self._device, non_blocking=True)
