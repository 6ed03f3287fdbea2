#!/usr/bin/env bash
# An algorithm of one's own beside FedAvg, on the same silos and the same draws. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

data-prep partition digits --out shards --scheme dirichlet --alpha 0.2 --silos 10 --seed 7 --min-examples 5

mpifl train job.toml --out fedacg "$@"
# the same job by FedAvg, which has no keys of its own
sed -e 's/fedacg:FedACG/fedavg/' -e '/^decay/d' -e '/^beta/d' job.toml >fedavg.toml
mpifl train fedavg.toml --out fedavg "$@"
mpifl compare fedacg fedavg
