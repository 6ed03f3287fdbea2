"""State to disk and back: safetensors for tensors, JSON for the rest, written aside, renamed, verified on reading.

A checkpoint is a folder `checkpoints/round_000010` with `server.safetensors`, a `silo_0003.safetensors` for each silo
that keeps state (written by its worker and never sent anywhere), and `checkpoint.json`, written last, which names every
file with its sha256. A folder without a `checkpoint.json` that holds is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from torch import Tensor

from mpifl.errors import InputError, Unwritable
from mpifl.files import Buffer, write_aside
from mpifl.flat import FlatModel

VERSION = 1
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL"}
_DTYPES |= {torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}


class CheckpointError(InputError):
    """A checkpoint is torn, altered, incomplete or of another version."""


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
    """Return the rounds that have a checkpoint folder, whole or not, the latest first."""
    folders = (Path(run) / "checkpoints").glob("round_*")
    return sorted((int(f.name[6:]) for f in folders if re.fullmatch(r"round_[0-9]{6,12}", f.name)), reverse=True)


def write_state(path: Path, state: Mapping[str, Any]) -> str:
    """Write tensors and numbers by name to one file, aside and renamed; return its sha256."""
    return write_tensors(path, *_split(state))


def pack(state: Mapping[str, Any], empty: Callable[[int, torch.dtype], Tensor]) -> Tensor:
    """Return what `write_state` would write, as a vector of bytes.

    Args:
        state: Tensors and numbers by name.
        empty: Returns a vector of that length and dtype to put it into.
    """
    pieces = list(_safetensors(*_split(state)))
    packed = empty(sum(memoryview(piece).nbytes for piece in pieces), torch.uint8)
    into, end = memoryview(packed.numpy().data), 0
    for piece in pieces:
        start, end = end, end + memoryview(piece).nbytes
        into[start:end] = memoryview(piece).cast("B")
    return packed


def unpack(content: bytes, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the tensors and numbers of a file that `write_state` wrote."""
    tensors = {name: tensor.to(device) for name, tensor in from_bytes(content).items()}
    return {**tensors, **numbers_of(content)}


def numbers_of(content: Buffer) -> dict[str, Any]:
    """Return the numbers alone."""
    header = json.loads(bytes(content[8 : 8 + int.from_bytes(content[:8], "little")]))
    numbers: dict[str, Any] = json.loads(header["__metadata__"]["numbers"])
    return numbers


def _split(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a state, and its numbers as metadata."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    numbers = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    return tensors, {"numbers": json.dumps(numbers, sort_keys=True)}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Write a safetensors file, aside and renamed; return its sha256.

    Tensors are written where they lie: the library's own writer would copy all of them first. Each is hashed while it
    is written, which takes about as long.
    """
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as beside:

        def hashed() -> Iterator[Buffer]:
            for piece in _safetensors(tensors, metadata):
                beside.submit(digest.update, piece)
                yield piece

        write_aside(path, hashed())
    return digest.hexdigest()


def _safetensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> Iterator[Buffer]:
    """Yield the pieces of a file in the safetensors format."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))  # so that each is aligned
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        header[name] = {
            "dtype": _DTYPES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    yield len(encoded).to_bytes(8, "little") + encoded
    for name in order:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_state(path: Path, sha256: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what `write_state` wrote.

    Raises:
        CheckpointError: the file is missing or is not the one with this sha256.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(f"{path}: torn or altered, its sha256 is not that in checkpoint.json")
    return unpack(content, device)


def commit(run: Path, round: int, server: str, silos: Mapping[int, str]) -> None:
    """Make a checkpoint of files that are all written, by `checkpoint.json`.

    Args:
        run: The run folder.
        round: Rounds done.
        server: The sha256 of the server's file.
        silos: The sha256 of each silo's file, for silos that have one.
    """
    body = {"version": VERSION, "round": round, "server": server, "silos": {str(k): silos[k] for k in sorted(silos)}}
    content = json.dumps({**body, "sha256": _digest(body)}, indent=1).encode() + b"\n"
    write_aside(round_folder(run, round) / "checkpoint.json", content)


def read(run: Path, round: int) -> tuple[dict[str, Any], dict[int, str]]:
    """Read the server's state and the sha256 of each silo's file from a checkpoint.

    Raises:
        CheckpointError: it is not whole.
    """
    path = round_folder(run, round) / "checkpoint.json"
    try:
        body = json.loads(path.read_bytes())
        sha256 = body.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise CheckpointError(f"{path}: missing or torn") from None
    if sha256 != _digest(body) or body.get("round") != round:
        raise CheckpointError(f"{path}: altered")
    if body.get("version") != VERSION:
        raise CheckpointError(f"{path}: version {body.get('version')}, this program reads {VERSION}")
    state = read_state(server_file(run, round), body["server"])
    return state, {int(silo): digest for silo, digest in body["silos"].items()}


def discard(run: Path, round: int) -> None:
    """Take a checkpoint away: first what makes it one, then the rest."""
    folder = round_folder(run, round)
    if folder.is_symlink():
        return folder.unlink()
    (folder / "checkpoint.json").unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def keep(run: Path, newest: int, upto: int) -> None:
    """Keep the newest checkpoints up to a round; take away older ones and what was left of any that was given up."""
    older = [round for round in rounds(run) if round <= upto]
    whole = [round for round in older if (round_folder(run, round) / "checkpoint.json").exists()]
    for round in set(older).difference(whole[:newest]):
        discard(run, round)


def write_model(path: Path, model: FlatModel) -> str:
    """Write the module's state by PyTorch's names, which `load_state_dict(load_file(path))` reads; return its sha256.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    try:
        return write_tensors(path, model.state_dict())
    except OSError as error:
        raise Unwritable(path, error) from None


def silos_of_latest(run: Path, upto: int) -> tuple[int, dict[int, str]]:
    """Return the round of the latest checkpoint up to one, 0 if there is none, and the sha256 of each silo's file."""
    for round in (one for one in rounds(run) if one <= upto):
        try:
            return round, read(run, round)[1]
        except CheckpointError:
            continue
    return 0, {}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
