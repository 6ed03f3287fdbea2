"""What every algorithm is: hyperparameters, a half that runs at the server,
and a half that runs at each silo."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.server import Server
from mpifl.algorithms.server_optimizers import SGD, ServerOptimizer
from mpifl.algorithms.virtual_clock import ClockSettings
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, held_out
from mpifl.learning.metrics import pack_states
from mpifl.learning.tasks import CLASSIFICATION, Task
from mpifl.silo import UNSPLIT, Score, Silo, VerticalSettings
from mpifl.silo.parameters import Objective
from mpifl.silo.steps import LOCAL, LocalTraining
from mpifl.wire import Purpose, Update, summed

EVALUATIONS: dict[str, str | None] = {"evaluate": None, "evaluate_valid": "valid", "evaluate_test": "test"}
"""The works that score a model, and on which split of the silos': None is the one it holds out."""


class Algorithm(BaseModel, ABC):
    """Hyperparameters and nothing else; what a training learns lies in `server.state` and `silo.state`.

    A round asks first and writes `server.state` last, so that a lost round changes nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    layout: ClassVar[Literal["horizontal", "vertical"]] = "horizontal"
    """Whether silos have examples, or columns of the same rows."""

    absolute: ClassVar[frozenset[str]] = frozenset()
    """Names of vectors of its updates that are no changes which add up over rounds, as logits are not."""

    accumulated: ClassVar[frozenset[str]] = frozenset()
    """Names of vectors of its updates whose sum over rounds both the server and the silos keep,
    each for itself."""

    realigning: ClassVar[frozenset[str]] = frozenset()
    """Names of the silo's halves by which `realign` asks for what silos keep."""

    needs_mean: ClassVar[str] = ""
    """Why only the mean can combine its updates; empty where other rules can."""

    own_step: ClassVar[str] = ""
    """What of it is the server's step, in place of a server optimizer's; empty where that takes it."""

    unlike_fedavg: ClassVar[str] = ""
    """What a silo's training is that the server's own for `fltrust` is not; empty where it is plain."""

    varied: ClassVar[bool] = False
    """Whether some silos send other vectors than others, as those with another architecture do."""

    timed: ClassVar[bool] = False
    """Whether its rounds are asynchronous, by the job's `[clock]`."""

    scored_at_silos: ClassVar[bool] = True
    """Whether a silo can score the model alone."""

    recalls: ClassVar[bool] = False
    """Whether its silos begin at the model that the training begins with, in whatever round they do."""

    ignores: ClassVar[frozenset[str]] = frozenset()
    """Keys of a job, `table.key`, that it makes no use of."""

    ways: ClassVar[tuple[str, ...]] = ()
    """Columns of the table of `[local]` (`mpifl/silo/steps/local_fits.py`) that say what it honours; none
    where it honours all."""

    noised: ClassVar[frozenset[str]] = frozenset({"delta"})
    """Names of all vectors of its updates, each as long as w, where silos are protected: one norm bounds them
    together."""

    trainings: ClassVar[int] = 1
    """How many times a silo trains in a round."""

    local: LocalTraining = LocalTraining()
    server_optimizer: ServerOptimizer = SGD()
    task: Task = CLASSIFICATION
    vertical: VerticalSettings = UNSPLIT
    """How the network is split, where silos have columns."""
    clock: ClockSettings | None = None
    """How fast silos train, where rounds are asynchronous."""

    @model_validator(mode="after")
    def _honours(self) -> Algorithm:
        if self.own_step and self.server_optimizer != SGD():
            to_do = "take [server_optimizer] name = 'sgd', lr = 1.0, momentum = 0"
            raise ValueError(f"{type(self).__name__.lower()}'s {self.own_step}; {to_do}")
        for way in self.ways:
            if why := LOCAL.why_not(way, self.local, name=type(self).__name__.lower()):
                raise ValueError(why)
        return self

    def for_federation(self, spec: AnySpec) -> Algorithm:
        """Return the algorithm with a task that knows the federation.

        Raises:
            InputError: the targets are none that the task can learn.
        """
        return self.model_copy(update={"task": self.task.for_federation(spec)})

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """See that the model and the federation have what this algorithm needs.

        Raises:
            InputError: it has not; the line says what would do.
        """

    def personal_names(self, module: nn.Module) -> set[str]:
        """Return the names of the parameters and buffers that never leave a silo."""
        return set()

    def architectures(self) -> list[dict[str, Any]]:
        """Return the models, as tables like a job's `[model]`, that are trained beside that one."""
        return []

    def architecture_of(self, silo: int) -> int:
        """Return which of the architectures a silo trains, 0 being the job's `[model]`."""
        return 0

    def weight(self, work: str, examples: Mapping[str, int], usual: float) -> float:
        """Return what a silo's update weighs, at the silo by default and at the server, which refuses all
        others.

        Args:
            work: The name of the silo's half that makes the update.
            examples: How many examples the silo has, by split.
            usual: n_k, or 1 where `[cohort] weights` is "uniform".
        """
        if work in EVALUATIONS:
            return float(examples.get(EVALUATIONS[work] or held_out(examples) or "", 0))
        return usual

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of vectors of its updates, by name, that the server cannot know.

        It knows those of vectors that were sent, by their names, and takes all others to have the length of
        w.
        """
        return {}

    def work(self, name: str) -> Callable[..., Update]:
        """Return the silo's half of that name: a public method of its own, whose first parameter is `silo`.

        Raises:
            InputError: it offers none.
        """
        if not _is_work(type(self), name):
            what = "name a public method with the parameters (self, silo, ...)"
            raise InputError(f"{type(self).__name__} offers no work '{name[:100]}'; {what}")
        half: Callable[..., Update] = getattr(self, name)
        return half

    def purpose(self, work: str) -> Purpose:
        """Return what the silo's half of that name is for."""
        if work in EVALUATIONS:
            return "evaluation"
        return "realignment" if work in self.realigning else "training"

    def why_not_clipped(self) -> str:
        """Say why its updates must not be clipped by their norm; "" if they may be."""
        if self.accumulated:
            return f"server and silos both add up '{min(self.accumulated)}', and their sums would part"
        return (
            f"'{min(self.absolute)}' is no change of the model, and would be falsified"
            if self.absolute
            else ""
        )

    def why_not_augmented(self) -> str:
        """Say what it does that would be falsified where silos train on changed examples; "" if nothing."""
        return ""

    def why_not_private(self) -> str:
        """Say why DP-SGD does not protect all that its silos answer, and what would do; "" if it does."""
        return ""

    def why_not_noised(self) -> str:
        """Say why the noised mean of clipped updates is not all that its server needs; "" if it is."""
        return self.why_not_clipped()

    def why_not_masked(self) -> str:
        """Say why a sum under masks would hide too little of its silos; "" if it hides them."""
        return ""

    def begin(self, server: Server) -> None:
        """Set up `server.state` before the first round; `w` holds the model's shared parameters."""
        server.state["w"] = server.model.shared.clone()

    @abstractmethod
    def round(self, server: Server, cohort: Cohort) -> Mapping[str, float | Mapping[int, float]]:
        """Run one round at the server and return what is to be reported of it.

        These are numbers by name, and tables of single silos' numbers by their ids; the name of a table ends
        with `_silos`.
        """

    def aligned(self, server: Server, everyone: Cohort) -> bool:
        """Return whether `server.state`, as a checkpoint holds it,
        goes by the weights that the silos have now."""
        return True

    def realign(self, server: Server, everyone: Cohort) -> None:
        """Bring `server.state` into line with what silos keep, of whom some have lost what they kept lately.

        Asked when ranks have died whose silos go on elsewhere, with what they kept at an earlier checkpoint
        or nothing; and when a run goes on whose state is not `aligned`.

        Raises:
            RoundLost: too few silos answered.
        """

    def global_model(self, server: Server) -> dict[str, Tensor]:
        """Return what silos are sent to be judged by, and in the end to keep."""
        return {"w": server.state["w"]}

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Score the model at the server on a split of its own; None if there is none.

        Raises:
            RoundLost: silos are needed for it, and too few answered.
        """
        return server.evaluate(server.state["w"]) if split == "test" else None

    def answer(
        self, server: Server, everyone: Cohort, split: str, take: Callable[[Any, Any], None], /
    ) -> None:
        """Have the server and the silos answer together for a split's rows, in their order.

        Args:
            server: Rank 0's, which holds the targets.
            everyone: All silos.
            split: Which rows.
            take: Given the network's outputs of some rows, and their targets.

        Raises:
            RoundLost: a silo stopped.
            InputError: no network is split between them.
        """
        what = f"{type(self).__name__} splits no network over silos"
        raise InputError(f"{what}; give it a method answer(server, everyone, split, take)")

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return the parameters, shape [P], that this silo would use if w,
        shape [shared], were the global model."""
        return w

    def personal_statistics(self, silo: Silo) -> Tensor | None:
        """Return the running statistics that go with that model, or None if they are the server's."""
        return None

    def objective(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return what training minimises: the mean loss over a batch,
        a scalar; the task's unless overridden."""
        return self.task.objective(module, x, y)

    @property
    def distillation(self) -> LocalTraining | None:
        """How the server trains the model on public examples, None where it does not."""
        return None

    @property
    def own_objective(self) -> Objective | None:
        """The objective where a subclass has overridden it, None where it is the task's loss."""
        return None if type(self).objective is Algorithm.objective else self.objective

    def evaluate(self, silo: Silo, **model: Tensor) -> Update:
        """Score, at the silo, the model that it would use, on the split it holds out for that."""
        return self._scored(silo, silo.held_out, model)

    def evaluate_valid(self, silo: Silo, **model: Tensor) -> Update:
        """Score the model that the silo would use on its valid split."""
        return self._scored(silo, "valid", model)

    def evaluate_test(self, silo: Silo, **model: Tensor) -> Update:
        """Score the model that the silo would use on its test split."""
        return self._scored(silo, "test", model)

    def _scored(self, silo: Silo, split: str | None, model: Mapping[str, Tensor]) -> Update:
        """Score the model that a silo would use; one without that split sends states of no examples."""
        if split is None or not silo.has(split):
            nothing = pack_states(self.task.metrics())
            return silo.update(weight=0.0, **{name: summed(state) for name, state in nothing.items()})
        model_of_silo = self.personal_model(silo, **model)
        score = silo.evaluate(model_of_silo, split, self.personal_statistics(silo))
        metrics = {self.task.infos[name].silo: value for name, value in score.metrics.items()}
        states = {name: summed(state) for name, state in score.states.items()}
        return silo.update(weight=float(score.examples), silo_loss=score.loss, **metrics, **states)


def usual_weight(weights: str, examples: Mapping[str, int]) -> float:
    """Return what a silo's update weighs by `[cohort] weights`: n_k, or 1 if it is "uniform"."""
    return float(examples["train"]) if weights == "examples" else 1.0


@functools.cache
def _is_work(kind: type[Algorithm], name: str) -> bool:
    """Whether an algorithm has a public method of its own of that name, whose first parameter is `silo`."""
    own = name in EVALUATIONS or name not in dir(Algorithm)
    method = getattr(kind, name, None) if own and not name.startswith("_") else None
    return inspect.isfunction(method) and list(inspect.signature(method).parameters)[1:2] == ["silo"]
