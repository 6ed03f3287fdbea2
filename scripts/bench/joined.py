"""A network over columns in three parts, trained in one place by plain torch: seconds a batch, by round.

python joined.py ROWS.npz BATCH STEPS ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn


class Joined(nn.Module):
    """Bottoms 100-100 over a part of the columns each, and a top 200-10 over what they make."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        parts = [nn.Sequential(nn.Linear(n, 100), nn.ReLU(), nn.Linear(100, 100)) for n in widths]
        self.widths, self.bottoms = widths, nn.ModuleList(parts)
        self.top = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        columns = torch.split(x, self.widths, 1)
        made = [f(part) for f, part in zip(self.bottoms, columns, strict=True)]
        logits: Tensor = self.top(torch.cat(made, 1))
        return logits


def drawn(examples: int, batch: int, steps: int) -> Iterator[Tensor]:
    """Yield the rows of so many batches, epoch after epoch."""
    left = steps
    while left:
        for rows in islice(torch.split(torch.randperm(examples), batch), left):
            left -= 1
            yield rows


def main() -> None:
    """Train, and print the seconds of a batch in each round but the first."""
    path, (batch, steps, rounds) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(1)
    held = np.load(path)
    x, y = torch.from_numpy(held["x"]), torch.from_numpy(held["y"])
    model = Joined([len(part) for part in np.array_split(np.arange(x.shape[1]), 3)])
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        for rows in drawn(len(x), batch, steps):
            adam.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            adam.step()
        taken.append((time.perf_counter() - began) / steps)
    print(json.dumps(taken[1:]))


if __name__ == "__main__":
    main()
