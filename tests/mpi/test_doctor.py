"""The doctor between real ranks: well on any number of them, and never waiting for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from conftest import ranks

from mpifl.cli.doctor.condition import Condition
from mpifl.cli.plan.planned_job import planned

ABSENT = """
import os, sys, time
from mpifl.cli import main
from mpifl.wire.launching import world

names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
rank = next(os.environ[name] for name in names if name in os.environ)
if rank == sys.argv.pop(1):
    world()
    time.sleep(600)
main()
"""


ALTERED = """
import os
from mpifl.cli import main
from mpifl.wire import Transport

whole = Transport.broadcast_vector

def altered(self, *given):
    vector = whole(self, *given)
    if self.rank == 1 and len(vector) == 65:
        vector = vector.clone()
        vector[64] += 1
    return vector

Transport.broadcast_vector = altered
main()
"""


STUCK = """
import time
from mpifl.cli import main
from mpifl.cli.doctor import examination

examination._plan = lambda *given: time.sleep(600)
main()
"""


def found(file: Path) -> dict[str, list[tuple[str, str]]]:
    """The (state, text) of all findings by what was looked at."""
    findings = json.loads(file.read_text())["findings"]
    whats = {finding["what"] for finding in findings}
    return {what: [(f["state"], f["found"]) for f in findings if f["what"] == what] for what in whats}


@pytest.mark.parametrize(
    ("n", "per_node"),
    [(1, ""), (3, "2"), *(pytest.param(n, "2" * (n > 3), marks=pytest.mark.slow) for n in (3, 5))],
)
def test_any_number_of_ranks_is_well(
    n: int, per_node: str, digits: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    site.chmod(0o700)
    (site / "key").write_bytes(bytes(32))
    (site / "key").chmod(0o600)
    more = {"MPIFL_SITE": str(site), **({"MPIFL_RANKS_PER_NODE": per_node} if per_node else {})}
    file, run = tmp_path / "found.json", tmp_path / "run"
    done = ranks(
        n, "-m", "mpifl", "doctor", digits / "many", "--out", run, "--json", file, timeout=180, **more
    )
    assert done.returncode == 0, done.stdout + done.stderr
    states = {what: {state for state, _ in all_} for what, all_ in found(file).items()}
    assert all(
        states[what] == {"ok"} for what in ("MPI library", "shards", "run folder", "transport", "signals")
    )
    assert not any("bad" in state for state in states.values())
    told = [Condition.model_validate_json(json.dumps(rank)) for rank in json.loads(file.read_text())["ranks"]]
    assert [condition.rank for condition in told] == list(range(n))
    assert [condition.node for condition in told] == [
        rank // 2 if per_node and n > 1 else 0 for rank in range(n)
    ]
    # every worker opens the public examples; the server those and its test set
    silos, others = 7, n if n > 1 else 1
    assert sum(condition.shards.count for condition in told) == silos + others + 1
    assert found(file)["site folder"][0][0] == "ok"
    workers = f"1-{n - 1}"
    one_site = [("note", f"ranks {workers} share {site}: they are one site")] if n > 2 else []
    assert found(file)["site folder"][1:] == one_site
    assert ("same user" in states) == (n > 1)
    assert [path.name for path in site.iterdir()] == ["key"]
    assert not run.exists()
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_a_worker_that_never_answers_is_named_in_time(tmp_path: Path) -> None:
    (tmp_path / "absent.py").write_text(ABSENT)
    began = time.monotonic()
    words = [tmp_path / "absent.py", "2", "doctor", "--timeout", "6", "--json", tmp_path / "found.json"]
    done = ranks(3, *words, timeout=180)
    assert time.monotonic() - began < 45
    assert done.returncode != 0
    ((state, said),) = found(tmp_path / "found.json")["time"]
    assert state == "bad"
    assert said == "not done in 6 s, at: looking at each rank; nothing was heard of ranks 2"
    assert "at: looking at each rank" in done.stdout


def test_a_rank_that_receives_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "altered.py").write_text(ALTERED)
    done = ranks(2, tmp_path / "altered.py", "doctor", "--json", tmp_path / "found.json", timeout=180)
    assert done.returncode == 1
    said = [text for state, text in found(tmp_path / "found.json")["transport"] if state == "bad"]
    dtypes = ("float32", "float64", "int64", "uint8")
    assert said == [f"rank 1, vectors: 65 elements of torch.{dtype} arrived altered" for dtype in dtypes]


@pytest.mark.slow
def test_a_server_that_never_answers_ends_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    done = ranks(3, tmp_path / "stuck.py", "doctor", "--timeout", "6", timeout=180)
    assert done.returncode != 0
    assert "not done in 6 s, at: telling all ranks what to look at" in done.stdout


def test_ranks_starts_its_own_and_brings_their_exit_code(digits: Path, tmp_path: Path) -> None:
    words = ["-m", "mpifl", "doctor", digits / "few", "--out", "/proc/nowhere", "--ranks", "2"]
    done = ranks(1, *words, "--json", tmp_path / "found.json", timeout=180)
    assert done.returncode == 1
    assert found(tmp_path / "found.json")["run folder"][0][0] == "bad"
    assert "on ranks 0-1" in done.stdout


def test_ranks_that_are_alone_by_mistake_are_told_so(tmp_path: Path) -> None:
    done = ranks(1, "-m", "mpifl", "doctor", timeout=180, SLURM_STEP_NUM_TASKS="3")
    assert done.returncode == 1
    assert "promised 3 ranks, but this one is alone" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr


def test_a_library_that_is_not_there_is_found_and_named(tmp_path: Path) -> None:
    done = ranks(1, "-m", "mpifl", "doctor", timeout=180, MPI4PY_LIBMPI=str(tmp_path / "libmpi.so"))
    assert done.returncode == 1
    assert f"MPI4PY_LIBMPI={tmp_path}/libmpi.so: no such MPI library; name" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr


COMPILED = """
name = "compiled"
shards = "{shards}"
rounds = 9

[model]
name = "logreg"

[algorithm]
name = "scaffold"

[local]
compile = true
epochs = 3
batch_size = {size}

[cohort]
fraction = 0.1

[evaluate]
target = 0.5
"""


def doctor_compiles(n: int, folder: Path, digits: Path, size: str) -> tuple[str, str]:
    """Have the doctor compile a job; return what it said on stdout and on stderr."""
    job = folder / "job.toml"
    job.write_text(COMPILED.format(shards=digits / "digits", size=size))
    done = ranks(
        n, "-m", "mpifl", "doctor", "--compile", job, cwd=folder, XDG_CACHE_HOME=str(folder / "cache")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_where_no_step_can_be_compiled_the_doctor_says_why_and_leaves_nothing(
    tmp_path: Path, digits: Path
) -> None:
    out, err = doctor_compiles(3, tmp_path, digits, '"full"')
    assert "[local] compile = true: batch_size = 'full' gives each silo another shape" in err
    assert "each silo took a step" in out
    assert {path.name for path in tmp_path.iterdir()} == {"job.toml", "cache"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "--compile: name the job whose steps are to be compiled"),
        (["job.toml", "--json", "found.json"], "--compile: takes a job alone; leave --out and --json out"),
        (["none.toml"], "none.toml: cannot be read"),
        (["job.toml"], "job.toml: [local] compile = false: no step is compiled; use compile = true"),
    ],
)
def test_what_the_doctor_cannot_compile_is_one_line(tmp_path: Path, words: list[str], why: str) -> None:
    text = COMPILED.format(shards="shards", size=10)
    (tmp_path / "job.toml").write_text(text.replace("compile = true", ""))
    done = ranks(1, "-m", "mpifl", "doctor", "--compile", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {why}")
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


MEASURED = """
name = "measured"
shards = "{shards}"
rounds = 40

[model]
name = "logreg"

[algorithm]
name = "scaffold"

[local]
batch_size = 50

[checkpoint]
every = 10
"""


def test_the_doctor_measures_a_job_and_a_plan_goes_by_it(tmp_path: Path, digits: Path) -> None:
    job, profile = tmp_path / "job.toml", tmp_path / "profile.toml"
    job.write_text(MEASURED.format(shards=digits / "digits"))
    done = ranks(3, "-m", "mpifl", "doctor", job, "--profile", profile, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{profile}: 3 ranks on 1 node are measured\n"
    assert {path.name for path in tmp_path.iterdir()} == {"job.toml", "profile.toml"}
    found = planned(job, profile=profile, ranks=3)["forecast"]
    assert len(found["round_seconds"]) == 40
    assert all(seconds > 0 for seconds in (*found["round_seconds"], *found["of_it"].values()))
    each = 50 << 20, 2 << 30  # what a process with torch has
    assert each[0] < min(found["server_bytes"], found["worker_bytes"]) < each[1]
    assert found["node_bytes"] > found["server_bytes"] + found["worker_bytes"]
    refused = ranks(1, "-m", "mpifl", "doctor", job, "--profile", profile, "--json", "x", cwd=tmp_path)
    assert refused.stderr == "error: --profile: takes a job alone; leave --out and --json out\n"


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3])
def test_a_training_loads_what_the_doctor_has_compiled(tmp_path: Path, digits: Path, n: int) -> None:
    _, err = doctor_compiles(n, tmp_path, digits, "10")
    assert err.count("compiling the local step") == 1
    kept = list(tmp_path.glob("cache/mpifl/*.pt2"))
    words = ["train", "job.toml", "--set", "rounds=2", "--out", "run"]
    done = ranks(n, "-m", "mpifl", *words, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert "compil" not in done.stderr
    assert list(tmp_path.glob("cache/mpifl/*.pt2")) == kept
    assert not list(tmp_path.glob(".trial-*"))
