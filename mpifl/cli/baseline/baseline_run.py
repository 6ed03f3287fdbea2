"""The command `baseline`: trains what is to be compared, and says whether federation helped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mpifl.cli.baseline.baseline_figures import compare_models
from mpifl.cli.baseline.baseline_page import page
from mpifl.cli.baseline.baseline_words import FROM_CHANCE, record, table, verdict
from mpifl.cli.baseline.planned_runs import lent_shards, plan_of, plan_of_late, prepare
from mpifl.cli.sweep import INTERRUPTED, run_each, validate_all
from mpifl.common import InputError, cannot_be_written, write_atomic
from mpifl.common.pages import write_page
from mpifl.report.runs import wide_console


def baseline_command(
    job: Path, settings: Sequence[str], out: Path, ranks: int, resume: bool, late: Path | None = None
) -> int:
    """Carry out `mpifl baseline` and return its exit code.

    Args:
        job: The job file.
        settings: Keys and values of it.
        out: The folder of the runs and of the figures.
        ranks: MPI ranks of the federated training; the others take one.
        resume: Continue with the runs that are there.
        late: Shards of silos that came later: these alone are trained, and scored beside the federated model.

    Raises:
        InputError: there can be no such comparison, or a file cannot be read or written.
    """
    plan = plan_of(job, settings, out) if late is None else plan_of_late(job, settings, out, late)
    validate_all([plan.federated], job)
    prepare(plan, resume)
    screen = wide_console()
    for name, why in plan.left_out.items():
        screen.print(f"silo {name} left out: {why}", soft_wrap=True)
    codes = run_each(plan.runs, job, ranks, lent=partial(lent_shards, plan), first_counts=True)
    if INTERRUPTED in codes:
        print("continue by --resume" if late is None else "the same command continues")
        return INTERRUPTED
    if plan.federated.state != "done":
        return codes[0] or 1
    if not any(task.state == "done" for task in plan.alone.values()):
        raise InputError(f"{out}: no training of a silo alone came to its end; their log.txt say why")
    found = compare_models(plan)
    screen.print(table(found))
    for line in (*found.remarks, FROM_CHANCE, verdict(found)):
        screen.print(line, soft_wrap=True)
    name = "baseline" if late is None else "late"
    files = {"json": out / f"{name}.json", "page": out / f"{name}.html"}
    try:
        write_atomic(files["json"], (json.dumps(record(found), indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise cannot_be_written(out, error) from None
    write_page("--out", files["page"], page(found, f"{plan.job.name}: is it worth it?"))
    for kind, path in files.items():
        print(f"{kind}: {path}")
    return next((code for code in codes if code), 0)
