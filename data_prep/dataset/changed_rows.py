"""What `federation.json` says was done to rows and values: left out, filled, taken for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mpifl.data.shards import FederationSpec

MOST_NAMED = 6
"""Columns or silos in a line."""


class Dropped(BaseModel):
    """Rows that were left out.

    Attributes:
        rows: How many.
        of: Of how many.
        columns: How many of them lack a value, by column.
        silos: How many each silo lost, by its name, where that is known.
        commented: How many lines are comments that have as many values as a row.
        test: The same of the server's test set.
    """

    rows: int = 0
    of: int = 0
    columns: dict[str, int] = {}
    silos: dict[str, int] = {}
    commented: int = 0
    test: Dropped | None = None

    def __str__(self) -> str:
        lines = f"{self.commented:,} lines that begin with the mark of comments have as many values as a row"
        left = f"{self.rows:,} of {self.of:,} rows were left out because a value is missing"
        said = [f"{left}: {_listed(self.columns)}"] if self.rows else []
        said += [f"by silo: {_listed(self.silos)}"] if self.silos else []
        said += [f"{lines}, and were skipped"] if self.commented else []
        said += [f"of the test set: {self.test}"] if self.test else []
        return "; ".join(said)

    @property
    def count(self) -> int:
        """Return how many rows were left out."""
        return self.rows

    @classmethod
    def added(cls, told: Sequence[tuple[str, Dropped]]) -> Dropped:
        """Add up what sites tell, by their names."""
        columns: Counter[str] = Counter()
        for _, one in told:
            columns.update(one.columns)
        rows, of, commented = (
            sum(getattr(one, key) for _, one in told) for key in ("rows", "of", "commented")
        )
        return cls(rows=rows, of=of, columns=dict(columns), silos=_by_site(told), commented=commented)


class Changed(BaseModel):
    """Values that were changed.

    Attributes:
        columns: How many, by column and what was done.
        silos: How many of them each silo has, by its name, where that is known.
        sites: `columns` of each site, by its name, where tables of sites were joined and that was asked for.
        test: The same of the server's test set.
    """

    columns: dict[str, dict[str, int]] = {}
    silos: dict[str, int] = {}
    sites: dict[str, dict[str, dict[str, int]]] = {}
    test: Changed | None = None

    def said(self, what: str, by: str) -> str:
        """Say it, with `by` between how many and what was done."""
        what = what if self.count != 1 else what.replace("values were", "value was")
        of = {f" at {site}": columns for site, columns in self.sites.items()} or {"": self.columns}
        done = {
            f"{name}\0{how}{where}": n
            for where, columns in of.items() for name, hows in columns.items() for how, n in hows.items()
        }  # fmt: skip
        said = [f"{self.count:,} {what}: {_listed(done, by)}"] if done else []
        said += [f"by silo: {_listed(self.silos)}"] if self.silos and not self.sites else []
        said += [f"of the test set: {self.test.said(what, by)}"] if self.test else []
        return "; ".join(said)

    @property
    def count(self) -> int:
        """Return how many values were changed."""
        return sum(count for hows in self.columns.values() for count in hows.values())

    @classmethod
    def added(cls, told: Sequence[tuple[str, Changed]]) -> Changed:
        """Add up what sites tell, by their names."""
        columns: dict[str, Counter[str]] = {}
        for _, one in told:
            for name, hows in one.columns.items():
                columns.setdefault(name, Counter()).update(hows)
        return cls(columns={name: dict(hows) for name, hows in columns.items()}, silos=_by_site(told))


Told = TypeVar("Told", Dropped, Changed)


def _told(source: Any, key: str, kind: type[Told]) -> Told:
    """Return what is told of one of them; what others wrote otherwise says nothing."""
    try:
        return kind.model_validate(source.get(key) or {})
    except ValidationError:
        return kind()


def changes_of(source: dict[str, Any]) -> dict[str, str]:
    """Return lines that say what was done to rows and values, by its kind, from `source` of a folder.

    `spelled` is what the spec states itself.
    """
    spelled = _told(source, "spelled", Changed)
    filled, respelled = (_told(source, key, Changed) for key in ("filled", "respelled"))
    lines = {
        "left out": str(_told(source, "dropped", Dropped)),
        "filled": filled.said("missing values were filled", "by "),
        "respelled": respelled.said("values were read as another spelling", ""),
        "spelled": spelled.said("values were read by other spellings that the spec states", ""),
        "columns": _index(source.get("index")),
        **(source["notes"] if isinstance(source.get("notes"), dict) else {}),
    }
    return {kind: line for kind, line in lines.items() if line and isinstance(line, str)}


def noted_as(**lines: str) -> dict[str, Any]:
    """Return lines on how examples were read as what a data set was `done`; nothing of empty lines."""
    told = {kind: line for kind, line in lines.items() if line}
    return {"done": {"notes": told}} if told else {}


def with_notes(done: dict[str, Any], **lines: str) -> dict[str, Any]:
    """Return what was done to a data set with further lines, but for empty ones."""
    notes = {**done.get("notes", {}), **{kind: line for kind, line in lines.items() if line}}
    return {**done, "notes": notes} if notes else done


def _index(names: Any) -> str:
    """Say which features are called as programs call a table's index."""
    if not (names and isinstance(names, list) and all(isinstance(name, str) for name in names)):
        return ""
    called = ", ".join(f"'{name}'" for name in names[:MOST_NAMED])
    remedy = "leave out a column that numbers the rows"
    return f"features {called}: programs give a table's index such a name; {remedy}"


def changes_together(specs: Sequence[FederationSpec]) -> dict[str, Any]:
    """Return what was done at all sites, for `source` of a federation; the key of what was not is None."""
    added: dict[str, Any] = {
        key: _together(specs, key, Changed) for key in ("filled", "spelled", "respelled")
    }
    if added["spelled"]:
        told = [(_called(one), _told(one.source, "spelled", Changed)) for one in specs]
        added["spelled"]["sites"] = _sites(told)
    by_site = [(_called(one), one.source.get("notes")) for one in specs]
    notes = {f"{kind} of {site}": f"{site}: {line}"
             for site, own in by_site if isinstance(own, dict) for kind, line in own.items()}  # fmt: skip
    factors = {
        entry.name: own for one in specs for entry in one.silos if (own := factors_at(one.source, entry.name))
    }
    return {"dropped": _dropped(specs), **added, "factors": factors or None, "notes": notes or None}


def factors_at(source: Mapping[str, Any], silo: str) -> dict[str, float]:
    """Return by what the spec of a silo's table multiplies columns, from `source` of its entry or of all."""
    told = source.get("factors")
    own = told.get(silo) if isinstance(told, dict) else {}
    every = own if isinstance(own, dict) else told
    return {name: float(by) for name, by in every.items() if isinstance(by, int | float)} if every else {}


def _dropped(specs: Sequence[FederationSpec]) -> dict[str, Any] | None:
    """Return what all sites left out, of the rows of all; None where nothing was."""
    of_all = [(_called(one), _told(one.source, "dropped", Dropped)) for one in specs]
    told = [(site, found if found.of else found.model_copy(update={"of": _rows_of(one)}))
            for (site, found), one in zip(of_all, specs, strict=True)]  # fmt: skip
    added = Dropped.added(told)
    return added.model_dump(exclude_defaults=True) if added.rows or added.commented else None


def _rows_of(spec: FederationSpec) -> int:
    """Return how many rows a site has that left none out."""
    return sum(sum(entry.examples.values()) for entry in spec.silos)


def _together(specs: Sequence[FederationSpec], key: str, kind: type[Told]) -> dict[str, Any] | None:
    """Return what is told of one kind at all sites, added up; None where nothing is."""
    told = [(_called(one), _told(one.source, key, kind)) for one in specs]
    return kind.added(told).model_dump(exclude_defaults=True) or None


def _called(spec: FederationSpec) -> str:
    return spec.silos[0].name if spec.silos else ""


def _sites(told: Sequence[tuple[str, Changed]]) -> dict[str, dict[str, dict[str, int]]]:
    """Return what each site tells, by its name; a federation that had sites already tells that of each."""
    return {site: of for name, one in told for site, of in (one.sites or {name: one.columns}).items() if of}


def _by_site(told: Sequence[tuple[str, Told]]) -> dict[str, int]:
    return {name: one.count for name, one in told if one.count}


def _listed(counts: dict[str, int], by: str = "") -> str:
    named = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    more = f" and {len(named) - MOST_NAMED:,} more" if len(named) > MOST_NAMED else ""
    parts = ((*name.partition("\0"), count) for name, count in named[:MOST_NAMED])
    return ", ".join(f"{name} {count:,}{f' {by}{how}' * bool(how)}" for name, _, how, count in parts) + more
