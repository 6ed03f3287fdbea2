"""Findings, printed as a table and written as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from mpifl import __version__
from mpifl.common import InputError, write_atomic
from mpifl.report.observers import on_terminal

State = Literal["ok", "note", "warning", "bad"]
COLOURS: dict[State, str] = {"ok": "green", "note": "dim", "warning": "yellow", "bad": "bold red"}


@dataclass(frozen=True)
class Finding:
    """The state of one examined thing, and what to do if it is not well."""

    what: str
    state: State
    found: str
    remedy: str = ""


def hurts(findings: Sequence[Finding]) -> bool:
    """Return whether any finding would make a training fail."""
    return any(finding.state == "bad" for finding in findings)


def show(findings: Sequence[Finding], ranks: Sequence[Mapping[str, str]]) -> None:
    """Print the ranks, one line each, then the findings, then a summary."""
    console = Console() if on_terminal() else Console(width=160, force_terminal=False)
    if ranks:
        console.print(_ranks(ranks))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "")
    for finding in findings:
        found = f"{finding.found}; {finding.remedy}" if finding.remedy else finding.found
        table.add_row(f"[{COLOURS[finding.state]}]{finding.state}[/]", finding.what, _plain(found))
    console.print(table)
    console.print(
        _sentence(findings), style="red" if hurts(findings) else "green", highlight=False, markup=False
    )


def write(path: Path, findings: Sequence[Finding], ranks: Sequence[Mapping[str, Any]], figures: Any) -> None:
    """Write all findings as JSON.

    Raises:
        InputError: the file cannot be written.
    """
    told = [asdict(finding) for finding in findings]
    body = {"version": __version__, "hurts": hurts(findings), "findings": told}
    body |= {"figures": figures, "ranks": ranks}
    try:
        write_atomic(path, json.dumps(body, indent=1).encode() + b"\n")
    except OSError as error:
        raise InputError(f"--json {path}: cannot be written ({error.strerror}); name another file") from None


def _ranks(ranks: Sequence[Mapping[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ranks[0]:
        table.add_column(heading, overflow="fold")
    for rank in ranks:
        table.add_row(*map(_plain, rank.values()))
    return table


def _plain(text: str) -> str:
    """Escape brackets, so that they are not read as markup."""
    return text.replace("[", r"\[")


def _sentence(findings: Sequence[Finding]) -> str:
    bad, warnings = (sum(finding.state == state for finding in findings) for state in ("bad", "warning"))
    if bad:
        return f"{bad} of {len(findings)} would hurt a training here"
    if warnings:
        return f"nothing would hurt a training here; {warnings} warning{'s' * (warnings > 1)}"
    return "all is well"
