"""Folders that others may have filled, with harm done to one of their files: shards, checkpoints, runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
from pathlib import Path
from random import Random

from rich.console import Console

from data_prep.check.checking import check
from data_prep.check.vertical_check import check_columns
from data_prep.inspect.column_page import column_page
from data_prep.inspect.columns_summary import summarise_columns
from fuzzing import artefacts, hdf5
from fuzzing.mutations import harmed_bytes, harmed_json, harmed_toml
from mpifl.common.files import sha256_of
from mpifl.data.shards.column_shards import open_vertical
from mpifl.data.shards.shards import open_shard, read_federation, read_spec
from mpifl.data.shards.vertical_spec import is_vertical, read_vertical
from mpifl.report.judging.evaluate import evaluate_silos
from mpifl.report.judging.predict import predict_run
from mpifl.report.observers import PLAIN
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs
from mpifl.report.terminal.following import Follower
from mpifl.report.terminal.frame import frame
from mpifl.run.folder import checkpoint
from mpifl.run.folder.metrics_file import trim_metrics
from mpifl.run.folder.run_folder import check_run, describe, latest_checkpoint
from mpifl.run.job.job import read_job

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def federation(draw: Random, valid: Path, folder: Path) -> Path:
    return harmed_federation(draw, valid / draw.choice(artefacts.SHARDS), folder)


def harmed_federation(draw: Random, source: Path, folder: Path) -> Path:
    made = Path(shutil.copytree(source, folder / "shards"))
    path = made / "federation.json"
    path.write_bytes(harmed_json(draw, path.read_bytes()))
    return made


def read_folder(folder: Path) -> None:
    if is_vertical(folder):
        spec = read_vertical(folder)
        for entry in spec.silos:
            open_vertical(folder, entry, spec)
    else:
        federation = read_federation(folder)
        describe(federation)
        for one in (*federation.silos, *filter(None, (federation.test, federation.public))):
            open_shard(folder, one, federation)


def check_folder(folder: Path) -> None:
    if is_vertical(folder):
        column_page(summarise_columns(folder))
        check_columns(folder)
    else:
        read_spec(folder / "federation.json")
        check(folder)


def shards(draw: Random, valid: Path, folder: Path, among: tuple[str, ...] = artefacts.SHARDS) -> Path:
    """Harm one shard's structure, bytes or both;
    `federation.json` agrees with its bytes, and often with its rows."""
    made = Path(shutil.copytree(valid / draw.choice(among), folder / "shards"))
    path = made / draw.choice(("silo_0000.h5", "silo_0000.h5", "silo_0001.h5"))
    how = draw.choice(("structure", "structure", "bytes", "both"))
    if how != "bytes":
        hdf5.harm(draw, path)
    if how != "structure":
        path.write_bytes(harmed_bytes(draw, path.read_bytes()))
    agree(made, path, rows=how == "structure" and draw.random() < 0.7)
    return made


def agree(folder: Path, path: Path, *, rows: bool) -> None:
    """Have `federation.json` tell a shard's bytes as they are,
    and its rows as the shard itself claims them."""
    said = json.loads((folder / "federation.json").read_bytes())
    entry = next(entry for entry in said["silos"] if entry["file"] == path.name)
    entry |= {"bytes": path.stat().st_size or 1, "sha256": sha256_of(path)}
    with contextlib.suppress(Exception):
        for split in entry["examples"] if rows else ():
            entry["examples"][split] = hdf5.rows_of(path, split)
    (folder / "federation.json").write_text(json.dumps(said))


def checkpoints(draw: Random, valid: Path, folder: Path) -> Path:
    """Harm one file of a checkpoint; the hashes agree with what is there, but for a few."""
    run = Path(shutil.copytree(valid / "run", folder / "run"))
    made = checkpoint.round_folder(run, 2)
    index = made / "checkpoint.json"
    which = draw.choice(("index", "server.safetensors", "server.safetensors", "silo_0000.safetensors"))
    if which != "index":
        path = made / which
        path.write_bytes(_harmed_tensors(draw, path.read_bytes()))
        said = json.loads(index.read_bytes())
        said |= {"server": sha256_of(made / "server.safetensors")}
        said["silos"]["0"] = sha256_of(made / "silo_0000.safetensors")
        index.write_text(json.dumps(said))
    else:
        index.write_bytes(harmed_json(draw, index.read_bytes()))
    if draw.random() < 0.95:
        _sign(index)
    return run


def _harmed_tensors(draw: Random, content: bytes) -> bytes:
    """Harm a safetensors file, or its header alone, whose length then mostly agrees."""
    if draw.random() < 0.3:
        return harmed_bytes(draw, content)
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    numbers = header.get("__metadata__", {}).get("numbers")
    if numbers and draw.random() < 0.4:  # JSON within JSON
        text = harmed_json(draw, numbers.encode()).decode("utf-8", "replace")
        header["__metadata__"]["numbers"] = text
        encoded = json.dumps(header).encode()
    else:
        encoded = harmed_json(draw, content[8:end])
    length = draw.choice((len(encoded), len(encoded), len(encoded), 2**63, len(encoded) + 1))
    return length.to_bytes(8, "little") + encoded + content[end:]


def _sign(index: Path) -> None:
    """Have a checkpoint.json's own digest agree with what it says."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError):
        body = json.loads(index.read_bytes())
        body.pop("sha256", None)
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        index.write_text(json.dumps({**body, "sha256": digest}))


def read_checkpoint(run: Path) -> None:
    _, silos = checkpoint.read(run, 2)
    for silo, sha256 in silos.items():
        checkpoint.read_state(checkpoint.silo_file(run, 2, silo), sha256)


def fallback_checkpoint(run: Path) -> None:
    latest_checkpoint(run)
    checkpoint.silos_of_latest(run, 10)
    checkpoint.keep(run, 1, 10)


def runs(draw: Random, valid: Path, folder: Path) -> Path:
    shutil.copytree(valid / "run", folder / "other")
    run = Path(shutil.copytree(valid / "run", folder / "run"))
    path = run / draw.choice(
        ("job.toml", "environment.json", "metrics.jsonl", "metrics.jsonl", "model.safetensors")
    )
    if draw.random() < 0.03:
        path.unlink()
        draw.choice((path.mkdir, lambda: path.symlink_to(path.name), lambda: None))()
    elif path.suffix == ".safetensors":
        path.write_bytes(_harmed_tensors(draw, path.read_bytes()))
    else:
        path.write_bytes(harmed_file(draw, path))
    return run


def harmed_file(draw: Random, path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".toml":
        return harmed_toml(draw, content, tomllib.loads(content.decode()))
    if path.suffix == ".json":
        return harmed_json(draw, content)
    lines = content.splitlines()
    at = draw.randrange(len(lines))
    lines[at] = harmed_json(draw, lines[at])
    return b"\n".join(lines)


def resume(run: Path) -> None:
    """Continue with a harmed run as the job that it was started with."""
    job = read_job(run.with_name("other") / "job.toml")
    check_run(run, job, True, True, read_federation(Path(job.shards)))
    trim_metrics(run, 1)


def compare(run: Path) -> None:
    output = Output(None, run / "all.csv", run / "all.json", run / "all.html")
    compare_runs([run, run.with_name("other")], None, output)


def watch(run: Path) -> None:
    look = Follower(run).look()
    Console(file=io.StringIO(), width=100, **PLAIN).print(frame(look, 100, 40))


def score_silos(run: Path) -> None:
    evaluate_silos(run, file=run / "scores.json", split="train")


def to_predict(draw: Random, valid: Path, folder: Path) -> tuple[Path, Path, Path]:
    """Return a run, shards of which one file is harmed, and where predictions go."""
    made = harmed_federation(draw, valid / "plain", folder) if draw.random() < 0.5 else None
    harmed = made or shards(draw, valid, folder, ("plain", "packed", "vertical"))
    return valid / "run", harmed, folder / f"a.{draw.choice(('csv', 'npz'))}"


def predict(given: tuple[Path, Path, Path]) -> None:
    predict_run(*given)
