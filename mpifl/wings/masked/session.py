"""Secrets that pairs of parties share for one start of a training; the server passes their offers on.

Over sites they hold for one run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from mpifl.common import InputError
from mpifl.wings.site import Exchange, Identity, PublicKey, SiloName, Sites

Signature = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{128})?$")]
_Content = tuple[str, tuple[str, ...], str, str]


class Offer(BaseModel):
    """What a party tells all others: its public session key, and the silos for which it answers.

    Attributes:
        site: The site's name, "" without an identity.
        silos: The names of the party's silos.
        key: A public X25519 key, 64 hexadecimal digits.
        signature: The site's signature of all this and the run, 128 hexadecimal digits; "" without an
            identity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    site: Annotated[str, StringConstraints(max_length=64)] = ""
    silos: Annotated[list[SiloName], Field(min_length=1, fail_fast=True)]
    key: PublicKey
    signature: Signature = ""

    @property
    def told(self) -> str:
        """The party's name in messages."""
        silos = ", ".join(repr(silo) for silo in self.silos[:3]) + (", ..." if len(self.silos) > 3 else "")
        return f"site {self.site!r} (silos {silos})" if self.site else f"the party of silos {silos}"


class Session:
    """A party's session key, and the secrets that it shares with the other parties.

    Attributes:
        offer: This party's offer.
    """

    def __init__(
        self,
        run: str,
        silos: Sequence[str],
        identity: Identity | None = None,
        sites: Sites | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Make the offer for a session key.

        Args:
            run: The digest of the run; a signature is valid for this run only.
            silos: The names of this party's silos.
            identity: Signs the offer; None leaves it unsigned.
            sites: The sites whose signed offers are accepted; None accepts any offers.
            exchange: The party's session key; by default a new one.

        Raises:
            InputError: a silo has no valid name. Or `sites` is given, and this site has no identity or is not
                listed with it and its silos.
        """
        if sites is not None and identity is None:
            what = "lists the sites, and this one has no key; make it by `mpifl identity make`"
            raise InputError(f"{sites.path}: {what}")
        self._run, self._sites = run, sites
        self._exchange = exchange or Exchange()
        self.offer = self._offered(list(silos), identity)
        if sites is not None:
            check_signed(run, self.offer, sites)
        self._secrets: dict[_Content, bytes] = {}
        """The secrets of valid offers. The same offers come with each request."""

    def agree(self, offers: Mapping[int, Offer], own: int) -> dict[int, bytes]:
        """Return the secrets that this party shares with each other party, by rank.

        Args:
            offers: The offers of all parties by rank, including this party's.
            own: This party's rank.

        Raises:
            InputError: an offer is not validly signed, or claims a silo or key of another party. Or the offer
                under this party's rank is missing or not this session's.
        """
        offer = offers.get(own)
        if offer is None or _content(offer) != _content(self.offer):
            what = "hands around another offer of it" if offer else "leaves its offer out"
            told = f"{self.offer.told}: the server {what}"
            raise InputError(f"{told}; nothing is sent. Ask who runs the server")
        _check_apart(offers)
        return {rank: self._secret(one) for rank, one in offers.items() if rank != own}

    def _offered(self, silos: list[str], identity: Identity | None) -> Offer:
        site, key = identity.name if identity else "", self._exchange.public.hex()
        try:
            unsigned = Offer(site=site, silos=silos, key=key)
        except ValidationError:
            what = "names of 1 to 1024 characters for each of its silos, of which it has at least one"
            raise InputError(f"a party under masks has {what}; not {str(silos)[:200]}") from None
        signature = identity.sign("session", _said(self._run, unsigned)) if identity else ""
        return unsigned.model_copy(update={"signature": signature})

    def _secret(self, offer: Offer) -> bytes:
        """Check an offer, and return the secret shared with its party."""
        content = _content(offer)
        if content not in self._secrets:
            if self._sites is not None:
                check_signed(self._run, offer, self._sites)
            try:
                self._secrets[content] = self._exchange.shared(bytes.fromhex(offer.key))
            except ValueError:
                what = f"{offer.told}: its session key {offer.key[:8]}... gives a secret that all know"
                raise InputError(f"{what}; nothing is sent. Ask who made it") from None
        return self._secrets[content]


def check_signed(run: str, offer: Offer, sites: Sites) -> None:
    """Check that a listed site has signed an offer, for its own silos.

    Args:
        run: The digest of the run.

    Raises:
        InputError: it has not.
    """
    if not (offer.site and offer.signature):
        wanted = "make its key by `mpifl identity make`, and list it"
        raise InputError(f"{offer.told}: its offer is not signed, and {sites.path} lists sites; {wanted}")
    if offer.site not in sites.by_name:
        wanted = "add what `mpifl identity show` prints there"
        raise InputError(f"{offer.told}: {sites.path} has no such site; {wanted}")
    for silo in offer.silos:
        if (owner := sites.owner(silo)) != offer.site:
            whose = f"is of site {owner!r}" if owner else "is of no site"
            what = f"silo {silo!r} {whose} in {sites.path}"
            raise InputError(f"{offer.told}: {what}; correct the list, or have that site host it")
    if not sites.signed(offer.site, "session", offer.signature, _said(run, offer)):
        what = f"its offer is not signed for this run by the key that {sites.path} has for it"
        raise InputError(f"{offer.told}: {what}; ask that site what `mpifl identity show` prints")


def _said(run: str, offer: Offer) -> bytes:
    """Return the bytes that a site signs; they differ for each run and offer."""
    said = [run, offer.site, offer.silos, offer.key]
    return json.dumps(said, separators=(",", ":")).encode()


def _content(offer: Offer) -> _Content:
    return offer.site, tuple(offer.silos), offer.key, offer.signature


def _check_apart(offers: Mapping[int, Offer]) -> None:
    """Check that no silo and no key is offered twice."""
    claimed: dict[tuple[str, str], Offer] = {}
    for _, offer in sorted(offers.items()):
        for claim in [("session key", offer.key), *(("silo", silo) for silo in offer.silos)]:
            if claim in claimed:
                what = f"{claim[0]} {claim[1]!r} is offered twice, by {claimed[claim].told} and {offer.told}"
                raise InputError(f"{what}; each party offers its own, under names that differ")
            claimed[claim] = offer
