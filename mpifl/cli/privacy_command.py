"""The command `privacy`: the epsilon that a job would cost, and that a site has spent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mpifl.cli.command_options import Set, write_text
from mpifl.common import InputError

if TYPE_CHECKING:
    from mpifl.data.shards import AnySpec
    from mpifl.run.job import Job
    from mpifl.wings.dpsgd import SiloPlan

SHOWN = 10
"""About how many rounds the table shows."""


def privacy(
    job: Annotated[
        Path | None, typer.Argument(metavar="[JOB.toml]", help="Without one: what this site's ledger says.")
    ] = None,
    set_: Set = [],  # noqa: B006
    delta: Annotated[
        float | None, typer.Option(metavar="DELTA", help="Of the ledger's epsilon; by default its budget's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures.")] = None,
) -> None:
    """Print the epsilon of a private job before it is trained, or the epsilon that a site has spent."""
    figures = _of_ledger(delta) if job is None else _of_job(job, tuple(set_), delta)
    if out is not None:
        write_text("--json", out, json.dumps(figures, indent=2) + "\n")
    if why := figures.get("site", {}).get("refused"):
        raise InputError(why)


def _of_job(path: Path, overrides: tuple[str, ...], delta: float | None) -> dict[str, Any]:
    """Print a job's noise and steps at each silo, and their epsilon; return all figures."""
    if delta is not None:
        raise InputError("--delta: a job has its own, [privacy] delta; leave the option out")
    from mpifl.data.shards import group_note
    from mpifl.run.job import is_silo_level, read_job
    from mpifl.training.beforehand import validate_job
    from mpifl.wings import wings_of
    from mpifl.wings.dpsgd import figures_of_plan, plans, refuse_without

    job = read_job(path, overrides)
    refuse_without(job, str(path))
    spec = validate_job(job, str(path), wings_of)
    if is_silo_level(job):
        return _of_silos(job, spec)
    planned = plans(job, spec, job.build_algorithm().for_federation(spec))
    ends = figures_of_plan(job, planned, job.rounds)
    by_round = {round: max(figures_of_plan(job, planned, round)) for round in _shown(job.rounds)}
    assert job.privacy is not None
    title = f"{job.name}: epsilon at delta {job.privacy.delta:g}, counted by {job.privacy.accountant}"
    headings = ["silo", "examples", "q", "steps a round", "noise z", f"epsilon after {job.rounds} rounds"]
    rows = [
        [p.name, f"{p.examples:,}", f"{p.rate:.4g}", f"{p.steps:,}", f"{p.noise:g}", f"{end:.4f}"]
        for p, end in zip(planned, ends, strict=True)
    ]
    _print(title, headings, rows)
    _print(
        "the largest by round", ["rounds", "epsilon"], [[f"{n:,}", f"{e:.4f}"] for n, e in by_round.items()]
    )
    if note := group_note(Path(job.shards), spec):
        print(note)
    silos = [
        {
            "silo": p.name,
            "examples": p.examples,
            "q": p.rate,
            "steps": p.steps,
            "noise": p.noise,
            "epsilon": end,
        }
        for p, end in zip(planned, ends, strict=True)
    ]
    figures = {"delta": job.privacy.delta, "silos": silos}
    return {**figures, "largest": {str(n): e for n, e in by_round.items()}, **_at_site(job, spec, planned)}


def _at_site(job: Job, spec: AnySpec, planned: Sequence[SiloPlan]) -> dict[str, Any]:
    """Print what the budget of the site that MPIFL_SITE names leaves of a job; return the figures, if any."""
    from mpifl.wings.dpsgd import left_here
    from mpifl.wings.privacy import open_site

    if not (named := os.environ.get("MPIFL_SITE")):
        what = "what silos have spent before, and what sites allow, is not known here"
        print(f"MPIFL_SITE is not set, so {what}; a training needs it", file=sys.stderr)
        return {}
    if not Path(named).is_dir():
        print(f"MPIFL_SITE={named}: there is no such folder yet, so nothing is spent there", file=sys.stderr)
        return {}
    site = open_site()
    found, told, refused = left_here(job, spec, planned, site)
    limit, heads = site.budget, ["silo", "epsilon spent", "epsilon left", "rounds left"]
    says = f"budget epsilon {limit.epsilon:g} at delta {limit.delta:g}" if limit else "no budget.toml"
    left = [max(limit.epsilon - one.spent, 0.0) if limit else None for one in found]
    rounds = [job.rounds if one.room is None else one.room.left for one in found]
    rows = [
        [
            one.silo,
            f"{one.spent:.4f}",
            "-" if epsilon is None else f"{epsilon:.4f}",
            f"{n:,} of {job.rounds:,}",
        ]
        for one, epsilon, n in zip(found, left, rounds, strict=True)
    ]
    _print(f"{site.folder}: {says}", heads, rows)
    if told:
        print(told)
    silos = [
        {"silo": one.silo, "spent": one.spent, "left": epsilon, "rounds_left": n}
        for one, epsilon, n in zip(found, left, rounds, strict=True)
    ]
    budget = limit.model_dump() if limit else None
    about = {"folder": str(site.folder), "budget": budget, "rounds": job.rounds, "silos": silos}
    return {"site": {**about, "refused": refused or None}}


def _of_silos(job: Job, spec: AnySpec) -> dict[str, Any]:
    """Print a job's silo-level noise and its epsilon by round; return all figures."""
    from mpifl.training.beforehand import parameters_of
    from mpifl.wings.dpsgd import figures_of_rounds, loudness, mechanism_of

    assert job.privacy is not None
    one, silos, parameters = mechanism_of(job, len(spec.silos)), len(spec.silos), parameters_of(job, spec)
    by_round = {round: figures_of_rounds(job, one, round) for round in _shown(job.rounds)}
    figures = {"silos": silos, "expected": one.expected, "q": one.rate, "noise": one.noise}
    figures |= {"parameters": parameters, "noise_by_clip": loudness(one, parameters)}
    title = f"{job.name}: epsilon of each silo at delta {job.privacy.delta:g}, counted by"
    headings = ["silos", "a round expects", "q", "noise z", "parameters", "noise / clip of the mean"]
    row = [f"{silos:,}", f"{one.expected:g}", f"{one.rate:.4g}", f"{one.noise:g}", f"{parameters:,}"]
    row += [f"{figures['noise_by_clip']:.3g}"]
    _print(f"{title} {job.privacy.accountant}", headings, [row])
    _print("by round", ["rounds", "epsilon"], [[f"{n:,}", f"{e:.4f}"] for n, e in by_round.items()])
    return {"delta": job.privacy.delta, **figures, "epsilon": {str(n): e for n, e in by_round.items()}}


def _shown(rounds: int) -> list[int]:
    """Return the rounds for which a table shows epsilon."""
    step = -(-rounds // SHOWN)
    return sorted({1, *range(step, rounds + 1, step), rounds})


def _of_ledger(delta: float | None) -> dict[str, Any]:
    """Print the epsilon that this site's silos have spent; return all figures."""
    from mpifl.wings.privacy import epsilon_of, open_site

    site = open_site()
    if delta is None and site.budget is None:
        raise InputError("--delta: is needed, since this site has no budget.toml; such as --delta 1e-5")
    wanted = site.budget.delta if delta is None and site.budget else delta
    assert wanted is not None
    kinds = {(entry.silo, entry.shard) for entry in site.entries()}
    spent = {}
    for silo, shard in sorted(kinds):
        entries = site.entries(silo, shard)
        steps = [one for entry in entries for one in entry.steps]
        spent[f"{silo} {shard[:12]}"] = (len(entries), epsilon_of(steps, wanted))
    budget = f", of {site.budget.epsilon:g} at {site.budget.delta:g}" if site.budget else ""
    rows = [[name, f"{answers:,}", f"{epsilon:.4f}"] for name, (answers, epsilon) in spent.items()]
    _print(f"{site.folder}: epsilon spent at delta {wanted:g}{budget}", ["silo", "answers", "epsilon"], rows)
    return {"delta": wanted, "silos": {name: {"answers": n, "epsilon": e} for name, (n, e) in spent.items()}}


def _print(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from mpifl.report.observers import print_table

    print_table(title, headings, rows)
