"""A training by the user's own loop, whole, then stopped and resumed; prints the digests of both models."""

from __future__ import annotations

import sys
from pathlib import Path

import mpifl
from mpifl.common import sha256_of


def main(shards: str, out: Path, algorithm: str) -> None:
    job = {
        "name": "own",
        "shards": shards,
        "rounds": 3,
        "device": "cpu",
        "model": {"name": "scenarios:normalised"},
        "local": {"lr": 0.01, "batch_size": 16},
        "algorithm": {"name": algorithm},
    }
    mpifl.train(job, out=out / "whole")
    mpifl.train(job, out=out / "stopped", on_round=lambda record: record["round"] == 1)
    if mpifl.train(job, out=out / "stopped", resume=True):
        print(*(sha256_of(out / name / "model.safetensors") for name in ("whole", "stopped")))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
