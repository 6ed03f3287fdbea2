"""Job files with harm done to them, and what `--set` may say beside."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from fuzzing.mutations import harmed_toml
from mpifl.run.job.job import read_job

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

JOBS = sorted((Path(__file__).parents[2] / "jobs").rglob("*.toml"))


def jobs(draw: Random, valid: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    source = draw.choice((valid / "run" / "job.toml", *JOBS))
    path = folder / "job.toml"
    content = source.read_bytes()
    path.write_bytes(harmed_toml(draw, content, tomllib.loads(content.decode())))
    keys = (
        "local.lr",
        "rounds",
        "algorithm.name",
        "model.name",
        "local",
        "a.b.c",
        "",
        ".",
        "local..lr",
        "seed",
    )
    values = (
        "1",
        "0.1",
        "nan",
        "[1",
        "'x'",
        "{a=1}",
        "1e400",
        "\0",
        "\ud800",
        "[" * 3000,
        "=",
        "true",
        "2020-01-01",
        "9" * 5000,
    )
    overrides = [f"{draw.choice(keys)}={draw.choice(values)}" for _ in range(draw.choice((0, 0, 0, 1, 2)))]
    return path, tuple(overrides)


def read_one_job(given: tuple[Path, tuple[str, ...]]) -> None:
    job = read_job(*given)
    job.idle(job.build_algorithm())
    job.model_dump_json()
