"""Which figure of a baseline is which, and why the page of its federated run may have others."""

from __future__ import annotations

from math import isclose, isnan

from mpifl.cli.baseline.baseline_figures import Baseline
from mpifl.report.judging import scores
from mpifl.report.runs import Summary
from mpifl.run.folder import number

OF_RANKS = ("auroc", "average_precision")
"""Metrics that rank rows against each other: of all rows together they are no mean of those of silos."""
MODELS = (
    "'alone' is the model that a silo trained on its own rows, and 'federated' the one model of all silos. "
    "Each row has both by the same test rows of that silo."
)


def which_figures(found: Baseline, federated: Summary | None = None) -> list[str]:
    """Say what each model and the row of all silos is, and which other figures a page has of the same model.

    Args:
        federated: The federated run, whose page that is, if it can be read.
    """
    whole, metric = found.whole, found.metric
    value = metric.write(whole.federated)
    of = "the mean over silos, each weighted by its test rows" if found.mean else "all test rows as one set"
    said = [MODELS, f"The row '{whole.name}' has {of}: {value} of the federated model."]
    if federated is None or not _of_same_rows(found, federated):
        return said
    of_silos, ranks = federated.of_silos, metric.name in OF_RANKS
    ways = {
        metric.pooled: "all test rows as one set" + ", so that rows of one silo are ranked against rows of "
        "another" * ranks,
        f"{metric.silo}_mean": "the mean over silos, each counted once",
    }
    others = [
        f"{other}, {way}"
        for key, way in ways.items()
        if (one := number(of_silos, key)) is not None and (other := metric.write(one)) != value
    ]
    if others:
        each = "; and ".join(others)
        said.append(f"The federated run's page has other figures of the same model and rows: {each}.")
        said.append("All are right. Quote one of them together with what it is of.")
    return said


def _of_same_rows(found: Baseline, federated: Summary) -> bool:
    """Whether a run has scored the silos of a baseline, and each as the baseline has."""
    told, name = scores(federated), found.metric.name
    values = [(number(told.get(one.name, {}), name), one.federated) for one in found.silos]
    return all(
        (isnan(right) if value is None else isclose(value, right, rel_tol=1e-6)) for value, right in values
    )
