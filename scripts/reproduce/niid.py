"""Li et al. 2022, "Federated learning on non-IID data silos: an experimental study" (NIID-Bench)."""

from __future__ import annotations

from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

METHODS = {
    "FedAvg": ("algorithm.name=fedavg",),
    "SCAFFOLD": ("algorithm.name=scaffold", "algorithm.control_weights=uniform"),
    "FedProx": ("algorithm.name=fedprox",),
    "FedNova": ("algorithm.name=fednova",),
}
"""What each method's cells set. The authors' SCAFFOLD weighs deltas by n_k / n, shifts of controls by 1/N."""
SCHEMES = {
    "Dir(0.5)": "dirichlet --alpha 0.5",
    "#C = 1": "classes --classes 1",
    "#C = 2": "classes --classes 2",
    "#C = 3": "classes --classes 3",
}
MNIST = {
    "Dir(0.5)": ("98.89 ± 0.07", "99.07 ± 0.06", "99.02 ± 0.02", "98.03 ± 0.06"),
    "#C = 1": ("19.33 ± 11.82", "9.93 ± 0.12", "51.79 ± 26.75", "52.58 ± 14.08"),
    "#C = 2": ("96.86 ± 0.30", "96.92 ± 0.52", "96.85 ± 0.15", "96.65 ± 0.39"),
    "#C = 3": ("97.86 ± 0.34", "97.91 ± 0.10", "97.85 ± 0.06", "97.62 ± 0.07"),
}
FASHION = {
    "Dir(0.5)": ("88.09 ± 0.29", "88.44 ± 0.25", "88.15 ± 0.42", "88.22 ± 0.12"),
    "#C = 1": ("28.39 ± 17.09", "10.00 ± 0.00", "32.65 ± 6.68", "16.86 ± 9.30"),
    "#C = 2": ("78.10 ± 2.51", "33.80 ± 41.22", "78.05 ± 0.99", "71.67 ± 2.34"),
    "#C = 3": ("82.43 ± 1.52", "80.32 ± 5.03", "82.99 ± 0.48", "81.97 ± 1.34"),
}
CIFAR = {
    "Dir(0.5)": ("62.47 ± 0.43", "68.08 ± 0.96", "65.63 ± 0.08", "63.89 ± 1.40"),
    "#C = 1": ("10.00 ± 0.00", "10.00 ± 0.00", "12.71 ± 0.96", "10.00 ± 0.00"),
    "#C = 2": ("51.17 ± 1.09", "49.42 ± 2.18", "50.44 ± 0.79", "46.9 ± 0.66"),
    "#C = 3": ("59.11 ± 0.87", "61.00 ± 0.91", "59.20 ± 1.18", "57.83 ± 0.42"),
}
"""Best test accuracy over all rounds in Flower's replication (the README of baselines/niid_bench), mean and
deviation over its seeds, in percent, by scheme; in the order of METHODS."""
UNKNOWN = ("",) * len(METHODS)
MU = tuple(f"algorithm.mu={mu}" for mu in (0.001, 0.01, 0.1, 1.0))
"""The paper takes the best of these."""
TRIED = {
    "Dir(0.5), SCAFFOLD": ("local.momentum=0.0",),
    "Dir(0.5), FedProx": MU[:1],
    "#C = 1, FedProx": MU[:1],
    "#C = 2, FedProx": MU[:1],
    "#C = 3, FedProx": MU[:1],
}
"""What MNIST's cells take beside the job's settings; the most accurate is shown."""
SEEDS = {"#C = 1, FedProx": (7, 8, 9)}
"""Of MNIST's cells; others have one seed."""
EVERY_MU = {f"{scheme}, FedProx": MU for scheme in SCHEMES}


def _cells(
    data: str,
    published: dict[str, tuple[str, ...]],
    tried: dict[str, tuple[str, ...]],
    seeds: dict[str, tuple[int, ...]] | None = None,
) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            f"{scheme}, {shown}",
            paper,
            Cut(
                _name(data, scheme),
                *(f"{of} --silos 10 --scheme {SCHEMES[scheme]}" for of in (data, "digits")),
            ),
            method,
            tried=tuple((setting,) for setting in tried.get(f"{scheme}, {shown}", ())) or ((),),
            seeds=(seeds or {}).get(f"{scheme}, {shown}", (7,)),
        )
        for scheme, papers in published.items()
        for (shown, method), paper in zip(METHODS.items(), papers, strict=True)
    )


def _name(data: str, scheme: str) -> str:
    return (
        f"niid-{'' if data == 'mnist' else f'{data}-'}{SCHEMES[scheme].replace(' --', '-').replace(' ', '')}"
    )


def errors(run: Summary) -> float:
    """Return the part of the test examples that the best model on the way gets wrong,
    by which the published choose."""
    return 1 - (run.best() or 0.0)


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the test accuracy of the last model, and the best on the way."""
    return tuple(percent([f or 0.0 for f in found], 2) for found in (
        [run.figure("test_accuracy") for run in runs], [run.best() for run in runs]
    ))  # fmt: skip


def _table(name: str, data: str, cells: tuple[Cell, ...], *quick: str, published: str) -> Table:
    title = f"Li et al. 2022 (NIID-Bench), {data}: 10 silos, E = 10, 50 rounds, test accuracy"
    return Table(
        title, f"{name}.toml", cells, ("last round %", "best round %"), figures, errors, quick, published
    )


IMAGES = ("model.padding=2", "local.epochs=1")
FLOWER = "Flower's replication"
CELLS = {
    "niid-mnist": ("MNIST", _cells("mnist", MNIST, TRIED, SEEDS)),
    "niid-fashion": ("Fashion-MNIST", _cells("fashion-mnist", FASHION, EVERY_MU)),
    "niid-cifar10": ("CIFAR-10", _cells("cifar10", CIFAR, EVERY_MU)),
}
TABLES = {
    name: _table(name, data, cells, *IMAGES, published=FLOWER) for name, (data, cells) in CELLS.items()
} | {
    "niid-adult": _table(
        "niid-adult",
        "Adult",
        _cells("adult", dict.fromkeys(("Dir(0.5)", "#C = 1"), UNKNOWN), EVERY_MU),
        "local.epochs=1",
        published="the paper",
    ),
}
