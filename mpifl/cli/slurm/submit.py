"""A training as a SLURM job: its batch script stops before the time is up, queues itself again, and goes
on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mpifl.cli.job_tools import check_whole
from mpifl.cli.slurm.array_tasks import ArrayTask, check_not_done, tasks_left, told_to
from mpifl.cli.slurm.batch_script import (
    FORCE,
    GOING_ON,
    SECONDS_EARLY,
    SECONDS_TO_SAVE,
    beside,
    directives,
    marked,
)
from mpifl.cli.slurm.cluster import ask, check_not_queued, check_room, is_time, partitions, seconds
from mpifl.cli.slurm.giving_scripts import look_through, submit_script
from mpifl.common import InputError, count_of
from mpifl.common.machine import runnable
from mpifl.run.job import Job
from mpifl.wire.launching import chosen_launcher


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
    settings: tuple[str, ...] = ()
    """Keys of a sweep whose values go together, as `mpifl sweep --setting` takes them."""
    sbatch: Mapping[str, str | bool | None] = field(default_factory=dict)
    """Further options of sbatch that have a name here, with their values; True for one without a value."""
    words: tuple[str, ...] = ()
    """Options of sbatch that have none: `--KEY=VALUE` or `--KEY`."""

    @property
    def gpus(self) -> int:
        """GPUs of each node, by either option."""
        asked = [one.split(":") for one in str(self.sbatch.get("gres") or "").split(",")]
        by_gres = sum(int(one[-1]) if one[-1].isdigit() else 1 for one in asked if one[0] == "gpu")
        return self.gpus_per_node or by_gres


MEMORY = re.compile(r"\d+[KMGT]?B?", re.IGNORECASE)


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
    check_time(wishes.time)
    check_memory(wishes.sbatch.get("mem"))
    path = beside(out, ".sbatch")
    if not dry_run:
        check_not_queued(path)  # before the run folders, which its tasks hold
    tasks = _tasks(job_file, overrides, out, wishes)
    checked = [check_whole(job_file, t.overrides, t.run, True, force, wishes.elsewhere) for t in tasks]
    for note in dict.fromkeys(note for one in checked for note in (*one.notes, *one.at_start)):
        print(note, file=sys.stderr)
    job, spec = checked[0].job, checked[0].spec
    if not wishes.sweep:
        check_not_done(job, out)
    _warn_without_gpus({found.job.device for found in checked}, wishes)
    ranks = ranks_for(_threads(job), len(spec.silos) - (spec.layout == "vertical"), wishes)
    if job.tracking.console is True:  # the log is no terminal
        tasks = [replace(task, overrides=(*task.overrides, "tracking.console=always")) for task in tasks]
    train = [sys.executable, "-m", "mpifl", "train", str(job_file)]
    script = _script(job, out, tasks, train, ranks, wishes=wishes, more=FORCE if force else "")
    if dry_run:
        look_through(script, out)
        return print(script, end="")
    print(submit_script(path, script))
    _tell(out, ranks, len(tasks), wishes)


def _tell(out: Path, ranks: int, runs: int, wishes: SlurmOptions) -> None:
    """Say on stderr what was submitted, and of a sweep how its runs are compared."""
    where = f"{count_of(ranks, 'rank')} on {count_of(wishes.nodes, 'node')}"
    many = f"{count_of(runs, 'run')} of " if wishes.sweep else ""
    log = beside(out, ".TASK.log" if wishes.sweep else ".log")
    print(f"submitted: {many}{where}; script {beside(out, '.sbatch')}, log {log}", file=sys.stderr)
    if wishes.sweep:
        compare = shlex.join(["mpifl", "compare", str(out), "--page", str(out / "sweep.html")])
        print(f"when its runs are done: {runnable(compare)}", file=sys.stderr)


def _warn_without_gpus(devices: set[str], wishes: SlurmOptions) -> None:
    by_words = any(word.startswith("--gpu") for word in wishes.words)
    by_site = any(key.startswith(("SBATCH_GPU", "SBATCH_GRES")) for key in os.environ)
    given = wishes.gpus or by_words or by_site
    if not given and (wants := devices & {"cuda", "gpu"}):
        what = "no GPU is asked for, so that SLURM may give none; give --gpus-per-node"
        print(f"device = '{min(wants)}': {what}", file=sys.stderr)


def ranks_for(threads: int, elsewhere: int, wishes: SlurmOptions) -> int:
    """Return the wished number of ranks; by default the server and one worker for each silo, up to what the
    nodes hold."""
    cpus = _cpus_per_task(threads, wishes)
    if cpus < threads:
        what = f"fewer than the job's threads = {threads}; give at least that"
        raise InputError(f"--cpus-per-task {cpus}: {what}")
    ranks = wishes.ranks
    if ranks is None and wishes.gpus:
        ranks = min(elsewhere, wishes.nodes * wishes.gpus) + 1
    elif ranks is None:
        smallest = min((held for one in partitions(wishes.partition) for held, _ in one.nodes), default=0)
        held = smallest // cpus * wishes.nodes
        ranks = (min(elsewhere, held - 1) if held else elsewhere) + 1
    if ranks < wishes.nodes:
        what = f"some would have none of {ranks} ranks; ask for {ranks} at most"
        raise InputError(f"--nodes {wishes.nodes}: {what}")
    tasks, gpus = -(-ranks // wishes.nodes), wishes.gpus_per_node
    time = None if wishes.sbatch.get("qos") else wishes.time  # a QOS may lift the limit
    check_room(wishes.partition, wishes.nodes, tasks, cpus, gpus, time=time)
    return ranks


def _threads(job: Job) -> int:
    return 1 if job.threads == "auto" else job.threads


def _cpus_per_task(threads: int, wishes: SlurmOptions) -> int:
    return wishes.cpus_per_task or threads


def check_memory(size: object) -> None:
    """Check that sbatch takes a size of memory."""
    if isinstance(size, str) and not MEMORY.fullmatch(size):
        what = "sbatch takes a whole number with K, M, G or T, or in megabytes, such as 4G"
        raise InputError(f"--mem {size}: {what}")


def check_time(time: str | None) -> None:
    """Check that sbatch takes a limit of time, and that a job is not signalled as soon as it starts."""
    if time and not is_time(time):
        raise InputError(f"--time {time}: sbatch does not take that; write minutes, H:MM:SS or D-HH:MM:SS")
    if time and "SBATCH_SIGNAL" not in os.environ and seconds(time) <= SECONDS_TO_SAVE + SECONDS_EARLY:
        what = f"SLURM signals a job up to {SECONDS_TO_SAVE + SECONDS_EARLY} s before its end, to save"
        raise InputError(f"--time {time}: {what}; give more, such as 10 (minutes)")


def _tasks(job_file: Path, overrides: tuple[str, ...], out: Path, wishes: SlurmOptions) -> list[ArrayTask]:
    """Return the runs of the batch job; raise InputError if an option is for another kind."""
    if wishes.sweep:
        return tasks_left(job_file, overrides, out, wishes.settings)
    given = [f"--at-once {wishes.at_once}"] * (wishes.at_once is not None)
    for option in (*given, *(f"--setting '{text}'" for text in wishes.settings)):
        raise InputError(f"{option}: is for runs of a sweep; give --sweep, or leave it out")
    return [ArrayTask(None, out, overrides)]


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
    cpus, numbers = (
        _cpus_per_task(_threads(job), wishes),
        [task.number for task in tasks if task.number is not None],
    )
    log = str(beside(out, "")).replace("%", "%%")
    array = ",".join(map(str, numbers)) + (f"%{wishes.at_once}" if wishes.at_once else "")
    asked = {"array": array or None, "output": f"{log}.%a.log" if numbers else f"{log}.log"}
    return script_of(job.name, asked, told_to(tasks, train) + more, GOING_ON, ranks, cpus=cpus, wishes=wishes)


def script_of(
    name: str,
    asked: Mapping[str, object],
    told: str,
    end: str,
    ranks: int,
    *,
    cpus: int,
    wishes: SlurmOptions,
) -> str:
    """Return a batch script.

    Args:
        asked: Options of sbatch of this job alone, with their values.
        told: Lines that say what the ranks run.
        end: The lines that run it.
        cpus: Of each rank.
    """
    asked = {
        "job-name": name,
        "array": asked.get("array"),
        "partition": wishes.partition,
        "account": wishes.account,
        "nodes": wishes.nodes,
        "ntasks-per-node": -(-ranks // wishes.nodes),
        "cpus-per-task": cpus,
        "gpus-per-node": wishes.gpus_per_node or None,
        "time": wishes.time,
        **wishes.sbatch,
        "chdir": Path.cwd(),
        "output": asked["output"],
        "open-mode": "append",
        "signal": f"B:USR1@{SECONDS_TO_SAVE}",
    }
    head = f"#!/bin/bash\n{directives(asked, wishes.words)}#SBATCH --requeue\n"
    body = f"""
# The environment of `mpifl submit` comes along; what else the ranks need, such as modules, goes here.
{told}# srun would warn where the ranks are no multiple of the nodes
unset SLURM_NTASKS_PER_NODE
start=({shlex.join(launcher_of(wishes, ranks, cpus))})
{end}"""
    return marked(head, body)


def launcher_of(wishes: SlurmOptions, ranks: int, cpus: int) -> list[str]:
    """Return the command that starts the ranks: srun if it can start this MPI's ranks, otherwise this MPI's
    mpirun.

    Ranks are placed on the nodes by round robin. So nodes get equal numbers of workers, and the first node
    also gets the server.
    """
    if wishes.launcher not in ("auto", "srun", "mpirun"):
        raise InputError(f"--launcher {wishes.launcher}: give auto, srun or mpirun")
    mpirun, flags = _mpirun()
    about = ask(mpirun, "--version") if mpirun else ""
    is_open = "Open MPI" in about or "OpenRTE" in about
    of_tasks = [f"--ntasks={ranks}", f"--cpus-per-task={cpus}", "--distribution=cyclic"]
    by_srun = ["srun", "--mpi=pmix", *of_tasks]
    if mpirun and Path(mpirun).name == "srun" and wishes.launcher != "mpirun":
        return [mpirun, *flags, *of_tasks]
    if wishes.launcher == "srun" or (
        wishes.launcher == "auto" and (is_open or not mpirun) and "pmix" in ask("srun", "--mpi=list")
    ):
        return by_srun
    if not mpirun:
        raise InputError(
            "--launcher: there is no mpirun on the PATH; load your site's MPI, name one by MPIFL_MPIRUN, "
            "or try --launcher srun"
        )
    if is_open:  # takes each option once
        places = {"--map-by": "node", "--bind-to": "none"}
        own = [word for option, place in places.items() if option not in flags for word in (option, place)]
        return [mpirun, *flags, "-n", str(ranks), *own]
    hydra = _hydra_of_intel(mpirun) if "Intel(R) MPI" in about else [mpirun]
    return [*hydra, *flags, "-n", str(ranks), "-ppn", str(-(-ranks // wishes.nodes))]


def _mpirun() -> tuple[str | None, list[str]]:
    """Return the launcher that is named, with its flags, or else this environment's or one on the PATH."""
    program, *flags = chosen_launcher() or [""]
    if program and not shutil.which(program):
        raise InputError(f"MPIFL_MPIRUN={program}: there is no such program; correct it, or unset it")
    own = Path(sys.prefix) / "bin" / "mpirun"
    return program or (str(own) if own.exists() else shutil.which("mpirun")), flags


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
