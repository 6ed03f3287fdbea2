"""What every transport must do, checked between all ranks."""

from __future__ import annotations

import torch

import mpifl.transport
from mpifl.transport import FRAME, Transport


def check(transport: Transport) -> None:
    """Send records and vectors of awkward sizes and see that they arrive."""
    _records(transport)
    _vectors(transport)
    _reports(transport)
    _sums(transport)


def _records(transport: Transport) -> None:
    for length in (0, 1, FRAME - 9, FRAME - 8, FRAME - 7, 3 * FRAME):
        record = bytes(i % 251 for i in range(length))
        assert transport.tell(record if transport.is_server else None) == record


def _vectors(transport: Transport) -> None:
    usual, mpifl.transport.CHUNK_BYTES = mpifl.transport.CHUNK_BYTES, 64
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        for length in (0, 1, 63, 64, 65, 1000):
            whole = torch.arange(length).to(dtype)
            vector = whole.clone() if transport.is_server else torch.zeros(length, dtype=dtype)
            transport.spread(vector)
            assert torch.equal(vector, whole)
    mpifl.transport.CHUNK_BYTES = usual


def _reports(transport: Transport) -> None:
    for length in (0, 10, 1 << 17):
        if transport.is_server:
            reports = dict(transport.reports())
            assert reports == {rank: bytes([rank]) * length for rank in range(1, transport.size)}
        else:
            transport.report(bytes([transport.rank]) * length)


def _sums(transport: Transport) -> None:
    for length in (1, 1000):
        total = transport.sum(torch.full((length,), float(transport.rank + 1), dtype=torch.float64))
        if transport.is_server:
            assert torch.equal(total, torch.full_like(total, transport.size * (transport.size + 1) / 2))
