"""Vectors shrink on their way: what leaves one side is what a codec wrote, what the other sees is what it
reads back.

Downwards the payloads themselves are broadcast and every silo decodes them; the server goes on from its full
precision. Upwards a silo encodes its update and what is summed is what the payload stands for, so that the
bits are the same wherever it is decoded; the payload's size is what counts as sent.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from mpifl.aggregation import peak_of
from mpifl.common import InputError, RoundLost, rng
from mpifl.server import Server
from mpifl.silo import RESIDUAL, Silo
from mpifl.transforms.base import Message, Transform
from mpifl.transforms.codecs import QSGD, Cast, Codec, TopK
from mpifl.wire import Purpose, Uniform, Update, unmarked

LENGTH = "length of "
"""Before a vector's name: the number of its elements, which travels beside its payload."""
CODECS: dict[str, type[Codec]] = {"float16": Cast, "bfloat16": Cast, "qsgd": QSGD, "topk": TopK}
OWN_KEYS: dict[str, dict[str, Any]] = {
    "qsgd": {"bits": 8, "bucket": 512, "norm": "max"},
    "topk": {"share": 0.01},
}
"""The keys of the job that only one codec has, and their defaults."""


class CompressionSettings(BaseModel):
    """The `[compression]` table of a job: how updates (up) and requests (down) are written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    up: Literal["none", "float16", "bfloat16", "qsgd", "topk"] = "none"
    """How silos encode their updates, or in a split network their lines."""
    down: Literal["none", "float16", "bfloat16", "qsgd"] = "none"
    """How requests are encoded, or answers to lines; topk is none of the ways, since most weights cannot be
    left out of a model."""
    error_feedback: bool | None = None
    """Silos add what was left out to their next update; by default with topk alone, which is biased."""
    bits: Annotated[int, Field(ge=2, le=8)] | None = None
    """Bits an element of qsgd, both ways; 8 unless given."""
    bucket: Annotated[int, Field(ge=1)] | None = None
    """How many elements share a norm in qsgd; 512 unless given."""
    norm: Literal["max", "l2"] | None = None
    """The norm that qsgd divides by; "max" unless given."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the elements that topk sends, the largest; 0.01 unless given."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """Fill in the keys of the codecs that are used, and leave the others alone."""
        if not isinstance(given, dict):
            return given
        usual: dict[str, Any] = {}
        for name in (given.get("up"), given.get("down")):
            usual |= OWN_KEYS.get(name, {}) if isinstance(name, str) else {}
        if given.get("up", "none") != "none":
            usual["error_feedback"] = given["up"] == "topk"
        return {**usual, **{key: value for key, value in given.items() if value is not None}}

    @model_validator(mode="after")
    def _consistent(self) -> CompressionSettings:
        for codec, keys in OWN_KEYS.items():
            given = [key for key in keys if getattr(self, key) is not None]
            if given and codec not in (self.up, self.down):
                raise ValueError(f"{given[0]} belongs to {codec}; leave it out, or take up = '{codec}'")
        if self.error_feedback and self.up == "none":
            raise ValueError(
                "error_feedback is for what updates lose; take up = 'topk' or another codec with it"
            )
        return self

    def codec(self, name: str) -> Codec | None:
        """Return the codec of that name with these settings, None for "none"."""
        if name in ("float16", "bfloat16"):
            return Cast(name)  # type: ignore[arg-type]
        keys = {key: getattr(self, key) for key in OWN_KEYS.get(name, {})}
        return CODECS[name](**keys) if keys else None

    def transforms(self, absolute: Collection[str], accumulated: Collection[str] = ()) -> list[Transform]:
        """Return what this table asks for: a `Compression`, or nothing;
        `absolute` and `accumulated` as there."""
        up, down = self.codec(self.up), self.codec(self.down)
        names = frozenset(absolute), frozenset(accumulated)
        return [Compression(up, down, bool(self.error_feedback), *names)] if up or down else []


@dataclass(frozen=True)
class Compression(Transform):
    """Encode the float32 vectors of requests and updates; all others (running statistics are float64) stay
    exact.

    With error feedback (Stich et al. 2018, "Sparsified SGD with memory", Algorithm 1; Karimireddy et al.
    2019, "Error feedback fixes SignSGD", Algorithm 2) a silo encodes its vector plus its memory and keeps
    what the payload leaves out, as it keeps all state: it counts only if the update does.

    Attributes:
        up, down: The codecs, None for none.
        error_feedback: Whether silos have a memory.
        absolute: Names of vectors that are no changes which add up over rounds (logits, a gradient to correct
            by). What is left out of one cannot be made up for later: they have no memory, and where the codec
            leaves elements out, they travel exact.
        accumulated: Names of vectors that server and silos add up alike, such as SCAFFOLD's shifts of
            controls. What is left out of one would part the sums for ever: they have a memory, whatever
            `error_feedback` says.
    """

    up: Codec | None
    down: Codec | None
    error_feedback: bool = False
    absolute: frozenset[str] = frozenset()
    accumulated: frozenset[str] = frozenset()

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Replace each vector by its payload. The same vector in the same round has the same payload.

        Raises:
            RoundLost: the codec cannot write a vector.
        """
        if self.down is None:
            return message
        encoded: Message = {}
        for name, value in message.items():
            encoded[name] = value
            if _may_shrink(value):
                encoded[name] = _sent_by(server, self.down, name, value)
                encoded[LENGTH + name] = len(value)
        return encoded

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Read the vectors back.

        Raises:
            InputError: a payload stands for no vector.
        """
        lengths = {key[len(LENGTH) :]: value for key, value in message.items() if key.startswith(LENGTH)}
        if not lengths or self.down is None:
            return message
        payloads = {name: message.get(name) for name in lengths}
        decoded = {n: _received(self.down, n, payloads[n], length) for n, length in lengths.items()}
        return {**{key: value for key, value in message.items() if not key.startswith(LENGTH)}, **decoded}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Replace each vector by what its payload stands for, and note the payload.

        Raises:
            InputError: the codec cannot write a vector.
        """
        for name, value in update.vectors.items():
            vector = unmarked(value)
            if self.up is None or not _may_shrink(vector) or self._stays_exact(name):
                continue
            try:
                payload, seen = self._sent(silo, name, vector, self.up)
            except ValueError as error:
                raise InputError(f"its update was refused: [compression] up: '{name}' {error}") from None
            update.payloads[name] = payload
            update.vectors[name] = replace(value, vector=seen) if isinstance(value, Uniform) else seen
        return update

    def _stays_exact(self, name: str) -> bool:
        return name in self.absolute and isinstance(self.up, TopK)

    def _sent(self, silo: Silo, name: str, vector: Tensor, codec: Codec) -> tuple[Tensor, Tensor]:
        """Return a vector's payload and what it stands for; what a silo remembers is part of both."""
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
        raise RoundLost(f"[compression] down: '{name}' {error}") from None


def _received(codec: Codec, name: str, payload: Any, length: Any) -> Tensor:
    """Return the vector that a payload stands for; refuse one that stands for none."""
    try:
        if not isinstance(payload, Tensor):
            raise ValueError("is missing")
        if not isinstance(length, int):
            raise ValueError(f"is of length {length}")
        return codec.decode(payload, length)
    except ValueError as error:
        raise InputError(f"what it was sent was refused: [compression] down: '{name}' {error}") from None


def _may_shrink(value: Any) -> bool:
    """Whether a value is for a codec;
    a malformed or infinite vector is left for the checks at the sum to refuse."""
    flat = isinstance(value, Tensor) and value.dtype == torch.float32 and value.dim() == 1 and len(value) > 0
    return flat and math.isfinite(peak_of(value))
