"""What the server asks: a record for each kind of request, with its own fields.

What holds for all requests of a kind stands with its record. A kind's handler is in `exchange.worker`, what
the server accepts of its replies in `exchange.admission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

from mpifl.wire.messages import (
    ArraySpec,
    Combination,
    Done,
    Figure,
    FileReply,
    FinishReply,
    Header,
    Message,
    Reply,
    Scalar,
    VectorSpec,
)


class Request(Message):
    """What the server asks of all ranks, or of those that host the silos of a cohort.

    (round, attempt) stamps what silos keep: it becomes true when a later round is asked and is forgotten when
    the same round is asked again.
    """

    reply: ClassVar[type[Reply]] = Done
    """What a silo answers that has no fault."""
    has_deadline: ClassVar[bool] = False
    """Whether a deadline is for it; at the start shards are opened, and states read, however long it takes.
    """
    addressed: ClassVar[bool] = True
    """Whether the silos of the cohort answer; else each rank answers for all that it hosts."""
    averaged: ClassVar[bool] = False
    """Whether replies are updates: their vectors are combined, and too few of them lose the round."""
    introduces: ClassVar[bool] = False
    """Whether each rank says where it runs."""
    commits_earlier: ClassVar[bool] = True
    """Whether what silos kept in earlier rounds is true from now on."""
    only_stateful: ClassVar[bool] = False
    """Whether silos that keep nothing have nothing to do."""
    resets: ClassVar[bool] = False
    """Whether all silos go back to one round."""
    on_host: ClassVar[bool] = False
    """Whether its vectors are read on the CPU, wherever silos train."""
    last: ClassVar[bool] = False
    """Whether ranks leave the exchange when they have answered."""

    kind: str
    round: int = 0
    attempt: int = 0
    cohort: list[int] = Field(default=[])
    vectors: list[VectorSpec] = Field(default=[])
    direct: bool = False
    """Whether the server sends the vectors to each node itself."""
    resting: list[int] | None = None
    """Ranks that do not take turns at the pieces of long vectors; None: the leaders alone carry them."""
    serial: int = 0
    """Counts the requests of a run."""

    @property
    def reassigned(self) -> Mapping[int, int]:
        """The new rank of each silo that moves with this request."""
        return {}


class Reassigning(Request):
    """A request with which silos may move.

    Attributes:
        assignment: The new rank of each silo of the cohort that moves.
    """

    assignment: dict[int, int] = Field(default={})

    @property
    def reassigned(self) -> Mapping[int, int]:
        """The new rank of each silo that moves with this request."""
        return self.assignment


class Compute(Reassigning):
    """Have each silo run a method of the algorithm on a message, and average what they return.

    Attributes:
        work: The method's name.
        scalars: The numbers and texts of the message.
        parameters: P, the length of a vector that `lengths` does not name; None: silos need not know.
        lengths: The lengths of other vectors of an update.
        sent: The vectors of an update, and how each is combined; None where silos have not disagreed yet.
    """

    reply: ClassVar[type[Reply]] = Header
    has_deadline: ClassVar[bool] = True
    averaged: ClassVar[bool] = True

    kind: Literal["compute"] = "compute"
    work: str
    scalars: dict[str, Scalar] = Field(default={})
    parameters: int | None = None
    lengths: dict[str, int] = Field(default={})
    sent: dict[str, Combination] | None = None


class Converse(Request):
    """Have each silo run a method of the algorithm that talks with the server, line by line.

    Attributes:
        work: The method's name.
        longest: Bytes of a line at most; a longer one is its silo's fault: nobody would take it from MPI.
        scalars: The numbers and texts of the message.
    """

    reply: ClassVar[type[Reply]] = Header
    averaged: ClassVar[bool] = True

    kind: Literal["converse"] = "converse"
    work: str
    longest: int
    scalars: dict[str, Scalar] = Field(default={})


class Open(Request):
    """Have each rank open and verify the shards of its silos."""

    introduces: ClassVar[bool] = True

    kind: Literal["open"] = "open"


class Save(Request):
    """Have each rank begin to write what its silos keep, as part of the round's checkpoint.

    Attributes:
        oldest: The round of the oldest checkpoint that the server still has; 0 without any.
    """

    reply: ClassVar[type[Reply]] = FileReply
    has_deadline: ClassVar[bool] = True
    only_stateful: ClassVar[bool] = True

    kind: Literal["save"] = "save"
    oldest: int = 0


class SaveStatus(Request):
    """Ask whether the silos' files of a checkpoint are written.

    Attributes:
        checkpoint: The round of the checkpoint.
        wait: Answer only when they are.
    """

    reply: ClassVar[type[Reply]] = FileReply
    has_deadline: ClassVar[bool] = True

    kind: Literal["save_status"] = "save_status"
    checkpoint: int
    wait: bool


class Load(Request):
    """Have silos take what they keep from the round's checkpoint.

    Attributes:
        files: The sha256 of each silo's file; silos without one keep nothing from now on.
    """

    resets: ClassVar[bool] = True

    kind: Literal["load"] = "load"
    files: dict[int, str] = Field(default={})


class Migrate(Reassigning):
    """Have other ranks take over silos, with what they keep.

    Attributes:
        checkpoint: The round of the checkpoint that is read.
        files: The sha256 of each silo's file in it, for silos that keep something.
    """

    has_deadline: ClassVar[bool] = True

    kind: Literal["migrate"] = "migrate"
    checkpoint: int
    files: dict[int, str] = Field(default={})


class Inventory(Request):
    """Ask each rank which silos it hosts."""

    addressed: ClassVar[bool] = False

    kind: Literal["inventory"] = "inventory"


class Replicate(Request):
    """Have each rank keep the server's state after a round that may still be lost.

    Attributes:
        figures: What the round brought.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False
    on_host: ClassVar[bool] = True

    kind: Literal["replicate"] = "replicate"
    figures: dict[str, Figure] = Field(default={})


class KeepTestSet(Request):
    """Have each rank keep the server's test set, on which models are scored later.

    Attributes:
        arrays: What the vectors are, which travel as bytes.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False
    on_host: ClassVar[bool] = True

    kind: Literal["keep_test_set"] = "keep_test_set"
    arrays: list[ArraySpec]


class ScoreBatches(Request):
    """Have some ranks score a model on batches of the test set.

    Attributes:
        size: Examples of a batch; the last may be smaller.
        examples: Of all batches.
        dealt: The ranks to which the batches are dealt, one after another.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False

    kind: Literal["score_batches"] = "score_batches"
    size: Annotated[int, Field(ge=1)]
    examples: int
    dealt: list[int]

    @property
    def sizes(self) -> list[int]:
        """How many examples each batch has."""
        return [min(self.size, self.examples - begin) for begin in range(0, self.examples, self.size)]

    def of(self, rank: int) -> range:
        """Return the numbers of a rank's batches."""
        batches = len(self.sizes)
        first = self.dealt.index(rank) if rank in self.dealt else batches
        return range(first, batches, max(len(self.dealt), 1))


class Finish(Request):
    """Hand the final model to every silo.

    Attributes:
        sha256: Of the model's file.
    """

    reply: ClassVar[type[Reply]] = FinishReply
    has_deadline: ClassVar[bool] = True

    kind: Literal["finish"] = "finish"
    sha256: str


class Stop(Request):
    """Let the other ranks leave."""

    has_deadline: ClassVar[bool] = True
    last: ClassVar[bool] = True

    kind: Literal["stop"] = "stop"


_OfSilos = Compute | Converse | Open | Save | SaveStatus | Load | Migrate | Inventory | Finish
_OfRanks = Replicate | KeepTestSet | ScoreBatches | Stop
AnyRequest = Annotated[_OfSilos | _OfRanks, Field(discriminator="kind")]
_ANY: TypeAdapter[Request] = TypeAdapter(AnyRequest)


def read_request(record: bytes) -> Request:
    """Return the request that a record holds.

    Raises:
        ValidationError: it holds none.
    """
    return _ANY.validate_json(record)
