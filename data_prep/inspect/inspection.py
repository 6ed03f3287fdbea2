"""The command `inspect`: one shard folder in the terminal and as a page, or two compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.inspect.column_advice import column_advice
from data_prep.inspect.columns_summary import (
    ColumnsSummary,
    compared_columns,
    show_columns,
    summarise_columns,
)
from data_prep.inspect.overview import compare, compared, show, shown
from data_prep.inspect.summary import FolderSummary, summarise, tokens
from mpifl.common import InputError, visible
from mpifl.common.pages import check_page, write_page
from mpifl.data.shards import is_vertical

if TYPE_CHECKING:
    from rich.console import Console


def inspect(folders: Sequence[Path], page: Path | None, *, features: bool, everything: bool) -> None:
    """Print what the silos of one or two folders hold, and write it to `page`, if one is given."""
    from rich.console import Console

    if len(folders) > 2:
        raise InputError(f"DIR: {len(folders)} folders given; inspect one, or compare two")
    if page is not None:
        check_page("--page", page)
        if len(folders) > 1:
            raise InputError(f"--page {page}: is of one folder; two are compared here, or have a page each")
    console = Console(width=None if sys.stdout.isatty() else 120)
    if vertical := [folder for folder in folders if is_vertical(folder)]:
        if len(vertical) < len(folders):
            raise InputError(f"DIR: {vertical[0]} is vertical, the other is not; inspect each by itself")
        _inspect_columns(vertical, page, console, features=features, everything=everything)
        return
    summaries = [summarise(folder, features=features) for folder in folders]
    _print(summaries, console, features=features, everything=everything)
    if page is not None:
        from data_prep.inspect.page import page as page_of

        write_page("--page", page, page_of(summaries[0]))
        print(f"Written to {page}")


def _inspect_columns(
    folders: Sequence[Path],
    page: Path | None,
    console: Console,
    *,
    features: bool,
    everything: bool,
) -> None:
    """Do the same for vertical folders."""
    found = [summarise_columns(folder, features=features) for folder in folders]
    for one in found if len(found) == 1 or everything else ():
        show_columns(one, console, everything=everything)
        for told in column_advice(one):
            console.print(shown(str(told)))
    _warn(found, console)
    if len(found) == 2:
        compare([one.spec for one in found], compared_columns(*found), console)
    if page is not None:
        from data_prep.inspect.column_page import column_page

        write_page("--page", page, column_page(found[0]))
        print(f"Written to {page}")


def _print(summaries: Sequence[FolderSummary], console: Console, *, features: bool, everything: bool) -> None:
    if len(summaries) == 1 or everything:
        for summary in summaries:
            show(summary, console, everything=everything)
    for spec in (summary.spec for summary in summaries):
        if features and tokens(spec):
            named = isinstance(spec.features, dict)
            what = "named arrays" if named else f"{spec.single.dtype} without a scale: tokens to a model"
            print(f"{visible(spec.name)}: features are {what}, without a mean")
    _warn(summaries, console)
    if len(summaries) == 2:
        compare([one.spec for one in summaries], compared(*summaries), console)


def _warn(found: Sequence[FolderSummary | ColumnsSummary], console: Console) -> None:
    for one in found:
        for told in one.warnings:
            of = f"{one.spec.name}: " if len(found) > 1 else ""
            console.print(shown(f"Warning: {of}{told}"))
