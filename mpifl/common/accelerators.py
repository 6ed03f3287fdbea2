"""What is asked of a GPU beside tensors: to finish its work, and whether it still answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from mpifl.common.errors import DeviceLost, one_line


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
