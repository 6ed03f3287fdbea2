"""Scoring holds the activations of few examples, however large they are and however many there are."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import CPU
from unit.tasks.test_kinds import federation

from jobs.flamby.models import UNet3d
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Features, Split
from mpifl.learning.tasks.task_registry import TASKS
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import evaluate

SIDE = 128


class Peak:
    """The most memory that this process takes meanwhile, in bytes; mapped files do not count."""

    def __enter__(self):
        self.bytes, self._ended, self._before = 0, threading.Event(), self._now()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.is_set():
            self.bytes = max(self.bytes, self._now() - self._before)
            time.sleep(0.001)

    def _now(self):
        lines = Path("/proc/self/status").read_text().splitlines()
        [kib] = [line.split()[1] for line in lines if line.startswith("RssAnon")]
        return 1024 * int(kib)


def volumes(folder, n):
    """Return n volumes in mapped files, the labels of their voxels beside them."""
    x, y = (
        np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
        for name, dtype, shape in (
            ("x", "uint8", (n, 1, SIDE, SIDE, SIDE)),
            ("y", "uint8", (n, SIDE, SIDE, SIDE)),
        )
    )
    x[:, :, 32:64], y[:, 32:64] = 200, 1
    features = Features(shape=(1, SIDE, SIDE, SIDE), dtype="uint8", scale=1 / 255)
    return Batches(Split(x, y), features, CPU)


def activations(module, x):
    """Return the bytes of all that the layers of a module make of one example."""
    made = []
    layers = [layer for layer in module.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _, __, out: made.append(out.nbytes)) for layer in layers]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    return sum(made)


def plain(channels):
    """Return a module with wide layers and almost nothing to compute."""
    return nn.Sequential(nn.Conv3d(1, channels, 1), nn.ReLU(), nn.Conv3d(channels, 2, 1))


MODELS = [
    pytest.param(lambda: plain(6), 6, id="plain"),
    pytest.param(lambda: UNet3d((1, SIDE, SIDE, SIDE), 2), 9, id="unet", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("make", "n"), MODELS)
def test_volumes_are_scored_within_the_activations_of_four(tmp_path, make, n):
    model, split = FlatModel(make()), volumes(tmp_path, n)
    task = TASKS["segmentation"]().for_federation(federation(2, (SIDE, SIDE, SIDE), "uint8"))
    x, _ = next(split.in_order(1))
    bound = 4 * activations(model.module, x)
    with Peak() as peak:
        score = evaluate(model, model.trained.clone(), split, task)
    assert score.examples == n
    assert 0 < peak.bytes < bound + (1 << 20)  # the process itself takes some pages now and then
