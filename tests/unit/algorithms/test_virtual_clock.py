"""The virtual clock: who begins and who is done when, worked out by hand."""

from fractions import Fraction

import pytest
import torch
from unit.builders import make_silo, net

from mpifl.algorithms.arrival_groups import ArrivalGroups
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedbuff import FedBuff
from mpifl.algorithms.fedsam import FedSAM
from mpifl.algorithms.pfedme import PFedMe
from mpifl.algorithms.virtual_clock import ClockSettings, Pace, RoundClock, Schedule
from mpifl.common.errors import InputError
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps import LocalTraining


def schedule(times, waits=1, concurrency=None):
    """Silos that always take the same time."""
    return Schedule(
        len(times), lambda silo, *_: Fraction(times[silo]), waits, concurrency or len(times), seed=1
    )


def test_a_fast_silo_goes_on_from_each_new_model_and_a_slow_ones_update_grows_old():
    """Silo 0 takes 2 seconds, silo 1 takes 5: done are 0 at 2 and 4, 1 at 5, 0 at 6 and 8, both at 10."""
    found = [schedule([2.0, 5.0]).round(n) for n in range(7)]
    assert [one.seconds for one in found] == [2, 4, 5, 6, 8, 10, 10]
    assert found[0].events == {0: [None, 0], 1: [None]}
    assert found[1].events == {0: [None, 1]}
    assert found[2].events == {0: [None], 1: [0]}
    assert found[3].events == {1: [None], 0: [2]}
    assert found[5].events == {0: [None, 5]}, "of two at one moment the first by number is first"
    assert found[6].events == {0: [None], 1: [3]}
    assert [one.staleness for one in found] == [[0], [0], [2], [1], [0], [0], [3]]


def test_one_moment_is_one_however_it_was_reached():
    """Done at 1 are silo 0 by one step, silo 1 by ten of 0.1 s, silo 2 by three of 1/3 s: in this order."""
    speeds = [1.0, 10.0, 3.0]
    known = Schedule(3, lambda silo, *_: ClockSettings().took(1, speeds[silo], 7, silo, 0), 1, 3, seed=1)
    at_one = [n for n in range(20) if known.round(n).seconds == 1]
    assert at_one == [11, 12, 13], "after nine of silo 1 and two of silo 2"
    assert [known.round(n).staleness for n in at_one] == [[11], [1], [5]]


def test_a_round_of_a_buffer_has_a_fast_silo_twice():
    """Silo 0 is done at 1, 2, 3 and 4, silo 1 at 2.5: rounds of two end at 2, 3 and 5."""
    one, two = (schedule([1.0, 2.5], waits=2).round(n) for n in (0, 1))
    assert one.events == {0: [None, 0, None, 0], 1: [None]}
    assert (one.seconds, one.staleness) == (2, [0, 0])
    assert two.events == {0: [None, 1], 1: [0, None]}
    assert (two.seconds, two.staleness) == (3, [1, 0])


def test_no_more_silos_train_at_a_time_than_are_to():
    known = schedule([1.0, 1.5, 0.7, 3.0, 2.0], waits=3, concurrency=2)
    training = 0
    for n in range(30):
        for events in known.round(n).events.values():
            training += sum(1 if event is None else -1 for event in events)
        assert training == 1, "the last one's follower begins in the next round"
    assert {silo for n in range(30) for silo in known.round(n).events} == {0, 1, 2, 3, 4}


def test_any_round_may_be_asked_for_first():
    assert schedule([2.0, 5.0]).round(6) == [schedule([2.0, 5.0]).round(n) for n in range(7)][6]


@pytest.mark.parametrize("speeds", ["uniform", "log-uniform"])
def test_speeds_are_drawn_within_their_bounds_by_the_seed_alone(speeds):
    clock = ClockSettings(speeds=speeds, slowest=2.0, fastest=6.0)
    found = clock.speeds_of([f"s{n}" for n in range(200)], seed=3)
    assert 2 <= min(found) < 2.5 < 5.5 < max(found) <= 6
    assert found == clock.speeds_of([f"t{n}" for n in range(200)], seed=3)
    assert found != clock.speeds_of([f"s{n}" for n in range(200)], seed=4)


def test_each_training_of_a_silo_has_a_jitter_of_its_own():
    clock = ClockSettings(jitter=0.3)
    found = [clock.took(6, 2.0, 7, silo, nth) for silo in range(20) for nth in range(20)]
    assert len({*found}) == 400
    assert 2.1 <= min(found) < 2.16 < 3.84 < max(found) <= 3.9
    assert ClockSettings().took(6, 2.0, 7, 0, 0) == 3


def test_a_silo_without_a_speed_and_a_speed_without_a_silo_are_refused():
    with pytest.raises(
        InputError, match=r"\[clock\] speeds: no speed is given for silo 'b' and 1 more; give"
    ):
        ClockSettings(speeds={"a": 1.0}).speeds_of(["a", "b", "c"], 0)
    with pytest.raises(InputError, match=r"no silo is called 'bb'; did you mean 'b'\? the silos are a, b$"):
        ClockSettings(speeds={"a": 1.0, "bb": 3.0}).speeds_of(["a", "b"], 0)
    with pytest.raises(InputError, match=r"no silo is called 'x'; the silos are s0, .*, s7 and 2 more$"):
        ClockSettings(speeds={"x": 1.0}).speeds_of([f"s{n}" for n in range(10)], 0)


def test_a_silo_that_has_lost_what_it_kept_hands_over_what_it_makes_of_todays_model():
    model, done = FlatModel(net()), "[0]"
    w = model.trained.clone()
    kept = {"update": torch.ones_like(w), "begun": 0, "loss": 2.0}
    old = FedBuff().take_part(make_silo(model, round=3, state=kept), w, f'{{"0": {done}}}')
    assert old.vectors["delta"].tolist() == [0.5] * len(w), "of three rounds ago"
    assert old.scalars["train_loss"] == 2.0
    fresh = FedAvg().train(make_silo(model, round=3), w).vectors["delta"].clone()
    for state in ({}, {**kept, "begun": 1}):
        found = FedBuff().take_part(make_silo(model, round=3, state=state), w, f'{{"0": {done}}}')
        assert torch.equal(found.vectors["delta"], fresh)


def test_trainings_of_one_round_draw_other_orders():
    model = FlatModel(net())
    w, silo = model.trained.clone(), make_silo(model, n=40)
    one = FedBuff().take_part(silo, w, '{"0": [null, 0]}').vectors["delta"].clone()
    both = FedBuff().take_part(make_silo(model, n=40), w, '{"0": [null, 0, null, 0]}')
    assert both.scalars["handed_over"] == 2
    assert not torch.equal(both.vectors["delta"] - one, one)


class Stumbling:
    """Silo 0 takes 0.1 seconds a step, silo 1 0.2; the third training of silo 1 takes three times as long."""

    def seconds(self, silo, nth, steps):
        return Fraction(steps * (silo + 1), 10) * (3 if (silo, nth) == (1, 2) else 1)


def test_silos_arrive_in_groups_and_a_late_one_joins_the_next_step_of_the_server():
    known = ArrivalGroups(Stumbling(), 2, least=2, most=10, factor=1.5, momentum=0.9)
    found = [known.round(n) for n in range(7)]
    assert [one.seconds for one in found] == [1, 2, 2, 3, 4.5, 5.5, 6.5]
    assert found[0].events == {0: [None, 0], 1: [None]}, "a first arrival is a step by itself"
    assert found[1].events == {0: [None, 1]}
    assert (found[2].events, found[2].staleness) == ({0: [None], 1: [0]}, [2])
    assert (found[3].events, found[3].staleness) == ({1: [None, 3], 0: [2]}, [1, 0]), "both arrive at 3"
    assert found[3].steps == {1: [5, 5], 0: [10]}, "in the second that 10 steps of silo 0 take"
    assert found[4].events == {0: [None, 4], 1: [None]}, "silo 1 is not there at 4.5, the latest time"
    assert found[5].events == {0: [None, 5]}
    assert (found[6].events, found[6].staleness) == ({0: [None, 6], 1: [4, None]}, [2, 0]), "late, at 6"
    assert found[6].steps[1] == [5, 3], "at 0.56 s a step, until silo 0 could arrive again at 8"


def test_a_round_that_waits_takes_as_long_as_its_slowest_silo_and_a_deadline_leaves_that_one_out():
    """By epochs of 2, 3 and 5 steps at 1, 2 and 10 steps a second: 2, 1.5 and 0.5 seconds, and twice that."""
    silos, local = [("a", 20), ("b", 21), ("c", 50)], LocalTraining(batch_size=10)
    clock = ClockSettings(speeds={"a": 1.0, "b": 2.0, "c": 10.0})
    pace = Pace(clock, local, silos, seed=3)
    one, two = RoundClock(pace, FedAvg().gradients, 1.5), RoundClock(pace, FedSAM().gradients, 0.5)
    assert [one.seconds(silo, 0) for silo in range(3)] == [2, Fraction(3, 2), Fraction(1, 2)]
    assert [two.seconds(silo, 0) for silo in range(3)] == [4, 3, 1]
    assert PFedMe(inner_steps=3).gradients(5) == 15
    assert one.in_time([0, 1, 2], 0) == [1, 2], "who is done in the very moment is in time"
    assert two.in_time([0, 1, 2], 0) == []
    assert one.why_nobody([0, 2], 0) == one.why_nobody([], 0) == ""
    assert two.why_nobody([0, 1], 6) == (
        "[clock] deadline = 0.5: none of 2 silos of round 7 would be done by then; give at least 3"
    )
