"""A site leaves a run for good: it deletes what it kept for the run, and tells the coordinator."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mpifl.common import InputError
from mpifl.wings.site import Identity, identity_of
from mpifl.wings.sites.answers import ANSWERS
from mpifl.wings.sites.consents import (
    INBOX,
    SESSION_KEY,
    TRAINING,
    Invitation,
    RunHome,
    SentFile,
    remove_consent,
)
from mpifl.wings.sites.https import site_link
from mpifl.wings.sites.letters import (
    WITHDRAW,
    Journal,
    JournalLine,
    Mailbox,
    Post,
    WithdrawRecord,
    letter_of,
)
from mpifl.wings.sites.masks import SUMS_FILE
from mpifl.wings.sites.site_joining import invited


def withdraw(link: Path, folder: Path) -> list[str]:
    """Leave a run for good; return what was done, a line each. A command that was killed may be
    repeated.

    Args:
        link: The folder that carries the letters.
        folder: The site's private folder.

    Raises:
        InputError: there is no such run, it has ended, `mpifl join` runs, or a file cannot be written.
    """
    if (identity := identity_of(folder)) is None:
        raise InputError(f"{folder}: has no identity; make one by `mpifl identity make NAME`")
    invitation, _ = invited(folder, link, identity)
    which = f"run {invitation.run[:8]} of {invitation.coordinator}"
    if not (folder / "runs" / invitation.run / "journal.jsonl").exists():
        remove_consent(folder, invitation.key, invitation.job_digest)
        return [f"this site has not joined {which}; its consent is removed, and nobody was told"]
    home = RunHome(folder, invitation.run)
    with home.held():
        journal = Journal(home.journal)
        last = journal.last("answered")
        if last is not None and "end" in last.about:
            raise InputError(f"{link}: {which} has ended; there is nothing to leave")
        if journal.last("withdrawn") is None:
            journal.note("withdrawn", last.n if last else 0, **_bound(journal, home))
        said = journal.last("withdrawn")
        assert said is not None
        _delete(home, said.n)
        blocked = list[str]()
        box = _mailbox(invitation, identity, home, link, folder, blocked.append)
        _tell(box, blocked, journal, said, invitation.run, identity)
        remove_consent(folder, invitation.key, invitation.job_digest)
    told = [f"this site has left {which}: its consent is removed, and it answers nothing any more"]
    told.append(f"deleted in {home.folder}: what silos kept, answers, sums, and the key of masks")
    if said.about:
        told.append(f"the masked sum of letter {said.n} is not handed over, ever")
    what = "what left before stays in the model; sent.jsonl and the ledgers are kept"
    return [
        *told,
        f"the coordinator is told by {said.n:06d}-withdraw.msg in {invitation.place(link)}; {what}",
    ]


def _bound(journal: Journal, home: RunHome) -> dict[str, str]:
    """Return round and work of the last answer if its masked sum was never handed over, under any number."""
    answered = [line for line in journal.lines if line.event == "answered"]
    handed = {line.about.get("of") for line in answered}
    given = [_question(line) for line in answered if str(line.n) in handed]
    last = answered[-1] if answered and (home.folder / SUMS_FILE).exists() else None
    return {} if last is None or "asked" not in last.about or _question(last) in given else _question(last)


def _question(line: JournalLine) -> dict[str, str]:
    return {name: line.about[name] for name in ("round", "work") if name in line.about}


def _mailbox(
    invitation: Invitation,
    identity: Identity,
    home: RunHome,
    link: Path,
    folder: Path,
    say: Callable[[str], None],
) -> Mailbox:
    post = Post(invitation.run, identity, home.key(), invitation.key, invitation.run_key, 0)
    up = site_link(invitation, identity, link, home)
    leaves = SentFile(folder, invitation.run).note
    return Mailbox(post, up, home.outbox(invitation.key), leaves=leaves, say=say)


def _tell(
    box: Mailbox, blocked: list[str], journal: Journal, said: JournalLine, run: str, identity: Identity
) -> None:
    """Put the letter that says so, and the last answer if it is not there. Raise InputError if the link is
    blocked: no program of this site will put the letter later."""
    for kind in ("answer", "share"):
        box.put_again(said.n, kind)
    record = WithdrawRecord(
        life=journal.life,
        run=run,
        round=int(said.about.get("round", 0)),
        work=said.about.get("work", ""),
        of=said.n if said.about else 0,
        site=identity.public,
        signature="0" * 128,
    )
    signature = identity.sign(WITHDRAW, record.said)
    box.dispatch(said.n, record.model_copy(update={"signature": signature}))
    if blocked:
        raise InputError(f"{blocked[0]} when this command is given again; the coordinator is not told yet")


def _delete(home: RunHome, last: int) -> None:
    """Delete what the run's private folder has but its journal, and letters that have not left."""
    for name in (ANSWERS, TRAINING, INBOX):
        shutil.rmtree(home.folder / name, ignore_errors=True)
    for name in (SUMS_FILE, SESSION_KEY):
        home.forget(name)
    for path in (home.folder / "outbox").glob("*/*"):
        if (letter := letter_of(path.name)) and letter.n > last:
            path.unlink()
