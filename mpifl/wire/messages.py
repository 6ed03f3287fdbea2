"""The records between server and silos: small JSON with a schema; vectors follow as typed buffers.

Nothing is ever unpickled: a silo is another organisation, and its pickle could run its code on our server.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny

from mpifl.common import LARGEST_FIGURE

Scalar: TypeAlias = bool | int | float | str
Figure: TypeAlias = Scalar | dict[str, Scalar] | list[str]
"""A figure of a round: one value, a value for each silo by the silo's name, or the names of some silos."""
Purpose: TypeAlias = Literal["training", "evaluation", "realignment"]
"""The purpose of a client method; the algorithm declares it for each of its client methods."""

Combination: TypeAlias = Literal["weighted", "uniform", "summed"]
"""How a vector is combined over silos: a weighted mean, a mean with equal weights, or a sum."""

LARGEST = 2.0**900
"""Numbers and weighted vectors must stay below this, so that no sum of them overflows float64."""
MOST_SCALARS, MOST_VECTORS, LONGEST_TEXT = 4096, 256, 500
"""How many scalars and vectors a header may hold, and how many characters a text in it."""


def clean(text: str) -> str:
    """Return another rank's text as one line that a terminal can show, cut to `LONGEST_TEXT` characters."""
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
"""The windows of all float64 numbers below `LARGEST`; see `mpifl.sums.exact`."""
_Loss: TypeAlias = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Value: TypeAlias = bool | Annotated[int, Field(ge=-(2**63), le=2**63)] | _Loss | Text
"""A scalar that is accepted from another rank."""

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float32, torch.float64, torch.int64, torch.uint8)
}
"""The dtypes that may travel. bfloat16 and float8 may not: Open MPI silently adds them up as bytes."""


class Message(BaseModel):
    """A record that travels as JSON. It refuses unknown keys, wrong types, NaN and Inf."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def encode(self) -> bytes:
        """Return the record as JSON bytes."""
        return self.model_dump_json().encode()


class VectorSpec(Message):
    """Announces a vector: its name, number of elements and dtype (a key of `DTYPES`)."""

    name: str
    length: int = Field(ge=0)
    dtype: str


class ArraySpec(Message):
    """Announces an array: its name, its shape and the name of its dtype."""

    name: str
    shape: list[int]
    dtype: str


class VectorHeader(Message):
    """Describes one vector of an update: its length, its window of the exact sum, how it is combined."""

    length: Count
    window: WindowNumber | None
    """None: all elements are 0."""
    combined: Combination = "weighted"
    bytes: Count | None = None
    """Bytes of the payload if a codec compressed the vector; None: it is sent as float32."""


class Reply(Message):
    """The answer of one silo to a request.

    Attributes:
        kind: The kind of reply.
        silo: The silo that answers.
        seconds: Time that its work took.
        keeps: Whether the silo keeps state for later rounds. Then another rank needs this state to host it.
        fault: What went wrong. If set, nothing else in the reply counts.
        passing: Whether the fault may pass by itself: it is the machine's, not the program's.
    """

    kind: str
    silo: Count
    seconds: Seconds = 0.0
    keeps: bool = False
    fault: Text | None = None
    passing: bool = False


STOPPED = "stopped, as another did"
"""The fault of a silo that did nothing wrong, in a dialogue that another silo ended."""


class Done(Reply):
    """Says only that the request is carried out, or which fault there was."""

    kind: Literal["done"] = "done"


class Header(Reply):
    """Describes a silo's update before any vector travels."""

    kind: Literal["update"] = "update"
    weight: float = Field(default=0.0, ge=0, le=LARGEST)
    scalars: dict[Name, Value] = Field(default={}, max_length=MOST_SCALARS)
    sealed: list[Name] = Field(default=[], max_length=MOST_SCALARS, fail_fast=True)
    """Names of the masked scalars: their masked sum is sent, and single values only as a silo chooses."""
    vectors: dict[Name, VectorHeader] = Field(default={}, max_length=MOST_VECTORS)
    seen: Count = 0
    """How many examples the silo's trainings saw; 0 if it does not tell."""
    losses: list[_Loss | None] = Field(default=[], max_length=MOST_SCALARS, fail_fast=True)
    """The mean losses of its steps, where they are asked for; None is not finite."""


class FileReply(Reply):
    """The state of a silo's file in a checkpoint; without any file both fields have their defaults.

    Attributes:
        writing: Whether the file is still being written.
        sha256: The digest of the written file.
    """

    kind: Literal["file"] = "file"
    writing: bool = False
    sha256: Digest | None = None


class FinishReply(Reply):
    """Says that the silo has the final model.

    Attributes:
        unwritten: Why the model could not be written; None if it was.
    """

    kind: Literal["finish"] = "finish"
    unwritten: Text | None = None


AnyReply: TypeAlias = Annotated[Done | Header | FileReply | FinishReply, Field(discriminator="kind")]


class Report(Message):
    """The answer of one rank: a reply for each of its silos that was asked, and the rank's own state."""

    serial: int = Field(default=0, ge=0, le=2**63)
    """The serial number of the request."""
    headers: list[SerializeAsAny[AnyReply]] = Field(default=[], fail_fast=True)
    """`SerializeAsAny` writes each reply by its own class: a search among all classes takes twice as long."""
    parts: list[Any] = Field(default=[], max_length=2**20)
    """Where this rank's share of the sums lies, in records that only the aggregator reads."""
    seconds: Seconds = 0.0
    """Time spent in the silos' work."""
    interrupted: bool = False
    """Whether a signal asks this rank to end."""
    about: dict[Name, Text] = Field(default={}, max_length=16)
    heard: str = Field(default="", max_length=64)
    """The digest of all records that this rank has received, since other ranks relay them."""
    hanging: list[int] = Field(default=[], max_length=2**16, fail_fast=True)
    """From a node's leader: ranks of its node that did not make their share of the last sum in time."""


class Verdict(Message):
    """The server's decision on the headers: which updates count, and which vectors travel now."""

    serial: int = 0
    """The serial number of the request."""
    lost: str | None = None
    """Why the round is lost; None if it is not."""
    accepted: list[int] = []
    explain: list[int] = []
    """Silos whose ranks print the traceback of the fault."""
    ranks: list[int] = []
    """The ranks that answered in time and whose reports were accepted; only they take part in the sums."""
    pieces: list[Any] = []
    """What travels now, in records that only the aggregator reads."""
