"""The base class of algorithms: hyperparameters, a server method, and client methods that run at silos."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator
from torch import Tensor, nn

from mpifl.algorithms.cohort_protocol import EVALUATIONS, Cohort, is_work
from mpifl.algorithms.server import Server
from mpifl.algorithms.server_optimizers import ServerOptimizer, ServerSGD
from mpifl.algorithms.virtual_clock import ClockSettings
from mpifl.common import InputError
from mpifl.data.shards import AnySpec, held_out
from mpifl.learning.metrics import ScoreSlots, pack_states
from mpifl.learning.tasks import CLASSIFICATION, Task
from mpifl.silo import UNSPLIT, Score, Silo, SplitSettings
from mpifl.silo.parameters import Objective
from mpifl.silo.steps import LOCAL, LocalTraining
from mpifl.wire import Purpose, Update, summed


class Algorithm(BaseModel, ABC):
    """An algorithm: frozen hyperparameters and methods. What a training learns is in `server.state` and
    `silo.state`.

    A round asks first and writes `server.state` last, so that a lost round changes nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    layout: ClassVar[Literal["horizontal", "vertical"]] = "horizontal"
    """Whether silos have different examples ("horizontal"), or columns of the same rows ("vertical")."""
    absolute: ClassVar[frozenset[str]] = frozenset()
    """Names of vectors of its updates that do not add up over rounds, such as logits."""
    accumulated: ClassVar[frozenset[str]] = frozenset()
    """Names of vectors of its updates that the server and the silos each add up over the rounds."""
    realigning: ClassVar[frozenset[str]] = frozenset()
    """Names of the client methods by which `realign` reads the silos' kept state."""
    not_clipped: ClassVar[str] = ""
    not_augmented: ClassVar[str] = ""
    not_private: ClassVar[str] = ""
    not_noised: ClassVar[str] = ""
    not_masked: ClassVar[str] = ""
    not_clocked: ClassVar[str] = ""
    """What `why_not_clipped` and its like return, if that is always the same."""
    needs_mean: ClassVar[str] = ""
    """Why only the mean can combine its updates; "" if other rules can."""
    own_step: ClassVar[str] = ""
    """Says that the algorithm has a server step of its own; "" if the server optimizer takes the step."""
    unlike_fedavg: ClassVar[str]
    """How silos train unlike FedAvg's; "" if alike. A class with its own `round` or `train` says it anew."""
    varied: ClassVar[bool] = False
    """Whether silos may send different vectors, such as silos with different architectures."""
    seedless: ClassVar[bool] = False
    """Whether its model is the same for every seed of the job."""
    timed: ClassVar[bool] = False
    """Whether its rounds are asynchronous, which needs the job's `[clock]`."""
    no_model: ClassVar[str] = ""
    """Says that it trains no model, and how its result is shown; "" if it trains one."""
    scored_at_silos: ClassVar[bool] = True
    """Whether a silo can score the model by itself."""
    recalls: ClassVar[bool] = False
    """Whether a silo starts from the training's initial model in its first round, whichever round that is."""
    ignores: ClassVar[frozenset[str]] = frozenset()
    """Keys of a job, as `table.key`, that it does not use."""
    ways: ClassVar[tuple[str, ...]] = ()
    """Columns of the table of `[local]` (`silo/steps/local_fits.py`) with the keys it honours; () for all."""
    noised: ClassVar[frozenset[str]] = frozenset({"delta"})
    """Names of all vectors of its updates under silo-level privacy. Each is as long as w, and one norm bounds
    them together."""
    trainings: ClassVar[int] = 1
    """How many times a silo trains in a round; 0 if it tells sums of its rows in place of training."""

    local: LocalTraining = LocalTraining()
    server_optimizer: ServerOptimizer = ServerSGD()
    task: Task = CLASSIFICATION
    split: SplitSettings = UNSPLIT
    """How the network is split, if silos have columns."""
    clock: ClockSettings | None = None
    """How fast silos train on the server's virtual clock."""
    single_scores: bool = False
    """Whether silos may send the scores of single held-out examples, by which curves are exact."""
    _slots: Mapping[str, ScoreSlots] = PrivateAttr(default={})

    @model_validator(mode="after")
    def _honours(self) -> Algorithm:
        if self.own_step and self.server_optimizer != ServerSGD():
            to_do = "use [server_optimizer] name = 'sgd', lr = 1.0, momentum = 0"
            raise ValueError(f"{type(self).__name__.lower()}'s {self.own_step}; {to_do}")
        for way in self.ways:
            if why := LOCAL.why_not(way, self.local, name=type(self).__name__.lower()):
                raise ValueError(why)
        return self

    def for_federation(self, spec: AnySpec) -> Algorithm:
        """Return the algorithm with a task that knows the federation.

        Raises:
            InputError: the task cannot learn such targets.
        """
        told = self.model_copy(update={"task": self.task.for_federation(spec)})
        told._slots = ScoreSlots.by_work(told.task, spec, EVALUATIONS) if self.single_scores else {}
        return told

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that the model and the federation have what this algorithm needs.

        Raises:
            InputError: something is missing; the line says what to do.
        """

    def personal_names(self, module: nn.Module) -> set[str]:
        """Return the names of the parameters and buffers that never leave a silo."""
        return set()

    def architectures(self) -> list[dict[str, Any]]:
        """Return the further models to train, as tables like a job's `[model]`."""
        return []

    def architecture_of(self, silo: int) -> int:
        """Return the number of the architecture that a silo trains; 0 is the job's `[model]`."""
        return 0

    def weight(self, work: str, examples: Mapping[str, int], usual: float) -> float:
        """Return the weight of a silo's update. The silo uses it by default, and the server refuses any other
        weight.

        Args:
            work: The name of the client method that makes the update.
            examples: The silo's number of examples, by split.
            usual: n_k, or 1 if `[cohort] weights` is "uniform".
        """
        if work in EVALUATIONS:
            return float(examples.get(EVALUATIONS[work] or held_out(examples) or "", 0))
        return usual

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of its updates' vectors that the server cannot know, by name.

        An unlisted vector must be as long as the sent vector of its name, or else as long as w.
        """
        return {}

    def work(self, name: str) -> Callable[..., Update]:
        """Return the client method of that name: a public method of the algorithm whose first parameter is
        `silo`.

        Raises:
            InputError: there is no such method.
        """
        if not is_work(type(self), Algorithm, name):
            what = "name a public method with the parameters (self, silo, ...)"
            raise InputError(f"{type(self).__name__} offers no work '{name[:100]}'; {what}")
        half: Callable[..., Update] = getattr(self, name)
        return half

    def purpose(self, work: str) -> Purpose:
        """Return the purpose of a client method."""
        if work in EVALUATIONS:
            return "evaluation"
        return "realignment" if work in self.realigning else "training"

    def why_not_clipped(self) -> str:
        """Return why its updates must not be clipped by their norm; "" if they may be."""
        if self.not_clipped or not (self.accumulated or self.absolute):
            return self.not_clipped
        if self.accumulated:
            return f"server and silos both add up '{min(self.accumulated)}', and their sums would part"
        return f"'{min(self.absolute)}' is not a change of the model, and would be falsified"

    def why_not_augmented(self) -> str:
        """Return why silos must not train on augmented examples; "" if they may."""
        return self.not_augmented

    def why_not_private(self) -> str:
        """Return why DP-SGD does not protect all that its silos send, and what to do; "" if it does."""
        return self.not_private

    def why_not_noised(self) -> str:
        """Return why its server needs more than the noised mean of clipped updates; "" if it does not."""
        return self.not_noised or self.why_not_clipped()

    def why_not_masked(self) -> str:
        """Return why a masked sum would hide too little about its silos; "" if it hides enough."""
        return self.not_masked

    def why_not_clocked(self) -> str:
        """Return why `[clock]` cannot tell how long its rounds take, and what to do; "" if it can."""
        return self.not_clocked

    @classmethod
    def why_unlike_fedavg(cls) -> str:
        """Return `unlike_fedavg`, or that a class with a `round` or `train` of its own does not say it."""
        kind = next(one for one in cls.__mro__ if {"unlike_fedavg", "round", "train"} & vars(one).keys())
        silent = f"may differ, since {kind.__name__} has no `unlike_fedavg` beside its round or train"
        return str(vars(kind).get("unlike_fedavg", silent))

    def gradients(self, steps: int) -> int:
        """Return how many gradients of a batch `[clock]` counts for a silo's round of so many steps."""
        return steps * self.trainings

    def begin(self, server: Server) -> None:
        """Set up `server.state` before the first round; `w` holds the model's shared parameters."""
        server.state["w"] = server.model.shared.clone()

    @abstractmethod
    def round(self, server: Server, cohort: Cohort) -> Mapping[str, float | Mapping[int, float]]:
        """Run one round at the server and return its figures (the server method).

        The figures are numbers by name, and tables of numbers by silos' ids. The name of a table ends with
        `_silos`.
        """

    def aligned(self, server: Server, everyone: Cohort) -> bool:
        """Return whether `server.state` from a checkpoint fits the weights that silos have now."""
        return True

    def realign(self, server: Server, everyone: Cohort) -> None:
        """Make `server.state` fit the silos' kept state, after some silos lost their latest state.

        Called after deaths, when silos moved with the state of an earlier checkpoint or without state. Also
        called when a run resumes from a state that is not `aligned`.

        Raises:
            RoundLost: too few silos answered.
        """

    def global_model(self, server: Server) -> dict[str, Tensor]:
        """Return the vectors that silos get for evaluations, and as the final model."""
        return {"w": server.state["w"]}

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Score the model on a split of the server; None if the server has no such split.

        Raises:
            RoundLost: scoring needs silos, and too few answered.
        """
        return server.evaluate(server.state["w"]) if split == "test" else None

    def answer(
        self, server: Server, everyone: Cohort, split: str, take: Callable[[Any, Any], None], /
    ) -> None:
        """Compute the outputs of a split network for a split's rows, in order, with all silos.

        Args:
            server: The server, which has the targets.
            everyone: All silos.
            take: Called with the network's outputs for some rows, and their targets.

        Raises:
            RoundLost: a silo stopped.
            InputError: this algorithm splits no network.
        """
        what = f"{type(self).__name__} splits no network over silos"
        raise InputError(f"{what}; give it a method answer(server, everyone, split, take)")

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return the parameters [P] that this silo uses where w [shared] is the global model."""
        return w

    def personal_statistics(self, silo: Silo) -> Tensor | None:
        """Return the running statistics for the silo's model, or None for the server's."""
        return None

    def slots(self, work: str) -> ScoreSlots:
        """Return where silos' single scores lie in the vectors of a client method; by default nowhere."""
        return self._slots.get(work, ScoreSlots((), ()))

    def objective(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return the objective of training, the mean loss over a batch: by default the task's."""
        return self.task.objective(module, x, y)

    @property
    def own_models(self) -> bool:
        """Whether silos use models of their own, which are no part of the server's."""
        return type(self).personal_model is not Algorithm.personal_model

    @property
    def distillation(self) -> LocalTraining | None:
        """How the server trains the model on public examples, or None."""
        return None

    @property
    def own_objective(self) -> Objective | None:
        """The objective if a subclass overrides it, None if it is the task's loss."""
        return None if type(self).objective is Algorithm.objective else self.objective

    def evaluate(self, silo: Silo, **model: Tensor) -> Update:
        """Score the silo's model on its held-out split (a client method)."""
        return self._scored(silo, "evaluate", silo.held_out, model)

    def evaluate_valid(self, silo: Silo, **model: Tensor) -> Update:
        """Score the silo's model on its valid split (a client method)."""
        return self._scored(silo, "evaluate_valid", "valid", model)

    def evaluate_test(self, silo: Silo, **model: Tensor) -> Update:
        """Score the silo's model on its test split (a client method)."""
        return self._scored(silo, "evaluate_test", "test", model)

    def _scored(self, silo: Silo, work: str, split: str | None, model: Mapping[str, Tensor]) -> Update:
        """Score the silo's model on a split; a silo without it sends the metrics' states for no examples."""
        if split is None or not silo.has(split):
            nothing = pack_states(self.task.metrics()) | self.slots(work).put(silo.id, {})
            return silo.update(weight=0.0, **{name: summed(state) for name, state in nothing.items()})
        score = silo.evaluate(self.personal_model(silo, **model), split, self.personal_statistics(silo))
        metrics = {self.task.infos[name].silo: value for name, value in score.metrics.items()}
        sent = score.states | self.slots(work).put(silo.id, score.single)
        states = {name: summed(state) for name, state in sent.items()}
        return silo.update(weight=float(score.examples), silo_loss=score.loss, **metrics, **states)
