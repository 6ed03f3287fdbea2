"""The command `new`: writes a first job file and a table's spec, and prints the commands that make its
shards."""

from __future__ import annotations

import os
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
    from mpifl.cli.job_tools import Answers, NewData

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="What data there is: digits, table, images, ...; as --data looks.",
        autocompletion=completing.kinds,
    ),
]
Rounds = Annotated[int | None, typer.Option(min=1, help="How many rounds are trained; 30, and 10 of newton.")]


def new(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="What the job is called; its kind by default.")
    ] = None,
    kind: Kind = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="The table, text or folder; repeat it for a table of each site."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What is learned of a table; TIME,EVENT; a folder of masks."),
    ] = None,
    silos: Annotated[
        str | None,
        typer.Option(metavar="N", help="How many silos, or the column or .jsonl field that names them."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of `mpifl list algorithms`; fedavg.", autocompletion=completing.algorithms
        ),
    ] = None,
    rounds: Rounds = None,
    encoding: Annotated[str, typer.Option(help="How a CSV table's characters are written.")] = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a job file with comments, and a table's spec. Print the commands that make shards and train.

    Missing options are asked for, in a terminal.
    """
    from mpifl.cli.job_tools import Answers, kind_seen, looked_at, whose

    kind = kind or _ask("--kind", "What data is there?", kind_seen(data or (), label or ""), _kinds())
    answers = Answers(
        name=(name or "").removesuffix(".toml") or kind,
        kind=kind,
        data=tuple(map(_no_option, data or ())),
        label=label or "",
        silos=silos or "",
        algorithm=algorithm or "",
        rounds=rounds,
    )
    _write(looked_at(_completed(whose(_with_data(answers))), encoding), force)


def _no_option(path: str) -> str:
    """Return a path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _kinds() -> str:
    """Return the templates, one line each."""
    from mpifl.cli.job_tools import TEMPLATES

    return "\n".join(f"  {name:<12}  {one.what}" for name, one in TEMPLATES.items())


def _with_data(answers: Answers) -> Answers:
    """Ask where the data is, if it is needed and not given."""
    if answers.template.source == "digits" or answers.data:
        return answers
    asked = _ask("--data", "Where is it? A file, or a folder; tables of several sites with blanks between")
    return replace(answers, data=tuple(shlex.split(asked)))


def _completed(answers: Answers) -> Answers:
    """Ask for needed answers that are missing."""
    template = answers.template
    if template.label and not answers.label:
        question = {
            "survival": "Which columns are learned? TIME,EVENT",
            "masks": "Where are the masks? A folder",
        }
        asked = question.get(template.label, "Which column is learned?")
        answers = replace(answers, label=_ask("--label", asked))
    if not (answers.silos or answers.parted):
        more = ", or what names them" if template.of_table or answers.of_lines else ""
        answers = replace(answers, silos=_ask("--silos", f"How many silos{more}?", "4"))
    if not answers.algorithm:
        answers = replace(answers, algorithm=_ask("--algorithm", "Which algorithm?", template.algorithm))
    return answers


def _ask(option: str, question: str, usual: str | None = None, choice: str = "") -> str:
    """Ask in a terminal; without a terminal, return the default. Raise InputError if there is no terminal and
    no default."""
    if not sys.stdin.isatty():
        if usual is None:
            raise InputError(f"mpifl new {option}: not given, and there is no terminal to ask; {question}")
        return usual
    typer.echo(choice, err=True, nl=bool(choice))
    answer: str = typer.prompt(question, default=usual, err=True)
    return answer.strip()


def _write(found: NewData, force: bool) -> None:
    """Write the job, its schema and a table's spec after a check of the job, and print what was seen and the
    next commands."""
    from mpifl.cli.job_tools import SCHEMA, commented, schema_text
    from mpifl.run.job import check_job

    answers = found.answers
    path, job, commands = Path(f"{answers.name}.toml"), answers.job(), answers.commands(found.source)
    if path.name != str(path) or path.stem.startswith("-"):
        raise InputError(f"mpifl new {answers.name}: is not a name of a file in this folder")
    check_job(job, str(path))
    for one in (path, *map(Path, found.specs)):
        _check_free(one, force)
    apart = answers.commands_apart(found.sites) if found.sites else []
    other = ["Where each table stays at its site, in place of that:", *apart] if apart else []
    told = [f"{answers.of_rare.capitalize()}."] if answers.of_rare else []
    first = "\n".join(["A job of mpifl. Its shards are made by:", *commands, *other, *told])
    for columns, text in found.specs.items():
        write_text("mpifl new", Path(columns), text)
        typer.echo(f"{columns}: written; what the columns mean is guessed, so read it through")
    for line in found.told:
        typer.echo(line)
    write_text("mpifl new", path, commented(job, first))
    write_text("mpifl new", Path(SCHEMA), schema_text())
    typer.echo(f"{path}: written; editors use {SCHEMA} to complete its keys. Next:")
    for command in [*commands, f"mpifl train {shlex.quote(str(path))}"]:
        typer.echo(f"  {runnable(command)}")
    if apart:
        typer.echo("Where each table stays at its site, in place of the first:")
    for command in apart:
        typer.echo(f"    {runnable(command)}")


def _check_free(path: Path, force: bool) -> None:
    """Refuse to write over a file, unless it is said or a terminal is told so."""
    if (
        os.path.lexists(path)
        and not force
        and not (sys.stdin.isatty() and typer.confirm(f"{path} is there; replace it?"))
    ):
        raise InputError(f"{path}: is there already; use another name, or --force to write over it")
