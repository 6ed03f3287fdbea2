"""The options of a source: the keyword-only parameters of its function, given as `--option KEY=VALUE`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from mpifl.common import InputError, did_you_mean

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_options(name: str, read: Callable[..., Any], given: Sequence[str]) -> dict[str, Any]:
    """Turn `KEY=VALUE` words into keyword arguments of a source's function, each of the type of its default.

    Raises:
        InputError: a word is no KEY=VALUE, the source has no such option, or the value is of another type.
    """
    defaults = {
        p.name: p.default for p in inspect.signature(read).parameters.values() if p.kind is p.KEYWORD_ONLY
    }
    parsed = dict[str, Any]()
    for word in given:
        option, value = _parse(name, defaults, word)
        if option in parsed:
            raise InputError(f"--option: {option} is given twice; say it once")
        parsed[option] = value
    return parsed


def _parse(name: str, defaults: dict[str, Any], word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    option = key.strip().replace("-", "_")
    if not equals or option not in defaults:
        takes = ", ".join(f"{known}={_shown(default)}" for known, default in defaults.items())
        raise InputError(
            f"--option: '{word}' given; {did_you_mean(option, defaults)}{name} takes {takes or 'none'}"
        )
    try:
        return option, _convert(value.strip(), defaults[option])
    except (ValueError, KeyError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(defaults[option])]
        raise InputError(f"--option: {key}={value} given; it must be {kind}") from None


def _convert(value: str, default: Any) -> Any:
    if isinstance(default, bool):
        return WORDS[value.lower()]
    return type(default)(value) if isinstance(default, (int, float)) else value


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else "..." if default is None else str(default)
