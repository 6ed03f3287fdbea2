"""Methods of an algorithm of the user's own that nothing calls, or that a training cannot call."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from mpifl.algorithms import Algorithm


def uncalled(kind: type[Algorithm]) -> list[str]:
    """Return what is to be said of a class outside of the package; nothing of one that is inside.

    A method is told that no base has, that no method of the class names, and whose name is close to one that
    a base has. So is a class that changes nothing of its base.
    """
    own = [one for one in kind.__mro__ if not _ours(one)]
    if not own:
        return []
    base = next(one for one in kind.__mro__ if issubclass(one, Algorithm) and _ours(one))
    methods = [(name, call) for one in own for name, call in _methods(one)]
    hooks = [name for name in dir(base) if callable(getattr(base, name, None)) and not name.startswith("_")]
    used = {word for _, call in methods for word in _words(call.__code__)}
    said = []
    for name, _ in methods:
        close = difflib.get_close_matches(name, hooks, n=1)
        if close and name not in used and not hasattr(base, name):
            said.append(f"{kind.__name__} defines `{name}`, which nothing calls; did you mean `{close[0]}`?")
    changed = {name for one in own for name in (*vars(one), *inspect.get_annotations(one))}
    if not any(
        hasattr(base, name) or name in base.model_fields
        for name in changed
        if not name.startswith(("_", "model_"))
    ):
        said.append(f"{kind.__name__} overrides nothing, and so trains as {base.__name__} does")
    return said


def called_otherwise(kind: type[Algorithm]) -> str:
    """Say which method of a class outside of the package cannot be called as a training calls it; "" if none.

    Client methods, which have a `silo`, take what the class's own `round` sends; their parameters are not
    looked at.
    """
    hooks = dict(_methods(Algorithm))
    for one in (one for one in kind.__mro__ if not _ours(one)):
        for name, of in vars(one).items():
            if name in hooks and (said := _other_kind(name, of) or _other_parameters(name, of, hooks[name])):
                return said
            if _is_async(of) and "silo" in list(inspect.signature(of).parameters)[:2]:
                return _other_kind(name, of)
    return ""


def _is_async(of: Any) -> bool:
    return inspect.iscoroutinefunction(of) or inspect.isasyncgenfunction(of)


def _other_kind(name: str, of: Any) -> str:
    """Say what is wrong with what stands under a method's name; "" if it is a plain function."""
    if _is_async(of):
        return f"{name} is an `async def`, which nothing awaits; write `def {name}`"
    if inspect.isgeneratorfunction(of):
        return f"{name} has a `yield`, and its result is not iterated over; use `return`"
    return "" if callable(of) or hasattr(of, "__get__") else f"{name} is {of!r:.40}, and must be a method"


def _other_parameters(name: str, of: Any, hook: Callable[..., Any]) -> str:
    """Say how a hook is called where a method does not take that; "" if it does."""
    wanted = list(inspect.signature(hook).parameters)
    if not inspect.isfunction(of) or of is hook or "silo" in wanted[:2]:
        return ""
    takes = inspect.signature(of)
    try:
        takes.bind(*wanted)
    except TypeError:
        own, called = (", ".join([*some][1:]) for some in (takes.parameters, wanted))
        return f"{name}({own}) is called as {name}({called}); give it these parameters"
    return ""


def _ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("mpifl", "pydantic", "abc", "builtins")


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods that a class itself defines."""
    for name, of in vars(kind).items():
        if inspect.isfunction(of) and not name.startswith("_"):
            yield name, of


def _words(code: Any) -> Iterator[str]:
    """Yield the names and texts in a function's code, and in that of functions inside."""
    for one in (*code.co_names, *code.co_consts):
        if isinstance(one, str):
            yield one
        elif inspect.iscode(one):
            yield from _words(one)
