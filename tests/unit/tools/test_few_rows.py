"""A baseline of metrics that leave out rows: those that count are the weight, and they are told."""

import numpy as np
import pytest
import torch
from unit.builders import write_folder

from mpifl.cli.baseline import baseline_figures
from mpifl.cli.baseline.baseline_words import cells, heads, record, verdict
from mpifl.learning.metrics import update_metrics
from mpifl.learning.tasks.segmentation import Segmentation
from mpifl.report.judging import paired, row_figures
from mpifl.report.judging.row_figures import RowFigures

DRAW = np.random.default_rng(5)


@pytest.fixture
def task(tmp_path):
    spec = write_folder(tmp_path / "shards", [4, 4])
    return Segmentation().for_federation(spec.model_copy(update={"classes": 2}))


def said_of(task, y, right):
    """Return what a model says of masks y [n, h, w], of whose pixels it has so large a share right."""
    wrong = torch.from_numpy(DRAW.random(y.shape) > right)
    answers = torch.where(wrong, 1 - y, y)
    outputs = torch.nn.functional.one_hot(answers, 2).movedim(-1, 1).double()
    metric, states = task.metrics()["dice"], []
    empty = row_figures._flat(metric)
    for row in range(len(y)):
        row_figures._put(metric, empty)
        update_metrics([metric], task, outputs[row : row + 1], y[row : row + 1])
        states.append(row_figures._flat(metric))
    return RowFigures(task, len(y), torch.stack(states)), outputs


def test_rows_that_count_are_the_weight_and_the_mean_is_that_of_all_rows(task, monkeypatch):
    monkeypatch.setattr(paired, "DRAWS", 50)
    judged, everything = [], []
    for number, (rows, empty) in enumerate(((12, 6), (10, 2), (8, 0))):
        y = torch.from_numpy(DRAW.integers(0, 2, (rows, 4, 4)))
        y[:empty] = 0
        (federated, outputs), (alone, _) = (said_of(task, y, share) for share in (0.9 - number / 5, 0.6))
        judged.append(baseline_figures._Judged(number, f"s{number}", [federated, alone]))
        everything.append((outputs, y))
    whole = task.metrics()["dice"]
    for outputs, y in everything:
        update_metrics([whole], task, outputs, y)
    silos, mean = baseline_figures._of_draws(judged, 1)
    assert mean.federated == pytest.approx(float(whole.compute()), rel=1e-9)
    assert [(one.rows, one.counted) for one in (*silos, mean)] == [(12, 6), (10, 8), (8, 8), (30, 22)]
    found = baseline_figures.Baseline(task.main_metric, "a test", silos, mean)
    assert heads(found)[:2] == ["test rows", "rows that count"]
    assert cells(silos[0], found)[:2] == ["12", "6"]
    assert "22 of 30 test rows, those that count" in verdict(found)
    assert record(found)["silos"]["s0"]["rows_that_count"] == 6
    plain = baseline_figures.Baseline(task.main_metric, "a test", silos[2:], silos[2])
    assert "rows that count" not in heads(plain)
