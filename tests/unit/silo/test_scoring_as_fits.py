"""Scoring with as many examples at a time as memory takes."""

import json
import resource
from pathlib import Path

import pytest
import torch
from conftest import ROOT, ranks
from torch import nn
from unit.builders import batches, net

from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo import evaluate
from mpifl.silo.parameters import FlatModel
from mpifl.silo.scoring import as_fits
from mpifl.silo.steps import EVALUATION_BATCH


class Wide(nn.Module):
    """A small network that takes 1 MiB for each example on its way."""

    def __init__(self):
        super().__init__()
        self.inner, self.seen = net(), []

    def forward(self, x):
        self.seen.append(len(x))
        wide = x.repeat(1, 1 << 16)
        return self.inner(wide.view(len(x), -1, 4)[:, 0])


def short_of_memory():
    """Score with 240 MiB beside what the process has; print what the model was given, and the figures."""
    torch.set_num_threads(1)
    model = FlatModel(Wide())
    evaluate(model, model.trained, batches(8), CLASSIFICATION)  # what a first pass loads and starts is there
    model.module.seen.clear()
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + (240 << 20), -1))
    scores = [
        evaluate(model, model.trained, batches(1200), CLASSIFICATION, size=size)
        for size in ("auto", 20, "auto")
    ]
    seen = model.module.seen
    figures = [(one.loss, one.metrics["accuracy"]) for one in scores]
    print(json.dumps([seen[: seen.index(20)], seen[-3], figures]))


def test_examples_are_halved_until_memory_takes_them(tmp_path):
    call = "from unit.silo import test_scoring_as_fits; test_scoring_as_fits.short_of_memory()"
    (tmp_path / "short.py").write_text(f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); {call}")
    done = ranks(1, tmp_path / "short.py")
    assert done.returncode == 0, done.stderr
    seen, later, figures = json.loads(done.stdout)
    assert seen[:3] == [1000, 500, 250]
    assert seen[-2] == 125
    assert later == 125, "it is remembered"
    (auto, right), (twenty, same), (again, _) = figures
    assert again == auto == pytest.approx(twenty)
    assert right == same


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.cuda.OutOfMemoryError("CUDA"), RuntimeError("x: can't allocate memory: y")]
)
def test_one_example_that_does_not_fit_is_the_error_that_it_was(error):
    tried, model = [], FlatModel(net())

    def act(size):
        tried.append(size)
        raise error

    with pytest.raises(type(error)):
        as_fits(model, "auto", act)
    assert tried == [1000, 500, 250, 125, 62, 31, 15, 7, 3, 1]


def test_other_errors_and_other_sizes_are_tried_once():
    tried, model = [], FlatModel(net())

    def act(size):
        tried.append(size)
        raise RuntimeError("shapes do not fit" if size == EVALUATION_BATCH else "can't allocate memory")

    for size in ("auto", 7):
        with pytest.raises(RuntimeError):
            as_fits(model, size, act)
    assert tried == [EVALUATION_BATCH, 7]
