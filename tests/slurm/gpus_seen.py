"""Run on every rank: write which GPUs SLURM lets this rank see, and which of them mpifl takes.

python gpus_seen.py OUT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def pretend(count: int) -> None:
    """Have torch find as many accelerators as SLURM shows GPUs."""
    os.environ["FAKE_DEVICES"] = str(count)
    if count:
        sys.path.insert(0, str(Path(__file__).parents[1] / "device"))
        import fake  # noqa: F401


def main() -> None:
    visible = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
    pretend(len(visible))
    from mpifl.training import device_of, place_on_gpus
    from mpifl.wire.launching.joining import leave, world

    transport, out = world(), Path(sys.argv[1])
    device = device_of("gpu", place_on_gpus(transport), transport.rank in transport.workers)
    takes = None if device.type == "cpu" else visible[device.index]
    about = {"rank": transport.rank, "host": os.uname().nodename, "visible": visible, "takes": takes}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{os.environ['SLURM_JOB_ID']}-{transport.rank}.json").write_text(json.dumps(about))
    leave(0)


main()
