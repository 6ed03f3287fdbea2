"""A baseline of metrics that leave out rows: those that count are the weight, and they are told."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from unit.builders import write_folder

from mpifl.cli.baseline import baseline_figures
from mpifl.cli.baseline.baseline_words import cells, heads, of_chance, record, verdict
from mpifl.cli.baseline.judged_models import JudgedSilo
from mpifl.learning.metrics import ACCURACY, read_states, update_metrics
from mpifl.learning.tasks.classification import Classification
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
        judged.append(JudgedSilo(number, f"s{number}", [federated, alone]))
        everything.append((outputs, y))
    whole = task.metrics()["dice"]
    for outputs, y in everything:
        update_metrics([whole], task, outputs, y)
    silos, mean = baseline_figures._of_draws(judged, 1, True)
    assert mean.federated == pytest.approx(float(whole.compute()), rel=1e-9)
    assert [(one.rows, one.counted) for one in (*silos, mean)] == [(12, 6), (10, 8), (8, 8), (30, 22)]
    found = baseline_figures.Baseline(task.main_metric, "a test", silos, mean)
    assert heads(found)[:2] == ["test rows", "rows that count"]
    assert cells(silos[0], found)[:2] == ["12", "6"]
    assert "22 test rows that count, of 30" in verdict(found)
    assert record(found)["silos"]["s0"]["rows_that_count"] == 6
    plain = baseline_figures.Baseline(task.main_metric, "a test", silos[2:], silos[2])
    assert "rows that count" not in heads(plain)


@pytest.mark.parametrize(("pairs", "seen"), [(6, "too few rows"), (6, "too few groups"), (8, "better")])
def test_p_of_few_rows_is_that_of_the_exact_test_of_pairs(task, monkeypatch, pairs, seen):
    """Each row is better, so the two-sided p is 2 / 2^pairs; Holm multiplies it by four silos."""
    monkeypatch.setattr(paired, "DRAWS", 200)
    judged = []
    for number in range(4):
        y = torch.from_numpy(DRAW.integers(0, 2, (pairs, 4, 4)))
        models = [said_of(task, y, share)[0] for share in (1, 0.5)]
        groups = None
        if seen == "too few groups":  # each row twice, and both are one's own
            models = [RowFigures(task, 2 * pairs, one.states.repeat(2, 1)) for one in models]
            groups = np.tile(np.arange(pairs), 2)
        judged.append(JudgedSilo(number, str(number), models, groups))
    silos, mean = baseline_figures._of_draws(judged, 1, True)
    found = baseline_figures.Baseline(task.main_metric, "a test", silos, mean)
    for one in silos:
        assert one.difference.p == pytest.approx(stats.binomtest(pairs, pairs).pvalue)
        assert one.p == pytest.approx(min(1, 4 * 2 / 2**pairs))
        assert cells(one, found)[-1] == seen
        assert (one.difference.low <= 0 <= one.difference.high) == (one.p > 0.05), "corrected alike"
    told = "better for" if seen == "better" else f"{seen} at"
    assert verdict(found).endswith(f"; {told} each of 4 silos by itself.")
    assert mean.p < 0.01
    assert record(found)["silos"]["0"]["judged"] == seen
    assert record(found)["silos"]["0"]["outcome"] == (f"{seen} (6 of 8)" if pairs == 6 else seen)


def test_p_of_exchanges_goes_through_all_of_them_and_few_right_answers_are_told(task):
    apart, place = DRAW.normal(0.4, 1, 9), [*read_states(task.metrics()["dice"])].index("total")
    states = torch.ones(2, 9, 2, dtype=torch.float64)
    states[0, :, place] += torch.from_numpy(apart)
    silo = [RowFigures(task, 9, one) for one in states]
    signs = np.array(list(itertools.product((1, -1), repeat=9))) @ apart
    beyond = min((signs >= apart.sum() - 1e-12).mean(), (signs <= apart.sum() + 1e-12).mean())
    every = pytest.approx(min(1.0, 2 * beyond))
    found = paired.exchanged(*silo, np.arange(9), DRAW)
    assert found.p(apart.mean()) == every
    thrice = [RowFigures(task, 27, one.repeat_interleave(3, 0)) for one in states]
    assert paired.exchanged(*thrice, np.repeat(np.arange(9), 3), DRAW).p(apart.mean()) == every, (
        "whole groups"
    )
    parts = [[RowFigures(task, n, one[at : at + n]) for one in states] for at, n in ((0, 5), (5, 4))]
    parts = [paired.exchanged(*part, np.arange(part[0].rows), DRAW) for part in parts]
    assert paired.exchanged_in_mean(parts, [5, 4], DRAW).p(apart.mean()) == every, "all ways of two silos"
    many = paired.exchanged_in_mean([found, *parts], [9, 5, 4], DRAW)
    assert (many.every, len(many.differences)) == (False, paired.EXCHANGES)
    right = [RowFigures(Classification(), 5, torch.tensor([[of, 1.0]] * 5).double()) for of in (1.0, 0.0)]
    silos, whole = baseline_figures._of_rights([JudgedSilo(0, "a", right)])
    found = baseline_figures.Baseline(ACCURACY, "a test", silos, whole)
    assert verdict(found).startswith("These rows are too few to show whether federation helped")


def test_ranks_are_exchanged_where_a_figure_is_by_ranks(tmp_path, monkeypatch):
    """Scores of two models have no common scale: one that is higher by 9 throughout is no other model."""
    monkeypatch.setattr(paired, "EXCHANGES", 100)
    spec = write_folder(tmp_path / "shards", [4, 4], classes=2)
    task = Classification(metrics=["auroc"]).for_federation(spec)
    y = torch.arange(30) % 2
    scores = torch.from_numpy(DRAW.normal(size=(2, 30)))

    def ways(higher):
        logits = [torch.stack([0 * one, one + up], 1) for one, up in zip(scores, (0, higher), strict=True)]
        models = [RowFigures(task, 30, outputs=one, y=y) for one in logits]
        return paired.exchanged(*models, np.arange(30), np.random.default_rng(1)).differences

    assert np.array_equal(ways(0.0), ways(9.0))


@pytest.mark.parametrize("empty", [0, 3])
def test_the_mean_of_few_groups_is_judged_by_exchanges_of_those_that_count(task, empty, monkeypatch):
    """Groups of two images in silos of 9, 7, 5 and 4; draws alone would say p = 0.03 of their mean."""
    monkeypatch.setattr(paired, "DRAWS", 400)
    judged, signs, place = [], [], [*read_states(task.metrics()["dice"])].index("total")
    noise = np.random.default_rng(468)
    for number, many in enumerate((9, 7, 5, 4)):
        groups = np.repeat(np.arange(many + empty), 2)
        states = torch.ones(2, len(groups), 2, dtype=torch.float64) * torch.from_numpy(groups < many)[:, None]
        apart = noise.normal(0, 0.1, many)
        states[0, groups < many, place] += torch.from_numpy(apart[groups[groups < many]])
        judged.append(
            JudgedSilo(number, str(number), [RowFigures(task, len(groups), one) for one in states], groups)
        )
        signs.append(apart)
    silos, mean = baseline_figures._of_draws(judged, 1, True)
    flips = np.where(noise.random((20000, 25)) < 0.5, 1, -1) @ np.concatenate(signs)
    exact = (np.abs(flips) >= abs(np.concatenate(signs).sum())).mean()
    assert mean.p == pytest.approx(exact, abs=0.02)
    assert mean.p > 0.05
    assert mean.difference.low <= 0 <= mean.difference.high
    found = baseline_figures.Baseline(task.main_metric, "a test", silos, mean, mean=True)
    assert verdict(found).startswith("No difference seen")
    assert silos[3].few == "4 of 8 groups", "groups of empty images say nothing"
    one = replace(found, silos=silos[3:], whole=baseline_figures._of_draws(judged[3:], 1, True)[1])
    of = "the 8 of its 14 test rows that count" if empty else "its 8 test rows"
    assert verdict(one).startswith(
        f"These groups are too few to show whether federation helped at silo 3, by {of}:"
    )
    assert "Holm" in of_chance(found)
    assert "Holm" not in of_chance(one)
