"""Train jobs one after another: `python drive.py JOBS.json OUT`, under mpirun or alone."""

import json
import sys
from pathlib import Path

import tomli_w

from mpifl.common import write_atomic
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import world

jobs, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
transport = world()
for job in jobs:
    file = out / f"{job['name']}.toml"
    write_atomic(file, tomli_w.dumps(job).encode())  # all ranks do
    train(file, out / job["name"], (), False, transport, wings_of=wings_of)
