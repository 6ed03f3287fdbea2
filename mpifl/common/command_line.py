"""The command lines of both programs: an option that takes one value is given once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from mpifl.common.errors import InputError


class OnceEach(TyperCommand):
    """A command that refuses an option given twice, unless the option takes a list. Otherwise the last value
    would count without a word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command.

        Raises:
            InputError: an option that takes one value is given twice, or a flag and its contrary.
        """
        if not ctx.resilient_parsing:
            seen: list[Any] = self.make_parser(ctx).parse_args(args=[*args])[2]
            for one in dict.fromkeys(seen):
                if one.param_type_name == "option" and not one.multiple:
                    _check_once(one, seen.count(one), args, (ctx.obj or {}).get(one.name, "leave one out"))
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def _check_once(option: Any, times: int, words: Sequence[str], remedy: str) -> None:
    names = [*option.opts, *option.secondary_opts]
    given = [word for word in words if word.partition("=")[0] in names]
    if times < 2 or (option.is_flag and len(set(given)) < 2):  # a flag said again says the same
        return
    if option.is_flag:
        raise InputError(f"{given[0]}: given with {next(w for w in given if w != given[0])}; leave one out")
    values = " and ".join(_values(names, words))
    raise InputError(f"{option.opts[0]}: given {times} times ({values}), and takes one value; {remedy}")


def _values(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return what an option was given, each time."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    named = ((word.partition("="), after) for word, after in pairs)
    return [value if equals else after for (name, equals, value), after in named if name in names]


class CommandLine(typer.Typer):
    """A typer app whose commands take an option once, as `OnceEach` does.

    `context_settings={"obj": {NAME: REMEDY}}` says by an option's name what would do where it is given twice.
    """

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        """Return the decorator that makes a function a command."""
        return super().command(name, **{"cls": OnceEach, **more})
