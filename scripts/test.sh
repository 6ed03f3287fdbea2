#!/usr/bin/env bash
# Sets up what the tests need and runs them; arguments go to pytest: bash scripts/test.sh tests/unit -k shards
set -euo pipefail
unset PYTHONPATH PYTHONHOME
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh dev
# shellcheck source=/dev/null
source .venv/mpi.sh                              # MPIFL_MPIRUN, for the tests that start ranks
if [[ -z ${MPIFL_DATA:-} && -d ../shared/data ]]; then
    MPIFL_DATA=$(cd ../shared/data && pwd)
    export MPIFL_DATA
fi
# A file at a time to each process, in their order: those that start ranks come first and take longest. One process more
# than there are cores, since they wait for disks, deadlines and each other an eighth of their time.
cores=$(getconf _NPROCESSORS_ONLN)
exec .venv/bin/python -m pytest --numprocesses=$((cores < 7 ? cores + 1 : 8)) --dist=loadfile --no-loadscope-reorder "$@"
