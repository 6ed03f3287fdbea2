"""The accountant, held to figures that others have counted and to formulas apart from its own."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from mpifl.common import InputError
from mpifl.wings.privacy import Steps, accountant, affordable, epsilon_of, noise_for

needs_dp_accounting = pytest.mark.usefixtures("dp_accounting")


@pytest.fixture
def dp_accounting():
    pytest.importorskip("dp_accounting")


@needs_dp_accounting
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "delta", "pld", "rdp"),
    [
        (1.3, 240 / 60000, 3750, 1e-5, 0.8336, 0.9220),
        (1.1, 0.004, 15000, 1e-5, 2.2955, 2.5029),
        (0.7, 0.004, 11250, 1e-5, 5.4312, 6.0937),
        (0.8, 1e-3, 1500, 1e-6, 0.5189, 1.4864),
    ],
)
def test_epsilon_of_sampled_steps(noise, rate, steps, delta, pld, rdp):
    taken = [Steps(noise, rate, steps)]
    assert epsilon_of(taken, delta) == pytest.approx(pld, abs=1e-3)
    assert epsilon_of(taken, delta, "rdp") == pytest.approx(rdp, abs=1e-3)


@pytest.mark.parametrize(("noise", "expected"), [(5, 9.99726), (10, 4.37718)])
def test_epsilon_of_steps_over_all_examples_has_a_closed_form(noise, expected):
    assert epsilon_of([Steps(noise, 1.0, 100)], 1e-5) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("mu", [0.05, 0.4, 1.0, 3.0, 20.0])
def test_the_closed_form_solves_the_equation_of_the_paper(mu):
    epsilon = epsilon_of([Steps(1 / mu, 1.0, 1)], 1e-6)
    found = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert found == pytest.approx(1e-6, rel=1e-5)


@needs_dp_accounting
def test_the_noise_for_a_budget():
    noise = noise_for(2.0, 1e-5, 0.004, 3750)
    assert noise == pytest.approx(0.8273, abs=1e-3)
    assert epsilon_of([Steps(noise, 0.004, 3750)], 1e-5) <= 2.0
    assert epsilon_of([Steps(noise - 1e-3, 0.004, 3750)], 1e-5) > 2.0


def test_the_noise_for_a_budget_without_sampling():
    noise = noise_for(4.37718, 1e-5, 1.0, 100)
    assert noise == pytest.approx(10.0, abs=2e-3)


def test_steps_of_many_runs_add_up():
    together = epsilon_of([Steps(10, 1.0, 60), Steps(5, 1.0, 10)], 1e-5)
    assert together == pytest.approx(epsilon_of([Steps(10, 1.0, 100)], 1e-5))
    assert epsilon_of([], 1e-5) == 0.0


def test_a_budget_affords_the_steps_that_stay_below_it():
    spent, more = [Steps(10, 1.0, 40)], Steps(10, 1.0, 1000)
    assert affordable(spent, more, 1e-5, 4.3772, "pld") == 60
    assert affordable(spent, Steps(10, 1.0, 5), 1e-5, 4.3772, "pld") == 5
    assert affordable([Steps(10, 1.0, 101)], more, 1e-5, 4.3772, "pld") == 0


def test_a_budget_that_no_noise_can_meet_is_refused():
    with pytest.raises(InputError, match="no noise is enough"):
        noise_for(1e-12, 1e-15, 1.0, 10**6)


@needs_dp_accounting
@pytest.mark.parametrize(
    "taken",
    [
        [Steps(2.5, 0.13, 120)],
        [Steps(1.1, 0.05, 400)],
        [Steps(1.1, 0.05, 400), Steps(2.5, 0.13, 60), Steps(0.9, 0.002, 10)],
        [Steps(0.25, 0.05, 3), Steps(2.5, 0.13, 60)],
    ],
)
def test_losses_are_told_apart_as_finely_as_epsilon_needs_and_rounded_up(taken, monkeypatch):
    """Groups of steps are counted on one grid, the finest that any of them needs."""
    quick = accountant._counted.__wrapped__(groups_of(taken), 1e-3, "pld")
    monkeypatch.setattr(accountant, "_COARSE", accountant._FINE)
    fine = accountant._counted.__wrapped__(groups_of(taken), 1e-3, "pld")
    assert fine <= quick <= fine * (1 + 1e-4)


def groups_of(taken):
    return tuple((one.noise, one.rate, one.count) for one in taken)


AWKWARD = [0.0, 5e-324, 1.0, math.nextafter(1, 2), math.nextafter(1, 0), 1e308, math.inf]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*AWKWARD, math.nan]) | st.floats(0, 3), min_size=1), st.integers(1, 10**6))
def test_the_search_for_noise_ends_whatever_costs_what(costs, start):
    """Costs need not even fall: none keeps the search from its end, after 96 looks at most."""
    looks, found = itertools.count(), itertools.cycle(costs)

    def cost(_: int) -> float:
        assert next(looks) < 96
        return next(found)

    try:
        least = accountant._least(start, cost, 1.0)
    except InputError:
        return
    assert 1 <= least < accountant.LARGEST


@settings(deadline=None)
@given(st.integers(1, 10**9), st.integers(1, 10**6), st.floats(0, 1e-3), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_search_finds_a_jump_wherever_it_is(edge, start, slope, low):
    """Near the floor of Renyi accounting a cost hardly falls, and then at once: the search went by ones."""
    looks = itertools.count()

    def cost(nth: int) -> float:
        assert next(looks) < 96
        return 1 + 1e-12 + slope / nth if nth < edge else low

    assert accountant._least(start, cost, 1.0) == edge


@needs_dp_accounting
@pytest.mark.parametrize("by", ["rdp", "pld"])
def test_the_noise_for_a_budget_at_the_floor_of_renyi_accounting(by):
    noise = noise_for(0.0035, 1e-5, 0.01, 100, by)
    assert epsilon_of([Steps(noise, 0.01, 100)], 1e-5, by) <= 0.0035
    assert epsilon_of([Steps(noise - 1e-3, 0.01, 100)], 1e-5, by) > 0.0035


@settings(deadline=None)
@given(st.sampled_from(AWKWARD) | st.floats(0), st.sampled_from(AWKWARD[:5]) | st.floats(0, 1))
def test_the_closed_form_ends_and_falls_with_delta(mu, delta):
    epsilon = accountant.gaussian_epsilon(mu, delta)
    assert epsilon >= accountant.gaussian_epsilon(mu, min(1.0, 2 * delta)) >= 0


@pytest.mark.parametrize(("mu", "delta"), [(math.nan, 1e-5), (1.0, math.nan), (-1.0, 1e-5), (1.0, -1e-5)])
def test_what_is_no_mechanism_has_no_epsilon(mu, delta):
    with pytest.raises(ValueError, match="no epsilon"):
        accountant.gaussian_epsilon(mu, delta)


@pytest.mark.parametrize("by", ["rdp", "pld"])
@pytest.mark.parametrize("rate", [1.0, 0.5, math.nan])
def test_steps_of_which_something_is_no_number_have_no_epsilon(rate, by):
    for noise in (math.nan, *([1.0] if math.isnan(rate) else [])):
        with pytest.raises(ValueError, match="no epsilon"):
            epsilon_of([Steps(noise, rate, 10)], 1e-5, by)


@settings(deadline=None)
@given(st.integers(1, 10**9), st.lists(st.sampled_from([*AWKWARD, math.nan]), min_size=1))
def test_the_search_for_steps_that_a_budget_affords_ends(count, costs):
    looks, found = itertools.count(), itertools.cycle(costs)

    def epsilon(*_: object) -> float:
        assert next(looks) < 32
        return next(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "epsilon_of", epsilon)
        assert 0 <= affordable([], Steps(1.0, 1.0, count), 1e-5, 1.0, "pld") <= count
