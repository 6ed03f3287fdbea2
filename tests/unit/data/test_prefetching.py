"""What is made ahead: the same, in order, by another thread, one at a time."""

from __future__ import annotations

import threading
import time

import pytest

from mpifl.data.batches.prefetching import ahead

PATIENCE = 10.0


@pytest.mark.parametrize("by_a_thread", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_all_are_made_in_their_order(count: int, by_a_thread: bool) -> None:
    given = [(number, 10) for number in range(count)]
    assert list(ahead(lambda a, b: a + b, given, by_a_thread=by_a_thread)) == [10 + n for n in range(count)]


def test_the_next_one_is_made_meanwhile_and_none_behind_it() -> None:
    begun = [threading.Event() for _ in range(3)]
    made = ahead(lambda number: begun[number].set(), [(0,), (1,), (2,)], by_a_thread=True)
    next(made)
    assert begun[1].wait(PATIENCE)
    time.sleep(0.05)
    assert not begun[2].is_set()
    next(made)
    assert begun[2].wait(PATIENCE)


def test_without_a_thread_none_is_made_before_it_is_asked_for() -> None:
    made: list[int] = []
    next(ahead(made.append, [(0,), (1,)], by_a_thread=False))
    assert made == [0]


def test_an_error_comes_where_its_result_would_and_the_thread_ends() -> None:
    made = ahead(lambda number: 1 // number, [(2,), (1,), (0,), (1,)], by_a_thread=True)
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(made)
    assert not any(thread.name.startswith("mpifl-ahead") for thread in threading.enumerate())


def test_who_stops_early_leaves_no_thread() -> None:
    made = ahead(int, [(1,), (2,), (3,)], by_a_thread=True)
    next(made)
    made.close()
    assert not any(thread.name.startswith("mpifl-ahead") for thread in threading.enumerate())
