"""FedDF: the silos' mean logits on public examples are distilled into the averaged model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.algorithms.server_optimizers import ServerSGD
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.learning.tasks import tensor_of
from mpifl.silo import Silo
from mpifl.silo.steps import LocalTraining
from mpifl.wire import Update, uniform


class FedDF(FedAvg):
    """FedDF (Lin et al. 2020, Algorithms 1 and 3): ensemble distillation for robust model fusion.

    The silos of each architecture are averaged as in FedAvg. The server then trains this average on the
    federation's public examples, without labels. It minimises the Kullback-Leibler divergence from
    softmax(mean over the cohort of the silos' logits). Silos compute the logits of their own models, with
    their own running statistics. So the server gets one mean of logits and no silo's model. The student's
    statistics become the server's.
    """

    needs_mean: ClassVar[str] = "silos of each architecture are averaged apart, and logits are no changes"
    absolute: ClassVar[frozenset[str]] = frozenset({"logits"})
    varied: ClassVar[bool] = True

    distill_steps: PositiveInt = 100
    """Steps of the distillation in each round, for each architecture."""
    distill_batch: PositiveInt = 128
    """Public examples in a batch of the distillation."""
    distill_lr: Annotated[float, Field(gt=0)] = 1e-3
    """The learning rate of the distillation."""
    prototypes: list[dict[str, Any]] = Field(default=[])
    """Architectures besides [model], as tables like it. Silo k has the one with index k modulo their
    number."""

    @model_validator(mode="after")
    def _plain_average(self) -> FedDF:
        if self.server_optimizer != ServerSGD():
            why = "feddf's server goes to the average and distills from there"
            raise ValueError(f"{why}; use [server_optimizer] name = 'sgd', lr = 1.0, momentum = 0")
        return self

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that there are public examples and single targets; with prototypes, that no model has
        buffers.

        Raises:
            InputError: the job or the model does not fit.
        """
        key = "[algorithm] name = 'feddf'"
        if not self.task.logits:
            why = "distills probabilities of classes, which only some tasks' models answer"
            raise InputError(f"{key}: {why}; use [task] name = 'classification'")
        if spec.has_ragged_targets:
            why = "examples have unequal numbers of targets, and so of answers, which it averages"
            raise InputError(f"[algorithm] name = 'feddf': {why}; use another algorithm")
        if spec.public is None:
            raise InputError(f"{key}: the shards have no public examples; partition with --public 0.1")
        if self.prototypes and any(buffer.numel() for buffer in module.buffers()):
            why = "running statistics (BatchNorm) are not averaged for each"
            raise InputError(f"[algorithm] prototypes: {why}; use GroupNorm")

    def why_not_masked(self) -> str:
        """Return the reason: few silos have each architecture."""
        why = "silos send vectors that others do not, and a sum over few of them hides little"
        return why if self.prototypes else ""

    def architectures(self) -> list[dict[str, Any]]:
        """Return the prototypes."""
        return self.prototypes

    def architecture_of(self, silo: int) -> int:
        """Return the number of the architecture that a silo trains, by round robin."""
        return silo % (1 + len(self.prototypes))

    def begin(self, server: Server) -> None:
        """Start every architecture from its own initial weights."""
        server.state |= {
            name: model.shared.clone() for name, model in zip(self._names, server.models, strict=True)
        }

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the length of each architecture's delta, and of the logits of all public examples."""
        changes = {f"delta_{name}": len(server.state[name]) for name in self._names}
        return {**changes, "logits": server.public_logits()}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Average each architecture, then distill the cohort's mean logits into it."""
        state = server.state
        mean = cohort.mean(self.train_prototype, **self.global_model(server))
        agreed = mean["logits"].view(len(server.public or ()), -1)
        for index, name in enumerate(self._names):
            student = (
                state[name] + mean.vectors[f"delta_{name}"]
                if f"delta_{name}" in mean.vectors
                else state[name]
            )
            run = server.train(student, self.distillation, divergence, [agreed], architecture=index)
            state[name] = run.end.clone()
        return mean.scalars

    def train_prototype(self, silo: Silo, **prototypes: Tensor) -> Update:
        """Train the silo's architecture, and send its delta and its logits on the public examples."""
        name = self._name_of(silo)
        run = silo.train_locally(self.personal_model(silo, **prototypes), self.local)
        logits = silo.public_logits(run.end.clone(), silo.learned_statistics).reshape(-1)
        update = silo.update(logits=uniform(logits), train_loss=run.loss)
        update.vectors[f"delta_{name}"] = run.delta
        return update

    def global_model(self, server: Server) -> dict[str, Tensor]:
        """Return the parameters of every architecture."""
        return {name: server.state[name] for name in self._names}

    def personal_model(self, silo: Silo, **prototypes: Tensor) -> Tensor:  # type: ignore[override]  # w is one of them
        """Return the parameters of the silo's architecture, and switch the lent model to it."""
        name = self._name_of(silo)
        silo.take(self._names.index(name))
        return prototypes[name]

    @property
    def own_models(self) -> bool:
        """Whether silos have other architectures than the server's; with one, all use the server's model."""
        return bool(self.prototypes)

    @property
    def _names(self) -> list[str]:
        return ["w", *(f"w_{index}" for index in range(1, len(self.prototypes) + 1))]

    def _name_of(self, silo: Silo) -> str:
        return self._names[self.architecture_of(silo.id)]

    @property
    def distillation(self) -> LocalTraining:
        """How the server trains each architecture on the public examples."""
        return LocalTraining(
            optimizer="adam", lr=self.distill_lr, steps=self.distill_steps, batch_size=self.distill_batch
        )


def divergence(module: nn.Module, x: Tensor, y: Tensor, agreed: Tensor) -> Tensor:
    """Return KL(softmax(agreed) || softmax(module(x))), the mean over a batch; the labels y are not used.

    If the model has several outputs for an example (such as one for each character), each counts as an
    example.

    Args:
        agreed: The teachers' mean logits, one row for each example.
    """
    student: Tensor = tensor_of(module(x))
    teacher = F.softmax(agreed.view_as(student), dim=1)
    return F.kl_div(F.log_softmax(student, dim=1), teacher, reduction="sum") / student[:, 0].numel()
