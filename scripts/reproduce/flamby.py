"""du Terrail et al. 2022, "FLamby": Fed-Heart-Disease."""

from __future__ import annotations

from statistics import mean

from mpifl.report import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import over_all, percent, silos_of

WORDS = "heart-disease --scheme natural --test 0.34"
HEART = Cut("heart", WORDS, WORDS)
SEEDS = (7, 8, 9, 10, 11)


def adaptive(name: str, lr: float, server: float, *more: str) -> tuple[str, ...]:
    """Return the settings of a server optimizer; both rates are half of FLamby's (see the job)."""
    table = "server_optimizer"
    return (f"local.lr={lr}", f"{table}.name={name}", f"{table}.lr={server}", f"{table}.beta1=0.9",
            f"{table}.tau=1e-8", *(f"{table}.{key}" for key in more))  # fmt: skip


def _cell(name: str, paper: str, *settings: str) -> Cell:
    return Cell(name, paper, HEART, settings, seeds=SEEDS)


CELLS = (
    _cell("each hospital alone", "", "algorithm.name=ditto", "algorithm.lambda=0.0", "rounds=1", "local.epochs=50",
          "local.optimizer=adam", "local.lr=0.0005"),
    _cell("pooled", "73.5", "algorithm.name=fedsgd", "local.lr=1.0", "rounds=500", "evaluate.every=50"),
    _cell("FedAvg", "68.5"),
    _cell("FedProx", "68.5", "algorithm.name=fedprox", "algorithm.mu=0.02"),
    _cell("SCAFFOLD", "68.4", "algorithm.name=scaffold"),
    _cell("FedAdam", "72.6", *adaptive("adam", 0.005, 0.005, "beta2=0.999")),
    _cell("FedYogi", "73.1", *adaptive("yogi", 0.001581, 0.005, "beta2=0.999")),
    _cell("FedAdagrad", "73.1", *adaptive("adagrad", 0.001581, 0.158114)),
)  # fmt: skip


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the mean accuracy over hospitals, that over all test rows, and each hospital's; over the seeds."""
    found = [silos_of(run) for run in runs]
    means = [mean(accuracy for accuracy, _, _ in silos) for silos in found]
    rows = [over_all(silos, 0) for silos in found]
    each = zip(*found, strict=True)
    return percent(means), percent(rows), *(percent([mean(a for a, _, _ in hospital)]) for hospital in each)


TABLES = {
    "flamby-heart": Table(
        "du Terrail et al. 2022, FLamby, Fed-Heart-Disease: mean accuracy over four hospitals, logistic regression",
        "flamby-heart.toml",
        CELLS,
        ("hospitals' mean %", "all rows %", "Cleveland", "Hungary", "Switzerland", "VA"),
        figures,
        quick=("rounds=2", "local.epochs=1"),
    )
}
