"""A model's weights from a file, which may come from anybody."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from mpifl.common import InputError, read_start
from mpifl.run.tables import Model

PICKLES = (b"PK\x03\x04", b"\x80")
"""What files begin with that `torch.save` has written, now and before 1.6."""
JSON = b"{"
"""What follows the eight bytes of a length in a safetensors file; that length may begin as a pickle does."""

MADE_WITH = "model_sha256"
"""Metadata of a silo's own model: the sha256 of the server's that it was made with."""
ROUND = "round"
"""Metadata of the best model: its round."""


def load_initial(module: nn.Module, table: Model) -> str:
    """Give a module the weights that its job starts from; say what was left out, "" if nothing was.

    Raises:
        InputError: the file cannot be read, or is of another model.
    """
    if table.weights is None:
        return ""
    what = f"[model] weights = '{table.weights}'"
    missing, unknown = load_weights(module, Path(table.weights), what, strict=table.strict)
    said = [f"has no {_some(missing)}"] * bool(missing) + [f"{_some(unknown)} not used"] * bool(unknown)
    return f"{what}: {', '.join(said)}" if said else ""


def load_final(module: nn.Module, table: Model, path: Path) -> None:
    """Give a module the weights that a run of this model has left in a file.

    Raises:
        InputError: the file cannot be read, or is of another model.
    """
    load_initial(module, table)
    missing, unknown = load_weights(module, path, str(path), strict=table.save == "all")
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    if wrong := sorted(trained.intersection(missing)) or unknown:
        raise InputError(f"{path}: is of another model, by {_some(wrong)}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def load_weights(
    module: nn.Module, path: Path, what: str, *, strict: bool = True
) -> tuple[list[str], list[str]]:
    """Give a module the weights of a safetensors file, which errors call `what`; no other kind is read.

    Frozen parameters stay in the file, which is mapped: the ranks of a node hold them once. The mapping is
    private: what writes to one changes neither the file nor another rank's.

    Args:
        module: The module.
        path: The file.
        what: What errors call it.
        strict: Whether it must hold all of the module's parameters and no others.

    Returns:
        The names that the file lacks, and those that the module lacks.

    Raises:
        InputError: it is not there, of another kind, torn, or of another model.
    """
    start = _start(path, what)
    if start.startswith(PICKLES) and start[8:9] != JSON:
        raise InputError(f"{what}: is a pickle, which is a program and not run here; {_conversion(path)}")
    try:
        weights = load_file(path)
        found = module.load_state_dict(weights, strict=strict)
    except Exception as error:  # whatever a parser and a model say to what somebody else wrote
        raise InputError(f"{what}: cannot be read: {' '.join(str(error).split())[:300]}") from None
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad and name in weights and weights[name].dtype == parameter.dtype:
            parameter.data = weights[name].to(parameter.device)
    return found.missing_keys, found.unexpected_keys


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


def _conversion(path: Path) -> str:
    """Say how a file that holds a `state_dict` becomes one that is read."""
    new = path.with_suffix(".safetensors").name
    act = f"save_file(torch.load({path.name!r}, weights_only=True), {new!r})"
    return f'convert it: python -c "import torch; from safetensors.torch import save_file; {act}"'
