"""What a rank does of which it is told by others than the server: leaders of nodes relay requests and
verdicts."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from pydantic import ValidationError

from mpifl.common import Misled, SharedVectorChanged, one_line
from mpifl.common.machine import debugging
from mpifl.wire import Transport

_OF_NONSENSE = (ValueError, LookupError, TypeError, OSError, RuntimeError, AssertionError, MemoryError)
"""What comes of a request or a verdict that makes no sense, and of little else: silos' faults are theirs."""
_LONGEST = 300


@contextlib.contextmanager
def following(transport: Transport) -> Iterator[None]:
    """Say in one line that this rank cannot do what it is told, if another rank than the server relays it, or
    it has another form.

    Raises:
        Misled: it cannot.
    """
    try:
        yield
    except SharedVectorChanged:
        raise
    except _OF_NONSENSE as error:
        relays = transport.nodes.parent
        of_mpi = type(error).__module__.startswith("mpi4py")
        if of_mpi or not (relays or isinstance(error, ValidationError)):
            raise
        if debugging():
            traceback.print_exc()
        what = f"cannot do what rank {transport.origins[relays]} tells it"
        why = f"{type(error).__name__}: {one_line(error)[:_LONGEST]}"
        raise Misled(f"{what} ({why}); that rank is broken, of another version, or lies") from None
