"""Targets of unequal lengths: what tasks, models and algorithms say of them; padding never counts."""

import numpy as np
import pytest
import torch
from unit.builders import CPU, training

from mpifl.algorithms import ALGORITHMS
from mpifl.common.errors import InputError, ShardError
from mpifl.data import Features, Ragged, Targets
from mpifl.data.batches import Batches
from mpifl.data.shards import FederationSpec, Shard, ShardEntry, Split
from mpifl.learning.models import build
from mpifl.learning.tasks import TASKS
from mpifl.learning.tasks.language import Language
from mpifl.silo import evaluate, learnable
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import LocalTraining
from mpifl.wings.fast import quickly as train

FEATURES = Features(shape=(6,), dtype="int16", ragged=True)
TOKENS = Targets(dtype="int16", shape=(6,), ignore=-100, ragged=True)
IDS = [np.arange(n, dtype="i2") % 9 for n in (6, 1, 3, 5, 2)]


def federation(classes=9, targets=TOKENS, **more):
    entry = ShardEntry(
        silo=0, name="a", file="a.h5", examples={"train": 5}, labels=[], bytes=1, sha256="0" * 64
    )
    entry = entry.model_copy(update={"labels": [1] * (classes or 0)})
    made = {"name": "toy", "seed": 0, "scheme": {}, "source": {}, "silos": [entry], "format_version": 3}
    return FederationSpec(features=FEATURES, classes=classes, targets=targets, **made, **more)


def split(examples=IDS):
    x, y = (Ragged.of(examples, longest=6, fill=fill) for fill in (0, -100))
    return Split(x, y, "int64")


@pytest.mark.parametrize("name", ["classification", "language", "segmentation"])
def test_what_is_scored_in_batches_is_what_is_scored_one_by_one(name):
    task = TASKS[name](**({"loss": "cross_entropy"} if name == "segmentation" else {}))
    task = task.for_federation(federation())
    module = build("gpt", {"width": 8, "layers": 1, "heads": 2}, FEATURES, 9, 0, task)
    model = FlatModel(module)
    start = model.trained.clone()
    batches = Batches(split(), FEATURES, CPU)
    together, apart = (evaluate(model, start, batches, task, size=size) for size in (3, 1))
    assert together.loss == pytest.approx(apart.loss, rel=1e-6)
    assert together.metrics == pytest.approx(apart.metrics, rel=1e-5)


def test_a_step_on_a_padded_batch_is_the_step_on_all_its_tokens():
    module = build("gpt", {"width": 8, "layers": 1, "heads": 2}, FEATURES, 9, 0, Language())
    model = FlatModel(module)
    start = model.trained.clone()
    task = Language().for_federation(federation())
    settings = LocalTraining(lr=1.0, batch_size="full", epochs=1)
    batches = Batches(split(), FEATURES, CPU)
    run = train(training(model, batches, start, settings, torch.Generator(), task.objective))
    model.trained.copy_(start)
    x = [torch.from_numpy(one).long() for one in IDS]
    logits = torch.cat([module(one[None])[0].T for one in x])
    (-torch.nn.functional.cross_entropy(logits, torch.cat(x))).backward()
    torch.testing.assert_close(run.delta, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))


@pytest.mark.parametrize(
    ("name", "dtype"), [("regression", "float32"), ("binary", "bool"), ("multilabel", "bool")]
)
def test_tasks_of_values_refuse_them(name, dtype):
    spec = federation(None, Targets(dtype=dtype, shape=(6,), ragged=True))
    with pytest.raises(InputError, match=rf"\[task\] name = '{name}': takes .* ragged .* use 'module:Task'"):
        TASKS[name]().for_federation(spec)


def test_inputs_and_targets_of_other_lengths_are_told_by_the_row(tmp_path):
    held = Split(split().x, Ragged.of([*IDS[:3], IDS[3][:4], IDS[4]], longest=6, fill=-100), "int64")
    shard = Shard(tmp_path / "a.h5", {"valid": held})
    with pytest.raises(ShardError, match=r"a\.h5: valid: row 3 has 5 rows of inputs and 4 of targets; corr"):
        learnable(shard, Language())
    assert learnable(Shard(tmp_path, {"valid": split()}), Language())


def test_another_ignore_than_that_of_the_padding_is_refused():
    with pytest.raises(InputError, match=r"ignore = -1: batches are padded with -100; leave it out"):
        Language(ignore=-1).for_federation(federation())
    assert Language(ignore=-100).for_federation(federation()).ignored == -100


def test_a_model_of_one_length_is_refused():
    with pytest.raises(InputError, match=r"'mlp' does not take .* of one row it says: "):
        build("mlp", {"hidden": [3]}, FEATURES.model_copy(update={"dtype": "float32"}), 2, 0)


@pytest.mark.parametrize("name", ["moon", "feddf"])
def test_algorithms_that_put_answers_of_all_batches_together_refuse_them(name):
    task = Language()
    module = build("gpt", {"width": 8, "layers": 1, "heads": 2}, FEATURES, 9, 0, task)
    algorithm = ALGORITHMS[name](local={"lr": 0.1}).model_copy(update={"task": task})
    spec = federation().model_copy(update={"public": federation().silos[0]})
    with pytest.raises(InputError, match=rf"name = '{name}': examples have unequal numbers of targets"):
        algorithm.check(module, spec)


def test_a_compiled_step_is_refused_and_the_plain_one_runs(capsys):
    model = FlatModel(build("gpt", {"width": 8, "layers": 1, "heads": 2}, FEATURES, 9, 0, Language()))
    settings = LocalTraining(lr=0.1, batch_size=2, epochs=1, compile=True)
    batches = Batches(split(), FEATURES, CPU)
    task = Language().for_federation(federation())
    assert (
        train(
            training(model, batches, model.trained.clone(), settings, torch.Generator(), task.objective)
        ).steps
        == 3
    )
    assert "examples have unequal lengths, and batches no one shape" in capsys.readouterr().err
