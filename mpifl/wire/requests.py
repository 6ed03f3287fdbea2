"""The server's requests: a record for each kind of request, with its own fields.

Class variables hold facts about all requests of a kind. The handler of a kind is in
`exchange.worker_side.worker`. The rules for its replies are in `exchange.server_side.admission`.
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
    """A request of the server to all ranks, or to those that host the silos of a cohort.

    (round, attempt) stamps the state that silos keep. A request of a later round makes this state final. A
    new attempt at the same round discards it.
    """

    reply: ClassVar[type[Reply]] = Done
    """The class of a reply without a fault."""
    has_deadline: ClassVar[bool] = False
    """Whether the deadline applies. It does not at the start, where opening shards may take long."""
    addressed: ClassVar[bool] = True
    """Whether the silos of the cohort answer; else each rank answers for all silos that it hosts."""
    averaged: ClassVar[bool] = False
    """Whether replies are updates: their vectors are combined, and the round is lost if too few come."""
    introduces: ClassVar[bool] = False
    """Whether each rank says where it runs."""
    commits_earlier: ClassVar[bool] = True
    """Whether the state that silos kept in earlier rounds is final from now on."""
    only_stateful: ClassVar[bool] = False
    """Whether silos that keep no state have nothing to do."""
    resets: ClassVar[bool] = False
    """Whether all silos go back to one round."""
    on_host: ClassVar[bool] = False
    """Whether the vectors stay on the CPU, whatever device silos train on."""
    last: ClassVar[bool] = False
    """Whether ranks leave the exchange after their answer."""

    kind: str
    round: int = 0
    attempt: int = 0
    cohort: list[int] = Field(default=[])
    vectors: list[VectorSpec] = Field(default=[])
    direct: bool = False
    """Whether the server sends the vectors to each node itself."""
    resting: list[int] | None = None
    """Ranks that do not relay pieces of long vectors; None: only the leaders relay."""
    serial: int = 0
    """The serial number of the request in its run."""

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
    """Let each silo run a client method on a message, and average the updates that it returns.

    Attributes:
        work: The name of the client method.
        scalars: The numbers and texts of the message.
        parameters: P, the length of vectors that `lengths` does not name; None: silos do not check updates.
        lengths: The lengths of other vectors of an update.
        sent: The vectors of an update, and how each is combined; None unless silos have disagreed on them.
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
    """Let each silo run a client method that exchanges messages with the server while it runs.

    Attributes:
        work: The name of the client method.
        longest: Bytes of the longest message in the dialogue. MPI would never deliver a longer one, so it is
            a fault of its silo.
        scalars: The numbers and texts of the request.
    """

    reply: ClassVar[type[Reply]] = Header
    averaged: ClassVar[bool] = True

    kind: Literal["converse"] = "converse"
    work: str
    longest: int
    scalars: dict[str, Scalar] = Field(default={})


class Open(Request):
    """Let each rank open and verify the shards of its silos."""

    introduces: ClassVar[bool] = True

    kind: Literal["open"] = "open"


class Save(Request):
    """Let each rank begin to write its silos' state, as part of the round's checkpoint.

    Attributes:
        oldest: The round of the oldest checkpoint that the server still has; 0 if there is none.
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
        wait: Whether to answer only when they are.
    """

    reply: ClassVar[type[Reply]] = FileReply
    has_deadline: ClassVar[bool] = True

    kind: Literal["save_status"] = "save_status"
    checkpoint: int
    wait: bool


class Load(Request):
    """Let silos read their state from the round's checkpoint.

    Attributes:
        files: The sha256 of each silo's file; silos without a file have no state from now on.
    """

    resets: ClassVar[bool] = True

    kind: Literal["load"] = "load"
    files: dict[int, str] = Field(default={})


class Migrate(Reassigning):
    """Let other ranks take over silos, with their state.

    Attributes:
        checkpoint: The round of the checkpoint to read.
        files: The sha256 of each silo's file in it, for silos that keep state.
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
    """Let each rank keep the server's state after a round, in case the server dies.

    Attributes:
        figures: The figures of the round.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False
    on_host: ClassVar[bool] = True

    kind: Literal["replicate"] = "replicate"
    figures: dict[str, Figure] = Field(default={})


class KeepTestSet(Request):
    """Let each rank keep the server's test set, on which models are scored later.

    Attributes:
        arrays: The arrays of the test set; they travel as vectors of bytes.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False
    on_host: ClassVar[bool] = True

    kind: Literal["keep_test_set"] = "keep_test_set"
    arrays: list[ArraySpec]


class ScoreBatches(Request):
    """Let some ranks score a model on batches of the test set.

    Attributes:
        size: Examples in a batch; the last batch may be smaller.
        examples: Examples in all batches.
        dealt: The ranks that get the batches, round robin.
    """

    has_deadline: ClassVar[bool] = True
    commits_earlier: ClassVar[bool] = False

    kind: Literal["score_batches"] = "score_batches"
    size: Annotated[int, Field(ge=1)]
    examples: int
    dealt: list[int]

    @property
    def sizes(self) -> list[int]:
        """The number of examples in each batch."""
        return [min(self.size, self.examples - begin) for begin in range(0, self.examples, self.size)]

    def of(self, rank: int) -> range:
        """Return the numbers of a rank's batches."""
        batches = len(self.sizes)
        first = self.dealt.index(rank) if rank in self.dealt else batches
        return range(first, batches, max(len(self.dealt), 1))


class Finish(Request):
    """Hand the final model to every silo.

    Attributes:
        sha256: The digest of the model's file.
        kept: The round that the model is of, if it is the best one; else 0.
    """

    reply: ClassVar[type[Reply]] = FinishReply
    has_deadline: ClassVar[bool] = True

    kind: Literal["finish"] = "finish"
    sha256: str
    kept: int = Field(default=0, ge=0)


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
        ValidationError: the record holds no request.
    """
    return _ANY.validate_json(record)
