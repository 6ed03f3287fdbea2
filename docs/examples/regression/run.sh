#!/usr/bin/env bash
# A number of each example: from arrays that a function returns to predicted values. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

data-prep partition diabetes:examples --out shards --scheme natural --seed 1 --test 0.25 \
    --target-names progression --silo-names young,middle,old
data-prep inspect shards --features

mpifl train job.toml --out run "$@"
mpifl evaluate run --silos
mpifl predict run --data shards --split test --out predictions.csv
head -n 4 predictions.csv
