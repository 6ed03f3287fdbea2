"""What single algorithms do where the papers' cases end: a gradient of zero, passes in bfloat16."""

import pytest
import torch
from unit.builders import make_silo, net, same_bits

from mpifl.algorithms.fedprox import FedProx
from mpifl.algorithms.fsvrg import FSVRG
from mpifl.flat import FlatModel
from mpifl.local import LocalTraining


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
