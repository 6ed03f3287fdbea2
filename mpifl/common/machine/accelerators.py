"""What is asked of a GPU beside tensors: to finish its work, whether it still answers, and how it rounds."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch

from mpifl.common import DeviceLost, one_line


def finish(device: torch.device) -> None:
    """Wait until a device has done all that it was given.

    Raises:
        RuntimeError: something of it went wrong.
    """
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def check(device: torch.device, error: BaseException) -> None:
    """See that a device still answers after an error; after some, such as an index out of range, a GPU
    answers no call of its process any more.

    Raises:
        DeviceLost: it does not.
    """
    if isinstance(error, DeviceLost):
        raise error
    try:
        finish(device)
    except RuntimeError:
        raise DeviceLost(f"{device} answers no more: {one_line(error)}") from error


@contextlib.contextmanager
def watched(device: torch.device) -> Iterator[None]:
    """Have errors of what is done meanwhile end in DeviceLost, if a device answers no more after them."""
    try:
        yield
    except Exception as error:
        check(device, error)
        raise


@contextlib.contextmanager
def rounding(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """Have CUDA round to TF32 what it multiplies meanwhile, or not; afterwards it does as before.

    As torch comes, it does so in convolutions and recurrent layers.
    """
    if device.type == "cpu":
        yield
        return
    found = list(_flags())
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        for owner, name, value in found:
            setattr(owner, name, value)


def rounds_to_tf32() -> bool:
    """Whether CUDA would round what it multiplies to TF32 now."""
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _flags() -> Iterator[tuple[Any, str, Any]]:
    """Yield who holds each flag of TF32, its name and its value; a later torch has more of them, and refuses
    to tell of two that somebody has set apart."""
    names = ["cuda.matmul.allow_tf32", "cudnn.allow_tf32"]
    names += ["cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"]
    for name in names:
        path, _, last = name.rpartition(".")
        with contextlib.suppress(AttributeError, RuntimeError):
            owner = operator.attrgetter(path)(torch.backends)
            yield owner, last, getattr(owner, last)
