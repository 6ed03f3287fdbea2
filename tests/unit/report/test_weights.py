"""What the report says of the weights of silos."""

from pathlib import Path

import pytest

from mpifl.common import Names
from mpifl.common.pages import Said
from mpifl.report.judging.rule_weights import WHY_LITTLE, edges_of_silos, weights_of_silos
from mpifl.report.judging.suspicion import ROUNDS
from mpifl.report.pages.trust_section import trust
from mpifl.report.runs.run_summary import Summary


def rows_of(rule, *rounds):
    records = [{"round": n, "weights": weights} for n, weights in enumerate(rounds, 1)]
    return weights_of_silos(records, rule, Names(["north", "south", "west"]))


LITTLE = {"0": 0.45, "1": 0.45, "2": 0.1}


@pytest.mark.parametrize(("rounds", "word"), [(ROUNDS, "suspected"), (ROUNDS - 1, "")])
def test_a_silo_of_little_weight_in_five_rounds_is_suspected(rounds, word):
    assert rows_of("rfa", *[LITTLE] * rounds)[0] == ["west", str(rounds), "0.30", "0", word]
    records = [{"round": n, "weights": LITTLE} for n in range(1, rounds + 1)]
    summary = Summary(Path("run"), records, job={"aggregation": {"rule": "rfa"}})
    words = [block.text for block in trust(summary, Names([])).blocks if isinstance(block, Said)]
    assert (WHY_LITTLE in words) == bool(word), "why stands there"


def test_one_round_of_usual_weight_takes_the_suspicion_away():
    equal = {"0": 1 / 3, "1": 1 / 3, "2": 1 / 3}
    assert [row[-1] for row in rows_of("rfa", *[LITTLE] * 9, equal, *[LITTLE] * 4)] == [""] * 3


def test_by_krum_a_silo_is_not_chosen_and_not_suspected():
    rows = rows_of("krum", *[{"0": 1.0, "1": 0.0, "2": 0.0}] * 6)
    told = [(row[0], row[3], row[4]) for row in rows]
    assert told == [
        ("south", "6", ""),
        ("west", "6", ""),
        ("north", "0", ""),
    ]


@pytest.mark.parametrize("weights", [{}, {"0": None, "1": "x"}, {"0": 0.0}, {"0": 1e308, "1": 1e308}])
def test_what_are_no_weights_is_left_out(weights):
    assert all(row[-1] == "" for row in rows_of("rfa", weights))


def edges(*rounds):
    return edges_of_silos([{"outside": outside} for outside in rounds], Names(list("abcdefg")))


USUAL = {str(k): 0.30 + 0.01 * k for k in range(6)}
"""With a seventh above them: median 0.33, median distance 0.02, so that 0.41896 is three deviations away."""


@pytest.mark.parametrize(("share", "word"), [(0.4190, "suspected"), (0.4189, "")])
def test_a_silo_that_is_often_at_the_edges_in_five_rounds_is_suspected(share, word):
    found = edges(*[{**USUAL, "6": share}] * ROUNDS)
    assert found[0] == ["g", "5", f"{share:.1%}", "33.0%", word]
    assert [row[-1] for row in found[1:]] == [""] * 6
    assert edges(*[{**USUAL, "6": share}] * (ROUNDS - 1))[0][-1] == ""


@pytest.mark.parametrize("outside", [{}, {"0": None, "1": "x"}, {"0": 0.5}])
def test_what_are_no_shares_is_left_out(outside):
    assert all(row[-1] == "" for row in edges(outside))
