"""What travels between the server and the silos: small JSON records with a schema; vectors follow as typed
buffers.

Nothing is ever unpickled: a silo is another organisation, and a pickle from it would be its code on our
server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny

from mpifl.common import LARGEST_FIGURE

Scalar: TypeAlias = bool | int | float | str
Figure: TypeAlias = Scalar | dict[str, Scalar]
"""What a round brought under one name: one for all, or each silo's by what it is called."""
Purpose: TypeAlias = Literal["training", "evaluation", "realignment"]
"""What a silo's work is for; the algorithm says it of each of its works."""

Combination: TypeAlias = Literal["weighted", "uniform", "summed"]
"""What becomes of a vector of an update: a mean by weight, a mean of equals, or a sum."""

LARGEST = 2.0**900
"""Numbers and weighted vectors stay below this, so that no sum of them overflows float64."""
MOST_SCALARS, MOST_VECTORS, LONGEST_TEXT = 4096, 256, 500
"""What one header may hold, and the characters of a text in it."""


def clean(text: str) -> str:
    """Return a text of another rank as one line that a terminal can show,
    cut to `LONGEST_TEXT` characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: LONGEST_TEXT + 1])
    return shown if len(shown) <= LONGEST_TEXT else shown[: LONGEST_TEXT - 3] + "..."


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has characters that cannot be shown")
    return name


Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Text: TypeAlias = Annotated[str, AfterValidator(clean)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**48)]
Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1e9)]
WindowNumber: TypeAlias = Annotated[int, Field(ge=-70, le=60)]
"""Those of all float64 numbers below `LARGEST`; see `aggregation.exact`."""
Value: TypeAlias = (
    bool
    | Annotated[int, Field(ge=-(2**63), le=2**63)]
    | Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
    | Text
)
"""A scalar as it is taken from another rank."""

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
}
"""The dtypes that may travel. bfloat16 and float8 are not among them:
Open MPI adds them up as bytes, silently."""


class Message(BaseModel):
    """A record that travels as JSON; unknown keys and wrong types are refused,
    NaN and Inf cannot be written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def encode(self) -> bytes:
        """Return the record as JSON bytes."""
        return self.model_dump_json().encode()


class VectorSpec(Message):
    """Announce a vector: its name, number of elements and dtype (a key of `DTYPES`)."""

    name: str
    length: int = Field(ge=0)
    dtype: str


class ArraySpec(Message):
    """Announce an array: its name, its shape and the name of its dtype."""

    name: str
    shape: list[int]
    dtype: str


class VectorHeader(Message):
    """What a header says of one vector of an update: how long it is, and in which window of the exact sum."""

    length: Count
    window: WindowNumber | None
    """None: all zero."""
    combined: Combination = "weighted"
    bytes: Count | None = None
    """How long the payload is that a codec wrote of it; None: it is sent as float32."""


class Reply(Message):
    """What one silo answers.

    Attributes:
        kind: Which record it is.
        silo: Whose it is.
        seconds: Time that its work took.
        keeps: Whether it has kept something for later rounds, and so cannot be taken over by a rank without
            that.
        fault: What went wrong; nothing else of the reply counts then.
        passing: Whether the fault may pass by itself: the machine's, not the program's.
    """

    kind: str
    silo: Count
    seconds: Seconds = 0.0
    keeps: bool = False
    fault: Text | None = None
    passing: bool = False


STOPPED = "stopped, as another did"
"""The fault of a silo that had none, in a dialogue that another ended."""


class Done(Reply):
    """It is done, or a fault; there is no more to say."""

    kind: Literal["done"] = "done"


class Header(Reply):
    """What a silo says of its update before any vector travels."""

    kind: Literal["update"] = "update"
    weight: float = Field(default=0.0, ge=0, le=LARGEST)
    scalars: dict[Name, Value] = Field(default={}, max_length=MOST_SCALARS)
    sealed: list[Name] = Field(default=[], max_length=MOST_SCALARS, fail_fast=True)
    """Of scalars whose values only their sum tells."""
    vectors: dict[Name, VectorHeader] = Field(default={}, max_length=MOST_VECTORS)


class FileReply(Reply):
    """How far the silo's file of a checkpoint is; neither where there is none.

    Attributes:
        writing: It is being written.
        sha256: It is written, and this is its digest.
    """

    kind: Literal["file"] = "file"
    writing: bool = False
    sha256: Digest | None = None


class FinishReply(Reply):
    """The silo has the final model.

    Attributes:
        unwritten: Why it could not be written, if so.
    """

    kind: Literal["finish"] = "finish"
    unwritten: Text | None = None


AnyReply: TypeAlias = Annotated[Done | Header | FileReply | FinishReply, Field(discriminator="kind")]


class Report(Message):
    """What one rank answers: a reply for each of its silos that was asked, and how it fares."""

    serial: int = Field(default=0, ge=0, le=2**63)
    """Of the request that it answers."""
    headers: list[SerializeAsAny[AnyReply]] = Field(default=[], fail_fast=True)
    """Each is written as what it is: to look for its class among all would take twice as long."""
    parts: list[Any] = Field(default=[], max_length=2**20)
    """Where this rank's share of the sums lies: records of the aggregator's own, which reads them."""
    seconds: Seconds = 0.0
    """Time spent in the silos' work."""
    interrupted: bool = False
    """A signal asks this rank to end."""
    about: dict[Name, Text] = Field(default={}, max_length=16)
    heard: str = Field(default="", max_length=64)
    """A digest of all records that this rank was told so far: others relay them."""
    hanging: list[int] = Field(default=[], max_length=2**16, fail_fast=True)
    """Ranks of its node that did not make their share of the last sum in time, if this rank leads it."""


class Verdict(Message):
    """What the server makes of the headers: whose updates count, and what travels now."""

    serial: int = 0
    """The request's."""
    lost: str | None = None
    """Why the round is lost, if it is."""
    accepted: list[int] = []
    explain: list[int] = []
    """Silos whose ranks are to print the traceback of what went wrong."""
    ranks: list[int] = []
    """The ranks that answered in time; the others take no part in what follows."""
    pieces: list[Any] = []
    """What travels now: records of the aggregator's own."""
