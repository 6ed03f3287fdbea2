"""A module's buffers: restored before each silo's work, and what happens to a buffer that training writes.

A buffer that training writes is averaged, combined by the job's rule, kept at the silo, or refused by name.
`Buffers` decides which when it gets the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.common import InputError
from mpifl.silo.parameters.buffer_rules import (
    RESET,
    combined,
    frozen,
    named_buffers,
    no_mean,
    refusal,
    replacement,
    rules_of,
)
from mpifl.silo.parameters.tensor_bits import count_of, from_words, same_bits, words_of

EXACT = 2.0**53
"""Whole numbers below this are exact in float64."""
LARGE = 1 << 24
"""A buffer above this size, in bytes, has no copy if nothing may change it."""


@dataclass(eq=False)
class Buffer:
    """One buffer, or a frozen parameter.

    Attributes:
        name: The name in PyTorch.
        tensor: The tensor, always the same object.
        holder, key: The module's table that has the tensor, and its name there.
        kept: Whether model files hold it.
        rule: The job's rule; "" if it has none.
        start: Its value when work begins; None for a tensor that must not change and is never restored.
        version: PyTorch's count of writes to such a tensor, at the start.
    """

    name: str
    tensor: Tensor
    holder: dict[str, Any]
    key: str
    kept: bool = True
    rule: str = ""
    start: Tensor | None = None
    version: int = 0

    @property
    def is_written(self) -> bool:
        """Whether it differs from its value when work began."""
        if self.holder.get(self.key) is not self.tensor:
            return True
        if self.start is None:
            return bool(self.tensor._version != self.version)
        return not same_bits(self.tensor, self.start)

    def put(self, value: Tensor) -> None:
        """Write a value to it, which later work also begins with."""
        self.tensor.copy_(value.view(self.tensor.shape))
        if self.start is not None:
            self.start.copy_(self.tensor)


class Buffers:
    """All buffers of a module.

    Args:
        module: The module, on its device.
        personal: The names of parameters and buffers that stay at the silos.
        rules: The job's rules, by names or patterns.
        apart: Whether nobody averages the module, so that it keeps all that training writes.

    Attributes:
        averaged, taken: The averaged buffers, and the buffers with a rule. If `apart`, `taken` holds all
            others.
        own_numbers, own_others: The buffers that stay at a silo: plain numbers, and all others.
        at_scoring: Whether scoring has written to a buffer.
    """

    def __init__(
        self,
        module: nn.Module,
        personal: Collection[str] = (),
        rules: Mapping[str, str] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self._rules, self._apart = rules_of(module, rules or {}, personal), apart
        parts = [(path, part._buffers) for path, part in module.named_modules(remove_duplicate=False)]
        self._holders = [(f"{path}." if path else "", holder, dict(holder)) for path, holder in parts]
        self._frozen = [*_frozen(module)]
        self._all = [*_buffers(module, self._rules)]
        numbers = {one.name for one in self._all if one.kept and not one.rule and is_number(one.tensor)}
        own = [one for one in self._all if one.kept and one.name in personal]
        shared = [one for one in self._all if one.kept and one.name not in personal]
        self.averaged = [one for one in shared if one.name in numbers]
        others = [one for one in shared if one.name not in numbers and one.rule != RESET]
        self.taken = others if apart else [one for one in others if one.rule]
        self.own_numbers = [one for one in own if one.name in numbers]
        self.own_others = [one for one in own if one.name not in numbers]
        followed = {one.name for one in (*self.averaged, *self.taken, *own)}
        self._constant = [one for one in self._all if one.name not in followed and one.rule != RESET]
        for one in self._all:
            spared = one in self._constant and one.tensor.nbytes > LARGE
            one.start = None if spared else one.tensor.detach().clone()
        self.at_scoring = False

    @torch.no_grad()
    def restore(self) -> None:
        """Restore all buffers to their values at the start, even if they were replaced."""
        self._put_themselves_back()
        for one in self._all:
            if one.start is not None:
                if one.tensor.grad_fn is not None:
                    one.tensor.detach_()
                one.tensor.copy_(one.start)

    def written(self) -> list[str]:
        """Return the names of buffers and frozen parameters that have changed since work began."""
        replaced = [name for name, _, _ in self._replaced()]
        return [*replaced, *(one.name for one in (*self._all, *self._frozen) if one.is_written)]

    @torch.no_grad()
    def settle(self) -> None:
        """After training, copy tensors that replaced buffers into the buffers.

        Raises:
            InputError: a replacement has another shape or dtype, or training wrote to a tensor that nothing
                keeps.
        """
        settled = []
        for name, now, was in self._replaced():
            if isinstance(now, Tensor) and isinstance(was, Tensor) and _kind(now) == _kind(was):
                settled.append((was, now.detach().clone()))
            elif self._rules.get(name) != RESET:
                raise InputError(replacement(name, now, was, apart=self._apart))
        for was, value in settled:  # after all clones: two buffers may have been swapped
            was.copy_(value)
        self._put_themselves_back()
        for one in (*self._constant, *self._frozen):
            if one.is_written:
                told = {"kept": one.kept, "apart": self._apart}
                raise InputError(
                    frozen(one.name) if one in self._frozen else refusal(one.name, one.tensor, **told)
                )

    def _put_themselves_back(self) -> None:
        for _, holder, known in self._holders:
            if not _is_as(holder, known):
                holder.clear()
                holder.update(known)

    def _replaced(self) -> list[tuple[str, Any, Any]]:
        """Return, for each replaced buffer, its name, its replacement and the buffer."""
        return [
            (f"{path}{key}", holder.get(key), known.get(key))
            for path, holder, known in self._holders
            if not _is_as(holder, known)
            for key in {**known, **holder}
            if holder.get(key) is not known.get(key)
        ]


class Statistics:
    """Some of a module's buffers as one float64 vector: first the averaged ones, then the others as bits.

    Attributes:
        averaged: The number of elements of averaged buffers (mostly BatchNorm's running mean, variance and
            counter).
    """

    def __init__(self, averaged: Sequence[Buffer], taken: Sequence[Buffer] = ()) -> None:
        self._averaged, self._taken = averaged, taken
        self.averaged = sum(one.tensor.numel() for one in averaged)
        self._length = self.averaged + sum(count_of(one.tensor) for one in taken)

    def __len__(self) -> int:
        """Return the number of elements; often 0."""
        return self._length

    def read(self) -> Tensor:
        """Return a copy of the buffers as one float64 vector, which holds counters exactly."""
        parts = [one.tensor.detach().reshape(-1).to(torch.float64) for one in self._averaged]
        parts += [words_of(one.tensor) for one in self._taken]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def write(self, vector: Tensor) -> None:
        """Set the buffers, also for later work; counters are rounded to whole numbers."""
        sizes = [one.tensor.numel() for one in self._averaged] + [count_of(one.tensor) for one in self._taken]
        parts = torch.split(vector, sizes)
        for one, part in zip(self._averaged, parts, strict=False):
            one.put(part if one.tensor.dtype.is_floating_point else part.round())
        for one, part in zip(self._taken, parts[len(self._averaged) :], strict=True):
            one.put(from_words(part, one.tensor))

    def check(self, vector: Tensor) -> None:
        """Check that the buffers after training can be averaged, or combined by a rule.

        Raises:
            InputError: a buffer cannot; the line names it.
        """
        numbers = vector[: self.averaged]
        sound = bool((numbers.abs() < EXACT).all())  # one quick look at all, which usually suffices
        sizes = [one.tensor.numel() for one in self._averaged]
        for one, part in [] if sound else zip(self._averaged, torch.split(numbers, sizes), strict=True):
            real = one.tensor.dtype.is_floating_point
            if part.numel() and not bool((part.isfinite() if real else part.abs() < EXACT).all()):
                what = "is not finite" if real else "is beyond 2^53"
                raise InputError(no_mean(one.name, one.tensor, what))
        words = torch.split(vector[self.averaged :], [count_of(one.tensor) for one in self._taken])
        for one, bits in zip(self._taken, words, strict=True):
            if one.tensor.is_floating_point() and bool(from_words(bits, one.tensor).isnan().any()):
                raise InputError(f"the buffer '{one.name}' holds NaN after training: '{one.rule}' has none")

    def taken_of(self, told: Mapping[int, Tensor]) -> Tensor:
        """Combine the silos' elements after the averaged ones, by each buffer's rule.

        Args:
            told: Each silo's elements after the averaged ones, by the silo's number.

        Raises:
            ValueError: a silo's elements are not valid; the message names the silo.
        """
        sizes, parts = [count_of(one.tensor) for one in self._taken], []
        cut = {silo: torch.split(words, sizes) for silo, words in sorted(told.items())}
        for nth, one in enumerate(self._taken):
            values = []
            for silo, of_silo in cut.items():
                try:
                    values.append(from_words(of_silo[nth], one.tensor.cpu()))
                    combined(values[-1:], one.rule)
                except ValueError as error:
                    raise ValueError(f"silo {silo}: its buffer '{one.name}' {error}") from None
            parts.append(words_of(combined(values, one.rule)))
        return torch.cat(parts)


def is_number(tensor: Tensor) -> bool:
    """Return whether float64 can add up a buffer's numbers: finite floats, or whole numbers below 2^53."""
    if tensor.dtype == torch.bool or tensor.is_complex():
        return False
    wide = tensor.detach().to(torch.float64)
    return bool((wide.isfinite() if tensor.dtype.is_floating_point else wide.abs() < EXACT).all())


def _buffers(module: nn.Module, rules: Mapping[str, str]) -> Iterator[Buffer]:
    """Yield each buffer once, in PyTorch's order. A rule for any of its names applies."""
    kept, seen, there = module.state_dict(keep_vars=True), set(), named_buffers(module)
    of = {id(there[name]): rule for name, rule in rules.items()}
    for path, part in module.named_modules():
        for key, one in part._buffers.items():
            name = f"{path}.{key}" if path else key
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                rule = of.get(id(one), "")
                yield Buffer(name, one, part._buffers, key, name in kept, rule, version=one._version)


def _frozen(module: nn.Module) -> Iterator[Buffer]:
    """Yield the parameters that are not trained."""
    for path, part in module.named_modules():
        for key, tensor in part._parameters.items():
            if tensor is not None and not tensor.requires_grad:
                name = f"{path}.{key}" if path else key
                yield Buffer(name, tensor, part._parameters, key, version=tensor._version)


def _is_as(holder: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    return holder.keys() == known.keys() and all(holder[key] is one for key, one in known.items())


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype, torch.layout]:
    return tensor.shape, tensor.dtype, tensor.layout
