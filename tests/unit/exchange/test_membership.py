"""Whom the server relies on: who was late, or not true, carries nothing for others in the next request."""

from mpifl.exchange.admission import Refusal
from mpifl.exchange.membership import Membership
from mpifl.wire import Compute, Report


def test_a_rank_whose_answer_was_refused_is_relied_on_anew_after_a_true_one() -> None:
    members = Membership({1: [0], 2: [1], 3: [2]})
    members.timed_out, members.silent = {1}, {2}
    members.record(Compute(work="train", cohort=[0, 1, 2]), {3: Refusal(headers=[])})
    assert members.unreliable == {1, 2, 3}
    members.record(Compute(work="train", cohort=[0, 1, 2]), {3: Report(headers=[])})
    assert members.unreliable == {1, 2}


def test_after_a_death_no_number_of_a_rank_is_an_old_one() -> None:
    members = Membership({1: [0], 2: [1], 3: [2]})
    members.timed_out, members.silent, members.refused = {1, 3}, {2, 3}, {1, 2, 3}
    members.about = {rank: {"was": str(rank)} for rank in (1, 2, 3)}
    members.renumber(range(1, 3), {0: 0, 1: 1, 3: 2})
    assert members.placed == {1: {0}, 2: {2}}
    assert (members.timed_out, members.silent, members.refused) == ({1, 2}, {2}, {1, 2})
    assert members.about == {1: {"was": "1"}, 2: {"was": "3"}}
