"""What only a real GPU shows: streams, graphs, locked pages, float formats, and how it rounds."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import launcher, ranks
from device.worlds import NAMES as WORLDS, SPLIT
from faults.test_survival import _has_ulfm as has_ulfm
from unit.builders import FEATURES, arrays, cross_entropy, net, stream, training

from mpifl.data.batches import Batches, batches as data_batches
from mpifl.data.shards.shards import Features, Split
from mpifl.learning import models
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.training import device_of
from mpifl.wings.fast import quickly as train
from mpifl.wings.fast.cuda_graphs import Graphs, recorded
from mpifl.wings.fast.stacked_training import train_together
from mpifl.wire.memory import Memory

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(not GPUS, reason="waits for hardware: needs a GPU that torch.cuda finds")

HERE = Path(__file__).parent
EACH = pytest.mark.parametrize("nth", range(max(GPUS, 1)))
PIXELS = Features(shape=(1, 28, 28), dtype="uint8", scale=1 / 255)
LETTERS = Features(shape=(80,), dtype="int64")
KINDS: dict[str, tuple[str, Features, int]] = {
    "logreg": ("logreg", PIXELS, 10),
    "2nn": ("2nn", PIXELS, 10),
    "cnn": ("cnn", PIXELS, 10),
    "char-lstm": ("char-lstm", LETTERS, 65),
}
ALONE = ["compiled", "bf16", "tf32", "topk", "wide-median"]
"""The jobs that `on_hardware` has beside those of `worlds`."""
NAMES = [*ALONE, *WORLDS]


@pytest.fixture
def gpu() -> torch.device:
    """The first GPU, as a rank takes it."""
    return device_of("cuda", 0, True)


def model_on(device: torch.device, kind: str) -> FlatModel:
    name, features, classes = KINDS[kind]
    return FlatModel(models.build(name, {}, features, classes, 0), device)


def examples_on(device: torch.device, kind: str, n: int = 60, seed: int = 0) -> Batches:
    _, features, classes = KINDS[kind]
    draw = np.random.default_rng(seed)
    high = 256 if features.dtype == "uint8" else classes
    x = draw.integers(0, high, (n, *features.shape)).astype(features.dtype)
    y = draw.integers(0, classes, (n, *(features.shape if kind == "char-lstm" else ())))
    return Batches(Split(x, y), features, device)


def asked(
    device: torch.device, kind: str, seed: int = 0, model: FlatModel | None = None, **settings: Any
) -> Any:
    """Return a training of two epochs of one of `KINDS`."""
    model = model or model_on(device, kind)
    local = LocalTraining(**{"lr": 0.05, "batch_size": 10, "epochs": 2, **settings})
    start = model_on(device, kind).trained.clone()
    return training(model, examples_on(device, kind, seed=seed), start, local, stream(seed))


def weights_lie_in_the_vector(model: FlatModel) -> bool:
    low = model.trained.data_ptr()
    return all(low <= p.data_ptr() < low + model.trained.nbytes for p in model.module.parameters())


@EACH
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


@EACH
@pytest.mark.parametrize("more", [{}, {"momentum": 0.9}, {"optimizer": "adamw", "lr": 0.01}])
def test_a_compiled_training_on_each_gpu_ends_near_the_plain_one(
    nth: int, more: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    device = device_of("cuda", nth, True)
    ends = []
    for compile in (False, True):
        model = FlatModel(net(), device)
        start = torch.linspace(-0.5, 0.5, len(model.trained), device=device)
        local = LocalTraining(**{"lr": 0.1, "batch_size": 5, "epochs": 3, "compile": compile, **more})
        examples = Batches(Split(*arrays(53)), FEATURES, device)
        ends.append(train(training(model, examples, start, local, stream(0))).end.clone())
    assert "the plain step runs instead" not in capfd.readouterr().err
    assert (ends[1] - ends[0]).abs().max() <= 1e-5 * ends[0].abs().max()


@pytest.mark.parametrize("kind", ["2nn", "cnn"])
def test_compiled_models_end_near_the_plain_ones(
    gpu: torch.device, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plain, compiled = (train(asked(gpu, kind, compile=compile)).delta for compile in (False, True))
    assert "the plain step runs instead" not in capfd.readouterr().err
    assert (plain - compiled).norm() <= 1e-3 * plain.norm()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_has_the_same_bits_each_time(gpu: torch.device, kind: str, compile: bool) -> None:
    first, second = (train(asked(gpu, kind, compile=compile)) for _ in range(2))
    assert torch.equal(first.delta, second.delta)
    assert first.loss == second.loss


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_ends_near_that_of_the_cpu(gpu: torch.device, kind: str) -> None:
    there, here = (train(asked(device, kind)) for device in (gpu, torch.device("cpu")))
    assert (there.delta.cpu() - here.delta).norm() <= 1e-2 * here.delta.norm()
    assert there.loss == pytest.approx(here.loss, rel=1e-3)


def test_weights_of_an_lstm_stay_in_the_vector_that_is_trained(gpu: torch.device) -> None:
    """cuDNN would move them to a chunk of their own."""
    model = model_on(gpu, "char-lstm")
    one = asked(gpu, "char-lstm", model=model)
    train(one)
    assert weights_lie_in_the_vector(model)
    model.gradient_at(one.start, cross_entropy, next(iter(one.data.in_order(10))))
    train(replace(one, settings=one.settings.model_copy(update={"compile": True})))
    assert weights_lie_in_the_vector(model)
    assert train(one).delta.count_nonzero() > 0


@pytest.mark.parametrize("kind", ["logreg", "2nn", "cnn"])
def test_a_batched_training_has_the_same_bits_whoever_shares_its_chunk(gpu: torch.device, kind: str) -> None:
    model = model_on(gpu, kind)

    def deltas(*silos: int) -> dict[int, torch.Tensor]:
        wanted = [asked(gpu, kind, silo, model) for silo in silos]
        found = train_together(wanted, 4)
        ends = {s: outcome(one).delta for s, one, outcome in zip(silos, wanted, found, strict=True)}
        return {silo: delta.clone() for silo, delta in ends.items()}

    together, others, alone = deltas(0, 1, 2, 3), deltas(7, 2, 0), deltas(2)
    assert torch.equal(together[2], others[2])
    assert torch.equal(together[2], alone[2])
    assert torch.equal(together[0], others[0])
    plain = train(asked(gpu, kind, 2)).delta
    assert (plain - alone[2]).norm() <= 1e-3 * plain.norm()


def first_gradient(device: torch.device, kind: str, precision: str, compile: bool = False) -> torch.Tensor:
    """Return a delta of one step with a rate of 1, in float64."""
    one = asked(device, kind, lr=1.0, epochs=1, batch_size=60, precision=precision, compile=compile)
    return train(one).delta.cpu().double()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("kind", ["2nn", "cnn"])
def test_cuda_computes_in_the_float_format_that_is_named(gpu: torch.device, kind: str, compile: bool) -> None:
    """A step that was compiled for one is not taken for the other, in either order."""
    right = first_gradient(torch.device("cpu"), kind, "fp32")
    errors = [
        float((first_gradient(gpu, kind, precision, compile) - right).norm() / right.norm())
        for precision in ("fp32", "tf32", "fp32", "bf16")
    ]
    assert errors[0] == errors[2] < 1e-5
    assert 1e-5 < errors[1] < 1e-2
    assert errors[1] < errors[3] < 0.2


def test_blocks_that_are_fetched_ahead_are_those_that_are_not(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of examples that find no room on the GPU, a thread gathers the next block and sends it there."""
    monkeypatch.setattr(data_batches, "resident_on", lambda _: None)
    monkeypatch.setattr(data_batches, "BLOCK_BYTES", 10 * 4 * 4)
    on_gpu, on_cpu = (Batches(Split(*arrays(103)), FEATURES, torch.device(one)) for one in (gpu, "cpu"))
    pairs = zip(on_gpu.shuffled(5, stream(0)), on_cpu.shuffled(5, stream(0)), strict=True)
    assert all(
        torch.equal(there.cpu(), here) for one, other in pairs for there, here in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("compile", [False, True])
def test_a_training_on_blocks_that_travel_has_the_bits_of_one_whose_examples_stay(
    gpu: torch.device, compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks come by another thread, while steps that were given the last one may still run."""
    stay = train(asked(gpu, "2nn", compile=compile, epochs=20))
    monkeypatch.setattr(data_batches, "resident_on", lambda _: None)
    monkeypatch.setattr(data_batches, "BLOCK_BYTES", 20 * 28 * 28)
    travel = train(asked(gpu, "2nn", compile=compile, epochs=20))
    assert torch.equal(stay.delta, travel.delta)
    assert stay.loss == travel.loss


def test_cuda_locks_the_pages_of_segments(gpu: torch.device) -> None:
    torch.zeros(1, device=gpu)
    mine, other = Memory(shared=True), Memory(shared=True)
    vector = mine.pinned(mine.empty(1 << 20, torch.float32).fill_(1))
    attached = other.pinned(other.attach(os.getpid(), mine.handle(vector), 1 << 20, torch.float32))
    assert attached.to("cuda", non_blocking=True).sum().item() == 1 << 20
    assert vector.is_pinned()
    assert attached.is_pinned()


@pytest.fixture(scope="module")
def gpu_worlds(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """The run folders of the jobs of `on_hardware` on 1 and on 3 ranks, and what they said."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        if has_ulfm():
            patch.setenv("MPIFL_MPIRUN", shlex.join([*launcher(), "--with-ft", "ulfm"]))
        for n in (1, 3):
            found[n] = tmp_path_factory.mktemp(f"gpu{n}") / "runs"
            done = ranks(n, HERE / "on_hardware.py", digits, found[n], timeout=150, cold=True)
            (found[n] / "err").write_text(done.stderr)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        yield found


def lines_of(run: Path) -> list[dict[str, float]]:
    said = ("test_loss", "test_accuracy", "silo_loss_mean", "silo_accuracy_pooled")
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: value for key, value in line.items() if key in said} for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_and_three_have_the_same_bits_on_a_gpu(gpu_worlds: dict[int, Path], name: str) -> None:
    alone, three = (gpu_worlds[n] / name for n in (1, 3))
    assert (alone / "model.safetensors").read_bytes() == (three / "model.safetensors").read_bytes()
    assert lines_of(alone) == lines_of(three)


def test_jobs_on_a_gpu_have_learned(gpu_worlds: dict[int, Path]) -> None:
    for name in [*NAMES, SPLIT]:
        losses = [line["test_loss"] for line in lines_of(gpu_worlds[1] / name) if "test_loss" in line]
        assert losses[-1] < losses[0], name


@pytest.mark.skipif(not has_ulfm(), reason="needs Open MPI 5")
def test_a_gpu_that_answers_no_more_ends_its_rank_alone(gpu_worlds: dict[int, Path]) -> None:
    """After an index out of range; that the bits are those of one rank is another test's."""
    said = (gpu_worlds[3] / "err").read_text()
    assert "rank 2: cuda:0 no longer answers: " in said
    assert "rank 2 died; other ranks take over silos" in said


@pytest.mark.skipif(not has_ulfm(), reason="needs Open MPI 5")
def test_a_mirror_on_a_gpu_outlives_the_server(gpu_worlds: dict[int, Path]) -> None:
    said = (gpu_worlds[3] / "err").read_text()
    assert "rank 1 is the server now and continues from the mirror, after round 2" in said
