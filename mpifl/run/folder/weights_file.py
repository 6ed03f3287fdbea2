"""Reading of a model's weights from a safetensors file, which may come from anybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from mpifl.common import InputError, read_start, read_toml
from mpifl.run.folder.conversion import conversion
from mpifl.run.folder.environment import read_environment
from mpifl.run.job.tables import Model
from mpifl.silo.parameters import unwrapped

PICKLES = (b"PK\x03\x04", b"\x80")
"""The first bytes of files that `torch.save` writes, since version 1.6 and before."""
JSON = b"{"
"""The byte after the eight bytes of the length in a safetensors file; the length may begin like a pickle."""

SCALING = ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
"""Keys of peft's `LoraConfig` that say how much adapters add; tensors do not tell them."""
MADE_WITH = "model_sha256"
"""Metadata of a silo's own model: the sha256 of the server's model that it was made with."""
FROZEN = "frozen_sha256"
"""The key of `environment.json` for the sha256 of frozen weights that a run does not save."""
ROUND = "round"
"""Metadata of a model: its round, where the run keeps its best one."""


class Found(NamedTuple):
    """How the tensors of a file fit a module.

    Attributes:
        taken: Tensors that fit, by the module's names.
        missing: Names of the module without a fitting tensor in the file.
        unused: Names of the file without a place in the module.
        misfits: For tensors with another shape in the file: a text that says so, under both of their names.
    """

    taken: dict[str, Tensor]
    missing: list[str]
    unused: list[str]
    misfits: dict[str, str]


def load_initial(module: nn.Module, table: Model) -> str:
    """Load the weights that a job starts from into a module; return what was left out, "" if nothing.

    If only trained parameters are saved, a file of them alone is whole: frozen ones keep their values.

    Raises:
        InputError: the file cannot be read, or belongs to another model.
    """
    if table.weights is None:
        return ""
    what, adapters = f"[model] weights = '{table.weights}'", table.strict and table.save == "trained"
    try:
        found = load_weights(module, Path(table.weights), what, strict=table.strict, adapters=adapters)
    except OtherModel as error:
        lacking = "lora_" in str(error) and not any("lora_" in name for name in module.state_dict())
        ways = "adapters need their [model] lora" if lacking else "[model] strict = false takes what fits"
        raise InputError(f"{error}; {ways}") from None
    if not found.taken:
        raise InputError(f"{what}: nothing in it fits the model: {_said(found)}; use the model's own file")
    if adapters and not {*_frozen(module)} & found.taken.keys():
        check_frozen(module, Path(table.weights).parent, what)
    return f"{what}: {_said(found)}" if not table.strict and (found.missing or found.unused) else ""


def load_final(module: nn.Module, table: Model, path: Path, run: Path | None = None) -> None:
    """Load the weights that a run of this model has written into a module. The run is the file's folder if
    it is not named.

    Raises:
        InputError: the file cannot be read, or belongs to another model.
    """
    load_initial(module, table)
    found = load_weights(module, path, str(path), strict=table.save == "all")
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    if wrong := sorted(trained.intersection(found.missing)) or found.unused:
        raise InputError(f"{path}: is of another model, by {_some(wrong)}")
    if table.save == "trained":
        check_frozen(module, run or path.parent, str(path))


def sha256_of_frozen(module: nn.Module) -> str:
    """Return the sha256 over a module's frozen parameters, by their names; "" without any."""
    frozen, digest = _frozen(module), hashlib.sha256()
    for name, parameter in sorted(frozen.items()):
        digest.update(f"{unwrapped(name)} {parameter.dtype} {[*parameter.shape]}\n".encode())
        digest.update(parameter.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest() if frozen else ""


def check_frozen(found: nn.Module | str, run: Path, what: str) -> None:
    """See that frozen parameters are those that the run in a folder was trained with, if it says.

    Args:
        found: The module that has them, or their sha256.
        run: The folder.
        what: What is read there, for the error.

    Raises:
        InputError: they are others.
    """
    if not (told := read_environment(run).get(FROZEN)):
        return
    found = found if isinstance(found, str) else sha256_of_frozen(found)
    if found != told:
        said = f"sha256 {found[:12]}, and those of its training {told[:12]}" if found else "not there"
        remedy = "name the training's base model by [model] path or weights"
        raise InputError(f"{what}: is of another base model, whose frozen weights have {said}; {remedy}")


def _frozen(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: one for name, one in module.named_parameters() if not one.requires_grad}


class OtherModel(InputError):
    """A file of weights has other names or shapes than the model."""


def _said(found: Found) -> str:
    """Return a text that says which tensors a file lacks, and which are not used."""
    lists = [[name for name in names if name not in found.misfits] for names in (found.missing, found.unused)]
    lacks, left = (_some(names) for names in lists)
    shapes = _some([*dict.fromkeys(found.misfits.values())])
    return ", ".join(filter(None, [lacks and f"has no {lacks}", left and f"{left} not used", shapes]))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def load_weights(
    module: nn.Module, path: Path, what: str, *, strict: bool = True, adapters: bool = False
) -> Found:
    """Load the weights of a safetensors file into a module; no other kind of file is read.

    Names in the file or the module may have the prefix of torch.compile or DistributedDataParallel. Frozen
    parameters stay in the file, which is mapped, so that the ranks of a node hold them once. The mapping is
    private: a write to such a parameter changes neither the file nor another rank's parameter.

    Args:
        what: The name of the file in errors.
        strict: Whether the file must hold all of the module's parameters and no others.
        adapters: Whether it may lack frozen parameters nevertheless, which keep their values.

    Raises:
        InputError: the file is missing, of another kind, torn, or belongs to another model. Nothing is taken
            from it then.
    """
    start = _start(path, what)
    if start.startswith(PICKLES) and start[8:9] != JSON:
        raise InputError(f"{what}: is a pickle, which is a program and not run here; {conversion(path)}")
    try:
        _check_scale(module, path, what)
        found = _fitting(module.state_dict(), load_file(path))
        every = module.named_parameters(remove_duplicate=False)  # a tied parameter has several names
        frozen = {name for name, parameter in every if adapters and not parameter.requires_grad}
        wrong = found._replace(missing=[name for name in found.missing if name not in frozen])
        if strict and (wrong.missing or wrong.unused):
            raise OtherModel(f"{what}: is of another model: {_said(wrong)}")
        module.load_state_dict(found.taken, strict=False)
    except InputError:
        raise
    except Exception as error:  # parser and model may raise anything for a stranger's file
        raise InputError(f"{what}: cannot be read: {' '.join(str(error).split())[:300]}") from None
    for name, parameter in module.named_parameters():
        value = found.taken.get(name)
        if not parameter.requires_grad and value is not None and value.dtype == parameter.dtype:
            parameter.data = value.to(parameter.device)
    return found


def _check_scale(module: nn.Module, path: Path, what: str) -> None:
    """Refuse adapters that have, by peft's file or the run's job beside them, another scale than the
    module's."""
    configs: list[Any] = [found for part in module.modules() if (found := getattr(part, "peft_config", None))]
    if not configs or not (own := configs[0].get("default")):
        return
    for name, read in (("adapter_config.json", _peft_of), ("job.toml", _lora_of)):
        beside = path.with_name(name)
        theirs = read(beside) if beside.is_file() else None
        if not isinstance(theirs, dict):
            continue
        for key in SCALING:
            given = theirs.get(key, getattr(type(own)(), key, None))
            if given is not None and given != (value := getattr(own, key, None)):
                said = f"{name} beside it has {key} = {json.dumps(given)}, [model] lora has {value}"
                raise InputError(f"{what}: {said}; give both the same")


def _peft_of(config: Path) -> Any:
    return json.loads(config.read_text())


def _lora_of(job: Path) -> Any:
    """Return the `lora` of a run's job; None of a file that is no such job."""
    try:
        model = read_toml(job).get("model")
    except InputError:
        return None
    return model.get("lora") if isinstance(model, dict) else None


def _fitting(state: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Found:
    """Return which weights fit a module's state by name and shape; prefixes of wrappers do not count."""
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
    """Return the metadata of a safetensors file."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})


def told_round(round: int) -> dict[str, str] | None:
    """Return metadata that tell a model's round; None for 0."""
    return {ROUND: str(round)} if round else None


def round_of(path: Path) -> int:
    """Return the round in a model's metadata; 0 if it names none, is torn or is missing."""
    try:
        return int(metadata_of(path).get(ROUND, 0))
    except (OSError, ValueError, SafetensorError):
        return 0


def _start(path: Path, what: str) -> bytes:
    try:
        return read_start(path, 9)
    except FileNotFoundError:
        raise InputError(f"{what}: is not there; name a .safetensors file") from None
    except IsADirectoryError:
        inside = sorted(path.glob("*model.safetensors"))
        name = f"its file, {inside[0]}" if inside else "a .safetensors file"
        raise InputError(f"{what}: is a folder; name {name}") from None
    except OSError as error:
        raise InputError(f"{what}: cannot be read: {error.strerror}") from None
