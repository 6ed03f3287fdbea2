"""Reading of TOML files, which may come from anybody, with overrides from the command line."""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpifl.common.errors import InputError
from mpifl.common.files import read_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = dict[str, Any]
LARGEST_FILE, DEEPEST = 1 << 24, 20
A_TABLE = "write it as {name = 'dice', as = 'another'}"
"""The most bytes of a file, and the deepest nesting of tables and lists."""


def read_toml(path: Path, overrides: Sequence[str] = ()) -> Table:
    """Read a file and apply overrides such as `local.lr=0.05`.

    Raises:
        InputError: the file cannot be read or is no TOML, or an override is wrong; one line says so.
    """
    table = _told_tables(path)
    keys = [override.partition("=")[0].strip() for override in overrides]
    _check_once(keys, overrides)
    given = {*keys}
    for override in overrides:
        _override(table, override, given)
    if wrong := wrong_in(table):
        raise InputError(f"{path}: {wrong}")
    return table


def _check_once(keys: Sequence[str], overrides: Sequence[str]) -> None:
    """Refuse a key that is set twice: the last value would count without a word."""
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        values = [text.partition("=")[2] for key, text in zip(keys, overrides, strict=True) if key == twice]
        what = f"given {len(values)} times ({' and '.join(values)}), and takes one value; leave one out"
        raise InputError(f"--set {twice}: {what}")


def tables(path: Path) -> Table:
    """Read a file as `read_toml` does.

    Raises:
        OSError: the file cannot be read, is no regular file, or is too large.
        ValueError: the file is no TOML, or holds a value that `wrong_in` refuses.
    """
    try:
        found: Table = tomllib.loads(read_whole(path, LARGEST_FILE).decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if wrong := wrong_in(found):
        raise ValueError(wrong)
    return found


def _told_tables(path: Path) -> Table:
    try:
        return tables(path)
    except OSError as error:
        what = f"cannot be read ({error.strerror}); name a job file such as jobs/demo.toml"
        raise InputError(f"{path}: {what}") from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}") from None


def wrong_in(value: Any, key: str = "", depth: int = 0) -> str | None:
    """Return what is wrong with a value, or with a value nested in it; None if nothing is.

    It refuses values for which no code should have to care: whole numbers beyond TOML's 64 bits, texts with a
    NUL, deep nesting, and subnormal numbers. Ranks that train read a subnormal number as 0, and other code
    does not, so the two would disagree.
    """
    if isinstance(value, Mapping | list):
        if depth > DEEPEST:
            return f"{key.split('.')[0][:80]}: nested too deep"
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        parts = (wrong_in(part, f"{key}.{name}" if key else str(name), depth + 1) for name, part in inner)
        return next((found for found in parts if found), None)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return f"{key}: is not a whole number of 64 bits"
    if isinstance(value, float) and _is_subnormal(value):
        return f"{key}: is below {sys.float_info.min} in size; give 0 or a larger number"
    return f"{key} = {value[:80]!r}: has a NUL in it" if isinstance(value, str) and "\0" in value else None


def _is_subnormal(value: float) -> bool:
    """Return whether a number is subnormal, by its bits: comparisons fail where subnormals count as 0."""
    bits = int.from_bytes(struct.pack("<d", value), "little")
    fraction, exponent = bits & ((1 << 52) - 1), bits >> 52 & 0x7FF
    return exponent == 0 and fraction != 0


def _override(table: Table, override: str, given: Collection[str]) -> None:
    """Set one key, and remove the key that it excludes (`local.steps` or `local.epochs`) if the file has it.

    If the excluded key is also `given` on the command line, both stay, and are refused later.
    """
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {override}: give it as key=value, for instance --set local.lr=0.05")
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {override}: '{key}' is not a table")
    instead = {"steps": "epochs", "epochs": "steps"}
    if keys[:-1] == ["local"] and keys[-1] in instead and f"local.{instead[keys[-1]]}" not in given:
        table.pop(instead[keys[-1]], None)
    table[keys[-1]] = _value(text, override)


def _value(text: str, override: str) -> Any:
    """Return the value of a text that is TOML, else the bare text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError):
        raise InputError(f"--set {override[:80]}: no TOML value") from None


def inline_table(text: str, where: str) -> Table:
    """Return the table of a text such as `{name = "dice"}`.

    Raises:
        InputError: it is none, or holds a value that `wrong_in` refuses.
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} {text[:80]}: is no table of TOML ({error}); {A_TABLE}") from None
    if found.keys() != {"value"} or not isinstance(found["value"], dict) or wrong_in(found["value"]):
        raise InputError(f"{where} {text[:80]}: is no table of TOML; {A_TABLE}")
    table: Table = found["value"]
    return table
