"""Kill the parties of runs over sites by SIGKILL, and compare the model with that of one world. Where late
sums count, compare it with what the run's own records lead to.

python -m scripts.site_kills FOLDER --runs 9 --kills 8 --seed 1     # at random instants
python -m scripts.site_kills FOLDER --named                         # at each named point, each party
python -m scripts.site_kills FOLDER --https                         # and the server; a proxy cuts connections
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "mpi")]

from conftest import _write_shards  # noqa: E402
from links.https_ends import CuttingProxy  # noqa: E402
from sites import kit  # noqa: E402
from sites.driver import SitesRun, sha256  # noqa: E402
from sites.replay import replayed  # noqa: E402
from sites.test_site_runs import SITES, in_one_world, job_of  # noqa: E402

JOBS = ("scaffold", "fedavg under masks", "ditto", "scaffold under masks", "fedavg", "fedavg late")
LATE = {"quorum": 0.3, "deadline": 2.0, "late": "next", "late_rounds": 1000}
AT_SITES = (
    "before taken is noted",
    "taken is noted",
    "silos have worked",
    "states are kept",
    "the answer is kept",
    "answer is sealed",
    "before answered is noted",
    "answered is noted",
    "a file is put",
    "answer is put",
)
AT_COORDINATOR = (
    "before asked is noted",
    "asked is noted",
    "a piece lies aside",
    "ask is sealed",
    "a file is put",
    "ask is put",
    "before answered is noted",
    "answered is noted",
    "before the checkpoint",
    "after the checkpoint",
    "hello is noted",
    "welcome is put",
)
LATE_AT_COORDINATOR = ("before missed is noted", "missed is noted", "the answer is kept")
MASKED_AT_SITES = (
    "sums are kept",
    "before the release",
    "the release is noted",
    "share is sealed",
    "share is put",
)
MASKED_AT_COORDINATOR = ("before the sum is released", "the sum is released", "sum is sealed", "sum is put")
"""Points of `tests/sites/dying.py`."""


def at_random(run: SitesRun, kills: int, draw: random.Random) -> list[str]:
    """Kill parties at random instants, and start them again; return whom."""
    done = []
    for _ in range(kills):
        time.sleep(draw.uniform(0.2, 3.0))
        name = draw.choice([kit.COORDINATOR, *run.sites, *["server"] * (run.server is not None)])
        if run.running[kit.COORDINATOR].ended == 0:
            break
        run.server.kill() if name == "server" else run.kill(name)
        done.append(name)
        time.sleep(draw.uniform(0, 1.0))
        run.serve() if name == "server" else run.start(name)
    return done


def held(run: SitesRun, draw: random.Random) -> list[str]:
    """Hold one site after another until its answer is late; start again what dies meanwhile. Return whom."""
    done, coordinator = list[str](), run.running
    run.faults = (1, 2)  # 3 is due: all sites may be dead for so long that a round is lost
    while coordinator[kit.COORDINATOR].ended != 0:
        done.append(name := draw.choice(run.sites))
        run.kill(name)
        until = time.monotonic() + draw.uniform(1.0, 3.0) * LATE["deadline"]
        while time.monotonic() < until and coordinator[kit.COORDINATOR].ended != 0:
            run.revive(held=name)
            time.sleep(0.02)
        run.start(name)
        until = time.monotonic() + draw.uniform(2.0, 6.0)
        while time.monotonic() < until and coordinator[kit.COORDINATOR].ended != 0:
            run.revive()
            time.sleep(0.02)
    return done


def named(draw: random.Random, masked: bool, late: bool) -> dict[str, dict[str, int]]:
    """Return every named point for each party, each at a drawn pass."""
    at_sites = AT_SITES + MASKED_AT_SITES * masked
    found = {name: {point: draw.randint(1, 4) for point in at_sites} for name in SITES}
    of_start = {
        "hello is noted": 1,
        "welcome is put": 1,
        "before the checkpoint": 1,
        "after the checkpoint": 1,
    }
    at_coordinator = AT_COORDINATOR + MASKED_AT_COORDINATOR * masked
    at_coordinator += LATE_AT_COORDINATOR * late
    points = {point: of_start.get(point, draw.randint(1, 4)) for point in at_coordinator}
    return {kit.COORDINATOR: points, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--masked", action="store_true", help="only trainings under masks")
    parser.add_argument("--late", action="store_true", help="only trainings in which late sums count")
    parser.add_argument("--https", action="store_true", help="sites come to a server; no copier")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shards = given.folder / "shards"
    if not shards.exists():
        shards.mkdir(parents=True)
        _write_shards(shards)
    wrong, whole, killed = 0, dict[str, str](), 0
    for nth in range(given.runs):
        draw = random.Random(given.seed + nth)
        jobs = [one for one in JOBS if "masks" in one or not given.masked]
        jobs = [one for one in jobs if "late" in one or not given.late]
        asked = jobs[nth % len(jobs)]
        algorithm, masked, late = asked.split()[0], "masks" in asked, "late" in asked
        tables = {"security": {}} if masked else {}
        tables |= {"cohort": LATE, "evaluate": {"silos": False}} if late else {}
        rounds = given.rounds * 10 if late else given.rounds  # they are quick while a site is away
        job = job_of(given.folder, shards / "many", algorithm, rounds, **tables)
        if asked not in whole and not late:
            shutil.rmtree(given.folder / "one", ignore_errors=True)
            whole[asked] = in_one_world(given.folder, job)
        base = Path(tempfile.mkdtemp(dir=given.folder))
        os.environ["MPIFL_SITE"] = str(base / "secret")
        die = named(draw, masked, late) if given.named else {}
        seed, proxy = None if given.https else given.seed + nth, CuttingProxy(draw.randint(20_000, 200_000))
        way = {"copier": seed, "https": given.https}
        run = SitesRun(base / "run", job, shards / "many", die=die, sites=SITES, **way)
        run.more_of = {draw.choice(run.sites): {"HTTPS_PROXY": proxy.url}}
        with run:
            done = held(run, draw) if late else [] if given.named else at_random(run, given.kills, draw)
            run.finish(400)
            at = [f"{path.parent.name[5:]}: {path.name}" for path in sorted(run.base.glob("died-*/*"))]
            if late:
                sums = (run.run / "metrics.jsonl").read_text().count('"late_round"')
                at.append(f"{sums} late sums")
                same = replayed(base / "again", job, SITES, run.run)
            else:
                same = sha256(run.run / "model.safetensors") == whole[asked]
        proxy.close()
        deaths = run.starts - 1 - len(SITES) - given.https
        killed, wrong = killed + deaths, wrong + (not same)
        said = "the same bits" if same else "OTHER BITS"
        print(f"{nth}: {asked}: {said} after {deaths} kills: {', '.join(done + at)}", flush=True)
    print(f"{given.runs} runs, {killed} kills, {wrong} with other bits")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
