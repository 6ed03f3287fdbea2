"""Protection against false relays: leaders of nodes relay requests and verdicts, and may change them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from pydantic import ValidationError

from mpifl.common import Misled, SharedVectorChanged, one_line
from mpifl.common.machine import debugging
from mpifl.wire import Transport

_OF_NONSENSE = (ValueError, LookupError, TypeError, OSError, RuntimeError, AssertionError, MemoryError)
"""Errors that a senseless request or verdict raises. Little else does: silos' errors are caught before."""
_LONGEST = 300


@contextlib.contextmanager
def following(transport: Transport) -> Iterator[None]:
    """Turn an error that a senseless request or verdict raises into one line.

    This applies if another rank than the server relayed the record, or if the record does not fit the schema.

    Raises:
        Misled: this rank cannot carry out the record.
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
