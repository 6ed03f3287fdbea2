"""Load the fake accelerator: torch's device "fake", which `torch.accelerator` finds.

`FAKE_LIBRARY` in the environment says where `fake.cpp` was built.
"""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Sequence

import torch
from pages import Pages
from torch import Tensor

from mpifl.wire import memory

LIBRARY = os.environ["FAKE_LIBRARY"]
torch.ops.load_library(LIBRARY)
_library = ctypes.CDLL(LIBRARY)
_library.fake_told.restype = ctypes.c_char_p
reset = _library.fake_reset
"""Count from zero again."""
_library.fake_finish.restype = ctypes.c_bool
current = _library.fake_current
"""Return the number of the current device."""
round_oddly = _library.fake_odd
"""Have both round otherwise than the CPU, or no more."""


class Module(types.ModuleType):
    """What torch and mpifl ask of `torch.fake`."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.default_generators = [torch.Generator() for _ in range(self.device_count())]

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def device_count(self) -> int:
        return _library.fake_devices()

    def current_device(self) -> int:
        return current()

    def set_device(self, index: int) -> None:
        _library.fake_set(index)

    def synchronize(self, device: object = None) -> None:
        if not _library.fake_finish():
            raise RuntimeError("device-side assert triggered")

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return 1 << 30, 1 << 30

    def get_device_name(self, device: torch.device) -> str:
        return "an accelerator that is none"

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def told() -> dict[str, int]:
    """Return how often each operation ran since `reset`, and the bytes that were copied and are held."""
    lines = (line.partition("\t") for line in _library.fake_told().decode().splitlines())
    return {what: int(number) for what, _, number in lines}


pages = Pages()
memory.cudart = lambda: pages


def _forward(x: Tensor, w: Tensor, b: Tensor | None, *how: object) -> Tensor:
    if any(t is not None and t.device != x.device for t in (w, b)):
        raise RuntimeError("Expected all tensors to be on the same device (convolution)")
    there = None if b is None else b.cpu()
    return torch.ops.aten.convolution(x.cpu(), w.cpu(), there, *how).to(x.device)


def _backward(g: Tensor, x: Tensor, w: Tensor, *how: object) -> Sequence[Tensor | None]:
    *settings, mask = how
    bias = [w.shape[0]]
    made = torch.ops.aten.convolution_backward(g.cpu(), x.cpu(), w.cpu(), bias, *settings, mask)
    return tuple(None if t is None else t.to(x.device) for t in made)


torch.utils.rename_privateuse1_backend("fake")
torch._register_device_module("fake", Module())
torch.utils.generate_methods_for_privateuse1_backend()
_convolution = torch.library.Library("aten", "IMPL")
_convolution.impl("convolution_overrideable", _forward, "PrivateUse1")
_convolution.impl("convolution_backward_overrideable", _backward, "PrivateUse1")
