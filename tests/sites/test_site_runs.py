"""Runs over sites, each with an mpirun of its own: the model has the bits of one world, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w
from conftest import ranks
from sites.driver import SitesRun, sha256

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2"], "west": [f"silo {k}" for k in range(3, 7)]}


def job_of(folder: Path, shards: Path, algorithm: str, rounds: int = 4, **tables: object) -> Path:
    """Write a small job with an algorithm whose silos keep states."""
    usual = {
        "name": "sites",
        "shards": str(shards),
        "seed": 7,
        "rounds": rounds,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [16]},
        "local": {"lr": 0.1, "batch_size": 16},
        "algorithm": {"name": algorithm},
        "checkpoint": {"every": 2},
    }
    path = folder / f"{algorithm}.toml"
    path.write_text(tomli_w.dumps(usual | tables))
    return path


def in_one_world(folder: Path, job: Path) -> str:
    done = ranks(1, "-m", "mpifl", "train", job, "--out", folder / "one")
    assert done.returncode == 0, done.stderr
    return sha256(folder / "one" / "model.safetensors")


@pytest.mark.parametrize("algorithm", ["scaffold", "ditto"])
def test_the_bits_of_one_world_over_the_worst_copier(algorithm, tmp_path, digits):
    job = job_of(tmp_path, digits / "many", algorithm)
    with SitesRun(tmp_path / "over", job, digits / "many", copier=1, sites=SITES) as run:
        run.finish()
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job)
    assert run.starts == 4
