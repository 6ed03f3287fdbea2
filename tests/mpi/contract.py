"""What every transport must do, checked between all ranks as `mpifl doctor` does,
with vectors in small pieces."""

from __future__ import annotations

from mpifl.cli.doctor import contract
from mpifl.sums import node_sums
from mpifl.wire import relayed_broadcast, transport as wire
from mpifl.wire.transport import Transport


def check(transport: Transport) -> None:
    """Send records and vectors of awkward sizes and see that they arrive."""
    usual, wire.CHUNK_BYTES = wire.CHUNK_BYTES, 64
    # for all that comes, too: most models are small
    node_sums.WHOLE = node_sums.PIECE = node_sums.ALIGNED
    relayed_broadcast.LONG, relayed_broadcast.PIECE = 1000, 256
    faults = contract.check(transport)
    wire.CHUNK_BYTES = usual
    assert not faults, "\n".join(faults)
