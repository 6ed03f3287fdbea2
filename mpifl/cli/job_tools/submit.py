"""A training as a SLURM job: its batch script stops before the time is up, queues itself again, and goes
on."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mpifl.cli.job_tools.array_tasks import ArrayTask, tasks_left, told_to
from mpifl.cli.job_tools.beforehand import check_whole
from mpifl.cli.job_tools.cluster import ask, check_not_queued, check_room, partitions, seconds
from mpifl.common import InputError, write_atomic
from mpifl.run.job import Job

SECONDS_TO_SAVE, SECONDS_EARLY = 120, 60
"""The time before the end at which SLURM signals a job to save, and how much earlier it may signal."""

GOING_ON = r"""
# From here on the same in every job: stop before the time is up, queue again, go on.
latest() { ls "$run/checkpoints" 2>/dev/null | grep ^round_ | tail -n 1; }
before=$(latest)
ranks='' signalled=1 over=''
# the ranks end their round, write a checkpoint, and exit with 75
trap 'signalled=1; kill -USR1 "$ranks"' USR1
trap 'signalled=1; over=1' TERM                 # cancelled, or out of time
"${start[@]}" "${train[@]}" --resume &          # starts again where there is no checkpoint
ranks=$!
while [[ $signalled ]]; do
    signalled=
    wait "$ranks"
    code=$?
done
if [[ $code = 0 && ! $run/model.safetensors -nt $run/job.toml ]]; then
    # a launcher that lost a node may call that a success, with an old model
    code=1
fi
if [[ $code = [023] || $over ]]; then
    exit "$code"                                # done; or wrong, or too few silos: more time would not help
fi
if [[ $(latest) = "$before" ]]; then
    echo "exit code $code without a checkpoint more than before: not queued again"
    exit "$code"
fi
echo "exit code $code after $(latest): queued again"
scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""
"""The end of every batch script, also in `jobs/slurm`. The job continues after a signal, and after the
death of a rank or a node. It does not after a start without a new checkpoint: the next one would fail."""

FORCE = """[[ $SLURM_RESTART_COUNT ]] || train+=(--force)  # then the job is the run's own
"""


@dataclass(frozen=True)
class SlurmOptions:
    """The wishes for SLURM; None leaves a value to the number of silos, or to the site."""

    nodes: int = 1
    ranks: int | None = None
    gpus_per_node: int = 0
    cpus_per_task: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    launcher: str = "auto"
    elsewhere: bool = False
    """Whether the shards lie on compute nodes only."""
    sweep: bool = False
    """Whether keys have several values, and each run is a task of an array."""
    at_once: int | None = None
    """How many tasks of an array run at a time."""


def submit_job(
    job_file: Path,
    out: Path,
    overrides: tuple[str, ...],
    wishes: SlurmOptions,
    dry_run: bool,
    force: bool = False,
) -> None:
    """Write a job's batch script beside its run folder, submit it, and print SLURM's id; or print the script.

    Args:
        job_file: The job; relative paths start from the current folder, also in the batch job.
        out: The run folder, or that of a sweep's runs; script and log are `OUT.sbatch` and `OUT.log`.
        overrides: Keys of the job to change, such as `local.lr=0.05`; of a sweep with several values.
        wishes: Nodes, ranks and the like.
        dry_run: Only print the script.
        force: Let its first start go on even with a changed job.

    Raises:
        InputError: the job, its model, the shards or a wish is wrong, there is no SLURM here, or SLURM
            refuses.
    """
    if wishes.at_once is not None and not wishes.sweep:
        raise InputError(f"--at-once {wishes.at_once}: is for runs of a sweep; give --sweep, or leave it out")
    _check_time(wishes.time)
    tasks = tasks_left(job_file, overrides, out) if wishes.sweep else [ArrayTask(None, out, overrides)]
    checked = [check_whole(job_file, t.overrides, t.run, True, force, wishes.elsewhere) for t in tasks]
    for note in dict.fromkeys(note for found in checked for note in found.notes):
        print(note, file=sys.stderr)
    job, spec = checked[0].job, checked[0].spec
    _warn_without_gpus({found.job.device for found in checked}, wishes)
    ranks = _ranks(job, len(spec.silos) - (spec.layout == "vertical"), wishes)
    if job.tracking.console is True:  # the log is no terminal
        tasks = [replace(task, overrides=(*task.overrides, "tracking.console=always")) for task in tasks]
    train = [sys.executable, "-m", "mpifl", "train", str(job_file)]
    script = _script(job, out, tasks, train, ranks, wishes=wishes, more=FORCE if force else "")
    if dry_run:
        print(script, end="")
        return
    print(_submit(path := _beside(out, ".sbatch"), script))
    where = f"{ranks} ranks on {wishes.nodes} node{'s' if wishes.nodes > 1 else ''}"
    many = f"{len(tasks)} run{'s' * (len(tasks) > 1)} of " if wishes.sweep else ""
    log = _beside(out, ".TASK.log" if wishes.sweep else ".log")
    print(f"submitted: {many}{where}; script {path}, log {log}", file=sys.stderr)


def _warn_without_gpus(devices: set[str], wishes: SlurmOptions) -> None:
    given = wishes.gpus_per_node or any(key.startswith(("SBATCH_GPU", "SBATCH_GRES")) for key in os.environ)
    if not given and (wants := devices & {"cuda", "gpu"}):
        what = "no GPU is asked for, so that SLURM may give none; give --gpus-per-node"
        print(f"device = '{min(wants)}': {what}", file=sys.stderr)


def _ranks(job: Job, elsewhere: int, wishes: SlurmOptions) -> int:
    """Return the wished number of ranks; by default the server and one worker for each silo, up to what the
    nodes hold."""
    cpus = _cpus_per_task(job, wishes)
    if cpus < _threads(job):
        what = f"fewer than the job's threads = {job.threads}; give at least that"
        raise InputError(f"--cpus-per-task {cpus}: {what}")
    ranks = wishes.ranks
    if ranks is None and wishes.gpus_per_node:
        ranks = min(elsewhere, wishes.nodes * wishes.gpus_per_node) + 1
    elif ranks is None:
        smallest = min((held for one in partitions(wishes.partition) for held, _ in one.nodes), default=0)
        held = smallest // cpus * wishes.nodes
        ranks = (min(elsewhere, held - 1) if held else elsewhere) + 1
    if ranks < wishes.nodes:
        what = f"some would have none of {ranks} ranks; ask for {ranks} at most"
        raise InputError(f"--nodes {wishes.nodes}: {what}")
    tasks, gpus = -(-ranks // wishes.nodes), wishes.gpus_per_node
    check_room(wishes.partition, wishes.nodes, tasks, cpus, gpus, time=wishes.time)
    return ranks


def _threads(job: Job) -> int:
    return 1 if job.threads == "auto" else job.threads


def _cpus_per_task(job: Job, wishes: SlurmOptions) -> int:
    return wishes.cpus_per_task or _threads(job)


def _check_time(time: str | None) -> None:
    """Check that a job is not signalled as soon as it starts."""
    if time and "SBATCH_SIGNAL" not in os.environ and seconds(time) <= SECONDS_TO_SAVE + SECONDS_EARLY:
        what = f"SLURM signals a job up to {SECONDS_TO_SAVE + SECONDS_EARLY} s before its end, to save"
        raise InputError(f"--time {time}: {what}; give more, such as 10 (minutes)")


def _script(
    job: Job,
    out: Path,
    tasks: Sequence[ArrayTask],
    train: list[str],
    ranks: int,
    *,
    wishes: SlurmOptions,
    more: str,
) -> str:
    cpus, numbers = _cpus_per_task(job, wishes), [task.number for task in tasks if task.number is not None]
    log = str(_beside(out, "")).replace("%", "%%")
    array = ",".join(map(str, numbers)) + (f"%{wishes.at_once}" if wishes.at_once else "")
    asked = {
        "job-name": job.name,
        "array": array or None,
        "partition": wishes.partition,
        "account": wishes.account,
        "nodes": wishes.nodes,
        "ntasks-per-node": -(-ranks // wishes.nodes),
        "cpus-per-task": cpus,
        "gpus-per-node": wishes.gpus_per_node or None,
        "time": wishes.time,
        "chdir": Path.cwd(),
        "output": f"{log}.%a.log" if numbers else f"{log}.log",
        "open-mode": "append",
        "signal": f"B:USR1@{SECONDS_TO_SAVE}",
    }
    lines = [f"#SBATCH --{key}={_quoted(value)}" for key, value in asked.items() if value is not None]
    return f"""#!/bin/bash
{chr(10).join(lines)}
#SBATCH --requeue

# The environment of `mpifl submit` comes along; what else the ranks need, such as modules, goes here.
{told_to(tasks, train)}{more}# srun would warn where the ranks are no multiple of the nodes
unset SLURM_NTASKS_PER_NODE
start=({shlex.join(_launcher(wishes, ranks, cpus))})
{GOING_ON}"""


def _quoted(value: object) -> str:
    """Return a value in quotes for sbatch, which reads only double quotes and one line."""
    text = str(value)
    if any(character in text for character in '"\n\\'):
        raise InputError(
            f"{text!r}: sbatch cannot read this from a script; leave out quotes, backslashes, new lines"
        )
    return f'"{text}"' if any(character in text for character in " \t#'") else text


def _launcher(wishes: SlurmOptions, ranks: int, cpus: int) -> list[str]:
    """Return the command that starts the ranks: srun if it can start this MPI's ranks, otherwise this MPI's
    mpirun.

    Ranks are placed on the nodes by round robin. So nodes get equal numbers of workers, and the first node
    also gets the server.
    """
    if wishes.launcher not in ("auto", "srun", "mpirun"):
        raise InputError(f"--launcher {wishes.launcher}: give auto, srun or mpirun")
    own = Path(sys.prefix) / "bin" / "mpirun"
    mpirun = str(own) if own.exists() else shutil.which("mpirun")
    about = ask(mpirun, "--version") if mpirun else ""
    is_open = "Open MPI" in about or "OpenRTE" in about
    by_srun = ["srun", "--mpi=pmix", f"--ntasks={ranks}", f"--cpus-per-task={cpus}", "--distribution=cyclic"]
    if wishes.launcher == "srun" or (
        wishes.launcher == "auto" and (is_open or not mpirun) and "pmix" in ask("srun", "--mpi=list")
    ):
        return by_srun
    if not mpirun:
        raise InputError(
            "--launcher: there is no mpirun on the PATH; load your site's MPI, or try --launcher srun"
        )
    if is_open:
        return [mpirun, "-n", str(ranks), "--map-by", "node", "--bind-to", "none"]
    hydra = _hydra_of_intel(mpirun) if "Intel(R) MPI" in about else [mpirun]
    return [*hydra, "-n", str(ranks), "-ppn", str(-(-ranks // wishes.nodes))]


def _hydra_of_intel(mpirun: str) -> list[str]:
    """Return the command that Intel's mpirun runs in a SLURM job.

    That mpirun is a script, which the signal before the end kills, while the ranks train on.
    """
    beside = Path(mpirun).with_name("mpiexec.hydra")
    hydra = str(beside) if beside.exists() else shutil.which("mpiexec.hydra")
    if not hydra:
        found = f"{mpirun} is Intel's, a script that hands no signal on"
        raise InputError(f"--launcher: {found}; put its mpiexec.hydra on the PATH, or try --launcher srun")
    return ["env", "I_MPI_HYDRA_BOOTSTRAP=slurm", hydra]


def _submit(path: Path, script: str) -> str:
    """Write a script and give it to sbatch; return the job's number."""
    if not shutil.which("sbatch"):
        raise InputError(
            "sbatch: not on the PATH; submit on a login node of a SLURM cluster, or look with --dry-run"
        )
    check_not_queued(path)
    before = path.read_bytes() if path.exists() else None
    _write(path, script.encode())
    asked = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True)
    if asked.returncode:
        said = [line.strip() for line in asked.stderr.splitlines() if line.strip()]
        why = "; ".join(said) or f"sbatch says nothing, exit code {asked.returncode}"
        path.unlink() if before is None else _write(path, before)
        raise InputError(f"{path.with_suffix('')}: refused: {why}")
    return asked.stdout.strip().partition(";")[0]  # "12;cluster" if there are several clusters


def _write(path: Path, script: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, script)
    except OSError as error:
        what = f"cannot be written ({error.strerror}); name another run folder by --out"
        raise InputError(f"{path}: {what}") from None


def _beside(out: Path, ending: str) -> Path:
    """Return a file beside a run folder, with the folder's name and another ending; also for `.` and `..`."""
    out = out.resolve() if out.name in ("", "..") else out
    return out.with_name(f"{out.name}{ending}")
