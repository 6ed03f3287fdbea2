"""Looks for the files of a shard folder before ranks start, and says what follows from silos whose shards are
broken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mpifl.common import BudgetSpent, InputError, Names, ShardError, count_of
from mpifl.data.hdf5 import check_file
from mpifl.data.shards import AnyEntry, AnySpec
from mpifl.exchange import first_of
from mpifl.run.job import Job


def broken_files(job: Job, spec: AnySpec, elsewhere: bool = False) -> dict[int, str]:
    """Return why each silo's file cannot be the one that `federation.json` names, by silo; nothing is read.

    Args:
        elsewhere: Whether other machines have the files, so that the server's are not looked for, either.

    Raises:
        ShardError: a file of the server, with its test set or public examples, is missing or of another size.
    """
    folder, found = Path(job.shards), {}
    for silo, entry in enumerate[AnyEntry](spec.silos):
        try:
            check_file(folder / entry.file, entry.bytes)
        except ShardError as error:
            found[silo] = str(error)
    for of_server in () if elsewhere else filter(None, (spec.test, spec.public)):
        check_file(folder / of_server.file, of_server.bytes)
    return found


def notes_on_broken(job: Job, faults: Mapping[int, str], names: Names) -> list[str]:
    """Return what the user must know of silos whose shards are broken, if a training may continue without.

    Args:
        faults: Why each silo is left out.
        names: The silos' names.

    Raises:
        InputError: the job needs all silos.
    """
    if faults and job.cohort.quorum == 1.0:
        first, more = first_of(faults, names), len(faults) - 1
        others = f" (and {count_of(more, 'more silo')})" if more else ""
        without = "" if job.needs_all else "; [cohort] quorum below 1 would continue without"
        if len(faults) == names.many:  # no quorum continues without all
            without = f"; {BudgetSpent.to_do}" if {*faults.values()} == {BudgetSpent.kind} else ""
        raise InputError(f"{first}{others}{without}")
    return [
        f"continuing without silo {names[silo]} while it is broken: {why}" for silo, why in faults.items()
    ]
