"""A site's part in a run over sites as a SLURM job, which queues itself again until the run has ended."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from mpifl.cli.slurm.batch_script import JOINING, beside
from mpifl.cli.slurm.giving_scripts import look_through, submit_script
from mpifl.cli.slurm.submit import SlurmOptions, check_memory, check_time, ranks_for, script_of


def submit_join(
    link: Path, shards: Path, out: Path, silos: int, journal: Path, *, wishes: SlurmOptions, dry_run: bool
) -> None:
    """Write the batch script of a site that joins, submit it, and print SLURM's id; or print the script.

    Args:
        link: The folder with the invitation.
        shards: The folder of the site's shards.
        out: Script and log are `OUT.sbatch` and `OUT.log`.
        silos: How many silos the site has in the run; by default a rank each.
        journal: The site's journal of the run, which says what it has answered.
        wishes: Nodes, ranks and the like.
        dry_run: Only print the script.

    Raises:
        InputError: a wish is wrong, there is no SLURM here, or SLURM refuses.
    """
    check_time(wishes.time)
    check_memory(wishes.sbatch.get("mem"))
    ranks, cpus = ranks_for(1, silos - 1, wishes), wishes.cpus_per_task or 1
    device = "gpu" if wishes.gpus else "auto"
    words = [sys.executable, "-m", "mpifl", "join", str(link), "--shards", str(shards)]
    join = shlex.join([*words, "--device", device, "--threads", str(cpus)])
    told = f"journal={shlex.quote(str(journal))}\nstarts={shlex.quote(str(beside(out, '.starts')))}\n"
    log = str(beside(out, ".log")).replace("%", "%%")
    told += f"join=({join})\n"
    script = script_of(out.name, {"output": log}, told, JOINING, ranks, cpus=cpus, wishes=wishes)
    if dry_run:
        look_through(script, out)
        return print(script, end="")
    print(submit_script(path := beside(out, ".sbatch"), script))
    where = f"{ranks} ranks on {wishes.nodes} node{'s' if wishes.nodes > 1 else ''}"
    print(f"submitted: {where}; script {path}, log {log}", file=sys.stderr)
