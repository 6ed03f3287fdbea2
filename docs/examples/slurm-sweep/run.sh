#!/usr/bin/env bash
# A sweep as an array of SLURM: a task for each setting. Words are more settings: --set local.batch_size=10,20
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

data-prep partition digits --out shards --scheme dirichlet --alpha 0.5 --silos 4 --seed 7

grid=(--set local.lr=0.03,0.1,0.3 --set seed=1,2 "$@")
tasks=$(mpifl sweep job.toml "${grid[@]}" --out runs --list | wc -l)
sbatch --wait --array=0-$((tasks - 1)) sweep.sbatch "${grid[@]}"

mpifl sweep job.toml "${grid[@]}" --out runs --list        # which are done; run.sh again goes on with those that are not
mpifl compare runs/*/
