"""A model's weights from a file, which may come from anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from mpifl.common import InputError, read_start
from mpifl.run.folder.conversion import conversion
from mpifl.run.job.tables import Model
from mpifl.silo.parameters import unwrapped

PICKLES = (b"PK\x03\x04", b"\x80")
"""What files begin with that `torch.save` has written, now and before 1.6."""
JSON = b"{"
"""What follows the eight bytes of a length in a safetensors file; that length may begin as a pickle does."""

MADE_WITH = "model_sha256"
"""Metadata of a silo's own model: the sha256 of the server's that it was made with."""
ROUND = "round"
"""Metadata of the best model: its round."""


class Found(NamedTuple):
    """What of a file goes into a module.

    Attributes:
        taken: Tensors, by the module's names.
        missing: Names of the module that the file has nothing for.
        unused: Names of the file that the module has nothing for.
        misfits: What is said of those of both, by either name, that have other shapes.
    """

    taken: dict[str, Tensor]
    missing: list[str]
    unused: list[str]
    misfits: dict[str, str]


def load_initial(module: nn.Module, table: Model) -> str:
    """Give a module the weights that its job starts from; say what was left out, "" if nothing was.

    Raises:
        InputError: the file cannot be read, or is of another model.
    """
    if table.weights is None:
        return ""
    what = f"[model] weights = '{table.weights}'"
    try:
        found = load_weights(module, Path(table.weights), what, strict=table.strict)
    except OtherModel as error:
        raise InputError(f"{error}; [model] strict = false takes what fits") from None
    if not found.taken:
        raise InputError(f"{what}: nothing in it fits the model: {_said(found)}; take the model's own file")
    return f"{what}: {_said(found)}" if found.missing or found.unused else ""


def load_final(module: nn.Module, table: Model, path: Path) -> None:
    """Give a module the weights that a run of this model has left in a file.

    Raises:
        InputError: the file cannot be read, or is of another model.
    """
    load_initial(module, table)
    found = load_weights(module, path, str(path), strict=table.save == "all")
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    if wrong := sorted(trained.intersection(found.missing)) or found.unused:
        raise InputError(f"{path}: is of another model, by {_some(wrong)}")


class OtherModel(InputError):
    """A file of weights holds other names or shapes than a model has."""


def _said(found: Found) -> str:
    """Say what a file lacks, and what of it is not used."""
    lists = [[name for name in names if name not in found.misfits] for names in (found.missing, found.unused)]
    lacks, left = (_some(names) for names in lists)
    shapes = _some([*dict.fromkeys(found.misfits.values())])
    return ", ".join(filter(None, [lacks and f"has no {lacks}", left and f"{left} not used", shapes]))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def load_weights(module: nn.Module, path: Path, what: str, *, strict: bool = True) -> Found:
    """Give a module the weights of a safetensors file, which errors call `what`; no other kind is read.

    Names may have what torch.compile and DistributedDataParallel put before them, at either side. Frozen
    parameters stay in the file, which is mapped: the ranks of a node hold them once. The mapping is private:
    what writes to one changes neither the file nor another rank's.

    Args:
        module: The module.
        path: The file.
        what: What errors call it.
        strict: Whether it must hold all of the module's parameters and no others.

    Raises:
        InputError: it is not there, of another kind, torn, or of another model. Nothing was taken then.
    """
    start = _start(path, what)
    if start.startswith(PICKLES) and start[8:9] != JSON:
        raise InputError(f"{what}: is a pickle, which is a program and not run here; {conversion(path)}")
    try:
        found = _fitting(module.state_dict(), load_file(path))
        if strict and (found.missing or found.unused):
            raise OtherModel(f"{what}: is of another model: {_said(found)}")
        module.load_state_dict(found.taken, strict=False)
    except OtherModel:
        raise
    except Exception as error:  # whatever a parser and a model say to what somebody else wrote
        raise InputError(f"{what}: cannot be read: {' '.join(str(error).split())[:300]}") from None
    for name, parameter in module.named_parameters():
        value = found.taken.get(name)
        if not parameter.requires_grad and value is not None and value.dtype == parameter.dtype:
            parameter.data = value.to(parameter.device)
    return found


def _fitting(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Found:
    """Return what fits a module's state by name and shape; a name without a wrapper's is the same."""
    alike: dict[str, list[str]] = {}
    for name in weights.keys() - state.keys():
        alike.setdefault(unwrapped(name), []).append(name)
    found, used = Found({}, [], [], {}), set[str]()
    for name, own in state.items():
        sources = [name] if name in weights else alike.get(unwrapped(name), [])
        value = weights[sources[0]] if len(sources) == 1 else None
        if value is not None and value.shape == own.shape:
            found.taken[name] = value
            used.add(sources[0])
            continue
        found.missing.append(name)
        if value is not None:
            found.misfits[name] = f"{name} has shape {list(value.shape)} and not {list(own.shape)}"
            found.misfits[sources[0]] = found.misfits[name]
    return found._replace(unused=[name for name in weights if name not in used])


def metadata_of(path: Path) -> dict[str, str]:
    """Return what a safetensors file that was read says beside its tensors."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def round_of(path: Path) -> int:
    """Return the round that a best model says it is of; 0 where it says none, is torn or is not there."""
    try:
        return int(metadata_of(path).get(ROUND, 0))
    except (OSError, ValueError, SafetensorError):
        return 0


def _start(path: Path, what: str) -> bytes:
    try:
        return read_start(path, 9)
    except FileNotFoundError:
        raise InputError(f"{what}: is not there; name a .safetensors file") from None
    except OSError as error:
        raise InputError(f"{what}: cannot be read: {error.strerror}") from None
