"""Which silos take part in a round: by size, by last losses, by the user's own selection."""

import json
import math
import sys
import types

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load_file
from unit.builders import Alone, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common import rng
from mpifl.common.errors import InputError, RoundLost
from mpifl.run.folder import serialization
from mpifl.run.job.job import check_job
from mpifl.run.job.tables.cohort_table import CohortTable
from mpifl.training.draw_cohort import LOSSES, Selector
from mpifl.training.loop import train
from mpifl.training.recovery import state_of
from mpifl.wings import wings_of
from mpifl.wire.update import Replica


@pytest.fixture(autouse=True)
def no_module_of_the_users(monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace())


def sample(cohort, sizes, seed, round):
    return Selector(cohort, sizes, Server([], seed, round=round)).select()


fractions = st.floats(0, 1)
populations = st.integers(1, 200)


@given(fractions, populations, st.integers(0, 99), st.integers(0, 999))
def test_a_cohort_is_so_many_different_silos_in_the_order_of_their_ids(fraction, population, seed, round):
    drawn = sample(CohortTable(fraction=fraction), [5] * population, seed, round)
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(population))
    assert all(type(silo) is int for silo in drawn)
    assert abs(len(drawn) - max(math.floor(fraction * population), 1)) <= (
        fraction * population % 1 > 1 - 1e-8
    )


@pytest.mark.parametrize(
    ("fraction", "population", "size"),
    [(0.0, 100, 1), (0.1, 100, 10), (0.29, 100, 29), (0.7, 10, 7), (1.0, 7, 7)],
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


def chosen(absent, losses, round=3, **table):
    """Select of seven silos whose last losses are known."""
    server = Server([], 11, round=round)
    selector = Selector(CohortTable(**table), SEVEN, server)
    selector.begin()
    selector.learn({silo: loss for silo, loss in enumerate(losses) if loss < math.inf})
    return selector.select(absent)


SEVEN = [10, 40, 20, 30, 15, 25, 60]
INF = math.inf


@given(st.floats(0.2, 1), st.integers(0, 99), st.integers(0, 999))
def test_uniform_and_by_examples_draw_the_bits_that_they_always_did(fraction, seed, round):
    size = max(int(fraction * 7 + 1e-9), 1)
    for select, chances in (("uniform", None), ("examples", np.divide(SEVEN, sum(SEVEN)))):
        stream = rng.numpy_stream(seed, "cohort", round)
        before = sorted(stream.choice(7, size, replace=False, p=chances).tolist())
        table = CohortTable(fraction=fraction, select=select)
        assert sample(table, SEVEN, seed, round) == before
        present, sizes = [0, 1, 3, 4, 6], [SEVEN[k] for k in (0, 1, 3, 4, 6)]
        stream, p = (
            rng.numpy_stream(seed, "cohort", round),
            chances if chances is None else np.divide(sizes, sum(sizes)),
        )
        before = sorted(
            present[k] for k in stream.choice(5, max(int(fraction * 5 + 1e-9), 1), replace=False, p=p)
        )
        assert Selector(table, SEVEN, Server([], seed, round=round)).select({2, 5}) == before


def in_numpy(losses, seed, round, candidates, count, sizes=SEVEN):
    """Cho, Wang & Joshi 2022, section 4, rpow-d, as the paper says it:
    candidates by p_k, then the largest losses."""
    p = np.array(sizes, float) / np.sum(sizes)
    drawn = rng.numpy_stream(seed, "cohort", round).choice(len(sizes), candidates, replace=False, p=p)
    # stable: ties stay as they were drawn
    ranked = sorted(drawn.tolist(), key=lambda k: losses[k], reverse=True)
    return sorted(ranked[:count])


a_loss = st.one_of(st.just(INF), st.sampled_from([0.0, 0.5, 2.0]), st.floats(-5, 5))


@given(st.lists(a_loss, min_size=7, max_size=7), st.integers(0, 99), st.integers(2, 7))
def test_power_of_choice_takes_the_largest_last_losses_of_candidates_drawn_by_size(losses, round, candidates):
    if min(losses) == INF:
        losses[0] = 1.0
    table = {"select": "power-of-choice", "candidates": candidates, "fraction": 0.3}
    assert chosen((), losses, round=round, **table) == in_numpy(losses, 11, round, candidates, 2)


def test_silos_not_seen_come_first_and_only_who_is_there_is_a_candidate():
    table = {"select": "power-of-choice", "candidates": 7, "fraction": 0.3}
    assert chosen((), [9.0, INF, 8.0, 7.0, INF, 6.0, 5.0], **table) == [1, 4]
    assert chosen({0, 2}, [9.0, 1.0, 8.0, 7.0, 0.0, 6.0, 5.0], **table) == [3]  # a third of five is one


def test_only_a_selection_that_looks_at_losses_has_the_server_keep_them():
    for select, more in (("uniform", {}), ("examples", {}), ("power-of-choice", {"candidates": 3})):
        server = Server([], 1, state={"w": 1, LOSSES: torch.zeros(7, dtype=torch.float64)})
        selector = Selector(CohortTable(select=select, **more), SEVEN, server)
        selector.begin()
        selector.learn({2: 5.0})
        kept = [0, 0, 5.0, 0, 0, 0, 0]
        assert {k: v.tolist() if k == LOSSES else v for k, v in server.state.items()} == (
            {"w": 1, LOSSES: kept} if more else {"w": 1}
        )


@pytest.mark.parametrize("kept", [None, 3.0, torch.zeros(6, dtype=torch.float64), torch.zeros(7)], ids=str)
def test_losses_that_are_of_other_silos_are_no_losses(kept):
    server = Server([], state={} if kept is None else {LOSSES: kept})
    Selector(CohortTable(select="power-of-choice", candidates=3), SEVEN, server).begin()
    assert server.state[LOSSES].tolist() == [INF] * 7


def test_silos_that_send_no_losses_cannot_be_chosen_by_them():
    selector = Selector(CohortTable(select="power-of-choice", candidates=3), SEVEN, Server([]))
    selector.begin()
    with pytest.raises(
        InputError, match=r"name no train_loss; have its silo's half return silo.update\(..., train"
    ):
        selector.learn({})
    selector.learn({4: 0.5})
    selector.learn({})  # a silo without a loss keeps its last one


def own(returned):
    """Have the user's selection return this, and select three of seven."""
    sys.modules["mine"] = types.SimpleNamespace(
        choose=lambda draw: returned, Chosen=type("Chosen", (), {}), three=3
    )
    return sample(CohortTable(select="mine:choose", fraction=0.45), SEVEN, 0, 1)


@pytest.mark.parametrize(
    "returned", [[5, 0, 3], (5, 0, 3), {5, 0, 3}, np.array([5, 0, 3], np.int32)], ids=str
)
def test_the_users_selection_returns_silos_in_any_order(returned):
    assert own(returned) == [0, 3, 5]
    assert all(type(silo) is int for silo in own(returned))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returned a NoneType; have it return a list of 3 silos"),
        (7, "returned a int; have it return a list of 3 silos"),
        (np.array([[0, 1, 2]]), "returned a ndarray; have it"),
        ([[0], [1], [2]], "returned [0], which is not a silo"),
        (np.array(3), "returned a ndarray; have it"),
        (["0", "1", "2"], "returned '0', which is not a silo; silos are whole numbers"),
        ([0, 1.0, 2], "returned 1.0, which is not a silo"),
        ([True, 1, 2], "returned True, which is not a silo"),
        ([0, 1, 7], "returned silo 7, which is not one of the 7 silos that can take part"),
        ([0, -1, 2], "returned silo -1, which is not one of the 7"),
        ([0, 3, 3], "returned silo 3 more than once"),
        ([0, 3], "returned 2 silos, and round 2 takes 3"),
        ([], "returned 0 silos, and round 2 takes 3"),
        ([0, 1, 2, 3], "returned 4 silos, and round 2 takes 3"),
    ],
    ids=str,
)
def test_wrong_silos_of_the_users_selection_are_named(returned, said):
    with pytest.raises(InputError) as error:
        own(returned)
    assert str(error.value).startswith(f"[cohort] select = 'mine:choose': {said}")
    assert "\n" not in str(error.value)


def test_the_users_selection_is_told_of_the_round():
    told = []
    sys.modules["mine"] = types.SimpleNamespace(choose=lambda draw: told.append(draw) or [1, 2])
    assert chosen({0}, [4.0, 2.0, INF, INF, 1.5, INF, INF], select="mine:choose", fraction=0.4) == [1, 2]
    (draw,) = told
    assert (draw.round, draw.count, draw.candidates) == (3, 2, None)
    assert draw.silos.tolist() == [1, 2, 3, 4, 5, 6]
    assert draw.sizes.tolist() == SEVEN[1:]
    assert draw.losses.tolist() == [2.0, INF, INF, 1.5, INF, INF]
    assert draw.stream.random() == rng.numpy_stream(11, "cohort", 3).random()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"select": "power"},
            "[cohort] select = 'power': unknown; did you mean 'power-of-choice'? use uniform, examples, ",
        ),
        ({"select": "no_such:thing"}, "[cohort] select = 'no_such:thing': No module named 'no_such'"),
        ({"select": "mine:Chosen"}, "[cohort] select = 'mine:Chosen': is a class; name a function of a draw"),
        (
            {"select": "mine:three"},
            "[cohort] select = 'mine:three': cannot be called; name a function of a draw",
        ),
        ({"select": "power-of-choice"}, "[cohort] select = 'power-of-choice' needs candidates"),
        (
            {"candidates": 3},
            "[cohort] candidates belongs to power-of-choice; leave it out with select = 'uniform'",
        ),
        ({"select": "power-of-choice", "candidates": 0}, "[cohort] candidates = 0: should be greater than 0"),
        ({"select": 3}, "[cohort] select = 3: should be a valid string"),
    ],
    ids=str,
)
def test_a_job_names_a_selection_that_there_is(table, said):
    own([0, 1, 2])
    with pytest.raises(InputError) as error:
        check_job(
            {"name": "toy", "shards": "x", "rounds": 1, "model": {"name": "logreg"}, "cohort": table},
            "toy.toml",
        )
    assert str(error.value).startswith(f"toy.toml: {said}")


def test_a_kept_job_names_a_selection_without_its_code_being_imported():
    job = {
        "name": "toy",
        "shards": "x",
        "rounds": 1,
        "model": {"name": "logreg"},
        "cohort": {"select": "no_such:one"},
    }
    assert check_job(job, "toy.toml", named=()).cohort.select == "no_such:one"


@pytest.mark.parametrize(("candidates", "right"), [(1, False), (2, True), (7, True), (8, False)])
def test_there_are_candidates_enough_for_a_round_and_silos_enough_for_candidates(candidates, right):
    table = CohortTable(select="power-of-choice", candidates=candidates, fraction=0.3)
    if right:
        return table.check(7)
    with pytest.raises(
        InputError, match="must be between 2, the silos of a round, and 7, all that there are"
    ):
        table.check(7)


@pytest.mark.parametrize(
    ("select", "weights", "total"),
    [
        ("uniform", "uniform", 7), ("uniform", "examples", 200), ("examples", "uniform", 200),
        ("power-of-choice", "uniform", 200), ("power-of-choice", "examples", 200),
        ("mine:choose", "uniform", 7), ("mine:choose", "examples", 200),
    ],
)  # fmt: skip
def test_what_silos_weigh_in_the_objective_follows_from_how_they_are_drawn_and_counted(
    select, weights, total
):
    more = {"candidates": 3} if select == "power-of-choice" else {}
    assert CohortTable(select=select, weights=weights, **more).total(SEVEN) == total


class Silent(FedAvg):
    """Its silos say nothing of their loss."""

    def train(self, silo, w):
        return silo.update(delta=0.1 * w)


@pytest.fixture
def run(tmp_path):
    """Return how to train a job of seven silos; returns what the server knows at its last checkpoint."""
    write_folder(tmp_path / "shards", SEVEN)
    usual = {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "rounds": 2,
        "device": "cpu",
        "model": {"name": "logreg"},
    }

    def act(resume=False, force=False, **tables):
        job = {**usual, "checkpoint": {"every": 1}, "local": {"lr": 0.1}, **tables}
        (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
        train(tmp_path / "job.toml", tmp_path / "run", (), resume, Alone(), force, wings_of=wings_of)
        return load_file(
            tmp_path / "run" / "checkpoints" / f"round_{job['rounds']:06d}" / "server.safetensors"
        )

    return act


BY_LOSSES = {"select": "power-of-choice", "candidates": 5, "fraction": 0.3, "weights": "uniform"}


def test_a_run_that_goes_on_with_another_selection_begins_with_no_losses(run):
    assert run(cohort={"fraction": 0.3}).keys() == {"w"}
    with pytest.raises(InputError, match=r"differs in cohort\.candidates, cohort\.select, cohort\.weights"):
        run(cohort=BY_LOSSES, rounds=3, resume=True)
    losses = run(cohort=BY_LOSSES, rounds=3, resume=True, force=True)[LOSSES]
    assert int(losses.isfinite().sum()) == 2
    losses = run(cohort={**BY_LOSSES, "candidates": 6}, rounds=4, resume=True, force=True)[LOSSES]
    assert int(losses.isfinite().sum()) > 2
    assert run(cohort={"fraction": 0.3}, rounds=5, resume=True, force=True).keys() == {"w"}


def largest(draw):
    """Select the largest silo, as a user's own."""
    return [int(draw.silos[draw.sizes.argmax()])]


def test_a_deadline_leaves_late_silos_out_and_where_nobody_is_in_time_the_run_ends_with_one_line(
    run, tmp_path
):
    local, small, large = {"lr": 0.1, "batch_size": 1}, float(min(SEVEN)), float(max(SEVEN))
    clock = {"speeds": "uniform", "slowest": 1.0, "fastest": 1.0}  # so that an example takes a second

    def told():
        records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
        return [(record["virtual_seconds"], len(record.get("late", []))) for record in records]

    with pytest.raises(InputError, match=f"none of 7 silos of round 1 would .* give at least {small:g}$"):
        run(local=local, clock={**clock, "deadline": small - 0.5})
    run(local=local, clock={**clock, "deadline": small})
    late = 7 - list(SEVEN).count(small)
    assert told() == [(small, late), (2 * small, late)], "the time of those that take part"
    more = {"local": local, "rounds": 3, "resume": True, "force": True}
    own = {"select": "unit.training.test_selection:largest", "fraction": 0.1}
    with pytest.raises(
        RoundLost, match=f"none of 1 silo of round 3 would .* {large:g}, with --force; a check"
    ):
        run(cohort=own, clock={**clock, "deadline": small}, **more)
    run(cohort=own, clock={**clock, "deadline": large}, **more)
    assert told()[2:] == [(2 * small + large, 0)], "the clock goes on from the checkpoint"
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["drawn"] == [str(list(SEVEN).index(max(SEVEN)))], "who trained, where not all did"


def test_losses_are_those_of_the_silos_last_accepted_training(run):
    told = []

    def choose(draw):
        told.append(draw.losses.copy())
        return [draw.round, 6]

    sys.modules["mine"] = types.SimpleNamespace(choose=choose)
    losses = run(cohort={"select": "mine:choose", "fraction": 0.3}, rounds=3)[LOSSES].numpy()
    assert [np.isfinite(known).nonzero()[0].tolist() for known in told] == [[], [0, 6], [0, 1, 6]]
    assert np.isfinite(losses).nonzero()[0].tolist() == [0, 1, 2, 6]
    assert len({known[6] for known in (*told, losses)}) == 4
    assert losses[0] == told[1][0] == told[2][0]


def test_wrong_silos_end_the_run_in_one_line(run):
    sys.modules["mine"] = types.SimpleNamespace(choose=lambda draw: [2, 2 + draw.round])
    with pytest.raises(
        InputError, match=r"^\[cohort\] select = 'mine:choose': returned silo 2 more than once$"
    ):
        run(cohort={"select": "mine:choose", "fraction": 0.3})


def test_an_algorithm_without_losses_ends_a_run_that_goes_by_them(run):
    sys.modules["mine"] = types.SimpleNamespace(Silent=Silent)
    with pytest.raises(InputError, match="updates name no train_loss"):
        run(cohort=BY_LOSSES, algorithm={"name": "mine:Silent"})


def test_too_few_candidates_are_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(
        InputError, match=r"job\.toml: \[cohort\] candidates = 8: must be between 2, .* and 7, all"
    ):
        run(cohort={**BY_LOSSES, "candidates": 8})
    assert not (tmp_path / "run").exists()


def test_a_mirror_holds_the_last_losses():
    state = {"w": torch.ones(3), LOSSES: torch.tensor([INF, 0.5], dtype=torch.float64)}
    packed = serialization.pack(
        {**state, "round of the mirror": 4}, lambda n, dtype: torch.empty(n, dtype=dtype)
    )
    found = state_of(Replica(4, {}, packed))
    assert found[LOSSES].tolist() == [INF, 0.5]
