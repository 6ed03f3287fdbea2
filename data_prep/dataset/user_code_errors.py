"""What a user's own code raises, as one line that names its place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpifl.common import InputError


@contextmanager
def blamed(name: str) -> Iterator[None]:
    """Have whatever a user's code raises end as one line that names the function, its file and the line.

    Raises:
        InputError: it raised; what it raises itself as InputError stays as it is.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        what = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise InputError(f"{name}: {what} ({_place(name, error)}); correct it there") from error


def _place(name: str, error: Exception) -> str:
    """Say in which file and line of the user's module an error arose, or where it came to it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    module = name.partition(":")[0].rpartition(".")[2]
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "importlib" not in one.filename]
    own = [one for one in frames if Path(one.filename).stem in (module, "__init__")] or frames
    return f"{own[-1].name}, {own[-1].filename}, line {own[-1].lineno}"
