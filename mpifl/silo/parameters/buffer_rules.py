"""The job's rules for a model's buffers (`[model] buffers`): checked against the module, and applied to
values."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.common import InputError
from mpifl.silo.parameters.tensor_bits import ordered, unordered

RESET = "reset"
FLAGS, EXTREMES = ("any", "all"), ("min", "max")
KEY = "[model] buffers"


def named_buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's buffers by all their names, including buffers that are None."""
    return {
        f"{path}.{key}" if path else key: buffer
        for path, part in module.named_modules(remove_duplicate=False)
        for key, buffer in part._buffers.items()
    }


def rules_of(module: nn.Module, rules: Mapping[str, str], personal: Collection[str]) -> dict[str, str]:
    """Return the rules by buffer's name, for the buffers that have one.

    Args:
        module: The model.
        rules: The job's rules "any", "all", "min", "max" or "reset", by names or patterns of names.
        personal: The names of parameters and buffers that stay at the silos.

    Raises:
        InputError: a rule matches no buffer, or does not fit its buffer.
    """
    there, kept = named_buffers(module), module.state_dict(keep_vars=True) if rules else {}
    found: dict[str, str] = {}
    for pattern, rule in rules.items():
        matched = fnmatch.filter(there, pattern)
        if not matched:
            names = f"there are {', '.join(there)}" if there else "the model has none"
            raise InputError(f"{KEY}: '{pattern}' matches no buffer; {names}")
        for name in matched:
            if found.setdefault(name, rule) != rule:
                raise InputError(f"{KEY}: '{name}' has two rules, '{found[name]}' and '{rule}'; leave one")
            if why := _why_not(name, there[name], rule, personal, name in kept):
                raise InputError(f"{KEY}: {name} = '{rule}': {why}")
    return found


def _why_not(name: str, buffer: Tensor | None, rule: str, personal: Collection[str], kept: bool) -> str:
    """Return why a rule does not fit a buffer, and what to do; "" if it fits."""
    if name in personal:
        return "it is personal, and stays at its silo; leave the rule out"
    if rule == RESET:
        return ""
    if buffer is None:
        return "it is None in the model as it is built; use 'reset'"
    if not kept:
        return "it is not persistent, and no model file holds it; register it as persistent, or use 'reset'"
    dtype = str(buffer.dtype).removeprefix("torch.")
    if rule in FLAGS and buffer.dtype != torch.bool:
        return f"that is for flags (bool), and it is {dtype}; use {_choices(buffer)}"
    if rule in EXTREMES and not _is_ordered(buffer):
        return f"that is for real numbers, and it is {dtype}; use {_choices(buffer)}"
    return ""


def _is_ordered(buffer: Tensor) -> bool:
    """Return whether a buffer holds real numbers that float64 or int64 can hold."""
    plain = buffer.dtype not in (torch.bool, torch.uint64) and not buffer.is_complex()
    return plain and not buffer.is_quantized


def rules_for(buffer: Tensor) -> Sequence[str]:
    """Return the rules that a persistent buffer may have."""
    if buffer.dtype == torch.bool:
        return (*FLAGS, RESET)
    return (*EXTREMES, RESET) if _is_ordered(buffer) else (RESET,)


def _choices(buffer: Tensor) -> str:
    return " or ".join(map(repr, rules_for(buffer)))


def combined(values: Sequence[Tensor], rule: str) -> Tensor:
    """Combine the values of several silos by a rule. Their order does not matter.

    Raises:
        ValueError: a value holds NaN.
    """
    stacked = torch.stack([*values])
    if rule in FLAGS:
        return stacked.any(0) if rule == "any" else stacked.all(0)
    if bool(stacked.isnan().any()):
        raise ValueError("holds NaN")
    keys = ordered(stacked)
    return unordered(keys.amin(0) if rule == "min" else keys.amax(0), stacked.dtype)


def refusal(name: str, buffer: Tensor, *, kept: bool, apart: bool) -> str:
    """Return the message that training wrote to a buffer without a rule, and what to do.

    Args:
        name: The buffer's name.
        kept: Whether model files hold the buffer.
        apart: Whether nobody averages its model. A job has no rules for such a model.
    """
    dtype = str(buffer.dtype).removeprefix("torch.")
    wrote = f"training wrote to the buffer '{name}' ({dtype}), and nothing says what becomes of that"
    if apart:
        return f"{wrote}; register it as persistent"
    choices = " or ".join(f'"{rule}"' for rule in (rules_for(buffer) if kept else (RESET,)))
    other = "keep it at the silos by algorithm 'fedper'" if kept else "register it as persistent"
    return f"{wrote}; set {KEY} = {{ {_toml(name)} = {choices} }}, or {other}"


def replacement(name: str, now: Any, was: Any, *, apart: bool) -> str:
    """Return the message that training replaced a buffer, and what to do; see `refusal`."""
    lay, lies = map(_described, (was, now))
    rule = "" if apart else f', or set {KEY} = {{ {_toml(name)} = "{RESET}" }}'
    return f"training has replaced the buffer '{name}', {lay}, by {lies}; write into it (copy_){rule}"


def no_mean(name: str, buffer: Tensor, what: str) -> str:
    """Return the message that a buffer's value after training cannot be averaged, and what to do."""
    choices = " or ".join(f'"{rule}"' for rule in rules_for(buffer))
    rule = f"give it a rule, {KEY} = {{ {_toml(name)} = {choices} }}"
    return f"the buffer '{name}' {what} after training, and has no mean; {rule}"


def frozen(name: str) -> str:
    """Return the message that training wrote to a frozen parameter, and what to do."""
    return f"training wrote to the parameter '{name}', which is frozen; register it as a buffer"


def _toml(name: str) -> str:
    """Return a buffer's name as a TOML key."""
    return f'"{name}"' if "." in name else name


def _described(one: Any) -> str:
    return (
        f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" if isinstance(one, Tensor) else str(one)
    )
