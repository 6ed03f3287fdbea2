#!/usr/bin/env bash
# Scans and masks as PNG files, three hospitals, a U-Net. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python make_scans.py .                            # in their place: scans/*.png and masks/*.png of your own
data-prep partition images --data scans --masks masks --out shards \
    --scheme brightness --factors 1,0.8,0.6 --silos 3 --seed 1 --test 0.25

mpifl train job.toml --out run "$@"
mpifl evaluate run --silos
mpifl predict run --data shards --split test --out found.npz
python - <<'PYTHON'
import numpy as np

found = np.load("found.npz")
print("y", found["y"].shape, " p", found["p"].shape)
PYTHON
