#!/usr/bin/env bash
# Runs tests under MPICH from PyPI, in a venv that borrows .venv's other packages; arguments go to pytest.
# Without any it is the short form: one rank, three and five to the same bits, parties, scripts, signals, the doctor.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh dev
venv=$PWD/build/mpich
if ! cmp -s scripts/constraints.txt "$venv/made-with"; then
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip install -q -c scripts/constraints.txt mpi4py mpich
    purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    .venv/bin/python -c "$purelib" >"$("$venv/bin/python" -c "$purelib")/borrowed.pth"
    cp scripts/constraints.txt "$venv/made-with"
fi
export MPIFL_MPI=MPICH MPIR_CVAR_ENABLE_HEAVY_YIELD="${MPIR_CVAR_ENABLE_HEAVY_YIELD-1}"    # more ranks than cores
MPIFL_MPIRUN=$(printf '%q' "$venv/bin/mpiexec")
export MPIFL_MPIRUN
if [[ -z ${MPIFL_DATA:-} && -d ../shared/data ]]; then
    MPIFL_DATA=$(cd ../shared/data && pwd)
    export MPIFL_DATA
fi
[[ $# -gt 0 ]] || set -- tests/mpi/test_{ranks,columns,secure,script,sweep,doctor}.py
exec "$venv/bin/python" -m pytest -p no:xdist "$@"
