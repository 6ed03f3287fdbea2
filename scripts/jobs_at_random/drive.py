"""Run on every rank: train the jobs that stand in folders, one after another, in one world.

    mpirun -n 4 python -m scripts.jobs_at_random.drive FOLDERS

FOLDERS is a file with the path of each. A folder has `job.toml`, and gets `out`, `stderr`, and last `end`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from mpifl.common import InputError, RoundLost, one_line
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import abort_world, world
from mpifl.wire.transport import Transport

END = "end"
"""The file in which the server leaves the exit code of a job, and its last line."""


def main() -> None:
    """Train the jobs; a fault of any rank ends all, at the job that has no end then."""
    transport = world()
    for line in Path(sys.argv[1]).read_text().splitlines():
        folder = Path(line)
        os.chdir(folder)
        os.environ["MPIFL_SITE"] = str(folder / "site")
        with (folder / "stderr").open("a") as said:
            os.dup2(said.fileno(), 2)
            os.dup2(said.fileno(), 1)
        code, last = _trained(transport)
        sys.stdout.flush()
        sys.stderr.flush()
        if transport.is_server:
            (folder / "aside").write_text(json.dumps({"code": code, "last": last}))
            (folder / "aside").rename(folder / END)


def _trained(transport: Transport) -> tuple[int, str]:
    try:
        train(Path("job.toml"), Path("out"), (), False, transport, wings_of=wings_of)
    except InputError as error:
        return 2, f"error: {one_line(error)}"
    except RoundLost as error:
        return 3, f"error: {one_line(error)}"
    return 0, ""


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        abort_world(1)
        raise
