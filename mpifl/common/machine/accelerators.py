"""Control of GPUs: wait for their work, check that they still answer, set how they round."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import torch

from mpifl.common import DeviceLost, one_line


def finish(device: torch.device) -> None:
    """Wait until a device has done all its work.

    Raises:
        RuntimeError: some of this work failed.
    """
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def check(device: torch.device, error: BaseException) -> None:
    """Check that a device still answers after an error.

    After some errors, such as an index out of range, a GPU answers no more calls of its process.

    Raises:
        DeviceLost: the device does not answer.
    """
    if isinstance(error, DeviceLost):
        raise error
    try:
        finish(device)
    except RuntimeError:
        raise DeviceLost(f"{device} no longer answers: {one_line(error)}") from error


@contextlib.contextmanager
def watched(device: torch.device) -> Iterator[None]:
    """Turn an error raised inside into DeviceLost if the device no longer answers."""
    try:
        yield
    except Exception as error:
        check(device, error)
        raise


@contextlib.contextmanager
def rounding(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """Set whether CUDA rounds factors to TF32 inside the context, and restore the setting afterwards.

    By torch's default CUDA does so in convolutions and recurrent layers.
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
    """Return whether CUDA rounds the factors of matrix products to TF32 now."""
    return bool(torch.backends.cuda.matmul.allow_tf32)


def _flags() -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, value) of each flag of TF32.

    A later torch has more flags. It refuses to return two of them if a user has set them to different values.
    """
    names = ["cuda.matmul.allow_tf32", "cudnn.allow_tf32"]
    names += ["cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"]
    for name in names:
        path, _, last = name.rpartition(".")
        with contextlib.suppress(AttributeError, RuntimeError):
            owner = operator.attrgetter(path)(torch.backends)
            yield owner, last, getattr(owner, last)
