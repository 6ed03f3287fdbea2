"""The wire: small records and flat vectors between rank 0 and the other ranks; the only package that knows MPI."""

from mpifl.transport.deaths import survivable
from mpifl.transport.facts import Facts, facts
from mpifl.transport.memory import Memory, pieces_of
from mpifl.transport.wire import Transport
from mpifl.transport.world import abort_world, forsake, leave, library, see_off, world

__all__ = [
    "Facts",
    "Memory",
    "Transport",
    "abort_world",
    "facts",
    "forsake",
    "leave",
    "library",
    "pieces_of",
    "see_off",
    "survivable",
    "world",
]
