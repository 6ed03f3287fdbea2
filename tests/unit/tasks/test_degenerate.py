"""Metrics of few, equal or one-sided examples, at a silo and over silos: scikit-learn's, or a formula's."""

import itertools
import json
import math
import warnings

import numpy as np
import pytest
import tomli_w
import torch
from sklearn import metrics as sk
from unit.builders import FEATURES, Alone, arrays
from unit.tasks.test_metrics import CLASSES, all_metrics, naive_concordance, task_of

from mpifl.data import Targets
from mpifl.data.shards import FederationSpec
from mpifl.learning.metrics import (
    computed,
    pack_states,
    pooled,
    read_states,
    summable,
    update_metrics,
    write_states,
)
from mpifl.learning.tasks import TASKS
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.write_shard import write_shard

P_OF = {0: 0.1, 1: 0.9}


def classes(answers, targets):
    """Logits by which each answer is the likeliest class, the others alike."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(answers, dtype=torch.long), CLASSES)
    return 5.0 * one_hot, torch.tensor(targets, dtype=torch.long)


def yes_or_no(answers, targets):
    p = torch.tensor([P_OF.get(one, one) for one in answers], dtype=torch.float64)
    return torch.logit(p).reshape(-1, 1), torch.tensor(targets, dtype=torch.long)


def labels(answers, targets):
    p = torch.tensor([[P_OF[one] for one in row] for row in answers], dtype=torch.float64)
    return torch.logit(p).reshape(-1, 3), torch.tensor(targets, dtype=torch.float32).reshape(-1, 3)


def values(answers, targets):
    return torch.tensor(answers).reshape(-1, 2), torch.tensor(targets).reshape(-1, 2)


def voxels(answers, targets):
    outputs, y = classes(answers, targets)
    return outputs.reshape(-1, 2, CLASSES).movedim(-1, 1), y.reshape(-1, 2)


def risks(answers, targets):
    return torch.tensor(answers).reshape(-1, 1), torch.tensor(targets).reshape(-1, 2)


OF_CLASSES = {
    "one class there": ([0, 1, 1, 0, 2, 1], [1, 1, 1, 1, 1, 1]),
    "one class there, all right": ([1, 1], [1, 1]),
    "one class there, all wrong": ([2, 2], [1, 1]),
    "one class answered": ([1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 2, 1]),
    "one class answered of two": ([0, 0, 0, 0], [0, 1, 1, 0]),
    "one class only answered": ([0, 1, 3, 3], [0, 1, 1, 0]),
    "background alone": ([0, 0], [0, 0]),
    "nothing right": ([1, 0, 1, 0], [0, 1, 0, 1]),
    "nobody": ([], []),
}
ONE_EXAMPLE = {"one, right": ([2], [2]), "one, wrong": ([1], [2])}
OF_YES = {
    "no alone there": ([0, 1, 1, 0], [0, 0, 0, 0]),
    "yes alone there": ([0, 1, 1, 0], [1, 1, 1, 1]),
    "no alone, all right": ([0, 0], [0, 0]),
    "yes alone, all right": ([1, 1], [1, 1]),
    "no alone, all wrong": ([1, 1], [0, 0]),
    "yes alone answered": ([1, 1, 1, 1, 1], [0, 1, 1, 0, 1]),
    "no alone answered": ([0, 0, 0, 0, 0], [0, 1, 1, 0, 1]),
    "ties": ([0.5, 0.5, 0.5], [0, 1, 1]),
    "all certain, ties": ([1.0, 1.0, 0.0, 0.0], [1, 0, 0, 1]),
    "nothing right": ([1, 0, 1, 0], [0, 1, 0, 1]),
    "one yes": ([1], [1]),
    "one yes, missed": ([0], [1]),
    "one no": ([0], [0]),
    "nobody": ([], []),
}
OF_LABELS = {
    "a label that nobody has": ([[1, 0, 1], [0, 0, 1]], [[1, 0, 0], [0, 0, 1]]),
    "a label that all have": ([[1, 0, 1], [0, 1, 1]], [[1, 1, 0], [0, 1, 1]]),
    "no label at all": ([[1, 0, 1], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]),
    "nothing answered": ([[0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 1, 1]]),
    "one": ([[1, 0, 1]], [[1, 1, 0]]),
    "nobody": ([], []),
}
OF_VALUES = {
    "a constant column": ([[1.0, 2.0], [2.0, 3.0], [3.0, 5.0]], [[1.0, 7.0], [2.5, 7.0], [3.0, 7.0]]),
    "constants": ([[1.0, 2.0], [2.0, 3.0]], [[0.1, 7.0], [0.1, 7.0]]),
    "constants, all right": ([[0.1, 7.0], [0.1, 7.0]], [[0.1, 7.0], [0.1, 7.0]]),
    "constant answers": ([[2.0, 2.0], [2.0, 2.0]], [[1.0, 7.0], [3.0, 9.0]]),
    "all right": ([[1.0, 2.0], [2.0, 3.0]], [[1.0, 2.0], [2.0, 3.0]]),
    "one": ([[1.0, 2.0]], [[1.5, 2.0]]),
    "nobody": ([], []),
}
OF_COUNTS = {
    "no counts": ([[0.0, 1.0], [0.5, 2.0]], [[0.0, 0.0], [0.0, 0.0]]),
    "constant answers": ([[2.0, 2.0], [2.0, 2.0]], [[1.0, 7.0], [3.0, 9.0]]),
    "all right": ([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]),
    "one": ([[1.0, 2.0]], [[1.0, 2.0]]),
    "nobody": ([], []),
}
OF_RISKS = {
    "no events": ([1.0, 2.0, 3.0], [[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]),
    "equal risks": ([1.0, 1.0, 1.0], [[3.0, 1.0], [2.0, 1.0], [1.0, 0.0]]),
    "equal times": ([1.0, 2.0, 3.0], [[2.0, 1.0], [2.0, 1.0], [2.0, 0.0]]),
    "equal times, all events": ([1.0, 2.0], [[2.0, 1.0], [2.0, 1.0]]),
    "one": ([1.0], [[2.0, 1.0]]),
    "nobody": ([], []),
}
CASES = {
    "classification": (classes, OF_CLASSES | ONE_EXAMPLE),
    "binary": (yes_or_no, OF_YES),
    "multilabel": (labels, OF_LABELS),
    "regression": (values, OF_VALUES),
    "counts": (values, OF_COUNTS),
    "segmentation": (voxels, OF_CLASSES),
    "language": (voxels, OF_CLASSES),
    "survival": (risks, OF_RISKS),
}


def mean(figures):
    """The mean of the figures of those classes of which something is known; NaN without any."""
    figures = list(figures)
    return float(np.mean(figures)) if figures else math.nan


def of_each(score, y, answers, kept, **more):
    """The mean of scikit-learn's score of each class that is kept."""
    return mean(score(y == c, answers == c, zero_division=0, **more) for c in kept)


def of_classes(name, p, y):
    answers = p.argmax(1)
    there, seen = np.unique(y), np.unique([y, answers])
    columns = [(c, y == c) for c in there]
    return {
        "accuracy": lambda: sk.accuracy_score(y, answers),
        "balanced_accuracy": lambda: sk.balanced_accuracy_score(y, answers),
        "f1": lambda: of_each(sk.f1_score, y, answers, there),
        "fbeta": lambda: of_each(sk.fbeta_score, y, answers, there, beta=1),
        "recall": lambda: of_each(sk.recall_score, y, answers, there),
        "precision": lambda: of_each(sk.precision_score, y, answers, seen),
        "auroc": lambda: mean(sk.roc_auc_score(yes, p[:, c]) for c, yes in columns if not yes.all()),
        "average_precision": lambda: mean(sk.average_precision_score(yes, p[:, c]) for c, yes in columns),
        "matthews": lambda: sk.matthews_corrcoef(y, answers) if len(there) > 1 else math.nan,
        "cohen_kappa": lambda: sk.cohen_kappa_score(y, answers),
        "calibration_error": lambda: calibration(p.max(1), answers == y),
        "brier": lambda: ((p - np.eye(p.shape[1])[y]) ** 2).sum(1).mean(),
        "dice_pooled": lambda: of_each(sk.f1_score, y, answers, seen[seen > 0]),
        "iou_pooled": lambda: of_each(sk.jaccard_score, y, answers, seen[seen > 0]),
        "dice": lambda: of_examples(sk.f1_score, y, answers),
        "iou": lambda: of_examples(sk.jaccard_score, y, answers),
        "perplexity": lambda: math.exp(-np.log(p[np.arange(len(y)), y]).mean()),
    }[name]()


def of_examples(score, y, answers):
    """The mean over examples of two places each, over the classes there but the background."""
    pairs = zip(y.reshape(-1, 2), answers.reshape(-1, 2), strict=True)
    found = [of_each(score, one, answer, np.unique(one[one > 0])) for one, answer in pairs]
    return np.nanmean(found) if np.isfinite(found).any() else math.nan


def of_yes(name, p, y):
    answers, both = p > 0.5, len(np.unique(y)) > 1
    plain = {"zero_division": 0}
    return {
        "accuracy": lambda: sk.accuracy_score(y, answers),
        "balanced_accuracy": lambda: sk.balanced_accuracy_score(y, answers),
        "f1": lambda: sk.f1_score(y, answers) if y.any() else math.nan,
        "fbeta": lambda: sk.fbeta_score(y, answers, beta=1) if y.any() else math.nan,
        "recall": lambda: sk.recall_score(y, answers) if y.any() else math.nan,
        "precision": lambda: sk.precision_score(y, answers, **plain) if (y | answers).any() else math.nan,
        "specificity": lambda: math.nan if y.all() else sk.recall_score(y, answers, pos_label=0),
        "auroc": lambda: sk.roc_auc_score(y, p) if both else math.nan,
        "average_precision": lambda: sk.average_precision_score(y, p) if y.any() else math.nan,
        "matthews": lambda: sk.matthews_corrcoef(y, answers) if both else math.nan,
        "cohen_kappa": lambda: sk.cohen_kappa_score(y, answers),
        "calibration_error": lambda: calibration(p, y == 1),
        "brier": lambda: sk.brier_score_loss(y, p),
    }[name]()


def of_labels(name, p, y):
    if name in ("accuracy", "hamming"):
        wrong = sk.hamming_loss(y, p > 0.5)
        return wrong if name == "hamming" else 1 - wrong
    figures = [of_yes(name, p[:, i], y[:, i].astype(int)) for i in range(y.shape[1])]
    return mean(figure for figure in figures if not math.isnan(figure))


def of_values(name, p, y):
    return {
        "mae": lambda: sk.mean_absolute_error(y, p),
        "mse": lambda: sk.mean_squared_error(y, p),
        "rmse": lambda: sk.root_mean_squared_error(y.ravel(), p.ravel()),
        "r2": lambda: mean(sk.r2_score(y[:, c], p[:, c]) for c in range(2) if np.ptp(y[:, c])),
    }[name]()


def of_risks(name, risk, y):
    try:
        return naive_concordance(risk.tolist(), y[:, 0].tolist(), y[:, 1].tolist())
    except ZeroDivisionError:
        return math.nan


def calibration(confidence, right):
    """The expected calibration error of 15 bins, (a, b]."""
    bins = np.clip(np.ceil(confidence * 15) - 1, 0, 14)
    gaps = (abs((confidence - right)[bins == b].sum()) for b in range(15))
    return sum(gaps) / len(right)


FORMULAS = {
    "classification": of_classes,
    "binary": of_yes,
    "multilabel": of_labels,
    "regression": of_values,
    "counts": of_values,
    "segmentation": of_classes,
    "language": of_classes,
    "survival": of_risks,
}


def expected(kind, name, outputs, y):
    """What scikit-learn or the formula says of all examples; NaN where there are none."""
    if not len(y):
        return math.nan
    task = task_of(kind, name)
    p, targets = (part.double().numpy() for part in task.scored(outputs, y))
    if kind == "language":
        p = torch.from_numpy(p).softmax(1).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FORMULAS[kind](
            name, p, targets if kind in ("regression", "counts", "survival") else targets.astype(int)
        )


def metric_of(kind, name, outputs, y):
    """The metric as a silo makes it of its examples."""
    task = task_of(kind, name)
    metric = task.metrics()[name]
    update_metrics([metric], task, outputs, y)
    return metric


@pytest.mark.parametrize(("kind", "name"), all_metrics())
def test_a_silo_of_few_or_one_sided_examples(kind, name, recwarn):
    make, cases = CASES[kind]
    found = {case: computed(metric_of(kind, name, *make(*drawn))) for case, drawn in cases.items()}
    own = {case: expected(kind, name, *make(*drawn)) for case, drawn in cases.items()}
    assert found == pytest.approx(own, rel=1e-6, abs=1e-6, nan_ok=True)
    assert [str(one.message) for one in recwarn] == []
    outside = {case: one for case, one in found.items() if not (math.isnan(one) or -1e-9 <= one <= 1 + 1e-9)}
    assert not (task_of(kind, name).infos[name].share and outside), "say share=False in catalogue.py"


@pytest.mark.parametrize(("kind", "name"), [one for one in all_metrics() if one[1] != "c_index"])
def test_two_such_silos_together_are_their_examples_in_one_place(kind, name):
    make, cases = CASES[kind]
    task = task_of(kind, name)
    drawn = {case: make(*one) for case, one in cases.items()}
    states = {case: pack_states({name: metric_of(kind, name, *one)}) for case, one in drawn.items()}
    for pair in itertools.combinations(drawn, 2):
        sums = {key: states[pair[0]][key] + states[pair[1]][key] for key in states[pair[0]]}
        outputs, y = (torch.cat([drawn[case][part] for case in pair]) for part in (0, 1))
        found = pooled(task, sums).get(name, math.nan)
        assert found == pytest.approx(expected(kind, name, outputs, y), rel=1e-6, abs=1e-6, nan_ok=True), pair


MANY = [[2**40, 3, 0, 0], [5, 7, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
"""Rows: targets. In single precision nothing is left of the differences of such sums."""


@pytest.mark.parametrize("kind", ["classification", "binary"])
def test_agreement_beyond_chance_is_exact_where_one_class_is_rare(kind):
    counts = torch.tensor(MANY) if kind == "classification" else torch.tensor(MANY)[:2, :2]
    (n, b), (c, d) = MANY[0][:2], MANY[1][:2]
    total, margins = n + b + c + d, (n + b) * (n + c) + (c + d) * (b + d)
    own = {
        "matthews": (n * d - b * c) / math.sqrt((n + b) * (c + d) * (n + c) * (b + d)),
        "cohen_kappa": (total * (n + d) - margins) / (total**2 - margins),
    }
    for name, value in own.items():
        metric = task_of(kind, name).metrics()[name]
        assert summable(metric)
        write_states(metric, {next(iter(read_states(metric))): counts})
        assert computed(metric) == pytest.approx(value, rel=1e-12)


def test_every_metric_of_the_catalogue_is_held_to_a_formula():
    assert set(CASES) == set(FORMULAS) == set(TASKS)


def patients(folder, events):
    """Write a silo for each list of events that it holds out: all have the same columns, and train alike."""
    folder.mkdir()
    targets = Targets(dtype="float32", shape=(2,))
    made = {"features": FEATURES, "classes": None, "targets": targets}
    entries = []
    for k, held_out in enumerate(events):
        x, _ = arrays(20, k)
        y = np.stack([np.arange(20) + 1.0, np.arange(20) % 2], 1).astype(np.float32)
        n = len(held_out)
        own = np.stack([np.arange(n) + 1.0, held_out], 1).astype(np.float32) if n else None
        splits = {"train": (x, y)} | ({"test": (x[:n], own)} if n else {})
        entries.append(write_shard(folder / f"{k}.h5", splits, silo=k, name=f"clinic-{k}", **made))
    more = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "format_version": 2}
    FederationSpec(silos=entries, test=None, **made, **more).write(folder)


@pytest.mark.parametrize("security", [None, {"masks": False}])
def test_a_silo_that_was_scored_stands_in_the_record_though_it_has_no_figure(tmp_path, security):
    """A clinic whose patients had no events has neither a loss nor a concordance; one without patients to
    score is not asked."""
    patients(tmp_path / "shards", [[1, 0, 1], [0, 0, 0], []])
    tables = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}
    tables |= {"task": {"name": "survival"}} | ({"security": security} if security else {})
    (tmp_path / "job.toml").write_text(tomli_w.dumps(tables))
    train(tmp_path / "job.toml", tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    silos = record["silos"]
    if security:
        assert silos == {}
        return
    assert list(silos) == ["clinic-0", "clinic-1"]
    assert silos["clinic-1"] == {"loss": None, "c_index": None}
    assert record["silo_c_index_mean"] == silos["clinic-0"]["c_index"] > 0
