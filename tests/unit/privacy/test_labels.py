"""What leaves the holder of labels: flips and noise by their formulas, and how well lengths tell labels."""

import math
import os

import pytest
import torch
from reference.split import chances, max_norm, norm_leak_auc
from sklearn.metrics import roc_auc_score

from mpifl.common import InputError
from mpifl.wings.privacy import Secret, own_secret
from mpifl.wings.split import Gate, randomised
from mpifl.wings.split.label_gate import leak_auc


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "privacy"
    folder.mkdir(mode=0o700)
    (folder / "key").write_bytes(bytes(range(32)))
    return Secret(folder)


def gradients(rows=4000, width=5):
    draw = torch.Generator().manual_seed(0)
    ones = torch.rand(rows, generator=draw) < 0.2
    return torch.randn(rows, width, generator=draw) * torch.where(ones, 3e-4, 1e-4)[:, None], ones.long()


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (2, 3.0), (7, 1.0), (10, 4.0)])
def test_labels_are_randomised_by_the_chances_of_the_formula(secret, classes, epsilon):
    n = 60_000
    labels = torch.arange(n) % classes
    found = randomised(labels, classes, epsilon, secret)
    counts = torch.zeros(classes, classes).index_put_((labels, found), torch.ones(n), accumulate=True)
    wanted = chances(epsilon, classes)
    deviation = (wanted * (1 - wanted) / (n / classes)).sqrt()
    assert ((counts / (n / classes) - wanted).abs() < 5 * deviation).all()


def test_labels_keep_their_dtype_and_shape(secret):
    for dtype in (torch.uint8, torch.int64, torch.bool):
        labels = (torch.arange(50) % 2).to(dtype)
        found = randomised(labels, 2, 1.0, secret)
        assert (found.dtype, found.shape) == (dtype, (50,))
        assert (found != labels).any()


def test_the_same_labels_are_randomised_alike_and_others_anew(secret):
    labels = torch.arange(3000) % 3
    first = randomised(labels, 3, 1.0, secret)
    assert torch.equal(first, randomised(labels.to(torch.uint8), 3, 1.0, Secret(secret.folder)).long())
    kept = first == labels
    other = labels.clone()
    other[0] = 1
    for again in (randomised(labels, 3, 1.1, secret) == labels, randomised(other, 3, 1.0, secret) == other):
        assert 0.3 < (again == kept).float().mean() < 0.8  # as two drawn apart


def test_lengths_are_equal_in_expectation_where_max_norm_noises(secret):
    g, ones = gradients(40)
    gate = Gate(0, ones, secret, equalises=True)
    total, times = torch.zeros(40, dtype=torch.float64), 2000
    for nth in range(times):
        total += gate.open({}, nth).sent(torch.arange(40), [g, g])[1].double().square().sum(1)
    squares, most = g.square().sum(1), g.square().sum(1).max()
    s2 = most / squares - 1  # Var (1 + s e)^2 = 4 s^2 + 2 s^4
    deviation = squares * (4 * s2 + 2 * s2**2).sqrt() / math.sqrt(times)
    assert ((total / times - most).abs() < 5 * deviation + 1e-5 * most).all()


def test_max_norm_is_the_formula_with_the_secrets_own_draws(secret):
    g, _ = gradients(30)
    g[3] = 0
    own, told = Gate(0, None, secret, equalises=True).open({}, 0).sent(torch.arange(30), [g, g])
    assert own is g
    scale = ((told * g).sum(1) / g.square().sum(1).clamp(min=1e-30))[:, None]
    assert torch.allclose(told, g * scale, atol=1e-9)  # along g
    squares = g.double().square().sum(1)
    s = (squares.max() / squares - 1).clamp(min=1e-12).sqrt()
    e = torch.where(squares > 0, (scale[:, 0].double() - 1) / s, 0.0)
    assert torch.allclose(max_norm(g, e.float()), told, atol=1e-8)
    assert 0.5 < e[squares < squares.max()].std() < 1.6
    assert (told[3] == 0).all()
    assert told.dtype == torch.float32


def test_noise_is_repeated_for_the_same_question_alone(secret):
    g, _ = gradients(64)
    rows = torch.arange(64)

    def told(gradient=g, round=1, silo=1, batch=0):
        out = Gate(0, None, secret, equalises=True).open({}, round)
        lines = [g, g, g]
        lines[silo] = gradient
        for _ in range(batch + 1):
            found = out.sent(rows, lines)
        return found[silo] / gradient

    first = told()
    assert torch.equal(first, told())
    slightly = g.clone()
    slightly[0, 0] += 1e-7
    for other in (told(slightly), told(round=2), told(silo=2), told(batch=1)):
        apart = (other - first).abs().max(1).values > 1e-3
        assert apart.float().mean() > 0.9


def test_nothing_is_changed_without_protection_and_no_secret_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE", raising=False)
    g, ones = gradients(20)
    gate = Gate(0, ones)
    assert gate.known() == {}
    assert [one is g for one in gate.open({}, 0).sent(torch.arange(20), [g, g])] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_zeros_and_one_row_pass(secret):
    for g in (torch.zeros(3, 2), torch.tensor([[1.0, 2.0]])):
        _, told = Gate(0, None, secret, equalises=True).open({}, 0).sent(torch.arange(len(g)), [g, g])
        assert torch.equal(told, g)


def test_the_leak_is_that_of_the_reference_and_of_scikit_learn():
    g, ones = gradients(500)
    g[::7] = g[0]  # ties
    norms = g.double().square().sum(1)
    assert leak_auc(norms, ones) == pytest.approx(norm_leak_auc(g, ones), abs=1e-12)
    assert leak_auc(norms, ones) == pytest.approx(roc_auc_score(ones, norms.sqrt()), abs=1e-12)
    assert leak_auc(norms, torch.ones(500)) is None


def test_the_leak_of_a_round_is_the_largest_of_silos_that_have_no_labels():
    rows, ones = torch.arange(6), torch.tensor([0, 0, 0, 1, 1, 1])
    telling = torch.tensor([1.0, 2, 3, 4, 5, 6])[:, None]
    nothing = torch.ones(6, 1)
    some = torch.tensor([3.0, 3, 3, 3, 3, 9])[:, None]
    for lines, wanted in [
        ([telling, nothing, nothing], 0.5),  # what the holder knows is no leak
        ([nothing, nothing, some], 2 / 3),
        ([nothing, -telling, some], 1.0),
        ([nothing, nothing, 7 - telling], 1.0),  # a ranking can be turned round
    ]:
        out = Gate(0, ones).open({}, 0)
        for part in (rows[:4], rows[4:]):  # all batches of a round together
            out.sent(part, [line[part] for line in lines])
        assert out.figures() == {"norm_leak_auc": pytest.approx(wanted)}
    assert Gate(0, None).open({}, 0).figures() == {}


def test_max_norm_hides_what_lengths_tell(secret):
    g, ones = gradients(20_000)
    rows = torch.randperm(20_000, generator=torch.Generator().manual_seed(1))

    def leak(gate):
        out = gate.open({}, 0)
        for batch in rows.split(128):
            out.sent(batch, [g[batch], g[batch]])
        return out.figures()["norm_leak_auc"]

    assert leak(Gate(0, ones)) > 0.9
    assert leak(Gate(0, ones, secret, equalises=True)) < 0.6


def test_the_secret_is_the_sites_or_lies_in_the_run_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE", raising=False)
    assert own_secret(tmp_path / "run").folder == tmp_path / "run" / "privacy"
    own_secret(tmp_path / "run").draws("x")
    key = tmp_path / "run" / "privacy" / "key"
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    assert own_secret(tmp_path / "run").folder == tmp_path / "site"


def test_another_secret_is_refused(secret):
    state = Gate(0, None, secret, equalises=True).known()
    Gate(0, None, secret, equalises=True).open(state, 1)
    (secret.folder / "key").write_bytes(os.urandom(32))
    with pytest.raises(InputError, match="has not the secret that this run began with"):
        Gate(0, None, Secret(secret.folder), equalises=True).open(state, 1)
