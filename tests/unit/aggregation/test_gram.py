"""The Gram matrix and what is decided by it, on one rank."""

import contextlib
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from unit.aggregation.test_rules import taken_up
from unit.builders import Alone

from mpifl.common.errors import InputError, RoundLost
from mpifl.run.job.tables import AggregationSettings
from mpifl.wings.robust import WeightRule, aggregator_of, column_slices
from mpifl.wings.robust.gram import Digits
from mpifl.wings.robust.robust_wing import built as built_of
from mpifl.wire.memory import Memory
from mpifl.wire.messages import Verdict
from mpifl.wire.requests import Compute

HERE = "unit.aggregation.test_gram"
entries = st.floats(-1e80, 1e80) | st.sampled_from([0.0, -0.0, 2.0**-298, -(2.0**-298), 1e77, 0.1])
"""What products of float32 numbers can come to: multiples of 2^-298."""


def exact(values):
    return [Fraction(math.trunc(Fraction(v) * 2**298), 2**298) for v in values]


@given(st.lists(st.lists(entries, min_size=4, max_size=4), min_size=1, max_size=8), st.randoms())
def test_sums_in_digits_are_exact_and_in_any_order_and_grouping_the_same_bits(values, shuffle):
    blocks = [torch.tensor([float(v) for v in exact(one)], dtype=torch.float64).view(2, 2) for one in values]
    whole = Digits(2)
    for block in blocks:
        whole.add(block)
    parts = [Digits(2), Digits(2)]
    for block in shuffle.sample(blocks, len(blocks)):
        shuffle.choice(parts).add(block)
    total = Digits(2)
    for part in parts:
        assert total.take(memoryview(part.encode().numpy()).cast("B"))
    assert total.total().tobytes() == whole.total().tobytes()
    for n, found in enumerate(whole.total().flat):
        summands = [Fraction(float(block.flatten()[n])) for block in blocks]
        bound = sum(map(abs, summands)) * Fraction(1, 2**50)
        assert abs(Fraction(found) - sum(summands)) <= bound


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 2.0**-1074, 2.0**-1022, 2.0**-313, 1e308, 2.0**312]
)
def test_what_is_no_sum_of_products_is_refused(value):
    """It was cut into digits without end."""
    with pytest.raises(ValueError, match="not a sum of products"):
        Digits(2).add(torch.tensor([[1.0, 0.5], [value, 2.0]], dtype=torch.float64))


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=4, max_size=4))
def test_cutting_into_digits_ends_whatever_is_given(values):
    found = Digits(2)
    with contextlib.suppress(ValueError):
        found.add(torch.tensor(values, dtype=torch.float64).view(2, 2))
        assert found.total().flatten().tolist() == values


@pytest.mark.parametrize("told", [b"1", b"\0" * 8, np.array([99, 1, 1, 1, 1]).tobytes()])
def test_what_are_no_digits_is_not_added(told):
    found = Digits(2)
    assert not found.take(memoryview(told))
    assert not found.total().any()


def aggregator(**table):
    built = built_of(AggregationSettings.model_validate(table), 1)
    return aggregator_of(built, None, Memory(shared=False))


def combined(aggregation, rows, received=None, failed=0, name="delta"):
    """Combine vectors of silos 0, 1, ... as one rank does; others were asked, and failed."""
    asked = list(range(len(rows) + failed))
    aggregation.begin(Compute(work="train", cohort=asked), received or {}, asked)
    report = taken_up(aggregation, {silo: {name: torch.from_numpy(row)} for silo, row in enumerate(rows)})
    verdict = Verdict(serial=1, ranks=[0], pieces=aggregation.place({0: report}))
    return aggregation.combine(Alone(), Verdict.model_validate_json(verdict.encode()))


def test_a_liar_of_1e12_leaves_the_distances_of_all_others_as_they_are(monkeypatch):
    """Else Krum would take the second liar, which is near to the honest vectors where these look alike."""
    monkeypatch.setattr(column_slices, "BLOCK", 16)
    rows = np.random.default_rng(1).normal(0, 0.1, (9, 100)).astype(np.float32)
    rows[0] = 1e12
    rows[1] = 0.2
    found = combined(aggregator(rule="multikrum", m=7, byzantine=2), rows)
    assert [silo for silo, weight in found.weights.items() if weight] == [2, 3, 4, 5, 6, 7, 8]
    np.testing.assert_allclose(found.vectors["delta"], rows[2:].astype(float).mean(0), rtol=1e-6, atol=1e-9)


def test_a_vector_that_turns_nan_at_its_own_rank_loses_the_round_and_hangs_nobody():
    aggregation = aggregator(rule="rfa")
    aggregation.begin(Compute(work="train", cohort=[0, 1]), {}, [0, 1])
    report = taken_up(aggregation, {silo: {"delta": torch.ones(3)} for silo in (0, 1)})
    verdict = Verdict(serial=1, ranks=[0], pieces=aggregation.place({0: report}))
    aggregation._rows["delta", 1][0] = torch.nan
    found = aggregation.combine(Alone(), Verdict.model_validate_json(verdict.encode()))
    assert found.lost == "the distances between the silos' vectors cannot be found; suspected: rank 0"


def test_the_accepted_silos_are_counted_and_too_few_lose_the_round():
    rows = np.ones((4, 3), np.float32)
    with pytest.raises(
        RoundLost,
        match=r"4 silos sent 'delta', and \[aggregation\] rule = 'krum', byzantine = 1 takes 5",
    ):
        combined(aggregator(rule="krum", byzantine=1), rows)
    assert combined(aggregator(rule="krum", byzantine=0.2), rows).lost is None


@pytest.mark.parametrize(
    ("table", "silos", "takes"),
    [
        ({"rule": "krum", "byzantine": 5}, 12, 13),
        ({"rule": "multikrum", "byzantine": 1, "m": 9}, 9, 10),
        ({"rule": "krum", "byzantine": 0.4}, 10, 11),
        ({"rule": "median", "byzantine": 3, "pre": "nnm"}, 6, 7),
        ({"rule": "krum", "byzantine": 1, "pre": "bucketing"}, 8, 9),
        ({"rule": "trimmed", "byzantine": 2, "pre": "bucketing", "s": 3}, 12, 13),
    ],
)
def test_what_a_rule_needs_follows_from_how_many_may_lie(table, silos, takes):
    built = built_of(AggregationSettings.model_validate(table))
    assert built.needs(silos).endswith(f"takes {takes}")
    if table["byzantine"] != 0.4:
        assert built.needs(takes) == ""


class Wild(WeightRule):
    def weights(self, gram, liars):
        return np.full(len(gram), np.nan)


class Mistaken(WeightRule):
    def weights(self, gram, liars):
        raise KeyError("no such\nsilo")


class Needy(WeightRule):
    def __init__(self, key):
        self.key = key


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Wild", "returned no weights of 3 silos; have its weights"),
        ("Mistaken", "failed: KeyError: 'no such"),
        ("Needy", "give its fields defaults"),
    ],
)
def test_a_class_of_the_users_that_is_no_rule_is_refused_in_one_line(name, why):
    with pytest.raises(InputError) as refused:
        built_of(AggregationSettings(rule=f"{HERE}:{name}")).try_out(3)
    assert str(refused.value).startswith(f"[aggregation] rule = '{HERE}:{name}'")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_rule_that_trusts_no_silo_leaves_the_model_where_it_is():
    rows, own = np.ones((3, 4), np.float32), {"reference delta": -torch.ones(4)}
    found = combined(aggregator(rule="fltrust"), rows, own)
    assert found.vectors["delta"].tolist() == [0.0] * 4
    assert found.weights == {0: 0.0, 1: 0.0, 2: 0.0}


def test_a_rule_that_has_nothing_to_compare_with_says_so():
    """It trusted nobody, and the model stood still."""
    rows, own = np.ones((3, 4), np.float32), {"reference delta": torch.ones(4)}
    with pytest.raises(RoundLost, match=r"'fltrust': silos sent 'step', and the server .* its own 'delta'"):
        combined(aggregator(rule="fltrust"), rows, own, name="step")


@pytest.mark.parametrize("table", [{"rule": "trimmed"}, {"rule": "rfa", "pre": "nnm"}], ids=str)
def test_a_share_is_of_those_who_are_asked(table):
    """One who fails leaves as many liars as before. Of nine alone a fifth is one, and two are too many."""
    rows = np.random.default_rng(1).normal(0, 1, (9, 20)).astype(np.float32)
    rows[:2] = 1e6
    found = combined(aggregator(byzantine=0.2, **table), rows, failed=1)
    assert found.vectors["delta"].abs().max() < 4
    with pytest.raises(RoundLost, match=r"4 silos sent 'delta', and .* takes 5"):
        combined(aggregator(byzantine=0.2, **table), rows[:4], failed=6)
