"""The digest of a job that a site consents to, and what a job names. Nothing of the job is imported here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from mpifl.common import InputError, Table, wrong_in

OWN_KEYS = ("shards", "device", "threads", "tracking", "checkpoint")
"""Keys of a job that a site does not read: its own values count there."""
_PATHS = ("path", "weights", "tokenizer", "file", "folder")


def shared_job(text: str) -> Table:
    """Return a job without the keys that are each site's own.

    Args:
        text: The job as JSON, with all defaults filled in.

    Raises:
        InputError: it is no JSON of a job.
    """
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or (wrong := wrong_in(found)):
        raise InputError(f"the job of the invitation is no job ({wrong if found else 'no JSON'}); ask for it")
    return {key: value for key, value in found.items() if key not in OWN_KEYS}


def job_digest(text: str) -> str:
    """Return the sha256 of a job without the keys that are each site's own.

    Args:
        text: The job as JSON, with all defaults filled in.

    Raises:
        InputError: it is no JSON of a job.
    """
    canonical = json.dumps(shared_job(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def code_in(job: Mapping[str, Any]) -> list[str]:
    """Return the names `package.module:attribute` in a job, wherever they stand, sorted.

    Each text with a colon may be such a name, so each is taken for one.
    """
    return sorted({text for _, text in _texts(job) if ":" in text})


def paths_in(job: Mapping[str, Any]) -> list[str]:
    """Return the paths of files in a job, sorted: texts with a slash, and values of keys that name files."""
    named = [(key, text) for key, text in _texts(job) if key != "cohort.weights" and ":" not in text]
    return sorted({text for key, text in named if "/" in text or key.rpartition(".")[2] in _PATHS})


def masks_of(job: Mapping[str, Any]) -> bool:
    """Return whether a job asks for masked sums."""
    security = job.get("security")
    return isinstance(security, dict) and bool(security.get("masks"))


def in_singles(job: Mapping[str, Any]) -> str:
    """Return which keys of a job need each silo's update by itself, "" if none does: a rule that compares
    updates, or a codec."""
    asked = (("aggregation", "rule", "mean"), ("compression", "upload", "none"))
    tables = ((job.get(table), table, key, usual) for table, key, usual in asked)
    given = ((t, key, of.get(key, usual), usual) for of, t, key, usual in tables if isinstance(of, Mapping))
    return ", ".join(f"[{table}] {key} = '{value}'" for table, key, value, usual in given if value != usual)


def federation_digest(text: str) -> str:
    """Return the digest of a federation, as rank 0 tells it to all ranks."""
    return hashlib.sha256(text.encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> Table:
    """Return a table; raise ValueError if a key is there twice: two readers could take different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in a job with the `table.key` that each stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
