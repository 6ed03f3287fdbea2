"""Tests between all ranks of the contract of every transport, with awkward sizes, and measures its speed.

All ranks call these functions together. Nothing is asserted. A check yields its faults and continues as the
other ranks expect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mpifl.sums import WeightedMean
from mpifl.wire import (
    Header,
    Report,
    Spreading,
    Transport,
    Update,
    Verdict,
    point_to_point,
    relayed_broadcast,
    transport as wire,
)

LARGE = 2_500_000
"""Elements of the vector for timing: 10 MB of float32."""
TIMES, TRIPS = 5, 100
"""How often a large vector and a small record are sent, for a median."""
DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8)
PERIOD = 251
"""The period of test contents: a prime, so that pieces in the wrong order are noticed."""


def check(transport: Transport, stage: Callable[[str], None] = lambda name: None) -> list[str]:
    """Send records and vectors of awkward sizes between all ranks.

    Args:
        transport: This rank's end of the wire.
        stage: Called with the name of each part before it begins.

    Returns:
        The faults at this rank, one line each.
    """
    faults: list[str] = []
    for part in (_records, _vectors, _long_vectors, _reports, _sums, _memory, _means):
        name = part.__name__[1:]
        stage(name)
        faults += [f"rank {transport.rank}, {name}: {fault}" for fault in part(transport)]
    return faults


def _records(transport: Transport) -> Iterator[str]:
    for length in (0, 1, point_to_point.EAGER - 1, point_to_point.EAGER, point_to_point.EAGER + 1, 1 << 17):
        sent = bytes(i % PERIOD for i in range(length))
        received = transport.broadcast_record(sent if transport.is_server else None)
        if received != sent:
            yield f"{length} bytes arrived as {len(received)}, or altered"


def _vectors(transport: Transport) -> Iterator[str]:
    piece = wire.CHUNK_BYTES
    awkward = [(dtype, length) for dtype in DTYPES for length in (0, 1, 63, 64, 65, 1000)]
    for dtype, length in [*awkward, *((torch.uint8, piece + more) for more in (-1, 0, 1))]:
        sent = pattern(length, dtype)
        received = transport.broadcast_vector(sent.clone() if transport.is_server else None, length, dtype)
        if not torch.equal(received, sent):
            yield f"{length} elements of {dtype} arrived altered"
        _answer(transport)  # as in an exchange: only after this may the received vector be overwritten


def _long_vectors(transport: Transport) -> Iterator[str]:
    """Send vectors so long that the ranks of a node fetch pieces in turns."""
    for length in (relayed_broadcast.LONG // 4 + 1, relayed_broadcast.LONG // 4 + 1000):
        sent, under_way = pattern(length, torch.float32), Spreading(transport, 0, ())
        received = under_way.deliver(sent.clone() if transport.is_server else None, length, sent.dtype)
        if not under_way.end() or not torch.equal(received, sent):
            yield f"{length} elements arrived altered, or not all"
        _answer(transport)


def _reports(transport: Transport) -> Iterator[str]:
    for length in (0, 10, point_to_point.EAGER + 1, 1 << 17):
        if not transport.is_server:
            transport.report(bytes([transport.rank % PERIOD]) * length)
            continue
        reports = dict(transport.reports())
        if reports != {rank: bytes([rank % PERIOD]) * length for rank in range(1, transport.size)}:
            yield f"not every rank's {length} bytes arrived, or not as they were"


def _meet(transport: Transport) -> None:
    """Wait until all ranks have reached this point."""
    _answer(transport)
    transport.broadcast_record(b"" if transport.is_server else None)


def _answer(transport: Transport) -> None:
    """Let the server wait until every worker has reached this point."""
    if transport.is_server:
        for _ in transport.reports():
            pass
    else:
        transport.report(b"")


def _sums(transport: Transport) -> Iterator[str]:
    nodes = transport.nodes
    for length in (1, 1000, 100_003) if nodes.leads else ():
        ramp = pattern(length, torch.float64)
        total = transport.sum(ramp * (nodes.number + 1), range(len(nodes)))
        if transport.is_server and not torch.equal(total, ramp * (len(nodes) * (len(nodes) + 1) // 2)):
            yield f"{length} elements over {len(nodes)} nodes do not add up"


def _memory(transport: Transport) -> Iterator[str]:
    """Every rank of the server's node reads the server's vector; then the server reads what the last rank
    wrote."""
    here, length = transport.nodes.number == 0, 1000
    vector = transport.memory.empty(length, torch.float64)
    if transport.is_server:
        vector[:] = 1.0
        transport.broadcast_record(transport.memory.handle(vector).to_bytes(8, "little"))
    else:
        handle = int.from_bytes(transport.broadcast_record(), "little")
        if here:
            vector = transport.read(0, handle, length, torch.float64)
            if not bool((vector == 1.0).all()):
                yield "another rank's memory reads otherwise than it was written"
    _meet(transport)
    last = transport.nodes.mine[-1]
    if here and transport.rank == last:
        vector[-1] = 5.0
    _meet(transport)
    if transport.is_server and float(vector[-1]) != 5.0:
        yield f"what rank {last} wrote does not arrive"


def _means(transport: Transport) -> Iterator[str]:
    """Check the exact mean of whole numbers, which has one right value to the bit."""
    aggregation = WeightedMean(torch.device("cpu"), transport.memory)
    for length in (1, 1000, 100_003):
        mean, _ = mean_over_ranks(transport, aggregation, length)
        if mean is not None and not torch.equal(mean, _right_mean(transport, length)):
            yield f"the mean of {length} elements over {len(transport.workers)} ranks is not exact"


def _right_mean(transport: Transport, length: int) -> Tensor:
    weights = [float(1 + rank % 3) for rank in transport.workers]
    factor = sum(weight * (rank + 1) for weight, rank in zip(weights, transport.workers, strict=True))
    return (pattern(length, torch.float64) * factor * (1 / sum(weights))).to(torch.float32)


def mean_over_ranks(
    transport: Transport, aggregation: WeightedMean, length: int
) -> tuple[Tensor | None, float]:
    """Compute the weighted mean of one vector for each worker, as an exchange does.

    Returns:
        The mean (at the server only), and the seconds from the last report to the mean.
    """
    aggregation.expect(len(transport.workers))
    report = Report()
    if transport.rank in transport.workers:
        weight, vector = float(1 + transport.rank % 3), pattern(length, torch.float32) * (transport.rank + 1)
        folded = aggregation.accumulate(transport.rank, Update(weight=weight, vectors={"probe": vector}))
        header = Header(silo=transport.rank, weight=weight, vectors=folded)
        report = Report(headers=[header], parts=aggregation.parts())
    if not transport.is_server:
        transport.report(report.encode())
        verdict = Verdict.model_validate_json(transport.broadcast_record())
        aggregation.combine(transport, verdict)
        return None, 0.0
    reports = {0: report} | {rank: Report.model_validate_json(record) for rank, record in transport.reports()}
    began = time.perf_counter()
    verdict = Verdict(ranks=list(range(transport.size)), pieces=aggregation.place(reports))
    transport.broadcast_record(verdict.encode())
    return aggregation.combine(transport, verdict).vectors["probe"], time.perf_counter() - began


def measure(transport: Transport) -> dict[str, float]:
    """Time the parts of a round; only the figures at the server are valid.

    Figures are medians. `round_trip_us`: a small record to all ranks, and one back from each. `spread_ms`: 10
    MB to all ranks, read by each. `mean_ms`: the exact mean of 10 MB from each worker.
    """
    trips = sorted(_trip(transport) for _ in range(TRIPS))
    vector = transport.memory.empty(LARGE, torch.float32).fill_(1.0) if transport.is_server else None
    spreads = sorted(_spread(transport, vector) for _ in range(TIMES))
    aggregation = WeightedMean(torch.device("cpu"), transport.memory)
    means = sorted(mean_over_ranks(transport, aggregation, LARGE)[1] for _ in range(TIMES))
    figures = {"round_trip_us": 1e6 * trips[TRIPS // 2], "spread_ms": 1e3 * spreads[TIMES // 2]}
    return figures | {"mean_ms": 1e3 * means[TIMES // 2], "megabytes": 4e-6 * LARGE}


def _trip(transport: Transport) -> float:
    began = time.perf_counter()
    transport.broadcast_record(bytes(200) if transport.is_server else None)
    _answer(transport)
    return time.perf_counter() - began


def _spread(transport: Transport, vector: Tensor | None) -> float:
    began = time.perf_counter()
    received = transport.broadcast_vector(vector, LARGE, torch.float32)
    if not transport.is_server:
        received.sum()
    _answer(transport)
    return time.perf_counter() - began


def pattern(length: int, dtype: torch.dtype) -> Tensor:
    """Return a vector whose content depends on its length."""
    ramp = torch.arange(PERIOD).roll(length).to(dtype)
    return ramp.repeat(length // PERIOD + 1)[:length]
