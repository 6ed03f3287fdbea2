"""Training on patches of volumes, some around what is to be found, as in nnU-Net (Isensee et al. 2021).

    [algorithm]
    name = "scripts.examples.patch_loop:PatchLoop"
    patch = [64, 64, 64]
    [local]
    lr = 0.01
    batch_size = 2
    steps = 100

A patch is read from the shard by slices. No volume is ever in memory as a whole, but one mask at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mpifl import FedAvg, InputError, Silo, Update


class PatchLoop(FedAvg):
    """FedAvg on patches, by SGD with Nesterov's momentum; `[local]` says lr, batch_size and steps."""

    patch: list[PositiveInt]
    """Sides, in voxels."""
    foreground: Annotated[float, Field(ge=0, le=1)] = 1 / 3
    """The share of patches around a voxel that is not background."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        local = self.local.at_round(silo.round)
        patches = Patches(silo, self.patch, self.foreground, local.steps * local.batch_size)
        total = 0.0
        with silo.loaded(w) as module:
            optimizer = torch.optim.SGD(module.parameters(), lr=local.lr, momentum=0.99, nesterov=True)
            for x, y in DataLoader(patches, local.batch_size):
                loss = self.objective(module, x.to(w.device), y.to(w.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach())
        return silo.update(delta=silo.delta(), train_loss=total / local.steps)


class Patches(Dataset):
    """Patches of a silo's volumes, drawn one after another from its stream."""

    def __init__(self, silo: Silo, sides: Sequence[int], foreground: float, count: int) -> None:
        self.examples, self.generator = silo.split("train"), silo.generator
        self.sides, self.foreground, self.count = torch.tensor(sides), foreground, count
        self.volume = torch.tensor(self.examples.y.shape[1:])
        if len(sides) != len(self.volume) or (self.sides > self.volume).any():
            volume = self.volume.tolist()
            raise InputError(f"[algorithm] patch = {list(sides)}: volumes have {volume}; use no more of each")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        if number >= self.count:
            raise IndexError(number)
        index = self.below(len(self.examples))
        oversampled = torch.rand((), generator=self.generator) < self.foreground
        found = self.examples.y[index].nonzero() if oversampled else []
        if len(found):
            middle = found[self.below(len(found))]
            corner = (middle - self.sides // 2).clamp(min=0).minimum(self.volume - self.sides)
        else:
            corner = torch.tensor([self.below(int(room) + 1) for room in self.volume - self.sides])
        box = [slice(int(a), int(a + side)) for a, side in zip(corner, self.sides, strict=True)]
        return self.examples.cut(index, box)

    def below(self, count: int) -> int:
        """Draw a number from 0 to count - 1."""
        return int(torch.randint(count, (), generator=self.generator))
