"""NVFlare's figures of four hospitals, by the commands that the guide to regressions prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT, ranks

HOSPITALS = Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "heart-disease"
PRINTED = {
    "cleveland": (104, 0.75, 0.7115384615384616),
    "hungarian": (89, 0.7528089887640449, 0.6122448979591837),
    "switzerland": (16, 0.75, 1.0),
    "va": (45, 0.6, 0.9047619047619048),
}
"""Test rows, accuracy and precision of each site, all digits that are printed in the README of NVFlare's
examples/hello-world/hello-lr (earlier examples/advanced/lr-newton-raphson). The rows are FLamby's split (du
Terrail et al. 2022, Fed-Heart-Disease)."""


@pytest.mark.skipif(not HOSPITALS.is_dir(), reason="set MPIFL_DATA to a folder that has heart-disease/")
def test_four_rounds_of_newton_reach_each_digit_that_nvflare_prints(tmp_path: Path) -> None:
    shards, run, found = tmp_path / "shards", tmp_path / "run", tmp_path / "found.json"
    words = ("--data", HOSPITALS, "--out", shards, "--scheme", "natural", "--flamby")
    made = ranks(1, "-m", "data_prep", "partition", "heart-disease", *words)
    assert made.returncode == 0, made.stderr
    job = ("jobs/papers/nvflare-newton.toml", "--set", f"shards={json.dumps(str(shards))}", "--out", run)
    done = ranks(5, "-m", "mpifl", "train", *job, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    done = ranks(1, "-m", "mpifl", "evaluate", run, "--silos", "--json", found)
    assert done.returncode == 0, done.stderr
    told = json.loads(found.read_text())
    spec = json.loads((shards / "federation.json").read_text())
    tested = {entry["name"]: entry["examples"]["test"] for entry in spec["silos"]}
    figures = {
        name: (tested[name], *(one[metric] for metric in ("accuracy", "precision")))
        for name, one in told["silos"].items()
    }
    assert figures == PRINTED
