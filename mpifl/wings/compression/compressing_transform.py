"""The transform that encodes vectors by codecs on their way.

Download: payloads are broadcast, and every silo decodes them. The server itself goes on with full precision.
Upload: a silo encodes its update, and the sum adds up the decoded vector. So the bits do not depend on where
a payload is decoded. The size of the payload counts as bytes sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import InputError, RoundLost, rng
from mpifl.silo import RESIDUAL, Silo
from mpifl.sums import peak_of
from mpifl.transforms import Message, Transform
from mpifl.wings.compression.codecs import Codec, TopK
from mpifl.wire import Purpose, Uniform, Update, unmarked

LENGTH = "length of "
"""The prefix, before a vector's name, for its number of elements, which travels beside its payload."""


@dataclass(frozen=True)
class Compression(Transform):
    """Encodes the float32 vectors of requests and updates. Others, such as running statistics, stay exact.

    With error feedback (Stich et al. 2018, "Sparsified SGD with memory", Algorithm 1; Karimireddy et al.
    2019, "Error feedback fixes SignSGD", Algorithm 2) a silo encodes its vector plus its memory. It then
    keeps the error of the payload as its new memory. As all kept state, it counts only if the update does.

    Attributes:
        upload, download: The codecs, None for none.
        error_feedback: Whether silos have a memory.
        absolute: Names of vectors that are not changes which add up over rounds, such as logits or a gradient
            for corrections. A later round cannot make up for an error in them. So they have no memory, and a
            codec that omits elements is not applied to them.
        accumulated: Names of vectors that the server and the silos each add up, such as SCAFFOLD's changes of
            control variates. An error in one would make the sums differ for ever. So they always have a
            memory, whatever `error_feedback` says.
    """

    upload: Codec | None
    download: Codec | None
    error_feedback: bool = False
    absolute: frozenset[str] = frozenset()
    accumulated: frozenset[str] = frozenset()

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Replace each vector by its payload. The same vector in the same round has the same payload.

        Raises:
            RoundLost: the codec cannot encode a vector.
        """
        if self.download is None:
            return message
        encoded: Message = {}
        for name, value in message.items():
            encoded[name] = value
            if _may_shrink(value):
                encoded[name] = _sent_by(server, self.download, name, value)
                encoded[LENGTH + name] = len(value)
        return encoded

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Decode the vectors.

        Raises:
            InputError: a payload cannot be decoded.
        """
        lengths = {key[len(LENGTH) :]: value for key, value in message.items() if key.startswith(LENGTH)}
        if not lengths or self.download is None:
            return message
        payloads = {name: message.get(name) for name in lengths}
        decoded = {n: _received(self.download, n, payloads[n], length) for n, length in lengths.items()}
        return {**{key: value for key, value in message.items() if not key.startswith(LENGTH)}, **decoded}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Encode each vector, replace it by the decoded payload, and note the payload.

        Raises:
            InputError: the codec cannot encode a vector.
        """
        for name, value in update.vectors.items():
            vector = unmarked(value)
            exact = name in self.absolute and isinstance(self.upload, TopK)
            if self.upload is None or not _may_shrink(vector) or exact:
                continue
            try:
                payload, seen = self._sent(silo, name, vector, self.upload)
            except ValueError as error:
                raise InputError(f"its update was refused: [compression] upload: '{name}' {error}") from None
            update.payloads[name] = payload
            update.vectors[name] = replace(value, vector=seen) if isinstance(value, Uniform) else seen
        return update

    def _sent(self, silo: Silo, name: str, vector: Tensor, codec: Codec) -> tuple[Tensor, Tensor]:
        """Return a vector's payload and the decoded payload; both include the silo's memory."""
        remembers = name in self.accumulated or (self.error_feedback and name not in self.absolute)
        memory = silo.state.get(RESIDUAL + name) if remembers else None
        whole = vector if memory is None else vector + memory
        payload = codec.encode(whole, silo.stream(f"compression of {name}"))
        seen = codec.decode(payload, len(whole))
        if remembers:
            silo.keep(**{RESIDUAL + name: whole - seen})
        return payload, seen


def _sent_by(server: Server, codec: Codec, name: str, vector: Tensor) -> Tensor:
    """Return the payload of a vector of a request."""
    draw = rng.torch_stream(server.seed, f"compression of the server's {name}", server.round)
    try:
        return codec.encode(vector, draw)
    except ValueError as error:
        raise RoundLost(f"[compression] download: '{name}' {error}") from None


def _received(codec: Codec, name: str, payload: Any, length: Any) -> Tensor:
    """Return the decoded payload; raise InputError if it cannot be decoded."""
    try:
        if not isinstance(payload, Tensor):
            raise ValueError("is missing")
        if not isinstance(length, int):
            raise ValueError(f"is of length {length}")
        return codec.decode(payload, length)
    except ValueError as error:
        raise InputError(f"what it was sent was refused: [compression] download: '{name}' {error}") from None


def _may_shrink(value: Any) -> bool:
    """Whether a value is encoded. The checks at the sum refuse malformed and infinite vectors."""
    flat = isinstance(value, Tensor) and value.dtype == torch.float32 and value.dim() == 1 and len(value) > 0
    return flat and math.isfinite(peak_of(value))
