"""What `mpifl new` sees in the data: its kind, whose it is, a table's spec and its label."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mpifl.cli.job_tools import MASKS, PARENT, RESIZED, Answers, SiteData
from mpifl.common import InputError, visible

if TYPE_CHECKING:
    from data_prep.tables import Drafted

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
LINES = ".jsonl"
TEXTS = (".txt", LINES)
SPLITS = ("train", "test")
USUAL_SILOS = 4
FITTED = "all rows are fitted, by --test 0; errors are too small where a person has several rows"
VALIDATED = 40
"""Images of a silo from which on a job has validation rows."""


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

    Images whose label is a folder have masks there.
    """
    if not data:
        return "digits"
    endings = {path.suffix.lower() for one in data for path in _files(Path(one))}
    if endings & {*IMAGES}:
        return "segmentation" if label and Path(label).is_dir() else "images"
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
    return _parted(Path(answers.data[0]), answers)


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
    source = answers.template.source
    refusals: list[str] = []
    if answers.template.label == MASKS and not Path(answers.label).is_dir():
        raise InputError(f"--label {answers.label}: is not a folder; name that of the masks")
    if answers.template.label == MASKS:
        answers, refusals = _drawn(answers)
    if source == "text" and (
        files := [one for one in _files(Path(answers.data[0])) if one.suffix.lower() == LINES]
    ):
        source, answers = _lines(answers, files)
    told = [f"{answers.data[0]}: a folder or file of each silo is there"] if answers.parted else []
    if source == "images":
        answers, grouped = _grouped(answers)
        told += grouped
        refusals += filter(None, [_refused(answers)])
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


def _refused(answers: Answers) -> str:
    """Say why a partition of images will be refused, as far as their headers tell."""
    from data_prep.sources import of_other_kinds

    return of_other_kinds(Path(answers.data[0]))


def _drawn(answers: Answers) -> tuple[Answers, list[str]]:
    """Return answers with the words of a partition that images and their masks need, and why it will be
    refused."""
    from data_prep.sources import look_at_masks

    seen = look_at_masks(Path(answers.data[0]), Path(answers.label))
    sized = [] if seen.one_size else RESIZED
    numbered = ["--values", seen.values] if seen.values else []
    return replace(answers, drawn=(*sized, *numbered, "--test", "0.2")), list(filter(None, [seen.refused]))


def _of_tables(answers: Answers, encoding: str) -> NewData:
    """Look through tables: draft their spec, and see what their label is."""
    from data_prep.sources import units_of_tables
    from data_prep.tables import Learned, check_encoding, draft, kind_of, label_moments, spec_beside

    paths, kind = [Path(path) for path in answers.data], answers.template.label
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


def _grouped(answers: Answers) -> tuple[Answers, list[str]]:
    """Return answers with what keeps the images of a patient together, if any, and a line on it."""
    from data_prep.sources import group_seen

    folder, found = Path(answers.data[0]), "images lie in a folder of each patient"
    images = [one for one in _files(folder) if one.suffix.lower() in IMAGES]
    if not answers.group:
        found, pattern = group_seen(images)
        answers = replace(answers, group=pattern)
    folders = sum(path.is_dir() for path in folder.iterdir())
    silos = int(answers.silos) if answers.silos.isdecimal() else folders if answers.parted else USUAL_SILOS
    answers = replace(answers, validated=len(images) >= VALIDATED * silos)
    kept = "those of one stay in one split of one silo; if they are not a patient's, leave out --group"
    return answers, [f"{folder}: {found}; {kept}"] if found else []


def _parted(folder: Path, answers: Answers) -> Answers:
    """Say whether images lie in a folder of each silo, or of each patient, or texts in a file of each silo;
    one must be there."""
    source = answers.template.source
    if folder.is_file() and answers.silos == PARENT and not answers.of_lines:
        raise InputError(f"{folder}: is no folder with one for each silo; say --silos N, or name a folder")
    if source == "text" and folder.is_file():
        return answers
    endings = TEXTS if source == "text" else IMAGES
    depths = {
        len(path.relative_to(folder).parts) for path in _files(folder) if path.suffix.lower() in endings
    }
    if not depths:
        raise InputError(f"--data {folder}: has no files that end in {', '.join(endings)}")
    there = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if source == "text":
        return _by_folder(answers, len(there))
    split = all((folder / part).is_dir() for part in SPLITS)
    flat = 1 if answers.template.label == MASKS else 2
    if min(depths) < flat:
        raise InputError(
            f"--data {folder}: images lie in no folder of their class; or say --kind segmentation"
        )
    deeper = min(depths) - flat - split if len(depths) == 1 else 0
    folders = sum(path.is_dir() for path in there)
    others = answers.silos.isdecimal() and int(answers.silos) != folders  # than the folders are
    parted = not split and (deeper == 2 or (deeper == 1 and not others))
    if answers.silos == PARENT and not parted:
        raise InputError(f"--silos parent: images in {folder} lie in no folder of a silo; say --silos N")
    answers = _by_folder(answers, folders) if parted else answers
    return replace(answers, group="parent" if deeper - parted == 1 else "")


def _by_folder(answers: Answers, silos: int) -> Answers:
    """Return answers on data that has a folder or file for each of so many silos, which a number may join."""
    if answers.silos.isdecimal() and int(answers.silos) > silos:
        what = f"{answers.data[0]} has a folder or file for each of {silos} silos"
        raise InputError(f"--silos {answers.silos}: {what}; leave it out")
    joined = answers.silos.isdecimal() and int(answers.silos) < silos
    return replace(answers, parted=True, silos=answers.silos if joined else "")


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or all of a folder that are not hidden."""
    inside = path.rglob("*") if path.is_dir() else [path]
    for one in inside:
        hidden = any(part.startswith(".") for part in one.relative_to(path).parts)
        if not hidden and not one.is_dir():
            yield one
