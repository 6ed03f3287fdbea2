"""FedRep: a shared representation and a personal head, trained one after the other."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from torch import Tensor

from mpifl.algorithms.fedper import FedPer
from mpifl.silo import Silo
from mpifl.silo.steps import Batch
from mpifl.wire import Update


class FedRep(FedPer):
    """FedRep (Collins et al. 2021, Algorithm 1): first a silo's own layers are trained, then the shared ones.

    While one part is trained, the other does not change. `head_epochs` sets the epochs of the silo's own
    layers, `[local]` those of the shared layers. Both parts start with a new optimizer.
    """

    unlike_fedavg: ClassVar[str] = "is of a model of which a part is the silo's, trained by itself"
    trainings: ClassVar[int] = 2
    ways: ClassVar[tuple[str, ...]] = ("fedrep",)
    not_private = "trains its own layers for another number of steps than the shared ones; use fedper"
    not_clocked = not_private

    head_epochs: PositiveInt = 10
    """Epochs of the silo's own layers in a round."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train the personal layers, then the shared ones; send the shared ones, keep the personal ones."""
        shared = len(w)

        def own_alone(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            gradient[:shared].zero_()

        def shared_alone(gradient: Tensor, at: Tensor, batch: Batch) -> None:
            gradient[shared:].zero_()

        head = self.local.lasting(epochs=self.head_epochs)
        first = silo.train_locally(self.personal_model(silo, w), head, correct=own_alone)
        start, statistics = first.end.clone(), silo.model.statistics.read()
        run = silo.train_locally(start, self.local, correct=shared_alone, statistics=statistics)
        silo.keep(personal=run.end[shared:], personal_statistics=silo.model.personal_statistics.read())
        return silo.update(delta=run.delta[:shared].clone(), train_loss=run.loss)
