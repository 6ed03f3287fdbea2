"""What the leader of a crew believes of its followers' answers."""

import pytest
from hypothesis import given, settings, strategies as st

from mpifl.wings.crews.crew_gradients import Answer, Leader
from mpifl.wire.memory import Memory


class Answering:
    """The leader's end of a crew of two whose follower answers these serial numbers."""

    followers = (1,)

    def __init__(self, serials):
        self.memory = Memory(shared=False)
        self.serials = iter(serials)

    def await_answer(self, follower):
        return Answer(serial=next(self.serials)).encode()


def leader(serials, asked):
    built = Leader(Answering(serials), [], 2)
    built._serial = asked
    return built


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 50), st.data())
def test_answers_that_were_not_waited_for_are_passed_over(asked, data):
    earlier = data.draw(st.lists(st.integers(0, asked - 1), max_size=asked - 1))
    leader([*earlier, asked], asked)._await(1)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 50), st.data())
def test_a_follower_answers_no_more_often_than_it_was_asked(asked, data):
    wrong = data.draw(st.lists(st.integers(0, 99).filter(lambda n: n != asked), min_size=asked))
    with pytest.raises(RuntimeError, match="was not asked"):
        leader(wrong, asked)._await(1)
