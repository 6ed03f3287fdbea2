"""Lines of a dialogue in a node's memory: what a rank says of them is looked at before it is believed."""

import math
import os
import struct

import pytest
import torch

from mpifl.wings.split import SplitMessages
from mpifl.wire.launching.joining import world
from mpifl.wire.nodes import Neighbour
from mpifl.wire.pipeline import KEPT
from mpifl.wire.point_to_point import MOST_STALE
from mpifl.wire.stamped_vectors import SHARE
from mpifl.wire.transport import DONE, LINE_UP, Transport

SERIAL, LIMIT, LENGTH = 5, 8000, 6000


@pytest.fixture(scope="module")
def transport():
    alone = Transport(world()._comm.Dup())
    alone.nodes.neighbours[0] = Neighbour(os.getpid(), alone._doorbell.token)  # as on a node with more ranks
    return alone


def heard(transport, handle, length, silo=3, number=7, serial=SERIAL):
    transport.post(0, struct.pack("<QIIQQ", serial, silo, number, length, handle), LINE_UP)
    return SplitMessages(transport, SERIAL).hear(0, LIMIT)


@pytest.fixture
def lying(transport):
    memory = type(transport.memory)(shared=True)
    vector = memory.empty(LENGTH, torch.uint8)
    return vector.copy_(torch.arange(LENGTH) % 251), memory.handle(vector), memory


def test_a_line_in_memory_is_what_its_rank_put_there_and_stays_so(transport, lying):
    vector, handle, _ = lying
    wanted = bytes(vector.numpy())
    line = heard(transport, handle, LENGTH)
    vector.zero_()
    assert (line.silo, line.number, bytes(line.payload)) == (3, 7, wanted)
    torch.frombuffer(line.payload, dtype=torch.uint8).zero_()  # it can be written to


@pytest.mark.parametrize("length", [LENGTH + 1, LIMIT])
def test_a_line_that_is_longer_than_its_memory_is_refused(transport, lying, length):
    with pytest.raises(ValueError, match=f"{LENGTH} bytes, not {length}"):
        heard(transport, lying[1], length)


@pytest.mark.parametrize("handle", [1, 10**6, 2**64 - 1])
def test_a_line_in_no_memory_is_refused(transport, handle):
    with pytest.raises(ValueError, match="not where it says"):
        heard(transport, handle, LENGTH)


@pytest.mark.parametrize(("length", "serial"), [(LIMIT + 1, SERIAL), (2**63, SERIAL), (LENGTH, SERIAL + 1)])
def test_a_line_that_is_too_long_or_of_another_request_is_not_looked_for(transport, lying, length, serial):
    with pytest.raises(ValueError, match="at most 8000"):
        heard(transport, lying[1], length, serial=serial)


def test_a_line_of_a_request_that_was_given_up_is_passed_over(transport, lying):
    transport.post(0, struct.pack("<QIIQQ", SERIAL - 1, 0, 0, LENGTH, 10**6), LINE_UP)
    assert len(heard(transport, lying[1], LENGTH).payload) == LENGTH


def of_done(transport, serial):
    transport.post(0, serial.to_bytes(8, "little"), DONE)
    return lambda: transport._has_done(0, SERIAL, None)


def of_kept(transport, serial):
    transport.post(0, struct.pack("<q?", serial, True), KEPT)
    return lambda: transport._kept(0, SERIAL, None) is True


def of_share(transport, serial):
    transport.post(0, struct.pack("<qq", serial, 0) + b"1234", SHARE)
    return lambda: transport._stamped(0, SHARE, (SERIAL, 0), 4, None) == b"1234"


@pytest.mark.parametrize("post", [of_done, of_kept, of_share])
def test_a_rank_that_sends_of_earlier_exchanges_without_end_holds_nobody_up(transport, post):
    """No deadline bites while messages come: so many are passed over in one wait, and no more."""
    for _ in range(MOST_STALE + 3):
        post(transport, SERIAL - 1)
    came = post(transport, SERIAL)
    assert [came(), came()] == [False, True]


def test_lines_of_earlier_requests_without_end_are_refused(transport):
    for _ in range(MOST_STALE):
        transport.post(0, struct.pack("<QIIQQ", SERIAL - 1, 3, 7, 0, 0), LINE_UP)
    with pytest.raises(ValueError, match="line after line"):
        heard(transport, 0, 0)
    assert SplitMessages(transport, SERIAL).hear(0, LIMIT).number == 7


@pytest.mark.parametrize("until", [0.0, -math.inf, math.nan, 5e-324])
def test_a_wait_until_a_time_that_is_none_looks_once(transport, until):
    looks = []
    assert not transport._until(lambda: looks.append(1), until=until)
    assert len(looks) == 1
