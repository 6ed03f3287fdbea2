"""What the parties of an alignment and rank 0 tell each other between the streams of masked ids."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from mpifl.data import Aims
from mpifl.data.shards import VerticalEntry
from mpifl.wire import Count, Digest, Message, Text

MOST_IDS = 1 << 28
"""Of one party; rank 0 has 32 bytes of each."""


class AlignedLabels(Message):
    """What there is to learn, as `federation.json` says it; from the party that holds the labels."""

    classes: Count | None
    targets: Aims | None = None
    class_names: list[str] | None = None


class Hello(Message):
    """What a party says of itself first.

    Attributes:
        terms: The sha256 of its file of terms.
        ids: How many it has.
        key: What is alike at two parties if their keys are; "" where ids are masked on a curve.
        width: How many columns of numbers it has.
        columns: Their names, if all parties are to know them.
        learned: Where it has the labels.
    """

    terms: Digest
    ids: Annotated[int, Field(ge=1, le=MOST_IDS)]
    key: Digest | None = None
    width: Annotated[int, Field(ge=1, le=1 << 24)]
    columns: list[str] | None = None
    learned: AlignedLabels | None = None


class Start(Message):
    """What all parties need before they mask.

    Attributes:
        nonce: Of this alignment, in hexadecimal.
        sizes: How many ids each party has.
        widths: How many columns each has.
        learned: What the labels are.
    """

    nonce: Digest
    sizes: list[Count]
    widths: list[Count]
    learned: AlignedLabels


class Passed(Message):
    """All masked ids have been passed on."""


class Common(Message):
    """How many ids are common, and the random tag that all shards of this alignment carry."""

    rows: Count
    alignment: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


class Made(Message):
    """A party's shard lies ready."""

    entry: VerticalEntry


class AlignFederation(Message):
    """`federation.json`, as all write it."""

    text: str


class AlignedShard(Message):
    """A party's shard is in its place."""


class Finished(Message):
    """Rank 0's `federation.json` is in its place, too."""


Said = TypeVar("Said", bound=Message)


class Answer(Message, Generic[Said]):
    """What a rank says at the end of a part, or that it has stopped; a party tells nobody else why."""

    said: Said | None = None
    stopped: Text | None = None


def answer_of(kind: type[Said], record: bytes) -> Answer[Said]:
    """Read an answer that another rank has sent.

    Raises:
        ValueError: it is none of this kind.
    """
    of: Any = Answer[kind]  # type: ignore[valid-type]
    found: Answer[Said] = of.model_validate_json(record)
    if (found.said is None) == (found.stopped is None):
        raise ValueError("an answer says something, or why it does not")
    return found
