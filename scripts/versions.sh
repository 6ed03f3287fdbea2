#!/usr/bin/env bash
# Tries other versions than those of scripts/constraints.txt, and prints rows for the table of docs/howto/install.md.
#
#   bash scripts/versions.sh floor     the lowest versions that pyproject.toml names, on the lowest Python
#   bash scripts/versions.sh newest    the newest that can be had, on the highest Python
#   bash scripts/versions.sh pinned    the pinned ones on the lowest Python
#   bash scripts/versions.sh short     the pinned ones on each Python but .venv's: no unit tests; CI does so
#
# Each run imports every module, asks the commands for help, trains the demo and each example of docs/examples, and then
# runs the unit tests; words behind go to pytest in their place: tests for all of them. Packages come by uv. Where pip is set up to find PyTorch's
# CPU build (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL), it is taken; else its build with CUDA, 3 GB once.
set -euo pipefail
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
what=${1:-short}
shift || true
made=$root/build/versions
mkdir -p "$made"
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=${UV_LINK_MODE:-hardlink} UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
export UV_EXTRA_INDEX_URL=${UV_EXTRA_INDEX_URL:-${PIP_EXTRA_INDEX_URL:-}} SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-}}
[[ -n $UV_FIND_LINKS ]] || unset UV_FIND_LINKS
[[ -n $UV_EXTRA_INDEX_URL ]] || unset UV_EXTRA_INDEX_URL
[[ -n $SSL_CERT_FILE ]] || unset SSL_CERT_FILE
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# One Python of each version from 3.10 on, the lowest first: those on the PATH, then pyenv's.
pythons() {
    local candidate
    for candidate in $(type -aP python3 python3.{10..19}) "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python; do
        "$candidate" -c 'import ensurepip, sys; v = sys.version_info; v >= (3, 10) and print(v[1], sys.executable)' 2>/dev/null || true
    done | sort -n -s -u -k 1,1 | cut -d ' ' -f 2
}

uv=$made/uv/bin/uv
get_uv() {
    [[ -x $uv ]] || { .venv/bin/python -m venv --clear "$made/uv" && "$made/uv/bin/python" -m pip install -q uv; } >&2
}

# The extras of pyproject.toml that are features, but hf, which needs a newer PyTorch; or the tools that dev has beside.
asked() {
    .venv/bin/python - "$1" <<'PYTHON'
import pathlib
import sys

try:
    import tomllib
except ImportError:
    import tomli as tomllib
extras = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
tools = [one for one in extras["dev"] if not one.startswith("mpifl[")]
features = sorted(extras.keys() - {"all", "dev", "docs", "oracles", "mpich", "hf"})
print("\n".join(tools) if sys.argv[1] == "tools" else ",".join(features))
PYTHON
}

# A venv NAME of this Python with these extras; what else is said goes to uv.
venv() {
    local name=$1 python=$2 extras=$3
    shift 3
    "$uv" venv -q --seed --clear -p "$python" "$made/$name"
    mapfile -t tools < <(asked tools)
    timeout "$patience" "$uv" pip install -q -p "$made/$name/bin/python" "$@" -e "$root[$extras]" "${tools[@]}"
}

inside() { # NAME COMMAND...: with a venv's programs
    local bin=$made/$1/bin root_too=()
    shift
    [[ $(id -u) != 0 ]] || root_too=(--allow-run-as-root)
    env PATH="$bin:$PATH" MPIFL_MPIRUN="$bin/mpirun --oversubscribe --bind-to none ${root_too[*]}" \
        OMPI_MCA_mpi_yield_when_idle=1 MPIFL_DATA="${MPIFL_DATA:-$root/../shared/data}" "$@"
}

# Whether it went well in a venv NAME, and how; its last words only if not. All stand in build/versions/NAME.said.
cell() {
    local said=$made/$1.said
    if inside "$@" >"$said" 2>&1; then
        sed -n '$s/ in .*//p' "$said" | grep -oE '[0-9]+ passed(, [0-9]+ skipped)?' || echo yes
    else
        tail -n 40 "$said" >&2
        echo '**no**'
        return 1
    fi
}

everything() { # every module, and every command's help
    python - <<'PYTHON' && mpifl keys && mpifl list && mpifl train --help | grep -q 'Usage: mpifl train'
import importlib
import pathlib

import typer

for package in ("mpifl", "data_prep"):
    for path in sorted(pathlib.Path(package).rglob("*.py")):
        if path.stem not in ("__main__", "hdf5_parser"):
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
for module in ("mpifl.cli.commands", "data_prep.cli"):
    app = importlib.import_module(module).app
    for name in typer.main.get_command(app).commands:
        app([name, "--help"], standalone_mode=False)
PYTHON
}

demo() {
    local folder
    folder=$(mktemp -d)
    mpifl demo --ranks 2 --out "$folder/demo"
    local code=$?
    rm -rf "$folder"
    return $code
}
export -f everything demo

failed=0 patience=3600                           # seconds that packages may take
row() { # WHAT NAME EXAMPLES TESTS...: try a venv, and print its row
    local what=$1 name=$2 examples=$3 cells=()
    shift 3
    cells+=("$(cell "$name" bash -c everything)") || failed=1
    cells+=("$(cell "$name" bash -c demo)") || failed=1
    cells+=("$(cell "$name" python -m pytest -p no:xdist tests/test_examples.py -k "$examples")") || failed=1
    if [[ $# -gt 0 ]]; then
        cells+=("$(cell "$name" env TEST_PYTHON=python bash scripts/test.sh "$@")") || failed=1
    else
        cells+=(-)
    fi
    printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$(date +%F)" "$what" "$(inside "$name" python - <<'PYTHON'
import platform
from importlib import metadata

names = ("torch", "numpy", "h5py", "pydantic", "typer", "rich", "mpi4py")
print(f"Python {platform.python_version()}, " + ", ".join(f"{name} {metadata.version(name)}" for name in names))
PYTHON
    )" "${cells[@]}"
    rm -rf "${made:?}/$name"
}

[[ -x .venv/bin/python ]] || bash scripts/setup.sh dev >/dev/null
mapfile -t found < <(pythons)
[[ ${#found[@]} -gt 0 ]] || die "no Python 3.10 or newer on the PATH, nor in ~/.pyenv"
[[ $# -gt 0 ]] || set -- tests/unit tests/data_prep
if ! get_uv; then
    [[ $what == short ]] || die "uv is not to be had"
    echo "left out: no other Python was tried, for uv is not to be had" >&2
    exit 0
fi
echo '| date | what | versions | modules, commands | demo | trainings of the examples | unit tests |'
echo '|---|---|---|---|---|---|---|'
case $what in
floor)
    export PYTEST_ADDOPTS='-W default'           # what these libraries need is newer, and deprecates what they call
    venv floor "${found[0]}" "$(asked features)" --resolution lowest-direct
    row lowest floor 'not lora' "$@"
    venv floor-hf "${found[0]}" "$(asked features),hf" --resolution lowest-direct
    row 'lowest with `hf`' floor-hf lora tests/unit/models
    ;;
newest)
    venv newest "${found[-1]}" "$(asked features),hf"
    row newest newest '' "$@"
    ;;
pinned)
    venv pinned "${found[0]}" "$(asked features),hf" -c scripts/constraints.txt
    row pinned pinned '' "$@"
    ;;
short)
    own=$(.venv/bin/python -c 'import sys; print(*sys.version_info[:2], sep=".")')
    for python in "${found[@]}"; do
        version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
        [[ $version != "$own" ]] || continue
        code=0 patience=600
        venv "$version" "$python" "$(asked features),hf" -c scripts/constraints.txt 2>"$made/said" || code=$?
        if ((code)); then                        # a network that is away or slow is no fault of ours; all else is
            cat "$made/said" >&2
            ((code == 124)) || grep -qiE 'failed to (fetch|download)|error sending request|dns error' "$made/said" || failed=1
            echo "left out: Python $version, whose packages did not come" >&2
            rm -rf "${made:?}/$version"
            continue
        fi
        row pinned "$version" ''
    done
    ;;
*) die "$what: give floor, newest, pinned or short" ;;
esac
exit "$failed"
