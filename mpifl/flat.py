"""A module's parameters, gradients and running statistics as flat vectors."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Objective = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(module, x, y) -> mean loss over the batch, a scalar tensor."""


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross entropy of `module(x)`, logits of shape [n, classes, ...], against y of shape [n, ...]."""
    return F.cross_entropy(module(x), y)


class FlatModel:
    """A module whose trainable parameters lie one after another in one float32 vector, personal ones last.

    Attributes:
        module: The module itself; its parameters are views into `trained`.
        trained: All trainable parameters, shape [P].
        shared, personal: The two parts of `trained`, as views. Only `shared` ever leaves a silo.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu", personal: Sequence[str] = ()) -> None:
        self.module = module.to(device)
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        mine = [any(fnmatch.fnmatchcase(name, pattern) for pattern in personal) for name, _ in named]
        ordered = [named[i] for i in sorted(range(len(named)), key=lambda i: mine[i])]
        self.names = [name for name, _ in ordered]
        self.parameters = [p for _, p in ordered]
        self.trained = torch.empty(sum(p.numel() for p in self.parameters), dtype=torch.float32, device=device)
        for p, view in zip(self.parameters, self.views(self.trained), strict=True):
            p.data = view.copy_(p.data)
        split = sum(p.numel() for (_, p), is_mine in zip(named, mine, strict=True) if not is_mine)
        self.shared, self.personal = self.trained[:split], self.trained[split:]
        self._data = [p.detach() for p in self.parameters]
        self._buffers = [b for _, b in _persistent_buffers(module) if b.dtype != torch.bool]
        self._grad: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """The device that the parameters lie on."""
        return self.trained.device

    @property
    def grad(self) -> Tensor:
        """The flat gradient, shape [P], in the order of `trained`; made when it is first needed."""
        if self._grad is None:
            self._grad = torch.zeros_like(self.trained)
        return self._grad

    def views(self, vector: Tensor) -> list[Tensor]:
        """Cut a vector of shape [P] into views of the parameters' shapes."""
        parts = torch.split(vector, [p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of a scalar loss for each parameter; zeros for those that it does not depend on."""
        return torch.autograd.grad(loss, self.parameters, materialize_grads=True)

    def flatten(self, gradients: Sequence[Tensor]) -> Tensor:
        """Copy the parameters' gradients into the flat `grad` and return it."""
        return torch.cat([g.reshape(-1) for g in gradients], out=self.grad)

    def descend(self, gradients: Sequence[Tensor], lr: float) -> None:
        """Take a plain gradient step on the parameters themselves, without flattening: trained -= lr * gradient."""
        torch._foreach_add_(self._data, list(gradients), alpha=-lr)

    @property
    def statistics(self) -> Tensor:
        """Running statistics and counters (BatchNorm's, for instance) as one float64 vector, a copy; often empty."""
        parts = [b.detach().reshape(-1).to(torch.float64) for b in self._buffers]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64, device=self.device)

    @statistics.setter
    def statistics(self, vector: Tensor) -> None:
        for buffer, part in zip(self._buffers, torch.split(vector, [b.numel() for b in self._buffers]), strict=True):
            whole = part if buffer.dtype.is_floating_point else part.round()
            buffer.copy_(whole.view(buffer.shape))

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the module's state on the CPU by PyTorch's names, ready for `load_state_dict`."""
        return {name: value.detach().cpu().clone() for name, value in self.module.state_dict().items()}


def _persistent_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    kept = module.state_dict(keep_vars=True)
    return [(name, buffer) for name, buffer in module.named_buffers() if name in kept]
