"""What is read of what others wrote: how each kind of input is harmed, who reads it, and what error is documented."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
from pathlib import Path
from random import Random

import torch
from pydantic import ValidationError

from data_prep import cli as data_prep
from data_prep.checking import check
from data_prep.columns import check_columns
from fuzzing import artefacts, hdf5
from fuzzing.artefacts import make  # noqa: F401 - what `scripts/fuzz.py` asks for
from fuzzing.mutations import harmed_bytes, harmed_json, harmed_toml
from fuzzing.outcomes import Kind, Undocumented
from mpifl import checkpoint, cli
from mpifl.aggregation.plan import averages, fitting, headers_of, plan
from mpifl.codecs import QSGD, Cast, Codec, TopK
from mpifl.doctor.condition import Plan
from mpifl.errors import InputError, ShardError
from mpifl.files import sha256_of
from mpifl.job import read_job
from mpifl.messages import Report, Verdict
from mpifl.report import Output, compare_runs, evaluate_run, write_report
from mpifl.run import check_run, describe, latest_checkpoint, trim_metrics
from mpifl.shards import open_shard, read_federation, read_spec
from mpifl.vertical import is_vertical, open_vertical, read_vertical

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

JOBS = sorted((Path(__file__).parents[2] / "jobs").rglob("*.toml"))


def federation(draw: Random, valid: Path, folder: Path) -> Path:
    return _federation(draw, valid / draw.choice(artefacts.SHARDS), folder)


def _federation(draw: Random, source: Path, folder: Path) -> Path:
    made = Path(shutil.copytree(source, folder / "shards"))
    path = made / "federation.json"
    path.write_bytes(harmed_json(draw, path.read_bytes()))
    return made


def read_folder(folder: Path) -> None:
    if is_vertical(folder):
        spec = read_vertical(folder)
        for entry in spec.silos:
            open_vertical(folder, entry, spec.classes)
    else:
        federation = read_federation(folder)
        describe(federation)
        for one in (*federation.silos, *filter(None, (federation.test, federation.public))):
            open_shard(folder, one, federation)


def check_folder(folder: Path) -> None:
    read_spec(folder / "federation.json")
    check_columns(folder) if is_vertical(folder) else check(folder)


def shards(draw: Random, valid: Path, folder: Path) -> Path:
    """Harm one shard's structure, bytes or both; `federation.json` agrees with its bytes, and often with its rows."""
    made = Path(shutil.copytree(valid / draw.choice(artefacts.SHARDS), folder / "shards"))
    path = made / draw.choice(("silo_0000.h5", "silo_0000.h5", "silo_0001.h5"))
    how = draw.choice(("structure", "structure", "bytes", "both"))
    if how != "bytes":
        hdf5.harm(draw, path)
    if how != "structure":
        path.write_bytes(harmed_bytes(draw, path.read_bytes()))
    agree(made, path, rows=how == "structure" and draw.random() < 0.7)
    return made


def agree(folder: Path, path: Path, *, rows: bool) -> None:
    """Have `federation.json` tell a shard's bytes as they are, and its rows as the shard itself claims them."""
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
    path = run / draw.choice(("job.toml", "environment.json", "metrics.jsonl", "metrics.jsonl", "model.safetensors"))
    if draw.random() < 0.03:
        path.unlink()
        draw.choice((path.mkdir, lambda: path.symlink_to(path.name), lambda: None))()
    elif path.suffix == ".safetensors":
        path.write_bytes(_harmed_tensors(draw, path.read_bytes()))
    else:
        path.write_bytes(_harmed_text(draw, path))
    return run


def _harmed_text(draw: Random, path: Path) -> bytes:
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
    """Go on with a harmed run as the job that it was started with."""
    job = read_job(run.with_name("other") / "job.toml")
    check_run(run, job, True, True, read_federation(Path(job.shards)))
    trim_metrics(run, 1)


def compare(run: Path) -> None:
    compare_runs([run, run.with_name("other")], None, Output(None, run / "all.csv", run / "all.json"))


def jobs(draw: Random, valid: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    source = draw.choice((valid / "run" / "job.toml", *JOBS))
    path = folder / "job.toml"
    content = source.read_bytes()
    path.write_bytes(harmed_toml(draw, content, tomllib.loads(content.decode())))
    keys = ("local.lr", "rounds", "algorithm.name", "model.name", "local", "a.b.c", "", ".", "local..lr", "seed")
    values = (
        "1",
        "0.1",
        "nan",
        "[1",
        "'x'",
        "{a=1}",
        "1e400",
        "\0",
        "\ud800",
        "[" * 3000,
        "=",
        "true",
        "2020-01-01",
        "9" * 5000,
    )
    overrides = [f"{draw.choice(keys)}={draw.choice(values)}" for _ in range(draw.choice((0, 0, 0, 1, 2)))]
    return path, tuple(overrides)


def read_one_job(given: tuple[Path, tuple[str, ...]]) -> None:
    job = read_job(*given)
    job.idle(job.build_algorithm())
    job.model_dump_json()


def messages(draw: Random, valid: Path, folder: Path) -> tuple[type, bytes]:
    record = draw.choice([*artefacts.reports(), *artefacts.records(), Plan(spec="{}", folder="a", run="b")])
    return type(record), harmed_json(draw, record.encode())


def decode(given: tuple[type, bytes]) -> None:
    given[0].model_validate_json(given[1])


def reports(draw: Random, valid: Path, folder: Path) -> bytes:
    return harmed_json(draw, draw.choice(artefacts.reports()).encode())


def take_report(raw: bytes) -> None:
    """Have the server make of a rank's report what it makes of it, beside an honest one."""
    honest, came = artefacts.reports()[1], Report.model_validate_json(raw)
    taken = fitting({1: honest, 2: came})
    headers = headers_of(taken)
    pieces = plan(taken)
    averages([header for header in headers if header.fault is None])
    Verdict(serial=4, accepted=[header.silo for header in headers], ranks=[1, 2], pieces=pieces).encode()


CODECS: tuple[Codec, ...] = (
    *(Cast("float16"), Cast("bfloat16"), QSGD(), QSGD(2, 7, "l2"), QSGD(5, 1), QSGD(8, 10**9), QSGD(3, 512)),
    *(TopK(), TopK(1e-9), TopK(1.0), TopK(0.5), TopK(0.0001)),
)


def payloads(draw: Random, valid: Path, folder: Path) -> tuple[Codec, bytes, int]:
    codec = draw.choice(CODECS)
    length = draw.choice((0, 1, 2, 7, 20, 100, 513, 70_000)) or 1
    written = codec.encode(artefacts.vector(draw.randrange(9), length), torch.Generator().manual_seed(0))
    wrong = (length, length, length, length + 1, length - 1, 0, -1, 2 * length, 2**31, 2**40, 2**63 - 1, -(2**63))
    return (
        codec,
        harmed_bytes(draw, bytes(written.numpy())) if draw.random() < 0.8 else bytes(written.numpy()),
        draw.choice(wrong),
    )


def decode_payload(given: tuple[Codec, bytes, int]) -> None:
    codec, payload, length = given
    vector = codec.decode(
        torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8),
        length,
    )
    if vector.dtype != torch.float32 or tuple(vector.shape) != (length,):
        raise Undocumented(f"{type(codec).__name__}: {vector.dtype} {list(vector.shape)} for a length of {length}")


def commands(draw: Random, valid: Path, folder: Path) -> tuple[str, list[str]]:
    """Return a command that ends soon, on a harmed folder or file."""
    what = draw.choice(("check", "inspect", "import", "report", "compare", "evaluate", "submit", "sweep"))
    if what in ("check", "inspect"):
        where = _federation(draw, valid / draw.choice(artefacts.SHARDS), folder)
        return "data_prep", [what, str(where), *(["--features"] if what == "inspect" and draw.random() < 0.3 else [])]
    if what == "import":
        where = _federation(draw, valid / "plain", folder)
        more = ["--spec", str(where / "federation.json"), "--out", str(folder / "site"), "--silo", "0"]
        return "data_prep", ["import", "npz", "--data", str(valid / "own.npz"), *more]
    if what in ("report", "compare", "evaluate"):
        return "mpifl", [what, str(runs(draw, valid, folder))]
    path, overrides = jobs(draw, valid, folder)
    sets = [word for key in overrides or ("seed=1",) for word in ("--set", key)]
    return "mpifl", [what, str(path), "--dry-run", "--out", str(folder / "out"), *sets]


def run_command(given: tuple[str, list[str]]) -> None:
    """Run a command as its main function does; an exit code that tells of a traceback is one."""
    program, arguments = given
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")), contextlib.redirect_stderr(errors):
        code = _code(program, arguments)
    told = errors.getvalue()
    if "Traceback" in told or code not in (0, 1, 2) or (code == 1 and arguments[0] != "check"):
        raise Undocumented(f"{program} {arguments[0]}: exit code {code}: {told}")
    if code == 2 and (len(told) > 20_000 or any(ord(c) < 32 and c != "\n" for c in told)):
        raise Undocumented(f"{program} {arguments[0]}: not a line to read: {len(told)} characters: {told[:200]!r}")
    said.close()


def _code(program: str, arguments: list[str]) -> int:
    if program == "mpifl":
        before, sys.argv = sys.argv, ["mpifl", *arguments]
        try:
            return cli._run()
        finally:
            sys.argv = before
    try:
        data_prep.main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


READ = (InputError,)
KINDS: dict[str, Kind] = {
    "federation.json": Kind(federation, read_folder, (ShardError,)),
    "federation.json, check": Kind(federation, check_folder, (ShardError,)),
    "shards": Kind(shards, read_folder, (ShardError,)),
    "shards, check": Kind(shards, check_folder, (ShardError,)),
    "checkpoints": Kind(checkpoints, read_checkpoint, (checkpoint.CheckpointError,)),
    "checkpoints, the latest": Kind(checkpoints, fallback_checkpoint, (checkpoint.CheckpointError,)),
    "runs, report": Kind(runs, write_report, READ),
    "runs, compare": Kind(runs, compare, READ),
    "runs, evaluate": Kind(runs, evaluate_run, READ),
    "runs, resume": Kind(runs, resume, READ),
    "jobs": Kind(jobs, read_one_job, READ),
    "messages": Kind(messages, decode, (ValidationError,)),
    "reports": Kind(reports, take_report, (ValidationError,)),
    "codecs": Kind(payloads, decode_payload, (ValueError,)),
    "commands": Kind(commands, run_command, ()),
}
