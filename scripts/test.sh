#!/usr/bin/env bash
# Sets up what the tests need and runs them; arguments go to pytest: bash scripts/test.sh tests/unit -k shards
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE   # hundreds of ranks would compile every module anew
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh dev
# shellcheck source=/dev/null
source .venv/mpi.sh                              # MPIFL_MPIRUN, for the tests that start ranks
if [[ -z ${MPIFL_DATA:-} && -d ../shared/data ]]; then
    MPIFL_DATA=$(cd ../shared/data && pwd)
    export MPIFL_DATA
fi
# A file at a time to each core, in their order: those that start ranks come first and take longest.
exec .venv/bin/python -m pytest --numprocesses=logical --maxprocesses=8 --dist=loadfile --no-loadscope-reorder "$@"
