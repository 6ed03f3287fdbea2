"""What single algorithms do where the papers' cases end:
a gradient of zero, passes in bfloat16, sparse features."""

import json

import numpy as np
import pytest
import torch
from unit.builders import EXAMPLES, make_federation, make_silo, net, same_bits

from mpifl.algorithms import ALGORITHMS
from mpifl.algorithms.fedprox import FedProx
from mpifl.algorithms.fsvrg import FSVRG, of_weights, quotient
from mpifl.algorithms.qffl import QFedAvg
from mpifl.algorithms.server import Server
from mpifl.common import rng
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.learning.models.perceptrons import logreg
from mpifl.run.job.tables.cohort_table import CohortTable
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wire.update import Mean
from scripts.write_shard import write_shard


class Flat(FedProx):
    """FedProx on a loss that has arrived where its gradient is zero."""

    def objective(self, module, x, y):
        return module(x).mul(0).sum()


@pytest.mark.parametrize(("kind", "measured"), [(FedProx, True), (Flat, False)])
def test_a_silo_whose_gradient_is_zero_has_no_gamma(kind, measured):
    algorithm = kind(measure_gamma=True)
    silo = make_silo(FlatModel(net()), objective=algorithm.objective)
    update = algorithm.train_near(silo, silo.model.trained.clone(), 0.1)
    assert ("gamma" in update.scalars) is measured


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_fsvrgs_first_step_goes_along_the_full_gradient_to_the_bit(precision):
    local = LocalTraining(lr=0.5, steps=1, batch_size=4, precision=precision)
    silo = make_silo(FlatModel(net()), n=8)
    w, full = silo.model.trained.clone(), torch.linspace(-1, 1, len(silo.model.trained))
    update = FSVRG(local=local).train_reduced(silo, w, full)
    assert same_bits(update.vectors["delta"], w.add(full, alpha=-0.5 / 8) - w)


def test_a_step_that_qffl_cannot_weigh_is_refused_and_never_in_a_mean_without_its_weight():
    silo = make_silo(FlatModel(net()))
    w = silo.model.trained.clone()
    with pytest.raises(InputError, match="h = inf"):
        QFedAvg()._answer(silo, w, torch.full_like(w, 1e30), 1.0)
    with pytest.raises(InputError, match="h = inf"):
        QFedAvg(q=1e30)._answer(silo, 100 * w, torch.ones_like(w), 1.0)
    silo.round = 2
    with pytest.raises(InputError, match=r"\[local\] lr = 0: h = inf"):
        QFedAvg(local=LocalTraining(lr_decay=5e-324))._answer(silo, w, torch.ones_like(w), 1.0)


class Silent:
    """A cohort of silos that have no training loss."""

    population = 1

    def of(self, silos):
        return self

    def mean(self, work, w, mu=None):
        return Mean({"delta": torch.zeros_like(w)}, {}, {0: {}})


def test_mu_stays_as_it_is_where_no_silo_has_a_loss():
    algorithm, server = FedProx(mu=0.5, adaptive=True), Server([FlatModel(net())])
    algorithm.begin(server)
    assert algorithm.round(server, Silent()) == {"mu": 0.5}
    assert server.state["mu"] == 0.5


SPARSE = Features(shape=(4,), dtype="float32")
WORDS = [[[1, 0, 0, 2], [1, 0, 0, 0], [0, 3, 0, 0], [1, 0, 0, 1]], [[1, 0, 0, 0], [2, 0, 0, 0]]]
"""Silo 0 has features 0, 1 and 3, silo 1 feature 0; 2 is in none."""


@pytest.fixture
def sparse(tmp_path):
    """Return how to begin a training of logistic regression on two silos with sparse features."""

    def entry(silo, rows):
        splits = {"train": (np.array(rows, np.float32), np.arange(len(rows)) % 2)}
        named = {"silo": silo, "name": f"s{silo}", "features": SPARSE, "classes": 2}
        return write_shard(tmp_path / f"s{silo}.h5", splits, **named)

    spec = FederationSpec(
        name="sparse",
        features=SPARSE,
        classes=2,
        seed=0,
        scheme={"name": "toy"},
        source={},
        silos=[entry(k, rows) for k, rows in enumerate(WORDS)],
    )
    spec.write(tmp_path)

    def act(algorithm, cohort=EXAMPLES):
        with torch.random.fork_rng(devices=[]):  # else which tests ran before decides on the weights
            torch.manual_seed(0)
            model = FlatModel(logreg((4,), 2))
        algorithm.check(model.module, spec)
        return make_federation(tmp_path, spec, algorithm, model, [], cohort=cohort)

    return act


PHI, OWN = [5 / 6, 1 / 6, 0, 2 / 6], ([3 / 4, 1 / 4, 0, 2 / 4], [1, 0, 0, 0])
FIRST, SECOND = [(5 / 6) / (3 / 4), (1 / 6) / (1 / 4), 1, (2 / 6) / (2 / 4)], [5 / 6, 1, 1, 1]
SPREAD = [1, 2, 1, 2]


def test_fsvrgs_scalings_are_the_papers(sparse):
    """s_k^j = phi^j / phi_k^j and a^j = K / omega^j, counted by hand, 1 where a feature is nowhere."""
    algorithm = FSVRG(scaling=True, local=LocalTraining(lr=1.0, batch_size=1))
    server, federation = sparse(algorithm)
    algorithm.round(server, federation.everyone(server))
    assert server.state["phi"].tolist() == pytest.approx(PHI, abs=1e-7)
    assert server.state["a"].tolist() == SPREAD
    for silo, (own, scale) in enumerate(zip(OWN, (FIRST, SECOND), strict=True)):
        found = federation._worker.lend(silo, 0).frequencies()
        assert found.tolist() == pytest.approx(own)
        assert quotient(server.state["phi"], found).tolist() == pytest.approx(scale, abs=1e-7)
    assert of_weights(torch.tensor([2.0, 3.0]), torch.zeros(9)).tolist() == [2, 3, 2, 3, 2, 3, 1, 1, 1]


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_a_scaled_round_is_the_papers_step_by_step(sparse, weights):
    """Algorithm 4 in float64, by the order in which the silos draw their examples."""
    algorithm = FSVRG(scaling=True, local=LocalTraining(lr=0.5, batch_size=1))
    server, federation = sparse(algorithm, CohortTable(weights=weights))
    start = server.state["w"].double()
    shares = [4 / 6, 2 / 6] if weights == "examples" else [1 / 2, 1 / 2]
    phi = np.average(OWN, axis=0, weights=shares)
    scales = [np.divide(phi, own, out=np.ones(4), where=np.array(own) > 0) for own in OWN]
    algorithm.round(server, federation.everyone(server))

    def gradient(w, x, label):
        logits = w[:8].reshape(2, 4) @ x + w[8:]
        error = np.exp(logits) / np.exp(logits).sum() - np.eye(2)[label]
        return np.concatenate([np.outer(error, x).ravel(), error])

    def per_weight(of_features):
        return np.concatenate([np.tile(of_features, 2), np.ones(2)])

    w0, ends = start.numpy(), []
    each = [[gradient(w0, np.array(x, float), i % 2) for i, x in enumerate(rows)] for rows in WORDS]
    full = sum(share * np.mean(g, axis=0) for share, g in zip(shares, each, strict=True))
    for k, rows in enumerate(WORDS):
        w = w0.copy()
        for i in torch.randperm(len(rows), generator=rng.torch_stream(0, "train", k, 0)).tolist():
            change = gradient(w, np.array(rows[i], float), i % 2) - each[k][i]
            w -= 0.5 / len(rows) * (per_weight(scales[k]) * change + full)
        ends.append(w - w0)
    right = w0 + per_weight(SPREAD) * sum(share * end for share, end in zip(shares, ends, strict=True))
    assert np.abs(right - w0).max() > 0.05
    assert server.state["w"].numpy() == pytest.approx(right, abs=1e-6)


def test_fsvrg_counts_once_and_only_over_all_silos(sparse):
    algorithm = FSVRG(scaling=True, local=LocalTraining(lr=0.5, batch_size=1))
    server, federation = sparse(algorithm)
    with pytest.raises(InputError, match=r"scaling = true: .* use \[cohort\] fraction = 1"):
        algorithm.round(server, federation.cohort([1], server))
    for server.round in range(2):
        algorithm.round(server, federation.everyone(server))
    asked = [json.loads(told)["work"] for told in federation.transport.told if b'"kind"' in told]
    assert asked == ["count", "full_gradient", "train_reduced", "full_gradient", "train_reduced"]
    algorithm.round(server, federation.cohort([1], server))  # silo 0 has died: what is known of it stays
    assert server.state["a"].tolist() == SPREAD


def test_fsvrg_scales_no_weight_that_has_no_feature():
    with pytest.raises(InputError, match=r"use \[model\] name = 'logreg'"):
        FSVRG(scaling=True).check(net(), FederationSpec.model_construct(features=SPARSE, classes=2))


def test_silos_have_models_of_their_own_only_where_the_servers_is_none_of_theirs():
    other = {"name": "mlp", "hidden": [4]}
    own = ["ditto", "apfl", "pfedme", "finetune", "ifca"]
    found = {name: ALGORITHMS[name].model_construct().own_models for name in [*own, "fedavg", "scaffold"]}
    assert found == {**dict.fromkeys(own, True), "fedavg": False, "scaffold": False}
    assert not ALGORITHMS["feddf"](local={"lr": 0.1}).own_models, "each silo uses the one model"
    assert ALGORITHMS["feddf"](local={"lr": 0.1}, prototypes=[other]).own_models
