"""The base class of the package's own tasks: a job chooses loss and metrics by name."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, ClassVar

import torch
from pydantic import Field, PrivateAttr, model_validator
from torch import Tensor, nn

from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import (
    COUNTED,
    MOST_CLASSES,
    Chosen,
    Metric,
    MetricEntry,
    MetricInfo,
    choose,
    plugin,
)
from mpifl.learning.tasks.federation_view import TaskFacts
from mpifl.learning.tasks.losses import Summed
from mpifl.learning.tasks.model_answers import told_of
from mpifl.learning.tasks.task import Task


class PackageTask(Task):
    """A task of the package. Each has a file of its own with its losses, metrics and predictions.

    The first of its losses is the default. The parameters of a loss are the keys of the task that it takes.
    """

    kind: ClassVar[str]
    """The task's name in a job."""
    form: ClassVar[str] = ""
    """The prefix of torchmetrics' classes: "Binary", "Multiclass", "Multilabel"."""
    losses: ClassVar[Mapping[str, Callable[..., Summed]]]
    catalogue: ClassVar[Mapping[str, MetricEntry]]
    takes: ClassVar[str]
    """The targets that it takes, in the words of an error message."""
    usual: ClassVar[tuple[str, ...]]
    """The metrics if a job names none."""
    of_numbers: ClassVar[str] = ""
    """What does where an example's target is a class, and should be a number."""
    one_hot: ClassVar[bool] = False
    """Whether users may have stored its targets as one-hot rows by mistake."""
    weights_divide: ClassVar[bool] = True
    """Whether the weights of a loss are also in its divisor."""

    chosen_loss: str | None = Field(default=None, alias="loss")
    """The loss: a name, or the user's own as "package.module:function"; by default the task's first.
    """
    chosen_metrics: list[str | dict[str, Any]] | None = Field(default=None, alias="metrics")
    """Names, tables with a name and arguments (`as` renames a metric), or the user's own as
    "package.module:Class"."""

    _facts: TaskFacts = PrivateAttr(default=TaskFacts())
    _counts_answers: bool = PrivateAttr(default=False)

    @abstractmethod
    def fits(self, facts: TaskFacts) -> bool:
        """Return whether a federation's targets fit the task."""

    def for_federation(self, spec: AnySpec) -> Task:
        """Return the task with the facts of the federation."""
        facts = TaskFacts.of(spec)
        if not self.fits(facts) or (facts.ragged and facts.classes is None):
            what = f"takes {self.takes}; the shards have {facts.told}"
            one_hot = facts.told_of_one_hot if self.one_hot else ""
            hint = one_hot or (self.of_numbers if facts.classes and not facts.shape else "")
            raise InputError(f"[task] name = '{self.kind}': {what}, for which use '{facts.usual}'{hint}")
        self._check_weights(facts)
        if (own := getattr(self, "ignore", None)) not in (None, facts.ignore):
            _check_ignore(own, facts)
        told = self.model_copy()
        told.__dict__.pop("plain", None)  # a copy keeps cached values, and `plain` depends on the facts
        told._facts = facts
        return told

    def check(self, spec: AnySpec, module: nn.Module) -> None:
        """Check that the federation fits this task."""
        self.for_federation(spec)

    @property
    def unwraps(self) -> bool:
        """Whether the outputs are one tensor, which is taken from a model's dict."""
        return True

    def check_outputs(self, outputs: Any, examples: int, width: int) -> None:
        """Check that a model returns `width` numbers for each target; one number needs no dimension."""
        if not isinstance(outputs, Tensor):
            raise ValueError(f"it answers with {told_of(outputs)}")
        found, wanted = list(outputs.shape), [examples, width, *(self.places or ())]
        alike = [wanted, [examples, *wanted[2:]]] if width == 1 else [wanted]
        if (found if self.places is not None else found[:2]) not in alike:
            moved = [*found[:1], *found[-1:], *found[1:-1]]
            last = len(found) > 2 and (moved if self.places is not None else moved[:2]) in alike
            told = (
                f"{moved}; classes come before places, as outputs.movedim(-1, 1) has them" if last else wanted
            )
            one_hot = self._facts.told_of_one_hot if self.one_hot and len(found) == 2 else ""
            raise ValueError(f"it answers {examples} examples with shape {found}, not {told}{one_hot}")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        """Return the schema of its keys, with the known losses and metrics."""
        made = handler.resolve_ref_schema(handler(core))
        if "losses" in vars(cls):
            keys, own = made["properties"], {"type": "string", "pattern": ":"}
            keys["loss"]["anyOf"] = [{"enum": [*cls.losses]}, own]
            keys["metrics"]["anyOf"][0]["items"]["anyOf"][0] = {"enum": [*cls.catalogue]}
            keys["metrics"]["anyOf"][0]["items"]["anyOf"].insert(1, own)
        return made

    @property
    def places(self) -> tuple[int, ...] | None:
        """The number of targets of an example along each dimension; None if the shards do not tell it."""
        return self._facts.shape

    def loss(self, outputs: Tensor, y: Tensor) -> Summed:
        """Return the sum of a batch's losses, and its divisor."""
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        found = self.criterion(outputs, y, **self._arguments(outputs))
        return found if isinstance(found, tuple) else self._summed(found, y)

    def why_no_mean(self) -> str:
        """Return why a batch's loss is not the mean of its examples' losses; "" if it is."""
        if self.ignored is not None:
            return (
                f"is divided by the targets that count, those that are not {self.ignored}; leave ignore out"
            )
        if self.weights_divide and "weights" in self.given:
            return "is divided by the weights of the batch's classes; leave weights out"
        return ""

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics that the job names, or the usual ones; last the counts of answers, if asked."""
        facts = replace(self._facts, ignore=self.ignored, threshold=self.cut_off)
        found = {name: one.make(self.form, facts) for name, one in self.chosen.items()}
        if self._counts_answers:
            from mpifl.learning.metrics import AnswerCounts  # torchmetrics takes seconds

            found[COUNTED] = AnswerCounts(self.choices, self.cut_off)
        return found

    def counting_answers(self) -> Task:
        """Return the task with counts of answers beside its metrics, where it has few enough classes."""
        told = self.model_copy()
        told._counts_answers = 2 <= self.choices <= MOST_CLASSES
        return told

    @property
    def ignored(self) -> int | None:
        """The target that does not count: the job's, else the shards'."""
        own: int | None = getattr(self, "ignore", None)
        return self._facts.ignore if own is None else own

    @property
    def single(self) -> bool:
        """Whether an example has one target, and all targets count."""
        return self._facts.columns == 1 and self.ignored is None

    @property
    def scores_once(self) -> bool:
        """Whether an example adds at most one row to what `scored` returns."""
        return self._facts.columns == 1 and not self._facts.ragged

    @property
    def names(self) -> list[str]:
        """The names of its metrics."""
        return list(self.chosen)

    @cached_property
    def infos(self) -> dict[str, MetricInfo]:
        """The facts of each metric; those of the package's metrics need no torchmetrics."""
        return {name: one.info for name, one in self.chosen.items()}

    @cached_property
    def chosen(self) -> dict[str, Chosen]:
        """The metrics that the job names, or the usual ones."""
        given = self.usual if self.chosen_metrics is None else self.chosen_metrics
        return choose(given, self.catalogue)

    @cached_property
    def criterion(self) -> Callable[..., Any]:
        """The loss function: one of the package, or the user's own."""
        name = self.chosen_loss or next(iter(self.losses))
        found: Callable[..., Any] = self.losses.get(name) or plugin(name, "loss", self.losses)
        if not callable(found):
            raise ValueError(f"loss = '{name}': is not a function; name one that takes (outputs, y)")
        return found

    @cached_property
    def given(self) -> dict[str, Any]:
        """The task's own keys that the job gives, without the keys that all tasks share."""
        own = type(self).model_fields.keys() - PackageTask.model_fields.keys()
        return {key: value for key in sorted(own) if (value := getattr(self, key)) is not None}

    def _arguments(self, outputs: Tensor) -> dict[str, Any]:
        """Return the loss's arguments besides outputs and targets."""
        given = {**self.given, "ignore": self.ignored}
        if "weights" in given:
            given["weights"] = outputs.new_tensor(self._weights(given["weights"]))
        takes = _keys(self.criterion) if self.criterion in self.losses.values() else ()
        return {key: value for key, value in given.items() if key in takes}

    def weighed(self, facts: TaskFacts) -> int:
        """Return the number of weights: one for each class, or for each label."""
        return facts.classes or facts.columns

    def _check_weights(self, facts: TaskFacts) -> None:
        given, wanted = getattr(self, "weights", None), self.weighed(facts)
        if given == "balanced" and not sum(facts.counts):
            raise InputError("[task] weights = 'balanced': the shards count no labels; give a list")
        if isinstance(given, list) and len(given) != wanted:
            raise InputError(f"[task] weights: {len(given)} are given; use {wanted}, one for each class")

    def _weights(self, given: list[float] | str) -> list[float]:
        """Return the weights of classes: balanced, n / (classes n_c), or 1 for a class without examples."""
        if not isinstance(given, str):
            return given
        counts = self._facts.counts
        return [sum(counts) / (len(counts) * count) if count else 1.0 for count in counts]

    def _summed(self, losses: Tensor, y: Tensor) -> Summed:
        """Return the sum and the number of the losses of a user's function. If it gives one for each target,
        targets that do not count are left out."""
        if self.ignored is None or losses.shape != y.shape:
            return losses.sum(), losses.numel()
        kept = y != self.ignored
        return torch.where(kept, losses, torch.zeros_like(losses)).sum(), kept.sum()

    @model_validator(mode="after")
    def _loss_takes_its_keys(self) -> PackageTask:
        own = self.criterion in self.losses.values()
        takes = {"ignore", "threshold", *(_keys(self.criterion) if own else ())}
        for key in self.given.keys() - takes:
            others = [f"'{name}'" for name, loss in self.losses.items() if key in _keys(loss)]
            name = self.chosen_loss or next(iter(self.losses))
            raise ValueError(f"{key}: loss = '{name}' takes none; use loss = {' or '.join(others)}")
        return self


def _check_ignore(own: int, facts: TaskFacts) -> None:
    """Refuse a target to ignore that no row has, or that is not the padding."""
    if facts.ragged:
        raise InputError(f"[task] ignore = {own}: batches are padded with {facts.ignore}; leave it out")
    classes = 2 if facts.dtype == "bool" else facts.classes
    if classes is not None and not 0 <= own < classes:
        also = "" if facts.ignore is None else f" and {facts.ignore}, which does not count already"
        what = f"no row has it: targets are 0 to {classes - 1}{also}"
        raise InputError(f"[task] ignore = {own}: {what}; leave it out")


@cache
def _keys(loss: Callable[..., Any]) -> set[str]:
    """Return the keys of `[task]` that a loss takes."""
    parameters = inspect.signature(loss).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
