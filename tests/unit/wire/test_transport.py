"""Inside a node: who leads whom, memory that other ranks read, and bells that end a wait."""

import errno
import fcntl
import gc
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import python
from device.pages import Pages
from hypothesis import given, strategies as st

from mpifl.wire.doorbell import MOST_NOTIFICATIONS, Doorbell
from mpifl.wire.launching import deaths
from mpifl.wire.launching.deaths import survivable
from mpifl.wire.launching.joining import world
from mpifl.wire.launching.mpi_facts import facts
from mpifl.wire.memory import SEALS, Memory
from mpifl.wire.nodes import Nodes, children
from mpifl.wire.rank_platform import HERE

worlds = st.integers(1, 70)


@given(worlds)
def test_a_tree_of_nodes_reaches_each_once_from_its_parent(nodes):
    reached = [child for node in range(nodes) for child in children(node, nodes)]
    assert sorted(reached) == list(range(1, nodes))
    assert all(child & (child - 1) == node for node in range(nodes) for child in children(node, nodes))


@given(worlds)
def test_a_tree_is_as_deep_as_the_logarithm_of_its_nodes(nodes):
    assert max(node.bit_count() for node in range(nodes)) <= max(nodes - 1, 1).bit_length()


def test_each_node_is_led_by_its_lowest_rank():
    seen = [Nodes([0, 1, 0, 1, 2], rank) for rank in range(5)]
    assert [one.leader for one in seen] == [0, 1, 0, 1, 4]
    assert [one.leads for one in seen] == [True, True, False, False, True]
    assert [one.mine for one in seen] == [[0, 2], [1, 3], [0, 2], [1, 3], [4]]
    assert [one.followers for one in seen] == [[2], [3], [], [], []]
    assert [one.children for one in seen] == [[4, 1], [], [], [], []]
    assert [one.parent for one in seen][1:] == [0, 0, 1, 0]


def test_a_vector_that_nobody_refers_to_is_lent_again():
    memory = Memory(shared=True)
    vector = memory.empty(1000, torch.float32)
    handle, part = memory.handle(vector), vector[10:20]
    assert handle > 0
    del vector
    gc.collect()
    other = memory.empty(1000, torch.float32)
    assert memory.handle(other) != handle  # a view of the first is still there
    del part
    gc.collect()
    again = memory.empty(500, torch.float64)  # the same bytes
    assert memory.handle(again) == handle


def test_a_vector_that_others_can_read_is_adopted_as_it_is():
    memory = Memory(shared=True)
    own = torch.arange(5.0)
    adopted = memory.move_to_shared_memory(own)
    assert adopted is not own
    assert torch.equal(adopted, own)
    assert memory.move_to_shared_memory(adopted) is adopted
    assert memory.handle(own) == memory.handle(adopted[1:]) == 0
    assert memory.handle(adopted[:3]) == memory.handle(adopted) > 0
    private = Memory(shared=False)
    assert private.handle(private.empty(5, torch.float32)) == 0


READER = """
import sys, torch
from mpifl.wire.rank_platform import HERE
from mpifl.wire.launching.joining import world
from mpifl.wire.memory import Memory
process, handle = map(int, sys.argv[1:])
vector = Memory(shared=True).attach(process, handle, 3, torch.float64)
print(vector.tolist())
vector[2] = 7
"""


def test_another_process_reads_and_writes_it_in_place(tmp_path):
    memory = Memory(shared=True)
    vector = memory.empty(3, torch.float64).copy_(torch.tensor([1.0, 2.0, 3.0]))
    (tmp_path / "reader.py").write_text(READER)
    command = [*python(), str(tmp_path / "reader.py"), str(os.getpid()), str(memory.handle(vector))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.strip() == "[1.0, 2.0, 3.0]"
    assert vector.tolist() == [1.0, 2.0, 7.0]


def test_a_handle_of_nothing_or_of_less_is_refused():
    memory = Memory(shared=True)
    vector = memory.empty(3, torch.float64)
    with pytest.raises(OSError, match="has 24 bytes, not 32"):
        memory.attach(os.getpid(), memory.handle(vector), 4, torch.float64)
    with pytest.raises(OSError):
        memory.attach(os.getpid(), 9999, 1, torch.float64)
    assert len(memory.attach(os.getpid(), 0, 0, torch.float64)) == 0


def test_an_empty_sealed_file_is_a_handle_of_nothing():
    file = os.memfd_create("mpifl", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(OSError, match="is empty"):
        Memory(shared=True).attach(os.getpid(), file, 1, torch.float64)
    os.close(file)


def test_a_ring_ends_a_wait_and_one_that_came_before_is_not_lost():
    mine, other = Doorbell(), Doorbell()
    assert mine.works
    began = time.perf_counter()
    threading.Timer(0.05, other.notify, [mine.token]).start()
    mine.wait(180)
    mine_again = Doorbell()
    other.notify(mine_again.token)
    other.notify(mine_again.token)
    mine_again.wait(180)
    assert time.perf_counter() - began < 20
    mine_again.wait(0.01)  # both rings are answered: this ends by time alone


class Flooded:
    """A socket on which notifications come as fast as they are taken."""

    taken = 0

    def __init__(self, file):
        self.fileno = file.fileno

    def recv_into(self, *_):
        self.taken += 1
        assert self.taken <= MOST_NOTIFICATIONS


def test_notifications_without_end_hold_nobody_up():
    bell = Doorbell()
    with Path(os.devnull).open() as readable:
        bell._socket = Flooded(readable)
        bell.wait(180)
    assert bell._socket.taken == MOST_NOTIFICATIONS


def test_a_bell_that_is_gone_is_rung_in_vain():
    gone = Doorbell()
    gone._socket.close()
    Doorbell().notify(gone.token)


LEAVER = """
import ctypes, struct, sys
from mpifl.wire.launching import leave
from mpifl.wire.rank_platform import HERE

PIDFD_OPEN, ALLOW, ERRNO = 434, 0x7FFF0000, 0x00050000 | int(sys.argv[1])
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, PIDFD_OPEN), (0x06, 0, 0, ERRNO), (0x06, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, program, 0, 0):  # NO_NEW_PRIVS, SECCOMP with a filter
    sys.exit(77)
HERE.wait_for_exit([int(sys.argv[2])], 1.0)
leave(3)
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_a_rank_leaves_without_seeing_the_others_off_where_the_system_cannot_watch_them(number, tmp_path):
    (tmp_path / "leaver.py").write_text(LEAVER)
    command = [*python(), str(tmp_path / "leaver.py"), str(number), str(os.getpid())]
    environment = os.environ | {"OMPI_MCA_mpi_ft_enable": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    if done.returncode == 77:
        pytest.skip("this system has no filters for system calls")
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.parametrize("value", ["1", "0", "", "true"])
def test_the_launcher_leaves_others_alone_for_the_doctor_as_for_a_training(monkeypatch, value):
    facts()  # MPI starts here, and would read it
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", value)
    assert facts().tolerant is survivable() is (value == "1")


def test_pages_of_segments_are_locked_once_and_let_go_when_their_owner_is_dead(monkeypatch):
    pages = Pages()
    monkeypatch.setattr("mpifl.wire.memory.cudart", lambda: pages)
    mine, other = Memory(shared=True), Memory(shared=True)
    vector = mine.empty(3, torch.float32)
    address = mine.pinned(mine.pinned(vector)).data_ptr()
    del vector
    again = mine.pinned(mine.empty(3, torch.float32))
    assert again.data_ptr() == address
    for length in (3, 2):
        other.pinned(other.attach(os.getpid(), mine.handle(again), length, torch.float32))
    assert (len(pages.locked), pages.refused) == (2, 0)
    other.reach((), everywhere=True)
    assert list(pages.locked) == [address]


def test_memory_that_is_no_segment_is_never_locked(monkeypatch):
    pages = Pages()
    monkeypatch.setattr("mpifl.wire.memory.cudart", lambda: pages)
    memory = Memory(shared=True)
    memory.pinned(torch.empty(3))
    memory.pinned(memory.empty(0, torch.float32))
    assert not pages.locked


def test_a_suspected_death_that_mpi_does_not_confirm_is_waited_for_in_vain(monkeypatch):
    monkeypatch.setattr(deaths, "DETECTION_TIMEOUT", 0.02)
    watch = deaths.DeathWatch(world()._comm.Dup(), HERE)
    watch._on, looks = True, []
    watch.check = lambda: looks.append(1)
    watch.wait_for_failure()
    assert 1 <= len(looks) <= 21
