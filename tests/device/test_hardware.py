"""What only a real GPU shows: streams, graphs, locked pages. Never run so far."""

from __future__ import annotations

import os

import pytest
import torch
from unit.builders import FEATURES, arrays, net, stream, training

from mpifl.data.batches import Batches, batches as data_batches
from mpifl.data.shards.shards import Split
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training_loop import train
from mpifl.training import device_of
from mpifl.wings.fast.cuda_graphs import Graphs, recorded
from mpifl.wire.memory import Memory

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(not GPUS, reason="waits for hardware: needs a GPU that torch.cuda finds")


@pytest.mark.parametrize("nth", range(max(GPUS, 1)))
def test_replayed_steps_do_on_each_gpu_what_the_steps_do(nth: int) -> None:
    """75 steps are played as graphs of 64, 8 and 1; recording them leaves w as it was."""
    device = device_of("cuda", nth, True)
    w, given = torch.ones(8, device=device), torch.rand(75, 1, 8, generator=torch.Generator().manual_seed(0))

    def run(tensors: list[torch.Tensor]) -> None:
        tensors[0].mul_(0.5).add_(tensors[1].sum(0))

    steps = Graphs(run, [w], (given[0].to(device),), recorded)
    assert w.tolist() == [1.0] * 8
    for batch in given:
        steps((batch.to(device),))
    steps.finish()
    expected = torch.ones(8, device=device)
    for batch in given:
        run([expected, batch.to(device)])
    assert torch.equal(w, expected)


@pytest.mark.parametrize("nth", range(max(GPUS, 1)))
def test_a_compiled_training_on_each_gpu_ends_near_the_plain_one(nth: int) -> None:
    device = device_of("cuda", nth, True)
    ends = []
    for compile in (False, True):
        torch.manual_seed(0)
        model = FlatModel(net(), device)
        start = torch.linspace(-0.5, 0.5, len(model.trained), device=device)
        local = LocalTraining(lr=0.1, batch_size=5, epochs=3, compile=compile)
        examples = Batches(Split(*arrays(53)), FEATURES, device)
        ends.append(train(training(model, examples, start, local, stream(0))).end.clone())
    assert (ends[1] - ends[0]).abs().max() <= 1e-5 * ends[0].abs().max()


def test_blocks_that_are_fetched_ahead_are_those_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of examples that find no room on the GPU, a thread gathers the next block and sends it there."""
    device = device_of("cuda", 0, True)
    monkeypatch.setattr(data_batches, "resident_on", lambda _: None)
    monkeypatch.setattr(data_batches, "BLOCK_BYTES", 10 * 4 * 4)
    on_gpu, on_cpu = (Batches(Split(*arrays(103)), FEATURES, torch.device(one)) for one in (device, "cpu"))
    pairs = zip(on_gpu.shuffled(5, stream(0)), on_cpu.shuffled(5, stream(0)), strict=True)
    assert all(
        torch.equal(there.cpu(), here) for one, other in pairs for there, here in zip(one, other, strict=True)
    )


def test_cuda_locks_the_pages_of_segments() -> None:
    device_of("cuda", 0, True)
    torch.zeros(1, device="cuda")
    mine, other = Memory(shared=True), Memory(shared=True)
    vector = mine.pinned(mine.empty(1 << 20, torch.float32).fill_(1))
    attached = other.pinned(other.attach(os.getpid(), mine.handle(vector), 1 << 20, torch.float32))
    assert attached.to("cuda", non_blocking=True).sum().item() == 1 << 20
    assert vector.is_pinned()
    assert attached.is_pinned()
