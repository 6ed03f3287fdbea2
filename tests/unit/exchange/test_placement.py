"""Silos are spread evenly, by size and then by measured time."""

import itertools
import math
import random
import time

import pytest
from hypothesis import given, settings, strategies as st

from mpifl.exchange.server_side.membership import Membership
from mpifl.exchange.server_side.placement import GAIN, _moves, place, rebalance
from mpifl.exchange.server_side.workload import Workload
from mpifl.wire import Header, Nodes

sizes = st.lists(st.integers(1, 10_000), max_size=60)


@given(sizes, st.integers(1, 9))
def test_every_silo_is_placed_exactly_once_in_the_order_of_ids(silos, workers):
    placed = place(silos, range(1, workers + 1))
    assert list(placed) == list(range(1, workers + 1))
    assert sorted(itertools.chain(*placed.values())) == list(range(len(silos)))
    assert all(held == sorted(held) for held in placed.values())


def loads(silos, workers):
    return [sum(silos[k] for k in held) for held in place(silos, range(workers)).values()]


@given(sizes.filter(bool), st.integers(1, 9))
def test_no_worker_is_ahead_of_another_by_more_than_a_silo(silos, workers):
    held = loads(silos, workers)
    assert max(held) - min(held) <= max(silos)


@given(st.lists(st.integers(100, 200), min_size=40, max_size=90), st.integers(1, 9))
def test_silos_of_about_one_size_load_no_worker_over_four_thirds_of_its_share(silos, workers):
    assert max(loads(silos, workers)) <= 4 / 3 * sum(silos) / workers


@pytest.mark.parametrize("silos", [[5] * 12, [9, 7, 5, 4, 4, 3, 3, 1], [100, 1, 1, 1]])
def test_placement_is_the_same_every_time(silos):
    assert place(silos, [1, 2, 3]) == place(list(silos), range(1, 4))


def test_equal_silos_are_dealt_out_evenly():
    assert [len(held) for held in place([1] * 12, range(1, 5)).values()] == [3] * 4


def test_ten_thousand_silos_are_placed_at_once():
    silos = [random.Random(0).randint(1, 600) for _ in range(10_000)]
    began = time.process_time()
    place(silos, range(1, 65))
    assert time.process_time() - began < 0.5


seconds = st.dictionaries(st.integers(0, 30), st.floats(0.01, 10), min_size=1)


@given(seconds, st.integers(1, 5), st.randoms(use_true_random=False))
def test_silos_move_only_if_the_most_loaded_rank_gains_and_end_evenly(costs, ranks, shuffle):
    placed = {rank: set() for rank in range(1, ranks + 1)}
    for silo in costs:
        placed[shuffle.randint(1, ranks)].add(silo)
    before = {rank: sum(costs[k] for k in held) for rank, held in placed.items()}
    homes = rebalance(costs, placed)
    for silo, rank in homes.items():
        assert silo not in placed[rank]
        placed = {r: (held | {silo} if r == rank else held - {silo}) for r, held in placed.items()}
    after = {rank: sum(costs[k] for k in held) for rank, held in placed.items()}
    assert not homes or max(after.values()) <= (1 - GAIN) * max(before.values()) * (1 + 1e-9)
    assert sorted(itertools.chain(*placed.values())) == sorted(costs)


def test_a_rank_with_a_slow_silo_hands_others_over():
    assert rebalance({0: 6.0, 1: 1.0, 2: 1.0, 3: 1.0}, {1: {0, 1}, 2: {2, 3}}) == {1: 2}


def test_silos_that_may_not_move_count_all_the_same():
    assert rebalance({1: 1.0, 2: 1.0}, {1: {0, 1, 2}, 2: {3}}, {1: 2.0}) == {1: 2, 2: 2}


def test_silos_that_may_not_move_stay():
    assert rebalance({1: 1.0}, {1: {0, 1}, 2: {2, 3}}) == {}


def test_an_idle_rank_gets_work():
    assert rebalance({0: 1.0, 1: 1.0}, {1: {0, 1}, 2: set()}) in ({0: 2}, {1: 2})


def test_nothing_moves_where_there_is_one_rank():
    assert rebalance({0: 1.0, 1: 1.0}, {1: {0, 1}}) == {}


def test_ten_thousand_silos_are_balanced_at_once():
    began = time.process_time()
    homes = rebalance(
        {k: 1.0 + k % 7 for k in range(10_000)}, {1: set(range(6000)), 2: set(range(6000, 10_000))}
    )
    assert 100 < len(homes) < 1500
    assert time.process_time() - began < 10


awkward = st.sampled_from(
    [0.0, 5e-324, 0.1, math.nextafter(0.1, 1), math.nextafter(0.1, 0), 1e308, math.inf, math.nan]
)


@settings(deadline=None)
@given(st.lists(awkward | st.floats(0, 10), min_size=1, max_size=60), st.integers(1, 9))
def test_no_silo_moves_twice_whatever_was_measured(costs, ranks):
    """Times a unit in the last place apart, zeros, no numbers: each silo moves once at most."""
    placed = place([1] * len(costs), range(ranks))
    held = {rank: sorted((costs[silo], silo) for silo in silos) for rank, silos in placed.items()}
    loads = {rank: sum(cost for cost, _ in silos) for rank, silos in held.items()}
    moved = [silo for silo, _ in itertools.islice(_moves(held, loads), len(costs) + 1)]
    assert len(moved) == len({*moved})


@pytest.mark.parametrize(("silos", "ranks"), [(7, 2), (9, 2), (100, 7)])
def test_equal_silos_come_to_rest_at_every_speed(silos, ranks):
    """A silo whose cost was the gap up to rounding moved to and fro without end, at a third of all speeds."""
    placed = place([1] * silos, range(ranks))
    stream = random.Random(1)
    for cost in [stream.uniform(0.001, 1) for _ in range(500)]:
        held = {rank: sorted((cost, silo) for silo in there) for rank, there in placed.items()}
        loads = {rank: sum(cost for cost, _ in there) for rank, there in held.items()}
        assert len(list(itertools.islice(_moves(held, loads), silos + 1))) <= silos


@pytest.mark.parametrize("moves", [True, False])
def test_silos_that_each_have_a_vote_do_not_move_by_the_times_that_ranks_claim(moves):
    """Rank 3 says that it takes no time: it was given 13 of 24 silos, by which it outvotes all others."""
    membership = Membership({rank: range(8 * rank - 8, 8 * rank) for rank in (1, 2, 3)})
    workload = Workload([100] * 24, membership, moves=moves)
    seconds = {silo: 0.0 if silo in membership.placed[3] else 1.0 for silo in range(24)}
    for _ in range(10):
        workload.add([Header(silo=silo, weight=1.0, seconds=one) for silo, one in seconds.items()])
    one_node = Nodes([0, 0, 0, 0], 0)
    assert bool(workload.reassignments_with_state()) == moves
    assert bool(workload.reassignments(range(24), one_node)) == moves
