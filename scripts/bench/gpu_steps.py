"""Sections of `gpu.py` on single steps: what one launches, keeps and costs by DP-SGD; adapters in bf16."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from mpifl.data.batches.batches import Batches
from mpifl.data.features import Features
from mpifl.data.shards.shards import Split
from mpifl.learning import models
from mpifl.learning.tasks import TASKS
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import Loss, Training
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.fast import quickly as train

if TYPE_CHECKING:
    from gpu import Bench

Rows: TypeAlias = Iterator[tuple[str, float]]
STEPS = 32
BATCH = 10
LAUNCH = ("LaunchKernel", "GraphLaunch")
"""What the names of CUDA's calls that start work on the device have in them."""
LANGUAGE = {"vocab_size": 512, "n_positions": 64, "n_embd": 256, "n_layer": 4, "n_head": 4}
"""A small GPT-2: 3.3 million parameters."""


class NotHere(Exception):
    """This machine lacks what a section needs."""


class Counts(TorchDispatchMode):
    """Counts the operations that PyTorch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


def _training(bench: Bench, name: str, size: int = BATCH, method: Any = None, **settings: Any) -> Training:
    model, data = bench.model(name), bench.batches(size * STEPS)
    task = TASKS["classification"]()
    loss = Loss(task.objective, of_outputs=task.mean_loss, weighted=task.weighted_objective)
    local = LocalTraining(lr=0.05, batch_size=size, steps=STEPS, **settings)
    drawn = torch.Generator().manual_seed(0)
    return Training(model, data, model.trained.clone(), local, loss, drawn, method=method)


def launches(bench: Bench) -> Rows:
    """Operations of a plain step and, on CUDA, what it starts there, as PyTorch's profiler sees it."""
    for name in ("2nn", "cnn"):
        one = _training(bench, name)
        train(one)
        with Counts() as counts:
            train(one)
        yield f"{name}, plain: operations a step", counts.operations / STEPS
        if bench.device.type == "cuda":
            for way in ("plain", "compiled"):
                yield from _started(f"{name}, {way}", _training(bench, name, compile=way == "compiled"))


def _started(said: str, one: Training) -> Rows:
    """Launches a step, and the microseconds of a step in which the device works."""
    train(one)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        train(one)
        torch.cuda.synchronize()
    events = seen.key_averages()
    started = sum(event.count for event in events if any(part in event.key for part in LAUNCH))
    yield f"{said}: launches a step", started / STEPS
    yield f"{said}: us a step that the device works", sum(e.self_device_time_total for e in events) / STEPS


def private(bench: Bench) -> Rows:
    """Microseconds of a step of DP-SGD beside a plain one."""
    for name, size in (("2nn", 10), ("2nn", 64), ("cnn", 64)):
        rate = 1 / STEPS
        way = DPSGD(bytes(32), "bench", clip=1.0, noise=1.0, rate=rate, steps=STEPS, expected=size)
        for what, method in (("plain", None), ("DP-SGD", way)):
            one = _training(bench, name, size, method)
            yield (
                f"{name}, B = {size}, {what}: us a step",
                1e6 * bench.median(lambda one=one: train(one), 3) / STEPS,
            )


def memory(bench: Bench) -> Rows:
    """MB of the device at the peak of a training, beside what lay there before."""
    if bench.device.type != "cuda":
        raise NotHere("PyTorch tells the peak of CUDA's memory alone")
    for name in ("logreg", "2nn", "cnn"):
        for way in ("plain", "compiled"):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            train(_training(bench, name, compile=way == "compiled"))
            yield f"{name}, {way}: MB", 1e-6 * (torch.cuda.max_memory_allocated() - before)


def lora(bench: Bench) -> Rows:
    """Tokens a second of a small GPT-2's adapters, whose weights are drawn."""
    for library in ("transformers", "peft"):
        if find_spec(library) is None:
            raise NotHere(f"{library} is not installed")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    length, task = LANGUAGE["n_positions"], TASKS["language"]()
    text = Features(shape=(length,), dtype="int64")
    x = np.random.default_rng(0).integers(0, LANGUAGE["vocab_size"], (8 * STEPS, length))
    with tempfile.TemporaryDirectory(prefix="mpifl-bench-") as folder:
        shape = transformers.GPT2Config(**LANGUAGE, bos_token_id=0, eos_token_id=0)
        transformers.GPT2LMHeadModel(shape).save_pretrained(folder)
        given = {"path": folder, "lora": {"r": 8, "target_modules": ["c_attn", "c_proj"]}}
        for precision in ("bf16", "fp32"):
            module = models.build("hf-causal", given, text, LANGUAGE["vocab_size"], 0, task)
            model = FlatModel(module, bench.device)
            data = Batches(Split(x, np.roll(x, -1, axis=1)), text, bench.device)
            local = LocalTraining(lr=0.01, batch_size=8, steps=STEPS, precision=precision)
            one = Training(
                model,
                data,
                model.trained.clone(),
                local,
                Loss(task.objective),
                torch.Generator().manual_seed(0),
            )
            seconds = bench.median(lambda one=one: train(one), 3)
            yield f"GPT-2 of 3.3 M, adapters, {precision}: tokens a second", STEPS * 8 * length / seconds
