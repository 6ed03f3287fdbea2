"""The command `new`: writes a first job file, and prints the commands that make its shards."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mpifl.cli import completing
from mpifl.cli.command_options import write_text
from mpifl.common import InputError
from mpifl.common.machine import runnable

if TYPE_CHECKING:
    from mpifl.cli.job_tools import Answers

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", help="What data there is: digits, table, images, ...", autocompletion=completing.kinds
    ),
]


def new(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="What the job is called; its kind by default.")
    ] = None,
    kind: Kind = None,
    data: Annotated[str | None, typer.Option(metavar="PATH", help="The table, text or folder.")] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What is learned of a table; TIME,EVENT; a folder of masks."),
    ] = None,
    silos: Annotated[
        str | None, typer.Option(metavar="N", help="How many silos, or the table's column that names them.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of `mpifl list algorithms`; fedavg.", autocompletion=completing.algorithms
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds are trained.")] = 30,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a job file with comments, and print the commands that make its shards and train it.

    Missing options are asked for, in a terminal.
    """
    from mpifl.cli.job_tools import Answers

    kind = kind or _ask("--kind", "What data is there?", "digits", _kinds())
    answers = Answers(
        name=name or kind,
        kind=kind,
        data=data or "",
        label=label or "",
        silos=silos or "",
        algorithm=algorithm or "",
        rounds=rounds,
    )
    _write(_measured(_completed(answers)), force)


def _kinds() -> str:
    """Return the templates, one line each."""
    from mpifl.cli.job_tools import TEMPLATES

    return "\n".join(f"  {name:<10}  {one.what}" for name, one in TEMPLATES.items())


def _completed(answers: Answers) -> Answers:
    """Ask for needed answers that are missing."""
    template = answers.template
    if template.source != "digits" and not answers.data:
        answers = replace(answers, data=_ask("--data", "Where is it? A file, or a folder"))
    if template.label and not answers.label:
        question = {
            "survival": "Which columns are learned? TIME,EVENT",
            "masks": "Where are the masks? A folder",
        }
        asked = question.get(template.label, "Which column is learned?")
        answers = replace(answers, label=_ask("--label", asked))
    if not answers.silos:
        more = ", or the column that names them" if template.of_table else ""
        answers = replace(answers, silos=_ask("--silos", f"How many silos{more}?", "4"))
    if not answers.algorithm:
        answers = replace(answers, algorithm=_ask("--algorithm", "Which algorithm?", template.algorithm))
    return answers


def _source(answers: Answers) -> str:
    """Return the source that reads the data: of a table by its ending."""
    from data_prep.tables import kind_of

    return kind_of(Path(answers.data)) if answers.template.of_table else answers.template.source


def _measured(answers: Answers) -> Answers:
    """Measure mean and deviation of label values, so that a model learns them in units of their deviation."""
    from data_prep.tables import label_moments

    if answers.template.label != "numeric":
        return answers
    try:
        moments = tuple(label_moments([Path(answers.data)], name) for name in answers.label.split(","))
    except InputError as error:
        said = f"data-prep inspect shards/{answers.name} --features"
        typer.echo(f"{error}\n[task] mean and deviation are left out: {said} will say them", err=True)
        return answers
    return replace(answers, moments=moments)


def _ask(option: str, question: str, usual: str | None = None, choice: str = "") -> str:
    """Ask in a terminal; without a terminal, return the default.

    Raises:
        InputError: there is no terminal and no default.
    """
    if not sys.stdin.isatty():
        if usual is None:
            raise InputError(f"mpifl new {option}: not given, and there is no terminal to ask; {question}")
        return usual
    typer.echo(choice, err=True, nl=bool(choice))
    answer: str = typer.prompt(question, default=usual, err=True)
    return answer.strip()


def _write(answers: Answers, force: bool) -> None:
    """Write the job and its schema after a check of the job, and print the next commands."""
    from mpifl.cli.job_tools import SCHEMA, commented, schema_text
    from mpifl.run.job import check_job

    path, job, commands = Path(f"{answers.name}.toml"), answers.job(), answers.commands(_source(answers))
    if path.name != str(path) or path.stem.startswith("-"):
        raise InputError(f"mpifl new {answers.name}: is no name of a file in this folder")
    check_job(job, str(path))
    if (
        path.exists()
        and not force
        and not (sys.stdin.isatty() and typer.confirm(f"{path} is there; replace it?"))
    ):
        raise InputError(f"{path}: is there already; take another name, or --force to write over it")
    first = "\n".join(["A job of mpifl. Its shards are made by:", *commands])
    write_text("mpifl new", path, commented(job, first))
    write_text("mpifl new", Path(SCHEMA), schema_text())
    typer.echo(f"{path}: written; editors complete it by {SCHEMA}. Next:")
    for command in [*commands, f"mpifl train {shlex.quote(str(path))}"]:
        typer.echo(f"  {runnable(command)}")
