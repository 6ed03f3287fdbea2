"""Ranks on processors of two kinds, as torch takes them on request: who differs is said, or nobody does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from conftest import ranks

APART = """
import os
if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "{last}":
    os.environ["ATEN_CPU_CAPABILITY"] = "default"
from mpifl.cli import main
main()
"""
JOB = """
name = "apart"
shards = "{shards}"
rounds = 1
device = "cpu"
kernels = "{kernels}"
[model]
name = "mlp"
hidden = [32]
"""


def sha256(run: Path) -> str:
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("kernels", ["own", "avx2"])
def test_the_same_bits_need_one_kind_of_processor_or_pinned_kernels(
    digits: Path, tmp_path: Path, kernels: str
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(shards=digits / "many", kernels=kernels))
    words = tmp_path / "apart.py", "train", job, "--out", tmp_path / "apart"
    pinned = kernels != "own"  # which torch looks at when it is imported
    n = 2 if pinned else 3
    (tmp_path / "apart.py").write_text(APART.format(last=n - 1))
    done = ranks(n, *words, timeout=240, cold=pinned or 1)
    assert done.returncode == 0, done.stderr
    alone = ranks(1, "-m", "mpifl", "train", job, "--out", tmp_path / "alone", timeout=120, cold=pinned)
    assert alone.returncode == 0, alone.stderr
    assert "other bits" not in alone.stderr
    assert ("two steps: ranks 0, 1 on " in done.stderr) == (kernels == "own")
    plain = "(DEFAULT)" in done.stderr or "(NO AVX)" in done.stderr  # as PyTorch 2.6 calls it
    assert plain == (kernels == "own")
    assert (sha256(tmp_path / "apart") == sha256(tmp_path / "alone")) == (kernels == "avx2")
