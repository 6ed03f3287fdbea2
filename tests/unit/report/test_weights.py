"""What the report says of the weights of silos."""

from pathlib import Path

import pytest

from mpifl.common import Names
from mpifl.common.pages import Said
from mpifl.report.judging.rule_weights import WHY_LITTLE, edges_of_silos, weights_of_silos
from mpifl.report.judging.suspicion import ROUNDS
from mpifl.report.pages.happened import minded, verdict
from mpifl.report.pages.silos_section import silos
from mpifl.report.pages.trust_section import trust
from mpifl.report.runs import Held
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
    assert (WHY_LITTLE in words) == bool(word), "why stands there, and what to do"
    assert ("suspected of wrong updates: silo 2;" in "".join(minded(summary, Names([])))) == bool(word)


@pytest.mark.parametrize("values", [(0.9, 0.6, 0.7), (0.1, 0.6, 0.7), (0.9, 0.9, 0.7)])
def test_a_suspected_silo_is_not_praised_without_a_word(values):
    names, rest = ["west", "south", "north"], {"0": 0.1, "1": 0.45, "2": 0.45}
    scored = {name: {"accuracy": value} for name, value in zip(names, values, strict=True)}
    records = [{"round": n, "weights": rest, "silos": scored, "test_accuracy": 0.7} for n in range(1, 6)]
    summary = Summary(Path("run"), records, job={"aggregation": {"rule": "rfa"}})
    whole = {"west": "west (suspected)", "south, west": "west, south (suspected: west)"}
    said = verdict(summary, Names(names))[-1]
    equal = values[0] == values[1]
    assert (f"Silos {whole['south, west']} are the best" if equal else f"Silo {whole['west']} is the") in said
    assert "A score tells nothing of a silo's updates" in said
    table = silos(summary, Names(names), {}, None, {})[0][0].blocks[-1]
    told = {row[0].text: row[table.heads.index("trust")].text for row in table.rows}
    assert told == {"west": "suspected", "south": "", "north": ""}
    held = {name: Held(4, 100, {0: 95, 1: 5}) for name in names}
    below = verdict(summary, Names(names), held)[-1]
    assert "suspected" in below
    calm = Summary(Path("run"), [{**one, "weights": {}} for one in records])
    assert not any("suspected" in one or "A score tells" in one for one in verdict(calm, Names(names)))


def test_a_silo_that_is_best_and_below_guessing_has_both_said_of_it():
    scored = {"a": {"accuracy": 0.5}, "b": {"accuracy": 0.7}}
    summary = Summary(Path("run"), [{"round": 1, "silos": scored, "test_accuracy": 0.9}])
    held = {"a": Held(4, 1000, {0: 550, 1: 450}), "b": Held(4, 1000, {0: 950, 1: 50})}
    said = verdict(summary, Names(["a", "b"]), held)[-1]
    assert "Silo a (below guessing) is the worst" in said
    assert "Silo b (below guessing) is the best, with 70.00%" in said


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
