"""Vertical training once more, from its formulas: plain torch, nothing of mpifl, batches as row numbers.

`xs` holds each silo's columns of the same rows, shape [n, columns]; the silo `holder` has `y`. Silo k's line
is z_k = f_k(x_k) [b, cut], Z their merge, h the top, and g_k = d loss / d z_k what silo k is told. Modules
are trained in place; the functions return what the label holder saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Codec = Callable[[Tensor], Tensor]


@dataclass
class Network:
    """Bottoms, one for each silo, and a top over their concatenated or summed lines."""

    bottoms: Sequence[nn.Module]
    top: nn.Module
    merge: str = "concat"

    def forward(self, lines: Sequence[Tensor]) -> Tensor:
        """Return h(Z); sums go by silo number."""
        if self.merge == "concat":
            return self.top(torch.cat(list(lines), 1))
        total = lines[0]
        for line in lines[1:]:
            total = total + line
        return self.top(total)

    def __call__(self, xs: Sequence[Tensor]) -> Tensor:
        return self.forward([bottom(x) for bottom, x in zip(self.bottoms, xs, strict=True)])

    @torch.no_grad()
    def predict(self, xs: Sequence[Tensor]) -> Tensor:
        modules = [*self.bottoms, self.top]
        were = [module.training for module in modules]
        for module in modules:
            module.eval()
        found = self(xs)
        for module, was in zip(modules, were, strict=True):
            module.train(was)
        return found


@dataclass
class Seen:
    """What the label holder saw: of each batch the loss, the lines and what it told each silo."""

    losses: list[float] = field(default_factory=list)
    lines: list[list[Tensor]] = field(default_factory=list)
    told: list[list[Tensor]] = field(default_factory=list)


class Joined(nn.Module):
    """The same network over the joined table: columns of silo 0, then of silo 1, ..."""

    def __init__(self, net: Network, widths: Sequence[int]) -> None:
        super().__init__()
        self.bottoms, self.top, self.widths, self.merge = (
            nn.ModuleList(net.bottoms),
            net.top,
            widths,
            net.merge,
        )

    def forward(self, x: Tensor) -> Tensor:
        lines = [f(part) for f, part in zip(self.bottoms, x.split(self.widths, 1), strict=True)]
        whole = torch.cat(lines, 1) if self.merge == "concat" else torch.stack(lines).sum(0)
        return self.top(whole)


def joined(
    net: Network, xs: Sequence[Tensor], y: Tensor, batches: Sequence[Tensor], loss: Loss, optimizer: Optimizer
) -> Seen:
    """Train one network on the joined table by one optimizer."""
    model, x = Joined(net, [x.shape[1] for x in xs]), torch.cat(list(xs), 1)
    step, seen = optimizer(list(model.parameters())), Seen()
    for rows in batches:
        step.zero_grad()
        value = loss(model(x[rows]), y[rows])
        value.backward()
        step.step()
        seen.losses.append(float(value.detach()))
    return seen


def plain(line: Tensor) -> Tensor:
    """A codec that loses nothing."""
    return line


def split(
    net: Network,
    xs: Sequence[Tensor],
    y: Tensor,
    batches: Sequence[Tensor],
    loss: Loss,
    optimizer: Optimizer,
    *,
    local_steps: int = 1,
    holder: int = 0,
    up: Codec = plain,
    down: Codec = plain,
    protect: Codec = plain,
) -> Seen:
    """Train by SplitNN (Vepakomma et al. 2018); Q = `local_steps` > 1: FedBCD-p (Liu et al. 2022).

    An exchange: every silo computes z_k; the holder computes the loss, steps the top and tells each silo g_k;
    silo k steps by J_k^T g_k. Then Q - 1 times on the same batch: silo k takes J_k anew, at its new weights,
    with g_k as it came. The holder takes h and its own z anew, with the others' z as they came. Its own line
    and gradient go nowhere: `up`, `down` and `protect` act on those of the others alone.
    """
    steps = [_step(optimizer, bottom) for bottom in net.bottoms]
    top_step, seen = _step(optimizer, net.top), Seen()
    for rows in batches:
        own = [f(x[rows]) for f, x in zip(net.bottoms, xs, strict=True)]
        heard = [z.detach() if k == holder else up(z.detach()) for k, z in enumerate(own)]
        leaves = [z.clone().requires_grad_() for z in heard]
        value = _descend(net, leaves, y[rows], loss, top_step)
        told = [z.grad if k == holder else down(protect(z.grad)) for k, z in enumerate(leaves)]
        for z, g, step in zip(own, told, steps, strict=True):
            _backward(z, g, step)
        for _ in range(local_steps - 1):
            for k, (f, x, g, step) in enumerate(zip(net.bottoms, xs, told, steps, strict=True)):
                if k != holder:
                    _backward(f(x[rows]), g, step)
            mine = net.bottoms[holder](xs[holder][rows])
            stale = [z.clone() for z in heard]
            stale[holder] = mine.detach().clone().requires_grad_()
            _descend(net, stale, y[rows], loss, top_step)
            _backward(mine, stale[holder].grad, steps[holder])
        seen.losses.append(value)
        seen.lines.append([z.clone() for z in heard])
        seen.told.append([g.clone() for g in told])
    return seen


def _step(optimizer: Optimizer, module: nn.Module) -> torch.optim.Optimizer | None:
    parameters = list(module.parameters())
    return optimizer(parameters) if parameters else None


def _descend(
    net: Network, lines: Sequence[Tensor], y: Tensor, loss: Loss, step: torch.optim.Optimizer | None
) -> float:
    """Compute the loss, with gradients at the leaves among `lines`, and step the top."""
    value = loss(net.forward(lines), y)
    if step:
        step.zero_grad()
    value.backward()
    if step:
        step.step()
    return float(value.detach())


def _backward(z: Tensor, g: Tensor, step: torch.optim.Optimizer | None) -> None:
    if step:
        step.zero_grad()
        z.backward(g)
        step.step()


class Bias(nn.Module):
    """The top of a vertical linear model: sum_k z_k + b, the only bias that it has."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, total: Tensor) -> Tensor:
        return total + self.bias


def linear_parts(whole: nn.Linear, widths: Sequence[int]) -> Network:
    """Cut a linear model of the joined table by columns: bottoms without bias, b at the holder's top."""
    bottoms = []
    for weight in whole.weight.detach().split(list(widths), 1):
        bottom = nn.Linear(weight.shape[1], len(weight), bias=False).to(weight)
        bottom.weight.data.copy_(weight)
        bottoms.append(bottom)
    top = Bias(whole.out_features).to(whole.weight)
    top.bias.data.copy_(whole.bias.detach())
    return Network(bottoms, top, "sum")


def cox(risk: Tensor, y: Tensor) -> Tensor:
    """Return -log of Cox's partial likelihood, ties as Breslow's, a mean over events; y is (time, event)."""
    total = risk.new_zeros(())
    for i in range(len(y)):
        if y[i, 1] == 1:
            at_risk = risk.reshape(-1)[y[:, 0] >= y[i, 0]]
            total = total + torch.logsumexp(at_risk, 0) - risk.reshape(-1)[i]
    return total / max(float(y[:, 1].sum()), 1.0)


def max_norm(g: Tensor, e: Tensor) -> Tensor:
    """Return g_i (1 + s_i e_i), s_i^2 = max_j ||g_j||^2 / ||g_i||^2 - 1 (Li et al. 2022).

    With e ~ N(0, 1) E ||g~_i||^2 = max_j ||g_j||^2 for every row. A row of zeros has no direction, and stays.
    """
    squares = g.square().sum(1)
    ratio = torch.where(squares > 0, squares.max() / torch.where(squares > 0, squares, 1.0), 1.0)
    return g * (1 + (ratio - 1).clamp(min=0).sqrt() * e).unsqueeze(1)


def norm_leak_auc(g: Tensor, y: Tensor) -> float:
    """Return the share of pairs (one, nought) of which the one's gradient is longer; a tie is half a pair."""
    norms = g.double().square().sum(1).sqrt()
    ones, noughts = norms[y == 1], norms[y == 0]
    return float(torch.sign(ones.unsqueeze(1) - noughts).add(1).div(2).mean())


def chances(epsilon: float, classes: int) -> Tensor:
    """Return P[told | true] [C, C] of C-ary randomised response: e^eps / (e^eps + C - 1) on the diagonal."""
    kept = torch.tensor(epsilon, dtype=torch.float64).exp()
    table = torch.ones(classes, classes, dtype=torch.float64)
    table.fill_diagonal_(float(kept))
    return table / table.sum(1, keepdim=True)


def float16(line: Tensor) -> Tensor:
    """The codec of half precision."""
    return line.half().to(line)


def grid(line: Tensor, levels: int, norm: str = "max") -> tuple[Tensor, Tensor]:
    """Return the two neighbours of each number on its row's grid (QSGD, Alistarh et al. 2017): one is sent.

    A row's grid is sign(v) ||row|| l / levels, l = 0 .. levels. The chance of the upper makes the mean v.
    """
    of_row = line.abs().amax(1, keepdim=True) if norm == "max" else line.norm(dim=1, keepdim=True)
    level = torch.where(of_row > 0, line.abs() / torch.where(of_row > 0, of_row, 1.0), 0.0) * levels
    low = level.floor()
    return low * line.sign() * of_row / levels, (low + 1).clamp(max=levels) * line.sign() * of_row / levels
