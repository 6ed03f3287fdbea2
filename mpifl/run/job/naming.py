"""Objects that a table of a job names: built-in classes, or the user's own as `package.module:name`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import InputError, Table, load_plugin
from mpifl.run.job.validation import validated


def make_named(
    base: type,
    registry: Mapping[str, Any],
    table: Table,
    source: str,
    key: str,
    shared: Mapping[str, Any],
    usual: str,
    elsewhere: Mapping[str, str] | None = None,
) -> Any:
    """Return an object of the class that a table of a job names, with the table's other keys as fields.

    Args:
        base: The base class that the class must have.
        registry: The built-in classes by name.
        source: The source of the table, for the error.
        key: The name of the table.
        shared: Fields that come from tables of their own.
        usual: The default of the table's `name`; "" if it has none.
        elsewhere: Advice for names that other libraries use.

    Raises:
        InputError: there is no such class, or it has no such key.
    """
    name = table.get("name", usual or None)
    if not isinstance(name, str):
        raise InputError(f"{source}: [{key}] needs name, {_offered(registry, table, key, shared)}")
    kind = _class_named(name, base, registry, source, key, elsewhere)
    own = {k: v for k, v in table.items() if k != "name"}
    if taken := sorted(set(own) & set(shared)):
        raise InputError(f"{source}: [{key}] has no key '{taken[0]}'; it is a table of its own, [{taken[0]}]")
    return validated(kind, own, source, key, title=name, shared=shared)


def _offered(registry: Mapping[str, Any], table: Table, key: str, shared: Mapping[str, Any]) -> str:
    """Return the names that take a table's first key, or else all."""
    own = next((one for one in table if one not in ("name", *shared)), None)
    fields = {name: getattr(registry[name], "model_fields", {}) for name in registry if own is not None}
    takers = [name for name, of in fields.items() if own in {one.alias or field for field, one in of.items()}]
    if not takers:
        return f"one of {', '.join(registry)}"
    return f"since '{own}' is a key of {', '.join(takers)}; give --set {key}.name={takers[0]}"


def _class_named(
    name: str,
    base: type,
    registry: Mapping[str, Any],
    source: str,
    key: str,
    elsewhere: Mapping[str, str] | None,
) -> Any:
    try:
        kind = registry.get(name) or load_plugin(name, f"[{key}] name", registry, elsewhere)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if isinstance(kind, type) and issubclass(kind, base):
        if missing := sorted(getattr(kind, "__abstractmethods__", ())):
            what = f"{kind.__name__}: lacks the method {missing[0]}; define it as {base.__name__} has it"
            raise InputError(f"{source}: [{key}] name = '{name}': {what}")
        return kind
    what = f"is not a mpifl {base.__name__}; name a subclass of it"
    raise InputError(f"{source}: [{key}] name = '{name}': {what}")
