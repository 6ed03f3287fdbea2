"""The command `sites`: the tables of several sites at one place become a shard folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from data_prep.commands.holding_options import Group, Order, Stratify, TestLast, check_order
from data_prep.dataset import doubts
from data_prep.schemes import Shares
from data_prep.write import COMPRESSIONS, default_jobs
from mpifl.common import one_line


def sites(
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE...", help="A table or folder of each site, or a folder of them."),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make; it must not exist, or be empty.")],
    spec: Annotated[
        Path | None,
        typer.Option(help="What columns mean; a site's own, its table's name with .toml, goes before."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The federation's name; that of the folder.")] = None,
    seed: Annotated[int, typer.Option(help="What the hold-out is drawn by.")] = 0,
    valid: Annotated[float, typer.Option(help="The share of a site's rows kept for validation.")] = 0.0,
    test: Annotated[float, typer.Option(help="The share of a site's rows kept for testing.")] = 0.0,
    group: Group = None,
    stratify: Stratify = True,
    order: Order = None,
    test_last: TestLast = 0.0,
    jobs: Annotated[int | None, typer.Option(help="How many threads write; the cores, at most 4.")] = None,
    compression: Annotated[str, typer.Option(help=f"{', '.join(COMPRESSIONS)}.")] = "none",
) -> None:
    """Make the shards of several sites' tables in one go: statistics, spec, import and assemble."""
    from data_prep.cut import WriteOptions
    from data_prep.site import Holding, join_sites, sites_of

    check_order(order, test_last)
    manner = WriteOptions(default_jobs() if jobs is None else jobs, compression)
    holding = Holding(Shares(valid, test, 0.0, test_last, stratify), seed, group, order)
    made, told, learned = join_sites(sites_of(tables), spec, out, name, holding, manner)
    for entry in made.silos:
        held = ", ".join(f"{count:,} {split}" for split, count in entry.examples.items())
        typer.echo(f"{out / entry.file}: {entry.name}: {held}")
    rows = learned and any({"valid", "test"} & {*entry.examples} for entry in made.silos)
    of_all = ". Means and deviations are of all rows, those held out included" * rows
    has = f"{out / 'agreed'} has specs and statistics{of_all}"
    typer.echo(f"{out / 'federation.json'}: {len(made.silos)} silos; {has}")
    for line in [*told, *(doubt.what for doubt in doubts(made, spelled=True))]:
        typer.echo(f"warning: {one_line(line)}", err=True)
