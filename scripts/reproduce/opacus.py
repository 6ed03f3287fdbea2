"""Opacus, examples/mnist.py: MNIST by DP-SGD, here over silos that share one Poisson batch and its noise."""

from __future__ import annotations

from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

BATCHES = 250
"""Steps of an epoch: 60,000 examples by 240."""
PUBLISHED = {
    (0.25, 1.3, 1.5, 15): "94.63 ± 0.34",
    (0.15, 1.1, 1.0, 60): "96.78 ± 0.21",
    (0.25, 0.7, 1.5, 45): "97.09 ± 0.17",
}
"""Test accuracy in percent, mean and deviation of 10 runs (examples/mnist_README.md, commit 4d0ebc8), by
learning rate, noise multiplier, clip and epochs."""
SILOS = (1, 10, 50)
SEEDS = (7,)


def _cut(silos: int) -> Cut:
    words = f"--silos {silos} --scheme iid"
    return Cut(f"opacus-mnist-{silos}", f"mnist {words}", f"digits {words}")


def _cell(silos: int, colluding: bool, lr: float, noise: float, clip: float, epochs: int) -> Cell:
    """Return a cell; if a third of several silos may collude, the others' noise alone is enough."""
    rounds = epochs * BATCHES
    settings = (f"rounds={rounds}", f"local.lr={lr}", f"privacy.noise={noise}", f"privacy.clip={clip}")
    if silos > 1 and not colluding:
        settings += ("security.colluding=0.0",)
    name = f"z = {noise:g}, {silos} silo{'s' * (silos > 1)}{', a third colluding' * colluding}"
    return Cell(name, PUBLISHED[lr, noise, clip, epochs], _cut(silos), settings, seeds=SEEDS)


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the last test accuracy over the seeds, and the epsilon of all rounds."""
    last = [[a for record in run.records if (a := record.get("test_accuracy")) is not None] for run in runs]
    epsilon = max(run.records[-1].get("epsilon", 0.0) for run in runs)
    return percent([found[-1] if found else 0.0 for found in last], 2), f"{epsilon:.2f}"


TABLES = {
    "opacus-mnist": Table(
        "Opacus, examples/mnist.py: MNIST by DP-SGD on the union of all silos, test accuracy at delta 1e-5",
        "opacus-mnist.toml",
        tuple(_cell(silos, False, *setting) for setting in PUBLISHED for silos in SILOS)
        + tuple(_cell(silos, True, *next(iter(PUBLISHED))) for silos in SILOS[1:]),
        ("test accuracy %", "epsilon"),
        figures,
        quick=('model.name="2nn"',),
        published="Opacus, 10 runs",
    )
}
