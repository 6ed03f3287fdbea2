"""The outline of a job: its tables are validated, but the code that they name and torch are not imported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from mpifl.algorithms import ClockSettings
from mpifl.common import Table, read_toml
from mpifl.run.job.fits import why_not
from mpifl.run.job.tables import (
    AggregationSettings,
    AttackSettings,
    Checkpoint,
    CohortTable,
    CompressionSettings,
    Data,
    Evaluate,
    Model,
    PrivacySettings,
    SecuritySettings,
    Tracking,
    with_uniform_weights,
)
from mpifl.run.job.validation import FOLDER_NAME, validated
from mpifl.silo import SplitSettings
from mpifl.silo.steps import LocalTraining

HARMLESS = ("rounds", "checkpoint", "tracking", "evaluate", "aggregation.disk_buffer")
"""Keys of a job that may change when a run is resumed."""

OF_SUMS = ("newton", "cox", "kaplanmeier", "tableone", "dptable")
"""Algorithms of the wing `analysis`."""
TABLE = "dptable"
"""The one of them that goes with `[privacy]`."""


NEEDED = {"noise = 1.1 or epsilon = 2.0": ("noise", "noise_of", "epsilon"), "delta = 1e-5": ("delta",)}
"""What each `[privacy]` needs, by how it may be written, besides `clip`."""


class Outline(BaseModel):
    """A whole job file, in which algorithm, task and server optimizer are still plain tables."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(pattern=FOLDER_NAME)]
    """The name of the job: letters, digits, ".", "_" and "-", and not dots alone."""
    shards: str
    """The folder of the shards, relative to the folder where the command runs."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The seed from which all randomness is derived."""
    rounds: PositiveInt
    """How many rounds to train."""
    device: Literal["auto", "cpu", "gpu", "cuda"] = "auto"
    """The device on which a worker trains. "cuda": the GPU of its place on its node. "auto": that GPU if
    there is one. "gpu": any accelerator with float64."""
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = 1
    """Threads of each rank; "auto" is its share of the node's cores. The same bits need the same number."""
    kernels: Literal["own", "avx2"] = "own"
    """Instructions: the processor's best ("own"), or those of all x86 processors with AVX2 ("avx2"). "avx2"
    is slower, and different processors should give the same bits."""
    model: Model
    """Which model is trained."""
    data: Data = Data()
    """How the examples are changed that silos train on."""
    task: Table = {"name": "classification"}
    """The task by name, or the user's own as "package.module:Class": what is learned, by which loss, and
    judged by which metrics."""
    algorithm: Table = {"name": "fedavg"}
    """The algorithm by name, or the user's own as "package.module:Class", and its hyperparameters."""
    local: LocalTraining = LocalTraining()
    """How a silo trains in a round."""
    split: SplitSettings | None = None
    """How a network is split over silos; only for silos that have columns of the same rows."""
    clock: ClockSettings | None = None
    """How fast silos train on the server's virtual clock, which asynchronous algorithms need."""
    server_optimizer: Table = {"name": "sgd"}
    """How the server moves the model along the mean of the updates."""
    cohort: CohortTable = CohortTable()
    """Which silos take part in a round, how many must answer, and their weights."""
    aggregation: AggregationSettings = AggregationSettings()
    """How updates are combined to one."""
    compression: CompressionSettings = CompressionSettings()
    """How updates and requests are encoded."""
    attack: AttackSettings = AttackSettings()
    """Which silos are Byzantine on purpose, for tests and comparisons; none by default."""
    privacy: PrivacySettings | None = None
    """Differential privacy; it is on if the table is there."""
    security: SecuritySettings | None = None
    """Masked sums, of which the server sees only the total; they are on if the table is there."""
    evaluate: Evaluate = Evaluate()
    """How often and where the model is scored."""
    checkpoint: Checkpoint = Checkpoint()
    """How often checkpoints are written, and how many are kept."""
    tracking: Tracking = Tracking()
    """Which outputs and observers get the record of each round."""

    @property
    def needs_all(self) -> bool:
        """Whether a round needs all silos that it asks, so that no lower quorum could keep it."""
        return self.split is not None or self.algorithm.get("name") in OF_SUMS

    @property
    def wings(self) -> dict[str, str]:
        """The wings that the job asks for, each with the key that asks; `MPIFL_SITE` asks for `site`."""
        asked = {
            "site": (bool(os.environ.get("MPIFL_SITE")), "MPIFL_SITE"),
            "dpsgd": (self.privacy is not None, "[privacy]"),
            "fast": (self.local.compile or self.local.batch_silos, "[local] compile or batch_silos"),
            "compression": (self.compression.asked, "[compression]"),
            "scoring": self.evaluate.elsewhere,
            "masked": (self.security is not None, "[security]"),
            "robust": (not self.aggregation.is_mean, f"[aggregation] rule = '{self.aggregation.rule}'"),
            "attacks": (self.attack.kind != "none", f"[attack] kind = '{self.attack.kind}'"),
            "split": (self.split is not None, "[split]"),
            "analysis": ((name := self.algorithm.get("name")) in OF_SUMS, f"[algorithm] name = '{name}'"),
            "sites": (self.cohort.late != "never", f"[cohort] late = '{self.cohort.late}'"),
        }
        return {name: key for name, (does, key) in asked.items() if does}

    @model_validator(mode="before")
    @classmethod
    def _weights_by_rule(cls, table: Any) -> Any:
        return with_uniform_weights(table) if isinstance(table, dict) else table

    @model_validator(mode="before")
    @classmethod
    def _privacy_is_whole(cls, table: Any) -> Any:
        """Name all keys that `[privacy]` lacks; one that lacks alone is told by itself."""
        privacy = table.get("privacy") if isinstance(table, dict) else None
        if isinstance(privacy, dict):
            algorithm = table.get("algorithm")
            clips = not isinstance(algorithm, dict) or algorithm.get("name") != TABLE
            needed = {"clip = 1.0": ("clip",), **NEEDED} if clips else NEEDED
            lacks = [one for one, keys in needed.items() if privacy.keys().isdisjoint(keys)]
            if len(lacks) > 1:
                raise ValueError(f"[privacy] needs {', '.join(lacks[:-1])} and {lacks[-1]}, say")
        return table

    @model_validator(mode="after")
    def _kernels_can_be_pinned(self) -> Outline:
        if self.kernels == "avx2" and self.device != "cpu":
            raise ValueError("kernels = 'avx2': is of processors, not of GPUs; use device = 'cpu' with it")
        return self

    @model_validator(mode="after")
    def _clip_is_of_trainings(self) -> Outline:
        if self.privacy is None:
            return self
        name, clip = self.algorithm.get("name"), self.privacy.clip
        if clip is None and name != TABLE:
            raise ValueError("[privacy] needs the key 'clip', the largest norm of a gradient or an update")
        if clip is not None and name == TABLE:
            what = f"'{TABLE}' clips columns to [algorithm] bounds, and no gradients; leave it out"
            raise ValueError(f"[privacy] clip = {clip}: {what}")
        return self

    @model_validator(mode="after")
    def _every_round_can_be_trained(self) -> Outline:
        self.local.check_rounds(self.rounds)
        return self

    @model_validator(mode="after")
    def _fits(self) -> Outline:
        for way in ("usual", "rule", "compile", "batch_silos"):
            if why := why_not(way, self):
                raise ValueError(why)
        return self


def read_outline(path: Path, overrides: Sequence[str] = ()) -> Outline:
    """Read the outline of a job file; `read_job` does more.

    Raises:
        InputError: a table is wrong, or tables do not go together, as far as the outline shows it.
    """
    outline: Outline = validated(Outline, read_toml(path, overrides), str(path), "")
    return outline


def differing_keys(one: Outline, other: Outline, harmless: Iterable[str] = ()) -> list[str]:
    """Return the keys, `table.key`, in which two jobs differ, except those in `harmless`.

    Args:
        one: A job.
        other: Another job.
        harmless: Tables and keys that may differ.
    """
    flat_one, flat_other = flat(one.model_dump()), flat(other.model_dump())
    keys = [key for key in flat_one | flat_other if flat_one.get(key) != flat_other.get(key)]
    return sorted(key for key in keys if not {key, key.partition(".")[0]} & set(harmless))


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Return the values of nested tables by `table.key`."""
    found: Table = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found
