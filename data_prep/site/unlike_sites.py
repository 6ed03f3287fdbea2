"""What the sites of an assembled federation have unlike each other, in lines for people."""

from __future__ import annotations

from data_prep.dataset import inverted_told
from mpifl.common import Names
from mpifl.data.shards import FederationSpec

OF_SITES = ("images of sites", "missing of sites")
"""What a note of `federation.json` on a difference between sites is called."""
MOST_NAMED = 8
"""Silos in a line."""


def differences(spec: FederationSpec) -> list[str]:
    """Return lines on what sites read in different ways, on an outcome that may be inverted at one, and on
    silos without rows that others have."""
    notes = spec.source.get("notes") or {}
    return [*(notes[kind] for kind in OF_SITES if kind in notes), *inverted_told(spec), *_lacking(spec)]


def _lacking(spec: FederationSpec) -> list[str]:
    """Say which silos have no validation or test rows where others have some, a line for each."""
    said, names = [], Names([one.name for one in spec.silos])
    for split in ("valid", "test"):
        lack = [place for place, one in enumerate(spec.silos) if not one.examples.get(split)]
        if 0 < len(lack) < len(spec.silos):
            one, others = len(lack) == 1, len(spec.silos) - len(lack)
            has = f"{names.listed(lack, MOST_NAMED)} {'has' if one else 'have'} no {split} rows"
            have = f"which {others:,} other{'s have' if others > 1 else ' has'}"
            whose = "it" if one else "them"
            to_do = f"figures on {split} rows are without {whose}; import again with --{split}"
            said.append(f"{has}, {have}: {to_do}")
    return said
