"""du Terrail et al. 2022, "FLamby": Fed-Heart-Disease and Fed-TCGA-BRCA."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from statistics import mean

import numpy as np

from data_prep.sources.heart import HOSPITALS, held_out_by_flamby, read_heart
from data_prep.sources.tcga_brca import REGIONS
from mpifl.common.errors import InputError
from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import over_all, percent, silos_of

WORDS = "npz --scheme natural"
ROUNDING = 1e-6
"""Below this a deviation is that of a constant column."""
SEEDS = (7, 8, 9, 10, 11)


def adaptive(name: str, lr: float, server: float, *more: str) -> tuple[str, ...]:
    """Return the settings of a server optimizer."""
    table = "server_optimizer"
    return (f"local.lr={lr}", f"{table}.name={name}", f"{table}.lr={server}", f"{table}.beta1=0.9",
            f"{table}.tau=1e-8", *(f"{table}.{key}" for key in more))  # fmt: skip


@dataclass(frozen=True)
class Hospitals(Cut):
    """The hospitals with FLamby's split of their rows, standardised by training rows."""

    alone: bool = True
    """Whether each is standardised by its own, as FLamby does; else by those of all."""

    def source(self, seed: int, quick: bool) -> str:
        """Write the hospitals' rows to a file of arrays, and name that."""
        try:
            data = read_heart(None, seed)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        assert data.silo is not None
        x, groups = data.x[:].astype(np.float64), [data.silo == silo for silo in range(len(HOSPITALS))]
        test = np.empty(len(x), bool)
        for rows in groups:
            test[rows] = held_out_by_flamby(data.y[rows])
        for rows in groups if self.alone else [np.ones(len(x), bool)]:
            train = x[rows & ~test]
            deviation = train.std(axis=0, ddof=1)
            x[rows] = (x[rows] - train.mean(axis=0)) / np.where(deviation < ROUNDING, 1, deviation)
        path = self.folder(seed, quick).with_suffix(".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, x=x.astype(np.float32), y=data.y[:], silo=data.silo, held_out=test)
        return f"{super().source(seed, quick)} --data {path}"


OWN = Hospitals("heart-own", WORDS, WORDS)
ALL = Hospitals("heart", WORDS, WORDS, alone=False)


def alone(epochs: int, lr: float) -> tuple[str, ...]:
    """Return the settings by which each silo trains a model of its own, by Adam."""
    return ("algorithm.name=ditto", "algorithm.lambda=0.0", "rounds=1",
            f"local.epochs={epochs}", "local.optimizer=adam", f"local.lr={lr}")  # fmt: skip


TUNED = ("algorithm.name=finetune", "algorithm.tune_steps=100", "local.lr=0.00316227")
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "each hospital alone": ("73.0 ± 2.9", alone(50, 0.001)),
    "pooled": ("73.5 ± 0.3", ("algorithm.name=fedsgd", "local.lr=2.0", "rounds=500", "evaluate.every=50")),
    "FedAvg": ("68.5 ± 2.8", ("local.lr=0.001",)),
    "FedProx": ("68.5 ± 2.8", ("algorithm.name=fedprox", "algorithm.mu=0.01", "local.lr=0.001")),
    "SCAFFOLD": ("68.4 ± 2.8", ("algorithm.name=scaffold", "local.lr=0.001")),
    "FedAdam": ("72.6 ± 1.4", adaptive("adam", 0.01, 0.01, "beta2=0.999")),
    "FedYogi": ("73.1 ± 1.3", adaptive("yogi", 0.003162, 0.01, "beta2=0.999")),
    "FedAdagrad": ("73.1 ± 1.3", adaptive("adagrad", 0.003162, 0.316228)),
    "FedAvg, lr = 0.00316": ("71.8 ± 1.6", TUNED[-1:]),
    "fine-tuned": ("73.5 ± 0.9", TUNED),
}
"""What FLamby's result files have, mean and sample deviation over seeds in percent, and the settings."""
CELLS = tuple(
    Cell(f"{name}{more}", paper if cut is OWN else "–", cut, settings, seeds=SEEDS)
    for cut, more in ((OWN, ""), (ALL, ", one scale"))
    for name, (paper, settings) in METHODS.items()
)

REGIONAL: dict[str, tuple[str, tuple[str, ...]]] = {
    "each region alone": ("68.9 ± 0.9", alone(30, 0.1)),
    "FedAvg": ("73.2 ± 18.1", ("local.lr=0.1",)),
    "FedProx": ("72.9 ± 16.8", ("algorithm.name=fedprox", "algorithm.mu=0.1", "local.lr=0.1")),
    "SCAFFOLD": ("68.7 ± 3.6", ("algorithm.name=scaffold", "local.lr=0.01")),
    "FedAdam": ("81.5 ± 2.6", adaptive("adam", 0.01, 0.1, "beta2=0.999")),
    "FedYogi": ("81.5 ± 2.6", adaptive("yogi", 0.01, 0.1, "beta2=0.999")),
    "FedAdagrad": ("81.3 ± 0.5", adaptive("adagrad", 0.01, 1.0)),
}
BRCA = Cut("tcga-brca", "tcga-brca --scheme natural", "tcga-brca --scheme natural")


def private(epsilon: float) -> tuple[str, ...]:
    """Return the settings of a budget."""
    keys = ("clip=1.1", f"epsilon={epsilon}", "delta=0.001", "accountant=rdp", "evaluate_unprotected=true")
    return tuple(f"privacy.{key}" for key in keys)


PUBLISHED = {10.0: "69.8 ± 4.3", 1.0: "70.2 ± 4.4", 0.1: "62.9 ± 8.6"}
BUDGETS = {"none": ("71.2 ± 2.4", ()), **{f"{e:g}": (paper, private(e)) for e, paper in PUBLISHED.items()}}
"""What FLamby's results file (commit edacf54) has at this stated epsilon and delta 0.001, in percent."""
MULTIPLIERS = {
    10.0: (0.601, 0.616, 0.924, 0.709),
    1.0: (1.789, 1.9, 4.4, 2.647),
    0.1: (11.387, 12.214, 30.143, 17.659),
}
"""Each hospital's noise by which 15 epochs of FLamby's 199, 172, 30 and 85 rows, 4 of them a step, stay below
an epsilon by Renyi divergences. FLamby states that epsilon, and takes 15 rounds of 100 steps."""


def as_stated(epsilon: float) -> tuple[str, ...]:
    """Return the settings of the noise that FLamby takes at a stated epsilon; silos are numbers."""
    noise = ", ".join(f"{silo} = {z}" for silo, z in enumerate(MULTIPLIERS[epsilon]))
    return f"privacy.noise_of={{{noise}}}", *(one for one in private(epsilon) if ".epsilon=" not in one)


PRIVATE = tuple(
    Cell(f"epsilon {name}{more}", paper if cut is OWN else "–", cut, settings, seeds=SEEDS)
    for cut, more in ((OWN, ""), (ALL, ", one scale"))
    for name, (paper, settings) in BUDGETS.items()
) + tuple(
    Cell(f"epsilon {e:g} as stated", paper, OWN, as_stated(e), seeds=SEEDS) for e, paper in PUBLISHED.items()
)


def figures(runs: list[Summary], metric: str = "accuracy") -> tuple[str, ...]:
    """Return the mean of a metric over the silos, for accuracy that over all test rows, and each silo's;
    over the seeds."""
    found = [silos_of(run) for run in runs]
    means = [mean(silo.metrics[metric] for silo in silos) for silos in found]
    rows = [percent([over_all(silos, metric) for silos in found])] if metric == "accuracy" else []
    each = zip(*found, strict=True)
    return (percent(means), *rows, *(percent([mean(silo.metrics[metric] for silo in one)]) for one in each))


TABLES = {
    "flamby-heart": Table(
        "du Terrail et al. 2022, FLamby, Fed-Heart-Disease: "
        "mean accuracy over four hospitals, logistic regression",
        "flamby-heart.toml",
        CELLS,
        ("hospitals' mean %", "all rows %", "Cleveland", "Hungary", "Switzerland", "VA"),
        figures,
        quick=("rounds=2", "local.epochs=1"),
    ),
    "flamby-heart-private": Table(
        "du Terrail et al. 2022, FLamby, Fed-Heart-Disease with example-level differential privacy: "
        "mean accuracy over four hospitals, FedAvg",
        "flamby-heart.toml",
        PRIVATE,
        ("hospitals' mean %", "all rows %", "Cleveland", "Hungary", "Switzerland", "VA"),
        figures,
        quick=("rounds=2",),
        published="FLamby, at its own epsilon",
    ),
    "flamby-tcga-brca": Table(
        "du Terrail et al. 2022, FLamby, Fed-TCGA-BRCA: mean concordance over six regions, Cox regression",
        "flamby-tcga-brca.toml",
        tuple(Cell(name, paper, BRCA, settings, seeds=SEEDS) for name, (paper, settings) in REGIONAL.items()),
        ("regions' mean %", *(region.capitalize() for region in REGIONS)),
        partial(figures, metric="c_index"),
        quick=("rounds=2", "local.epochs=1"),
        published="FLamby",
    ),
}
