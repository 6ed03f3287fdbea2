"""Code generation for a function of tensors: traced, compiled ahead of time, kept in the user's cache.

`make_fx` traces the graph, and AOTInductor compiles it. The name in the cache is a hash of the graph and of
all else that affects the code. So later runs, and the other ranks of a node, load the code of the first, and
get the same bits.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import hashlib
import os
import platform
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.common import cache, places, seeded, write_atomic
from mpifl.common.machine import accelerators
from mpifl.silo.parameters import Objective
from mpifl.wings.fast.code_loading import NotLoaded, Run, load, survives

LARGEST_GRAPH = 1500
"""The most operations of a graph; for larger ones the compiler takes minutes."""
_INDUCTORS = "TORCHINDUCTOR_CACHE_DIR"


class NotCompiled(Exception):
    """A step cannot be compiled; the message says why."""


def _add(to: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    return NotImplemented if alpha == 1 else torch.add(to, other * alpha)


def _add_(to: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    return NotImplemented if alpha == 1 else to.add_(other * alpha)


_WITHOUT_ALPHA: dict[Any, Any] = {torch.ops.aten.add.Tensor: _add, torch.ops.aten.add_.Tensor: _add_}
"""Sums without alpha, for the trace. Inductor fuses a matrix product with a sum and drops the sum's alpha, so
weight decay would be 1."""


class TracedLoss(nn.Module):
    """An objective and its model as one module. So all tensors can be replaced, whatever the objective calls.

    The modules are copies, the tensors are not. A model may cache something in its first pass, such as a
    table of positions. A trace would leave a fake tensor there, and the copies keep it out of the model.

    Raises:
        NotCompiled: the model cannot be copied.
    """

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        super().__init__()
        shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        try:
            self.module = copy.deepcopy(module, shared)
        except Exception as error:
            raise NotCompiled(f"the model cannot be copied ({type(error).__name__}: {error})") from error
        self._objective = objective

    def forward(self, *batch: Tensor) -> Tensor:
        """Return the objective of a batch."""
        return self._objective(self.module, *batch)


def trace(step: Callable[..., object], inputs: Sequence[Tensor]) -> torch.fx.GraphModule:
    """Trace a step to a graph of tensor operations, without computing any tensor.

    Raises:
        NotCompiled: the step reads values of tensors, draws random numbers, or is too long.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with seeded(0):  # so that a later plain step draws as without a trace
        before = places()
        try:
            graph = make_fx(step, _WITHOUT_ALPHA, tracing_mode="fake")(*inputs)
        except Exception as error:
            raise NotCompiled(f"the step cannot be traced ({_first_line(error)})") from error
        if places() != before:
            raise NotCompiled("the model draws from numpy's or Python's generator, and would draw no more")
    _check_operations(graph)
    return graph


def _check_operations(graph: torch.fx.GraphModule) -> None:
    operations = [node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    if any(torch.Tag.nondeterministic_seeded in operation.tags for operation in operations):
        raise NotCompiled("the model draws random numbers (dropout), and would draw others")
    if len(operations) > LARGEST_GRAPH:
        size = f"{len(operations)} operations, and {LARGEST_GRAPH} are compiled at most"
        raise NotCompiled(f"the step has {size}")


def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Tensor], device: torch.device) -> Run:
    """Return the machine code of a graph, from the cache if it is there.

    Raises:
        NotCompiled: it is not there, and the machine has no compiler or the compiler fails.
    """
    try:
        path = cache.folder() / f"{_digest(graph, inputs, device)}.pt2"
        content = _kept_or_made(path, graph, inputs, device)
        return _loaded(content, path.name, device)
    except NotLoaded as error:
        raise NotCompiled(f"{socket.gethostname()} cannot compile ({error})") from error
    except Exception as error:
        raise NotCompiled(f"{socket.gethostname()} cannot compile ({_first_line(error)})") from error


def _loaded(content: bytes, name: str, device: torch.device) -> Run:
    with _lying(content, name) as path:  # a private copy: nobody can change it before it is loaded
        return load(path, device)


@contextlib.contextmanager
def _lying(content: bytes, name: str) -> Iterator[Path]:
    """Put a package into a file that nobody else can write; yield its path."""
    with tempfile.TemporaryDirectory(prefix="mpifl-step-") as private:
        path = Path(private) / name
        path.write_bytes(content)
        yield path


def _kept_or_made(
    path: Path, graph: torch.fx.GraphModule, inputs: Sequence[Tensor], device: torch.device
) -> bytes:
    with _locked(path.with_suffix(".lock")):
        content = _kept(path)
        if content is None:
            how_long = "10 to 20 s" if device.type == "cpu" else "up to a minute"
            line = f"{socket.gethostname()}: compiling the local step ({how_long}), kept in {path.parent}"
            print(line, file=sys.stderr, flush=True)
            content = _package(graph, inputs, path.parent / "inductor")
            _try_once(content, path, inputs, device)
            write_atomic(path, content, mode=0o600)
        return content


def _try_once(content: bytes, path: Path, inputs: Sequence[Tensor], device: torch.device) -> None:
    """Check that a process survives the first code of a compiler. The cache remembers this for each compiler.
    Raise NotLoaded if it does not survive."""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or ""
    about = [compiler, *_lines("/proc/version"), torch.__version__, device.type]
    with contextlib.suppress(OSError):
        about.append(str(Path(compiler).stat()[6:9:2]))  # its size and time of modification
    survived = path.with_name(f"compiler-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}")
    if _kept(survived) is None:
        with _lying(content, path.name) as lying:
            if survives(lying, inputs, device):
                write_atomic(survived, b"", mode=0o600)


def _kept(path: Path) -> bytes | None:
    """Return a file of the cache; None if it is missing or others may have written it."""
    try:
        with os.fdopen(cache.opened(path), "rb") as file:
            return file.read()
    except OSError:
        return None


def _package(graph: torch.fx.GraphModule, inputs: Sequence[Tensor], pieces: Path) -> bytes:
    """Compile a graph; return AOTInductor's package.

    Args:
        inputs: Tensors with the layout for which to compile.
        pieces: The compiler's own cache folder. It must be private, since the compiler runs code from it.
    """
    from torch._inductor import aoti_compile_and_package, config

    scratch = tempfile.TemporaryDirectory(prefix="mpifl-compile-")
    with scratch as folder, warnings.catch_warnings(), _at(pieces):
        warnings.simplefilter("ignore")
        exported = torch.export.export(_Graph(graph), tuple(inputs))
        # no process pool in a rank, and no unpickling
        settings = {"compile_threads": 1, "fx_graph_cache": False}
        if hasattr(config.aot_inductor, "precompile_headers"):
            settings["aot_inductor.precompile_headers"] = False  # they cost 10 s once, to save 2 s each time
        target = str(Path(folder) / "step.pt2")
        made = aoti_compile_and_package(exported, package_path=target, inductor_configs=settings)
        return Path(made).read_bytes()


@contextlib.contextmanager
def _at(pieces: Path) -> Iterator[None]:
    """Make Inductor keep its files in `pieces`, not under a name in /tmp that others could take first."""
    before = os.environ.get(_INDUCTORS)
    os.environ[_INDUCTORS] = str(pieces)
    try:
        yield
    finally:
        os.environ.pop(_INDUCTORS)
        if before is not None:
            os.environ[_INDUCTORS] = before


class _Graph(nn.Module):
    """A graph as a module, as `export` needs it."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: Tensor) -> tuple[()]:
        self.graph(*inputs)
        return ()


def _digest(graph: torch.fx.GraphModule, inputs: Sequence[Tensor], device: torch.device) -> str:
    """Return a hash of all that affects the code: graph, layout of tensors, versions, processor."""
    constants = {name: t.tolist() for name, t in graph.named_buffers()}
    layout = [(tuple(t.shape), t.stride(), str(t.dtype), str(t.device)) for t in inputs]
    processor = platform.processor()
    if device.type == "cuda":
        processor = f"{torch.cuda.get_device_name(device)} {accelerators.rounds_to_tf32()}"
    described = ("model name", "flags", "Features")
    flags = [line for line in _lines("/proc/cpuinfo") if line.startswith(described)][:2]
    made_by = torch.__version__, torch.get_num_threads(), processor, flags
    return hashlib.sha256(repr((graph.code, constants, layout, made_by)).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that one rank compiles and the others wait. It ends with its process."""
    with path.open("w") as file:
        # without locks in the file system, two ranks may do the same work, which does no harm
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
