"""Earlier names of keys and tables of job files, and their names now."""

from __future__ import annotations

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
