"""The commands `plan`, before a job is trained, and `bill`, after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli.command_options import JobFile, Run, Set, write_text

Measured = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Measured by mpifl doctor JOB --profile FILE.")
]
Written = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")]


def plan(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    profile: Measured = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Of the profile's worlds that of so many.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="The same by nodes.")] = None,
    out: Written = None,
) -> None:
    """Print what a job will move and keep, without MPI and without training: bytes, checkpoints, epsilon.
    With --profile also time and memory."""
    from mpifl.cli.plan import planned, show_plan

    figures = planned(job, tuple(set_), profile, ranks, nodes)
    show_plan(figures)
    if out is not None:
        write_text("--json", out, json.dumps(figures, indent=2) + "\n")


def bill(run: Run, profile: Measured = None, out: Written = None) -> None:
    """Hold a run's plan against what it has moved and taken: bytes, seconds, memory."""
    from mpifl.cli.plan import bill_of, show_bill

    lines, notes = bill_of(run, profile)
    show_bill(run, lines, notes)
    if out is not None:
        told = {"lines": [one._asdict() for one in lines], "notes": notes}
        write_text("--json", out, json.dumps(told, indent=2) + "\n")
