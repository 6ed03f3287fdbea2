#!/usr/bin/env bash
# From nothing to a trained model: handwritten digits that never leave their four silos, and one server, on this machine.
set -euo pipefail
unset PYTHONPATH PYTHONHOME
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
work=$root/mpifl-demo
py=$root/.venv/bin/python

bash "$root/scripts/setup.sh" digits plots
mpirun=()
# shellcheck source=/dev/null
source "$root/.venv/mpi.sh"
eval "mpirun=($MPIFL_MPIRUN)"

mkdir -p "$work/shards" "$work/runs"
cd "$work"

echo
if [[ -f shards/digits/federation.json ]]; then
    echo "1. The silos' shards are there already: $work/shards/digits"
else
    echo "1. Dealing the digits out to 4 silos, each with digits of its own liking"
    "$py" -m data_prep partition digits --out shards/digits --silos 4 --scheme dirichlet --alpha 0.5 --seed 7 --test 0.2 ||
        { code=$?; [[ -f shards/digits/federation.json ]] || exit $code; } # another demo at the same time was faster
fi

run=runs/demo-$(date +%Y%m%d-%H%M%S)
mkdir "$run" 2>/dev/null || { run+=-$$; mkdir "$run"; }
echo
echo "2. Training: 5 MPI ranks, a server and 4 workers with a silo each"
"${mpirun[@]}" -n 5 "$py" -m mpifl train "$root/jobs/demo.toml" --out "$run"

echo
echo "3. What came of it"
"$py" -m mpifl compare "$run" --plot "$run/curve.png" >/dev/null   # the table stands above
echo "The model: $work/$run/model.safetensors"
echo "The curve: $work/$run/curve.png"
