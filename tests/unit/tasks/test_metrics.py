"""Each metric against scikit-learn's, or a naive loop; where it is undefined; and that states add up."""

import itertools
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchmetrics
from sklearn import metrics as sk
from unit.builders import stream

from mpifl.learning.metrics import (
    ToldAnswers,
    answers_told,
    base_rate,
    calibration,
    certainty,
    computed,
    joined,
    pack_states,
    pooled,
    precision_recall,
    ranking,
    read_states,
    roc,
    single_scores,
    summable,
    update_metrics,
    write_states,
)
from mpifl.learning.metrics.metric import MetricInfo
from mpifl.learning.tasks import TASKS, TaskFacts

N, CLASSES = 300, 4


def federation(classes=None, shape=None, dtype="int64", ignore=None, labels=((6, 2), (1, 3)), names=None):
    """What a task reads of a `federation.json`."""
    targets = None
    if shape is not None:
        targets = SimpleNamespace(dtype=dtype, shape=shape, ignore=ignore, names=names)
    silos = [SimpleNamespace(labels=list(counts)) for counts in labels]
    return SimpleNamespace(classes=classes, targets=targets, silos=silos, features=None)


FEDERATIONS = {
    "classification": federation(CLASSES, labels=((1,) * CLASSES,)),
    "binary": federation(2),
    "multilabel": federation(None, (3,), "uint8", labels=()),
    "regression": federation(None, (2,), "float32", labels=()),
    "counts": federation(None, (2,), "float32", labels=()),
    "segmentation": federation(CLASSES, (5, 2), labels=((1,) * CLASSES,)),
    "language": federation(CLASSES, (7,), labels=((1,) * CLASSES,)),
    "survival": federation(None, (2,), "float32", labels=()),
}


def drawn(kind, n=N):
    """Return outputs that know something of the targets, and the targets."""
    noise = stream(5)
    if kind in ("classification", "segmentation", "language"):
        shape = FEDERATIONS[kind].targets.shape if FEDERATIONS[kind].targets else ()
        y = torch.randint(0, CLASSES, (n, *shape), generator=stream(6))
        told = torch.nn.functional.one_hot(y, CLASSES).movedim(-1, 1)
        return 1.5 * told + torch.randn(told.shape, generator=noise), y
    if kind in ("binary", "multilabel"):
        y = (torch.rand((n, 3)[: 1 + (kind == "multilabel")], generator=stream(6)) < 0.3).long()
        z = 2 * y + torch.randn(y.shape, generator=noise) - 1
        return (z, y.float()) if kind == "multilabel" else (z[:, None], y)
    if kind == "survival":
        times = torch.randint(1, 30, (n,), generator=stream(6)).float()
        events = (torch.rand(n, generator=stream(7)) < 0.6).float()
        risk = (torch.randn(n, generator=noise) * 8 - times).div(4).round()
        return risk[:, None], torch.stack([times, events], 1)
    if kind == "counts":
        eta = torch.randn(n, 2, generator=stream(6))
        return eta, torch.poisson(eta.exp(), generator=noise)
    y = 50 + torch.randn(n, 2, generator=stream(6))
    return y + 0.3 * torch.randn(n, 2, generator=noise), y


def task_of(kind, *names, **keys):
    return TASKS[kind](metrics=list(names), **keys).for_federation(FEDERATIONS[kind])


def value(task, name, *batches):
    metric = task.metrics()[name]
    for outputs, y in batches:
        update_metrics([metric], task, outputs, y)
    return computed(metric)


def per_label(score, p, y, **options):
    return np.mean([score(y[:, i], p[:, i], **options) for i in range(y.shape[1])])


def f2(y, answers):
    return sk.fbeta_score(y, answers, beta=2.0, average="macro")


HARD = {
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
    "matthews": sk.matthews_corrcoef,
    "cohen_kappa": sk.cohen_kappa_score,
}
MACRO = {"f1": sk.f1_score, "precision": sk.precision_score, "recall": sk.recall_score}


@pytest.mark.parametrize("name", [*HARD, *MACRO])
@pytest.mark.parametrize("kind", ["classification", "binary"])
def test_answers_are_counted_as_scikit_learn_counts_them(kind, name):
    outputs, y = drawn(kind)
    answers = outputs.argmax(1) if kind == "classification" else (outputs[:, 0] > 0).long()
    options = {"average": "macro"} if name in MACRO and kind == "classification" else {}
    own = (HARD | MACRO)[name](y.numpy(), answers.numpy(), **options)
    found = value(task_of(kind, name), name, (outputs[:100], y[:100]), (outputs[100:], y[100:]))
    assert found == pytest.approx(own, abs=1e-6)


def test_a_beta_counts_recall_more():
    outputs, y = drawn("classification")
    task = task_of("classification", {"name": "fbeta", "beta": 2, "as": "f2"})
    assert value(task, "f2", (outputs, y)) == pytest.approx(f2(y, outputs.argmax(1)), abs=1e-6)


def test_specificity_is_the_recall_of_no():
    outputs, y = drawn("binary")
    own = sk.recall_score(y, outputs[:, 0] > 0, pos_label=0)
    assert value(task_of("binary", "specificity"), "specificity", (outputs, y)) == pytest.approx(own)


def test_certainty_does_not_cut_the_curve_short():
    p = torch.tensor([[60.0], [60.0], [60.0], [-60.0], [-60.0], [-60.0]])
    y = torch.tensor([1, 1, 0, 0, 0, 1])
    assert value(task_of("binary", "auroc"), "auroc", (p, y)) == pytest.approx(sk.roc_auc_score(y, p[:, 0]))


@pytest.mark.parametrize("name", ["f1", "precision", "recall"])
def test_labels_count_alike(name):
    outputs, y = drawn("multilabel")
    own = MACRO[name](y.numpy(), (outputs > 0).numpy(), average="macro")
    assert value(task_of("multilabel", name), name, (outputs, y)) == pytest.approx(own, abs=1e-6)


def test_labels_are_right_or_wrong_each_for_itself_and_some_do_not_count():
    outputs, y = drawn("multilabel")
    wrong = sk.hamming_loss(y.numpy(), (outputs > 0).numpy())
    task = task_of("multilabel", "accuracy", "hamming", "auroc", "f1", ignore=-1)
    assert value(task, "hamming", (outputs, y)) == pytest.approx(wrong, abs=1e-6)
    assert value(task, "accuracy", (outputs, y)) == pytest.approx(1 - wrong, abs=1e-6)
    y[:200, 1] = -1
    kept = y != -1
    right = ((outputs > 0) == y)[kept].double().mean()
    assert value(task, "accuracy", (outputs, y)) == pytest.approx(float(right), abs=1e-6)
    own = np.mean([sk.f1_score(y[kept[:, i], i], outputs[kept[:, i], i] > 0) for i in range(3)])
    assert value(task, "f1", (outputs, y)) == pytest.approx(own, abs=1e-6)
    p = task.predict(outputs)
    own = np.mean([sk.roc_auc_score(y[kept[:, i], i], p[kept[:, i], i]) for i in range(3)])
    assert value(task, "auroc", (outputs, y)) == pytest.approx(own, abs=0.02)


@pytest.mark.parametrize(("kind", "form"), [("classification", "Multiclass"), ("binary", "Binary")])
def test_the_calibration_error_is_that_of_torchmetrics(kind, form):
    outputs, y = drawn(kind)
    sizes = {"num_classes": CLASSES} if kind == "classification" else {}
    own = getattr(torchmetrics.classification, f"{form}CalibrationError")(n_bins=15, **sizes)
    task = task_of(kind, "calibration_error")
    own.update(*task.scored(outputs, y))
    assert value(task, "calibration_error", (outputs, y)) == pytest.approx(float(own.compute()), abs=1e-6)


def test_values_are_judged_as_by_scikit_learn():
    outputs, y = drawn("regression")
    own = {
        "mae": sk.mean_absolute_error(y, outputs),
        "mse": sk.mean_squared_error(y, outputs),
        "rmse": math.sqrt(sk.mean_squared_error(y, outputs)),
        "r2": sk.r2_score(y, outputs),
    }
    task = task_of("regression", *own)
    halves = [(outputs[:100], y[:100]), (outputs[100:], y[100:])]
    assert {name: value(task, name, *halves) for name in own} == pytest.approx(own, rel=1e-6)


def test_r2_does_not_lose_digits_far_from_zero():
    outputs, y = (part + 1e5 for part in drawn("regression"))
    found = value(task_of("regression", "r2"), "r2", (outputs, y))
    assert found == pytest.approx(sk.r2_score(y.double(), outputs.double()), abs=1e-5)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("ignore", [None, 3])
def test_pooled_dice_and_iou_are_sums_over_all_voxels(background, ignore):
    outputs, y = drawn("segmentation")
    names = [{"name": name, "background": background} for name in ("dice_pooled", "iou_pooled")]
    task = task_of("segmentation", *names, **({} if ignore is None else {"ignore": ignore}))
    a, b = outputs.argmax(1).flatten().numpy(), y.flatten().numpy()
    a, b = (a, b) if ignore is None else (a[b != ignore], b[b != ignore])
    each = range(0 if background else 1, CLASSES)
    both = [np.sum((a == c) & (b == c)) for c in each]
    sizes = [np.sum(a == c) + np.sum(b == c) for c in each]
    dice = np.mean([2 * i / s for i, s in zip(both, sizes, strict=True)])
    iou = np.mean([i / (s - i) for i, s in zip(both, sizes, strict=True)])
    assert value(task, "dice_pooled", (outputs, y)) == pytest.approx(dice, abs=1e-6)
    assert value(task, "iou_pooled", (outputs, y)) == pytest.approx(iou, abs=1e-6)


@pytest.mark.parametrize("ignore_empty", [False, True])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("ignore", [None, 3])
def test_dice_and_iou_are_means_over_examples(background, ignore, ignore_empty):
    """By the definition of MONAI's `DiceMetric` and `MeanIoU`, an example and a class at a time."""
    outputs, y = drawn("segmentation", 40)
    y[:9] = 0
    y[9:12] = 1
    outputs[3:12, 0] += 50.0
    more = {"background": background, "ignore_empty": ignore_empty}
    names = [{"name": name, **more} for name in ("dice", "iou")]
    task = task_of("segmentation", *names, **({} if ignore is None else {"ignore": ignore}))
    found = {"dice": [], "iou": []}
    for one, answers in zip(y.flatten(1).numpy(), outputs.argmax(1).flatten(1).numpy(), strict=True):
        kept = one != ignore if ignore is not None else slice(None)
        a, b = answers[kept], one[kept]
        each = {"dice": [], "iou": []}
        for c in range(0 if background else 1, CLASSES):
            both, sizes = np.sum((a == c) & (b == c)), np.sum(a == c) + np.sum(b == c)
            if not np.sum(b == c) and ignore_empty:
                continue
            each["dice"].append(2 * both / sizes if sizes else 1.0)
            each["iou"].append(both / (sizes - both) if sizes else 1.0)
        for name in found:
            found[name] += [np.mean(each[name])] if each[name] else []
    for name in found:
        halves = (outputs[:11], y[:11]), (outputs[11:], y[11:])
        assert value(task, name, *halves) == pytest.approx(np.mean(found[name]), abs=1e-9)


def test_padding_counts_in_no_figure_of_a_text():
    outputs, y = drawn("language")
    y[:, 5:] = -100
    padded = federation(CLASSES, (7,), ignore=-100, labels=((1,) * CLASSES,))
    task = TASKS["language"](metrics=["perplexity", "accuracy"]).for_federation(padded)
    own = torch.nn.functional.cross_entropy(outputs.double(), y, ignore_index=-100).exp()
    assert value(task, "perplexity", (outputs, y)) == pytest.approx(float(own), rel=1e-6)
    right = (outputs.argmax(1) == y)[:, :5].double().mean()
    assert value(task, "accuracy", (outputs, y)) == float(right)


def naive_concordance(risk, times, events):
    right = pairs = 0
    for i, j in itertools.permutations(range(len(risk)), 2):
        earlier = times[i] < times[j] or (times[i] == times[j] and not events[j])
        if events[i] and earlier:
            pairs += 1
            right += 1 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0
    return right / pairs


def test_concordance_compares_all_pairs(monkeypatch):
    monkeypatch.setattr("mpifl.learning.metrics.concordance.ROWS", 50)
    outputs, y = drawn("survival", 150)
    found = value(task_of("survival", "c_index"), "c_index", (outputs[:70], y[:70]), (outputs[70:], y[70:]))
    own = naive_concordance(outputs[:, 0].tolist(), y[:, 0].tolist(), y[:, 1].tolist())
    assert found == pytest.approx(own, abs=1e-12)
    assert value(task_of("survival", "c_index"), "c_index", (y[:, 1:] - 2 * y[:, :1], y)) == 1.0


def all_metrics():
    return [(kind, name) for kind, task in TASKS.items() for name in task.catalogue]


@pytest.mark.parametrize(("kind", "name"), all_metrics())
def test_what_is_said_of_a_metric_is_what_torchmetrics_says(kind, name):
    metric, info = task_of(kind, name).metrics()[name], task_of(kind, name).infos[name]
    if metric.higher_is_better is not None:
        assert info.higher_is_better == metric.higher_is_better
    assert info.name == name


@pytest.mark.parametrize(("kind", "name"), all_metrics())
def test_a_metric_of_nothing_is_nan_and_says_nothing(kind, name, recwarn):
    task = task_of(kind, name)
    outputs, y = drawn(kind)
    assert math.isnan(value(task, name))
    assert math.isnan(value(task, name, (outputs[:0], y[:0])))
    assert [str(one.message) for one in recwarn] == []


UNDEFINED = [
    *(("binary", name, torch.zeros(9, dtype=torch.long)) for name in ("auroc", "average_precision", "f1")),
    *(("binary", name, torch.zeros(9, dtype=torch.long)) for name in ("recall", "fbeta", "matthews")),
    ("binary", "auroc", torch.ones(9, dtype=torch.long)),
    ("binary", "specificity", torch.ones(9, dtype=torch.long)),
    ("classification", "auroc", torch.full((9,), 2)),
    ("multilabel", "auroc", torch.zeros(9, 3)),
    ("multilabel", "f1", torch.zeros(9, 3)),
    ("regression", "r2", torch.full((9, 2), 0.1)),
    ("survival", "c_index", torch.zeros(9, 2)),
]


@pytest.mark.parametrize(("kind", "name", "y"), UNDEFINED, ids=str)
def test_what_is_undefined_is_nan_and_says_nothing(kind, name, y, recwarn):
    assert math.isnan(value(task_of(kind, name), name, (drawn(kind)[0][:9], y)))
    assert [str(one.message) for one in recwarn] == []


def test_one_row_has_no_r2():
    outputs, y = drawn("regression")
    assert math.isnan(value(task_of("regression", "r2"), "r2", (outputs[:1], y[:1])))


def test_a_mean_over_classes_is_over_those_that_are_there():
    outputs, y = drawn("classification")
    left = y != 3
    outputs, y = outputs[left], y[left]
    p = outputs.softmax(1).numpy()
    own = np.mean([sk.roc_auc_score(y.numpy() == c, p[:, c]) for c in range(3)])
    assert value(task_of("classification", "auroc"), "auroc", (outputs, y)) == pytest.approx(own, abs=0.02)
    own = sk.recall_score(y, outputs.argmax(1), average=None, labels=range(3)).mean()
    assert value(task_of("classification", "recall"), "recall", (outputs, y)) == pytest.approx(own, abs=1e-6)


def test_who_never_says_yes_is_not_precise():
    y = torch.tensor([0, 1, 1])
    no = torch.full((3, 1), -5.0)
    assert value(task_of("binary", "precision"), "precision", (no, y)) == 0.0
    assert math.isnan(value(task_of("binary", "precision"), "precision", (no, 0 * y)))


@pytest.mark.parametrize(("kind", "name"), [one for one in all_metrics() if one[1] != "c_index"])
def test_states_of_parts_add_up_to_those_of_all(kind, name):
    task = task_of(kind, name)
    outputs, y = drawn(kind)

    def states(part):
        metric = task.metrics()[name]
        metric.update(*task.scored(outputs[part], y[part]))
        assert summable(metric)
        return metric, {key: state.clone() for key, state in read_states(metric).items()}

    whole, of_all = states(slice(None))
    parts = [states(part)[1] for part in (slice(0, 7), slice(7, 200), slice(200, None))]
    summed = {key: sum(part[key] for part in parts) for key in of_all}
    fresh = task.metrics()[name]
    for key, state in read_states(fresh).items():
        assert (state.shape, state.dtype) == (of_all[key].shape, of_all[key].dtype)
        if state.dtype.is_floating_point:
            torch.testing.assert_close(summed[key], of_all[key], rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(summed[key], of_all[key])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_states(fresh, summed)
        write_states(whole, of_all)  # a curve is of counts then
        assert computed(fresh) == pytest.approx(computed(whole), rel=1e-6)


def test_states_of_pairs_and_lists_do_not_add_up():
    assert not summable(task_of("survival", "c_index").metrics()["c_index"])
    assert not summable(torchmetrics.PearsonCorrCoef())
    assert not summable(torchmetrics.classification.BinaryAUROC())
    assert not summable(SimpleNamespace(compute=float))


def test_states_of_another_metric_are_refused():
    f1, accuracy = (task_of("binary", name).metrics()[name] for name in ("f1", "accuracy"))
    with pytest.raises(ValueError, match="are not the states of Accuracy, \\['answers', 'right'\\]"):
        write_states(accuracy, read_states(f1))


def test_a_users_metric_of_torchmetrics_knows_itself():
    names = ["torchmetrics.classification:BinaryHammingDistance", "torchmetrics:MeanSquaredError"]
    task = TASKS["binary"](metrics=names, main="mean_squared_error")
    assert task.infos == {
        "binary_hamming_distance": MetricInfo(
            name="binary_hamming_distance", higher_is_better=False, share=True
        ),
        "mean_squared_error": MetricInfo(name="mean_squared_error", higher_is_better=False),
    }
    outputs, y = drawn("binary")
    wrong = ((outputs[:, 0] > 0) != y).double().mean()
    assert value(task, "binary_hamming_distance", (outputs, y)) == pytest.approx(float(wrong), abs=1e-6)


def test_facts_of_a_federation_are_summed_over_silos():
    assert TaskFacts.of(federation(2)).counts == (7, 5)
    assert TaskFacts.of(federation(2)) == TaskFacts(2, counts=(7, 5))
    facts = TaskFacts.of(federation(None, (3,), "float16", labels=((), ())))
    assert (facts.columns, facts.real, facts.told) == (3, True, "float16 values of shape [3]")


@pytest.mark.parametrize("kind", ["classification", "binary", "multilabel"])
@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_a_curve_is_scikit_learns_within_what_it_says(kind, name):
    outputs, y = drawn(kind)
    task = task_of(kind, name)
    p = task.predict(outputs).numpy()
    truth = np.eye(CLASSES)[y.numpy()] if kind == "classification" else y.numpy().reshape(p.shape)
    score = sk.roc_auc_score if name == "auroc" else sk.average_precision_score
    exact = per_label(score, p, truth.astype(int))
    metric = task.metrics()[name]
    metric.update(*task.scored(outputs, y))
    assert (computed(metric), metric.within) == (pytest.approx(exact, abs=1e-12), 0.0)
    metric.single = None
    assert abs(computed(metric) - exact) <= metric.within + 1e-9
    assert computed(metric) == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("kind", ["classification", "binary", "multilabel"])
def test_a_curve_of_silos_is_exact_where_their_single_scores_are_at_hand(kind, monkeypatch):
    """Of crowded scores places tell few apart. Some targets do not count, and a silo has no examples."""
    (outputs, y), spec = drawn(kind), FEDERATIONS[kind]
    outputs = outputs / 1000
    if kind == "multilabel":
        y, spec = y.long(), federation(None, (3,), "int64", ignore=-1, labels=())
        y[::3, 0] = -1
    task = TASKS[kind](metrics=["auroc", "average_precision"]).for_federation(spec)
    silos = []
    for part in (slice(0, 70), slice(70, 70), slice(70, None)):
        metrics = task.metrics()
        update_metrics(metrics.values(), task, outputs[part], y[part])
        silos.append((len(y[part]), pack_states(metrics), single_scores(metrics)))
    sums = {name: sum(states[name] for _, states, _ in silos) for name in silos[0][1]}
    single = joined([(n, scores) for n, _, scores in silos])
    p = task.predict(outputs).numpy()
    truth = np.eye(CLASSES)[y.numpy()] if kind == "classification" else y.numpy().reshape(p.shape)
    for name, score in (("auroc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
        columns = zip(p.reshape(len(y), -1).T, truth.reshape(len(y), -1).T, strict=True)
        exact = np.mean([score(t[t >= 0], of[t >= 0]) for of, t in columns])
        assert pooled(task, sums, single)[name] == pytest.approx(exact, abs=1e-12)
        assert certainty(task, sums, single)[name]["within"] == 0.0
        assert (off := abs(pooled(task, sums)[name] - exact)) > 1e-6, "the places tell fewer apart"
        assert off <= certainty(task, sums)[name]["within"]
    assert joined([(9, single), (1, {})]) == {}, "a silo whose scores are not known"
    monkeypatch.setattr(ranking, "MOST_SINGLE", y.numel() - 1)
    assert pooled(task, sums, single) == pooled(task, sums), "more than are kept"


@pytest.mark.parametrize(
    ("center", "spread", "most"),
    [(-6, 1, 5e-5), (-20, 1, 1e-4), (6, 0.5, 5e-5), (0, 9, 5e-5), (0, 0.05, 1e-4), (-1, 0.003, 2e-3)],
)
def test_a_curve_of_rare_and_of_crowded_probabilities_is_right(center, spread, most):
    """A clinic's rare outcome: 30 of 7,500, whose probabilities all lie near 0, near 1 or near each other."""
    y = torch.zeros(7500, dtype=torch.long)
    y[::250] = 1
    z = center + spread * (1.1 * y + torch.randn(7500, generator=stream(11)))
    p = z.sigmoid().double().numpy()
    for name, score in (("auroc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
        task = task_of("binary", name)
        metric = task.metrics()[name]
        metric.update(*task.scored(z[:, None], y))
        metric.single = None
        off, within = abs(computed(metric) - score(y, p)), metric.within
        assert off <= within + 1e-9
        assert off < most, (name, off, within)


def test_delongs_interval_is_that_of_its_pairs():
    """Against the definition: the variance of the shares of pairs that each example wins."""
    draw = np.random.default_rng(3)
    y = draw.random(400) < 0.2
    p = (draw.integers(0, 30, 400) + 12 * y) / 64.0
    won = (p[y][:, None] > p[~y]) + 0.5 * (p[y][:, None] == p[~y])
    error = math.sqrt(won.mean(1).var(ddof=1) / y.sum() + won.mean(0).var(ddof=1) / (~y).sum())
    metric = task_of("binary", "auroc").metrics()["auroc"]
    metric.update(torch.tensor(p), torch.tensor(y.astype(int)))
    assert computed(metric) == pytest.approx(won.mean(), abs=1e-12)
    assert metric.interval == pytest.approx(
        (won.mean() - 1.95996 * error, won.mean() + 1.95996 * error), abs=1e-6
    )


def test_what_is_no_probability_is_the_lowest():
    metric = task_of("binary", "auroc").metrics()["auroc"]
    metric.update(torch.tensor([math.nan, 0.3, 0.8]), torch.tensor([1, 0, 1]))
    assert (computed(metric), metric.interval[0]) == (0.5, pytest.approx(math.nan, nan_ok=True))


@pytest.mark.parametrize("kind", ["classification", "binary"])
def test_what_is_told_of_answers_is_what_scikit_learn_finds(kind):
    """Curves, confusion and base rate, from the counts of a metric that the job names or of an evaluation."""
    outputs, y = drawn(kind)
    for task in (task_of(kind, "auroc"), task_of(kind, "accuracy").counting_answers()):
        metrics = task.metrics()
        update_metrics(metrics.values(), task, outputs, y)
        told = ToldAnswers.model_validate(answers_told(task, pack_states(metrics)))
        p = task.predict(outputs).reshape(len(y), -1).numpy()
        for nth, column in enumerate(told.columns):
            truth = y.numpy() == (nth if kind == "classification" else 1)
            points = np.array(roc(column))
            assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(
                sk.roc_auc_score(truth, p[:, nth]), abs=0.01
            )
            assert base_rate(column) == pytest.approx(truth.mean())
            recall, precision = np.array(precision_recall(column)).T
            assert (recall[-1], precision[-1]) == (1, pytest.approx(truth.mean()))
            assert told.areas[nth] == pytest.approx(sk.roc_auc_score(truth, p[:, nth]), abs=1e-4)
            precise = sk.average_precision_score(truth, p[:, nth])
            assert told.precisions[nth] == pytest.approx(precise, abs=1e-3)
            assert sum(many for _, _, many in calibration(column)) == len(y)
            for mean, share, _ in calibration(column):
                assert 0 <= share <= 1
                assert p[:, nth].min() * 0.99 <= mean <= p[:, nth].max() * 1.01
        assert told.commonest == pytest.approx(np.bincount(y.numpy()).max() / len(y))
        answers = p.argmax(1) if kind == "classification" else p[:, 0] > 0.5
        if told.confusion or kind == "binary":
            assert told.confusion == sk.confusion_matrix(y.numpy(), answers).tolist()
    assert told.confusion, "an evaluation counts it for every task of classes"


def test_the_curve_of_many_classes_is_of_all_together():
    draw = np.random.default_rng(0)
    task = TASKS["classification"](metrics=["auroc"]).for_federation(federation(12, labels=((1,) * 12,)))
    metrics = task.metrics()
    update_metrics(metrics.values(), task, torch.tensor(draw.normal(size=(60, 12))), torch.arange(60) % 12)
    told = ToldAnswers.model_validate(answers_told(task, pack_states(metrics)))
    assert len(told.columns) == 1
    assert base_rate(told.columns[0]) == pytest.approx(1 / 12)
    assert told.commonest == pytest.approx(1 / 12)
