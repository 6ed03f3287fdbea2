"""Sites in one process, without letters: the model has the bits of one world over the same silos."""

from pathlib import Path

import pytest
from unit.builders import Alone, write_folder

from mpifl.data.shards import read_federation
from mpifl.run.job import check_job
from mpifl.training import build
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.sites.asking_worker import CameBack
from mpifl.wings.sites.coordinator_wing import Coordinator
from mpifl.wings.sites.site_member import SiteMember
from mpifl.wings.sites.site_ranks import SiteRanks
from mpifl.wire import Report, read_request

SITES_OF = {
    "north": ["silo_0000.h5", "silo_0003.h5"],
    "south": ["silo_0001.h5"],
    "west": ["silo_0002.h5", "silo_0004.h5"],
}


class Here:
    """Asks sites in this process; each has its own folder and starts anew as often as it is told to."""

    def __init__(self, folder, job, away=lambda site, n: False, anew=lambda site, n: False):
        self.folder, self.job, self.away, self.anew = folder, job, away, anew
        self.n, self.places, self.running = 0, {}, {}

    def begin(self, job, spec, elements):
        ids = {entry.name: silo for silo, entry in enumerate(spec.silos)}
        self.silos = {site: frozenset(ids[name] for name in names) for site, names in SITES_OF.items()}

    def opened(self):
        return {}

    def asked(self, request, vectors, base, named):
        self.n += 1
        found = {}
        for site, digests in base.items():
            if self.away(site, self.n):
                found[site] = "away"
                continue
            if self.anew(site, self.n):
                self.running.pop(site, None)
            known = self.places.setdefault(site, {})
            if site not in self.running:
                self.running[site] = member(self.folder / site, self.job, SITES_OF[site], known)
            keep_from = min((known[one] for one in named[site]), default=self.n)
            told = read_request(request.encode())
            answer = self.running[site].answer(
                self.n, told, {k: v.clone() for k, v in vectors.items()}, digests, keep_from
            )
            known |= dict.fromkeys(answer.states.values(), self.n)
            report = Report.model_validate_json(Report(headers=list(answer.replies)).encode())
            names = [(name, window) for window, name in answer.sums]
            found[site] = CameBack(report, names, [v.clone() for v in answer.sums.values()], answer.states)
        return found

    def listen(self, note):
        pass

    def figures(self):
        return {}

    def told(self):
        return {}


def member(folder, job, silos, places):
    """Return a site's ranks; here there is one."""
    spec = read_federation(Path(job.shards)).model_copy(update={"test": None})
    wings = lambda job: [*of_core(job), SiteMember(job, "run", silos)]  # noqa: E731
    plan = build.plan_of(job, spec, folder, wings(job))
    made = build.build_planned(job, lambda: plan, Alone(), wings)
    answering = SiteRanks(made.exchange, places)
    assert answering.open() == {}
    return answering


def of_core(job):
    return [wing for wing in wings_of(job) if wing.name != "site"]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return how to make a job, and to train it in one world or over sites."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "secret"))
    write_folder(tmp_path / "shards", [9, 14, 6, 11, 8], test=12, silos_test=5)

    def job(**tables):
        plain = {
            "name": "toy",
            "shards": str(tmp_path / "shards"),
            "rounds": 4,
            "model": {"name": "mlp", "hidden": [6]},
        }
        usual = {
            "local": {"lr": 0.1, "batch_size": 4},
            "checkpoint": {"every": 2},
            "tracking": {"console": False},
        }
        return check_job({**plain, **usual, **tables}, "the job")

    return job


def bits(run):
    return (run / "model.safetensors").read_bytes()


def over_sites(job, run, resume=False, **more):
    here = Here(run.with_name(f"{run.name}-sites"), job, **more)
    train(job, run, (), resume, Alone(), wings_of=lambda job: [*of_core(job), Coordinator(job, here)])
    return here


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": {"name": "scaffold"}},
        {
            "algorithm": {"name": "ditto", "lambda": 0.5},
            "local": {"lr": 0.1, "epochs_by_silo": [1, 2, 1, 3, 1]},
        },
    ],
    ids=lambda tables: tables.get("algorithm", {}).get("name", "fedavg"),
)
def test_the_bits_of_one_world(made, tmp_path, tables):
    job = made(**tables)
    train(job, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    over_sites(job, tmp_path / "run")
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    over_sites(job, tmp_path / "anew", anew=lambda site, n: n % 2 == len(site) % 2)
    assert bits(tmp_path / "anew") == bits(tmp_path / "one")
