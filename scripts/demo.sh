#!/usr/bin/env bash
# From nothing to a trained model: sets up, then runs `mpifl demo`, on this machine.
set -euo pipefail
unset PYTHONPATH PYTHONHOME
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

echo "A demo of mpifl: an environment in .venv, digits in four silos, a training on five ranks, a curve"
bash "$root/scripts/setup.sh" digits plots
# shellcheck source=/dev/null
source "$root/.venv/mpi.sh"                      # MPIFL_MPIRUN, the launcher that --ranks takes
exec "$root/.venv/bin/python" -m mpifl demo --out "$root/mpifl-demo" "$@"
