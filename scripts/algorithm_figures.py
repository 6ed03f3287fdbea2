"""The runs of a comparison as small SVG pictures: the same bytes from the same runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.scale
import numpy as np
from algorithm_tables import LABELS, TARGET

from mpifl.report.pictures import curve
from mpifl.report.runs.run_summary import Summary, read_run
from mpifl.report.runs.seeds import Group

matplotlib.use("Agg")
from matplotlib import pyplot

FAMILIES = (
    (
        "another step at the server",
        "test_accuracy",
        ("fedsgd", "fedavgm", "fedadagrad", "fedadam", "fedyogi"),
    ),
    ("other steps at the silos", "test_accuracy", ("fedprox", "fednova", "scaffold", "feddyn", "fsvrg")),
    ("other aims", "test_accuracy", ("qfedavg", "moon", "feddf")),
    ("a model for each silo", "silo_accuracy_mean", ("fedper", "ditto")),
)
"""Panels: what they have in common, the figure, and the algorithms beside FedAvg."""
NAMES = {"test_accuracy": "test accuracy (%)", "silo_accuracy_mean": "silos’ own test accuracy, mean (%)"}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00")
"""Okabe and Ito's, which colour-blind people tell apart; the dashes differ as well."""
LEVELS = (0, 50, 80, 90, 95, 97, 98, 99)
"""Accuracies that are marked."""
MEGABYTES = (20, 50, 100, 200, 500, 1000)
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
LOOKS = {
    "svg.hashsalt": "mpifl", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#8a94a0", "path.simplify": True,
    "axes.grid": True, "grid.color": "#e3e8ee", "xtick.color": "#5b6875", "ytick.color": "#5b6875",
}  # fmt: skip


def draw_all(runs: dict[str, list[Path]], folder: Path) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    read = {name.partition(" ")[0]: [read_run(run) for run in of] for name, of in runs.items()}
    with matplotlib.rc_context(LOOKS):
        save(curves(read, 0, "round"), folder / "algorithms-rounds.svg")
        save(curves(read, 1, "MB between server and silos"), folder / "algorithms-bytes.svg")
        save(silos(read), folder / "algorithms-silos.svg")


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")
    pyplot.close(figure)


def curves(read: dict[str, list[Summary]], along: int, name: str) -> Any:
    """Draw each family in a panel, means over the seeds over rounds (0) or MB (1), FedAvg in all of them."""
    figure, grid = pyplot.subplots(2, 2, figsize=(9, 7), layout="constrained", sharex=True)
    for axes, (title, what, names) in zip(grid.flat, FAMILIES, strict=True):
        if "fedavg" in read:
            line(axes, read["fedavg"], what, along, "fedavg", "#b9c0c8", "-", 4)
        for nth, algorithm in enumerate(names):
            if algorithm in read:
                line(axes, read[algorithm], what, along, algorithm, COLOURS[nth], DASHES[nth], 1.5)
        if what == "test_accuracy":
            axes.axhline(100 * TARGET, color="#8a94a0", linewidth=0.8, linestyle=(0, (2, 2)))
        axes.set_title(title, loc="left", fontsize=10, pad=34)
        by_error(axes, "y")
        axes.set(ylim=(0, 98), ylabel=NAMES[what], xscale="log" if along else "linear")
        if axes.lines:
            axes.legend(
                frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, handlelength=3
            )
    for axes in grid[-1]:
        axes.set_xlabel(name)
        if along:
            axes.set_xticks(MEGABYTES, [f"{level:,}" for level in MEGABYTES])
            axes.minorticks_off()
    return figure


def by_error(axes: Any, which: str) -> None:
    """Space accuracies by the logarithm of the error,
    so that 95 % and 97 % lie as far apart as 50 % and 70 %."""
    scale = (lambda accuracy: -np.log(np.maximum(100 - accuracy, 0.1)), lambda given: 100 - np.exp(-given))
    axes.set(**{f"{which}scale": matplotlib.scale.FuncScale(axes, scale), f"{which}ticks": LEVELS})


def line(
    axes: Any,
    runs: Sequence[Summary],
    what: str,
    along: int,
    name: str,
    colour: str,
    dashes: Any,
    width: float,
) -> None:
    found = curve(Group(name, list(runs)), what, 100)
    if found is not None:
        axes.plot(
            found.at[along], found.mean, linestyle=dashes, color=colour, linewidth=width, label=LABELS[name]
        )


def _ends(run: Summary) -> list[float]:
    return [100 * (run.figure(f"silo_accuracy_{end}") or 0.0) for end in ("worst", "mean", "best")]


def silos(read: dict[str, list[Summary]]) -> Any:
    """Draw, for each algorithm, its silos' own test accuracy at the end:
    from the worst to the best, and the mean."""
    order = [name for name in LABELS if name in read]
    ends = {name: np.array([_ends(run) for run in read[name]]) for name in order}
    order.sort(key=lambda name: float(ends[name][:, 0].mean()))
    figure, axes = pyplot.subplots(figsize=(8, 0.26 * len(order) + 0.9), layout="constrained")
    for row, name in enumerate(order):
        worst, middle, best = ends[name].mean(axis=0)
        axes.plot([worst, best], [row, row], color="#9cc4e4", linewidth=5, solid_capstyle="butt", zorder=1)
        axes.plot(ends[name][:, 0], [row] * len(ends[name]), "|", color="#d55e00", markersize=9, zorder=3)
        axes.plot(middle, row, "o", color="#0072b2", markersize=5, zorder=3)
    axes.plot([], [], "|", color="#d55e00", markersize=9, label="worst silo, each seed")
    axes.plot([], [], "o", color="#0072b2", markersize=5, label="mean over silos")
    axes.plot([], [], color="#9cc4e4", linewidth=5, label="worst to best, means over seeds")
    axes.set_yticks(range(len(order)), [LABELS[name] for name in order])
    by_error(axes, "x")
    axes.set(xlim=(0, 99.9), xlabel="silos’ own test accuracy (%)")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", colors="black", length=0)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
