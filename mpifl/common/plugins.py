"""The user's own models and algorithms, named `package.module:attribute` in a job."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from mpifl.common.errors import InputError


def load_plugin(name: str, key: str, known: Iterable[str]) -> Any:
    """Import `package.module:attribute`, also from the folder where the command runs.

    Args:
        name: What the job names.
        key: The key that names it, for the error.
        known: The built-in names, for the error.

    Raises:
        InputError: it is neither a built-in name nor something that can be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        to_do = f"take {', '.join(known)} or your own 'package.module:name'"
        raise InputError(f"{key} = '{name}': none such; {to_do}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        where = "it is imported from PYTHONPATH or this folder"
        raise InputError(f"{key} = '{name}': {error}; {where}") from None
