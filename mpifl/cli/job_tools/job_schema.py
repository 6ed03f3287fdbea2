"""The JSON schema of the job file, from the pydantic models and the docs of their fields.

`scripts/job_keys.py` writes it to a file beside the package's jobs, which commands read.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from typing import get_args

from pydantic import BaseModel

from mpifl.algorithms import ALGORITHMS, OPTIMIZERS, Algorithm
from mpifl.cli.job_tools.inventory import summary
from mpifl.cli.job_tools.keys import PLUGIN, Schema
from mpifl.learning.models import MODELS
from mpifl.learning.tasks import TASKS
from mpifl.run.job import Job
from mpifl.run.job.tables import SELECTIONS
from mpifl.wings.robust import RULES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMED: dict[str, Mapping[str, type[BaseModel]]] = {
    "task": TASKS,
    "algorithm": ALGORITHMS,
    "server_optimizer": OPTIMIZERS,
}
"""Tables whose keys depend on their name."""
OPEN: dict[tuple[str, str], Iterable[str]] = {
    ("Model", "name"): MODELS,
    ("AggregationSettings", "rule"): RULES,
    ("CohortTable", "select"): SELECTIONS,
}
"""Keys that take a built-in name or the user's own."""


def schema() -> Schema:
    """Return the JSON schema of a job file, draft 2020-12. The user's own models and algorithms may have any
    keys."""
    made = _described(Job)
    for table, registry in NAMED.items():
        made["properties"][table] |= _one_of(made, table, registry)
    for (table, key), names in OPEN.items():
        made["$defs"][table]["properties"][key] |= {"anyOf": [{"enum": [*names]}, PLUGIN]}
    return {"$schema": DIALECT, "title": "a job of mpifl", **{k: v for k, v in made.items() if k != "title"}}


def meanings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the meaning of each field of a pydantic model: the string below it, in the class or in a base
    class."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, BaseModel) and base.__module__.partition(".")[0] != "pydantic":
            found |= _strings_below(base)
    return found


@functools.cache
def _strings_below(kind: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        ast.unparse(node.target): " ".join(str(below.value.value).split())
        for node, below in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _described(kind: type[BaseModel]) -> Schema:
    """Return a pydantic model's schema with the meaning of each key of each table."""
    made = kind.model_json_schema(by_alias=True)
    kinds = [one for f in kind.model_fields.values() for one in (f.annotation, *get_args(f.annotation))]
    inner = [one for one in kinds if isinstance(one, type)]
    for of in [kind, *(one for one in inner if issubclass(one, BaseModel))]:
        said = meanings(of)
        table = made if of is kind else made["$defs"][of.__name__]
        for name, field in of.model_fields.items():
            entry = table["properties"][field.alias or name]
            entry.pop("title", None)
            entry["description"] = said.get(name, "")
    return made


def _one_of(whole: Schema, table: str, registry: Mapping[str, type[BaseModel]]) -> Schema:
    """Add a definition for each entry of the registry. Return the schema of a table that names one of them,
    or the user's own."""
    for name, kind in registry.items():
        own = _described(kind)
        keys = {key: entry for key, entry in own["properties"].items() if key not in Algorithm.model_fields}
        named = ["name"] if table == "algorithm" or name != "sgd" else []
        whole["$defs"][f"{table}.{name}"] = {
            "type": "object",
            "description": summary(kind),
            "properties": {"name": {"const": name}, **keys},
            "required": [*named, *own.get("required", [])],
            "additionalProperties": False,
        }
    own_code = {"type": "object", "properties": {"name": PLUGIN}, "required": ["name"]}
    return {"anyOf": [*({"$ref": f"#/$defs/{table}.{name}"} for name in registry), own_code]}
