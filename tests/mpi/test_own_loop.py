"""The example that trains by Hugging Face's Trainer: the same bits on any ranks, and after a stop."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from conftest import ranks

SCRIPT = Path(__file__).parent / "own_loop.py"
TRAINER = "scripts.examples.trainer_loop:TrainerLoop"
_missing = [name for name in ("transformers", "accelerate") if importlib.util.find_spec(name) is None]
with_trainer = pytest.mark.skipif(bool(_missing), reason=f"no Trainer without {' and '.join(_missing)}")


def digests(n: int, digits: Path, out: Path) -> set[str]:
    done = ranks(n, "-m", "mpi4py", SCRIPT, digits / "few", out, TRAINER, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return set(done.stdout.splitlines()[-1].split())


@with_trainer
def test_a_trainer_goes_on_to_the_same_bits(digits: Path, tmp_path: Path) -> None:
    assert len(digests(1, digits, tmp_path)) == 1


@with_trainer
@pytest.mark.slow
def test_a_trainer_gives_the_same_bits_on_three_ranks(digits: Path, tmp_path: Path) -> None:
    assert digests(3, digits, tmp_path / "3") == digests(1, digits, tmp_path / "1")
