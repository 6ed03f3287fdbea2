"""The library that tables are read by: it is imported when the first table is read."""

from __future__ import annotations

from typing import Any

from mpifl.common import InputError
from mpifl.common.machine import floors


def library() -> Any:
    """Return pyarrow; raise InputError if it is missing, or older than needed."""
    try:
        import pyarrow
    except ImportError:
        raise InputError("SOURCE: a table needs pyarrow; pip install 'mpifl[tables]'") from None
    floors.hold("tables")
    return pyarrow
