"""What only a real GPU shows: streams, graphs, locked pages. Never run so far."""

from __future__ import annotations

import os

import pytest
import torch

from mpifl.silo import codegen
from mpifl.training import device_of
from mpifl.wire.memory import Memory

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(not GPUS, reason="waits for hardware: needs a GPU that torch.cuda finds")


@pytest.mark.parametrize("nth", range(max(GPUS, 1)))
def test_a_replayed_step_does_on_each_gpu_what_the_step_does(nth: int) -> None:
    device = device_of("cuda", nth, True)
    w, x = torch.zeros(8, device=device), torch.ones(8, device=device)
    replay = codegen.capture_graph(lambda given: given[0].add_(given[1]), [w], [x])
    assert w.tolist() == [0.0] * 8
    for times in (2.0, 3.0):
        replay([w, x * times])
    assert w.tolist() == [5.0] * 8


def test_cuda_locks_the_pages_of_segments() -> None:
    device_of("cuda", 0, True)
    torch.zeros(1, device="cuda")
    mine, other = Memory(shared=True), Memory(shared=True)
    vector = mine.pinned(mine.empty(1 << 20, torch.float32).fill_(1))
    attached = other.pinned(other.attach(os.getpid(), mine.handle(vector), 1 << 20, torch.float32))
    assert attached.to("cuda", non_blocking=True).sum().item() == 1 << 20
    assert vector.is_pinned()
    assert attached.is_pinned()
