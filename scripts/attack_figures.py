"""Train the digits over 15 silos of which 4 lie, by each rule under each attack; print the test accuracies as
a Markdown table, and draw them.

What docs/explanation/robust.md shows: python -m scripts.attack_figures --figures docs/figures
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# run the tree that this file stands in, whatever is installed
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import mpifl  # noqa: E402

SILOS, LIARS, LAST = 15, [11, 12, 13, 14], 5
"""Silos, those that lie, and the evaluations at the end that a figure is the mean of."""
ATTACKS: dict[str, dict[str, Any]] = {
    "nobody lies": {},
    "label_flip": {"kind": "label_flip"},
    "sign_flip": {"kind": "sign_flip"},
    "scale": {"kind": "scale"},
    "gaussian": {"kind": "gaussian"},
    "free_rider": {"kind": "free_rider"},
    "alie": {"kind": "alie"},
    "ipm": {"kind": "ipm"},
    "mimic": {"kind": "mimic"},
    "min_max": {"kind": "min_max"},
    "backdoor": {"kind": "backdoor", "patch": 2},
}
RULES: dict[str, dict[str, Any]] = {
    "mean": {"rule": "scripts.attack_figures:average"},
    "median": {"rule": "median"},
    "trimmed": {"rule": "trimmed", "byzantine": 4},
    "krum": {"rule": "krum", "byzantine": 4},
    "multikrum": {"rule": "multikrum", "byzantine": 4, "m": 11},
    "rfa": {"rule": "rfa"},
    "centered": {"rule": "centered", "tau": 0.3, "iterations": 3},
    "nnm, trimmed": {"rule": "trimmed", "byzantine": 4, "pre": "nnm"},
    "bucketing, rfa": {"rule": "rfa", "pre": "bucketing"},
}
SUCCESS = "backdoor opens"
Cells = dict[tuple[str, str], float]


def average(rows: Any) -> Any:
    """Take the mean as a rule of columns, so that it can be lied to by silos that know all others."""
    return rows.mean(0)


def job(shards: Path, seed: int, rounds: int, rule: str, attack: str) -> dict[str, Any]:
    lies = ATTACKS[attack]
    return {
        "name": "attacked",
        "seed": seed,
        "rounds": rounds,
        "shards": str(shards),
        "model": {"name": "mlp", "hidden": [64]},
        "local": {"lr": 0.1, "batch_size": 16, "epochs": 1},
        "aggregation": RULES[rule],
        "attack": {**lies, "silos": LIARS} if lies else {},
        "checkpoint": {"every": rounds, "keep": 1},
        "tracking": {"console": False},
    }


def shards_of(seed: int, out: Path) -> Path:
    """Cut the digits, unless they have been, and return the shard folder."""
    folder = out / f"shards-seed{seed}"
    if not folder.exists():
        words = ["partition", "digits", "--scheme", "dirichlet", "--alpha", "1", "--silos", str(SILOS)]
        command = [sys.executable, "-m", "data_prep", *words, "--seed", str(seed), "--out", str(folder)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return folder


def figures(run: Path, table: dict[str, Any]) -> dict[str, float]:
    """Train, unless that has been done, and return the figures of the last evaluations."""
    if not (run / "model.safetensors").exists():
        with contextlib.redirect_stderr(io.StringIO()):  # each says that silos lie
            mpifl.train(table, out=run)
    last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-LAST:]
    names = ("test_accuracy", "backdoor_success")
    return {name: mean(record[name] for record in last) for name in names if name in last[0]}


def trained(out: Path, seeds: Sequence[int], rounds: int) -> Cells:
    """Return means over the seeds, in percent."""
    cells: Cells = {}
    for rule in RULES:
        for attack in ATTACKS:
            found = []
            for seed in seeds:
                run = out / f"{rule} {attack} seed{seed}".replace(", ", "-").replace(" ", "_")
                found.append(figures(run, job(shards_of(seed, out), seed, rounds, rule, attack)))
            cells[rule, attack] = 100 * mean(one["test_accuracy"] for one in found)
            if attack == "backdoor":
                cells[rule, SUCCESS] = 100 * mean(one["backdoor_success"] for one in found)
            print(f"{rule}, {attack}: {cells[rule, attack]:.1f}", file=sys.stderr, flush=True)
    return cells


def markdown(cells: Cells) -> str:
    columns = [*ATTACKS, SUCCESS]
    lines = [["", *columns], ["---", *["---:"] * len(columns)]]
    lines += [[rule, *(f"{cells[rule, column]:.1f}" for column in columns)] for rule in RULES]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def draw(cells: Mapping[tuple[str, str], float], path: Path) -> None:
    """Draw accuracies, darker the lower they are, and how often the backdoor opens, darker the oftener."""
    from algorithm_figures import LOOKS, save
    from matplotlib import pyplot, rc_context

    columns, looks = [*ATTACKS, SUCCESS], {**LOOKS, "axes.grid": False}
    with rc_context(looks):
        figure, axes = pyplot.subplots(figsize=(9, 0.34 * len(RULES) + 1.3), layout="constrained")
        bad = [[100 - cells[rule, column] for column in ATTACKS] + [cells[rule, SUCCESS]] for rule in RULES]
        axes.imshow(bad, cmap="Blues", vmin=0, vmax=130, aspect="auto")
        for row, rule in enumerate(RULES):
            for at, column in enumerate(columns):
                colour = "white" if bad[row][at] > 75 else "black"
                axes.text(at, row, f"{cells[rule, column]:.0f}", ha="center", va="center", color=colour)
        axes.axvline(len(ATTACKS) - 0.5, color="white", linewidth=4)
        axes.set_yticks(range(len(RULES)), list(RULES))
        axes.set_xticks(range(len(columns)), columns, rotation=30, ha="left")
        axes.tick_params(length=0, colors="black", labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("test accuracy (%); last column: patched examples taken for the target (%)")
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8], metavar="SEED")
    parser.add_argument("--rounds", type=int, default=40, help="of each run (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/attacks"), help="the runs go here (%(default)s)"
    )
    parser.add_argument("--figures", type=Path, help="draw attacks.svg into this folder")
    given = parser.parse_args()
    cells = trained(given.out, given.seeds, given.rounds)
    print(markdown(cells))
    if given.figures:
        given.figures.mkdir(parents=True, exist_ok=True)
        draw(cells, given.figures / "attacks.svg")


if __name__ == "__main__":
    main()
