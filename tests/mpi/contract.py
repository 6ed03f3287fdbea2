"""What every transport must do, checked between all ranks."""

from __future__ import annotations

import torch

from mpifl.transport import Transport, wire
from mpifl.transport.wire import EAGER


def check(transport: Transport) -> None:
    """Send records and vectors of awkward sizes and see that they arrive."""
    _records(transport)
    _vectors(transport)
    _reports(transport)
    _sums(transport)
    _memory(transport)


def _records(transport: Transport) -> None:
    for length in (0, 1, EAGER - 1, EAGER, EAGER + 1, 1 << 17):
        record = bytes(i % 251 for i in range(length))
        assert transport.tell(record if transport.is_server else None) == record


def _vectors(transport: Transport) -> None:
    usual, wire.CHUNK_BYTES = wire.CHUNK_BYTES, 64
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8):
        for length in (0, 1, 63, 64, 65, 1000):
            whole = torch.arange(length).to(dtype)
            received = transport.spread(whole.clone() if transport.is_server else None, length, dtype)
            assert torch.equal(received, whole)
            _reports(transport)  # as in an exchange: what was received may be written over once all have answered
    wire.CHUNK_BYTES = usual


def _reports(transport: Transport) -> None:
    for length in (0, 10, 1 << 17):
        if transport.is_server:
            reports = dict(transport.reports())
            assert reports == {rank: bytes([rank]) * length for rank in range(1, transport.size)}
        else:
            transport.report(bytes([transport.rank]) * length)


def _sums(transport: Transport) -> None:
    nodes = transport.nodes
    for length in (1, 1000):
        if nodes.leads:
            mine = torch.full((length,), float(nodes.number + 1), dtype=torch.float64)
            total = transport.sum(mine, range(len(nodes)))
            if transport.is_server:
                assert torch.equal(total, torch.full_like(total, len(nodes) * (len(nodes) + 1) / 2))


def _memory(transport: Transport) -> None:
    """Every rank of a node reads what every other one has made, and what it writes there."""
    own = transport.memory.empty(3, torch.float64)
    own[:] = float(transport.rank)
    handle = transport.memory.handle(own)
    if transport.is_server:
        transport.tell(handle.to_bytes(8, "little"))
        read = own
    else:
        told = int.from_bytes(transport.tell(), "little")
        if transport.nodes.number == 0:
            read = transport.read(0, told, 3, torch.float64)
            assert read.tolist() == [0.0] * 3
    _reports(transport)
    if transport.nodes.number == 0 and transport.rank == transport.nodes.mine[-1]:
        read[1] = 5.0
    _reports(transport)
    if transport.is_server:
        assert own.tolist() == [0.0, 5.0, 0.0]
