"""Protocols of `federation.json` for both layouts: silos with examples, or with columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from mpifl.data import Aims, Features
from mpifl.data.shards.federation_spec import ShardEntry


class AnyEntry(Protocol):
    """The entry of one shard."""

    @property
    def silo(self) -> int | None:
        """The silo's number, or None if the shard belongs to no silo."""

    @property
    def name(self) -> str:
        """The shard's name."""

    @property
    def examples(self) -> Mapping[str, int]:
        """The number of examples by split."""

    @property
    def labels(self) -> Sequence[int] | None:
        """The number of training examples of each class; None if another silo holds the targets."""

    @property
    def file(self) -> str:
        """Its file in the folder."""

    @property
    def bytes(self) -> int:
        """The size of its file."""

    @property
    def sha256(self) -> str:
        """The sha256 of its file."""


class AnySpec(Protocol):
    """The description of the whole folder."""

    @property
    def name(self) -> str:
        """The federation's name."""

    @property
    def layout(self) -> Literal["horizontal", "vertical"]:
        """Whether silos have examples ("horizontal") or columns ("vertical")."""

    @property
    def features(self) -> Any:
        """The format of one whole example."""

    @property
    def single(self) -> Features:
        """The format of an example if its input is one array; ShardError if it has several."""

    @property
    def classes(self) -> int | None:
        """The number of classes; None if targets are values."""

    @property
    def targets(self) -> Aims | None:
        """The format of a target; None is an int64 class number."""

    @property
    def silos(self) -> Sequence[AnyEntry]:
        """An entry for each silo."""

    @property
    def test(self) -> ShardEntry | None:
        """The global test set, or None."""

    @property
    def public(self) -> ShardEntry | None:
        """Examples that belong to no silo, or None."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """The classes' names."""

    @property
    def has_ragged_targets(self) -> bool:
        """Whether examples have unequal numbers of targets."""

    @property
    def aim(self) -> str:
        """The description of the targets in messages."""


def held_out(examples: Mapping[str, int]) -> str | None:
    """Return the split to judge a model by, given how many examples each has:
    `test`, else `valid`, else none."""
    return next((name for name in ("test", "valid") if examples.get(name)), None)
