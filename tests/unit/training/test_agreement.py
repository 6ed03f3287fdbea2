"""What ranks agree on before a training, where messages wait for who takes them."""

import pytest

from mpifl.common.errors import InputError
from mpifl.common.names import Names
from mpifl.training.rank_agreement import Readiness, agree_on
from mpifl.wire import Report

NAMES = Names(["north", "south"])


class Server:
    """The server's end of a world whose MPI buffers nothing: a rank hears nothing before its report is
    taken."""

    is_server = True

    def __init__(self, *said):
        self.left, self.told = [one.encode() for one in said], None

    def reports(self, is_stale):
        for rank in range(1, 1 + len(self.left)):
            if not is_stale(record := self.left.pop(0)):
                yield rank, record

    def broadcast_record(self, record):
        assert not self.left, "ranks wait until their reports are taken"
        self.told = record.decode()
        return record


def test_the_servers_own_problem_waits_for_no_buffer():
    server = Server(Readiness(), Readiness(problem="theirs"))
    with pytest.raises(InputError, match=r"^mine$"):
        agree_on(server, "mine", {}, NAMES)
    assert server.told == "mine"


def test_a_report_of_an_earlier_training_is_none_of_this_one():
    server = Server(Report(serial=7), Readiness(), Readiness(problem="theirs"))
    with pytest.raises(InputError, match=r"^theirs$"):
        agree_on(server, "", {}, NAMES)
