"""FedPer and FedBN: a part of the model is personal and never leaves its silo."""

from __future__ import annotations

import fnmatch
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from mpifl.algorithms.fedavg import FedAvg
from mpifl.common import InputError, did_you_mean
from mpifl.silo import Silo
from mpifl.wire import Update


class FedPer(FedAvg):
    """FedPer (Arivazhagan et al. 2019, Algorithms 1 and 2): base layers are averaged, personal layers stay at
    the silo.

    Both are trained together, each round.
    """

    unlike_fedavg: ClassVar[str] = "is of a model of which a part is the silo's"

    personal: list[str]
    """Patterns of the names of parameters that never leave their silo, such as "head.*"."""

    def personal_names(self, module: nn.Module) -> set[str]:
        """Return the names that match a pattern.

        Raises:
            InputError: a pattern matches nothing, or every parameter is matched.
        """
        names = [name for name, _ in module.named_parameters()] + [name for name, _ in module.named_buffers()]
        for pattern in self.personal:
            if not fnmatch.filter(names, pattern):
                hint = did_you_mean(pattern, names)
                there = f"{hint}there are {', '.join(names)}"
                raise InputError(f"[algorithm] personal: '{pattern}' matches no parameter; {there}")
        chosen = {name for pattern in self.personal for name in fnmatch.filter(names, pattern)}
        if chosen.issuperset(names):
            raise InputError("[algorithm] personal: matches every parameter; leave some to be averaged")
        return chosen

    def train(self, silo: Silo, w: Tensor) -> Update:
        """Train shared and personal layers together; send the shared ones, keep the personal ones."""
        run = silo.train_locally(self.personal_model(silo, w), self.local)
        shared = len(w)
        silo.keep(personal=run.end[shared:], personal_statistics=silo.model.personal_statistics.read())
        return silo.update(delta=run.delta[:shared].clone(), train_loss=run.loss)

    def personal_model(self, silo: Silo, w: Tensor) -> Tensor:
        """Return w followed by the silo's own layers; also write its own running statistics into the lent
        model."""
        own, statistics = silo.model.initial_personal
        silo.model.personal_statistics.write(silo.state.get("personal_statistics", statistics))
        return torch.cat([w, silo.state.get("personal", own)])


class FedBN(FedPer):
    """FedBN (Li et al. 2021, Algorithm 1): all of BatchNorm is personal, including statistics; `personal`
    adds more."""

    not_private = "needs BatchNorm, which mixes the examples of a batch; use fedper"

    personal: list[str] = Field(default=[])
    """Patterns of names that are personal besides all of BatchNorm."""

    def personal_names(self, module: nn.Module) -> set[str]:
        """Return the names of everything in a BatchNorm layer, and the names that match a pattern."""
        norm = nn.modules.batchnorm._BatchNorm
        layers = [name for name, layer in module.named_modules() if isinstance(layer, norm)]
        if not layers:
            why = "the model has no BatchNorm layer; use fedavg, or fedper"
            raise InputError(f"[algorithm] name = 'fedbn': {why}")
        entries = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
        of_layers = {name for name in entries if name.rpartition(".")[0] in layers}
        return of_layers | super().personal_names(module)
