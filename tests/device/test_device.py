"""Jobs on a fake accelerator, which refuses every mix with the CPU and counts what it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from device.worlds import NAMES
from faults.test_survival import _has_ulfm as has_ulfm

from mpifl.common import InputError
from mpifl.training import device_of

Worlds = dict[int, Path]


def facts(world: Path, rank: int = 0) -> dict[str, Any]:
    return json.loads((world / f"rank{rank}.json").read_text())


def model_of(world: Path, name: str, device: str = "gpu") -> bytes:
    return (world / f"{name}-{device}" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 3])
def test_an_accelerator_gives_the_bits_of_the_cpu(device_worlds: Worlds, n: int, name: str) -> None:
    assert model_of(device_worlds[n], name) == model_of(device_worlds[1], name, "cpu")


def test_each_worker_has_made_its_accelerator_the_current_one(device_worlds: Worlds) -> None:
    """Rank 1 has the first of two, rank 2 the second; the server of several ranks has none."""
    said = [facts(device_worlds[3], rank) for rank in range(3)]
    assert [one["current"] for one in said] == [0, 0, 1]
    assert ["aten::mm" in one["counts"] for one in said] == [False, True, True]


@pytest.mark.parametrize("way", ["plain", "momentum", "adamw", "accumulated"])
def test_a_step_neither_waits_for_the_accelerator_nor_copies(device_worlds: Worlds, way: str) -> None:
    """An epoch of 12 batches does so as often as one of 2: its examples go there, its loss comes back."""
    few, many = facts(device_worlds[1])["waits"][way]
    assert few.pop("steps") < many.pop("steps")
    assert few == many == {"H2D": 2, "item": 1}


def test_a_batched_step_neither_waits_nor_copies(device_worlds: Worlds) -> None:
    """Of three silos: the examples of each and a table of weights go there, the losses come back."""
    few, many = facts(device_worlds[1])["waits"]["batched"]
    assert few.pop("steps") < many.pop("steps")
    assert few == many == {"H2D": 2 * 3 + 1, "D2H": 1}


def test_a_batched_step_takes_no_more_operations_than_two_plain_ones(device_worlds: Worlds) -> None:
    """It is of four silos here, and takes as many for any number."""
    counted = facts(device_worlds[1])["operations"]
    assert 0 < counted["batched"] <= 2 * counted["plain"]


def test_adding_up_takes_as_many_operations_however_long_vectors_are(device_worlds: Worlds) -> None:
    few, many = facts(device_worlds[1])["folds"]
    assert few == many <= 16


def test_no_memory_is_locked_twice(device_worlds: Worlds) -> None:
    """CUDA refuses that, and its next call, which has nothing to do with it, says so.

    One rank alone has no segments, and memory of malloc is never locked.
    """
    alone, server, *workers = [facts(device_worlds[1]), *(facts(device_worlds[3], rank) for rank in range(3))]
    assert [one["refused"] for one in (alone, server, *workers)] == [0, 0, 0, 0]
    assert alone["locked"] == server["locked"] == 0
    assert all(one["locked"] for one in workers)


@pytest.mark.skipif(not has_ulfm(), reason="needs Open MPI 5")
def test_a_mirror_on_an_accelerator_outlives_the_server(device_worlds: Worlds) -> None:
    """That the bits are those of the CPU is another test's."""
    said = (device_worlds[3] / "err").read_text()
    assert "rank 1 is the server now and goes on from the mirror, after round 2" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("wanted", ["gpu", "cuda"])
def test_a_gpu_that_is_not_there_is_refused_in_a_line(wanted: str) -> None:
    with pytest.raises(InputError, match=f"device = '{wanted}': .* has no GPU that torch can use; take"):
        device_of(wanted, 0, True)
