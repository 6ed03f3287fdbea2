"""Li et al. 2022, "Federated learning on non-IID data silos: an experimental study" (NIID-Bench): MNIST."""

from __future__ import annotations

from mpifl.report import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

METHODS = ("fedavg", "scaffold", "fedprox", "fednova")
NAMES = ("FedAvg", "SCAFFOLD", "FedProx", "FedNova")
TRIED = {
    ("Dir(0.5)", "scaffold"): ("local.momentum=0.0",),
    ("Dir(0.5)", "fedprox"): ("algorithm.mu=0.01",),
    ("#C = 1", "fedprox"): ("algorithm.mu=0.001", "algorithm.mu=0.01"),
    ("#C = 2", "fedprox"): ("algorithm.mu=0.01",),
    ("#C = 3", "fedprox"): ("algorithm.mu=0.01",),
}
"""The most accurate is shown. The paper takes the best of mu = 0.001, 0.01, 0.1 and 1."""
PUBLISHED = {
    "dirichlet --alpha 0.5": ("Dir(0.5)", (98.89, 99.07, 99.02, 98.03)),
    "classes --classes 1": ("#C = 1", (19.3, 9.9, 51.8, 52.6)),
    "classes --classes 2": ("#C = 2", (96.86, 96.92, 96.85, 96.65)),
    "classes --classes 3": ("#C = 3", (97.86, 97.91, 97.85, 97.62)),
}
"""Test accuracy of a published replication, in percent, by scheme; in the order of METHODS."""


def _cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            f"{name}, {shown}",
            f"{paper:g}",
            Cut(f"niid-{scheme.replace(' --', '-').replace(' ', '')}", f"mnist --silos 10 --scheme {scheme}",
                f"digits --silos 10 --scheme {scheme}"),
            (f"algorithm.name={method}",),
            tried=tuple((setting,) for setting in TRIED[name, method]) if (name, method) in TRIED else ((),),
        )
        for scheme, (name, papers) in PUBLISHED.items()
        for method, shown, paper in zip(METHODS, NAMES, papers, strict=True)
    )  # fmt: skip


def errors(run: Summary) -> float:
    """Return the part of the test examples that the last model gets wrong."""
    return 1 - (run.figure("test_accuracy") or 0.0)


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the test accuracy of the last model, and the best on the way."""
    return tuple(percent([f or 0.0 for f in found], 2) for found in (
        [run.figure("test_accuracy") for run in runs], [run.best() for run in runs]
    ))  # fmt: skip


TABLES = {
    "niid-mnist": Table(
        "Li et al. 2022 (NIID-Bench), MNIST: 10 silos, E = 10, 50 rounds, test accuracy",
        "niid-mnist.toml", _cells(), ("test accuracy %", "best %"), figures, errors,
        quick=("model.padding=2", "local.epochs=1"),
    ),
}  # fmt: skip
