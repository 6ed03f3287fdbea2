"""Codecs (float16, bfloat16, QSGD, top-k): they encode a flat float32 vector as bytes, and decode it.

A payload is a uint8 tensor on the vector's device, in this machine's byte order. It does not contain what the
receiver knows: the length and the codec. Encoding and decoding are deterministic. Draws come from the given
generator on the CPU, so the result does not depend on the vector's device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mpifl.common import BeyondRange
from mpifl.wings.compression.packing import pack, unpack

PIECE = 1 << 18
"""About how many elements are quantised at a time, so that temporary tensors stay small."""
BLOCK = 1 << 16
"""Elements of a block; a position within a block takes two bytes."""
INFINITY, HUGE = 0x7F800000, 0x7F000000
"""The bits of infinity, and of the largest power of 2, in float32."""
HALVES = {"float16": (np.int16, 0x7C00), "bfloat16": (np.int16, 0x7F80)}
"""For each dtype an integer type of the same size, and the bits of infinity."""


class Codec(ABC):
    """One way of encoding a vector."""

    @abstractmethod
    def encode(self, vector: Tensor, draw: torch.Generator) -> Tensor:
        """Return the payload, uint8, of a finite float32 vector, shape [n].

        Raises:
            ValueError: it holds values that this codec cannot encode.
        """

    @abstractmethod
    def decode(self, payload: Tensor, length: int) -> Tensor:
        """Decode a payload; return a finite float32 vector, shape [length]. The payload may hold any bytes.

        Raises:
            ValueError: it does not encode such a vector.
        """

    def by_rows(self, width: int) -> Codec:
        """Return the codec for rows of `width` elements, each encoded separately."""
        return self


@dataclass(frozen=True)
class Cast(Codec):
    """Two bytes an element: float16 or bfloat16, rounded to nearest, ties to even; subnormals are kept."""

    dtype: Literal["float16", "bfloat16"]

    def encode(self, vector: Tensor, draw: torch.Generator) -> Tensor:
        """Round every element; raise BeyondRange if one is beyond the dtype's range."""
        halves = vector.to(getattr(torch, self.dtype))
        if not _finite(halves.view(torch.uint8), *HALVES[self.dtype]):
            peak, instead = float(vector.abs().max()), "; use bfloat16" if self.dtype == "float16" else ""
            raise BeyondRange(f"reaches {peak:g}, beyond the range of {self.dtype}{instead}")
        return halves.view(torch.uint8)

    def decode(self, payload: Tensor, length: int) -> Tensor:
        """Convert every element to float32, which is exact."""
        if not _finite(_sized(payload, 2 * length), *HALVES[self.dtype]):
            raise ValueError(f"has a payload that holds NaN or Inf as {self.dtype}")
        return payload.view(getattr(torch, self.dtype)).float()


@dataclass(frozen=True)
class QSGD(Codec):
    """Stochastic quantisation (Alistarh et al. 2017, "QSGD", section 3.1) with codes of a fixed width.

    Element i of a bucket of d becomes norm * sign(v_i) * xi_i. Here xi_i is one of the two multiples of 1/s
    next to |v_i| / norm, drawn so that the mean is v_i. With s = 2^(bits - 1) - 1 the 2 s + 1 codes fit. For
    the Euclidean norm the expected squared error of a bucket is at most min(d/s^2, sqrt(d)/s) * ||v||^2
    (Lemma 3.1). The paper's experiments use the maximum norm. Its error is at most d/(4 s^2) * max^2, which
    is mostly far less.

    The payload is each bucket's norm as float32, then all codes, packed: 4 * ceil(n/d) + ceil(n * bits/8)
    bytes. The paper's Elias coding is not used; it would be shorter for few levels.
    """

    bits: int = 8
    bucket: int = 512
    norm: Literal["max", "l2"] = "max"

    def encode(self, vector: Tensor, draw: torch.Generator) -> Tensor:
        """Quantise bucket by bucket; raise BeyondRange if a Euclidean norm is beyond float32."""
        bucket, norms, codes = self._bucket(len(vector)), [], []
        for part in torch.split(vector, _multiple_of(bucket)):
            draws = torch.rand(len(part), generator=draw).to(vector.device)
            norm, code = self._quantised(part, bucket, draws)
            norms.append(norm)
            codes.append(code)
        if not torch.cat(norms).isfinite().all():
            raise BeyondRange("has a norm beyond the range of float32; use norm = 'max'")
        return torch.cat([torch.cat(norms).view(torch.uint8), pack(torch.cat(codes), self.bits)])

    def decode(self, payload: Tensor, length: int) -> Tensor:
        """Multiply each level by its bucket's norm."""
        bucket = self._bucket(length)
        split, step = 4 * -(-length // bucket), _multiple_of(bucket)
        payload = _sized(payload, split + -(-length * self.bits // 8))
        norms, codes = payload[:split].view(torch.float32), unpack(payload[split:], self.bits, length)
        self._check(payload[:split], codes)
        vector = torch.empty(length, dtype=torch.float32, device=payload.device)
        parts = torch.split(vector, step), torch.split(codes, step), torch.split(norms, step // bucket)
        for out, code, norm in zip(*parts, strict=True):
            levels = _rows(code.float().sub_(self._levels).div_(self._levels), bucket)
            out.copy_(levels.mul_(norm[:, None]).view(-1)[: len(out)])
        return vector

    def _check(self, norms: Tensor, codes: Tensor) -> None:
        """Raise ValueError if norms (as bytes) and codes would not give a finite vector."""
        # as unsigned integers the bits are ordered like the norms, and negative norms are the largest
        sizes = norms.cpu().numpy().view(np.uint32)
        if (peak := sizes.max(initial=0)) >= INFINITY:
            raise ValueError("has a payload with a norm that is negative, NaN or Inf")
        if peak >= HUGE and int(codes.max()) > 2 * self._levels:  # it could overflow float32
            raise ValueError("has a payload with a code above the highest")

    def _quantised(self, part: Tensor, bucket: int, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norms of the buckets of a part, and the codes, level + s, of its elements."""
        rows = _rows(part, bucket)
        if self.norm == "max":
            norm = rows.abs().amax(1)
        else:
            norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).float()
        exact = rows / torch.where(norm == 0, 1.0, norm)[:, None]
        exact = exact.mul_(self._levels).view(-1)[: len(part)]
        below = exact.floor()
        return norm, below.add_(draws < exact.sub_(below)).add_(self._levels).to(torch.uint8)

    def by_rows(self, width: int) -> QSGD:
        """Return the codec with each row as a bucket."""
        return replace(self, bucket=width)

    @property
    def _levels(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def _bucket(self, length: int) -> int:
        return max(min(self.bucket, length), 1)


@dataclass(frozen=True)
class TopK(Codec):
    """Keep the `share` of elements with the largest magnitudes; others become zero (Stich et al. 2018).

    Kept elements are exact. For equal magnitudes the first ones are kept. The payload is the
    k = ceil(share * n) values as float32, then their positions. Positions take one bit for each element. If
    that is shorter, they take two bytes for each value and a count for each block of 65,536 elements.
    """

    share: float = 0.01

    def encode(self, vector: Tensor, draw: torch.Generator) -> Tensor:
        """Encode the largest elements; nothing is drawn."""
        chosen = largest(vector, self._count(len(vector)))
        where = chosen.nonzero().squeeze(1)
        return torch.cat([vector[where].view(torch.uint8), self._positions(chosen, where)])

    def decode(self, payload: Tensor, length: int) -> Tensor:
        """Put the values at their positions."""
        count = self._count(length)
        positions = -(-length // 8) if self._as_bits(length) else 2 * count + 4 * _blocks(length)
        values, places = torch.split(_sized(payload, 4 * count + positions), [4 * count, positions])
        where = self._where(places, count, length)
        if not _finite(values, np.int32, INFINITY):
            raise ValueError("has a payload that holds NaN or Inf")
        values = values.view(torch.float32)
        return torch.zeros(length, dtype=torch.float32, device=payload.device).index_copy_(0, where, values)

    def _positions(self, chosen: Tensor, where: Tensor) -> Tensor:
        length = len(chosen)
        if self._as_bits(length):
            return pack(chosen.to(torch.uint8), 1)
        blocks = torch.bincount(where // BLOCK, minlength=_blocks(length)).to(torch.int32)
        within = (where % BLOCK).sub_(BLOCK // 2).to(torch.int16)
        return torch.cat([blocks.view(torch.uint8), within.view(torch.uint8)])

    def _where(self, positions: Tensor, count: int, length: int) -> Tensor:
        if self._as_bits(length):
            return _ones(positions, count, length)
        split = 4 * _blocks(length)
        counts = positions[:split].cpu().numpy().view(np.int32)
        # otherwise torch would write beyond the end
        if counts.min(initial=0) < 0 or counts.sum(dtype=np.int64) != count:
            raise ValueError(f"has a payload whose blocks do not hold {count} elements")
        blocks, within = positions[:split].view(torch.int32), positions[split:].view(torch.int16)
        starts = torch.arange(len(blocks), device=positions.device).mul_(BLOCK)
        where = starts.repeat_interleave(blocks.long(), output_size=count) + within.long().add_(BLOCK // 2)
        at = where.cpu().numpy()
        if at[-1] >= length or not (at[1:] > at[:-1]).all():
            raise ValueError(f"has a payload whose positions are not {count} of {length} in their order")
        return where

    def _count(self, length: int) -> int:
        return min(max(math.ceil(self.share * length - 1e-9), 1), length)

    def _as_bits(self, length: int) -> bool:
        return -(-length // 8) <= 2 * self._count(length) + 4 * _blocks(length)


def largest(vector: Tensor, count: int) -> Tensor:
    """Return which `count` elements have the largest magnitudes, as bools; among equal ones the first."""
    # without the sign, a float's bits are ordered like its magnitude
    size = vector.view(torch.int32) & 0x7FFFFFFF
    least = _least_of_largest(size, count)
    chosen = size > least
    chosen[(size == least).nonzero().squeeze(1)[: count - int(torch.count_nonzero(chosen))]] = True
    return chosen


def _least_of_largest(size: Tensor, count: int) -> Tensor:
    """Return the least of the `count` largest numbers; all are below 2^31.

    A histogram of the upper bits leaves few candidates. So this is much faster than torch.topk of all.
    """
    upper = size >> 16
    at_least = torch.bincount(upper, minlength=1 << 15).flip(0).cumsum(0).flip(0)
    edge = int((at_least >= count).sum()) - 1
    above = int(at_least[edge + 1]) if edge + 1 < len(at_least) else 0
    candidates = size[upper == edge]
    return torch.topk(candidates, count - above, sorted=False).values.min()


def _ones(bits: Tensor, count: int, length: int) -> Tensor:
    """Return the positions of the ones in a payload's bits; raise ValueError unless there are `count`."""
    where = unpack(bits, 1, length).nonzero().squeeze(1)
    if len(where) != count:
        raise ValueError(f"has a payload with {len(where)} positions for {count} elements")
    return where


def _finite(payload: Tensor, kind: type[np.signedinteger[Any]], infinity: int) -> bool:
    """Whether the floats in a payload are finite.

    As signed integers, the bits of positive NaN and infinity are the largest; as unsigned integers, those of
    the negative ones. Both maxima together take a third of the time of isfinite().
    """
    signed = payload.cpu().numpy().view(kind)
    unsigned = signed.view(f"u{signed.itemsize}")
    above = 1 << (8 * signed.itemsize - 1)
    return bool(signed.max(initial=0) < infinity and unsigned.max(initial=0) < above + infinity)


def _sized(payload: Tensor, size: int) -> Tensor:
    """Return a payload if it has `size` bytes; otherwise raise ValueError."""
    if payload.dtype != torch.uint8 or payload.shape != (size,):
        raise ValueError(f"has a payload of {payload.dtype} {list(payload.shape)}; it must be {size} bytes")
    return payload


def _rows(part: Tensor, bucket: int) -> Tensor:
    """Return a part as rows of one bucket each; the last row is padded with zeros."""
    return pad(part, (0, -len(part) % bucket)).view(-1, bucket)


def _multiple_of(bucket: int) -> int:
    return max(PIECE // bucket, 1) * bucket


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


CODECS: dict[str, type[Codec]] = {"float16": Cast, "bfloat16": Cast, "qsgd": QSGD, "topk": TopK}
"""The codecs by their names in a job."""
