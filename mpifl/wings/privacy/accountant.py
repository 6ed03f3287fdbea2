"""The privacy accountant: the epsilon of noised steps, and the noise for a given epsilon.

Without sampling the Gaussian mechanism has a closed form (Balle & Wang 2018). With sampling, `dp-accounting`
computes epsilon by privacy loss distributions or Renyi divergences. Neighbouring data sets differ by one
example that is added or removed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mpifl.common import InputError
from mpifl.common.machine import floors

GRID = 1000
"""`noise_for` returns noise multipliers that are multiples of 1 / GRID."""
LARGEST = 10**10
"""The end of the search for a noise multiplier, in units of 1 / GRID."""
_LINES = 24
"""After so many evaluations the search for noise stops interpolating and only bisects."""
_FINE, _COARSE = 1e-4, 1e-3
"""The smallest and largest grid spacing of privacy losses; losses are rounded up to the grid."""
_PART = 0.02
"""The grid spacing as a share of a step's typical loss, rate / noise. It raised each of 25 epsilons by at
most 4e-5 of its value."""


@dataclass(frozen=True)
class Steps:
    """Steps of DP-SGD. Each step is a noised sum of the clipped gradients of the examples that it drew.

    Attributes:
        noise: z, the noise multiplier: the standard deviation of the noise divided by the clip norm.
        rate: q, the probability that an example is drawn; 1 if all examples are taken.
        count: The number of steps.
    """

    noise: float
    rate: float
    count: int


def epsilon_of(taken: Iterable[Steps], delta: float, accountant: str = "pld") -> float:
    """Return the epsilon of all these steps together.

    Args:
        taken: The steps, in any order.
        delta: The delta of (epsilon, delta).
        accountant: "pld" or "rdp", for steps that draw examples.

    Raises:
        InputError: `dp-accounting` is needed and not installed.
        ValueError: a noise or a rate is NaN.
    """
    counts: Counter[tuple[float, float]] = Counter()
    for steps in taken:
        if math.isnan(steps.noise * steps.rate):
            raise ValueError(f"{steps}: there is no epsilon of what is not a number")
        counts[steps.noise, steps.rate] += steps.count
    groups = tuple(sorted((noise, rate, count) for (noise, rate), count in counts.items() if count))
    if all(rate >= 1 for _, rate, _ in groups):
        return gaussian_epsilon(math.sqrt(sum(count / noise**2 for noise, _, count in groups)), delta)
    return _counted(groups, delta, accountant)


@functools.lru_cache(maxsize=4096)
def noise_for(epsilon: float, delta: float, rate: float, count: int, accountant: str = "pld") -> float:
    """Return the least noise multiplier with which `count` steps cost at most (epsilon, delta).

    It is a multiple of 1 / GRID.

    Raises:
        InputError: even the largest noise that is tried is too small.
    """

    def cost(nth: int, by: str = accountant) -> float:
        return epsilon_of([Steps(nth / GRID, rate, count)], delta, by)

    rough = _least(GRID, lambda nth: cost(nth, "rdp"), epsilon)  # a quick and close first guess
    return (rough if accountant == "rdp" else _least(rough, cost, epsilon)) / GRID


def check_countable(rates: Iterable[float]) -> None:
    """Check that `dp-accounting` is installed if steps at these rates need it. Do not import it.

    Raises:
        InputError: it is needed and not installed.
    """
    if any(rate < 1 for rate in rates) and importlib.util.find_spec("dp_accounting") is None:
        raise _missing()


def affordable(spent: Iterable[Steps], more: Steps, delta: float, epsilon: float, accountant: str) -> int:
    """Return how many more steps a budget allows, after the steps that were spent.

    Args:
        spent: The steps that were taken before.
        more: The wanted steps, all of one kind.
        delta: The budget's delta.
        epsilon: The budget's epsilon.
        accountant: "pld" or "rdp".
    """
    before = list(spent)

    def fits(count: int) -> bool:
        taken = [*before, Steps(more.noise, more.rate, count)]
        return epsilon_of(taken, delta, accountant) <= epsilon

    if fits(more.count):
        return more.count
    most, too_many = 0, more.count
    while too_many - most > 1:
        middle = (most + too_many) // 2
        most, too_many = (middle, too_many) if fits(middle) else (most, middle)
    return most


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism with sensitivity mu and deviation 1 (Balle & Wang 2018).

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

    Raises:
        ValueError: mu or delta is negative or NaN.
    """
    if not (mu >= 0 and delta >= 0):
        raise ValueError(f"there is no epsilon of mu = {mu} and delta = {delta}")

    def exceeds(epsilon: float) -> bool:
        first, second = _phi(mu / 2 - epsilon / mu), _phi(-mu / 2 - epsilon / mu)
        # if the second underflows, its product is far below the first
        return first - (math.exp(epsilon + math.log(second)) if second > 0 else 0.0) > delta

    if mu == 0 or not exceeds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while exceeds(high):  # this ends: at Inf the first term is 0
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _least(start: int, cost: Callable[[int], float], most: float) -> int:
    """Return the least whole number whose cost is at most `most`, if larger numbers cost less; raise
    InputError if no number below `LARGEST` will do.

    The search begins at `start`. Between a number that costs too much and one that does not, it interpolates
    linearly in the logarithms of number and cost. Every third step bisects, and after `_LINES` steps all do,
    so that the search ends whatever the cost is. NaN counts as too much.
    """
    few, many, high, low, nth, looks = 0, LARGEST, math.inf, 0.0, start, 0
    while many - few > 1:
        found, looks = cost(nth), looks + 1
        few, high, many, low = (few, high, nth, found) if found <= most else (nth, found, many, low)
        between = few > 0 and many < LARGEST
        if looks > _LINES or (between and (looks % 3 == 0 or not (low > 0 and 1 < high / low < math.inf))):
            nth = (few + many) // 2
        elif between:
            nth = round(few * (many / few) ** (math.log(high / most) / math.log(high / low)))
        else:
            nth = round(nth * (min(max(found / most, 1 / 3), 3.0) if found < math.inf else 3.0) ** 0.9)
        nth = min(max(nth, few + 1), many - 1)
    if many == LARGEST:
        raise InputError("[privacy] epsilon: no noise is enough for so small a budget; use a larger one")
    return many


@functools.lru_cache(maxsize=4096)
def _counted(groups: tuple[tuple[float, float, int], ...], delta: float, accountant: str) -> float:
    if accountant == "rdp":
        return _by_divergences(groups, delta)
    apart = min(_apart(noise, rate) for noise, rate, _ in groups)
    parts = [_composed(noise, rate, count, apart) for noise, rate, count in groups]
    return float(functools.reduce(lambda one, other: one.compose(other), parts).get_epsilon_for_delta(delta))


def _apart(noise: float, rate: float) -> float:
    """Return the grid spacing of the privacy loss: finer if a step loses less."""
    return max(_FINE, min(_COARSE, _PART * rate / noise)) * max(1.0, 0.1 / noise**2)


@functools.lru_cache(maxsize=64)
def _composed(noise: float, rate: float, count: int, apart: float) -> Any:
    """Return the privacy loss distribution of `count` steps."""
    return _one_step(noise, rate, apart).self_compose(count)


@functools.lru_cache(maxsize=64)
def _one_step(noise: float, rate: float, apart: float) -> Any:
    library = _library("pld.privacy_loss_distribution")
    return library.from_gaussian_mechanism(
        noise, value_discretization_interval=apart, sampling_prob=rate, use_connect_dots=True
    )


def _by_divergences(groups: tuple[tuple[float, float, int], ...], delta: float) -> float:
    events, library, log = _library("dp_event"), _library("rdp"), importlib.import_module("absl.logging")
    accountant, told = library.RdpAccountant(), log.get_verbosity()
    log.set_verbosity(log.ERROR)  # it warns of Renyi orders that it skips; epsilon is still an upper bound
    try:
        for noise, rate, count in groups:
            step = events.GaussianDpEvent(noise)
            accountant.compose(events.PoissonSampledDpEvent(rate, step) if rate < 1 else step, count)
    finally:
        log.set_verbosity(told)
    return float(accountant.get_epsilon(delta))


def _library(module: str) -> Any:
    try:
        library = importlib.import_module(f"dp_accounting.{module}")
    except ImportError:
        raise _missing() from None
    floors.hold("privacy")
    return library


def _missing() -> InputError:
    what = "counting steps that draw examples needs dp-accounting"
    return InputError(f"[privacy]: {what}; install it: pip install 'mpifl[privacy]'")
