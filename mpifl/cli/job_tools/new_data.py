"""What `mpifl new` sees in the data: its kind, whose it is, a table's spec and its label."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mpifl.cli.job_tools import MASKS, Answers, SiteData
from mpifl.cli.job_tools.new_images import (
    IMAGES,
    LINES,
    TEXTS,
    VOLUMES,
    drawn,
    files_in,
    laid_out,
    of_layout,
    of_patients,
    of_volumes,
    refused,
)
from mpifl.common import InputError, visible

if TYPE_CHECKING:
    from data_prep.tables import Drafted

FITTED = "all rows are fitted, by --test 0; errors are too small where a person has several rows"


@dataclass(frozen=True)
class NewData:
    """What was seen of the data of a new job.

    Attributes:
        answers: The user's answers, and what follows of the data.
        source: The source of `data-prep` that reads it.
        specs: Of a table, or of several sites' tables: the specs' texts by their files.
        told: What the owner should hear, a line each.
        sites: The tables of several sites.
    """

    answers: Answers
    source: str
    specs: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    sites: list[SiteData] = field(default_factory=list)


def kind_seen(data: Sequence[str], label: str = "") -> str:
    """Return the kind of job that data looks like, by the endings of its files; digits without any.

    Images have masks if the label is a folder, or if the names of files and folders say so.
    """
    from data_prep.sources import layout_seen

    if not data:
        return "digits"
    files = [path for one in data for path in files_in(Path(one))]
    endings = {path.suffix.lower() for path in files}
    if any(path.name.lower().endswith(VOLUMES) for path in files):
        return "segmentation"
    if endings & {*IMAGES}:
        masked = Path(label).is_dir() if label else layout_seen(Path(data[0])) is not None
        return "segmentation" if masked else "images"
    return "text" if endings & {*TEXTS} and endings <= {*TEXTS} else "table"


def whose(answers: Answers) -> Answers:
    """Return answers with the tables of several sites one by one, and whether the data is parted by silo.

    Raises:
        InputError: data is not there, or there are several where one is taken.
    """
    template = answers.template
    for path in answers.data:
        if not Path(path).exists():
            raise InputError(f"--data {path}: is not there")
    if len(answers.data) > 1 and (not template.of_table or template.scheme[0] == "vertical"):
        what = f"--kind {answers.kind} takes one; put a folder or file of each site into one folder"
        raise InputError(f"--data: {' and '.join(answers.data)} given, and {what}")
    if template.of_table:
        tables = _tables(answers)
        return replace(answers, data=tables, parted=len(tables) > 1)
    if not answers.data:
        return answers
    return laid_out(Path(answers.data[0]), answers)


def looked_at(answers: Answers, encoding: str) -> NewData:
    """Look through the data.

    Raises:
        InputError: a table cannot be read, or lacks a column that is named; there are no masks; a line of a
            `.jsonl` file has no text.
    """
    if answers.algorithm == "cox" and answers.kind != "survival":
        what = "takes a time and an event; say --kind survival --label TIME,EVENT"
        raise InputError(f"--algorithm cox: {what}")
    if answers.template.of_table:
        return _of_tables(answers, encoding)
    source = "nifti" if answers.data and of_volumes(answers) else answers.template.source
    refusals: list[str] = []
    told = [of_layout(answers)] if answers.masked else []
    if answers.template.label == MASKS and not Path(answers.label).is_dir():
        raise InputError(f"--label {answers.label}: is not a folder; name that of the masks")
    if answers.template.label == MASKS:
        answers, refusals = drawn(answers)
    if source == "text" and (
        files := [one for one in files_in(Path(answers.data[0])) if one.suffix.lower() == LINES]
    ):
        source, answers = _lines(answers, files)
    there = f"{''.join(answers.data[:1])}: a folder or file of each silo is there"
    lost = f"--silos {answers.silos} joins some, whose names are lost; leave it out to keep each"
    told += [f"warning: {there}; {lost}" if answers.silos else there] if answers.parted else []
    if source in ("images", "nifti"):
        answers, grouped = of_patients(answers)
        told += grouped
    if source == "images":
        refusals += filter(None, [refused(answers)])
    told += [f"warning: {refused}" for refused in refusals]
    return NewData(answers, source, told=told)


def _lines(answers: Answers, files: Sequence[Path]) -> tuple[str, Answers]:
    """Return the source of texts in lines, and answers with the words of its partition, after a look at the
    first line of each file."""
    from data_prep.sources import texts_in

    field_of_silos = answers.silos if answers.of_lines and not answers.silos.isdecimal() else ""
    for file in files:
        next(texts_in(file, field_of_silos), None)
    return "jsonl", replace(answers, drawn=("--test", "0.2"))


def _of_tables(answers: Answers, encoding: str) -> NewData:
    """Look through tables: draft their spec, and see what their label is."""
    from data_prep.sources import units_of_tables
    from data_prep.tables import Learned, check_encoding, draft, kind_of, label_moments, spec_beside

    paths, kind = [Path(path) for path in answers.data], answers.template.label
    if (clash := _named_as_spec(answers, paths)) and len(paths) > 1:
        raise InputError(f"mpifl new {clash}")
    try:
        check_encoding(encoding)
    except ValueError as error:
        raise InputError(f"--encoding: {error}") from None
    silo = answers.silos if answers.silos and not answers.silos.isdecimal() else None
    columns = tuple(name.strip() for name in answers.label.split(","))
    drafted = draft(
        paths, Learned(kind, columns, silo, encoding=encoding, by_own=True, in_units=answers.fits_all)
    )
    if answers.fits_all and kind == "categorical" and not drafted.apart and len(drafted.classes) != 2:
        return _of_numbers(answers, drafted, encoding)
    told = [*drafted.told, *units_of_tables(paths, drafted)]
    if len(paths) == 1 and (only := drafted.beside.get(paths[0])):
        answers = replace(answers, own_spec=str(only.path))
        told = [f"{paths[0].name}: read by its own spec {only.path}"]
        if clash:
            raise InputError(f"mpifl new {clash}")
    told += [f"warning: {clash}"] * bool(clash)
    if kind == "numeric":
        moments = tuple(label_moments(paths, name, encoding, drafted.beside) for name in columns)
        answers = replace(answers, moments=moments)
    answers = replace(answers, classes=drafted.classes, apart=drafted.apart)
    if len(answers.classes) == 2 and answers.is_binary:
        told.append(_binary(answers))
    if answers.fits_all:
        told.append(f"{answers.algorithm}: {FITTED}")
    specs = {} if answers.own_spec else {answers.columns: drafted.text}
    specs |= {str(spec_beside(path)): text for path, text in drafted.own.items()}
    sites = []
    for path in paths if len(paths) > 1 else ():
        beside = spec_beside(path)
        own = str(beside) if path in {**drafted.own, **drafted.beside} else answers.columns
        sites.append(SiteData(str(path), kind_of(path), beside.stem, own))
    return NewData(answers, kind_of(paths[0]), specs, told, sites)


def _named_as_spec(answers: Answers, tables: Sequence[Path]) -> str:
    """Say that the job would have the name of the spec of a table, and what would do; "" without one."""
    from data_prep.tables import spec_beside

    job = Path(f"{answers.name}.toml").resolve()
    of = next((visible(path.name) for path in tables if spec_beside(path).resolve() == job), "")
    what = f"{answers.name}: beside {of} {job.name} is read as the spec of that table"
    return f"{what}; use another name, as {answers.name}-job" if of else ""


def _of_numbers(answers: Answers, drafted: Drafted, encoding: str) -> NewData:
    """Look through tables whose outcome is fitted, and has other than two classes: it is to be of numbers.

    Raises:
        InputError: it is none.
    """
    if answers.kind == "table" and drafted.numbers and len(drafted.classes) > 2:
        found = _of_tables(replace(answers, kind="regression"), encoding)
        said = f"label: {answers.label} is a number of each row; [task] regression; for counts say 'counts'"
        return replace(found, told=[said, *found.told])
    shown = ", ".join(itertools.islice(drafted.classes, 6)) + ", ..." * (len(drafted.classes) > 6)
    what = (
        f"has {len(drafted.classes)} classes in text, {visible(shown)}; newton takes two classes, or numbers"
    )
    raise InputError(
        f"--label {answers.label}: {what}; name another column, or have two classes in the table"
    )


def _binary(answers: Answers) -> str:
    """Say what is learned of a label of two classes."""
    (_, _), (one, rows) = answers.classes.items()
    every = sum(answers.classes.values())
    what = f"label: {answers.label} is '{one}' in {rows:,} of {every:,} rows; [task] binary, AUROC first"
    return "; ".join(filter(None, [what, answers.of_rare]))


def _tables(answers: Answers) -> tuple[str, ...]:
    """Return the tables of sites: those named, or of a folder that no number or column of silos parts."""
    from data_prep.tables import is_table

    folder = Path(answers.data[0])
    if len(answers.data) > 1 or answers.silos or not folder.is_dir():
        return answers.data
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    found = [path for path in inside if is_table(path) or path.is_dir()]
    one = answers.template.scheme[0] == "vertical" or any("=" in path.name for path in found)
    return answers.data if one or len(found) < 2 else tuple(map(str, found))
