"""Train jobs one after another in a world of one rank: `python drive.py JOBS.json OUT`."""

import json
import sys
from pathlib import Path

import tomli_w

from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import world

jobs, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
transport = world()
for job in jobs:
    file = out / f"{job['name']}.toml"
    file.write_text(tomli_w.dumps(job))
    train(file, out / job["name"], (), False, transport, wings_of=wings_of)
