"""Jobs on a fake accelerator, which refuses every mix with the CPU and counts what it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from device.worlds import NAMES, ODD, SPLIT
from faults.test_survival import _has_ulfm as has_ulfm

from mpifl.common import InputError
from mpifl.training import device_of

Worlds = dict[int, Path]


def facts(world: Path, rank: int = 0) -> dict[str, Any]:
    return json.loads((world / f"rank{rank}.json").read_text())


def model_of(world: Path, name: str, device: str = "gpu") -> bytes:
    return (world / f"{name}-{device}" / "model.safetensors").read_bytes()


def figures_of(world: Path, name: str, device: str = "gpu") -> list[dict[str, float]]:
    lines = (world / f"{name}-{device}" / "metrics.jsonl").read_text().splitlines()
    said = ("test_loss", "test_accuracy", "silo_loss_mean", "silo_accuracy_pooled")
    return [{key: value for key, value in json.loads(line).items() if key in said} for line in lines]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 3])
def test_an_accelerator_gives_the_bits_of_the_cpu(device_worlds: Worlds, n: int, name: str) -> None:
    assert model_of(device_worlds[n], name) == model_of(device_worlds[1], name, "cpu")


def test_a_split_network_on_an_accelerator_goes_on_with_the_bits_of_the_cpu(device_worlds: Worlds) -> None:
    assert model_of(device_worlds[1], SPLIT) == model_of(device_worlds[1], SPLIT, "cpu")
    for silo in range(3):
        own = f"personal/silo_{silo:04d}.safetensors"
        one, other = (device_worlds[1] / f"{SPLIT}-{device}" / own for device in ("gpu", "cpu"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", ODD)
def test_one_rank_gives_the_bits_of_many_where_an_accelerator_rounds_otherwise_than_the_cpu(
    device_worlds: Worlds, name: str
) -> None:
    """What the server keeps lies on the host; what it computes, it computes where silos do."""
    alone, many = (model_of(device_worlds[n], name, "odd") for n in (1, 3))
    assert alone == many != model_of(device_worlds[1], name, "cpu")
    one, three = (figures_of(device_worlds[n], name, "odd") for n in (1, 3))
    assert one == three


def test_each_rank_has_made_its_accelerator_the_current_one(device_worlds: Worlds) -> None:
    """Rank 1 has the first of two, rank 2 the second; the server, which scores, has one behind them."""
    said = [facts(device_worlds[3], rank) for rank in range(3)]
    assert [one["current"] for one in said] == [0, 0, 1]
    assert ["aten::mm" in one["counts"] for one in said] == [True, True, True]


@pytest.mark.parametrize("way", ["plain", "momentum", "adamw", "accumulated"])
def test_a_step_neither_waits_for_the_accelerator_nor_copies(device_worlds: Worlds, way: str) -> None:
    """An epoch of 12 batches does so as often as one of 2: its examples and their order go there, its loss
    comes back."""
    few, many = facts(device_worlds[1])["waits"][way]
    assert few.pop("steps") < many.pop("steps")
    assert few == many == {"H2D": 4, "item": 1}


def test_a_batched_step_neither_waits_nor_copies(device_worlds: Worlds) -> None:
    """Of three silos: the examples of each and a table of weights go there, the losses come back."""
    few, many = facts(device_worlds[1])["waits"]["batched"]
    assert few.pop("steps") < many.pop("steps")
    assert few == many == {"H2D": 4 * 3 + 1, "D2H": 1}


def test_a_batched_step_takes_no_more_operations_than_two_plain_ones(device_worlds: Worlds) -> None:
    """It is of four silos here, and takes as many for any number."""
    counted = facts(device_worlds[1])["operations"]
    assert 0 < counted["batched"] <= 2 * counted["plain"]


def test_adding_up_takes_as_many_operations_however_long_vectors_are(device_worlds: Worlds) -> None:
    few, many = facts(device_worlds[1])["folds"]
    assert few == many <= 16


def test_what_silos_keep_lies_on_the_host(device_worlds: Worlds) -> None:
    """Three silos of seven keep a control for the first time in the second round."""
    first, second = json.loads((device_worlds[1] / "qsgd-gpu" / "held.json").read_text())
    assert first == second


def test_examples_go_to_the_accelerator_once_and_their_order_each_time(device_worlds: Worlds) -> None:
    """48 examples of four float32 and a label of eight bytes; x and y are gathered by an index each."""
    first, again = facts(device_worlds[1])["travels"]
    assert again == 2 * 48 * 8
    assert first == again + 48 * (4 * 4 + 8)


def test_a_thread_fetches_the_next_block_of_examples_that_do_not_stay_on_the_accelerator(
    device_worlds: Worlds,
) -> None:
    """48 examples are six blocks of two batches each."""
    assert facts(device_worlds[1])["fetched"] == {"threads": ["mpifl-ahead"], "same": True, "batches": 12}


def test_a_deadline_counts_what_is_done_and_not_what_is_asked_for(device_worlds: Worlds) -> None:
    assert facts(device_worlds[1])["finishes"] == [[4, 0], [4, 4]]


def test_float32_is_that_of_ieee_and_tf32_is_taken_by_its_name(device_worlds: Worlds) -> None:
    """As torch comes, cuDNN takes TF32 for convolutions. Afterwards it does again."""
    alone = facts(device_worlds[1])
    as_it_comes = [False, True]
    assert alone["rounds"] == {"fp32": [[False, False], as_it_comes], "tf32": [[True, True], as_it_comes]}
    assert alone["between"] == [False, False]
    assert alone["after"] == as_it_comes


def test_no_memory_is_locked_twice(device_worlds: Worlds) -> None:
    """CUDA refuses that, and its next call, which has nothing to do with it, says so.

    One rank alone has no segments, and memory of malloc is never locked.
    """
    alone, server, *workers = [facts(device_worlds[1]), *(facts(device_worlds[3], rank) for rank in range(3))]
    assert [one["refused"] for one in (alone, server, *workers)] == [0, 0, 0, 0]
    assert alone["locked"] == server["locked"] == 0
    assert all(one["locked"] for one in workers)


@pytest.mark.skipif(not has_ulfm(), reason="needs Open MPI 5")
def test_an_accelerator_that_answers_no_more_ends_its_rank_alone(device_worlds: Worlds) -> None:
    """That the bits are those of the CPU is another test's: its silos train elsewhere, in the same round."""
    said = (device_worlds[3] / "err").read_text()
    assert "rank 2: fake:1 no longer answers: device-side assert triggered" in said
    assert "rank 2 died; other ranks take over silos" in said


@pytest.mark.skipif(not has_ulfm(), reason="needs Open MPI 5")
def test_a_mirror_on_an_accelerator_outlives_the_server(device_worlds: Worlds) -> None:
    """That the bits are those of the CPU is another test's."""
    said = (device_worlds[3] / "err").read_text()
    assert "rank 1 is the server now and continues from the mirror, after round 2" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("wanted", ["gpu", "cuda"])
def test_a_gpu_that_is_not_there_is_refused_in_a_line(wanted: str) -> None:
    with pytest.raises(InputError, match=f"device = '{wanted}': .* has no GPU that torch can use; use"):
        device_of(wanted, 0, True)
