"""Targets and inputs with names, and targets that a task cannot learn, from the shard to the figures."""

import json

import numpy as np
import pytest
import tomli_w
from torch import nn
from unit.builders import Alone

from data_prep.cli import main as data_prep
from mpifl.common.errors import InputError
from mpifl.training.loop import train
from mpifl.wings import wings_of


class Hazard(nn.Module):
    """A linear risk of two inputs by name."""

    def __init__(self):
        super().__init__()
        self.age, self.genes = nn.Linear(1, 1, bias=False), nn.Linear(4, 1, bias=False)

    def forward(self, age, genes):
        return self.age(age) + self.genes(genes)


def patients(n, seed=0):
    """Return inputs and times of an event that comes sooner the larger the age and the first gene."""
    drawn = np.random.default_rng(seed)
    age, genes = drawn.normal(size=(n, 1)).astype("float32"), drawn.normal(size=(n, 4)).astype("float32")
    time = drawn.exponential(np.exp(-1.5 * age[:, 0] - 1.5 * genes[:, 0])).astype("float32")
    return {"x_age": age, "x_genes": genes, "y_time": time, "y_event": drawn.random(n) < 0.8}


def trained(folder, **arrays):
    """Partition the arrays, train two rounds; return the last record."""
    np.savez(folder / "own.npz", silo=np.arange(len(arrays["y_time"])) % 3, **arrays)
    words = ["partition", "npz", "--data", str(folder / "own.npz"), "--out", str(folder / "shards")]
    with pytest.raises(SystemExit) as stop:
        data_prep([*words, "--scheme", "natural", "--test", "0.3"])
    assert stop.value.code == 0
    job = {
        "name": "cox",
        "shards": str(folder / "shards"),
        "rounds": 5,
        "device": "cpu",
        "model": {"name": "unit.tasks.test_named_arrays:Hazard"},
        "task": {"name": "survival"},
        "local": {"lr": 0.3, "batch_size": 50},
    }
    (folder / "job.toml").write_text(tomli_w.dumps(job))
    train(folder / "job.toml", folder / "run", (), False, Alone(), wings_of=wings_of)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return json.loads(lines[-1])


def test_inputs_and_targets_with_names_train_and_are_judged(tmp_path):
    arrays = patients(300)
    record = trained(tmp_path, **arrays)
    assert record["faults"] == {}
    assert record["silo_c_index_mean"] > 0.75
    assert "silo_c_index_pooled" not in record, "pairs are compared within a silo only"
    assert len(record["silos"]) == 3


WRONG = {
    "time = -1 in row": lambda y: y["y_time"].__setitem__(slice(0, 30), -1),
    "all rows are censored": lambda y: y["y_event"].__setitem__(slice(None), False),
}


@pytest.mark.parametrize("said", WRONG)
def test_targets_that_survival_cannot_learn_name_file_and_row(tmp_path, said):
    arrays = patients(60)
    WRONG[said](arrays)
    with pytest.raises(InputError, match=rf"silo_000\d\.h5: \w+: {said}"):
        trained(tmp_path, **arrays)


def test_a_model_that_does_not_take_the_names_is_one_line(tmp_path):
    arrays = patients(60)
    arrays["x_weight"] = arrays.pop("x_age")
    with pytest.raises(InputError, match="does not take features of shape"):
        trained(tmp_path, **arrays)
