"""A site, or the coordinator: python program.py BASE site NAME LINK SHARDS | BASE train JOB OUT LINK [set...]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sites import kit

from mpifl.common.machine import signals, tuning
from mpifl.training import loop
from mpifl.wings import wings_of
from mpifl.wings.sites.coordinator_wing import Coordinator
from mpifl.wings.sites.joining import join
from mpifl.wire.launching import world


def site(base, name, link, shards):
    over = join(lambda folder: kit.invited(base, name), Path(link), Path(shards), {"device": "cpu"}, world(), wings_of)
    return 0 if over else 75


def train(base, job, out, link, *changes):
    letters = kit.correspondence(base, Path(out), Path(link))
    Path(out).mkdir(exist_ok=True, parents=True)
    transport = world()
    end = loop.train(
        Path(job), Path(out), changes, True, transport, wings_of=lambda job: [*wings_of(job), Coordinator(job, letters)]
    )
    return 0 if end is loop.End.FINISHED else 75


if __name__ == "__main__":
    signals.install()
    with tuning.subnormals_as_zero():
        raise SystemExit({"site": site, "train": train}[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:]))
