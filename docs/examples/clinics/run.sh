#!/usr/bin/env bash
# Three clinics, a table each: from three CSV files to a model and its predictions. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python make_tables.py .                           # in their place: north.csv, south.csv, east.csv of your own

# Each clinic: counts and sums of its columns, which all get, and nothing else of its table.
for clinic in north south east; do
    data-prep statistics csv --data $clinic.csv --spec columns.toml --out $clinic.json
done

# All agree on what one example is. Each clinic makes its own shard of that.
data-prep spec agreed.json --name clinics --table columns.toml
number=0
for clinic in north south east; do
    data-prep import csv --data $clinic.csv --option spec=columns.toml \
        --spec agreed.json --silo $number --name $clinic --test 0.25 --out shards
    number=$((number + 1))
done
data-prep assemble shards                         # federation.json, of what the clinics say of their shards

mpifl train job.toml --out run "$@"
mpifl evaluate run --silos
mpifl predict run --data shards --split test --out predictions.csv
head -n 4 predictions.csv
