"""The command `plan`: what a job will move and keep, before it is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mpifl.cli.command_options import JobFile, Set, write_text


def plan(
    job: JobFile,
    set_: Set = [],  # noqa: B006
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measured by mpifl doctor JOB --profile FILE.")
    ] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Of the profile's worlds that of so many.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="The same by nodes.")] = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Print what a job will move and keep, without MPI and without training: bytes, checkpoints, epsilon.
    With --profile also time and memory."""
    from mpifl.cli.plan import planned, show_plan

    figures = planned(job, tuple(set_), profile, ranks, nodes)
    show_plan(figures)
    if out is not None:
        write_text("--json", out, json.dumps(figures, indent=2) + "\n")
