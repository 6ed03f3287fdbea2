"""What `federation.json` says of any folder, whether silos have examples or columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from mpifl.data import Aims, Features
from mpifl.data.shards.federation_spec import ShardEntry


class AnyEntry(Protocol):
    """What is said of a silo's shard."""

    @property
    def silo(self) -> int | None:
        """Its number; None of what is no silo's."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def examples(self) -> Mapping[str, int]:
        """How many examples it has, by split."""

    @property
    def labels(self) -> Sequence[int] | None:
        """How many training examples each class has; None where another silo holds them."""

    @property
    def sha256(self) -> str:
        """The digest of its file."""


class AnySpec(Protocol):
    """What is said of the whole folder."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def layout(self) -> Literal["horizontal", "vertical"]:
        """Whether silos have examples or columns."""

    @property
    def features(self) -> Any:
        """What one whole example is."""

    @property
    def single(self) -> Features:
        """What an example is, where its input is one array; ShardError where it has several."""

    @property
    def classes(self) -> int | None:
        """How many classes labels are of; None where targets are values."""

    @property
    def targets(self) -> Aims | None:
        """What a target is; None is an int64 class number."""

    @property
    def silos(self) -> Sequence[AnyEntry]:
        """An entry for each silo."""

    @property
    def test(self) -> ShardEntry | None:
        """The global test set, if there is one."""

    @property
    def public(self) -> ShardEntry | None:
        """Examples that belong to no silo, if there are some."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """The classes' names."""

    @property
    def has_ragged_targets(self) -> bool:
        """Tell whether examples have unequal numbers of targets."""

    @property
    def aim(self) -> str:
        """Say what targets are, as messages do."""


def held_out(examples: Mapping[str, int]) -> str | None:
    """Return the split to judge a model by, given how many examples each has:
    `test`, else `valid`, else none."""
    return next((name for name in ("test", "valid") if examples.get(name)), None)
