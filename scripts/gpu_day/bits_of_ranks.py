"""Train small jobs on 1, 3 and 5 ranks that share the GPU, and on 3 once more: each has one sha256."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomli_w

from scripts.gpu_day.reporting import Noted, arguments
from scripts.gpu_day.steps import BENCH

sys.path.insert(0, str(BENCH))

from common import images, train, write_silos

SILOS, LIMIT = 6, 120.0
LOCAL = {"lr": 0.05, "batch_size": 10}
JOBS: dict[str, dict[str, Any]] = {
    "scaffold, 2nn": {"model": {"name": "2nn"}, "algorithm": {"name": "scaffold"}, "local": LOCAL},
    "cnn": {"model": {"name": "cnn"}, "local": LOCAL},
    "compiled, 2nn": {"model": {"name": "2nn"}, "local": {**LOCAL, "compile": True}},
    "batched silos, 2nn": {"model": {"name": "2nn"}, "local": {**LOCAL, "batch_silos": True}},
    "tf32, cnn": {"model": {"name": "cnn"}, "local": {**LOCAL, "precision": "tf32"}},
    "bf16, cnn": {"model": {"name": "cnn"}, "local": {**LOCAL, "precision": "bf16"}},
    "median, 2nn": {"model": {"name": "2nn"}, "local": LOCAL, "aggregation": {"rule": "median"}},
    "qsgd, 2nn": {
        "model": {"name": "2nn"},
        "local": LOCAL,
        "compression": {"upload": "qsgd", "download": "qsgd", "bits": 4},
    },
}
RANKS = (1, 3, 5, 3)


def main() -> None:
    given = arguments(__doc__)
    noted, ranks = Noted(given.json), RANKS[:2] if given.quick else RANKS
    with tempfile.TemporaryDirectory(prefix="mpifl-gpu-") as scratch:
        folder = Path(scratch)
        x, y, _ = images(60 * SILOS)
        write_silos(folder / "shards", x, y, SILOS, (x, y))
        for name, tables in list(JOBS.items())[: 1 if given.quick else None]:
            if name in noted.figures:
                continue
            noted.add(name, _bits(folder, name, {**tables, "device": given.device}, ranks))
    sys.exit(0 if all(str(told).startswith("one sha256") for told in noted.figures.values()) else 1)


def _bits(folder: Path, name: str, tables: dict[str, Any], ranks: tuple[int, ...]) -> str:
    """Train a job on each number of ranks, and tell whether all models are one."""
    job, found = folder / "job.toml", []
    whole = {"name": "bits", "shards": str(folder / "shards"), "rounds": 3, **tables}
    job.write_text(tomli_w.dumps(whole))
    for nth, size in enumerate(ranks):
        run = folder / f"{name.replace(' ', '-').replace(',', '')}-{nth}"
        try:
            train(job, run, size, LIMIT)
        except SystemExit as error:
            return f"failed on {size} ranks: {str(error).strip().splitlines()[-1][:300]}"
        found.append(hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()[:12])
    told = "one sha256" if len(set(found)) == 1 else "several sha256"
    return f"{told}: {', '.join(dict.fromkeys(found))} on {', '.join(map(str, ranks))} ranks"


if __name__ == "__main__":
    main()
