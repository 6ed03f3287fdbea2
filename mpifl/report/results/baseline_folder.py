"""Silos that each trained alone, from a run of these or from the folder of a baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic_core import from_json

from mpifl.common import LARGEST_FILE, InputError, one_line, read_whole
from mpifl.report.runs import Summary, read_run
from mpifl.run.folder import number

FILE, FEDERATED = "baseline.json", "federated"
ALONE = {"name": "ditto", "lambda": 0.0}
"""The algorithm by which each silo trains by itself, as a baseline's runs of single silos do."""


def read_alone(folder: Path) -> Summary:
    """Return silos that each trained alone: a run of these, or what `mpifl baseline` found of them.

    Raises:
        InputError: the folder is none of these, or cannot be read.
    """
    if folder.name == FEDERATED and (folder.parent / FILE).exists():
        what = "is the federated run of a baseline, in which silos do not train alone"
        raise InputError(f"--alone {folder}: {what}; name the baseline's folder, {folder.parent}")
    if not (folder / FILE).exists():
        return read_run(folder)
    return _of_baseline(folder, read_run(folder / FEDERATED))


def told_by_baseline(alone: Summary | None) -> list[str]:
    """Return the verdict of a baseline that a run is held against, and which figure of it is which; [] where
    it is held against another run, or none."""
    if alone is None or not (alone.run / FILE).exists():
        return []
    told = from_json(read_whole(alone.run / FILE, LARGEST_FILE))  # which read_alone has read
    more = [one_line(one) for one in (told.get("figures") or [])[1:]]
    return [f"The baseline, of its own federated run: {one_line(told.get('verdict', ''))}", " ".join(more)]


def _of_baseline(folder: Path, federated: Summary) -> Summary:
    """Return the silos of a baseline as a run in which each trained alone, on the same rows."""
    try:
        told = from_json(read_whole(folder / FILE, LARGEST_FILE))
        name = federated.metric.name
        if told["metric"] != name:
            raise ValueError(told["metric"])
        silos = {silo: {name: number(one, "alone")} for silo, one in told["silos"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"is not as 'mpifl baseline' writes it ({error})"
        raise InputError(f"--alone {folder / FILE}: {what}; repeat that command") from None
    record = {"round": federated.of_model["round"]}
    record |= {"final": {"silos": silos}} if federated.by_valid else {"silos": silos}
    job = {**federated.job, "algorithm": ALONE}
    return replace(federated, run=folder, records=[record], job=job, own_models=True)
