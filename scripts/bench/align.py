"""What an alignment of random ids takes: seconds by the clock, and of the processor for each rank.

Each party has n ids, of which two in three are common to all. The whole command is timed, from the tables to
the shards, but for the imports of a rank.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import save, start_ranks


def lay_out(folder: Path, parties: int, ids: int) -> None:
    """Write the parties' tables of two columns, their specs, a key and the terms."""
    names = [f"party{party}" for party in range(parties)]
    common, own = ids * 2 // 3, ids - ids * 2 // 3
    for party, name in enumerate(names):
        rng = np.random.default_rng(party)
        numbers = np.concatenate([np.arange(common), common + party * own + np.arange(own)])
        shuffled = rng.permutation(numbers)
        lines = [f"patient-{n:010d},{x:.3f},{n % 2}" for n, x in zip(shuffled, rng.random(ids), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["person,a,late", *lines]) + "\n")
        label = 'label = "late"\n' if party == 0 else ""
        (folder / f"{name}.toml").write_text(f'{label}[features]\na = "numeric"\n')
    (folder / "terms.toml").write_text(f'name = "bench"\nparties = {names}\nlabels = "party0"\n')
    (folder / "key").write_text("a key of many bytes\n")
    (folder / "key").chmod(0o600)


def take_part(folder: Path, plain: bool, threads: int) -> None:
    """Align as one of the ranks, and write down what that took."""
    from data_prep.site import PartyTable  # noqa: F401
    from mpifl.cli.align import AlignParty, Comparer  # noqa: F401
    from mpifl.cli.align_command import align
    from mpifl.wire import Transport  # noqa: F401

    tables, keys = sorted(folder.glob("party*.csv")), [folder / "key"] if plain else []
    wall, cpu = time.perf_counter(), time.process_time()
    given = {"table": tables, "id": ["person"], "plain": plain, "key": keys, "threads": threads}
    align(folder / "terms.toml", folder / "out", **given)
    taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    from mpifl.cli.ending import rank

    (folder / f"taken_{rank()}.json").write_text(json.dumps(taken))


def measure(parties: int, ids: int, plain: bool, threads: int) -> dict[str, Any]:
    """Align once in a scratch folder, and return the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, parties, ids)
        program = [str(Path(__file__).resolve()), "--rank", str(folder), "--threads", str(threads)]
        program += ["--plain"] * plain
        start_ranks(program, parties + 1, 900, folder / "log")
        taken = [json.loads((folder / f"taken_{rank}.json").read_text()) for rank in range(parties + 1)]
    cpu = [one["cpu"] for one in taken]
    figures = {"wall": max(one["wall"] for one in taken)}
    figures |= {"cpu of rank 0": cpu[0], "cpu of a party": max(cpu[1:])}
    per_id = 1e6 * figures["cpu of a party"] / ids
    return {"parties": parties, "ids": ids, "plain": plain, "threads": threads, **figures, "us an id": per_id}


def show(case: dict[str, Any]) -> None:
    """Print the figures of one case."""
    how = "keyed hashes" if case["plain"] else "masks"
    of_party = f"CPU of a party {case['cpu of a party']:.1f} s ({case['us an id']:.0f} us an id)"
    print(
        f"{case['parties']} parties x {case['ids']:,} ids by {how}: {case['wall']:.1f} s; {of_party},",
        end=" ",
    )
    print(f"of rank 0 {case['cpu of rank 0']:.1f} s")


def main() -> None:
    """Align by masks and by keyed hashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--ids", type=int, nargs="+", default=[10_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="A few hundred ids, to see that it works.")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--rank", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        take_part(given.rank, given.plain, given.threads)
        return
    sizes = [300] if given.quick else given.ids
    cases = [measure(given.parties, ids, plain, given.threads) for ids in sizes for plain in (False, True)]
    for case in cases:
        show(case)
    save(given.json, {"cases": cases})


if __name__ == "__main__":
    sys.exit(main())
