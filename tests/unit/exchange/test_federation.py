"""The server amid ranks that hang: who is given silos, whose silos are faults, and what takes their place.

The world is one process: real workers answer, but for those that hang.
"""

import itertools
import json
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from unit.builders import CPU, make_worker, net, room_for, write_folder

from mpifl.algorithms.algorithm import Algorithm
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.common.errors import RoundLost
from mpifl.data.shards.shards import read_federation
from mpifl.exchange import federation as exchange
from mpifl.exchange.broadcast import heard_after
from mpifl.exchange.federation import Federation
from mpifl.exchange.server_side.admission import Knowledge
from mpifl.exchange.worker_side import worker
from mpifl.report.observers.observer import Observer
from mpifl.report.observers.observer_group import Observers
from mpifl.run.folder import checkpoint
from mpifl.run.job.tables.job_tables import Checkpoint
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.training.checkpointing import CheckpointManager
from mpifl.training.recovery import Recovery, latest_mirror, state_of
from mpifl.wire.memory import Memory
from mpifl.wire.messages import Verdict
from mpifl.wire.nodes import Nodes
from mpifl.wire.requests import Inventory, Open, Save, read_request
from mpifl.wire.transport import Transport
from mpifl.wire.update import Replica

DEADLINE = 0.05
LATE = f"no answer within {DEADLINE} s"


class Working(Algorithm):
    """Keeps a count or nothing."""

    def round(self, server, cohort):
        raise NotImplementedError

    def weight(self, work, examples, usual):
        return 1.0

    def free(self, silo):
        return silo.update(seen=1.0)

    def count(self, silo):
        seen = silo.state.get("count", 0)
        silo.keep(count=seen + 1)
        return silo.update(seen=float(seen))

    def stumble(self, silo, how):
        if how == "one" and silo.id == 0:
            raise KeyError("no such layer")
        if how == "disk":
            raise OSError("the disk is gone")
        raise RuntimeError(f"shapes {silo.id + 7}x4 and 3x4" if how == "alike" else f"{'ab'[silo.id % 2]}")


class Seen(Observer):
    """Remembers what the user is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


class World(Transport):
    """The server's end of a world whose other ranks are workers in this process."""

    def __init__(self, workers):
        self.workers_here, self.hung, self.heard = workers, set(), ""
        self.rank, self.size, self.sent, self.received = 0, len(workers), 0, 0
        self.nodes, self.memory = Nodes([0] * self.size, 0), Memory(shared=False)
        self.origins, self._founders, self.silent = list(range(self.size)), range(self.size), set()

    def broadcast_record(self, record=None):
        self.heard = heard_after(self.heard, record)
        awake = [(rank, one) for rank, one in enumerate(self.workers_here) if rank and rank not in self.hung]
        if "kind" in json.loads(record):
            self.asked = read_request(record)
            told = {"serial": self.asked.serial, "heard": self.heard}
            vectors = {spec.name: torch.empty(0) for spec in self.asked.vectors}
            self.came = deque(
                (rank, one.answer(self.asked, vectors).model_copy(update=told)) for rank, one in awake
            )
        else:
            for _, one in awake:
                one.commit(self.asked, Verdict.model_validate_json(record))
        return record

    def next_report(self, until=None, longest=None):
        if self.came:
            rank, report = self.came.popleft()
            return rank, report.encode()
        assert until is not None, f"'{self.asked.kind}' waits for a hung rank for ever"
        return None

    def broadcast_vector(self, vector, length, dtype, direct=False):
        return vector


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """Have each silo take the same seconds, long enough for moving to be worth it, on any machine."""
    ticks = itertools.count()
    for module in (worker, exchange):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: 0.03 * next(ticks)))


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, [10] * 6)
    return tmp_path


@pytest.fixture
def world(folder):
    spec, algorithm, hosted = read_federation(folder), Working(), ([], [0, 1, 2], [3, 4, 5])
    return World(
        [make_worker(folder, spec, algorithm, silos=silos, rank=rank) for rank, silos in enumerate(hosted)]
    )


@pytest.fixture
def server():
    return Server([FlatModel(net())])


@pytest.fixture
def federation(world, server):
    federation = federate(world)
    federation.everyone(server).ask(Open)  # or it would count as the first round's work
    return federation


def federate(world):
    placed = {rank: sorted(world.workers_here[rank].silos) for rank in world.workers}
    return Federation(
        world,
        world.workers_here[0],
        [],
        placed,
        0.5,
        CPU,
        Knowledge(Working(), [{"train": 10}] * 6),
        DEADLINE,
    )


def rounds(federation, server, work, count):
    for _ in range(count):
        federation.cohort(range(6), server).mean(work)
        server.round += 1


def test_a_hung_rank_is_given_no_silos_and_faults_are_those_of_its_own(federation, server, world):
    rounds(federation, server, Working().free, 3)
    world.hung = {2}
    rounds(federation, server, Working().free, 1)
    mean = federation.cohort([0, 1], server).mean(Working().free)
    assert (sorted(mean.silos), mean.faults) == ([0, 1], {})
    server.round += 1
    mean = federation.cohort([0, 3], server).mean(Working().free)
    assert (sorted(mean.silos), mean.faults) == ([0], {3: LATE})


def test_silos_on_their_way_to_a_rank_that_hangs_are_faults_and_those_on_their_way_from_it_none(
    federation, server, world
):
    rounds(federation, server, Working().free, 3)
    world.hung = {2}  # not known yet
    mean = federation.cohort([0, 1], server).mean(Working().free)
    moved = set(world.asked.assignment)
    assert moved
    assert mean.faults == dict.fromkeys(moved, LATE)
    federation.membership.timed_out = set()
    server.round += 1
    mean = federation.cohort([3, 4], server).mean(Working().free)
    moved = set(world.asked.assignment)
    assert moved
    assert (set(mean.silos), mean.faults) == (moved, dict.fromkeys({3, 4} - moved, LATE))
    assert not federation.membership.pinned


def test_silos_that_a_late_rank_was_to_take_over_find_another(federation, server, world, folder):
    federation.membership.placed = {1: {0, 1, 2}, 2: set()}
    world.workers_here[2].silos.clear()
    world.hung = {2}
    recovery = Recovery(federation, server, folder / "run", [10] * 6, print, FedAvg())
    assert recovery._host({3, 4, 5}, {}, 0) == {}
    assert federation.membership.placed == {1: {0, 1, 2, 3, 4, 5}, 2: set()}
    mean = federation.cohort(range(6), server).mean(Working().free)
    assert (len(mean.silos), mean.faults) == (6, {})


def test_the_server_is_brought_into_line_with_silos_that_lost_what_they_kept(
    federation, server, world, folder
):
    aligned = []

    class Realigned(FedAvg):
        def realign(self, server, everyone):
            aligned.append(everyone.silos)
            if len(aligned) == 1:
                raise RoundLost("too few")

    observers, seen = Observers(), Seen()
    observers.attach([seen])
    recovery = Recovery(federation, server, folder / "run", [10] * 6, observers.note, Realigned())
    rounds(federation, server, Working().count, 2)
    recovery.ask(Open)
    recovery.realign()
    assert not aligned, "nobody has died"
    server.state["w"] = torch.zeros(4)
    world.workers_here.pop()
    world.size, world.origins, world.nodes = 2, [0, 1], Nodes([0] * 2, 0)
    federation.recover = lambda: None
    federation.membership.placed = {1: set()}
    for _ in range(3):
        recovery.ask(Open)
        recovery.realign()
    assert aligned == [list(range(6))] * 2
    assert seen.notes[1] == "the server's state was not brought into line with silos that moved: too few"


def test_a_mirror_waits_for_no_hung_rank(federation, server, world, folder):
    world.hung = {2}
    server.state["w"] = torch.ones(3)
    Recovery(federation, server, folder / "run", [10] * 6, print, FedAvg()).replicate({"loss": 0.5})
    assert state_of(latest_mirror(federation))["w"].tolist() == [1.0] * 3
    assert "round of the mirror" not in state_of(latest_mirror(federation))


def test_a_mirror_that_was_written_over_is_none(federation, server, folder):
    recovery = Recovery(federation, server, folder / "run", [10] * 6, print, FedAvg())
    for server.round in (1, 2):
        server.state["w"] = torch.full((3,), float(server.round))
        recovery.replicate({})
    old, new = federation._worker.replicas
    assert latest_mirror(federation) is new
    # as a rank sees it that was asleep meanwhile
    federation._worker.replicas.append(Replica(old.round, {}, new.state))
    assert latest_mirror(federation) is None


def test_a_new_server_knows_whose_silos_keep_something(federation, server, world):
    rounds(federation, server, Working().count, 3)
    successor, world.heard = federate(world), ""
    successor.exchange(Inventory(round=3))
    assert successor.membership.stateful == set(range(6))


@pytest.mark.parametrize("stay", [True, False])
def test_after_a_death_no_rank_hosts_a_silo_of_another_site(federation, server, world, stay):
    federation.membership.stay = stay
    world.workers_here[1].silos.add(4)
    federation.membership.renumber(world.workers, {0: 0, 1: 1})
    federation.take_inventory(server)
    # a silo that moves may have been on its way there when the other rank died
    assert (4 in federation.membership.placed[1]) is not stay


@pytest.mark.parametrize("dead", [1, 2])
def test_a_rank_that_was_late_is_late_by_its_new_number_or_dead(federation, server, world, dead):
    world.hung = {2}
    rounds(federation, server, Working().free, 1)
    federation._broadcast._late_sums = {2}  # as the leader of a node knows it
    left = [rank for rank in range(3) if rank != dead]
    numbers = {old: new for new, old in enumerate(left)}
    world.workers_here.pop(dead)
    world.hung = {numbers[one] for one in world.hung if one in numbers}
    world.size, world.origins, world.nodes = 2, left, Nodes([0] * 2, 0)
    world.recover = lambda: numbers
    federation.recover()
    assert federation.membership.timed_out == federation._broadcast._late_sums == world.hung
    assert federation.membership.unreliable == world.hung


def test_a_checkpoint_that_was_given_up_and_comes_back_takes_no_ones_place(federation, server, world, folder):
    run, observers, seen = folder / "run", Observers(), Seen()
    observers.attach([seen])
    server.state["w"] = torch.zeros(4)
    recovery = Recovery(federation, server, run, [10] * 6, observers.note, FedAvg())
    checkpoints = CheckpointManager(run, Checkpoint(every=1, keep=2), server, recovery, observers)
    for number in range(1, 6):
        world.hung = {2} if number == 4 else set()
        rounds(federation, server, Working().count, 1)
        checkpoints.update()
        if number == 4:
            assert seen.notes == [
                f"the checkpoint of round 4 could not be written ({LATE}); training continues"
            ]
            late = Save(round=4, attempt=world.asked.attempt, cohort=[3, 4, 5])
            world.workers_here[2].answer(late, {})  # it wakes up
    assert checkpoint.rounds(run) == [5, 3]


def test_whether_there_is_a_checkpoint_at_the_end_is_known_and_told_once(federation, server, world, folder):
    observers, seen = Observers(), Seen()
    observers.attach([seen])
    server.state["w"] = torch.zeros(4)
    recovery = Recovery(federation, server, folder / "run", [10] * 6, observers.note, FedAvg())
    checkpoints = CheckpointManager(folder / "run", Checkpoint(every=1), server, recovery, observers)
    rounds(federation, server, Working().count, 1)
    assert checkpoints.save_now()
    rounds(federation, server, Working().count, 1)
    with room_for(100):
        assert not checkpoints.update()
        assert not checkpoints.save_now()
    assert len(seen.notes) == 1
    assert checkpoints.update(), "there is room again"


def test_all_silos_that_fail_alike_are_told_of_once_and_not_asked_again(federation, server, world, capsys):
    with pytest.raises(RoundLost) as lost:
        federation.cohort(range(6), server).mean(Working().stumble, how="alike")
    assert lost.value.in_vain
    assert str(lost.value).startswith("all 6 silos failed alike: silo 0: RuntimeError: shapes 7x4 and 3x4 (")
    said = capsys.readouterr().err
    assert said.count("Traceback") == 1
    assert said.startswith("silo 0 failed:\n")
    with pytest.raises(RoundLost):
        federation.cohort(range(6), server).mean(Working().stumble, how="alike")
    assert capsys.readouterr().err == ""


def test_silos_that_fail_for_several_reasons_or_late_may_be_asked_again(federation, server, world, capsys):
    with pytest.raises(RoundLost) as lost:
        federation.cohort(range(6), server).mean(Working().stumble, how="one")
    assert not lost.value.in_vain
    assert str(lost.value).startswith("0 of 6 silos answered (silo 0: KeyError: 'no such layer' (")
    assert capsys.readouterr().err.count("Traceback") == 3
    with pytest.raises(RoundLost) as lost:
        federation.cohort(range(6), server).mean(Working().stumble, how="disk")
    assert not lost.value.in_vain
    world.hung = {1, 2}
    with pytest.raises(RoundLost) as lost:
        federation.cohort(range(6), server).mean(Working().free)
    assert not lost.value.in_vain
    world.hung = set()
    with pytest.raises(RoundLost) as lost:  # one silo is not all
        federation.cohort([3], server).mean(Working().stumble, how="alike")
    assert not lost.value.in_vain


@pytest.mark.parametrize("dies", [False, True])
def test_a_checkpoint_that_a_death_has_spoilt_is_due_again_at_once(federation, server, world, folder, dies):
    server.state["w"] = torch.zeros(4)
    recovery = Recovery(federation, server, folder / "run", [10] * 6, print, FedAvg())
    table = Checkpoint(every=2, background=True)
    checkpoints = CheckpointManager(folder / "run", table, server, recovery, Observers())
    rounds(federation, server, Working().count, 2)
    checkpoints.update()
    world._founders = range(world.size + dies)  # one of those who began has died since
    checkpoints._give_up("a silo is lost")
    rounds(federation, server, Working().count, 1)
    checkpoints.update()
    checkpoints.commit_if_written(wait=True)
    assert (3 in checkpoint.rounds(folder / "run")) is dies
