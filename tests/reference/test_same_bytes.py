"""Result files are the same bytes over 1, 4 and 40 silos of the same rows, on any ranks, and under masks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RANKS, ranks
from reference import test_glm, test_kaplanmeier, test_tableone
from reference.test_refusals import Alone

from mpifl.report.terminal import show_coefficients, show_stats, show_survival
from mpifl.training.loop import train
from mpifl.wings import wings_of

SILOS = (1, 4, 40)
ROWS: dict[str, Any] = {
    "yes": (test_glm.write, lambda: test_glm.rows_of("binary")),
    "counts": (test_glm.write, lambda: test_glm.rows_of("counts")),
    "values": (test_glm.write, lambda: test_glm.rows_of("regression")),
    "lived": (test_kaplanmeier.write, test_kaplanmeier.rows_of),
    "table": (test_tableone.write, test_tableone.rows_of),
}
"""What writes a kind of rows as shards, and the rows."""
WEIGHTED = {"name": "newton", "offset": "log_years", "weights": "share"}
MODELS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "logistic": ("yes", "binary", {"name": "newton"}, 10),
    "poisson": ("counts", "counts", WEIGHTED, 10),
    "linear": ("values", "regression", {"name": "newton"}, 3),
    "efron": ("lived", "survival", {"name": "cox", "strata": "none"}, 8),
    "breslow": ("lived", "survival", {"name": "cox", "strata": "none", "ties": "breslow"}, 8),
    "curves": ("lived", "survival", {"name": "kaplanmeier", "by": "sex"}, 1),
    "tableone": ("table", "binary", {"name": "tableone"}, 1),
}
"""Each analysis: its rows, task, algorithm and rounds."""
if not os.environ.get("MPIFL_SLOW"):
    del MODELS["linear"], MODELS["breslow"]
WORLDS = [
    pytest.param(n, masks, silos, marks=[pytest.mark.slow] * ((n, masks, silos) != (5, True, 40)))
    for n in RANKS
    for masks in (False, True)
    for silos in SILOS
    if not masks or (n > 3 and silos > 1)  # masks need a server and three parties
]
"""Ranks, masks and silos. The one that always runs has most of each."""


def jobs_of(base: Path, silos: int, **more: Any) -> Iterator[dict[str, Any]]:
    for nth, (name, (rows, task, algorithm, rounds)) in enumerate(MODELS.items()):
        yield {
            "name": name,
            "shards": str(base / f"{rows}-{silos}"),
            "seed": nth,  # a site gives no second answer to a seed
            "rounds": rounds,
            "device": "cpu",
            "model": {"name": "logreg"},
            "task": {"name": task},
            "algorithm": algorithm,
            "evaluate": {"every": 1000},
            "tracking": {"console": False},
            **more,
        }


def files_of(run: Path) -> dict[str, bytes]:
    """Write an analysis' result files; return their bytes."""
    name = MODELS[run.name][2]["name"]
    if name in ("newton", "cox"):
        show_coefficients(run, run / "coefficients.csv", run / "coefficients.tex")
        names = ["coefficients.csv", "coefficients.tex", "model.safetensors"]
    else:
        {"tableone": show_stats, "kaplanmeier": show_survival}[name](run)
        stem = {"tableone": "tableone", "kaplanmeier": "survival"}[name]
        names = [f"{stem}.{ending}" for ending in ("html", "csv", "tex")]
    return {file: (run / file).read_bytes() for file in names}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the rows, shuffled, as 1, 4 and 40 silos."""
    base = tmp_path_factory.mktemp("bytes")
    for rows, (write, make) in ROWS.items():
        x, y = make()
        for silos in SILOS:
            draw = np.random.default_rng(silos)
            order, places = draw.permutation(len(x)), np.arange(1, len(x) // 2)
            cuts = 2 * np.sort(draw.choice(places, silos - 1, replace=False))
            write(base / f"{rows}-{silos}", x[order], y[order], cuts.tolist())
    return base


@pytest.fixture(scope="module")
def wanted(base: Path) -> dict[str, dict[str, bytes]]:
    """The files of each analysis on one rank of one silo."""
    for job in jobs_of(base, 1):
        train(job, base / job["name"], (), False, Alone(), wings_of=wings_of)
    return {name: files_of(base / name) for name in MODELS}


@pytest.mark.parametrize(("n", "masks", "silos"), WORLDS)
def test_result_files_have_the_same_bytes(
    base: Path, wanted: dict[str, dict[str, bytes]], tmp_path: Path, n: int, masks: bool, silos: int
) -> None:
    jobs = [*jobs_of(base, silos, **({"security": {}} if masks else {}))]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    script, site = Path(__file__).parent / "drive.py", str(tmp_path / "site")
    done = ranks(n, script, tmp_path / "jobs.json", tmp_path, timeout=300, MPIFL_SITE=site)
    assert done.returncode == 0, done.stderr[-4000:]
    for name in MODELS:
        assert (tmp_path / name / "released.jsonl").exists() == masks
        assert files_of(tmp_path / name) == wanted[name], name
