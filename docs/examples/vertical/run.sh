#!/usr/bin/env bash
# Two parties, other columns of the same persons: aligned without an id shown, trained, predicted by the hospital's ids.
# Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python make_tables.py .                           # in their place: tables of your own
mpifl align terms.toml --table hospital.csv --table laboratory.csv --spec hospital.toml --spec laboratory.toml \
    --ids whose.csv --ids laboratory-whose.csv --out shards

mpifl train job.toml --out run "$@"
mpifl predict run --data shards --split test --out predictions.csv
python whom.py
