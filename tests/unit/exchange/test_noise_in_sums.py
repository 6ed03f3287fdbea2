"""The noise that parties add to their sums, against what the Gaussian mechanism asks of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from unit.exchange.test_party import EVERYONE, HOSTED, World

from mpifl.common import InputError
from mpifl.wings.masked import SENTINELS
from mpifl.wings.masked.fixed_plan import PlannedVector

LENGTH = 30_000
DEVIATION = 2.0**30
"""Of the noise of the sum, in its grid."""


def noise_of(folder: Path, rank: int = 2, deviation: float = DEVIATION, answer: str = "a", **more) -> Tensor:
    """Return what a party of a fresh world adds to a sum of nothing."""
    keys = {key: more.pop(key) for key in ("least", "colluding", "drawn") if key in more}
    world = World(folder, **{"least": 1, **keys})
    return added(world, rank, deviation, answer, **more)


def added(world: World, rank: int, deviation: float = DEVIATION, answer: str = "a", **more) -> Tensor:
    sums = [torch.zeros(LENGTH + SENTINELS, dtype=torch.int64), torch.zeros(12, dtype=torch.int64)]
    vector = PlannedVector(name="delta", length=LENGTH, combined="weighted", total=7.0)
    usual = world.question(rank)
    plan = usual.plan.model_copy(update={"vectors": [vector]})
    answers = {silo: f"{answer} {silo}" for silo in HOSTED[rank]}
    more = {"plan": plan, **more}
    world.ask(rank, sums=sums, noise=[deviation], answers=answers, **more)
    assert sums[0][-SENTINELS:].tolist() == [0, 0]
    assert not sums[1].any()
    return sums[0][:-SENTINELS]


def correlation(one: Tensor, other: Tensor) -> float:
    return float(np.corrcoef(one.double(), other.double())[0, 1])


def test_the_same_question_has_the_same_noise_and_any_other_its_own(tmp_path: Path) -> None:
    first = noise_of(tmp_path / "a")
    assert first.equal(noise_of(tmp_path / "b"))
    world = World(tmp_path / "c", least=1)
    usual = world.question(2)
    other_round = usual.request.model_copy(update={"round": 4, "serial": 77})
    others = {
        "answer": noise_of(tmp_path / "d", answer="b"),
        "silo": noise_of(tmp_path / "e", rank=3),
        "set": noise_of(tmp_path / "f", without=0),
        "model": noise_of(tmp_path / "g", message="another model"),
        "round": noise_of(tmp_path / "h", request=other_round),
        "size": noise_of(tmp_path / "i", deviation=2 * DEVIATION),
        "those who collude": noise_of(tmp_path / "j", colluding=0.6),
    }
    for name, found in others.items():
        assert abs(correlation(first, found)) < 5 / math.sqrt(LENGTH), name


def test_a_rank_adds_the_same_noise_for_its_silos_as_two_ranks_would(tmp_path: Path) -> None:
    """So what is trained does not depend on who hosts whom."""
    together = added(World(tmp_path, least=1), 1)
    assert len(HOSTED[1]) == 2
    assert float(together.double().std()) / (DEVIATION * math.sqrt(2 / 5)) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("parties", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("colluding", [1 / 3, 0.5])
def test_the_noise_is_normal_and_enough_without_those_who_collude(
    tmp_path: Path, parties: int, colluding: float
) -> None:
    ranks = list(HOSTED)[1 : parties + 1]  # which host one silo each
    cohort = [HOSTED[rank][0] for rank in ranks]
    world = World(tmp_path, drawn=cohort, least=1, colluding=colluding)
    shares = [added_among(world, rank, cohort) for rank in ranks]
    hidden = math.floor(colluding * parties)
    whole = sum(shares) / DEVIATION
    honest = sum(shares[hidden:]) / DEVIATION
    room = 5 * math.sqrt(2 / LENGTH)  # five standard errors of a variance
    assert float(whole.var()) == pytest.approx(parties / (parties - hidden), rel=room)
    assert float(honest.var()) > 1 - room
    assert stats.kstest((whole / math.sqrt(parties / (parties - hidden))).numpy(), "norm").pvalue > 1e-3


def added_among(world: World, rank: int, cohort: list[int]) -> Tensor:
    question = world.question(rank, cohort)
    vector = PlannedVector(name="delta", length=LENGTH, combined="weighted", total=float(len(cohort)))
    plan = question.plan.model_copy(update={"vectors": [vector]})
    return added(world, rank, cohort=cohort, plan=plan).double()


@pytest.mark.parametrize("exponent", [20, 45, 52, 55])
def test_the_low_bits_of_the_noise_are_uniform_however_large_it_is(tmp_path: Path, exponent: int) -> None:
    """So the low bits of a sum show nothing of the data; floats have 53 bits, and a sum has 62."""
    bits = 3
    found = noise_of(tmp_path, deviation=2.0**exponent * math.sqrt(5)) & (2**bits - 1)
    counts = np.bincount(found.numpy(), minlength=2**bits)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_large_noise_is_normal_too(tmp_path: Path) -> None:
    found = noise_of(tmp_path, deviation=2.0**55 * math.sqrt(5)).double() / 2.0**55
    assert stats.kstest(found.numpy(), "norm").pvalue > 1e-3
    assert set(EVERYONE) == {silo for silos in HOSTED.values() for silo in silos}


@pytest.mark.parametrize(
    ("exponent", "line"),
    [(19.9, "'delta' would be lost in rounding; use a smaller range"), (57.1, "has no room in the sum")],
)
def test_noise_that_the_grid_does_not_hold_is_refused(tmp_path: Path, exponent: float, line: str) -> None:
    with pytest.raises(InputError, match=rf"\[security\] range = 128: the noise of .*{line}"):
        noise_of(tmp_path, deviation=2.0**exponent * (math.sqrt(5) if exponent < 57 else 1))
