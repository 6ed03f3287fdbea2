"""What the report says of the weights of silos."""

import pytest

from mpifl.common import Names
from mpifl.report.weights import ROUNDS, weights_of_silos


def rows_of(rule, *rounds):
    records = [{"round": n, "weights": weights} for n, weights in enumerate(rounds, 1)]
    return weights_of_silos(records, rule, Names(["north", "south", "west"]))


LITTLE = {"0": 0.45, "1": 0.45, "2": 0.1}


@pytest.mark.parametrize(("rounds", "word"), [(ROUNDS, "suspected"), (ROUNDS - 1, "")])
def test_a_silo_of_little_weight_in_five_rounds_is_suspected(rounds, word):
    assert rows_of("rfa", *[LITTLE] * rounds)[0] == ["west", str(rounds), "0.30", "0", word]


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
