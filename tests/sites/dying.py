"""mpifl, whose rank 0 kills itself by SIGKILL at named points: python dying.py ARGUMENTS.

DIE has points with the number of the pass at which to die, as JSON; DIED is a folder
that remembers deaths."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from mpifl.run.folder import checkpoint
from mpifl.wings.masked import MaskedParty, ReleasedFile
from mpifl.wings.sites.answers import KeptAnswers, SiteRanks
from mpifl.wings.sites.https import HttpsLink
from mpifl.wings.sites.letters import LetterRecord, Sealed
from mpifl.wings.sites.letters.folder_link import FolderLink
from mpifl.wings.sites.letters.mailbox import Mailbox
from mpifl.wings.sites.letters.site_journal import Journal
from mpifl.wings.sites.masks import SiteParty

WANTED, DIED = json.loads(os.environ["DIE"]), Path(os.environ["DIED"])
passes = Counter()


def passed(point):
    """Die here, if this is the pass; never twice at one point."""
    passes[point] += 1
    mark = DIED / point.replace(" ", "-")
    if passes[point] == WANTED.get(point) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dies(kind, method, before="", after=""):
    """Have points before and after a method of a class or module; `{}` is what the first argument tells."""
    usual = getattr(kind, method)

    @functools.wraps(usual)
    def wrapped(*given, **more):
        told = next((one for one in given if isinstance(one, str)), "")
        told = next((one.name.kind for one in given if isinstance(one, Sealed)), told)
        told = next((one.kind for one in given if isinstance(one, LetterRecord)), told)
        passed(before.format(told))
        found = usual(*given, **more)
        passed(after.format(told))
        return found

    setattr(kind, method, wrapped)


dies(Journal, "note", "before {} is noted", "{} is noted")
dies(Mailbox, "seal", after="{} is sealed")
dies(Mailbox, "put", after="{} is put")
dies(SiteRanks, "_carried_out", after="silos have worked")
dies(SiteRanks, "_kept", after="states are kept")
dies(KeptAnswers, "keep", after="the answer is kept")
dies(SiteParty, "keep", after="sums are kept")
dies(MaskedParty, "release", "before the release", "the release is noted")
dies(ReleasedFile, "note", "before the sum is released", "the sum is released")
dies(FolderLink, "stage", after="a piece lies aside")
dies(FolderLink, "_write", after="a file is put")
dies(HttpsLink, "put", after="a file is put")
dies(checkpoint, "commit", "before the checkpoint", "after the checkpoint")

if __name__ == "__main__":
    from mpifl.cli import main

    sys.argv = ["mpifl", *sys.argv[1:]]
    main()
