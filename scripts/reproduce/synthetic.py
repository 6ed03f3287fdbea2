"""Li et al. 2020 on synthetic data: FedProx under stragglers, and the fairness of q-FedAvg."""

from __future__ import annotations

from statistics import mean, stdev

import numpy as np

from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import over_all, percent, silos_of

TINY = "synthetic --scheme natural --option silos=4 --test 0.2 --no-stratify"


def _cut(name: str, options: str) -> Cut:
    return Cut(f"synthetic-{name}", f"synthetic --scheme natural --test 0.2 --no-stratify {options}", TINY)


CUTS = {
    "IID": _cut("iid", "--option iid=true"),
    "(0, 0)": _cut("0-0", "--option alpha=0 --option beta=0"),
    "(0.5, 0.5)": _cut("0.5-0.5", "--option alpha=0.5 --option beta=0.5"),
    "(1, 1)": _cut("1-1", "--option alpha=1 --option beta=1"),
}
STRAGGLERS = {0: 0.3334, 50: 0.1667, 90: 0.0334}
"""The share of the cohort of 10 that straggles, in percent, and C where stragglers are dropped.

A random part of a random cohort is a smaller random cohort, so that dropping stragglers takes no code.
"""


def _methods(share: int) -> dict[str, tuple[str, ...]]:
    late = f"local.straggler_chance={share / 100}"
    dropped = {"FedAvg": (f"cohort.fraction={STRAGGLERS[share]}",)}
    partial = {"FedProx, mu = 0": (late,)} if share else {}
    return dropped | partial | {"FedProx, mu = 1": ("algorithm.name=fedprox", "algorithm.mu=1.0", late)}


PROX = tuple(
    Cell(f"{data}, {share} %, {name}", "", cut, settings, seeds=(7, 8, 9) if data == "(1, 1)" else (7,))
    for data, cut in CUTS.items()
    for share in STRAGGLERS
    for name, settings in _methods(share).items()
)


def accuracy_and_loss(runs: list[Summary]) -> tuple[str, ...]:
    """Return test accuracy and training loss of the last model over all silos' examples,
    by the number of examples."""
    test = [over_all(silos_of(run), "accuracy") for run in runs]
    loss = [over_all(silos_of(run, "train"), "loss") for run in runs]
    return percent(test), f"{mean(loss):.3f}"


SILOS = Cut("synthetic-100", "synthetic --scheme natural --option alpha=1 --option beta=1 --option silos=100"
            " --valid 0.1 --test 0.1 --no-stratify", f"{TINY} --valid 0.1")  # fmt: skip
FAIR = tuple(
    Cell(name, paper, SILOS, tried=tuple((f"algorithm.q={q}",) for q in tried), seeds=(7, 8, 9))
    for name, paper, tried in (
        ("q = 0", "80.8 / 18.8 / 100 / 724", (0.0,)),
        ("q > 0", "79.0 / 31.1 / 100 / 472", (1.0, 0.1, 5.0)),
    )
)
"""The paper's q > 0 is 1."""


def unfairness(run: Summary) -> float:
    """Return the errors of the silos' worst tenth, on rows that are held out to choose by."""
    each = np.sort([silo.metrics["accuracy"] for silo in silos_of(run, "valid")])
    return 1 - float(each[: max(len(each) // 10, 1)].mean())


def fairness(runs: list[Summary]) -> tuple[str, ...]:
    """Return accuracy over all rows, the silos' mean,
    that of the worst and best tenth, and the variance in %^2."""
    found = [silos_of(run) for run in runs]
    each = [np.sort([silo.metrics["accuracy"] for silo in silos]) for silos in found]
    tenth = max(len(each[0]) // 10, 1)
    variances = [float(np.var(100 * silos)) for silos in each]
    deviation = f" ± {stdev(variances):.0f}" if len(runs) > 1 else ""
    return (
        percent([over_all(silos, "accuracy") for silos in found]),
        percent([float(silos.mean()) for silos in each]),
        percent([float(silos[:tenth].mean()) for silos in each]),
        percent([float(silos[-tenth:].mean()) for silos in each]),
        f"{mean(variances):.0f}{deviation}",
    )


TABLES = {
    "fedprox": Table(
        "Li et al. 2020 (FedProx), Figures 1 and 2: synthetic data, "
        "stragglers dropped (FedAvg) or not (FedProx)",
        "fedprox.toml", PROX, ("test accuracy %", "training loss"), accuracy_and_loss,
        quick=("local.epochs=2",),
    ),
    "qfedavg": Table(
        "Li et al. 2020 (q-FFL), Table 1: synthetic data, 100 silos; "
        "q is chosen by the worst tenth on held-out rows",
        "qfedavg.toml", FAIR, ("all rows %", "silos' mean %", "worst 10 %", "best 10 %", "variance"),
        fairness,
        unfairness,
    ),
}  # fmt: skip
