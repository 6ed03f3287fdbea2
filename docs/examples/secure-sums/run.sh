#!/usr/bin/env bash
# Three sites, each with a key and a list of all sites: they hand over masked sums. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

data-prep partition digits --out shards --scheme dirichlet --alpha 1 --silos 3 --seed 4 --test 0.2 --no-stratify

# Each site, once, at its own machine: a key, and the table that it gives to all others.
for number in 0 1 2; do
    MPIFL_SITE=$PWD/site$number mpifl identity make "site$number"
    MPIFL_SITE=$PWD/site$number mpifl identity show --silos "silo $number" >site$number.toml
done
# Each site: all tables, which came by a way that the server cannot change.
for number in 0 1 2; do
    cat site0.toml site1.toml site2.toml >site$number/sites.toml
    MPIFL_SITE=$PWD/site$number mpifl identity check shards
done

# The largest silo is hosted by rank 1, the next by rank 2, and so on.
read -r first second third < <(python - <<'PYTHON'
import json

silos = json.load(open("shards/federation.json"))["silos"]
print(*sorted(range(3), key=lambda number: -silos[number]["examples"]["train"]))
PYTHON
)
train=(mpifl train job.toml --out run "$@")
start=(${MPIFL_MPIRUN:-mpirun --oversubscribe})
"${start[@]}" -n 1 "${train[@]}" \
    : -n 1 -x MPIFL_SITE="$PWD/site$first" "${train[@]}" \
    : -n 1 -x MPIFL_SITE="$PWD/site$second" "${train[@]}" \
    : -n 1 -x MPIFL_SITE="$PWD/site$third" "${train[@]}"
wc -l site?/released.jsonl
