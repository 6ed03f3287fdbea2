"""Trainings as jobs of a real SLURM: signals, time limits, lost nodes,
cancellations, and the same bits after them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys

import pytest
from conftest import ROOT
from slurm.conftest import ROUNDS, Slurm

LONG = (
    "--set",
    f"rounds={ROUNDS}",
    "--set",
    "checkpoint.every=20",
    "--set",
    "evaluate.every=50",
    "--time",
    "10",
)
LONG += ("--ranks", "3")


def longer(*values: str) -> object:
    """Parameters of the long form only."""
    return pytest.param(*values, marks=pytest.mark.slow)


def hosts(slurm: Slurm, run: str) -> set[str]:
    about = json.loads((slurm.yard / run / "environment.json").read_text())
    return {rank["host"] for rank in about["ranks"].values()}


@pytest.mark.parametrize("launcher", ["srun", longer("mpirun")])
def test_a_signal_saves_and_the_job_goes_on_by_itself_to_the_same_bits(
    slurm: Slurm, alone: dict[int, str], launcher: str
) -> None:
    run = f"runs/signalled-{launcher}"
    job = slurm.submit(run, *LONG, "--launcher", launcher)
    slurm.until_round(run, 30)
    for _ in range(2):
        slurm.call("scancel", "--signal=USR1", "--batch", job)
    slurm.until_started_again(job)
    stopped = max((slurm.yard / run / "checkpoints").iterdir()).name
    assert f"after {stopped}: queued again" in (slurm.yard / f"{run}.log").read_text(errors="replace")
    slurm.completes(job)
    assert hosts(slurm, run) == {"n1", "n2"}
    about = json.loads((slurm.yard / run / "environment.json").read_text())
    assert f"round_{about['resumed_after_round']:06d}" == stopped
    assert slurm.model(run) == alone[ROUNDS]


@pytest.mark.slow
def test_the_first_signal_alone_ends_with_75(slurm: Slurm) -> None:
    run = "runs/once"
    job = slurm.submit(run, *LONG)
    slurm.until_round(run, 5)
    slurm.call("scancel", "--signal=USR1", "--batch", job)
    slurm.until_started_again(job)
    slurm.call("scancel", job)
    assert "exit code 75 after round_" in (slurm.yard / f"{run}.log").read_text(errors="replace")


@pytest.mark.slow
def test_the_time_limit_sends_the_signal_in_time(slurm: Slurm) -> None:
    run = "runs/limited"
    environment = {"SBATCH_TIMELIMIT": "1", "SBATCH_SIGNAL": "B:USR1@10"}
    job = slurm.submit(run, "--set", "rounds=1000000", "--set", "evaluate.every=1000", **environment)
    slurm.until_started_again(job, 150)
    log = slurm.yard / f"{run}.log"
    assert "exit code 75 after round_" in log.read_text(errors="replace")
    before = log.read_text(errors="replace").count("\nround ")
    slurm.until(
        lambda: log.read_text(errors="replace").count("\nround ") > before, "a round after the second start"
    )
    slurm.call("scancel", job)


@pytest.mark.parametrize(("launcher", "node"), [longer("srun", "n2"), ("mpirun", "n2"), longer("srun", "n1")])
def test_a_lost_node_costs_the_rounds_since_the_last_checkpoint(
    slurm: Slurm, alone: dict[int, str], launcher: str, node: str
) -> None:
    run = f"runs/lost-{launcher}-{node}"
    job = slurm.submit(run, *LONG, "--launcher", launcher)
    slurm.until_round(run, 45)
    slurm.testbed("kill-node", node)
    try:
        slurm.until_started_again(job)
        slurm.completes(job)
    finally:
        slurm.testbed("start-node", node)
    assert not slurm.processes(run)
    about = json.loads((slurm.yard / run / "environment.json").read_text())
    assert about["resumed_after_round"] >= 40
    assert slurm.model(run) == alone[ROUNDS]


@pytest.mark.parametrize("launcher", [longer("srun"), "mpirun"])
def test_a_cancelled_job_leaves_no_process_and_a_run_that_goes_on(
    slurm: Slurm, alone: dict[int, str], launcher: str
) -> None:
    run = f"runs/cancelled-{launcher}"
    job = slurm.submit(run, *LONG, "--launcher", launcher)
    slurm.until_round(run, 25)
    slurm.call("scancel", job)
    assert slurm.until_ended(job) == "CANCELLED"
    slurm.until(lambda: not slurm.processes(run), "its processes to end")
    assert slurm.field(job, "Restarts") == "0"
    slurm.completes(slurm.submit(run, *LONG, "--launcher", launcher))
    about = json.loads((slurm.yard / run / "environment.json").read_text())
    assert about["resumed_after_round"] >= 20
    assert slurm.model(run) == alone[ROUNDS]


@pytest.mark.slow
def test_what_more_time_cannot_help_is_not_queued_again(slurm: Slurm) -> None:
    job = slurm.submit("runs/wrong", "--ranks", "3")
    slurm.completes(job)
    (slurm.yard / "runs/wrong/job.toml").write_text("no = 'job'\n")
    again = slurm.call("sbatch", "--parsable", "runs/wrong.sbatch")
    assert slurm.until_ended(again) == "FAILED"
    assert (slurm.field(again, "ExitCode"), slurm.field(again, "Restarts")) == ("2:0", "0")


@pytest.mark.slow
def test_a_start_that_brings_no_checkpoint_is_not_queued_again(slurm: Slurm) -> None:
    job = slurm.submit("runs/hasty", "--set", "rounds=1000000", "--set", "checkpoint.every=1000000")
    slurm.until_round("runs/hasty", 3)
    for process in slurm.processes("runs/hasty"):
        pid, _, words = process.partition(": ")
        if words.startswith(sys.executable):
            os.kill(int(pid), 9)
    assert slurm.until_ended(job) == "FAILED"
    assert slurm.field(job, "Restarts") == "0"
    assert (
        "without a checkpoint more than before: not queued again"
        in (slurm.yard / "runs/hasty.log").read_text()
    )


@pytest.mark.slow
def test_a_job_that_slurm_queues_again_and_again_for_nothing_ends_by_itself(slurm: Slurm) -> None:
    run = "runs/again"
    job = slurm.submit(run, "--set", "rounds=1000000", "--set", "checkpoint.every=1000000")
    starts = slurm.yard / "runs/.again.starts"
    for times in range(1, 6):
        slurm.until(lambda n=times: starts.exists() and starts.read_text().count("\n") == n, f"start {times}")
        slurm.call("scontrol", "requeue", job)
        slurm.until_started_again(job, times=times)
    assert slurm.until_ended(job) == "FAILED"
    said = "5 starts without a checkpoint more than none: not started again"
    assert said in (slurm.yard / f"{run}.log").read_text(errors="replace")


@pytest.mark.parametrize("name", [longer("cpu"), longer("gpu")])
def test_the_script_runs_as_it_is(slurm: Slurm, alone: dict[int, str], name: str) -> None:
    job = slurm.call("sbatch", "--parsable", f"jobs/slurm/{name}.sbatch")
    slurm.completes(job)
    assert hosts(slurm, "runs/demo") == {"n1", "n2"}
    assert slurm.model("runs/demo") == alone[30]
    (slurm.yard / "runs/demo").rename(slurm.yard / f"runs/{name}")


@pytest.mark.slow
def test_a_heterogeneous_job_has_its_server_elsewhere_and_goes_on_too(
    slurm: Slurm, alone: dict[int, str]
) -> None:
    job = slurm.call("sbatch", "--parsable", "jobs/slurm/hetjob.sbatch")
    slurm.until_round("runs/demo", 3)
    assert hosts(slurm, "runs/demo") == {"n2", "n3"} | ({"n1"} & hosts(slurm, "runs/demo"))
    slurm.call("scancel", "--signal=USR1", "--batch", job)
    slurm.until_started_again(job)
    slurm.completes(job)
    assert slurm.model("runs/demo") == alone[30]
    (slurm.yard / "runs/demo").rename(slurm.yard / "runs/hetjob")


def test_an_array_sweeps(slurm: Slurm, alone: dict[int, str]) -> None:
    job = slurm.call("sbatch", "--parsable", "jobs/slurm/array.sbatch")
    sweep = slurm.yard / "runs" / "sweep"
    slurm.until(lambda: len([*sweep.glob("*/model.safetensors")]) == 4, "four models", 240)
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job), "the array's end")
    assert slurm.model("runs/sweep/lr0.1") == alone[30]
    assert len({slurm.model(f"runs/sweep/{run.name}") for run in sweep.iterdir()}) == 4
    runs = sorted(f"runs/sweep/{run.name}" for run in sweep.iterdir())
    table = slurm.call(sys.executable, "-m", "mpifl", "compare", *runs, COLUMNS="200")
    assert all(f"lr{rate}" in table for rate in ("0.03", "0.1", "0.3", "1.0"))


def test_a_grid_is_submitted_as_an_array(slurm: Slurm, alone: dict[int, str]) -> None:
    grid = ("--sweep", "--at-once", "1", "--ranks", "3", "--set", "local.lr=0.1,0.3")
    job = slurm.submit("runs/grid", *grid)
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job), "the array's end", 240)
    models = {
        run.name: slurm.model(f"runs/grid/{run.name}") for run in (slurm.yard / "runs/grid").glob("local*")
    }
    assert models.keys() == {"local.lr=0.1", "local.lr=0.3"}
    assert models["local.lr=0.1"] == alone[30] != models["local.lr=0.3"]
    assert "all 2 runs are done" in slurm.submit("runs/grid", *grid, code=2)


def test_the_example_of_a_sweep_runs_and_has_nothing_left_to_do(slurm: Slurm) -> None:
    folder = slurm.yard / "slurm-sweep"
    shutil.copytree(ROOT / "docs" / "examples" / "slurm-sweep", folder)
    (folder / ".venv").symlink_to(slurm.yard / ".venv")
    said = slurm.call("bash", folder / "run.sh", "--set", "rounds=2", COLUMNS="200", seconds=240)
    assert [line.split("\t")[1] for line in said.splitlines() if line.count("\t") == 2] == ["done"] * 6
    assert all(f"local.lr={rate},seed=2" in said for rate in ("0.03", "0.1", "0.3"))


REFUSED = "runs/refused: refused:"


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--nodes", "4"], "--nodes 4: partition main has 3 nodes of 4 CPUs and 2 GPUs; ask for what is "),
        (["--nodes", "1", "--ranks", "40"], "1 node with 40 ranks of 1 CPU each: partition main has 3 nodes"),
        (["--gpus-per-node", "3"], "--gpus-per-node 3: partition main has 3 nodes of 4 CPUs and 2 GPUs; ask"),
        (["--time", "2"], "--time 2: SLURM signals a job up to 180 s before its end, to save; give more, "),
        (["--partition", "nosuch"], f"{REFUSED} invalid partition specified: nosuch.*; the partitions are "),
        (["--mem", "99G"], f"{REFUSED} .*Requested node configuration is not available"),
        (["--mem", "much"], "--mem much: sbatch takes a whole number with K, M, G or T"),
        (["--constraint", "icelake"], f"{REFUSED} .*Invalid feature specification"),
        (["--gres", "fpga:1"], f"{REFUSED} Invalid generic resource"),
        (["--mail-type", "NEVER"], f"{REFUSED} Invalid --mail-type specification"),
        (["--dependency", "then"], f"{REFUSED} .*Job dependency problem"),
        (["--", "--reservation=mine"], f"{REFUSED} .*Requested reservation is invalid"),
        (["--", "--nosuch"], f"{REFUSED} sbatch: unrecognized option '--nosuch'"),
    ],
)
def test_what_slurm_would_keep_for_ever_or_refuses_is_one_line(
    slurm: Slurm, more: list[str], line: str
) -> None:
    said = slurm.submit("runs/refused", *more, code=2)
    assert re.match(f"error: {line}", said)
    assert len(said.splitlines()) == 1
    assert not (slurm.yard / "runs/refused.sbatch").exists()
    assert re.match(f"error: {line}", slurm.submit("runs/refused", "--dry-run", *more, code=2))


def test_slurm_is_asked_for_what_is_wished_and_an_edited_script_is_kept(slurm: Slurm) -> None:
    run, given = "runs/wished", ("--ranks", "3", "--set", "rounds=1", "--time", "1-0")
    first = slurm.submit(run, *given, "--dependency", "singleton", "--", "--begin=now+1hour")
    slurm.call("scancel", first)
    script = slurm.yard / f"{run}.sbatch"
    edited = script.read_text().replace("\nunset ", "\nmodule() { :; }\nunset ")
    script.write_text(edited)
    asked = ("--mem", "300M", "--qos", "normal", "--exclusive", "--mail-type", "END,FAIL")
    job = slurm.submit(run, *given, *asked, "--gres", "gpu:1", "--", "--comment=a b", "--begin=now+1hour")
    (kept,) = slurm.yard.glob("runs/wished.edited-*.sbatch")
    assert kept.read_text() == edited
    assert "300M" in script.read_text()
    names = ("MinMemoryNode", "OverSubscribe", "Comment", "TresPerNode")
    assert [slurm.field(job, name) for name in names] == ["300M", "NO", "a", "gres:gpu:1"]
    slurm.call("scancel", job)


def test_a_run_whose_job_waits_is_not_submitted_again(slurm: Slurm) -> None:
    given = ("--sweep", "--ranks", "3", "--set")
    later = ("--", "--begin=now+1hour")  # on a busy machine it would end before the next command begins
    job = slurm.submit("runs/waits", *given, "seed=1,2", "--time", "1-0", *later)
    script = (slurm.yard / "runs/waits.sbatch").read_bytes()
    said = slurm.submit("runs/waits", *given, "seed=3,4", code=2)
    queued = rf"error: runs/waits\.sbatch: array job {job} of it has 2 tasks PENDING; let it end, or "
    assert re.match(queued, said)
    assert (slurm.yard / "runs/waits.sbatch").read_bytes() == script
    slurm.call("scancel", job)
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job), "the array's end")


@pytest.mark.parametrize(
    ("more", "ranks", "tasks"),
    [
        (["--nodes", "1"], 4, 4),
        (["--nodes", "2"], 5, 3),
        (["--nodes", "2", "--cpus-per-task", "2"], 4, 2),
        (["--nodes", "2", "--gpus-per-node", "1"], 3, 2),
        (["--nodes", "3", "--gpus-per-node", "2"], 5, 2),
    ],
)
def test_ranks_fill_the_nodes_and_no_more(slurm: Slurm, more: list[str], ranks: int, tasks: int) -> None:
    script = slurm.submit("runs/unseen", *more, "--dry-run")
    assert f"--ntasks={ranks} " in script
    assert f"#SBATCH --ntasks-per-node={tasks}\n" in script
