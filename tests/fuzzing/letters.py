"""Letters, invitations and consents with harm done to them: forged, cut, and signed with nonsense inside."""

from __future__ import annotations

import functools
import json
import struct
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from unittest import mock

from links.memory_link import MemoryLink, Shared
from links.two_ends import COORDINATOR, KEYS, RUN, SITE, post, records, same, vectors

from fuzzing.mutations import harmed_bytes, harmed_json, harmed_toml
from fuzzing.outcomes import Undocumented
from mpifl.wings.sites.consents import (
    ConsentedRun,
    Invitation,
    add_consent,
    admitted,
    federation_digest,
    job_digest,
    read_invitation,
    signed_invitation,
    write_invitation,
)
from mpifl.wings.sites.letters import LetterRecord, Mailbox, Member, sealed_letter

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HARMS = ("files", "files", "contents", "contents", "header", "none")
JOB = json.dumps(
    {"name": "demo", "shards": "s", "rounds": 3, "model": {"name": "mlp", "hidden": [3]}, "device": "cpu"}
)
DOWN = ("welcome", "ask", "sum", "end")


@functools.cache
def _records() -> dict[str, LetterRecord]:
    return records()


def letters(draw: Random, valid: Path, folder: Path) -> tuple[str, str, Shared, Path]:
    """Return the harm, a kind, the files on a link with a letter of that kind, and a folder for an outbox."""
    kind, harm = draw.choice([*_records()]), draw.choice(HARMS)
    own, other = (COORDINATOR, SITE) if kind in DOWN else (SITE, COORDINATOR)
    shared: Shared = {"down": {}, "up": {}}
    side = "down" if kind in DOWN else "up"
    mailbox = Mailbox(post(own, other), MemoryLink(shared, side), folder)
    padded = sealed_letter.padded
    inside = (lambda text: padded(harmed_json(draw, text))) if harm == "contents" else padded
    with (
        mock.patch.object(sealed_letter.os, "urandom", bytes),
        mock.patch.object(sealed_letter, "padded", inside),
    ):
        mailbox.dispatch(7, _records()[kind], vectors(3, 40))
    files = shared[side]
    if harm == "header":
        _harm_header(draw, files, f"000007-{kind}.msg", own)
    for name in [*files] if harm == "files" else ():
        if draw.random() < 0.7:
            files[name] = harmed_bytes(draw, files[name], tuple(files.values()))
        if draw.random() < 0.1:
            files[draw.choice((*files, "000008-ask.msg", "000007-end.msg"))] = files.pop(name)
    return harm, kind, shared, folder


def _harm_header(draw: Random, files: dict[str, bytes], name: str, own) -> None:
    whole = files[name]
    (length,) = struct.unpack("<I", whole[8:12])
    header = harmed_json(draw, whole[12 : 12 + length])
    signature = bytes.fromhex(own.sign("letter", header))
    files[name] = (
        b"MPIFLS01" + struct.pack("<I", len(header) % 2**32) + header + signature + whole[76 + length :]
    )


def read_letter(given: tuple[str, str, Shared, Path]) -> None:
    harm, kind, shared, folder = given
    own, other = (SITE, COORDINATOR) if kind in DOWN else (COORDINATOR, SITE)
    mailbox = Mailbox(post(own, other), MemoryLink(shared, "up" if kind in DOWN else "down"), folder)
    letter = mailbox.newest(*_records())
    if letter is not None and harm in ("files", "none"):
        record = _records()[letter.record.kind]
        if letter.n != 7 or letter.record != record or not same(letter.vectors, vectors(3, 40)):
            raise Undocumented(f"a harmed letter was read as another one: {letter}")
    if harm == "none" and letter is None:
        raise Undocumented("a letter without harm is not there")


def invitations(draw: Random, valid: Path, folder: Path) -> Path:
    """Return a folder with a harmed invitation, signed before or after the harm, and a consent to it."""
    job = harmed_json(draw, JOB.encode()).decode("utf-8", "replace") if draw.random() < 0.3 else JOB
    member = Member(name="graz", key=SITE.public, silos=["silo 1"])
    unsigned = Invitation(
        run=RUN,
        mpifl="0.2.0",
        coordinator="bern",
        key=COORDINATOR.public,
        run_key=KEYS["bern"].public.hex(),
        federation=federation_digest("{}"),
        site=[member],
        job=job.replace("\0", ""),
        signature="00" * 64,
    )
    write_invitation(folder, signed_invitation(unsigned, COORDINATOR))
    consent = ConsentedRun(
        coordinator=COORDINATOR.public,
        job=job_digest(JOB),
        federation=federation_digest("{}"),
        silos=["silo 1"],
        masks="none",
        questions=3,
    )
    add_consent(folder, consent)
    for name in ("invitation.toml", "consent.toml"):
        if draw.random() < 0.4:
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(harmed_toml(draw, content, tomllib.loads(content.decode())))
    if draw.random() < 0.5:  # signed after the harm
        with suppress(ValueError, RecursionError):
            harmed = Invitation.model_validate(tomllib.loads((folder / "invitation.toml").read_text("utf-8")))
            write_invitation(folder, signed_invitation(harmed, COORDINATOR))
    return folder


def consent_to(folder: Path) -> None:
    found = read_invitation(folder, COORDINATOR.public)
    admitted(folder, found, found.job, ["silo 1"], folder)
