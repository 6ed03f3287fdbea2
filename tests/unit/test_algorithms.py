"""What single algorithms do where the papers' cases end: a gradient of zero, passes in bfloat16."""

import pytest
import torch
from unit.builders import make_silo, net, same_bits

from mpifl.algorithms.fedprox import FedProx
from mpifl.algorithms.fsvrg import FSVRG
from mpifl.algorithms.qffl import QFedAvg
from mpifl.errors import InputError
from mpifl.flat import FlatModel
from mpifl.local import LocalTraining
from mpifl.messages import Mean
from mpifl.server import Server


class Flat(FedProx):
    """FedProx on a loss that has arrived where its gradient is zero."""

    def objective(self, module, x, y):
        return module(x).mul(0).sum()


@pytest.mark.parametrize(("kind", "measured"), [(FedProx, True), (Flat, False)])
def test_a_silo_whose_gradient_is_zero_has_no_gamma(kind, measured):
    algorithm = kind(measure_gamma=True)
    silo = make_silo(FlatModel(net()))
    silo.objective = algorithm.objective
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


class Silent:
    """A cohort of silos that have no training loss."""

    population = 1

    def mean(self, work, w, mu):
        return Mean({"delta": torch.zeros_like(w)}, {}, {0: {}})


def test_mu_stays_as_it_is_where_no_silo_has_a_loss():
    algorithm, server = FedProx(mu=0.5, adaptive=True), Server([FlatModel(net())])
    algorithm.begin(server)
    assert algorithm.round(server, Silent()) == {"mu": 0.5}
    assert server.state["mu"] == 0.5
