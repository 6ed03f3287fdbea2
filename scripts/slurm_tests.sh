#!/usr/bin/env bash
# Runs trainings as jobs of a real SLURM of three nodes on this machine; arguments go to pytest: -k array
# -k three_sites is one training over three SLURMs, each of a Unix user of its own.
# -m "not slow" is the short form: what is submitted, signalled, queued again, cancelled, and loses a node.
# Takes root and, the first time, apt; where that cannot be, the tests are skipped and say why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export MPIFL_SLURM_TESTS=1 MPIFL_SLOW=1
export PYTEST_DEBUG_TEMPROOT=${TMPDIR:-/tmp}           # the nodes do not share /dev/shm
exec bash scripts/test.sh tests/slurm -rs "$@"
