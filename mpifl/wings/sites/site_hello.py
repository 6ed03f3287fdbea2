"""A site's first letter: who it is, and the silos that it has."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpifl import __version__
from mpifl.common import InputError
from mpifl.data.hdf5 import check_file
from mpifl.data.shards import ShardEntry, read_federation
from mpifl.wings.sites.consents import Invitation, federation_digest
from mpifl.wings.sites.letters import HelloRecord, HelloSilo
from mpifl.wings.sites.told_job import names_of_silos, torch_version


def own_entries(shards: Path, told: Invitation, silos: Sequence[str]) -> dict[str, ShardEntry]:
    """Return the entries of a site's silos, by name.

    Args:
        shards: The folder of the site's shards.
        told: The invitation.
        silos: The names of the silos.

    Raises:
        InputError: `federation.json` is another than the coordinator's, or a file is not there.
    """
    spec = read_federation(shards)
    found = dict(zip(names_of_silos(spec), spec.silos, strict=True))
    if missing := [silo for silo in silos if silo not in found]:
        where = f"{shards}/federation.json has no silo '{missing[0]}'"
        raise InputError(f"{where}, which the invitation has for this site; name its folder by --shards")
    if (digest := federation_digest(spec.model_dump_json())) != told.federation:
        other = f"has digest {digest[:8]}..., the invitation {told.federation[:8]}..."
        what = f"take the coordinator's file, and mpifl {told.mpifl}"
        raise InputError(f"{shards}/federation.json: {other}; {what}")
    entries = {silo: found[silo] for silo in silos}
    for entry in filter(None, (*entries.values(), spec.public)):
        check_file(shards / entry.file, entry.bytes)
    return entries


def hello_of(
    name: str, life: str, entries: Mapping[str, ShardEntry], secret: bytes, ranks: int
) -> HelloRecord:
    """Return a site's hello.

    Args:
        name: The site's name.
        life: The life of its program.
        entries: The entries of its silos, by name.
        secret: The site's secret: a plain digest of a shard would let others check a guess at the data.
        ranks: How many ranks it has.
    """

    def shard(entry: ShardEntry) -> str:
        return hmac.new(secret, entry.sha256.encode(), hashlib.sha256).hexdigest()

    silos = [HelloSilo(name=k, shard=shard(e), sizes=dict(e.examples)) for k, e in entries.items()]
    return HelloRecord(
        life=life,
        name=name,
        silos=silos,
        mpifl=__version__,
        torch=torch_version(),
        about={"ranks": str(ranks)},
    )
