"""Secrets that two parties share for one start of a training; the server hands around what they offer."""

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
    """What a party has all others know: the public half of its session key, and for which silos it answers.

    Attributes:
        site: The site's name, "" without an identity.
        silos: The names of the party's silos.
        key: An X25519 key, 64 hexadecimal digits.
        signature: The site's over all of this and the run, 128 hexadecimal digits; "" without an identity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    site: Annotated[str, StringConstraints(max_length=64)] = ""
    silos: Annotated[list[SiloName], Field(min_length=1, fail_fast=True)]
    key: PublicKey
    signature: Signature = ""

    @property
    def told(self) -> str:
        """Say whose it is, as messages do."""
        silos = ", ".join(repr(silo) for silo in self.silos[:3]) + (", ..." if len(self.silos) > 3 else "")
        return f"site {self.site!r} (silos {silos})" if self.site else f"the party of silos {silos}"


class Session:
    """A party's session key, and the secrets that it comes to share with all others.

    Attributes:
        offer: What the others are to know.
    """

    def __init__(
        self, run: str, silos: Sequence[str], identity: Identity | None = None, sites: Sites | None = None
    ) -> None:
        """Make a fresh key.

        Args:
            run: What the training is known by; signatures are for it alone.
            silos: The names of this party's silos.
            identity: Signs the offer, where there is one.
            sites: The sites whose signed offers are accepted; without them any offers are.

        Raises:
            InputError: a silo has no name. Or there are sites, and this one has no identity, or is not listed
                with it and its silos.
        """
        if sites is not None and identity is None:
            what = "lists the sites, and this one has no key; make it by `mpifl identity make`"
            raise InputError(f"{sites.path}: {what}")
        self._run, self._sites = run, sites
        self._exchange = Exchange()
        self.offer = self._offered(list(silos), identity)
        self._check_signed(self.offer)
        self._secrets: dict[_Content, bytes] = {}
        """Of each offer that was found good; the same offers come with each exchange."""

    def agree(self, offers: Mapping[int, Offer], own: int) -> dict[int, bytes]:
        """Return the secrets that this party shares with all others, by rank.

        Args:
            offers: Those of all parties, by rank, this one's among them.
            own: This party's rank.

        Raises:
            InputError: an offer is not what its site has signed, claims what is another's, or is none of this
                session's own.
        """
        self._check_own(offers.get(own))
        _check_apart(offers)
        return {rank: self._secret(one) for rank, one in offers.items() if rank != own}

    def _offered(self, silos: list[str], identity: Identity | None) -> Offer:
        site, key = identity.name if identity else "", self._exchange.public.hex()
        try:
            unsigned = Offer(site=site, silos=silos, key=key)
        except ValidationError:
            what = "names of 1 to 1024 characters for each of its silos, of which it has at least one"
            raise InputError(f"a party under masks has {what}; not {str(silos)[:200]}") from None
        signature = identity.sign(self._said(unsigned)) if identity else ""
        return unsigned.model_copy(update={"signature": signature})

    def _said(self, offer: Offer) -> bytes:
        """Return what a site signs: an encoding that only this run and this offer have."""
        said = ["mpifl session", self._run, offer.site, offer.silos, offer.key]
        return json.dumps(said, separators=(",", ":")).encode()

    def _check_own(self, offer: Offer | None) -> None:
        if offer is None or _content(offer) != _content(self.offer):
            what = "hands around another offer of it" if offer else "leaves its offer out"
            told = f"{self.offer.told}: the server {what}"
            raise InputError(f"{told}; nothing is sent. Ask who runs the server")

    def _secret(self, offer: Offer) -> bytes:
        """Return the secret shared with the party of an offer, which is checked."""
        content = _content(offer)
        if content not in self._secrets:
            self._check_signed(offer)
            try:
                self._secrets[content] = self._exchange.shared(bytes.fromhex(offer.key))
            except ValueError:
                what = f"{offer.told}: its session key {offer.key[:8]}... gives a secret that all know"
                raise InputError(f"{what}; nothing is sent. Ask who made it") from None
        return self._secrets[content]

    def _check_signed(self, offer: Offer) -> None:
        """See that a site that is listed has signed an offer of its own silos; without a list all do."""
        sites = self._sites
        if sites is None:
            return
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
        if not sites.signed(offer.site, offer.signature, self._said(offer)):
            what = f"its offer is not signed for this run by the key that {sites.path} has for it"
            raise InputError(f"{offer.told}: {what}; ask that site what `mpifl identity show` prints")


def _content(offer: Offer) -> _Content:
    return offer.site, tuple(offer.silos), offer.key, offer.signature


def _check_apart(offers: Mapping[int, Offer]) -> None:
    """See that no silo and no key is offered twice."""
    claimed: dict[tuple[str, str], Offer] = {}
    for _, offer in sorted(offers.items()):
        for claim in [("session key", offer.key), *(("silo", silo) for silo in offer.silos)]:
            if claim in claimed:
                what = f"{claim[0]} {claim[1]!r} is offered twice, by {claimed[claim].told} and {offer.told}"
                raise InputError(f"{what}; each party offers its own, under names that differ")
            claimed[claim] = offer
