#!/usr/bin/env bash
# Sets up what the tests need and runs them; arguments go to pytest: bash scripts/test.sh tests/unit -k shards
# With TEST_PYTHON they run by that Python, as it is set up.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE   # hundreds of ranks would compile every module anew
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ -z ${TEST_PYTHON:-} ]]; then
    bash scripts/setup.sh dev
    # shellcheck source=/dev/null
    source .venv/mpi.sh                          # MPIFL_MPIRUN, for the tests that start ranks
fi
if [[ -z ${MPIFL_DATA:-} && -d ../shared/data ]]; then
    MPIFL_DATA=$(cd ../shared/data && pwd)
    export MPIFL_DATA
fi
# Every checkpoint waits for its disk, and the tests write thousands: in memory, where there is room for their 2 GB.
if [[ -z ${PYTEST_DEBUG_TEMPROOT:-} && -w /dev/shm && $(df -Pk /dev/shm | awk 'NR == 2 { print $4 }') -gt 4000000 ]]; then
    export PYTEST_DEBUG_TEMPROOT=/dev/shm
fi
# A file at a time to each core, in their order: those that start ranks come first and take longest.
exec "${TEST_PYTHON:-.venv/bin/python}" -m pytest --numprocesses=logical --maxprocesses=8 --dist=loadfile --no-loadscope-reorder "$@"
