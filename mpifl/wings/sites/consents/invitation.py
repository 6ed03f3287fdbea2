"""The invitation to a run over sites, which the coordinator signs and puts on the link."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import tomli_w
from pydantic import AfterValidator, Field, ValidationError

from mpifl.common import InputError, tables, write_atomic
from mpifl.wings.site import Identity, PublicKey, has_signed
from mpifl.wings.sites.consents.consented_job import job_digest
from mpifl.wings.sites.letters import Member, RunId
from mpifl.wire import Digest, Message, Name

FILE, PURPOSE = "invitation.toml", "invitation"
FEWEST_DIGITS = 32
"""Digits of the coordinator's key that a person must give."""


def _address(url: str) -> str:
    """Return an address of a server; raise ValueError for a port that there is not."""
    if not urlsplit(url).hostname or urlsplit(url).port == 0:
        raise ValueError("it takes https://HOST or https://HOST:PORT")
    return url


class HttpsServer(Message):
    """The coordinator's server, to which sites open connections where letters do not lie in a folder.

    Attributes:
        url: Its address, `https://HOST` or `https://HOST:PORT`.
        key: The sha256 of the public key of its certificate (`key_of_certificate`); "" for a certificate that
            the site's system trusts.
    """

    url: Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.\-\[\]:]{1,200}$"), AfterValidator(_address)]
    key: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""


class Invitation(Message):
    """An invitation to one run.

    Attributes:
        run: The run's id.
        mpifl: The coordinator's version.
        coordinator, key: The coordinator's name, and its identity's public key.
        run_key: The coordinator's X25519 key of this run, to which sites seal their letters.
        federation: The digest of the federation.
        job: The job as JSON, with all defaults filled in.
        https: The coordinator's server; None where a folder carries the letters.
        site: The sites, sorted by key, with the silos that each has in this run.
        signature: The coordinator's signature of all this.
    """

    format: Literal[1] = 1
    run: RunId
    mpifl: Name
    coordinator: Name
    key: PublicKey
    run_key: PublicKey
    federation: Digest
    site: list[Member] = Field(min_length=1, max_length=4096)
    job: Annotated[str, Field(max_length=1 << 23)]
    https: HttpsServer | None = None
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]

    @property
    def job_digest(self) -> str:
        """The digest of the job that sites consent to."""
        return job_digest(self.job)

    @property
    def said(self) -> bytes:
        """The bytes that are signed."""
        return self.model_dump_json(exclude={"signature"}, exclude_none=True).encode()

    def member(self, key: str) -> Member | None:
        """Return the site with a key, None if it is not invited."""
        return next((one for one in self.site if one.key == key), None)

    def place(self, link: Path) -> str:
        """Return where letters lie, for people: the server, or a party's folder of the run."""
        return str(link) if self.https is None else self.https.url


def signed_invitation(unsigned: Invitation, identity: Identity) -> Invitation:
    """Return an invitation with the coordinator's signature."""
    return unsigned.model_copy(update={"signature": identity.sign(PURPOSE, unsigned.said)})


def write_invitation(folder: Path, invitation: Invitation) -> None:
    """Write an invitation into a folder.

    Raises:
        InputError: it cannot be written.
    """
    path = folder / FILE
    try:
        write_atomic(
            path, tomli_w.dumps(invitation.model_dump(exclude_none=True), multiline_strings=True).encode()
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def read_invitation(folder: Path, coordinator: str) -> Invitation:
    """Read the invitation in a folder that anybody may write to.

    Args:
        coordinator: The coordinator's key, or at least its first 32 digits, from another way than the folder.
            Dashes and blanks in it do not count.

    Raises:
        InputError: it is not there, is wrong, or is not signed by that key.
    """
    key = re.sub(r"[\s-]", "", coordinator).lower()
    if not re.fullmatch(rf"[0-9a-f]{{{FEWEST_DIGITS},64}}", key):
        what = f"takes {FEWEST_DIGITS} to 64 digits 0-9a-f, which the coordinator says to you"
        raise InputError(f"--coordinator {coordinator[:80]}: {what} by a mail or a call")
    return invitation_in(folder, key)


def invitation_in(folder: Path, key: str = "") -> Invitation:
    """Read an invitation by the coordinator whose key begins with these digits.

    Without digits it may be anybody's: a server of letters opens none, and takes from it only whose they are.

    Raises:
        InputError: it is not there, is wrong, or is not signed by that key.
    """
    path = folder / FILE
    try:
        found = Invitation.model_validate(tables(path))
    except FileNotFoundError:
        raise InputError(f"{path}: is not there; is {folder} the folder that is synchronised?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no invitation of this version ({_why(error)})") from None
    if not found.key.startswith(key):
        whose = f"the coordinator's key is {key[:8]}..., and this is by {found.key[:8]}..."
        raise InputError(f"{path}: {whose}; do not take part, and ask the coordinator")
    if not has_signed(found.key, PURPOSE, found.signature, found.said):
        raise InputError(f"{path}: is not as {found.coordinator!r} has signed it; ask the coordinator")
    check_members(found.site, str(path))
    return found


def check_members(members: Sequence[Member], where: str) -> None:
    """Check that sites are sorted by key, and that no key, name or silo is there twice.

    Raises:
        InputError: they are not.
    """
    keys, silos = [one.key for one in members], [silo for one in members for silo in one.silos]
    for what, values in (("key", keys), ("name", [one.name for one in members]), ("silo", silos)):
        if twice := next((one for one in values if values.count(one) > 1), None):
            raise InputError(f"{where}: has the {what} {twice!r} twice; nothing is answered")
    if keys != sorted(keys):
        raise InputError(f"{where}: its sites are not sorted by key; nothing is answered")


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg'][:120]}"
    return str(getattr(error, "strerror", None) or error)[:200]
