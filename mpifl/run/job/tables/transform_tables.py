"""The tables `[compression]` and `[attack]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

OWN_KEYS: dict[str, dict[str, Any]] = {
    "qsgd": {"bits": 8, "bucket": 512, "norm": "max"},
    "topk": {"share": 0.01},
}
"""The keys that only one codec has, and their defaults."""


class CompressionSettings(BaseModel):
    """`[compression]`: how updates (upload) and requests (download) are encoded."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    upload: Literal["none", "float16", "bfloat16", "qsgd", "topk"] = "none"
    """How silos encode their updates, or in a split network their activations."""
    download: Literal["none", "float16", "bfloat16", "qsgd"] = "none"
    """How requests are encoded, or in a split network the answers to activations. topk is not possible here:
    a model cannot do without most of its weights."""
    error_feedback: bool | None = None
    """Whether silos add the error of the encoding to their next update. The default is true only for topk,
    which is biased."""
    bits: Annotated[int, Field(ge=2, le=8)] | None = None
    """For qsgd, both ways: bits for each element; the default is 8."""
    bucket: Annotated[int, Field(ge=1)] | None = None
    """For qsgd: how many elements share a norm; the default is 512."""
    norm: Literal["max", "l2"] | None = None
    """For qsgd: the norm that it divides by; the default is "max"."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """For topk: the share of elements that it sends, the largest; the default is 0.01."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        """Fill in the defaults of the codecs that the job uses."""
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
                raise ValueError(f"{given[0]} belongs to {codec}; leave it out, or use upload = '{codec}'")
        if self.error_feedback and self.upload == "none":
            raise ValueError(
                "error_feedback is for what updates lose; use upload = 'topk' or another codec with it"
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
    """`[attack]`: which silos are Byzantine, and what they do."""

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
    """The attack. In label_flip and backdoor Byzantine silos train on false data. In the others they send a
    false update: a multiple, noise, or one that honest updates decide."""
    silos: list[Annotated[int, Field(ge=0)]] = []
    """The Byzantine silos, by number."""
    std: PositiveFloat | None = None
    """For gaussian: the standard deviation of each element; the default is 1."""
    factor: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """For scale and backdoor: the factor of the update; the defaults are 10 and 1."""
    z: Annotated[float, Field(ge=-100, le=100)] | None = None
    """For alie: how many standard deviations from the mean; the default is the paper's number."""
    epsilon: PositiveFloat | None = None
    """For ipm: the mean times this, with a negative sign, is sent; the default is 0.1."""
    direction: Literal["std", "unit", "sign"] | None = None
    """For min_max: the direction away from the mean: the standard deviations ("std", the default), the mean
    itself ("unit"), or its signs ("sign")."""
    mimicked: Annotated[int, Field(ge=0)] | None = None
    """For mimic: the honest silo whose update is sent. If it is not given, or takes no part in a round, it is
    the first honest silo of the round."""
    target: Annotated[int, Field(ge=0)] | None = None
    """For backdoor: the class that the model should answer for patched examples; the default is 0."""
    patch: PositiveInt | None = None
    """For backdoor: the size of the patch at the end of each of the last two dimensions; the default is 3."""
    value: float | None = None
    """For backdoor: the value in the patch, as the model sees it; the default is 1."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """For backdoor: the share of a Byzantine silo's examples that get the patch; the default is 0.5."""
    keep_optimizer_state: bool | None = None
    """For attacks that train: false resets the optimizers of Byzantine silos in each round, so that they have
    no worker momentum; the default is that of `[local]`."""

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
        """The warning at each start; "" without an attack."""
        if self.kind == "none":
            return ""
        who = ", ".join(map(str, sorted(self.silos)))
        return f"[attack] kind = '{self.kind}': SILOS {who} LIE ON PURPOSE, for tests and tables alone"
