"""Jobs drawn over the keys of the schema: each has one key in the focus, in a setting where it is allowed."""

from __future__ import annotations

import copy
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from mpifl.cli.job_tools import job_schema
from mpifl.common import InputError
from mpifl.run.job.job import read_job
from mpifl.training.beforehand.run_checks import plan_wings, validate_job
from mpifl.wings import wings_of
from scripts.jobs_at_random import settings

Job = dict[str, Any]
Schema = Mapping[str, Any]
MORE, REFUSED, TRIES = 24, 0.01, 120
"""Keys that are tried beside the focus at most; the chance that one of them may be refused; settings that are
tried."""


@dataclass(frozen=True)
class Cell:
    """A key of a table; `of` is whose it is, where the table names something."""

    table: str
    key: str
    of: str
    schema: Schema

    def __str__(self) -> str:
        of = f" ({self.of})" if self.of else ""
        return f"{self.table}.{self.key}{of}" if self.table else self.key

    def values(self, draw: Random) -> list[Any]:
        """Return values to take, in an order that is drawn: edges, and those that are named."""
        named = settings.VALUES.get(str(self), settings.VALUES.get(str(self).partition(" ")[0]))
        found = list(named) if named is not None else list(_values(self.schema, draw))
        draw.shuffle(found)
        return found

    def put(self, job: Job, value: Any) -> None:
        """Give the key this value."""
        table = job.setdefault(self.table, {}) if self.table else job
        if self.of and table.get("name", settings.USUAL[self.table]) != self.of:
            table.clear()
            table["name"] = self.of
        table[self.key] = value


def cells() -> list[Cell]:
    """Return all keys of the schema that can be trained with here."""
    whole = job_schema.schema()
    found = []
    for name, entry in whole["properties"].items():
        if name in job_schema.NAMED:
            for of in job_schema.NAMED[name]:
                table = whole["$defs"][f"{name}.{of}"]["properties"]
                found += [Cell(name, key, of, one) for key, one in table.items() if key != "name"]
            found.append(Cell(name, "name", "", {"enum": [*job_schema.NAMED[name]]}))
        elif ref := _definition(entry):
            found += [Cell(name, key, "", one) for key, one in whole["$defs"][ref]["properties"].items()]
        else:
            found.append(Cell("", name, "", entry))
    return [one for one in found if str(one).partition(" ")[0] not in settings.NOT_DRAWN]


def _definition(entry: Schema) -> str:
    refs = [one["$ref"] for one in [entry, *entry.get("anyOf", ())] if "$ref" in one]
    return refs[0].rpartition("/")[2] if refs else ""


def _values(entry: Schema, draw: Random) -> Iterator[Any]:
    """Yield what a schema allows: all that is named, both ends of a range, and some between."""
    for one in entry.get("anyOf", ()):
        yield from _values(one, draw)
    yield from entry.get("enum", [])
    if "const" in entry:
        yield entry["const"]
    kind = entry.get("type")
    if kind == "boolean":
        yield from (True, False)
    elif kind == "integer":
        low, high = entry.get("minimum", entry.get("exclusiveMinimum", -1) + 1), entry.get("maximum", 40)
        yield from {n for n in (low, low + 1, low + 2, 3, 7, min(high, 40)) if low <= n <= high}
    elif kind == "number":
        yield from _numbers(entry)
    elif kind == "array":
        inner = list(_values(entry["items"], draw))
        yield from (draw.sample(inner, n) for n in (1, 2, 3) if n <= len(inner))


def _numbers(entry: Schema) -> Iterator[float]:
    """Yield the ends of a range, the numbers next to those that are not in it, and some of each size."""
    low = entry.get("minimum", math.nextafter(entry.get("exclusiveMinimum", -1e30), math.inf))
    high = entry.get("maximum", math.nextafter(entry.get("exclusiveMaximum", 1e30), -math.inf))
    yield from {float(n) for n in (low, high, 1e-300, 1e-9, 0.01, 0.1, 0.5, 1, 3, 40.5) if low <= n <= high}


class Draws:
    """Jobs one after another: each is about the key that the fewest jobs before it were about or had.

    Args:
        seed: The only source of what is drawn.
        every: All keys.
        shards: Makes the folder of a federation, by its kind and number.
    """

    def __init__(self, seed: int, every: list[Cell], shards: Callable[[str, int], Path]) -> None:
        self._seed, self._every, self._shards = seed, every, shards
        self._had: Counter[str] = Counter()
        self._jobs: list[tuple[Job, Cell]] = []

    def job(self, number: int) -> tuple[Job, Cell]:
        """Return the job of a number, and the key that it is about; all before it are drawn as well."""
        while len(self._jobs) <= number:
            self._jobs.append(self._next(len(self._jobs)))
        return self._jobs[number]

    def _next(self, number: int) -> tuple[Job, Cell]:
        draw = Random(f"{self._seed} {number}")
        rarest = draw.sample(self._every, len(self._every))
        rarest.sort(key=lambda cell: self._had[str(cell)])
        focus = rarest[0]
        job = _around(focus, draw, self._shards)
        for cell in rarest[1 : 1 + draw.randint(0, MORE)]:
            job = self._with(job, cell, draw)
        self._had[str(focus)] += 1  # also if it cannot be trained with
        if refusal(job) is None:
            self._had.update(map(str, touched(job, self._every)))
        return {"name": f"random-{number}", **job}, focus

    def _with(self, job: Job, cell: Cell, draw: Random) -> Job:
        """Return the job with a further key, if it takes it and keeps those that it has."""
        if not (values := cell.values(draw)):
            return job
        changed = copy.deepcopy(job)
        cell.put(changed, values[0])
        lost = {*map(str, touched(job, self._every))} - {*map(str, touched(changed, self._every))}
        if lost or _task(changed) != _task(job):  # its examples would not do: a job about tasks shows that
            return job
        return changed if (not cell.of and draw.random() < REFUSED) or refusal(changed) is None else job


def _around(focus: Cell, draw: Random, shards: Callable[[str, int], Path]) -> Job:
    """Return a job that has the focus: in the first setting and with the first value that go together.

    Settings that have its table come before others.
    """
    every = [*settings.SETTINGS]
    draw.shuffle(every)
    apt = [one for one in every if focus.table in one.tables and _same_name(focus, one.tables)]
    values, job = focus.values(draw) or [None], {}
    tried = [(one, shift) for shift in range(len(values)) for one in enumerate(apt)]
    tried += [(one, 0) for one in enumerate(one for one in every if one not in apt)]
    for (nth, setting), shift in tried[:TRIES]:
        job = copy.deepcopy({**settings.COMMON, **setting.tables})
        job["shards"] = str(shards(setting.kind, draw.randrange(settings.FEDERATIONS)))
        job["seed"] = draw.choice([0, 1, 3, 2**31])
        if (value := values[(nth + shift) % len(values)]) is not None:
            focus.put(job, value)
        if refusal(job) is None:
            return job
    return job


def _task(job: Job) -> str:
    return str(job.get("task", {}).get("name", settings.USUAL["task"]))


def _same_name(focus: Cell, tables: Job) -> bool:
    return not focus.of or tables[focus.table].get("name", settings.USUAL[focus.table]) == focus.of


def refusal(job: Job) -> str | None:
    """Return the line with which a job is refused before ranks start; None where it is not."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(tomli_w.dumps({"name": "drawn", **job}))
        file.flush()
        try:
            read = read_job(Path(file.name))
            spec = validate_job(read, "the job", wings_of)
            plan_wings(read, spec, "the job", wings_of(read))
        except InputError as error:
            return str(error)
    return None


def touched(job: Job, every: list[Cell]) -> list[Cell]:
    """Return the keys that a job gives, other than `shards` and such as stand in each."""
    found = []
    for cell in every:
        table = job.get(cell.table, {}) if cell.table else job
        name = table.get("name", settings.USUAL.get(cell.table, ""))
        if cell.key in table and (not cell.of or cell.of == name):
            found.append(cell)
    return found
