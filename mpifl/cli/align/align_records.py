"""The messages between the parties of an alignment and rank 0, besides the streams of masked ids."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from mpifl.data import Aims
from mpifl.data.shards import VerticalEntry
from mpifl.wire import Count, Digest, Message, Text

MOST_IDS = 1 << 28
"""The most ids of a party; rank 0 holds 32 bytes for each."""


class AlignedLabels(Message):
    """The format of the labels for `federation.json`, from the party that holds them."""

    classes: Count | None
    targets: Aims | None = None
    class_names: list[str] | None = None


class Hello(Message):
    """A party's first message.

    Attributes:
        terms: The sha256 of its file of terms.
        ids: The number of its ids.
        key: A digest that is equal at two parties if their keys are; None if ids are masked on a curve.
        width: The number of its columns of numbers.
        columns: The columns' names, if all parties may know them.
        learned: The format of the labels, if it holds them.
    """

    terms: Digest
    ids: Annotated[int, Field(ge=1, le=MOST_IDS)]
    key: Digest | None = None
    width: Annotated[int, Field(ge=1, le=1 << 24)]
    columns: list[str] | None = None
    learned: AlignedLabels | None = None


class Start(Message):
    """The facts that all parties need before they mask.

    Attributes:
        nonce: The nonce of this alignment, in hexadecimal.
        sizes: The number of each party's ids.
        widths: The number of each party's columns.
        learned: The format of the labels.
    """

    nonce: Digest
    sizes: list[Count]
    widths: list[Count]
    learned: AlignedLabels


class Passed(Message):
    """All masked ids have been passed on."""


class Common(Message):
    """The number of common ids, and the random tag for all shards of this alignment."""

    rows: Count
    alignment: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class Made(Message):
    """A party's shard is written under a temporary name."""

    entry: VerticalEntry


class AlignFederation(Message):
    """The text of `federation.json`, the same for all."""

    text: str


class AlignedShard(Message):
    """A party's shard is in its place."""


class Finished(Message):
    """Rank 0's `federation.json` is also in its place."""


Said = TypeVar("Said", bound=Message)


class Answer(Message, Generic[Said]):
    """A rank's result of a phase, or that it has stopped; a party keeps its reason to itself."""

    said: Said | None = None
    stopped: Text | None = None


def answer_of(kind: type[Said], record: bytes) -> Answer[Said]:
    """Read another rank's answer.

    Raises:
        ValueError: it is not of this kind.
    """
    of: Any = Answer[kind]  # type: ignore[valid-type]
    found: Answer[Said] = of.model_validate_json(record)
    if (found.said is None) == (found.stopped is None):
        raise ValueError("an answer says something, or why it does not")
    return found
