"""Marks: what a site says to itself of its ledgers, by the coordinator, which cannot read it.

A site whose folder was put back from a copy has forgotten what it released. A later mark tells it so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mpifl.common import InputError
from mpifl.wings.site import SiteLedger, SiteSeal

_LABEL = "mark of ledgers"
_PAD = 512


class LedgerMarks:
    """Makes marks, and holds them against the ledgers.

    Args:
        seal: Seals marks by the site's key.
        ledgers: The ledgers; their files' names differ.
    """

    def __init__(self, seal: SiteSeal, ledgers: Sequence[SiteLedger[Any]]) -> None:
        self._seal, self._ledgers = seal, {one.path.name: one for one in ledgers}

    def mark(self) -> str:
        """Return the lengths and last lines' digests of all ledgers, sealed, in hexadecimal."""
        text = json.dumps({name: ledger.mark() for name, ledger in self._ledgers.items()})
        return self._seal.close(text.ljust(_PAD).encode(), _LABEL).hex()

    def check(self, mark: str) -> None:
        """Check that each ledger has all lines that it had when a mark was made.

        Args:
            mark: The mark; "" for none.

        Raises:
            InputError: a ledger has not, or the mark is none of this site and run.
        """
        if not mark:
            return
        try:
            told = json.loads(self._seal.open(bytes.fromhex(mark), _LABEL))
        except ValueError:
            what = "the coordinator's mark was not made by this site in this run"
            raise InputError(f"{what}; the site's folder has another key, or the coordinator lies") from None
        for name, (lines, sha256) in told.items():
            ledger = self._ledgers.get(name)
            if ledger is not None and not ledger.had(lines, sha256):
                now = f"has {len(ledger.kept)} lines, and had {lines} with this site's last answer"
                raise InputError(f"{ledger.path}: {now}; it was put back from a copy: nothing is answered")
