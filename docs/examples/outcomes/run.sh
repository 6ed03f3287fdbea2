#!/usr/bin/env bash
# Three hospitals, a table each: table one, a regression, survival curves and Cox's model. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python make_tables.py .                           # in their place: linz.csv, graz.csv, bern.csv of your own

data-prep sites linz.csv graz.csv bern.csv --spec readmitted.toml --test 0 --out shards/readmitted
mpifl stats shards/readmitted --silos --out table --ranks 4
mpifl train logistic.toml --out runs/logistic --ranks 4 "$@"
mpifl coefficients runs/logistic --csv logistic.csv --latex logistic.tex

data-prep sites linz.csv graz.csv bern.csv --spec died.toml --test 0 --out shards/died
mpifl survival shards/died --by treatment --out curves --ranks 4
mpifl train cox.toml --out runs/cox --ranks 4 "$@"
mpifl coefficients runs/cox --csv cox.csv
