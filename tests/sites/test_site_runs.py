"""Runs over sites, each with an mpirun of its own: the model has the bits of one world, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import tomli_w
from conftest import ranks
from faults.processes import Command
from links.https_ends import CuttingProxy
from sites import kit
from sites.driver import SitesRun, sha256
from sites.replay import replayed

from mpifl.run.job import read_job
from mpifl.wings.privacy import SiteFolder
from mpifl.wings.sites.consents import add_consent, read_consents

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2"], "west": [f"silo {k}" for k in range(3, 7)]}


OTHER_ROUNDING = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
"""What has the same training end with other bits on a processor with AVX2."""


def job_of(folder: Path, shards: Path, algorithm: str, /, rounds: int = 4, **tables: object) -> Path:
    """Write a small job with an algorithm whose silos keep states."""
    usual = {
        "name": "sites",
        "shards": str(shards),
        "seed": 7,
        "rounds": rounds,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [16]},
        "local": {"lr": 0.1, "batch_size": 16},
        "algorithm": {"name": algorithm},
        "checkpoint": {"every": 2},
    }
    path = folder / f"{algorithm}.toml"
    path.write_text(tomli_w.dumps(usual | tables))
    return path


def in_one_world(folder: Path, job: Path, *, masks: bool = False, n: int = 1) -> str:
    plain = read_job(job).secure and not masks  # the same bits without masks
    words = ["--set", "security.masks=false"] if plain else []
    done = ranks(n, "-m", "mpifl", "train", job, "--out", folder / "one", *words)
    assert done.returncode == 0, done.stderr
    return sha256(folder / "one" / "model.safetensors")


def records_of(run):
    return [json.loads(line) for line in (run.run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("algorithm", "tables"),
    [
        ("ditto", {"security": {}}),
        *(pytest.param(name, {}, marks=pytest.mark.slow) for name in ("fedavg", "scaffold")),
    ],
)
def test_the_bits_of_one_world_over_the_worst_copier(algorithm, tables, tmp_path, digits):
    """All is asked again of sites, of which one rounds otherwise by then: a masked run was lost."""
    job = job_of(tmp_path, digits / "many", algorithm, rounds=2, **tables)
    die = {kit.COORDINATOR: {"before the checkpoint": 1}}
    with SitesRun(tmp_path / "over", job, digits / "many", copier=1, die=die, sites=SITES) as run:
        run.until_dead(kit.COORDINATOR, "before the checkpoint")
        for name in (*SITES, kit.COORDINATOR):
            run.more = OTHER_ROUNDING if name == "north" else {}
            run.kill(name)
            run.start(name)
        run.finish()
    said = run.running["north"].out
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job)
    assert run.starts == 8
    assert said.count("it was answered before") >= 2, said
    assert said.count("which computes other bits") == 1, said
    told = run.running[kit.COORDINATOR]
    assert (told.out + told.err).count(
        "sites compute other bits of the same two steps (north; south, west)"
    ) == 1


SHAPES = {"1x1": (1, 1), "2x1": (2, 1), "3x2": (3, 2), "4x3": (4, 3)}
"""How many sites there are, and how many ranks each has."""
EXAMPLES = {"clip": 1.0, "noise": 1.0, "delta": 1e-4}
OF_SILOS = {"level": "silo", "clip": 1.0, "noise": 0.5, "delta": 1e-2}
NOISED = {"evaluate": {"silos": False}, "threads": 1}
"""A question under `[privacy]` names the threads of its rank."""
MANY: dict[str, dict[str, object]] = {
    "fedavg": {},
    "fedprox": {"algorithm": {"name": "fedprox", "mu": 0.1}},
    "scaffold": {"algorithm": {"name": "scaffold"}},
    "fednova": {"algorithm": {"name": "fednova"}, "local": {"lr": 0.1, "batch_size": 16, "momentum": 0.9}},
    "ditto": {"algorithm": {"name": "ditto", "lambda": 0.5}},
    "qfedavg": {"algorithm": {"name": "qfedavg", "q": 1.0}},
    "median": {"aggregation": {"rule": "median"}},
    "krum": {"aggregation": {"rule": "krum", "byzantine": 1}},
    "qsgd": {"compression": {"upload": "qsgd", "bits": 4, "error_feedback": True}},
    "rule and codec": {"aggregation": {"rule": "median"}, "compression": {"upload": "bfloat16"}},
    "masks": {"security": {"least": 2, "colluding": 0.25}},
    "noise": {**NOISED, "privacy": EXAMPLES},
    "noise under masks": {**NOISED, "privacy": EXAMPLES, "security": {"least": 1}},
    "noise in masks": {
        **NOISED,
        "algorithm": {"name": "fedsgd"},
        "privacy": {**EXAMPLES, "noise_at": "sum"},
        "security": {"least": 1},
    },
    "noise of silos": {**NOISED, "cohort": {"weights": "uniform"}, "privacy": OF_SILOS},
    "noise of silos in masks": {
        **NOISED,
        "cohort": {"weights": "uniform"},
        "privacy": {**OF_SILOS, "noise_at": "sum"},
        "security": {"least": 1},
    },
}
"""The algorithms, rules, codecs, masks and noise that are to have the bits of one world."""


def sites_of(count: int) -> dict[str, list[str]]:
    """Return sites with the seven silos, dealt out in turn."""
    names = ["north", "south", "west", "east"][:count]
    return {name: [f"silo {k}" for k in range(nth, 7, count)] for nth, name in enumerate(names)}


ALWAYS = (("rule and codec", "4x3"), ("noise in masks", "2x1"))
"""Those of them that are tried each time."""


def draws_of(run: SitesRun, folder: Path) -> None:
    """Have a world and all parties draw by one secret, and the world's server as the coordinator."""
    SiteFolder(folder / "secret")
    for home in (
        *(kit.home(run.base, name) for name in run.sites),
        run.run / "privacy",
        folder / "one/privacy",
    ):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "key").touch(mode=0o600)
        (home / "key").write_bytes((folder / "secret" / "key").read_bytes())


def charged(folder: Path) -> list[tuple[object, ...]]:
    """What a ledger has counted, whatever the order of silos that work at once."""
    path = folder / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [tuple(one[key] for key in ("silo", "round", "question", "answer", "total")) for one in lines]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(name, shape, marks=() if (name, shape) in ALWAYS else pytest.mark.slow)
        for name in MANY
        for shape in SHAPES
        if name != "masks" or shape != "1x1"
    ],
)
def test_the_same_bits_for_any_sites_and_ranks(name, shape, tmp_path, digits, monkeypatch):
    """Over the worst copier; of three ranks of a site the third counts as another node. By noise the sites'
    ledgers have together what that of one world has."""
    count, ranks_of_site = SHAPES[shape]
    tables = {"algorithm": {"name": "fedavg"}, **MANY[name]}
    job = job_of(tmp_path, digits / "many", name.split()[0], rounds=2, **tables)
    sites = sites_of(count)
    run = SitesRun(tmp_path / "over", job, digits / "many", copier=count, sites=sites, ranks=ranks_of_site)
    if name.startswith("noise"):
        monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "secret"))
        draws_of(run, tmp_path)
    with run:
        run.more_of = {one: {"MPIFL_RANKS_PER_NODE": "2"} for one in sites}
        run.finish()
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job, masks="noise" in name)
    counted = sorted(line for one in sites for line in charged(kit.home(run.base, one)))
    assert counted == sorted(charged(tmp_path / "secret"))
    assert bool(counted) is (name in ("noise", "noise under masks", "noise in masks"))


def ended(server: Command) -> Command:
    """Ask a server to end."""
    for pid in server.living():
        os.kill(pid, signal.SIGTERM)
    return server.end()


@pytest.mark.parametrize("way", ["https", pytest.param("copier", marks=pytest.mark.slow)])
def test_parties_that_die_or_are_asked_to_end_go_on_to_the_same_bits(way, tmp_path, digits):
    """Points at which random kills have never met a party, and a signal; scripts/site_kills.py has more.
    Over HTTPS the server dies, too, and a proxy cuts each connection of one site."""
    job = job_of(tmp_path, digits / "many", "scaffold", rounds=3)
    die = {
        kit.COORDINATOR: {"ask is put": 3},
        "north": {"states are kept": 2},
        "west": {"answered is noted": 2},
    }
    https, proxy = way == "https", CuttingProxy(after=20_000)
    seed = None if https else 2
    run = SitesRun(tmp_path / "over", job, digits / "many", copier=seed, die=die, sites=SITES, https=https)
    run.more_of = {"west": {"HTTPS_PROXY": proxy.url}}
    with run:
        run.until_round(1)
        run.signal("south")
        if https:
            run.server.kill()
            time.sleep(0.2)
            run.serve()
        run.finish()
        said = ended(run.server) if https else None
    proxy.close()
    assert (proxy.cuts > 5) is https
    if said is not None:
        assert (said.code, said.err) == (0, "")
        assert sorted(said.out.splitlines()[1:]) == [f"{name} is connected" for name in sorted(SITES)]
        assert not [*run.links["north"].glob("[0-9a-f]*")], "its folder has the invitation alone"
    assert sha256(run.run / "model.safetensors") == in_one_world(tmp_path, job)
    died = sorted(f"{path.parent.name}: {path.name}" for path in run.base.glob("died-*/*"))
    assert died == [
        "died-bern: ask-is-put",
        "died-north: states-are-kept",
        "died-west: answered-is-noted",
    ]
    assert run.starts == 4 + len(died) + 1 + 2 * https
    assert run.codes["south"] == [75]


@pytest.mark.slow
def test_rounds_go_on_without_a_site_that_is_away_and_with_it_when_it_is_back(tmp_path, digits, monkeypatch):
    """Its late sum counts, also for a coordinator that dies when it comes."""
    cohort = {"quorum": 0.5, "deadline": 4.0, "late": "next", "late_rounds": 1000}
    tables = {"cohort": cohort, "evaluate": {"silos": False}, "checkpoint": {"every": 1}}
    job = job_of(tmp_path, digits / "many", "fedavg", rounds=400, **tables)
    die = {kit.COORDINATOR: {"missed is noted": 1, "the answer is kept": 1}}
    with SitesRun(tmp_path / "over", job, digits / "many", die=die, sites=SITES) as run:
        run.until_round(2)
        run.kill("south")
        run.until(lambda: run.told("south", "away_since"), held="south")
        run.start("south")
        run.until(lambda: not run.told("south", "away_since"))
        run.until(lambda: run.codes.get(kit.COORDINATOR, [])[1:])
        run.until_round(run.rounds + 2)
        run.signal(kit.COORDINATOR)
        assert run.running[kit.COORDINATOR].end().code == 75
    said = run.running[kit.COORDINATOR].err + run.running[kit.COORDINATOR].out
    assert "correct it" not in said
    away = [one for one in records_of(run) if "away_since" in one["sites"]["south"]]
    assert away
    assert {tuple(one["faults"]) for one in away[1:-1]} == {("2",)}
    late = [
        one["sites"]["south"]["late_round"]
        for one in records_of(run)
        if "late_round" in one["sites"]["south"]
    ]
    assert late == [away[0]["round"]]
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "secret"))
    assert replayed(tmp_path / "again", job, SITES, run.run)


@pytest.mark.slow
def test_a_site_that_is_bound_to_a_sum_leaves_and_the_others_go_on(tmp_path, digits):
    """The coordinator then goes back behind the round that was made without it."""
    tables = {"security": {"least": 2, "colluding": 0.2}, "cohort": {"quorum": 0.5}}
    job = job_of(tmp_path, digits / "many", "scaffold", rounds=3, checkpoint={"every": 1}, **tables)
    die = {"south": {"before the release": 3}, kit.COORDINATOR: {"before the checkpoint": 2}}
    with SitesRun(tmp_path / "over", job, digits / "many", die=die, sites=SITES) as run:
        run.until_dead("south", "before the release")
        words = "-m", "mpifl", "withdraw", run.base / "link", "--yes"
        home = kit.home(run.base, "south")
        left = Command(run.base / "commands" / "left", 1, *words, MPIFL_SITE=str(home)).end()
        assert left.code == 0, left.err
        run.until_dead(kit.COORDINATOR, "before the checkpoint")
        said = run.running[kit.COORDINATOR].out + run.running[kit.COORDINATOR].err
        run.start(kit.COORDINATOR)
        for name in (kit.COORDINATOR, "north", "west"):
            assert run.running[name].end().code == 0, run.said()
        again = run.start("south").end()
    assert "is not handed over, ever" in left.out
    why = "site 'south' has left the run"
    faults = [one["faults"] for one in records_of(run)]
    assert faults == [{}, {}, {"2": why}], "round 2 is made again over the silos of its sum alone"
    assert [one["parties"] for one in records_of(run)] == [3, 2, 2]
    assert "south has left the run; it takes no part in it any more" in said
    assert read_consents(home) == []
    kept = sorted(path.name for path in (home / "runs").glob("*/*") if not path.name.startswith("."))
    assert kept == ["journal.jsonl", "outbox", "run.key", "welcome.json"]
    assert (again.code, "no job of it is in consent.toml" in again.err) == (2, True)


@pytest.mark.slow
def test_a_site_leaves_over_https_and_the_others_go_on(tmp_path, digits):
    """It has a folder with the invitation alone, and its word goes to the server."""
    job = job_of(tmp_path, digits / "many", "fedavg", rounds=200, cohort={"quorum": 0.5})
    with SitesRun(tmp_path / "over", job, digits / "many", sites=SITES, https=True) as run:
        run.until_round(1)
        run.kill("south")
        home, words = kit.home(run.base, "south"), ("-m", "mpifl", "withdraw", run.links["south"], "--yes")
        left = Command(run.base / "commands" / "left", 1, *words, MPIFL_SITE=str(home)).end()
        assert left.code == 0, left.err
        run.until(lambda: "2" in records_of(run)[-1]["faults"])
        run.until_round(run.rounds + 2)
        run.signal(kit.COORDINATOR)
        assert run.running[kit.COORDINATOR].end().code == 75
    said = run.running[kit.COORDINATOR].out + run.running[kit.COORDINATOR].err
    assert "south has left the run; it takes no part in it any more" in said
    assert records_of(run)[-1]["faults"] == {"2": "site 'south' has left the run"}
    assert read_consents(home) == []


@pytest.mark.slow
def test_the_same_sites_are_invited_to_another_run(tmp_path, digits):
    """Each has its keys, consents and ledgers of the first; the second has the bits of one world, too."""
    first = job_of(tmp_path, digits / "many", "fedavg", rounds=2, security={})
    with SitesRun(tmp_path / "over", first, digits / "many", sites=SITES) as run:
        run.finish()
    (tmp_path / "next").mkdir()
    for name in (kit.COORDINATOR, *SITES):
        kit.home(tmp_path / "over", name).rename(kit.home(tmp_path / "next", name))
    second = job_of(tmp_path, digits / "many", "scaffold", rounds=2, security={})
    with SitesRun(tmp_path / "next", second, digits / "many", sites=SITES) as again:
        again.finish()
    assert sha256(again.run / "model.safetensors") == in_one_world(tmp_path, second)
    home = kit.home(again.base, "north")
    runs = {json.loads(line)["run"] for line in (home / "sent.jsonl").read_text().splitlines()}
    assert (len(runs), len(read_consents(home))) == (2, 2)


@pytest.mark.slow
def test_a_site_whose_consent_is_used_up_says_no_and_ends(tmp_path, digits):
    job = job_of(tmp_path, digits / "many", "fedavg", cohort={"quorum": 0.5})
    run = SitesRun(tmp_path / "over", job, digits / "many", sites=SITES)
    (consent,) = read_consents(kit.home(run.base, "south"))
    add_consent(kit.home(run.base, "south"), consent.model_copy(update={"questions": 3}))
    with run:
        assert run.running["south"].end().code == 2
        assert run.running[kit.COORDINATOR].end().code == 0
    told = run.running["south"].err
    assert "consent.toml: questions = 3 for job" in told
    assert "Consent to more, or stop" in told
    why = "site 'south' answers nothing any more: its consent does not cover the question"
    assert [one["faults"] for one in records_of(run)] == [{}, {}, {"2": why}, {"2": why}]
