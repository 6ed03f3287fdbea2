"""A simulated MPI that does all that the standard allows and nothing else, of the calls that the wire makes.

Each cruelty stands with the sentence that allows it: MPI 4.1 by its section, and the chapter on fault
tolerance (ULFM, as in Open MPI 5's pages) by the name of the function.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mpifl.wire import pipeline, point_to_point, stamped_vectors, transport
from tests.simulated.world import LATENCY, Rank, World, here, simulated

SUCCESS, ERR_TRUNCATE, ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED = 0, 15, 75, 76, 77
ANY_SOURCE, UNDEFINED = -1, -32766
LATE_LOOK = 0.3
"""Share of looks that see nothing yet of what is there.

11.3.4 and 3.8.1 promise only that a test or a probe that is repeated will "eventually return flag = true".
"""
LIES = 0.3
"""Share of the messages of a rank that lies which have other bytes."""
SHORTEST_WAIT, LONGEST_WAIT = 1e-4, 5e-2
TAGS = {
    getattr(module, name): name
    for module, names in (
        (transport, "RECORD REPORT HANDLE SUM DONE VECTOR LINE_UP LINE_DOWN"),
        (point_to_point, "PIECE ATTESTED"),
        (pipeline, "KEPT"),
        (stamped_vectors, "ROWS SHARE"),
    )
    for name in names.split()
}


class Error(RuntimeError):
    """What MPI raises, by its class."""

    __module__ = "mpi4py.MPI"

    def __init__(self, number: int) -> None:
        super().__init__(f"MPI error {number}")
        self.number = number

    def Get_error_class(self) -> int:
        return self.number


@functools.cache
def named(call: str, tag: int) -> str:
    """Return what a call does, as a schedule's moments name it."""
    return f"{call} {TAGS.get(tag, 'RAIL')}"


def bytes_of(buffer: Any, *, writable: bool = False) -> np.ndarray:
    """Return a buffer's bytes where they lie, shape [n]."""
    if isinstance(buffer, torch.Tensor):
        assert buffer.is_contiguous(), "MPI takes contiguous buffers"
        return buffer.detach().reshape(-1).view(torch.uint8).numpy()
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    assert array.flags.c_contiguous, "MPI takes contiguous buffers"
    assert array.flags.writeable or not writable, "MPI writes to this buffer"
    return array.reshape(-1).view(np.uint8)


class Letter:
    """A message under way.

    3.4 of a standard send: "it is up to MPI to decide whether outgoing messages will be buffered". One that
    is buffered is copied; of another the bytes are read when they are taken, and "the send call will not
    complete until a matching receive has been posted, and the data has been moved to the receiver".
    """

    def __init__(self, sender: int, tag: int, buffer: Any, arrives: float, buffered: bool) -> None:
        self.sender, self.tag, self.arrives, self.buffered = sender, tag, arrives, buffered
        self._content = bytes_of(buffer)
        self.sent = self._content.tobytes()
        self.nbytes = len(self.sent)
        self.taken: float | None = None

    def intact(self) -> bool:
        """Whether the sender's buffer is as it was sent.

        3.7.2: "The sender should not modify any part of the send buffer after a nonblocking send operation is
        called, until the send completes."
        """
        return self._content.tobytes() == self.sent

    def land(self, world: World, rank: Rank, into: np.ndarray) -> None:
        """Hand the bytes over."""
        if not self.buffered and not self.intact():
            world.faults.append(f"rank {self.sender} changed what it was sending ({TAGS.get(self.tag)})")
        into[: self.nbytes] = np.frombuffer(self.sent, np.uint8)
        self.taken = rank.clock


def lied(lies: tuple[int, int, int], rank: Rank, tag: int, buffer: Any) -> Any:
    """Return what a rank sends, which may be other bytes if it is one that lies: altered, fewer, or drawn."""
    liar, first, seed = lies
    draw, content = random.Random(f"{seed} {rank.sent}"), bytes_of(buffer).copy()
    if rank.number != liar or rank.sent < first or not content.nbytes or draw.random() > LIES:
        return buffer
    how = draw.randrange(4)
    if how == 0:
        content[draw.randrange(content.nbytes)] ^= 1 << draw.randrange(8)
    elif how == 1:
        content = content[: draw.randrange(content.nbytes)].copy()
    elif how == 2:
        content[:] = np.frombuffer(draw.randbytes(content.nbytes), np.uint8)
    elif rank.before.get(tag) is not None and rank.before[tag].nbytes <= content.nbytes:
        content = rank.before[tag]
    rank.before[tag] = bytes_of(buffer).copy()
    return content


class Group:
    """What the ranks of a communicator have in common; members by their number in the world."""

    def __init__(self, world: World, members: Sequence[int]) -> None:
        self.world, self.members = world, list(members)
        self.boxes: dict[int, list[Letter]] = {member: [] for member in members}
        self.posted: dict[int, list[Posted]] = {member: [] for member in members}
        self.latest: dict[tuple[int, int], float] = {}
        self.revoked: dict[int, float] = {}
        self.joined: dict[tuple[int, bool], int] = {}
        self.meetings: dict[tuple[int, bool], Meeting] = {}
        world.groups.append(self)

    def revoke(self, rank: Rank) -> None:
        """Revoke it; each member notices at its own time.

        MPIX_Comm_revoke: "notifies all MPI processes in the groups associated with the communicator"; when,
        it leaves open.
        """
        for member in self.members:
            soon = rank.clock + (0.0 if member == rank.number else self.world.choices.delay(LATENCY))
            self.revoked.setdefault(member, soon)
        self.revoked[rank.number] = min(self.revoked[rank.number], rank.clock)

    def is_revoked(self, rank: Rank) -> bool:
        """Whether a rank has noticed that it is revoked."""
        return self.revoked.get(rank.number, float("inf")) <= rank.clock

    def lose(self, dead: int) -> None:
        """Lose what a rank that dies had not handed over: what MPI did not buffer, and of what it did the
        latest, in some cases.

        ULFM of a receive from a failed process: it completes or raises an error of class PROC_FAILED. Order
        holds for what comes.
        """
        now = min((rank.clock for rank in self.world.ranks if rank.state == "alive"), default=0.0)
        for member, box in self.boxes.items():
            mine = [letter for letter in box if letter.sender == dead]
            lost = [letter for letter in mine if not letter.buffered]
            if self.world.choices.chance(0.3):
                lost += [letter for letter in mine if letter.arrives > now]
            first = min((mine.index(letter) for letter in lost), default=len(mine))
            self.boxes[member] = [letter for letter in box if letter not in mine[first:]]


class Posted:
    """A receive that waits for its letter."""

    def __init__(self, sender: int, tag: int) -> None:
        self.sender, self.tag, self.letter = sender, tag, None
        self.letter: Letter | None


class Meeting:
    """A collective operation: who has come, with what, and when."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.came: dict[int, Any] = {}
        self.at: dict[int, float] = {}
        self.made: dict[Any, Group] = {}
        self.content: Letter | None = None


class Status:
    """Of a message that was found."""

    def __init__(self) -> None:
        self.source, self.nbytes = -1, 0

    def Get_count(self, _: Any) -> int:
        return self.nbytes

    def Get_source(self) -> int:
        return self.source


class Request:
    """An operation under way."""

    def __init__(
        self,
        group: Group,
        what: str,
        ready: Callable[[], bool],
        finish: Callable[[], None] = lambda: None,
        peers: Sequence[int] = (),
    ) -> None:
        self._group, self._what, self._ready, self._finish, self._peers = group, what, ready, finish, peers
        self._complete = False
        self._rank = here()[1]

    def Test(self) -> bool:
        """Look whether it is done; some looks come too early though it is.

        11.3.4: "If an MPI_TEST that completes a receive is repeatedly called with the same arguments, and a
        matching send has been started, then the call will eventually return flag = true".
        """
        if self._complete:
            return True
        world, rank = here()
        world.call(rank, "Test")
        if self._ready():
            if world.choices.chance(LATE_LOOK):
                return False
            self._complete = True
            self._finish()
            return True
        if self._group.is_revoked(rank):
            raise Error(ERR_REVOKED)
        if any(world.knows(rank, peer) for peer in self._peers):
            raise Error(ERR_PROC_FAILED)
        return False

    def __del__(self) -> None:
        """See that nobody forgets an operation while MPI may use its buffer.

        3.7.2, as above; mpi4py keeps a buffer as long as its request.
        """
        world = self._group.world
        if self._complete or world.is_over:
            return
        rank = simulated()
        if rank is not self._rank or rank.state != "alive" or self._group.is_revoked(rank):
            return
        if not any(rank.learns for rank in world.ranks):
            world.faults.append(f"rank {rank.number} forgot a request of {self._what} that is not done")


class Done:
    """MPI.REQUEST_NULL."""

    def Test(self) -> bool:
        return True


class Message:
    """A message that a matched probe took.

    3.8.2: "the matched message is then received" by this handle alone; no other receive finds it.
    """

    def __init__(self, group: Group, letter: Letter) -> None:
        self._group, self._letter = group, letter

    def Irecv(self, buffer: Any) -> Request:
        world, rank = here()
        letter, into = self._letter, bytes_of(buffer, writable=True)
        world.call(rank, named("Imrecv", letter.tag))
        if into.nbytes < letter.nbytes:
            raise Error(ERR_TRUNCATE)
        soon = rank.clock + world.choices.delay(LATENCY)

        def ready() -> bool:
            there = letter.buffered or world.ranks[letter.sender].state != "dead"
            return there and rank.clock >= soon

        return Request(
            self._group,
            "Imrecv",
            ready,
            lambda: letter.land(world, rank, into),
            [] if letter.buffered else [letter.sender],
        )


class Comm:
    """A rank's handle of a communicator."""

    def __init__(self, group: Group) -> None:
        self.group, self.world = group, group.world

    def Get_rank(self) -> int:
        return self.group.members.index(here()[1].number)

    def Get_size(self) -> int:
        return len(self.group.members)

    def Set_errhandler(self, _: Any) -> None:
        pass

    def _called(self, what: str) -> Rank:
        """Note a call; one on a revoked communicator fails.

        MPIX_Comm_revoke: once a process has noticed, all non-local operations on that communicator but
        MPI_COMM_SHRINK and MPI_COMM_AGREE raise an error of class MPI_ERR_REVOKED.
        """
        rank = here()[1]
        self.world.call(rank, what)
        if self.group.is_revoked(rank):
            raise Error(ERR_REVOKED)
        return rank

    # -- from rank to rank

    def Isend(self, buffer: Any, to: int, tag: int) -> Request:
        """Send; it overtakes none of the same two ranks.

        3.5: "If a sender sends two messages in succession to the same destination, and both match the same
        receive, then this operation cannot receive the second message if the first one is still pending."
        """
        rank, world, group = self._called(named("Isend", tag)), self.world, self.group
        member = group.members[to]
        if world.knows(rank, member):
            raise Error(ERR_PROC_FAILED)
        pair = rank.number, member
        arrives = max(rank.clock + world.choices.delay(LATENCY), group.latest.get(pair, 0.0))
        group.latest[pair] = arrives
        buffered = bytes_of(buffer).nbytes <= world.schedule.eager
        rank.sent += 1
        if world.schedule.lies:
            buffer = lied(world.schedule.lies, rank, tag, buffer)
        letter = Letter(rank.number, tag, buffer, arrives, buffered)
        waiting = (one for one in group.posted[member] if (one.sender, one.tag) == (rank.number, tag))
        if posted := next((one for one in waiting if one.letter is None), None):
            posted.letter = letter
        elif world.ranks[member].state == "alive":
            group.boxes[member].append(letter)
        local = rank.clock + world.choices.delay(LATENCY)

        def ready() -> bool:
            return (
                rank.clock >= local if buffered else letter.taken is not None and rank.clock >= letter.taken
            )

        def finish() -> None:
            if not letter.intact():
                world.faults.append(f"rank {rank.number} changed what it was sending ({TAGS.get(tag)})")

        return Request(group, named("Isend", tag), ready, finish, [] if buffered else [member])

    def Irecv(self, buffer: Any, source: int, tag: int) -> Request:
        rank, world, group = self._called(named("Irecv", tag)), self.world, self.group
        into, sender = bytes_of(buffer, writable=True), group.members[source]
        posted = Posted(sender, tag)
        box = group.boxes[rank.number]
        posted.letter = next((one for one in box if (one.sender, one.tag) == (sender, tag)), None)
        if posted.letter:
            box.remove(posted.letter)
        else:
            group.posted[rank.number].append(posted)

        def ready() -> bool:
            letter = posted.letter
            if letter is None or rank.clock < letter.arrives:
                return False
            return letter.buffered or world.ranks[letter.sender].state != "dead"

        def finish() -> None:
            assert posted.letter is not None
            if posted.letter.nbytes > into.nbytes:
                raise Error(ERR_TRUNCATE)
            posted.letter.land(world, rank, into)
            if posted in group.posted[rank.number]:
                group.posted[rank.number].remove(posted)

        return Request(group, named("Irecv", tag), ready, finish, [sender])

    def Improbe(self, source: int, tag: int, status: Status) -> Message | None:
        """Take a message that has come, if any; of several ranks any's first.

        3.5 on fairness: "MPI makes no guarantee of fairness in the handling of communication"; and of
        MPI_ANY_SOURCE any may match. ULFM: a receive from MPI_ANY_SOURCE raises an error as soon as a failure
        is known that was not acknowledged.
        """
        rank, world, group = self._called(named("Improbe", tag)), self.world, self.group
        if world.choices.chance(LATE_LOOK):
            return None
        only = None if source == ANY_SOURCE else group.members[source]
        first: dict[int, Letter] = {}
        for letter in group.boxes[rank.number]:
            if letter.tag == tag and only in (None, letter.sender):
                first.setdefault(letter.sender, letter)
        come = [letter for _, letter in sorted(first.items()) if letter.arrives <= rank.clock]
        if come:
            letter = world.choices.one_of(come)
            group.boxes[rank.number].remove(letter)
            status.source, status.nbytes = group.members.index(letter.sender), letter.nbytes
            return Message(group, letter)
        failed = {member for member in group.members if world.knows(rank, member)}
        if failed and (only is None or only in failed):
            raise Error(ERR_PROC_FAILED)
        return None

    def Iprobe(self) -> bool:
        self.world.call(here()[1], "Iprobe")
        return False

    # -- of all together

    def _meet(self, kind: str, given: Any = None) -> Meeting:
        """Come to the next collective operation.

        6.1: "all processes must call collective operations (blocking and nonblocking) in the same order per
        communicator"; 6.12 matches blocking ones with no nonblocking.
        """
        rank, group = self._called(kind), self.group
        nth = group.joined.get((rank.number, False), 0)
        group.joined[rank.number, False] = nth + 1
        meeting = group.meetings.setdefault((nth, False), Meeting(kind))
        if meeting.kind != kind:
            self.world.faults.append(f"{kind} of rank {rank.number} meets {meeting.kind} of others")
        meeting.came[rank.number], meeting.at[rank.number] = given, rank.clock
        return meeting

    def _await(self, ready: Callable[[], bool], *, fails: bool = True) -> None:
        """Wait within a blocking call; a death may end it at some ranks and not at others.

        ULFM: an operation that involves a failed process raises an error "as soon as possible", "but other
        processes may complete it".
        """
        rank, pause = here()[1], SHORTEST_WAIT
        while not ready():
            if fails and self.group.is_revoked(rank):
                raise Error(ERR_REVOKED)
            if fails and any(self.world.knows(rank, member) for member in self.group.members):
                raise Error(ERR_PROC_FAILED)
            self.world.turn(rank, pause)
            pause = min(1.5 * pause, LONGEST_WAIT)

    def _all_came(self, meeting: Meeting) -> bool:
        return len(meeting.came) == len(self.group.members)

    def Split(self, color: int, key: int) -> Comm | None:
        meeting = self._meet("Split", (color, key))
        self._await(lambda: self._all_came(meeting))
        if color == UNDEFINED:
            return None
        if color not in meeting.made:
            order = sorted(
                self.group.members,
                key=lambda member: (meeting.came[member][1], self.group.members.index(member)),
            )
            mine = [member for member in order if meeting.came[member][0] == color]
            meeting.made[color] = Group(self.world, mine)
        return Comm(meeting.made[color])

    def Split_type(self, _: int) -> Comm | None:
        return self.Split(self.world.node_of(here()[1].number), self.Get_rank())

    def Dup(self) -> Comm:
        meeting = self._meet("Dup")
        self._await(lambda: self._all_came(meeting))
        if None not in meeting.made:
            meeting.made[None] = Group(self.world, self.group.members)
        return Comm(meeting.made[None])

    def Free(self) -> None:
        self._meet("Free")

    def Ibcast(self, buffer: Any, root: int) -> Request:
        """Broadcast; the root may be done before anybody else has come.

        6.1: completion "does not indicate that other processes in the group have completed or even started
        the operation".
        """
        meeting, world, group, rank = self._meet("Ibcast"), self.world, self.group, here()[1]
        origin, delay = group.members[root], world.choices.delay(LATENCY)
        is_root = rank.number == origin
        buffered = bytes_of(buffer).nbytes <= world.schedule.eager
        if is_root:
            meeting.content = Letter(origin, -1, buffer, rank.clock, buffered)
        into = bytes_of(buffer, writable=not is_root)

        def ready() -> bool:
            if is_root:
                return buffered or len(meeting.came) == len(group.members)
            if origin not in meeting.at or (not buffered and world.ranks[origin].state == "dead"):
                return False
            return rank.clock >= max(meeting.at[origin], meeting.at[rank.number]) + delay

        def finish() -> None:
            assert meeting.content is not None
            if not meeting.content.intact() and (is_root or not buffered):
                world.faults.append(f"rank {origin} changed what it was broadcasting")
            if not is_root:
                into[:] = np.frombuffer(meeting.content.sent, np.uint8)

        return Request(
            group, "Ibcast", ready, finish, [member for member in group.members if member != rank.number]
        )

    def Iallgather(self, given: Any, gathered: Any) -> Request:
        meeting = self._meet("Iallgather", bytes_of(given).copy())
        into = bytes_of(gathered, writable=True).reshape(len(self.group.members), -1)

        def finish() -> None:
            for row, member in zip(into, self.group.members, strict=True):
                row[:] = meeting.came[member]

        return Request(self.group, "Iallgather", lambda: self._all_came(meeting), finish, self.group.members)

    # -- failures

    def Is_revoked(self) -> bool:
        rank = here()[1]
        self.world.call(rank, "Is_revoked")
        return self.group.is_revoked(rank)

    def Get_failed(self) -> Ranks:
        """Return those that this rank knows to have failed, each at its own time.

        MPIX_Comm_get_failed: the processes "that are locally known to have failed"; "MPI makes no assumption
        about asynchronous progress of the failure detection".
        """
        rank = here()[1]
        self.world.call(rank, "Get_failed")
        return Ranks([member for member in self.group.members if self.world.knows(rank, member)])

    def Revoke(self) -> None:
        rank = here()[1]
        self.world.call(rank, "Revoke")
        self.group.revoke(rank)

    def Get_group(self) -> Ranks:
        return Ranks(self.group.members)

    def Shrink(self) -> Comm:
        """Meet the others that live; one that came and died since may still be taken for alive.

        MPIX_Comm_shrink: the new group "must exclude every MPI process whose failure caused an operation on
        comm to raise an error"; of another failure it says nothing.
        """
        rank, world, group = here()[1], self.world, self.group
        world.call(rank, "Shrink")
        nth = group.joined.get((rank.number, True), 0)
        group.joined[rank.number, True] = nth + 1
        meeting = group.meetings.setdefault((nth, True), Meeting("Shrink"))
        meeting.came[rank.number] = None

        def ready() -> bool:
            gone = [member for member in group.members if world.ranks[member].state != "alive"]
            if not meeting.made and all(member in meeting.came or member in gone for member in group.members):
                living = [rank for rank in world.ranks if rank.state == "alive"]
                unknown = {one for one in gone if not any(world.knows(other, one) for other in living)}
                kept = {one for one in unknown & meeting.came.keys() if world.choices.chance(0.5)}
                members = [
                    one for one in group.members if one in meeting.came and (one not in gone or one in kept)
                ]
                meeting.made[None] = Group(world, members)
            return bool(meeting.made)

        self._await(ready, fails=False)
        return Comm(meeting.made[None])

    def Abort(self, _: int) -> None:
        self.world.aborted = True
        self.world.finish()
        self.world.gone()


class Ranks:
    """An MPI group."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members, self.size = list(members), len(members)

    @staticmethod
    def Translate_ranks(group: Ranks, ranks: Sequence[int], other: Ranks) -> list[int]:
        return [other.members.index(group.members[rank]) for rank in ranks]


class Library:
    """What `mpi4py.MPI` is to one rank of a world."""

    Status, Exception, Group, REQUEST_NULL = Status, Error, Ranks, Done()
    ANY_SOURCE, UNDEFINED, BYTE, COMM_TYPE_SHARED, ERRORS_RETURN = ANY_SOURCE, UNDEFINED, "byte", 1, 1
    ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING, ERR_REVOKED = (
        ERR_PROC_FAILED,
        ERR_PROC_FAILED_PENDING,
        ERR_REVOKED,
    )

    def __init__(self, world: World) -> None:
        if not world.groups:
            Group(world, [rank.number for rank in world.ranks])
        self.COMM_WORLD = self.COMM_SELF = Comm(world.groups[0])
