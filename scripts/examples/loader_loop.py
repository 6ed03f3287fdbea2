"""A silo's training as a plain PyTorch loop over a DataLoader.

    mpifl train jobs/demo.toml --set algorithm.name=scripts.examples.loader_loop:LoaderLoop

Everything else stays mpifl's: who takes part, the exact mean, checkpoints, scores. The bits are the same on
any number of ranks, because whatever is random draws from the silo's stream.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from mpifl import FedAvg, Silo, Update


class LoaderLoop(FedAvg):
    """FedAvg whose silos train by AdamW in a loop of their own."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        local, total, seen = self.local.at_round(silo.round), 0.0, 0
        loader = DataLoader(silo.split("train"), local.batch_size, shuffle=True, generator=silo.generator)
        with silo.loaded(w) as module:
            optimizer = torch.optim.AdamW(module.parameters(), lr=local.lr)
            for _ in range(local.epochs or 1):
                for x, y in loader:
                    x, y = x.to(w.device), y.to(w.device)
                    loss = self.objective(module, x, y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    total, seen = total + float(loss.detach()) * len(y), seen + len(y)
        return silo.update(delta=silo.delta(), train_loss=total / seen)
