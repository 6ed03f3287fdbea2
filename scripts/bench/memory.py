"""Peak resident memory of the server and of the workers against the number of silos: the server's must not
grow.

Figures are above what a process holds that has imported all and taken one tiny training step; a model is the
size of its parameters in float32. What ranks of a node share is counted in equal parts (Linux's Pss), so that
the figures add up to what the node holds; they are the highest of many looks. Beside them stands the
high-water mark (VmHWM), which counts shared pages once for each rank that has ever looked at them.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import CLASSES, ENVIRONMENT, PIXELS, images, save, train, write_job, write_silos

EXAMPLES, ROUNDS, RANKS = 20, 12, 3
TARGETS = {"server": 3.5, "worker": 5.0}
"""Models that each kind of rank may hold at its peak, where models are large beside what all else takes."""
LARGE = 10.0
"""MB of a model from which the targets are for it."""
MODELS: dict[str, dict[str, Any]] = {
    "2nn": {"name": "2nn"},
    "11M": {"name": "mlp", "hidden": [2943, 2943]},
}
LIMIT = 600.0
IDLE = """
import mpifl.cli.commands, mpifl.training.loop, torch
from pathlib import Path
from mpi4py import MPI
torch.set_num_threads(1)
logits = torch.nn.Linear(784, 10)(torch.rand(10, 784))
torch.nn.functional.cross_entropy(logits, torch.zeros(10).long()).backward()
print(Path("/proc/self/status").read_text(), Path("/proc/self/smaps_rollup").read_text())
"""
LOOKS, NAP = 10, 4e-3
"""Looks in a row, and the seconds between two."""


class Peaks:
    """The most memory in MB of each rank of a run, as far as it was seen:
    its own share, and all that is resident."""

    def __init__(self, run: Path) -> None:
        self._run = str(run).encode()
        self._processes: dict[int, Path] = {}
        self.share: dict[int, float] = {}
        self.resident: dict[int, float] = {}

    def look(self) -> None:
        """Read the memory of all processes that were started for the run and are ranks, some times."""
        if len(self._processes) < RANKS:
            self._find()
        for _ in range(LOOKS):
            for rank, process in self._processes.items():
                with contextlib.suppress(OSError):  # it is gone
                    own = share((process / "smaps_rollup").read_text())
                    self.share[rank] = max(self.share.get(rank, 0.0), own)
                    self.resident[rank] = high_water((process / "status").read_text())
            time.sleep(NAP)

    def _find(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._run in (process / "cmdline").read_bytes():
                    rank = re.search(rb"(?:^|\0)(?:PMIX|PMI)_RANK=(\d+)", (process / "environ").read_bytes())
                    if rank:
                        self._processes[int(rank[1])] = process


def share(rollup: str) -> float:
    """Return private pages and the share of shared memory of a /proc/PID/smaps_rollup in MB,
    without files."""
    return sum(int(kb) for kb in re.findall(r"Pss_(?:Anon|Shmem):\s*(\d+) kB", rollup)) * 1024 / 1e6


def high_water(status: str) -> float:
    """Return VmHWM of a /proc/PID/status in MB, 0 of a process that is ending."""
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def idle() -> tuple[float, float]:
    """Return the share and the peak of a process with everything imported and no model."""
    done = subprocess.run(
        [sys.executable, "-c", IDLE],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return share(done.stdout), high_water(done.stdout)


def parameters(model: dict[str, Any]) -> int:
    from mpifl.learning import models

    arguments = {key: value for key, value in model.items() if key != "name"}
    return sum(p.numel() for p in models.build(model["name"], arguments, PIXELS, CLASSES, 0).parameters())


def measure(model: dict[str, Any], silos: int) -> Peaks:
    """Train over that many silos, one step each a round, and return each rank's peaks."""
    x, y, _ = images(EXAMPLES * silos)
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as scratch:
        folder = Path(scratch)
        write_silos(folder / "shards", x, y, silos)
        write_job(folder / "job.toml", folder / "shards", ROUNDS, model, steps=1)
        peaks = Peaks(folder / "run")
        train(folder / "job.toml", folder / "run", RANKS, LIMIT, peaks.look)
    return peaks


def judge(rows: list[dict[str, Any]]) -> None:
    """Print the most models that a rank held of those that the targets are for."""
    large = [row for row in rows if row["model_mb"] >= LARGE]
    for rank, target in TARGETS.items() if large else ():
        most = max(row[f"{rank}_mb"] / row["model_mb"] for row in large)
        print(f"{rank}: at most {most:.1f} models, target {target} {'met' if most <= target else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 8, 64], help="(%(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="2 silos and the 2NN: to see that it works")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    if options.quick:
        options.silos, options.models = [2], ["2nn"]
    if min(options.silos) < RANKS - 1:
        parser.error(f"--silos must be at least {RANKS - 1}")
    base = idle()
    print(
        f"a process after imports and a tiny step: {base[0]:.0f} MB of its own, {base[1]:.0f} MB resident; ",
        end="",
    )
    print(f"{RANKS - 1} workers, silos of {EXAMPLES} examples; models, and in brackets by high-water marks")
    print(f"{'model':>6}{'MB':>8}{'silos':>7}{'server':>16}{'worker':>16}")
    rows = []
    for name in options.models:
        size = parameters(MODELS[name]) * 4 / 1e6
        for silos in options.silos:
            peaks = measure(MODELS[name], silos)
            row: dict[str, Any] = {"model": name, "model_mb": size, "silos": silos}
            for kind, of_rank, zero in (
                ("mb", peaks.share, base[0]),
                ("resident_mb", peaks.resident, base[1]),
            ):
                row[f"server_{kind}"] = of_rank[0] - zero
                row[f"worker_{kind}"] = max(mb for rank, mb in of_rank.items() if rank) - zero
            rows.append(row)
            pairs = ((row[f"{rank}_mb"] / size, row[f"{rank}_resident_mb"] / size) for rank in TARGETS)
            print(
                f"{name:>6}{size:8.1f}{silos:7}{''.join(f'{a:8.1f} ({b:5.1f})' for a, b in pairs)}",
                flush=True,
            )
    judge(rows)
    save(options.json, {"idle_mb": base, "rows": rows})


if __name__ == "__main__":
    main()
