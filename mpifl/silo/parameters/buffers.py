"""A module's buffers: what is put back before each silo's work, and what becomes of what training writes.

What training writes to a buffer is averaged, taken by the job's rule, kept at the silo, or refused by name.
Which of these is settled when the module is given.
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
"""Whole numbers below are exact in float64."""
LARGE = 1 << 24
"""Bytes from which on no copy is kept of a buffer that nothing is to change."""


@dataclass(eq=False)
class Buffer:
    """One buffer, or a frozen parameter.

    Attributes:
        name: By PyTorch.
        tensor: Itself, the same object always.
        holder, key: The table of its module that has it, and its name there.
        kept: Whether model files hold it.
        rule: The job's; "" if it has none.
        start: What it is to be when work begins; None of one that nothing may change, and nothing puts back.
        version: How often PyTorch had counted a write to such a one.
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
        """Whether it is not as work was to begin with."""
        if self.holder.get(self.key) is not self.tensor:
            return True
        if self.start is None:
            return bool(self.tensor._version != self.version)
        return not same_bits(self.tensor, self.start)

    def put(self, value: Tensor) -> None:
        """Have it hold a value, and begin with it from now on."""
        self.tensor.copy_(value.view(self.tensor.shape))
        if self.start is not None:
            self.start.copy_(self.tensor)


class Buffers:
    """All buffers of a module.

    Args:
        module: The module, on its device.
        personal: Names of what stays at the silos.
        rules: The job's, by names or patterns.
        apart: Whether nobody averages the module, so that it keeps all that training writes.

    Attributes:
        averaged, taken: Those that are averaged, and those of a rule; of a module apart all others, too.
        own_numbers, own_others: Those that stay at a silo: plain numbers, and all others.
        at_scoring: Whether scoring was seen to write to one.
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
        """Have all buffers be as work is to begin with, whatever was written or put in their place."""
        self._put_themselves_back()
        for one in self._all:
            if one.start is not None:
                if one.tensor.grad_fn is not None:
                    one.tensor.detach_()
                one.tensor.copy_(one.start)

    def written(self) -> list[str]:
        """Return the names of buffers and frozen parameters that are not as work has begun with."""
        replaced = [name for name, _, _ in self._replaced()]
        return [*replaced, *(one.name for one in (*self._all, *self._frozen) if one.is_written)]

    @torch.no_grad()
    def settle(self) -> None:
        """Take in, after training, tensors that were put in the place of buffers.

        Raises:
            InputError: one is of another kind, or training wrote to what nothing keeps.
        """
        settled = []
        for name, now, was in self._replaced():
            if isinstance(now, Tensor) and isinstance(was, Tensor) and _kind(now) == _kind(was):
                settled.append((was, now.detach().clone()))
            elif self._rules.get(name) != RESET:
                raise InputError(replacement(name, now, was, apart=self._apart))
        for was, value in settled:  # behind the clones: two may have changed places
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
        """Return the name of each buffer that was replaced, what is in its place, and itself."""
        return [
            (f"{path}{key}", holder.get(key), known.get(key))
            for path, holder, known in self._holders
            if not _is_as(holder, known)
            for key in {**known, **holder}
            if holder.get(key) is not known.get(key)
        ]


class Statistics:
    """Some of a module's buffers as one float64 vector: averaged ones, then others by their bits.

    Attributes:
        averaged: How many elements are of averaged ones (BatchNorm's running mean, variance and counter,
            mostly).
    """

    def __init__(self, averaged: Sequence[Buffer], taken: Sequence[Buffer] = ()) -> None:
        self._averaged, self._taken = averaged, taken
        self.averaged = sum(one.tensor.numel() for one in averaged)
        self._length = self.averaged + sum(count_of(one.tensor) for one in taken)

    def __len__(self) -> int:
        """Return the number of elements; often 0."""
        return self._length

    def read(self) -> Tensor:
        """Return a copy as one float64 vector, which holds counters exactly."""
        parts = [one.tensor.detach().reshape(-1).to(torch.float64) for one in self._averaged]
        parts += [words_of(one.tensor) for one in self._taken]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def write(self, vector: Tensor) -> None:
        """Set the buffers, with which work then begins; counters are rounded to whole numbers."""
        sizes = [one.tensor.numel() for one in self._averaged] + [count_of(one.tensor) for one in self._taken]
        parts = torch.split(vector, sizes)
        for one, part in zip(self._averaged, parts, strict=False):
            one.put(part if one.tensor.dtype.is_floating_point else part.round())
        for one, part in zip(self._taken, parts[len(self._averaged) :], strict=True):
            one.put(from_words(part, one.tensor))

    def check(self, vector: Tensor) -> None:
        """See that what training has made of them can be averaged, or taken by a rule.

        Raises:
            InputError: it cannot; the line names the buffer.
        """
        numbers = vector[: self.averaged]
        sound = bool((numbers.abs() < EXACT).all())  # a look at all at once, which mostly does
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
        """Return the elements behind the averaged ones, by each buffer's rule of what silos tell.

        Args:
            told: Of each silo the elements that it has behind the averaged ones.

        Raises:
            ValueError: of a silo they are none; the message names it.
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
    """Whether a buffer holds numbers that float64 adds up: finite, and whole ones below 2^53."""
    if tensor.dtype == torch.bool or tensor.is_complex():
        return False
    wide = tensor.detach().to(torch.float64)
    return bool((wide.isfinite() if tensor.dtype.is_floating_point else wide.abs() < EXACT).all())


def _buffers(module: nn.Module, rules: Mapping[str, str]) -> Iterator[Buffer]:
    """Yield each buffer once, in PyTorch's order; it has the rule of any of its names."""
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
