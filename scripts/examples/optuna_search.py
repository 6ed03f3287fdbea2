"""Search a job's hyperparameters with Optuna, which ends trials early that fall behind.

    pip install 'mpifl[search]'
    python scripts/examples/optuna_search.py jobs/demo.toml --trials 20
    mpirun -n 5 python -m mpi4py scripts/examples/optuna_search.py jobs/demo.toml --trials 20

All ranks train each trial together; rank 0 alone asks Optuna. A trial that is pruned stops after its round on
all ranks, which continue with the next. `suggested` has what is tried. To choose by no test example, give
shards with valid splits and a job with `[evaluate] split = "valid"`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from mpi4py import MPI

import mpifl

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def suggested(job: dict[str, Any], trial: optuna.Trial) -> dict[str, Any]:
    """Return the job with the settings of a trial."""
    lr = trial.suggest_float("local.lr", 0.003, 1.0, log=True)
    batch_size = trial.suggest_categorical("local.batch_size", [10, 20, 50])
    return {**job, "local": {**job.get("local", {}), "lr": lr, "batch_size": batch_size}}


def watched(trial: optuna.Trial, figure: str) -> Callable[[dict[str, Any]], bool]:
    """Return what tells Optuna of each round that was scored, and whether to stop there."""

    def on_round(record: dict[str, Any]) -> bool:
        if figure not in record:
            return False
        trial.report(record[figure], record["round"])
        return trial.should_prune()

    return on_round


def try_out(study: optuna.Study, job: dict[str, Any], out: Path, figure: str) -> None:
    """Train one trial as the server, and tell the study what came of it."""
    trial = study.ask()
    try:
        run = mpifl.train(suggested(job, trial), out=out, on_round=watched(trial, figure))
    except mpifl.RoundLost as lost:  # it diverged
        print(f"trial {trial.number}: {lost}")
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    scored = [record[figure] for record in run.metrics if figure in record]
    if not scored:
        raise mpifl.InputError(f"--figure {figure}: no round has it; use another key of {out}/metrics.jsonl")
    if run.finished:
        study.tell(trial, scored[-1])
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    print(f"trial {trial.number}: {trial.params}, {len(run.metrics)} rounds, {figure} {scored[-1]:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("job", type=Path, help="a job file")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument(
        "--figure", default="silo_accuracy_pooled", help="a key of metrics.jsonl, to be large"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    given = parser.parse_args()
    job, is_server = tomllib.loads(given.job.read_text()), MPI.COMM_WORLD.Get_rank() == 0
    sampler = optuna.samplers.TPESampler(seed=job.get("seed", 0))
    study = optuna.create_study(direction="maximize", sampler=sampler) if is_server else None
    for number in range(given.trials):
        out = given.out / f"trial-{number:03}"
        if study is None:
            mpifl.train(job, out=out)  # rank 0 says with which settings
        else:
            try_out(study, job, out, given.figure)
    if study is not None and any(one.value is not None for one in study.trials):
        best = study.best_trial
        print(f"best: trial {best.number}, {given.figure} {best.value:.4f}, {best.params}")


if __name__ == "__main__":
    main()
