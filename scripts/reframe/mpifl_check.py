"""A check of an installed mpifl for ReFrame 4: the bits of a training, and its time beside a plain loop.

reframe -C SITE.py -c scripts/reframe -r
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_before, sanity_function, variable

KNOWN = Path(__file__).with_name("digests.json")


@rfm.simple_test
class MpiflWhole(rfm.RunOnlyRegressionTest):
    """`mpifl selftest`: files, MPI, three ranks, kill and resume, loops without C."""

    descr = "mpifl selftest passes"
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = "mpifl"
    executable_opts = ["selftest"]  # noqa: RUF012
    time_limit = "10m"

    @sanity_function
    def is_whole(self):
        return sn.assert_found(r"^all is well$", self.stdout)


@rfm.simple_test
class MpiflTraining(rfm.RunOnlyRegressionTest):
    """The sha256 of a model on this kind of processor, and the ratio to a plain loop of PyTorch."""

    descr = "a training of mpifl has its bits and its speed"
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = "python3"
    executable_opts = ["beside_plain_loop.py"]  # noqa: RUF012
    time_limit = "10m"
    most = variable(float, value=1.25)
    """Times the plain loop's seconds: more is slower than this centre's first run."""

    @run_before("performance")
    def set_reference(self):
        self.reference = {"*": {"ratio": (self.most, None, 0.0, "x")}}

    @sanity_function
    def has_its_bits(self):
        found = sn.extractsingle(r"^(\{.*\})$", self.stdout, 1)
        told = json.loads(sn.evaluate(found))
        known = json.loads(KNOWN.read_text()).get(told["computes"])
        what = f"{told['sha256']} on {told['computes']}: "
        if known is None:
            what += f"not known yet; if another way has made sure of it, put it into {KNOWN.name}"
        return sn.assert_eq(told["sha256"], known, what + f"is not {known}" * (known is not None))

    @performance_function("x")
    def ratio(self):
        return sn.extractsingle(r'"ratio": ([0-9.]+)', self.stdout, 1, float)
