"""Import of the user's own code, which a job names as `package.module:attribute`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import io
import os
import sys
import tokenize
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpifl.common.errors import InputError, SharedVectorChanged, one_line
from mpifl.common.suggesting import did_you_mean, plain, suggested

_FOLDERS: set[Path] = set()
"""The folders of the code that jobs have named."""
_PACKAGE = str(Path(__file__).parent.parent) + os.sep


def load_plugin(name: str, key: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> Any:
    """Return `package.module:attribute`, imported from PYTHONPATH or the folder where the command runs.

    Args:
        name: The name in the job.
        key: The key of the job, for the error.
        known: The built-in names, for the error.
        elsewhere: Advice for names that other libraries use.

    Raises:
        InputError: the name is no `package.module:attribute`, or cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        known = list(known)
        hint = (elsewhere or {}).get(plain(name)) or did_you_mean(name, known)
        take = " or ".join(filter(None, [", ".join(known), "your own 'package.module:name'"]))
        raise InputError(f"{key} = '{name}': unknown; {hint}use {take}")
    if module.endswith(".py"):
        what = f"names a file; name its module, '{module[:-3].replace('/', '.')}:{attribute}'"
        raise InputError(f"{key} = '{name}': {what}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
        if file := getattr(found, "__file__", None):
            _FOLDERS.add(Path(file).resolve().parent)
        return getattr(found, attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        there = sys.modules.get(module)
        near = suggested(attribute, vars(there)) if there and isinstance(error, AttributeError) else ""
        where = f"it is looked for in {Path.cwd()}, where the command runs, and in PYTHONPATH"
        raise InputError(f"{key} = '{name}': {error}; {where}{near}") from None
    except Exception as error:
        raise InputError(f"{key} = '{name}': {_failed(module, error)}") from error


def _failed(module: str, error: Exception) -> str:
    """Say in one line where and why an import of the user's code failed."""
    said = f"{type(error).__name__}: {one_line(str(error).partition(chr(10))[0])}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {said}"
    spec = importlib.util.find_spec(module)
    at = [one for one in traceback.extract_tb(error.__traceback__) if spec and one.filename == spec.origin]
    where = f"{at[-1].filename}:{at[-1].lineno}: " if at else ""
    untyped = type(error).__name__ in ("PydanticSchemaGenerationError", "PydanticUserError")
    return f"{where}{said}" + "; write a field as `decay: float = 0.6`" * untyped


def own_mistake(error: Exception) -> str:
    """Return in one line where the user's own code raised an error, and what; "" where mpifl did.

    An error is the code's own where no later call is one of mpifl: `FILE:LINE: Class.method: what`.
    """
    if isinstance(error, SharedVectorChanged):
        return one_line(error)
    frames = [*traceback.walk_tb(error.__traceback__)]
    files = [frame.f_code.co_filename for frame, _ in frames]
    own = [nth for nth, file in enumerate(files) if Path(file).resolve().parent in _FOLDERS]
    if not own or any(file.startswith(_PACKAGE) for file in files[own[-1] :]):
        return ""
    frame, line = frames[own[-1]]
    method, one = frame.f_code.co_name, frame.f_locals.get("self")
    where = f"{files[own[-1]]}:{line}: {method if one is None else f'{type(one).__name__}.{method}'}"
    if isinstance(error, ValidationError) and (told := error.errors()[0])["type"] == "frozen_instance":
        name = ".".join(map(str, told["loc"]))
        server = f"at the server keep it in server.state['{name}']"
        return f"{where}: sets self.{name}, which is frozen; {server}, at a silo by silo.keep({name}=...)"
    said = one_line(str(error).strip().partition("\n")[0])
    return f"{where}: {type(error).__name__}" + f": {said}" * bool(said)


def code_of(names: Iterable[str]) -> dict[str, str]:
    """Return the sha256 of each module that names of the user's own code begin with, without its comments.

    Args:
        names: Names as `package.module:attribute`. A module without a file has no digest.
    """
    found = {}
    for module in sorted({name.partition(":")[0] for name in names}):
        with suppress(ImportError, OSError, ValueError):
            spec = importlib.util.find_spec(module)
            if spec and spec.has_location and spec.origin:
                found[module] = hashlib.sha256(_without_comments(Path(spec.origin).read_bytes())).hexdigest()
    return found


@functools.cache
def _without_comments(content: bytes) -> bytes:
    """Return the content of a module without comments, which change no result; whole if it is no Python."""
    try:
        found = [
            one for one in tokenize.tokenize(io.BytesIO(content).readline) if one.type == tokenize.COMMENT
        ]
        lines = content.decode(tokenize.detect_encoding(io.BytesIO(content).readline)[0]).split("\n")
    except (tokenize.TokenError, SyntaxError, ValueError):
        return content
    for comment in found:
        row, column = comment.start
        lines[row - 1] = lines[row - 1][:column].rstrip()
    alone = {one.start[0] - 1 for one in found if not lines[one.start[0] - 1]}
    return "\n".join(line for row, line in enumerate(lines) if row not in alone).encode()
