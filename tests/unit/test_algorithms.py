"""What single algorithms do where the papers' cases end: a gradient of zero."""

import pytest
from unit.builders import make_silo, net

from mpifl.algorithms.fedprox import FedProx
from mpifl.flat import FlatModel


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
