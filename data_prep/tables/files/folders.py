"""Tables that lie in a folder, in many files: `year=2020/month=1/p.parquet` has two columns in its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from data_prep.tables.files.opening import ARROW, PACKED, check_not_of_others
from mpifl.common import InputError

ENDINGS = {"csv": (".csv", ".tsv", ".txt", ".data"), "parquet": (".parquet", *ARROW)}
"""Of the files that are tables of a kind."""
NULL = "__HIVE_DEFAULT_PARTITION__"
"""What a folder is called whose rows lack the value."""
APART = (".", "_")
"""What names begin with that programs give to files beside a table."""


class TableFile(NamedTuple):
    """A file of a table, and the values that its folders' names give to columns; None is a missing one."""

    path: Path
    columns: Mapping[str, str | None]


def parts_of(kind: str, path: Path) -> list[TableFile]:
    """Return the files of a table in the order of their names: a file alone is the only one.

    Raises:
        InputError: a file is another program's; a folder has none, others, links that lead out, or other
            columns in some names than in others.
    """
    if not path.is_dir():
        check_not_of_others(path)
        other = next(one for one in ENDINGS if one != kind)
        if path.suffix in (".csv", *PACKED) if other == "csv" else path.suffix in ENDINGS[other]:
            raise InputError(f"{path}: read as {kind}, and named as {other}; give {other} as the source")
        return [TableFile(path, {})]
    within = (one.relative_to(path) for one in path.rglob("*") if one.is_file())
    names = sorted(name for name in within if not any(part.startswith(APART) for part in name.parts))
    parts = [TableFile(_checked(kind, path, name), _columns(name)) for name in names]
    if not parts:
        raise InputError(f"{path}: has no tables; files of one end in {' or '.join(ENDINGS[kind])}")
    for part in parts:
        if part.columns.keys() != parts[0].columns.keys():
            here, there = (", ".join(one.columns) or "none" for one in (part, parts[0]))
            what = f"its folders name the columns {here}, those of {parts[0].path} {there}"
            raise InputError(f"{part.path}: {what}; all files of a table have the same")
    return parts


def is_table(path: Path) -> bool:
    """Tell whether a file is a table by its ending."""
    return any(_ends(kind, path) for kind in ENDINGS)


def _ends(kind: str, name: Path) -> bool:
    """Tell whether a file's name ends as one of that kind does."""
    bare = name.with_suffix("") if kind == "csv" and name.suffix in PACKED else name
    return bare.suffix in ENDINGS[kind]


def _checked(kind: str, folder: Path, name: Path) -> Path:
    """Return the path of a file of that kind."""
    check_not_of_others(folder / name)
    if not _ends(kind, name):
        ends = " or ".join(ENDINGS[kind])
        what = f"in a folder of {kind} files, which end in {ends}"
        raise InputError(f"{folder / name}: {what}; move it elsewhere")
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{folder / name}: a link that leads out of {folder}; put what it leads to there")
    return folder / name


def _columns(name: Path) -> dict[str, str | None]:
    """Return the columns that the names of folders give to a file's rows."""
    pairs = (unquote(part).partition("=") for part in name.parts[:-1] if "=" in part)
    return {column: None if value == NULL else value for column, _, value in pairs}
