"""Earlier names of keys and tables of job files, and their names now."""

from __future__ import annotations

from collections.abc import Collection

from mpifl.common import plain

EARLIER = {
    "vertical": "split",
    "split.cut": "cut_width",
    "local.accumulate": "accumulate_batches",
    "local.batched": "batch_silos",
    "local.chunk": "silos_per_step",
    "local.epochs_of": "epochs_by_silo",
    "local.keep_optimizer": "keep_optimizer_state",
    "local.stragglers": "straggler_chance",
    "aggregation.spill": "disk_buffer",
    "aggregation.tolerate": "byzantine",
    "attack.keep_optimizer": "keep_optimizer_state",
    "compression.down": "download",
    "compression.up": "upload",
    "evaluate.at": "where",
}


def renamed(table: str, key: str) -> str:
    """Return "it is 'NAME' now; ", or "" if this table's key was never renamed; "" is the job's own table."""
    now = EARLIER.get(f"{table}.{key}" if table else key)
    return f"it is '{now}' now; " if now else ""


OTHERWISE = {
    "learningrate": "local.lr",
    "lr": "local.lr",
    "batchsize": "local.batch_size",
    "batch": "local.batch_size",
    "epochs": "local.epochs",
    "localepochs": "local.epochs",
    "optimiser": "local.optimizer",
    "optimizer": "local.optimizer",
    "numrounds": "rounds",
    "nrounds": "rounds",
}
"""What other programs call a key, in small letters without underscores, and where it stands in a job."""


def otherwise_called(key: str, takes: Collection[str]) -> str:
    """Return "did you mean 'NAME'? " for a key that other programs call so, or "".

    Args:
        takes: The keys of the table that it stands in; a key of another table is named with that table.
    """
    meant = OTHERWISE.get(plain(key), "")
    own = meant.rpartition(".")[2]
    return f"did you mean '{own if own in takes else meant}'? " if meant else ""
