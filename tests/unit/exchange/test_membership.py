"""Whom the server relies on: who was late, or not true, carries nothing for others in the next request."""

from mpifl.exchange.server_side.admission import Refusal
from mpifl.exchange.server_side.membership import Membership
from mpifl.wire import Compute, Done, Report


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


def test_a_silo_that_could_not_move_is_pinned_if_its_new_rank_said_so() -> None:
    members = Membership({1: [0, 1], 2: [2], 3: [3]})
    members.timed_out = {3}
    headers = [Done(silo=silo, fault="no such file") for silo in range(4)]
    members.commit({0: 2, 1: 3}, [], headers)
    assert members.pinned == {0}, "rank 3 said nothing, and silos 2 and 3 were not to move"
    members.commit({1: 2}, [1], [Done(silo=1)])
    assert (members.pinned, members.homes[1]) == ({0}, 2)


def test_silos_that_stay_are_all_pinned() -> None:
    assert Membership({1: [0, 4], 2: [7]}, stay=True).pinned == {0, 4, 7}
    assert Membership({1: [0, 4], 2: [7]}).pinned == set()


def test_each_reason_alone_makes_a_rank_unreliable_and_lateness_alone_takes_silos_from_it() -> None:
    for reason in ("timed_out", "silent", "refused"):
        members = Membership({1: [0], 2: [1]})
        setattr(members, reason, {2})
        assert members.unreliable == {2}, reason
        assert members.responsive == ([1] if reason == "timed_out" else [1, 2]), reason
