"""What a rank adds up as whole numbers, and what the server takes from it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from mpifl.sums.mean import WeightedMean
from mpifl.wings.masked import FixedSums
from mpifl.wings.masked.fixed_plan import PartyPlan, PlannedVector, SumPlan, part_of, plan_of
from mpifl.wings.masked.fixed_point import DIGITS
from mpifl.wings.masked.fixed_sum import FixedSum
from mpifl.wings.masked.party_sums import PER_SCALAR, SENTINELS, PartySums
from mpifl.wire import Compute, Done, Header, Report, Update, VectorHeader, Verdict, summed, uniform
from mpifl.wire.memory import Memory

REQUEST = Compute(work="train", cohort=[0, 1, 2])
HOW = FixedSums(range=128.0, largest_weight=lambda work: 600.0, silos=3)
GRID = 2.0 ** (math.ceil(math.log2(600 * 128)) - 62 + 2)
"""Of three silos, by hand."""


def sums_of(*updates: Update, how: FixedSums = HOW) -> PartySums:
    found = PartySums(how, REQUEST)
    for update in updates:
        found.add(0, update)
    return found


def drawn(seed: int, n: int = 40) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)) * 0.1


def test_a_sum_is_that_of_rounded_products() -> None:
    updates = [Update(weight, {"delta": drawn(nth)}) for nth, weight in enumerate((600.0, 17.0, 1.0))]
    found = sums_of(*updates).vectors["delta"]
    for at in range(40):
        products = [Fraction(u.weight * float(u.vectors["delta"][at])) / Fraction(GRID) for u in updates]
        assert int(found[at]) == sum(map(round, products))
    assert found[40:].tolist() == [1, 3]


def test_each_way_of_combining_has_its_own_grid_and_sentinels() -> None:
    vectors = {"a": drawn(1), "b": uniform(drawn(2)), "c": summed(torch.tensor([5.0, -7.0]))}
    found = sums_of(Update(20.0, vectors), Update(30.0, vectors)).vectors
    unweighted = 2.0 ** (7 - 62 + 2)
    assert found["b"][:40].tolist() == [2 * round(float(x) / unweighted) for x in drawn(2)]
    assert found["a"].shape == (42,)
    assert found["c"].shape == (2 * DIGITS + 2,)
    for vector in found.values():
        assert vector[-SENTINELS:].tolist() == [1, 2]


REFUSED: dict[str, tuple[Update, str]] = {
    "nan": (Update(1.0, {"delta": torch.full((40,), math.nan)}), "'delta' holds NaN or Inf"),
    "inf": (Update(1.0, {"delta": torch.full((40,), math.inf)}), "'delta' holds NaN or Inf"),
    "beyond": (
        Update(1.0, {"delta": torch.full((40,), 129.0)}),
        r"'delta' is beyond the range.*128; raise it",
    ),
    "far beyond": (Update(1.0, {"delta": torch.full((40,), -3e38)}), "'delta' is beyond the range"),
    "another length": (Update(1.0, {"delta": torch.ones(41)}), "'delta' has 41 elements"),
    "a text": (Update(1.0, {"delta": drawn(3)}, {"loss": "low"}), "the scalar 'loss' is a text"),
    "a huge number": (Update(1.0, {"delta": drawn(3)}, {"loss": 1e300}), "'loss' is beyond the range"),
    "heavy": (Update(1e15, {"delta": drawn(3)}, {"loss": 1e20}), "'loss' is beyond the range"),
    "no noise": (Update(1.0, {"delta": drawn(3)}, noise={"delta": -1.0}), "'delta' has the deviation -1"),
    "noise of any size": (Update(1.0, {"delta": drawn(3)}, noise={"delta": math.nan}), "deviation nan"),
    "a huge sum": (Update(1.0, {"delta": drawn(3), "s": summed(torch.tensor([1e31]))}), "'s' is beyond"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_update_that_cannot_be_added_changes_nothing(what: str) -> None:
    update, line = REFUSED[what]
    sums = sums_of(Update(2.0, {"delta": drawn(1)}, {"loss": 1.5}))
    before = {name: vector.clone() for name, vector in {**sums.vectors, **sums.numbers}.items()}
    with pytest.raises(ValueError, match=line):
        sums.add(0, update)
    after = {**sums.vectors, **sums.numbers}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], vector) for name, vector in before.items())
    assert sums.silos == 1


class Trusting:
    """Masks whatever is asked."""

    offer: ClassVar = {}

    def ready(self, question: Any, sums: Any) -> str:
        return "0" * 64


@pytest.mark.parametrize("names", [["none", "delta"], ["delta", "delta"], [], ["delta", "statistics"]])
def test_a_plan_of_other_vectors_than_a_party_has_is_refused(names: list[str]) -> None:
    """Its noise would be added elsewhere: to another vector, or to the numbers."""
    how = replace(HOW, masks=True, masking=Trusting())
    sums = FixedSum(how, Memory(shared=False))
    sums.begin(REQUEST, {}, [0])
    sums.accumulate(0, Update(1.0, {"delta": drawn(1)}))
    transport, verdict = SimpleNamespace(rank=1), Verdict(accepted=[0])

    def ready(named: list[str]) -> Any:
        vectors = [PlannedVector(name=name, length=40, combined="weighted", total=1.0) for name in named]
        parties = {1: PartyPlan(vectors={}, scalars=[])}
        plan = SumPlan(vectors=vectors, scalars=[], parties=parties)
        return sums._readiness(transport, verdict, plan, [])

    assert "other vectors than this party has" in ready(names).refused
    assert ready(["delta"]).context == "0" * 64


def test_a_refusal_tells_no_number_of_the_silos() -> None:
    secret = 129.8125
    with pytest.raises(ValueError, match="beyond the range") as refused:
        sums_of(Update(1.0, {"delta": torch.tensor([0.0, secret])}))
    assert str(secret)[:5] not in str(refused.value)


def test_the_edge_of_the_range_is_in_it() -> None:
    found = sums_of(*[Update(600.0, {"delta": torch.tensor([128.0, -128.0])})] * 3).vectors["delta"]
    assert [Fraction(int(x)) * Fraction(GRID) for x in found[:2]] == [3 * 600 * 128, -3 * 600 * 128]


def test_numbers_that_a_silo_lacks_weigh_nothing() -> None:
    scalars = [{"loss": 2.0, "gain": None}, {"loss": math.nan, "gain": 3.0}, {"loss": math.inf}]
    sums = sums_of(*(Update(10.0, {"delta": drawn(1)}, one) for one in scalars))
    tail = sums.own(["delta"], ["absent", "gain", "loss"])[-1]
    assert len(tail) == 3 * PER_SCALAR + SENTINELS
    assert tail[:PER_SCALAR].tolist() == [0] * PER_SCALAR
    unit = [Fraction(2) ** (40 * nth - 100) for nth in range(DIGITS)]
    for nth, expected in ((1, (30, 10)), (2, (20, 10))):
        digits = tail[nth * PER_SCALAR : (nth + 1) * PER_SCALAR].view(2, DIGITS).tolist()
        assert tuple(sum(d * u for d, u in zip(one, unit, strict=True)) for one in digits) == expected
    assert tail[-SENTINELS:].tolist() == [1, 3]


def header(silo: int, **more: Any) -> Header:
    given = {"vectors": {"delta": VectorHeader(length=40, window=None)}, "sealed": ["loss"], "weight": 1.0}
    return Header(silo=silo, **{**given, **more})


GOOD: dict[str, Any] = {"vectors": {"delta": 7}, "scalars": ["loss"], "offer": None}
HOSTILE: dict[str, tuple[list[Any], str]] = {
    "nothing": ([], "tells 0 times"),
    "twice": ([GOOD, GOOD], "tells 2 times"),
    "a number": ([5], "cannot be read"),
    "null": ([None], "cannot be read"),
    "a text": (["part"], "cannot be read"),
    "an unknown key": ([{**GOOD, "more": 1}], "cannot be read"),
    "no vectors": ([{**GOOD, "vectors": {}}], r"not those that its headers tell of \('delta'\)"),
    "another vector": ([{**GOOD, "vectors": {"delta": 1, "gamma": 2}}], r"\('gamma'\)"),
    "an unprintable name": ([{**GOOD, "vectors": {"\x1b[2J": 2}}], "cannot be read"),
    "a long name": ([{**GOOD, "vectors": {"x" * 1000: 2}}], "cannot be read"),
    "many vectors": ([{**GOOD, "vectors": {f"v{k}": k for k in range(300)}}], "cannot be read"),
    "a handle of text": ([{**GOOD, "vectors": {"delta": "7"}}], "cannot be read"),
    "half a handle": ([{**GOOD, "vectors": {"delta": 7.5}}], "cannot be read"),
    "no number": ([{**GOOD, "scalars": []}], r"numbers are not those .*\('loss'\)"),
    "another number": ([{**GOOD, "scalars": ["gain", "loss"]}], r"\('gain'\)"),
    "many numbers": ([{**GOOD, "scalars": [f"s{k}" for k in range(10_000)]}], "cannot be read"),
    "an offer of text": ([{**GOOD, "offer": "key"}], "cannot be read"),
    "an offer of a list": ([{**GOOD, "offer": [1]}], "cannot be read"),
    "an offer unasked": ([{**GOOD, "offer": {"key": "0" * 64}}], "masks its sum, or does not, otherwise"),
}


def sum_of(how: FixedSums = HOW) -> FixedSum:
    return FixedSum(how, Memory(shared=False))


@pytest.mark.parametrize("what", HOSTILE)
def test_a_part_that_is_none_is_refused_in_a_line(what: str) -> None:
    parts, line = HOSTILE[what]
    with pytest.raises(ValueError, match=line) as refused:
        sum_of().accept(None, 3, parts, [header(0), header(1)])  # type: ignore[arg-type]
    told = Done(silo=0, fault=str(refused.value)).fault or ""
    assert told.isprintable()
    assert len(told) < 400


def test_a_rank_without_answers_has_no_part() -> None:
    sum_of().accept(None, 3, [], [])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tells 1 times"):
        sum_of().accept(None, 3, [GOOD], [])  # type: ignore[arg-type]


def test_under_masks_a_part_without_an_offer_is_refused() -> None:
    masked = FixedSums(128.0, lambda work: 1.0, 3, masks=True)
    with pytest.raises(ValueError, match="masks its sum, or does not"):
        sum_of(masked).accept(None, 3, [GOOD], [header(0)])  # type: ignore[arg-type]


@pytest.mark.parametrize("handle", [-1, 1 << 40, 1 << 63, 10**30])
def test_a_handle_that_is_no_number_of_a_file_is_refused(handle: int) -> None:
    with pytest.raises(ValueError, match=r"vectors\.delta"):
        part_of(json.loads(json.dumps([{**GOOD, "vectors": {"delta": handle}}])), [header(0)])


def test_a_plan_has_the_weights_of_those_who_have_a_vector() -> None:
    reports = {
        1: Report(headers=[header(0, weight=10.0), header(1, weight=30.0)], parts=[GOOD]),
        2: Report(headers=[header(2, weight=5.0)], parts=[GOOD]),
        3: Report(),
    }
    plan = plan_of(reports)
    assert plan.parties == {1: PartyPlan(**GOOD), 2: PartyPlan(**GOOD)}
    assert [(v.name, v.length, v.total) for v in plan.vectors] == [("delta", 40, 45.0)]
    assert plan.scalars == ["loss"]
    assert plan_of(reports, least=3).scalars == []


def test_noise_is_for_masked_sums_alone_and_what_is_beyond_the_range_is_cut() -> None:
    """A silo that failed would tell, without noise, that an element is beyond the range."""
    noised = Update(weight=1.0, vectors={"w": torch.tensor([0.5, 1e6, -1e6])}, noise={"w": 1.0})
    with pytest.raises(ValueError, match="'w' is to have noise in its sum, which masked sums alone have"):
        sums_of(noised)
    with pytest.raises(ValueError, match="'w' is to have noise in its sum"):
        WeightedMean(torch.device("cpu"), Memory(shared=False)).accumulate(0, noised)
    for range in (128.0, 0.1):  # of which the float32 that is nearest is beyond it
        masked = replace(HOW, masks=True, masking=Trusting(), range=range)
        most = np.nextafter(np.float32(range), np.float32(0)) if range < 1 else np.float32(range)
        cut = Update(weight=1.0, vectors={"w": torch.tensor([min(0.5, most), most, -most])})
        assert sums_of(noised, how=masked).vectors["w"].equal(sums_of(cut, how=masked).vectors["w"])
    for odd in (torch.inf, torch.nan):
        update = Update(weight=1.0, vectors={"w": torch.tensor([0.5, odd])}, noise={"w": 1.0})
        with pytest.raises(ValueError, match="'w' holds"):
            sums_of(update, how=masked)


@pytest.mark.parametrize("counted", [1, 2, 3])
def test_a_sum_over_more_or_fewer_silos_than_count_is_not_whole(counted: int) -> None:
    sums = FixedSum(HOW, Memory(shared=False))
    sums.begin(REQUEST, {}, [])
    delta = PlannedVector(name="delta", length=3, combined="weighted", total=1.0)
    plan = SumPlan(vectors=[delta], scalars=[], parties={1: PartyPlan(vectors={"delta": 7}, scalars=[])})
    total = torch.tensor([0, 0, 0, 1, counted])  # the sum of one party, over so many silos
    found = sums._result(plan, {"delta": total}, {1: torch.tensor([1, 2])}, silos=2)
    assert (found is not None) is (counted == 2)
