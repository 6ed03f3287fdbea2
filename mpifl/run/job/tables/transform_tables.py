"""The tables `[compression]` and `[attack]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

OWN_KEYS: dict[str, dict[str, Any]] = {
    "qsgd": {"bits": 8, "bucket": 512, "norm": "max"},
    "topk": {"share": 0.01},
}
"""The keys of the job that only one codec has, and their defaults."""


class CompressionSettings(BaseModel):
    """The `[compression]` table of a job: how updates (upload) and requests (download) are written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    upload: Literal["none", "float16", "bfloat16", "qsgd", "topk"] = "none"
    """How silos encode their updates, or in a split network their lines."""
    download: Literal["none", "float16", "bfloat16", "qsgd"] = "none"
    """How requests are encoded, or answers to lines; topk is none of the ways, since most weights cannot be
    left out of a model."""
    error_feedback: bool | None = None
    """Silos add what was left out to their next update; by default with topk alone, which is biased."""
    bits: Annotated[int, Field(ge=2, le=8)] | None = None
    """Bits an element of qsgd, both ways; 8 unless given."""
    bucket: Annotated[int, Field(ge=1)] | None = None
    """How many elements share a norm in qsgd; 512 unless given."""
    norm: Literal["max", "l2"] | None = None
    """The norm that qsgd divides by; "max" unless given."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of the elements that topk sends, the largest; 0.01 unless given."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """Fill in the keys of the codecs that are used, and leave the others alone."""
        if not isinstance(given, dict):
            return given
        usual: dict[str, Any] = {}
        for name in (given.get("upload"), given.get("download")):
            usual |= OWN_KEYS.get(name, {}) if isinstance(name, str) else {}
        if given.get("upload", "none") != "none":
            usual["error_feedback"] = given["upload"] == "topk"
        return {**usual, **{key: value for key, value in given.items() if value is not None}}

    @model_validator(mode="after")
    def _consistent(self) -> CompressionSettings:
        for codec, keys in OWN_KEYS.items():
            given = [key for key in keys if getattr(self, key) is not None]
            if given and codec not in (self.upload, self.download):
                raise ValueError(f"{given[0]} belongs to {codec}; leave it out, or take upload = '{codec}'")
        if self.error_feedback and self.upload == "none":
            raise ValueError(
                "error_feedback is for what updates lose; take upload = 'topk' or another codec with it"
            )
        return self

    @property
    def asked(self) -> bool:
        """Whether anything is encoded."""
        return (self.upload, self.download) != ("none", "none")


_OF_KINDS = {
    "std": ("gaussian",),
    "factor": ("scale", "backdoor"),
    "z": ("alie",),
    "epsilon": ("ipm",),
    "direction": ("min_max",),
    "mimicked": ("mimic",),
    "keep_optimizer_state": ("label_flip", "sign_flip", "scale", "gaussian", "backdoor"),
    **dict.fromkeys(("target", "patch", "value", "share"), ("backdoor",)),
}


class AttackSettings(BaseModel):
    """`[attack]`: which silos lie, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal[
        "none",
        "label_flip",
        "backdoor",
        "sign_flip",
        "gaussian",
        "scale",
        "free_rider",
        "alie",
        "ipm",
        "mimic",
        "min_max",
    ] = "none"
    """What they learn of (labels turned round, a backdoor), or send: the negative, noise, a multiple, how the
    model changed last, or what follows from all honest updates."""
    silos: list[Annotated[int, Field(ge=0)]] = []
    """The silos that lie, by number."""
    std: PositiveFloat | None = None
    """For gaussian: the standard deviation of each element; 1 unless given."""
    factor: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """The multiple: for scale 10 unless given, for backdoor 1."""
    z: Annotated[float, Field(ge=-100, le=100)] | None = None
    """For alie: how many standard deviations from the mean; the paper's unless given."""
    epsilon: PositiveFloat | None = None
    """For ipm: the part of the mean whose negative is sent; 0.1 unless given."""
    direction: Literal["std", "unit", "sign"] | None = None
    """For min_max: away from the mean along the standard deviations, the mean itself or its signs; std unless
    given."""
    mimicked: Annotated[int, Field(ge=0)] | None = None
    """For mimic: the honest silo whose update liars send; the first of a round unless given, and where it has
    no part in the round."""
    target: Annotated[int, Field(ge=0)] | None = None
    """For backdoor: the class that patched examples are to be taken for; 0 unless given."""
    patch: PositiveInt | None = None
    """For backdoor: how many numbers it is long, at the end of the last two dimensions; 3 unless given."""
    value: float | None = None
    """For backdoor: what these numbers are, as a model sees them; 1 unless given."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """For backdoor: of a liar's examples, those with the patch; 0.5 unless given."""
    keep_optimizer_state: bool | None = None
    """For liars that train: false has their optimizers begin anew in each round, so that they have no worker
    momentum; else as `[local]` says."""

    @model_validator(mode="after")
    def _consistent(self) -> AttackSettings:
        for key, kinds in _OF_KINDS.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                goes = "' or '".join(kinds)
                what = f"goes with kind = '{goes}', not with '{self.kind}'"
                raise ValueError(f"{key} = {getattr(self, key)}: {what}")
        if (self.kind == "none") != (not self.silos):
            raise ValueError("name kind, what liars send, and silos, who they are; or leave both out")
        if self.mimicked in self.silos:
            raise ValueError(f"mimicked = {self.mimicked}: it is one of those that lie, name an honest silo")
        return self

    @property
    def warning(self) -> str:
        """What is said at each start."""
        if self.kind == "none":
            return ""
        who = ", ".join(map(str, sorted(self.silos)))
        return f"[attack] kind = '{self.kind}': SILOS {who} LIE ON PURPOSE, for tests and tables alone"
