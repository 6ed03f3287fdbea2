"""What the round loop does beside asking: drawing cohorts, summing up figures over silos, and hearing signals."""

import math
import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit import builders  # noqa: F401 - its settings of hypothesis

from mpifl import interrupts
from mpifl.job import CohortTable
from mpifl.sampling import sample
from mpifl.tracking import spread

fractions = st.floats(0, 1)
populations = st.integers(1, 200)


@given(fractions, populations, st.integers(0, 99), st.integers(0, 999))
def test_a_cohort_is_so_many_different_silos_in_the_order_of_their_ids(fraction, population, seed, round):
    drawn = sample(CohortTable(fraction=fraction), [5] * population, seed, round)
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(population))
    assert all(type(silo) is int for silo in drawn)
    assert abs(len(drawn) - max(math.floor(fraction * population), 1)) <= (fraction * population % 1 > 1 - 1e-8)


@pytest.mark.parametrize(
    ("fraction", "population", "size"), [(0.0, 100, 1), (0.1, 100, 10), (0.29, 100, 29), (0.7, 10, 7), (1.0, 7, 7)]
)
def test_a_cohort_has_the_papers_size(fraction, population, size):
    assert len(sample(CohortTable(fraction=fraction), [5] * population, 0, 0)) == size


SIZES = [1, 9] * 50


def test_a_silo_is_as_likely_as_any_or_goes_by_its_examples():
    def large(select):
        table = CohortTable(fraction=0.01, select=select)
        return sum(sample(table, SIZES, 0, round)[0] % 2 for round in range(400)) / 400

    assert 0.4 < large("uniform") < 0.6
    assert 0.85 < large("examples") < 0.95


def test_cohorts_are_functions_of_seed_and_round_and_reach_every_silo():
    table = CohortTable(fraction=0.1)
    rounds = [tuple(sample(table, SIZES, 7, round)) for round in range(200)]
    assert rounds == [tuple(sample(table, SIZES, 7, round)) for round in range(200)]
    assert rounds[0] != tuple(sample(table, SIZES, 8, 0))
    assert len(set(rounds)) == 200
    assert {silo for drawn in rounds for silo in drawn} == set(range(100))


def test_figures_over_silos_are_summed_up_each_silo_alike():
    found = spread("silo_loss", [1.0, 2.0, 6.0], worst=max, best=min)
    assert found == {
        "silo_loss_mean": 3.0,
        "silo_loss_worst": 6.0,
        "silo_loss_best": 1.0,
        "silo_loss_std": pytest.approx(math.sqrt(14 / 3)),
        "silo_loss_worst10": 6.0,
    }
    twenty = [k / 20 for k in range(20)]
    assert spread("a", twenty, worst=min, best=max)["a_worst10"] == pytest.approx(0.025)
    assert spread("a", twenty, worst=max, best=min)["a_worst10"] == pytest.approx(0.925)
    assert spread("silo_accuracy", [0.5], worst=min, best=max)["silo_accuracy_std"] == 0.0
    assert spread("silo_accuracy", [0.5, 0.25], worst=min, best=max)["silo_accuracy_worst"] == 0.25
    assert spread("silo_loss", [], worst=max, best=min) == {}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_leaves_a_note_and_nothing_else(name):
    number = getattr(signal, name)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)}
    try:
        interrupts.install()
        assert not interrupts.pending()
        os.kill(os.getpid(), number)
        assert interrupts.pending()
        interrupts.clear()
        assert not interrupts.pending()
    finally:
        interrupts.clear()
        for n, handler in handlers.items():
            signal.signal(n, handler)
