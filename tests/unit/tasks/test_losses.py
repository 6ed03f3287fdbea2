"""Each loss against PyTorch's, or a naive loop written from the paper's formula."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from unit.builders import same_bits, stream

from mpifl.learning.tasks import TASKS, losses
from mpifl.learning.tasks.task import Task

SHAPES = pytest.mark.parametrize("places", [(), (4, 3)], ids=["a label", "a label a place"])


def of_classes(*places, n=12, classes=3):
    logits = torch.randn(n, classes, *places, generator=stream(1), requires_grad=True)
    return logits, torch.randint(0, classes, (n, *places), generator=stream(2))


def yes_or_no(*places, n=12):
    logits = torch.randn(n, *places, generator=stream(3), requires_grad=True)
    return logits, torch.randint(0, 2, (n, *places), generator=stream(4))


def quotient(found):
    total, count = found
    return float(total.detach()) / float(count)


def near(value):
    return pytest.approx(float(torch.as_tensor(value).detach()), rel=2e-6)


WEIGHTS = torch.tensor([0.5, 2.0, 1.5])


@SHAPES
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("ignore", [None, -100, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_pytorchs(places, weights, ignore, smoothing):
    logits, y = of_classes(*places)
    if ignore == -100:
        y[::3] = -100
    found = losses.cross_entropy(logits, y, weights=weights, ignore=ignore, label_smoothing=smoothing)
    options = {} if ignore is None else {"ignore_index": ignore}
    own = F.cross_entropy(logits, y, weight=weights, label_smoothing=smoothing, **options)
    assert quotient(found) == near(own)


@SHAPES
@pytest.mark.parametrize("ignore", [None, 0, 255])
def test_focal_loss_is_that_of_the_paper(places, ignore):
    logits, y = of_classes(*places)
    if ignore == 255:
        y[1:3] = 255
    p, total, count = logits.softmax(1).movedim(1, -1).reshape(-1, 3).tolist(), 0.0, 0
    for row, label in zip(p, y.flatten().tolist(), strict=True):
        if label != ignore:
            total -= float(WEIGHTS[label]) * (1 - row[label]) ** 1.5 * math.log(row[label])
            count += 1
    found = losses.focal(logits, y, weights=WEIGHTS, ignore=ignore, gamma=1.5)
    assert (found[0].item(), int(found[1])) == (near(total), count)
    if ignore is None:
        plain = losses.focal(logits, y, gamma=0.0)
        assert quotient(plain) == near(F.cross_entropy(logits, y))


@SHAPES
def test_yes_and_no_are_a_cross_entropy_of_two_classes(places):
    z, y = yes_or_no(*places)
    both, weights = torch.stack([torch.zeros_like(z), z], 1), torch.tensor([0.7, 1.9])
    assert quotient(losses.bce(z, y)) == near(F.binary_cross_entropy_with_logits(z, y.float()))
    assert quotient(losses.bce(z, y, weights=weights)) == near(F.cross_entropy(both, y, weight=weights))
    focal = losses.focal(both, y, weights=weights, gamma=2.0)
    assert quotient(losses.focal_bce(z, y, weights=weights)) == near(quotient(focal))
    y[2] = 7
    left = torch.arange(len(y)) != 2
    assert quotient(losses.bce(z, y, ignore=7)) == near(quotient(losses.bce(z[left], y[left])))
    assert quotient(losses.focal_bce(z, y, ignore=7)) == near(quotient(losses.focal_bce(z[left], y[left])))


def test_labels_have_the_weights_of_pytorch():
    z, y = yes_or_no(3)
    own = F.binary_cross_entropy_with_logits(z, y.float(), pos_weight=WEIGHTS)
    assert quotient(losses.bce_of_labels(z, y.float(), weights=WEIGHTS)) == near(own)
    y[0, 1] = y[5, 2] = -1
    kept = y != -1
    own = F.binary_cross_entropy_with_logits(z[kept], y[kept].float())
    assert quotient(losses.bce_of_labels(z, y, ignore=-1)) == near(own)
    assert quotient(losses.focal_of_labels(z, y, ignore=-1)) == near(
        quotient(losses.focal_bce(z[kept], y[kept]))
    )


def naive_dice(logits, y, ignore):
    """D of V-Net's section 3 for each example, over the classes but the background."""
    found = []
    for scores, labels in zip(logits.softmax(1), y, strict=True):
        each = []
        for label in range(1, scores.shape[0]):
            above = below = 0.0
            for p, truth in zip(scores[label].flatten().tolist(), labels.flatten().tolist(), strict=True):
                if truth != ignore:
                    above += 2 * p * (truth == label)
                    below += p * p + (truth == label)
            each.append((above + 1e-5) / (below + 1e-5))
        found.append(1 - sum(each) / len(each))
    return sum(found)


@pytest.mark.parametrize("ignore", [None, 9])
def test_dice_is_that_of_the_paper(ignore):
    logits, y = of_classes(4, 3, n=5)
    if ignore is not None:
        y[:, 0] = ignore
    total, count = losses.dice(logits, y, ignore=ignore)
    assert (total.item(), int(count)) == (near(naive_dice(logits, y, ignore)), 5)
    both = losses.dice_ce(logits, y, weights=WEIGHTS, ignore=ignore)
    index = -100 if ignore is None else ignore
    own = [
        F.cross_entropy(logits[i : i + 1], y[i : i + 1], weight=WEIGHTS, ignore_index=index) for i in range(5)
    ]
    assert quotient(both) == near((total.item() + sum(own).item()) / 5)
    alike = losses.dice_ce(logits, y.clamp_max(2))
    assert quotient(alike) == near(
        naive_dice(logits, y.clamp_max(2), None) / 5 + F.cross_entropy(logits, y.clamp_max(2)).item()
    )


@pytest.mark.parametrize("more", [{"ignore": 9}, {"weights": WEIGHTS}, {"ignore": 9, "weights": WEIGHTS}])
def test_dice_with_cross_entropy_adds_up_over_batches(more):
    logits, y = of_classes(4, 3, n=6)
    if "ignore" in more:
        y[:3, 1:] = 9  # which most of the first batch is
        y[0] = 9
    whole = losses.dice_ce(logits, y, **more)
    halves = [losses.dice_ce(logits[part], y[part], **more) for part in (slice(0, 3), slice(3, 6))]
    assert float(sum(total.detach() for total, _ in halves)) == near(whole[0])
    assert sum(int(count) for _, count in halves) == int(whole[1])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("loss", [losses.focal, losses.focal_bce])
def test_the_focal_loss_of_what_is_certain_has_the_gradient_zero(gamma, loss):
    """A power below 1 has no derivative at 0, where one well-learned example is."""
    logits = torch.tensor([[120.0, 0.0]] if loss is losses.focal else [120.0], requires_grad=True)
    total, _ = loss(logits, torch.tensor([0 if loss is losses.focal else 1]), gamma=gamma)
    total.backward()
    assert not logits.grad.any()


def test_values_have_the_losses_of_pytorch():
    values, y = torch.randn(9, 2, generator=stream(1)), 3 * torch.randn(9, 2, generator=stream(2))
    assert quotient(losses.mse(values, y)) == near(F.mse_loss(values, y))
    assert quotient(losses.mae(values, y)) == near(F.l1_loss(values, y))
    assert quotient(losses.huber(values, y, delta=0.3)) == near(F.huber_loss(values, y, delta=0.3))
    assert quotient(losses.huber(values, y)) == near(F.huber_loss(values, y))


def naive_cox(risk, times, events):
    """The logarithm of Cox's equation with Breslow's ties, event by event."""
    total = 0.0
    for r, t, e in zip(risk, times, events, strict=True):
        if e:
            total -= r - math.log(sum(math.exp(q) for q, u in zip(risk, times, strict=True) if u >= t))
    return total


def test_cox_is_the_partial_likelihood_with_breslows_ties():
    risk = torch.randn(40, generator=stream(1))
    times = torch.randint(1, 12, (40,), generator=stream(2)).float()
    events = torch.randint(0, 2, (40,), generator=stream(3)).float()
    total, count = losses.cox(risk, torch.stack([times, events], 1))
    assert total.item() == near(naive_cox(risk.tolist(), times.tolist(), events.tolist()))
    assert float(count) == float(events.sum())


def test_cox_does_not_overflow_and_takes_named_targets():
    task, risk = TASKS["survival"](), torch.tensor([[300.0], [0.0], [-300.0]])
    y = {"time": torch.tensor([1.0, 2.0, 3.0]), "event": torch.tensor([1, 1, 0], dtype=torch.uint8)}
    total, count = task.loss(risk, y)
    assert (total.item(), float(count)) == (0.0, 2.0)


def nothing_counts():
    nothing = torch.full((12,), -100)
    for name, logits in (("cross_entropy", of_classes()[0]), ("focal", of_classes()[0])):
        yield TASKS["classification"](loss=name, ignore=-100, weights=[1.0, 2.0, 3.0]), logits, nothing
    for name in ("bce", "focal"):
        yield TASKS["binary"](loss=name, ignore=-100), yes_or_no()[0], nothing
        yield TASKS["multilabel"](loss=name, ignore=-100), yes_or_no(3)[0], nothing[:, None].expand(12, 3)
    for name in ("dice", "dice_ce", "cross_entropy"):
        yield TASKS["segmentation"](loss=name, ignore=-100), of_classes(4)[0], nothing[:, None].expand(12, 4)
    censored = torch.stack([torch.rand(12, generator=stream()), torch.zeros(12)], 1)
    yield TASKS["survival"](), yes_or_no()[0], censored


@pytest.mark.parametrize(("task", "outputs", "y"), list(nothing_counts()), ids=lambda one: type(one).__name__)
def test_where_nothing_counts_loss_and_gradient_are_zero(task, outputs, y):
    outputs.grad = None
    loss = task.mean_loss(outputs, y)
    loss.backward()
    assert loss.item() == 0
    assert same_bits(outputs.grad.abs(), torch.zeros_like(outputs))


def test_a_plain_classification_keeps_the_bits_of_pytorchs_mean():
    logits, y = of_classes(5)
    assert same_bits(
        TASKS["classification"]().mean_loss(logits, y).detach(), F.cross_entropy(logits, y).detach()
    )
    task = TASKS["classification"](weights=WEIGHTS.tolist())
    assert task.mean_loss(logits, y).item() == near(F.cross_entropy(logits, y, weight=WEIGHTS))


def absolute(outputs, y):
    return (outputs - y).abs()


def halved(outputs, y):
    return (outputs - y).abs().sum() / 2, len(y)


@pytest.mark.parametrize("name", ["binary", "regression"])
def test_a_users_loss_is_summed_unless_it_sums_itself(name):
    z, y = yes_or_no(1)
    off = (z - y).abs()
    task: Task = TASKS[name](loss=f"{__name__}:absolute")
    assert quotient(task.loss(z, y)) == near(off.mean())
    assert quotient(TASKS[name](loss=f"{__name__}:halved").loss(z, y)) == near(off.mean() / 2)


def test_a_users_loss_of_each_target_is_left_out_where_it_does_not_count():
    z, y = yes_or_no(1)
    y[0] = -7
    task = TASKS["binary"](loss=f"{__name__}:absolute", ignore=-7)
    assert quotient(task.loss(z, y)) == near((z - y)[1:].abs().mean())


@pytest.mark.filterwarnings("ignore:Starting with pandas:DeprecationWarning")  # of lifelines
def test_cox_is_what_lifelines_maximises():
    """Without ties, for which lifelines goes by Efron (1977) and this loss by Breslow."""
    lifelines = pytest.importorskip("lifelines", reason="pip install 'mpifl[oracles]'")
    import pandas

    draw = np.random.default_rng(0)
    x = draw.normal(size=(80, 3))
    times, events = draw.exponential(np.exp(x @ [0.7, -0.4, 0.0])), draw.random(80) < 0.7
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "time": times, "event": events})
    fitted = lifelines.CoxPHFitter().fit(frame, "time", "event")
    y, beta = torch.tensor(np.stack([times, events], 1)), torch.tensor(fitted.params_.to_numpy())
    beta.requires_grad_()
    total, count = losses.cox(torch.tensor(x) @ beta, y)
    assert total.item() == pytest.approx(-fitted.log_likelihood_, rel=1e-9)
    assert count.item() == events.sum()
    (slope,) = torch.autograd.grad(total, [beta])
    assert slope.abs().max() < 1e-3, "its coefficients are where our loss is least"


@pytest.mark.parametrize(
    ("task", "loss", "divisor"),
    [
        ("classification", "cross_entropy", 2.0 + 4.0 + 2.0),
        ("classification", "focal", 3),
        ("segmentation", "dice_ce", 3),
    ],
)
def test_weights_divide_a_cross_entropy_and_no_other_loss(task, loss, divisor):
    y = torch.tensor([0, 1, 0])
    y = y[:, None].expand(3, 2) if task == "segmentation" else y
    outputs = torch.randn(3, 2, *y.shape[1:], generator=stream(1))
    assert float(TASKS[task](loss=loss, weights=[2.0, 4.0]).loss(outputs, y)[1]) == divisor
