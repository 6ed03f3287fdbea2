"""What dtypes and kinds a model's tensors may have: nothing is cast that was meant otherwise."""

from __future__ import annotations

import torch
from safetensors import torch as files
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mpifl.common import InputError

_HELD: frozenset[torch.dtype] = frozenset(files._TYPES.values())
"""The dtypes that model files hold, by the library in use."""


def check_tensors(module: nn.Module, where: str = "[model]") -> None:
    """See that what a model trains is float32, and that model files hold all that it has.

    Raises:
        InputError: it is not so; the line names the tensor.
    """
    for name, parameter in module.named_parameters():
        what = f"the parameter '{name}'"
        if parameter.requires_grad and parameter.dtype != torch.float32:
            to_do = (
                "build the model in float32, or freeze it; [local] precision = 'bf16' has passes in bfloat16"
            )
            raise InputError(f"{where}: {what} is {_name(parameter)}, and float32 is trained; {to_do}")
        _check(parameter, what, where)
    kept = module.state_dict(keep_vars=True)
    for name, buffer in module.named_buffers():
        _check(buffer, f"the buffer '{name}'", where, kept=name in kept)


def _check(tensor: Tensor, what: str, where: str, *, kept: bool = True) -> None:
    if is_lazy(tensor) or tensor.is_meta:
        raise InputError(f"{where}: {what} has no values yet; give its layer all sizes")
    if tensor.layout != torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else "sparse"
        raise InputError(f"{where}: {what} is {kind}; take a plain tensor")
    if kept and tensor.dtype not in _HELD:
        to_do = "take another dtype, or for a buffer persistent=False"
        raise InputError(f"{where}: {what} is {_name(tensor)}, which model files do not hold; {to_do}")


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
