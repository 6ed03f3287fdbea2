"""The requests that a site makes of the coordinator's server, signed by the site's key.

    GET /RUN/names                              The names and marks of both sides: a `Listing`.
    GET /RUN/down/NAME?from=N&mark=M            A letter's bytes from N on, if its mark is still M.
    PUT /RUN/up/NAME?size=S&sha256=D&from=N     Bytes from N on. The answer is a `Have`.
    DELETE /RUN/up/NAME                         Removes an own letter.

No path names a site: who signs a request sees its own folder alone. A signature covers run, method, path and
query. So bytes that were put are those of the digest that is signed. Who repeats a request changes nothing:
each of them can be made twice. So neither clocks nor challenges are needed.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Container
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from mpifl.common import InputError
from mpifl.wings.site import Identity, has_signed
from mpifl.wings.sites.letters import FileMark
from mpifl.wire import Count, Message, Name

PURPOSE = "request"
"""The purpose of a signature."""
MOST_FILES = 1 << 16
"""Files of one side of a site."""
MOST_LISTING = 32 << 20
"""Bytes of a listing."""
STEP = 1 << 14
"""Bytes that are read at a time, those of a record of TLS: what has come before a cut is kept."""
_SIGNED = re.compile(r"mpifl ([0-9a-f]{64}) ([0-9a-f]{128})", re.ASCII)

Marks: TypeAlias = Annotated[dict[Name, list[int]], Field(max_length=MOST_FILES)]


class Listing(Message):
    """The files of a site, by name: what it has put, and what the coordinator has."""

    up: Marks
    down: Marks


class Have(Message):
    """How much of a file the server has.

    Attributes:
        have: Bytes that need not be sent again.
        mark: The file's mark once all is there.
    """

    have: Count
    mark: list[int] | None = None


def authorization(identity: Identity, run: str, method: str, target: str) -> str:
    """Return the header `Authorization` of a request.

    Args:
        target: Path and query behind the run.
    """
    return f"mpifl {identity.public} {identity.sign(PURPOSE, _said(run, method, target))}"


def signer_of(header: str, keys: Container[str], run: str, method: str, target: str) -> str | None:
    """Return which of some public keys has signed a request, None if none has."""
    found = _SIGNED.fullmatch(header)
    if found is None or found[1] not in keys:
        return None
    return found[1] if has_signed(found[1], PURPOSE, found[2], _said(run, method, target)) else None


def text_of(mark: FileMark) -> str:
    """Return a mark as a request names it."""
    return "-".join(map(str, mark))


def key_of_certificate(der: bytes) -> str:
    """Return the sha256 of a certificate's public key (SubjectPublicKeyInfo, DER); a renewed certificate may
    keep it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(der).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def key_in(certificate: Path) -> str:
    """Return the key of the first certificate in a PEM file; see `key_of_certificate`.

    Raises:
        InputError: it is not there, or has none.
    """
    found = None
    try:
        text = certificate.read_text("ascii")
        found = re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
        return (
            key_of_certificate(ssl.PEM_cert_to_DER_cert(found[0]))
            if found
            else _no(certificate, "it has none")
        )
    except OSError as error:
        return _no(certificate, error.strerror or str(error))
    except ValueError as error:
        return _no(certificate, str(error)[:120])


def _no(certificate: Path, why: str) -> str:
    raise InputError(f"{certificate}: holds no certificate in PEM ({why}); name the file of the server's")


def _said(run: str, method: str, target: str) -> bytes:
    """Return the bytes that are signed."""
    return repr([run, method, target]).encode()
