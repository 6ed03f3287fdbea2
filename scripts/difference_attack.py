"""Have a curious server look for one silo's delta in differences of sums, without masks and with them; print
what it found as a Markdown table.

What docs/explanation/trust.md shows: python -m scripts.difference_attack
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]  # run the tree that this file stands in, whatever is installed

from mpifl import Cohort, FedAvg, Server  # noqa: E402

SITES, SILOS = 5, 12
"""Silos that are a party each, and silos of whom half take part in a round."""
Table = dict[str, dict[str, Any]]
MASKED: Table = {"security": {}}
OPEN: Table = {"security": {"masks": False}}
"""Both give the same bits."""
LITTLE: Table = {"privacy": {"clip": 1.0, "noise": 1.0, "delta": 1e-3}}
MUCH: Table = {"privacy": {"clip": 1.0, "noise": 10.0, "delta": 1e-3}}
Vector = NDArray[np.float64]


class Curious(FedAvg):
    """Federated averaging by a server that asks more than it should, and keeps what it sees.

    Attributes:
        notes: The folder for that.
        ask: What it asks, of all silos of a round (`all`): the same without the victim (`twice`); in the next
            round the same but for a bit, without the victim (`nudged`).
        each: Whether it asks each silo alone, too: the truth, which masks refuse.
        victim: The silo that it is after.
    """

    notes: str
    ask: str = "all"
    each: bool = False
    victim: int = 0

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask, and move w along the mean, except between two questions that belong together."""
        w, silos = server.state["w"], cohort.silos
        rest = [silo for silo in silos if silo != self.victim]
        if again := self.ask == "nudged" and server.round % 2 == 1:
            w, silos = nudged(w), rest
        found = {"sum": self._sum(server, cohort, silos, w), "set": torch.tensor(silos)}
        if self.ask == "twice":
            found["rest"] = self._sum(server, cohort, rest, w)
        if self.each:
            found["each"] = torch.stack([self._sum(server, cohort, [silo], w) for silo in silos])
        if again or self.ask != "nudged":
            server.state["w"] = w + found["sum"] / len(silos)
        save_file(found, Path(self.notes) / f"round_{server.round:03}.safetensors")
        return {}

    def _sum(self, server: Server, cohort: Any, silos: Sequence[int], w: Tensor) -> Tensor:
        """Return the sum of some silos' deltas, past what an honest server keeps to."""
        expected = cohort.federation.knowledge.expected(server, "train", silos, {"w": w})
        chosen = replace(cohort, silos=list(silos))
        delta: Tensor = chosen._compute("train", list(silos), {"w": w}, expected).mean()["delta"]
        return delta * len(silos)


def nudged(w: Tensor) -> Tensor:
    """Return a model whose first number is the next float32."""
    moved = w.clone()
    moved[0] = torch.nextafter(moved[0], torch.tensor(torch.inf))
    return moved


def shards_of(silos: int, out: Path) -> Path:
    """Cut the digits, unless they have been, and return the shard folder."""
    folder = out / f"shards-{silos}"
    if not folder.exists():
        words = ["partition", "digits", "--scheme", "dirichlet", "--alpha", "1", "--silos", str(silos)]
        _python("data_prep", *words, "--seed", "7", "--out", str(folder))
    return folder


def run(
    out: Path, name: str, ranks: int, silos: int, *tables: Table, **keys: Any
) -> tuple[list[dict[str, Tensor]], str]:
    """Train by a curious server; return what it kept of each round, and its last words.

    Args:
        out: All of it goes there.
        name: Of the run.
        ranks: That take part, the server among them.
        silos: In how many the digits lie.
        tables: Of the job.
        keys: Keys of its algorithm, and `batch_size`, `epochs`, `rounds`, `fraction`.
    """
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "site").mkdir(parents=True, mode=0o700)
    local = {"lr": 0.1, "batch_size": keys.pop("batch_size", 10), "epochs": keys.pop("epochs", 1)}
    job: dict[str, Any] = {
        "name": name,
        "seed": 7,
        "rounds": keys.pop("rounds", 2),
        "shards": str(shards_of(silos, out)),
        "model": {"name": "mlp", "hidden": [32]},
        "local": local,
        "cohort": {"weights": "uniform", "quorum": 0.5, "fraction": keys.pop("fraction", 1.0)},
        "algorithm": {"name": "scripts.difference_attack:Curious", "notes": str(folder), **keys},
        "evaluate": {"silos": False},
        "tracking": {"console": False},
    }
    for table in tables:
        job |= table
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    words = ["train", str(folder / "job.toml"), "--out", str(folder / "run"), "--ranks", str(ranks)]
    said = _python("mpifl", *words, site=folder / "site", may_fail=True)
    return [load_file(path) for path in sorted(folder.glob("round_*.safetensors"))], said


def _python(module: str, *words: str, site: Path | None = None, may_fail: bool = False) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPIFL_SITE": str(site)}
    done = subprocess.run(
        [sys.executable, "-m", module, *words], env=environment, capture_output=True, text=True
    )
    if done.returncode and not may_fail:
        raise SystemExit(done.stderr)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def cosine(a: Tensor | Vector, b: Tensor | Vector) -> float:
    """Return how alike two vectors are: 1 along each other, 0 across."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def one_question(out: Path) -> None:
    """Ask one question over two sets."""
    (clear,), _ = run(out, "twice-open", 1, SITES, ask="twice", each=True, rounds=1)
    truth, guess = clear["each"][0], clear["sum"] - clear["rest"]
    error = float((guess - truth).norm() / truth.norm())
    print(f"one question over two sets, no masks: cosine {cosine(guess, truth):.6f}, off by {error:.1e}")
    kept, said = run(out, "twice-masked", SITES + 1, SITES, MASKED, ask="twice", rounds=1)
    print(f"the same, masked: {len(kept)} rounds; {said}")


def two_rounds(out: Path) -> None:
    """Ask the same but for a bit in two rounds, the second time without the victim."""
    print("| what silos do in a round | the difference | the sum of all |\n|---|---:|---:|")
    for title, more, keys in (
        ("batches of 10, 1 epoch", {}, {}),
        ("batches of 10, 5 epochs", {}, {"epochs": 5}),
        ("full batches, 5 steps", {}, {"epochs": 5, "batch_size": "full"}),
        ("the same, `[privacy]` with noise 1", LITTLE, {"epochs": 5, "batch_size": "full"}),
        ("the same, `[privacy]` with noise 10", MUCH, {"epochs": 5, "batch_size": "full"}),
    ):
        name = "".join(filter(str.isalnum, title))
        clear, _ = run(out, f"{name}-open", 1, SITES, OPEN, each=True, rounds=1, **keys)
        (first, second), _ = run(out, name, SITES + 1, SITES, MASKED, more, ask="nudged", **keys)
        truth, guess = clear[0]["each"][0], first["sum"] - second["sum"]
        print(f"| {title} | {cosine(guess, truth):.3f} | {cosine(first['sum'], truth):.3f} |")


def many_rounds(out: Path, rounds: int) -> None:
    """Solve for each silo's mean delta from the sums of rounds in which half of the silos take part."""
    kept, _ = run(out, "rounds", 1, SILOS, OPEN, each=True, rounds=rounds, fraction=0.5)
    size, among = len(kept[0]["sum"]), np.zeros((rounds, SILOS))
    sums, own = np.zeros((rounds, size)), np.full((rounds, SILOS, size), np.nan)
    for t, one in enumerate(kept):
        among[t, one["set"]], sums[t], own[t, one["set"]] = 1, one["sum"], one["each"]
    print("| rounds | solved for | the mean of all | solved for, beside the mean |\n|---:|---:|---:|---:|")
    for last in (SILOS, 20, rounds):
        truth = np.nanmean(own[:last], 0)
        guess = np.linalg.lstsq(among[:last], sums[:last], rcond=None)[0]
        mean, shared = sums[:last].sum(0), truth.mean(0)
        solved = [cosine(guess[k], truth[k]) for k in range(SILOS)]
        usual = [cosine(mean, truth[k]) for k in range(SILOS)]
        special = [cosine(guess[k] - guess.mean(0), truth[k] - shared) for k in range(SILOS)]
        print(f"| {last} | {np.mean(solved):.2f} | {np.mean(usual):.2f} | {np.mean(special):.2f} |")


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40, help="from which to solve (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/differences"), help="the runs go here (%(default)s)"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    one_question(given.out)
    two_rounds(given.out)
    many_rounds(given.out, given.rounds)


if __name__ == "__main__":
    main()
