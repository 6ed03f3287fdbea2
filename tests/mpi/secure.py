"""Run on every rank: trainings under masks, one after another, with a wire that is tapped, and with a server
or a party that cheats. What each rank took in and each silo answered lies in OUT/SCENE.RANK.pickle.

python secure.py SHARDS OUT
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pickle
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import scenarios
import tomli_w
import torch
from torch import Tensor

import mpifl.exchange.broadcast
from mpifl import Cohort, FedAvg, Server, Silo, Update
from mpifl.common import InputError, Misled, RoundLost
from mpifl.data.shards import read_federation
from mpifl.exchange.server_side import place
from mpifl.sums import Averaging
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.masked import MaskedParty
from mpifl.wings.masked.fixed_sum import FixedSum
from mpifl.wings.masked.release_phases import Phases
from mpifl.wings.site import make_identity
from mpifl.wire.launching.joining import abort_world, world
from mpifl.wire.memory import SEALS
from mpifl.wire.transport import Transport

Change = Callable[[Any], Any]
TOLD = 3
"""The rank that is told something else than the others, or cheats: it leads no node."""
SWAPPED = 2
"""The rank whose key the server swaps."""
PATIENCE = 2.0
"""Seconds that are waited for a late rank."""
GUESSED = "5e" * 32
"""A session key of the server's own."""


class AsksTwice(FedAvg):
    """A server that asks a round again without its last silo, as if that had died, and forgets what was
    released."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        mean = cohort.mean(self.train, w=server.state["w"])
        federation: Any = cohort.federation  # type: ignore[attr-defined]
        federation.knowledge = dataclasses.replace(federation.knowledge, averaging=Averaging())
        fewer: Any = dataclasses.replace(cohort, silos=cohort.silos[:-1], attempt=1000)  # type: ignore[type-var]
        fewer.mean(self.train, w=server.state["w"])
        return mean.scalars


class OneHasIt(FedAvg):
    """Silo 0 alone has a number, as where it alone has both classes of a curve."""

    def train(self, silo: Silo, **message: Any) -> Update:
        update = super().train(silo, **message)
        lone = 0.75 if silo.id == 0 else float("nan")
        return dataclasses.replace(update, scalars={**update.scalars, "lone": lone})


class Tap:
    """What a rank takes in and what its silos answer, in one training.

    Attributes:
        told: What others sent it: by what way, and the bytes.
        answers: What its silos answered: round, work, silo, weight, vectors and scalars.
        totals: At the server, each sum that came out, before it was divided.
        handed: How often this rank's sum left it.
        open_memory: For each moment, how much of a silo's answer can be read in this rank's shared memory.
    """

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []
        self.answers: list[dict[str, Any]] = []
        self.totals: list[dict[str, Tensor]] = []
        self.handed = 0
        self.open_memory: list[tuple[str, float]] = []


TAP = Tap()
RANK = -1
CHANGES: dict[str, Change] = {}
"""What is done otherwise in this training, by what it is done to."""
_real_digest, _truly_told = mpifl.exchange.broadcast.heard_after, [b""]
_real = {
    (kind, name): getattr(kind, name)
    for kind, names in (
        (
            Transport,
            ("_next_buffer", "read", "broadcast_record", "attested", "broadcast_vector", "hand_over"),
        ),
        (FixedSum, ("accumulate", "parts", "combine", "_result", "_hand_over", "_readiness")),
        (Phases, ("release",)),
        (MaskedParty, ("release", "mask")),
    )
    for name in names
}


def _next_buffer(transport: Any, rank: Any, tag: int, until: Any, limit: int) -> Any:
    found = _real[Transport, "_next_buffer"](transport, rank, tag, until, limit)
    if found:
        TAP.told.append((f"tag {tag}", bytes(found[1])))
    return found


def _read(transport: Any, rank: int, handle: int, length: int, dtype: Any) -> Tensor:
    found: Tensor = _real[Transport, "read"](transport, rank, handle, length, dtype)
    TAP.told.append(("memory", found.numpy().tobytes()))
    return found


def _broadcast_record(transport: Any, record: bytes | None = None) -> bytes:
    told: bytes = _real[Transport, "broadcast_record"](transport, record)
    _truly_told[0] = told
    heard = json.loads(told) if told.startswith(b"{") else {}
    what = "verdict" if "accepted" in heard else "job" if "spec" in heard else heard.get("work", "")
    return json.dumps(CHANGES[what](heard)).encode() if what in CHANGES else told


def _heard_after(heard: str, record: bytes) -> str:
    """A server that tells a rank otherwise knows what it told it."""
    return _real_digest(heard, _truly_told[0])


def _attested(transport: Any, record: bytes, rank: int) -> bytes:
    """A server that tells a rank of another job attests what it tells."""
    try:
        return bytes(_real[Transport, "attested"](transport, record, rank))
    except Misled:
        if "job" not in CHANGES:
            raise
        return record


def _broadcast_vector(transport: Any, *arguments: Any) -> Tensor:
    found: Tensor = _real[Transport, "broadcast_vector"](transport, *arguments)
    return CHANGES["vector"](found) if "vector" in CHANGES else found


def _hand_over(transport: Any, rank: int, content: Any, stamp: Any) -> bool:
    if "tail" in CHANGES and isinstance(content, bytes) and not content.startswith(b"{"):
        content = CHANGES["tail"](content)
    return bool(_real[Transport, "hand_over"](transport, rank, content, stamp))


def _accumulate(sums: Any, silo: int, update: Any) -> Any:
    request = sums._request
    vectors = {name: getattr(v, "vector", v).clone() for name, v in update.vectors.items()}
    found = {"round": request.round, "attempt": request.attempt, "work": request.work, "silo": silo}
    TAP.answers.append({**found, "weight": update.weight, "vectors": vectors, "scalars": update.scalars})
    return _real[FixedSum, "accumulate"](sums, silo, update)


def _parts(sums: Any) -> Any:
    found = _real[FixedSum, "parts"](sums)
    return CHANGES["parts"](found) if "parts" in CHANGES else found


def _combine(sums: Any, transport: Any, verdict: Any) -> Any:
    _look_at_memory("before the verdict")
    if "room" in CHANGES:  # before the others hear that the sums lie there
        transport.done = lambda serial: (CHANGES["room"](sums), type(transport).done(transport, serial))
    try:
        combined = _real[FixedSum, "combine"](sums, transport, verdict)
    finally:
        transport.__dict__.pop("done", None)
    _look_at_memory("after the sum")
    return combined


def _result(sums: Any, plan: Any, totals: Any, tails: Any, silos: int) -> Any:
    TAP.totals.append({name: total.clone() for name, total in totals.items()})
    return _real[FixedSum, "_result"](sums, plan, totals, tails, silos)


def _leaves(sums: Any, plan: Any, own: Any) -> Any:
    _look_at_memory("released")
    if "leaving" in CHANGES:
        CHANGES["leaving"](sums)
    TAP.handed += 1
    return _real[FixedSum, "_hand_over"](sums, plan, own)


def _readiness(sums: Any, transport: Any, verdict: Any, plan: Any, own: Any) -> Any:
    _look_at_memory("getting ready")
    if "ready" in CHANGES:
        CHANGES["ready"](sums)
    return _real[FixedSum, "_readiness"](sums, transport, verdict, plan, own)


def _release(phases: Any, told: Any, ranks: Any) -> Any:
    found = _real[Phases, "release"](phases, told, ranks)
    if "released" in CHANGES:
        CHANGES["released"](told)
    return found


def _noted(party: Any) -> None:
    _real[MaskedParty, "release"](party)
    _look_at_memory("noted")


def _mask(party: Any, sums: Any) -> None:
    _look_at_memory("about to mask")
    _real[MaskedParty, "mask"](party, sums)


def _look_at_memory(moment: str) -> None:
    """Note the largest correlation of what other ranks can open with what a silo of this rank answered."""
    delta = [one["vectors"]["delta"] for one in TAP.answers if "delta" in one["vectors"]]
    if not delta:
        return
    found = 0.0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not str(entry.readlink()).startswith("/memfd:"):
                continue
            content = entry.read_bytes()
        except OSError:
            continue
        for dtype in (torch.float32, torch.float64, torch.int64) if content else ():
            values = torch.frombuffer(bytearray(content), dtype=dtype).double().nan_to_num(0, 0, 0)
            found = max(found, *(_alike(values, one.double()) for one in delta[-4:]))
    TAP.open_memory.append((moment, found))


def _alike(values: Tensor, delta: Tensor) -> float:
    if len(values) < len(delta):
        return 0.0
    pair = torch.stack([values[: len(delta)], delta])
    return float(torch.corrcoef(pair).nan_to_num()[0, 1].abs())


def _patch() -> None:
    mpifl.exchange.broadcast.heard_after = _heard_after
    for (kind, name), act in zip(
        _real,
        (
            _next_buffer,
            _read,
            _broadcast_record,
            _attested,
            _broadcast_vector,
            _hand_over,
            _accumulate,
            _parts,
            _combine,
            _result,
            _leaves,
            _readiness,
            _release,
            _noted,
            _mask,
        ),
        strict=True,
    ):
        setattr(kind, name, act)


@dataclasses.dataclass
class Scene:
    """A training: what is otherwise than in the job `masked`, and what some ranks are told or do otherwise.

    Attributes:
        tables: Of the job.
        ranks: Of those who are told or do otherwise.
        changes: What.
        patience: Seconds that ranks are waited for.
        sites: Whether each party has a site of its own, with a list of all.
    """

    tables: dict[str, Any] = dataclasses.field(default_factory=dict)
    ranks: Sequence[int] = (TOLD,)
    changes: dict[str, Change] = dataclasses.field(default_factory=dict)
    patience: float = 60.0
    sites: bool = False


def _last_bit(w: Tensor) -> Tensor:
    """Return a copy whose first element differs in its last bit, where these are weights."""
    if w.dtype is not torch.float32:
        return w
    changed = w.clone()
    changed[0] = torch.nextafter(changed[0], torch.tensor(9.0))
    return changed


def _without(nth: int) -> Change:
    def changed(heard: dict[str, Any]) -> dict[str, Any]:
        left = [silo for k, silo in enumerate(heard["accepted"]) if k != nth]
        return {**heard, "accepted": left}

    return changed


def _planned(change: Callable[[dict[str, Any]], None]) -> Change:
    def changed(heard: dict[str, Any]) -> dict[str, Any]:
        for plan in heard["pieces"]:
            change(plan)
        return heard

    return changed


def _swap_key(plan: dict[str, Any]) -> None:
    plan["parties"][str(SWAPPED)]["offer"]["key"] = GUESSED


def _unsign(plan: dict[str, Any]) -> None:
    plan["parties"][str(SWAPPED)]["offer"] |= {"key": GUESSED, "site": "", "signature": ""}


def _asking_for(plan: dict[str, Any]) -> None:
    plan["scalars"].append("lone")


def _lying_of_all(plan: dict[str, Any]) -> None:
    _asking_for(plan)
    for part in plan["parties"].values():
        part["scalars"] = ["lone", "train_loss"]


def _longer(plan: dict[str, Any]) -> None:
    plan["vectors"][0]["length"] += 1


def _with_range(heard: dict[str, Any]) -> dict[str, Any]:
    job = json.loads(heard["job"])
    job["security"]["range"] = 1024.0
    return {**heard, "job": json.dumps(job)}


def _spoil(sums: Any) -> None:
    next(iter(sums._rooms.values()))[5] += 1 << 40
    next(iter(sums._rooms.values()))[-1] += 1


def _in_nothing(parts: Any) -> Any:
    """Say that all sums will lie in an empty file, sealed as a segment is."""
    file = os.memfd_create("mpifl", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return [one.model_copy(update={"vectors": dict.fromkeys(one.vectors, file)}) for one in parts]


def _mark(name: str) -> Change:
    return lambda told: (OUT / name).touch()


def _sleep_until(name: str) -> Change:
    """Have a rank of the first attempt wait until a mark is there, which the server makes."""

    def sleep(sums: Any) -> None:
        until = time.monotonic() + 60
        while not (OUT / name).exists() and time.monotonic() < until:
            time.sleep(0.02)

    return sleep


OPEN = {"security": {"masks": False}}
LONE = {"algorithm": {"name": "secure:OneHasIt"}}
OTHERS = [rank for rank in range(1, 5) if rank != SWAPPED]
SCENES = {
    "masked": Scene(),
    "open": Scene({**OPEN, "seed": 2000}),
    "plain": Scene({"security": None}),
    # who asks again
    "another-cohort": Scene({"seed": 2000, "cohort": {"fraction": 0.7}}),
    "asks-twice": Scene({"algorithm": {"name": "secure:AsksTwice"}}),
    "asks-twice-open": Scene({"algorithm": {"name": "secure:AsksTwice"}, **OPEN}),
    # what one rank is told otherwise
    "told-w": Scene(changes={"vector": _last_bit}),
    "told-set": Scene(changes={"verdict": _without(6)}),
    "counted-out": Scene(ranks=range(1, 5), changes={"verdict": _without(0)}),
    "told-plan": Scene(changes={"verdict": _planned(_longer)}),
    "told-range": Scene(changes={"job": _with_range}),
    "told-key": Scene(changes={"verdict": _planned(_swap_key)}),
    # a number that one party has
    "lone": Scene(LONE),
    "lone-open": Scene({**LONE, **OPEN}),
    "lone-asked": Scene(LONE, ranks=range(1, 5), changes={"verdict": _planned(_asking_for)}),
    "lone-lied": Scene(LONE, ranks=range(1, 5), changes={"verdict": _planned(_lying_of_all)}),
    # who says who they are
    "signed": Scene({"seed": 2000}, sites=True),
    "swapped": Scene(ranks=OTHERS, changes={"verdict": _planned(_swap_key)}, sites=True),
    "unsigned": Scene(ranks=OTHERS, changes={"verdict": _planned(_unsign)}, sites=True),
    # what a party hands over
    "tail-short": Scene(changes={"tail": lambda tail: tail[:-8]}),
    "tail-garbage": Scene(changes={"tail": lambda tail: random.Random(1).randbytes(len(tail))}),
    "room-garbage": Scene(changes={"room": _spoil}),
    "room-empty": Scene(changes={"parts": _in_nothing}),
    "late": Scene(
        ranks=(0, TOLD),
        changes={"released": _mark("late.mark"), "ready": _sleep_until("late.mark")},
        patience=PATIENCE,
    ),
}
if os.environ.get("MPIFL_SLOW"):
    SCENES["late-when-released"] = Scene(
        changes={"leaving": lambda sums: time.sleep(3 * PATIENCE)}, patience=1.0
    )


def job_of(nth: int, scene: Scene) -> scenarios.Job:
    """The job of a scene: by default with a seed of its own, and all silos in each of its rounds."""
    usual = {"security": {}, "seed": 2000 + nth, "cohort": {}, "evaluate": {"silos": False}}
    tables = {name: table for name, table in {**usual, **scene.tables}.items() if table is not None}
    return {**scenarios.job("secure", shards="many", rounds=2), **tables}


def make_sites(out: Path, shards: Path, size: int) -> None:
    """Make a site for each party, which knows all of them."""
    entries = read_federation(shards / "many").silos
    placed = place([entry.examples["train"] for entry in entries], range(1, size))
    names = {rank: [entries[k].name or f"silo {k}" for k in silos] for rank, silos in placed.items()}
    listed = []
    for rank, silos in sorted(names.items()):
        folder = out / f"site{rank}"
        folder.mkdir(mode=0o700)
        listed.append(make_identity(folder, f"hospital {rank}").listing(silos))
    for rank in names:
        (out / f"site{rank}" / "sites.toml").write_text("\n".join(listed))


def play(name: str, nth: int, shards: Path, transport: Transport) -> str:
    """Train as a scene says; return why it came to nothing, if so."""
    global TAP
    scene, TAP = SCENES[name], Tap()
    CHANGES.clear()
    CHANGES.update(scene.changes if RANK in scene.ranks else {})
    os.environ["MPIFL_SITE"] = str(OUT / (f"site{RANK}" if scene.sites else "site"))
    transport.transfer_timeout = scene.patience
    file = OUT / f"{name}.toml"
    if transport.is_server:
        file.write_text(tomli_w.dumps({**job_of(nth, scene), "shards": str(shards / "many")}))
    try:
        train(file, OUT / name, (), False, transport, wings_of=wings_of)
    except (InputError, RoundLost) as error:
        return str(error)
    finally:
        (OUT / f"{name}.{RANK}.pickle").write_bytes(pickle.dumps(vars(TAP)))
    return ""


def main() -> None:
    global RANK
    shards, transport = Path(sys.argv[1]), world()
    RANK = transport.rank
    if transport.is_server:
        OUT.mkdir()
        make_sites(OUT, shards, transport.size)
    _patch()
    said = {name: play(name, nth, shards, transport) for nth, name in enumerate(SCENES)}
    if transport.is_server:
        (OUT / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    sys.modules["secure"] = sys.modules["__main__"]
    OUT = Path(sys.argv[2])
    try:
        main()
    except Exception:
        traceback.print_exc()
        abort_world(1)
        raise
