"""A site's identity: its own signing key, and its own list of the public keys of all sites."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StringConstraints, ValidationError

from mpifl.common import InputError, Table, by_weight, did_you_mean, tables
from mpifl.wings.site.ciphers import KEY_BYTES, Signing, signed
from mpifl.wings.site.site_directory import VARIABLE, make_once

KEY_FILE, SITES_FILE = "identity.key", "sites.toml"
NAME = r"^\w[\w .+-]{0,63}$"
KEY = rf"^[0-9a-f]{{{2 * KEY_BYTES}}}$"
_WANTED = {
    "name": "it takes 1 to 64 letters, digits, blanks and . + - _, and begins with a letter or a digit",
    "key": f"it takes {2 * KEY_BYTES} digits 0-9a-f, as `mpifl identity show` prints them",
    "private_key": f"it takes {2 * KEY_BYTES} digits 0-9a-f; put back a copy that is whole",
    "silos": "it takes the names of the site's silos, at least one",
    "least": "it takes a whole number: how many parties a sum has at least, whatever a job says",
    "colluding": "it takes a number in [0, 1): the share of parties that may side with the server",
    "site": "it takes tables [[site]], each with name, silos and key",
}
"""For errors: what each key takes."""
_Kind = TypeVar("_Kind", bound=BaseModel)

SiteName = Annotated[str, StringConstraints(pattern=NAME)]
SiloName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
PublicKey = Annotated[str, StringConstraints(pattern=KEY)]
"""32 bytes in hexadecimal."""


class _IdentityFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _KeyFile(_IdentityFile):
    name: SiteName
    private_key: PublicKey


class ListedSite(_IdentityFile):
    """A table `[[site]]` of `sites.toml`: a site, its silos, and its public key."""

    name: SiteName
    silos: Annotated[list[SiloName], Field(min_length=1)]
    key: PublicKey


class _Listed(_IdentityFile):
    least: PositiveInt = 1
    colluding: Annotated[float, Field(ge=0, lt=1)] = 0.0
    site: Annotated[list[ListedSite], Field(min_length=1)]


class Identity:
    """A site's name and its Ed25519 key. Others verify its signatures by the public key.

    Attributes:
        name: The site's name in every site's `sites.toml`.
        public: Its public key, 64 hexadecimal digits.
    """

    def __init__(self, name: str, private: bytes) -> None:
        self.name = name
        self._key = Signing(private)
        self.public = self._key.public.hex()

    def sign(self, purpose: str, message: bytes) -> str:
        """Return the signature of a message for one purpose, 128 hexadecimal digits.

        A signature for one purpose is valid for no other. So nobody gets a signature of one kind by having
        a message of another kind signed.
        """
        return self._key.sign(_for(purpose, message)).hex()

    def listing(self, silos: Sequence[str]) -> str:
        """Return the table for this site in the `sites.toml` of others."""
        return "[[site]]\n" + tomli_w.dumps({"name": self.name, "silos": list(silos), "key": self.public})


class Sites:
    """The sites that may take part, as `sites.toml` lists them.

    Attributes:
        path: The path of the file.
        by_name: The sites by name.
        least, colluding: The least values that this site accepts, whatever a job says; see `[security]`.
    """

    def __init__(
        self, path: Path, listed: Sequence[ListedSite], least: int = 1, colluding: float = 0.0
    ) -> None:
        self.path = path
        self.least, self.colluding = least, colluding
        self.by_name = {one.name: one for one in listed}
        self._owners = {silo: one.name for one in listed for silo in one.silos}

    def owner(self, silo: str) -> str | None:
        """Return the name of the site that a silo belongs to, None if it belongs to none."""
        return self._owners.get(silo)

    def signed(self, name: str, purpose: str, signature: str, message: bytes) -> bool:
        """Return whether a signature of a message for a purpose is valid for the site of this name."""
        return has_signed(self.by_name[name].key, purpose, signature, message)


def has_signed(key: str, purpose: str, signature: str, message: bytes) -> bool:
    """Return whether the owner of a public key has signed a message for a purpose.

    Args:
        key: The public key, 64 hexadecimal digits.
        signature: The signature, 128 hexadecimal digits.
    """
    return signed(bytes.fromhex(key), bytes.fromhex(signature), _for(purpose, message))


def _for(purpose: str, message: bytes) -> bytes:
    """Return the bytes that are signed for a purpose."""
    return f"mpifl {purpose} 1\0".encode() + message


def make_identity(folder: Path, name: str) -> Identity:
    """Make a site's key, in a file that only its user can read.

    Raises:
        InputError: the name is not valid, or there is a key already.
    """
    private = os.urandom(KEY_BYTES)
    path = folder / KEY_FILE
    _as(_KeyFile, {"name": name, "private_key": private.hex()}, "mpifl identity make")
    identity = Identity(name, private)
    content = tomli_w.dumps({"name": name, "private_key": private.hex()}).encode()
    if not make_once(path, content):
        what = "is there, and others know this site by it"
        raise InputError(f"{path}: {what}; keep it, or remove it first and tell all sites the new key")
    return identity


def identity_of(folder: Path) -> Identity | None:
    """Return the identity in a site's folder, None if it has none.

    Raises:
        InputError: its file is damaged, or others can read it.
    """
    path = folder / KEY_FILE
    if not os.path.lexists(path):
        return None
    found = _as(_KeyFile, _table(path), str(path))
    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        raise InputError(f"{path}: has mode {mode:04o}, others may read it; chmod 600 {path}")
    return Identity(found.name, bytes.fromhex(found.private_key))


def sites_of(folder: Path) -> Sites | None:
    """Return the sites that a site's folder lists, None if it has no `sites.toml`.

    Raises:
        InputError: the file is wrong.
    """
    path = folder / SITES_FILE
    return read_sites(path) if os.path.lexists(path) else None  # a broken link is an error


def read_sites(path: Path) -> Sites:
    """Read a `sites.toml`.

    Raises:
        InputError: a key is unknown or wrong, or a name, a silo or a public key occurs twice.
    """
    whole = _as(_Listed, _table(path), str(path))
    listed = whole.site
    for what, given in (
        ("name", [(one.name, one.name) for one in listed]),
        ("key", [(one.key, one.name) for one in listed]),
        ("silo", [(silo, one.name) for one in listed for silo in one.silos]),
    ):
        found, times = Counter(value for value, _ in given).most_common(1)[0]
        if times > 1:
            owners = dict.fromkeys(name for value, name in given if value == found)
            belongs = f"is there {times} times, at {' and '.join(owners)}"
            raise InputError(f"{path}: {what} {found!r} {belongs}; give each site what is its own, once")
    return Sites(path, listed, whole.least, whole.colluding)


def problems_of(identity: Identity | None, sites: Sites, silos: Sequence[str]) -> Iterator[str]:
    """Yield a line for each conflict between a site's own key, its list of sites and a federation's silos."""
    if identity is None:
        yield f"{sites.path.with_name(KEY_FILE)}: is not there; make this site's key by `mpifl identity make`"
    elif (own := sites.by_name.get(identity.name)) is None:
        yield f"{sites.path}: has no site {identity.name!r}; add what `mpifl identity show` prints"
    elif own.key != identity.public:
        keys = f"has the key {own.key[:8]}..., this folder's is {identity.public[:8]}..."
        what = f"site {identity.name!r} {keys}"
        yield f"{sites.path}: {what}; put in what `mpifl identity show` prints, and tell the other sites"
    for silo, times in Counter(silos).items():
        if sites.owner(silo) is None:
            yield f"{sites.path}: no site has the silo {silo!r}; add it to the silos of its site"
        if times > 1:
            yield f"federation.json: {times} silos are called {silo!r}; give each its own name"


def _table(path: Path) -> Table:
    try:
        return tables(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); put back a copy that is whole"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML: {error}") from None


def _as(kind: type[_Kind], table: Table, where: str) -> _Kind:
    """Return a table as a record; raise InputError that names the first error."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        first = by_weight(error.errors())[0]
        place = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        wanted = next((_WANTED[part] for part in reversed(first["loc"]) if part in _WANTED), "")
        odd = f"is not a key that is known; {did_you_mean(first['loc'][-1], _WANTED)}remove it"
        what = {"extra_forbidden": odd, "missing": f"is missing; {wanted}"}
        secret = "private_key" in first["loc"]
        given = f"{'what is there' if secret else repr(str(first['input'])[:80])} is none; {wanted}"
        raise InputError(f"{where}: {place}: {what.get(first['type'], given)}") from None


def lists_sites() -> bool:
    """Return whether this rank's site has a folder with a `sites.toml`."""
    named = os.environ.get(VARIABLE)
    # a broken link counts as a list
    return bool(named) and os.path.lexists(Path(str(named)).expanduser() / SITES_FILE)
