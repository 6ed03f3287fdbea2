"""Ranks that train a silo together: the bits of one rank that takes all parts, for every algorithm."""

from __future__ import annotations

import json
from pathlib import Path

import crewed
import pytest
from conftest import ranks

from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import world

SCRIPT = Path(__file__).parent / "crewed.py"


@pytest.fixture(scope="module")
def trained(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of five ranks by crews of 4, 2 and 1."""
    out = tmp_path_factory.mktemp("crews")
    done = ranks(5, "-m", "mpi4py", SCRIPT, digits / "few", out, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return out


@pytest.fixture(scope="module")
def alone(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of one rank, which takes the parts itself."""
    out = tmp_path_factory.mktemp("alone")
    transport = world()
    for given in crewed.jobs(digits / "few", 1):
        train(given, out / given["name"], (), False, transport, wings_of=wings_of)
    return out


def model(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", crewed.JOBS)
def test_bits_depend_on_parts_and_not_on_ranks(trained: Path, alone: Path, name: str) -> None:
    assert {model(trained / f"{name}-{one}") == model(alone / name) for one in crewed.CREWS} == {True}


def test_a_run_goes_on_with_larger_crews_to_the_same_bits(trained: Path) -> None:
    assert model(trained / "resumed") == model(trained / "adam-1")


def test_one_part_is_the_batch_as_it_was(digits: Path, tmp_path: Path, alone: Path) -> None:
    transport = world()
    given = next(crewed.jobs(digits / "few", 1, 1))
    train(given, tmp_path / "one", (), False, transport, wings_of=wings_of)
    del given["silo"]
    train(given, tmp_path / "none", (), False, transport, wings_of=wings_of)
    assert model(tmp_path / "one") == model(tmp_path / "none") != model(alone / given["name"])


def test_what_no_crew_can_do_is_refused_in_a_line(trained: Path) -> None:
    uneven, batchnorm = json.loads((trained / "refused.json").read_text())
    assert uneven.endswith(
        "[silo] ranks = 3: 5 ranks are the server and 4 others, which make no whole crews; start 4 or 7"
    )
    assert "[silo] parts = 2" in batchnorm
    assert "BatchNorm" in batchnorm
