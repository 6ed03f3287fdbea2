"""The options of `submit` that ask SLURM for something."""

from pathlib import Path
from typing import Annotated

import typer

Words = Annotated[
    list[str], typer.Argument(metavar="[-- --KEY=VALUE ...]", help="Further options of sbatch, after --.")
]
Nodes = Annotated[int | None, typer.Option(min=1, help="By default 1.")]
Tasks = Annotated[
    int | None, typer.Option("--ranks", "--ntasks", min=1, help="By default a worker a silo, and the server.")
]
Gpus = Annotated[int, typer.Option(min=0, help="A worker each.")]
Cpus = Annotated[int | None, typer.Option(min=1, help="The job's threads by default.")]
Time = Annotated[str | None, typer.Option(help="As sbatch takes it: 30 (minutes), 2:00:00, 1-12.")]
Mem = Annotated[str | None, typer.Option(help="Memory of each node, as sbatch takes it: 4G.")]
Constraint = Annotated[str | None, typer.Option(help="Nodes with this feature, for processors of one kind.")]
Gres = Annotated[str | None, typer.Option(help="Of each node; gpu:a100:2 are GPUs with a worker each.")]
Exclusive = Annotated[bool, typer.Option("--exclusive", help="Share the nodes with no other job.")]
MailType = Annotated[str | None, typer.Option(help="When SLURM writes a mail: END,FAIL.")]
Dependency = Annotated[str | None, typer.Option(help="What must end before: afterok:4711.")]
Launcher = Annotated[str, typer.Option(help="auto, srun or mpirun.")]
ByPlan = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="A profile, or plan --json: its ranks, --time and --mem."),
]
Sweep = Annotated[
    bool, typer.Option("--sweep", help="--set KEY=A,B: each run of the grid is a task of a job array.")
]
Together = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="'K=V K=V'", help="Values that go together; each one is a setting."),
]
AtOnce = Annotated[int | None, typer.Option(min=1, metavar="N", help="With --sweep: tasks at a time.")]
Join = Annotated[
    bool, typer.Option("--join", help="JOB is a LINK: join this run over sites, as `mpifl join` does.")
]
Shards = Annotated[Path | None, typer.Option(metavar="DIR", help="With --join: this site's shards.")]
