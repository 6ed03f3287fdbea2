"""Steps that wait for others, and are taken as one graph. Here a graph is the call that would be recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mpifl.wings.fast import cuda_graphs
from mpifl.wings.fast.cuda_graphs import Graphs


def run(given: list[Tensor]) -> None:
    """Take a step that shows in which order steps are taken."""
    w, x, y = given
    w.mul_(0.5).add_(x.sum() * y.sum())


def batches(count: int, size: int = 3) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(count)
    return [
        (torch.rand(size, 4, generator=draw), torch.randint(9, (size,), generator=draw)) for _ in range(count)
    ]


class Recorder:
    """Runs a call twice, as a capture warms it up, and counts how often it is played."""

    def __init__(self) -> None:
        self.made = self.played = 0

    def __call__(self, call: Callable[[], None]) -> Callable[[], None]:
        self.made += 1
        call()
        call()

        def play() -> None:
            self.played += 1
            call()

        return play


def taken(count: int, **patched: object) -> tuple[Tensor, Recorder]:
    w, recorder, given = torch.ones(2), Recorder(), batches(count)
    steps = Graphs(run, [w], given[0], recorder)
    for batch in given:
        steps(batch)
    steps.finish()
    return w, recorder


@pytest.mark.parametrize(
    ("count", "played"), [(1, 1), (7, 7), (8, 1), (60, 7 + 4), (64, 1), (139, 2 + 1 + 3)]
)
def test_steps_are_taken_in_order_by_as_few_graphs_as_can_be(count: int, played: int) -> None:
    found, recorder = taken(count)
    expected = torch.ones(2)
    for batch in batches(count):
        run([expected, *batch])
    assert torch.equal(found, expected)
    assert recorder.played == played


def test_recording_leaves_what_steps_work_on_as_it_was() -> None:
    w = torch.ones(2)
    steps = Graphs(run, [w], batches(1)[0], Recorder())
    assert w.tolist() == [1.0, 1.0]
    for batch in batches(7):
        steps(batch)
    assert w.tolist() == [1.0, 1.0], "seven wait for an eighth, or for the end"


def test_a_training_that_was_broken_off_leaves_no_step_to_the_next() -> None:
    w = torch.ones(2)
    steps = Graphs(run, [w], batches(1)[0], Recorder())
    steps(batches(1)[0])
    steps.restart()
    steps.finish()
    assert w.tolist() == [1.0, 1.0]


def test_batches_that_are_large_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three examples of 4 float32 and a label of 8 bytes are 72 bytes."""
    monkeypatch.setattr(cuda_graphs, "MOST_BYTES", 8 * 72)
    found, recorder = taken(16)
    assert recorder.played == 2
    monkeypatch.setattr(cuda_graphs, "MOST_BYTES", 10)
    again, recorder = taken(16)
    assert recorder.played == 16
    assert torch.equal(found, again)
