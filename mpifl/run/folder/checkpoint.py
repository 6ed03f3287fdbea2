"""Checkpoints: a folder of state files and a description, written atomically and verified on reading.

A checkpoint is a folder `checkpoints/round_000010`. It holds `server.safetensors`, and a file
`silo_0003.safetensors` for each silo that keeps state. A silo's worker writes this file and sends it nowhere.
If the silo's site encrypts it, its name is `silo_0003.sealed`. `checkpoint.json` is written last and names
every file with its sha256. A folder without a valid `checkpoint.json` is no checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from torch import Tensor

from mpifl.common import InputError, Unwritable, read_whole, write_atomic
from mpifl.run.folder import serialization
from mpifl.silo.parameters import FlatModel
from mpifl.sums import is_finite

VERSION = 1
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LARGEST_DESCRIPTION = 1 << 28
"""The most bytes of a `checkpoint.json`; a silo takes about a hundred."""


class _Description(BaseModel):
    """The content of `checkpoint.json`, without its own sha256."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int
    round: int
    server: Sha256
    silos: dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")], Sha256]


class CheckpointError(InputError):
    """A checkpoint is torn, altered, incomplete or has another version."""


def round_folder(run: Path, round: int) -> Path:
    """Return the folder of the checkpoint after `round` rounds."""
    return Path(run) / "checkpoints" / f"round_{round:06d}"


def server_file(run: Path, round: int) -> Path:
    """Return the file of the server's state in a checkpoint."""
    return round_folder(run, round) / "server.safetensors"


def silo_file(run: Path, round: int, silo: int) -> Path:
    """Return the file of a silo's state in a checkpoint."""
    return round_folder(run, round) / f"silo_{silo:04d}.safetensors"


def rounds(run: Path) -> list[int]:
    """Return the rounds that have a checkpoint folder, complete or not, the latest first."""
    folders = (Path(run) / "checkpoints").glob("round_*")
    return sorted(
        (int(f.name[6:]) for f in folders if re.fullmatch(r"round_[0-9]{6,12}", f.name)), reverse=True
    )


def read_state(path: Path, sha256: str, unseal: Callable[[bytes], bytes] = bytes) -> dict[str, Any]:
    """Read a state that `write_state` wrote.

    Args:
        sha256: The expected sha256 of the file.
        unseal: Decrypts the file's bytes, or raises ValueError; by default the file is not encrypted.

    Raises:
        CheckpointError: the file is missing, has another sha256, or holds no state.
    """
    try:
        content = read_whole(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(f"{path}: torn or altered, its sha256 is not that in checkpoint.json")
    try:
        return serialization.unpack(unseal(content))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


def commit(run: Path, round: int, server: str, silos: Mapping[int, str]) -> None:
    """Complete a checkpoint whose state files are all written: write its `checkpoint.json`.

    Args:
        run: The run folder.
        round: Rounds done.
        server: The sha256 of the server's file.
        silos: The sha256 of each silo's file, for silos that have one.
    """
    write_atomic(round_folder(run, round) / "checkpoint.json", description(round, server, silos))


def description(round: int, server: str, silos: Mapping[int, str]) -> bytes:
    """Return the content of a `checkpoint.json`; see `commit`."""
    of_silos = {str(k): silos[k] for k in sorted(silos)}
    body = {"version": VERSION, "round": round, "server": server, "silos": of_silos}
    return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode() + b"\n"


def read(
    run: Path, round: int, begun: Mapping[str, Any] | None = None, moments: Collection[str] = ()
) -> tuple[dict[str, Any], dict[int, str]]:
    """Read the server's state and the sha256 of each silo's file from a checkpoint.

    Args:
        run: The run folder.
        round: Rounds done.
        begun: The state at the beginning of the training, by name; the state that is read must be like it.
        moments: Names of vectors like `w` that the state may hold or not.

    Raises:
        CheckpointError: the checkpoint is incomplete, or does not fit `begun`.
    """
    told = _described(round_folder(run, round) / "checkpoint.json", round)
    path = server_file(run, round)
    state = read_state(path, told.server)
    like = {**begun, **{name: begun["w"] for name in moments if name in state}} if begun else {}
    if wrong := _misfit(state, like):
        raise CheckpointError(f"{path}: {wrong}")
    return state, {int(silo): digest for silo, digest in told.silos.items()}


def _described(path: Path, round: int) -> _Description:
    """Return the content of a `checkpoint.json`; it must be unaltered and of this round."""
    body = _body(path, round)
    if (version := body.get("version")) != VERSION:
        raise CheckpointError(f"{path}: version {str(version)[:80]}, this program reads {VERSION}")
    try:
        return _Description.model_validate(body)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise CheckpointError(f"{path}: is not a description of a checkpoint ({said})") from None


def _body(path: Path, round: int) -> dict[str, Any]:
    """Return the content of a `checkpoint.json` without its own sha256, after checking that."""
    try:
        body: dict[str, Any] = from_json(read_whole(path, LARGEST_DESCRIPTION), allow_inf_nan=False)
        sha256 = body.pop("sha256")
        altered = sha256 != _digest(body) or body.get("round") != round
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise CheckpointError(f"{path}: missing or torn") from None
    if altered:
        raise CheckpointError(f"{path}: altered")
    return body


def _misfit(state: Mapping[str, Any], like: Mapping[str, Any]) -> str | None:
    """Return which entry of a state is missing, of another kind or shape than in `like`, or not finite."""
    for name, other in like.items():
        if name not in state:
            return f"has no '{name}'"
        if _kind(state[name]) != _kind(other):
            return f"'{name}' is {_kind(state[name])}, and should be {_kind(other)}"
        if not _finite(state[name]):
            return f"'{name}' is not finite"
    return None


def _kind(value: Any) -> str:
    """Return the kind of a value: dtype and shape of a tensor, else its type. Training does not change it."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "a number" if type(value) in (int, float) else f"of type {type(value).__name__}"


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or is_finite(value)
    return abs(value) < 2**63 if type(value) in (int, float) else True


def discard(run: Path, round: int) -> None:
    """Remove a checkpoint: first `checkpoint.json`, then the rest."""
    folder = round_folder(run, round)
    if folder.is_symlink():
        return folder.unlink()
    (folder / "checkpoint.json").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def set_aside(run: Path, round: int) -> None:
    """Rename a checkpoint that cannot be read, so that it no longer counts; its rounds are trained again."""
    folder = round_folder(run, round)
    aside = folder.with_name(f"unread_{round:06d}")
    shutil.rmtree(aside, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rename(aside)


def drop_silos(run: Path, oldest: int) -> None:
    """Remove silos' files of checkpoints before round `oldest`.

    The server does not remove them where a rank's run folder is not the server's.
    """
    for round in (one for one in rounds(run) if one < oldest):
        if (folder := round_folder(run, round)).is_symlink():
            continue
        with contextlib.suppress(OSError):
            for path in folder.glob("silo_*"):
                path.unlink(missing_ok=True)
            folder.rmdir()


def committed(run: Path) -> list[int]:
    """Return the rounds whose checkpoints have a `checkpoint.json`, the latest first, without reading it."""
    return [round for round in rounds(run) if (round_folder(run, round) / "checkpoint.json").exists()]


def keep(run: Path, newest: int, upto: int) -> None:
    """Keep the newest checkpoints up to a round; remove older ones and incomplete ones.

    Args:
        run: The run folder.
        newest: How many checkpoints to keep.
        upto: The latest round to consider.
    """
    older = [round for round in rounds(run) if round <= upto]
    whole = [round for round in committed(run) if round <= upto]
    for round in set(older).difference(whole[:newest]):
        discard(run, round)


def write_model(path: Path, model: FlatModel, metadata: Mapping[str, str] | None = None) -> str:
    """Write a model's state by PyTorch's names; return the file's sha256.

    `load_state_dict(load_file(path))` reads it.

    Args:
        path: The safetensors file.
        metadata: Metadata of the file.

    Raises:
        InputError: the model's parameters are not finite.
        Unwritable: the disk is full, or fails.
    """
    if not is_finite(model.trained):
        raise InputError(f"{path}: is not written, since the model's parameters are not finite")
    try:
        return serialization.write_tensors(path, model.state_dict(), metadata)
    except OSError as error:
        raise Unwritable(path, error) from None


def silos_of_latest(run: Path, upto: int) -> tuple[int, dict[int, str]]:
    """Return the round of the latest readable checkpoint up to `upto`, and the sha256 of each silo's file.

    The round is 0 if there is no such checkpoint.
    """
    for round in (one for one in rounds(run) if one <= upto):
        try:
            return round, read(run, round)[1]
        except CheckpointError:
            continue
    return 0, {}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
