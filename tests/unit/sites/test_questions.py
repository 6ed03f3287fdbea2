"""Sites in one process, without letters: the model has the bits of one world over the same silos."""

import shutil
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from reference.test_kaplanmeier import rows_of, write
from torch import nn
from unit.builders import Alone, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.scaffold import Scaffold
from mpifl.common.errors import InputError
from mpifl.data.shards import read_federation
from mpifl.exchange import OTHER
from mpifl.run.folder import read_environment, read_metrics
from mpifl.run.job import check_job
from mpifl.training import build
from mpifl.training.beforehand import plan_wings
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.sites.answers import KeptAnswers, SiteAnswer, SiteRanks
from mpifl.wings.sites.asking_worker import CameBack
from mpifl.wings.sites.coordinating import coordinators
from mpifl.wings.sites.coordinator_wing import Coordinator
from mpifl.wings.sites.letters import AskRecord
from mpifl.wings.sites.site_member import SiteMember, others_of
from mpifl.wings.sites.told_job import names_of_silos
from mpifl.wire import Done, Report, read_request

SITES_OF = {
    "north": ["silo_0000.h5", "silo_0003.h5"],
    "south": ["silo_0001.h5"],
    "west": ["silo_0002.h5", "silo_0004.h5"],
}


class Here:
    """Asks sites in this process; each has its own folder and starts anew as often as it is told to."""

    def __init__(
        self, folder, job, away=lambda site, asked: False, anew=lambda site, n: False, sites=SITES_OF
    ):
        self.folder, self.job, self.away, self.anew, self.names = folder, job, away, anew, sites
        self.n, self.places, self.running, self.numbers = 0, {}, {}, {}
        self.lent = []

    def begin(self, job, spec, elements):
        ids = {name: silo for silo, name in enumerate(names_of_silos(spec))}
        self.silos = {site: frozenset(ids[name] for name in names) for site, names in self.names.items()}

    def opened(self):
        return {}

    def saved(self, round):
        self.numbers.setdefault(round, self.n)

    def asked(self, question):
        yield from self.came(question).items()

    def came(self, question):
        self.n += 1
        request, found = question.request, {}
        for site, digests in question.base.items():
            if self.away(site, request):
                found[site] = "away"
                continue
            if self.anew(site, self.n):
                self.running.pop(site, None)
            keep_from = question.keep_from(site, self.places.setdefault(site, {}), self.numbers)
            answer = self.answer(site, request, question.vectors, digests, keep_from)
            report = Report.model_validate_json(Report(headers=list(answer.replies)).encode())
            names = [(name, window) for window, name in answer.sums]
            sums = [one.clone() for one in answer.sums.values()]
            singles = {of: one.clone() for of, one in answer.singles.items()}
            self.lent += map(weakref.ref, sums)
            found[site] = CameBack(report, names, sums, answer.states, singles=singles)
        return found

    def answer(self, site, request, vectors, digests, keep_from=0):
        """Return the answer of a site's ranks."""
        known = self.places.setdefault(site, {})
        if site not in self.running:
            self.running[site] = member(self.folder / site, self.job, self.names[site], known)
        told, own = read_request(request.encode()), {k: v.clone() for k, v in vectors.items()}
        asked = digest_of(told, own, digests)
        answer = self.running[site].answer(self.n, told, own, digests, keep_from, question=asked)
        known |= dict.fromkeys(answer.states.values(), answer.place)
        return answer

    def listen(self, note):
        pass

    def figures(self):
        """At the end of a round the coordinator holds no sum: each may be twice as large as the model."""
        assert not [one for one in self.lent if one() is not None]
        return {}

    def told(self):
        return {}


def digest_of(request, vectors, base):
    """Return the digest of a question, as sites make it."""
    told = {str(silo): digest for silo, digest in base.items()}
    return AskRecord(life="ab" * 16, request=request, job="cd" * 32, base=told).question(vectors)


def member(folder, job, silos, places):
    """Return a site's ranks; here there is one."""
    spec = read_federation(Path(job.shards)).model_copy(update={"test": None})
    wings = lambda job: [*others_of(wings_of(job)), SiteMember(job, "run", silos)]  # noqa: E731
    planned = wings(job)
    plan_wings(job, spec, "the job", planned)
    plan = build.plan_of(job, spec, folder, planned)
    made = build.build_planned(job, lambda: plan, Alone(), wings)
    answering = SiteRanks(made.exchange, places, KeptAnswers(folder / "answers"))
    assert answering.open() == {}
    return answering


def of_core(job):
    return [wing for wing in wings_of(job) if wing.name != "site"]


LIVED = {"shards": "lived", "model": {"name": "logreg"}, "task": {"name": "survival"}, "local": {}}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Shards of silos whose names are those of their files; nobody changes them."""
    base = tmp_path_factory.mktemp("questions")
    write_folder(base / "shards", [9, 14, 6, 11, 8], test=12, silos_test=5)
    write_folder(base / "yes or no", [9, 14, 6, 11, 8], classes=2)
    write(base / "lived", *rows_of(), [50, 90, 130, 190], called="silo_{:04d}.h5")
    return base


@pytest.fixture
def made(folders, tmp_path, monkeypatch):
    """Return how to make a job, and to train it in one world or over sites."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "secret"))

    def job(shards="shards", **tables):
        plain = {
            "name": "toy",
            "shards": str(folders / shards),
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
    train(job, run, (), resume, Alone(), wings_of=lambda job: coordinators(job, wings_of(job), here))
    return here


NAMED = ("algorithm", "aggregation", "compression")


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"algorithm": {"name": "scaffold"}},
        {
            "algorithm": {"name": "ditto", "lambda": 0.5},
            "local": {"lr": 0.1, "epochs_by_silo": [1, 2, 1, 3, 1]},
        },
        {
            "shards": "yes or no",
            "model": {"name": "logreg"},
            "task": {"name": "binary"},
            "algorithm": {"name": "newton", "ridge": 1.0},
            "local": {},
        },
        {
            "shards": "yes or no",
            "model": {"name": "logreg"},
            "task": {"name": "binary"},
            "algorithm": {"name": "tableone"},
            "local": {},
            "rounds": 1,
        },
        {
            "shards": "yes or no",
            "model": {"name": "logreg"},
            "task": {"name": "binary"},
            "algorithm": {"name": "dptable", "categories": ["outcome"], "bounds": {"x0": [-1, 1]}},
            "privacy": {"noise": 0.8, "delta": 1e-3},
            "local": {},
            "rounds": 1,
        },
        {**LIVED, "algorithm": {"name": "kaplanmeier", "by": "sex"}, "rounds": 1},
        {**LIVED, "algorithm": {"name": "cox", "strata": "none"}},
        {"aggregation": {"rule": "median"}},
        {"aggregation": {"rule": "krum", "byzantine": 1, "pre": "nnm"}},
        {"aggregation": {"rule": "centered", "tau": 1.0}, "compression": {"upload": "bfloat16"}},
        {
            "algorithm": {"name": "scaffold"},
            "compression": {"upload": "qsgd", "download": "float16", "error_feedback": True},
        },
        {"compression": {"upload": "topk", "share": 0.1}},
    ],
    ids=lambda tables: (
        "-".join(str(next(iter(one.values()))) for name, one in tables.items() if name in NAMED) or "fedavg"
    ),
)
def test_the_bits_of_one_world(made, tmp_path, tables):
    job = made(**tables)
    train(job, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    over_sites(job, tmp_path / "run")
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    told, told_by_one = (read_metrics(tmp_path / run)[-1] for run in ("run", "one"))
    assert all(
        told.get(key) == told_by_one.get(key) for key in ("table", "noised", "survival", "coefficients")
    )
    over_sites(job, tmp_path / "anew", anew=lambda site, n: n % 2 == len(site) % 2)
    assert bits(tmp_path / "anew") == bits(tmp_path / "one")


class Given(nn.Module):
    """A model that begins from given weights."""

    def __init__(self, shape, classes, path):
        super().__init__()
        self.map = nn.Linear(shape[0], classes)
        self.load_state_dict(torch.load(path))

    def forward(self, x):
        return self.map(x)


def test_given_weights_are_scored_before_round_1_over_sites_too(made, tmp_path, capsys):
    torch.save(nn.Linear(4, 3).state_dict(prefix="map."), path := tmp_path / "given.pt")
    given = {"model": {"name": "unit.sites.test_questions:Given", "path": str(path)}, "rounds": 1}
    train(job := made(**given), tmp_path / "one", (), False, Alone(), wings_of=of_core)
    over_sites(job, tmp_path / "run")
    private = made(**given, privacy={"clip": 0.5, "noise": 0.8, "delta": 1e-3, "evaluate_unprotected": True})
    capsys.readouterr()
    over_sites(private, tmp_path / "private")
    one, run, at_server = (
        {key: of for key, of in read_environment(tmp_path / name)["before"].items() if "seconds" not in key}
        for name in ("one", "run", "private")
    )
    assert one == run
    assert {"test_accuracy", "silo_accuracy_pooled"} < run.keys()
    assert at_server == {key: one[key] for key in ("round", "test_loss", "test_accuracy")}
    said = (
        "pretrained weights are not scored at silos before round 1: it would be one score more without noise"
    )
    assert f"{said}; `mpifl evaluate RUN --initial` scores them later" in capsys.readouterr().err


AWAY = {1, 2}


class Failing(Scaffold):
    """SCAFFOLD whose silos 2 and 4, those of the site west, fail in some rounds."""

    def train_corrected(self, silo, w, c):
        if silo.round in AWAY and silo.id in (2, 4):
            raise OSError("away")
        return super().train_corrected(silo, w, c)


def is_away(site, asked):
    return site == "west" and getattr(asked, "work", "") == "train_corrected" and asked.round in AWAY


def test_a_site_that_is_away_equals_silos_that_fail(made, tmp_path):
    quorum = {"cohort": {"quorum": 0.5}}
    failing = made(algorithm={"name": "unit.sites.test_questions:Failing"}, **quorum)
    train(failing, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    job = made(algorithm={"name": "scaffold"}, **quorum)
    over_sites(job, tmp_path / "run", away=is_away)
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    told = read_metrics(tmp_path / "run")
    assert [sorted(record["faults"]) for record in told] == [[], ["2", "4"], ["2", "4"], []]


@pytest.mark.parametrize("name", ["scaffold", "fedavg"])
def test_a_coordinator_that_goes_back_gets_the_same_answers(made, tmp_path, monkeypatch, name):
    """Sites worked a second time for what was answered since the checkpoint, perhaps to other bits."""
    job = made(algorithm={"name": name}, checkpoint={"every": 2, "keep": 1}, rounds=6)
    train(job, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    here, worked, usual = Here(tmp_path / "sites", job), Counter(), SiteRanks._carried_out
    has = {site: tmp_path / "sites" / site / "answers" for site in SITES_OF}

    def counted(self, request, vectors):
        worked[tuple(self.silos), getattr(request, "work", ""), request.round] += 1
        return usual(self, request, vectors)

    monkeypatch.setattr(SiteRanks, "_carried_out", counted)
    wings = lambda job: coordinators(job, wings_of(job), here)  # noqa: E731

    def dies(record):
        if record["round"] in (1, 3, 5) and record["round"] not in died:
            died.append(record["round"])
            here.running.clear()
            raise KeyboardInterrupt

    died = []
    for resume in (False, True, True):
        with pytest.raises(KeyboardInterrupt):
            train(job, tmp_path / "run", (), resume, Alone(), on_round=dies, wings_of=wings)
    most = max(len([*folder.iterdir()]) for folder in has.values())
    assert most <= 8, "two questions a round since the oldest checkpoint"
    train(job, tmp_path / "run", (), True, Alone(), wings_of=wings)
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    assert {*worked.values()} == {1}, worked
    assert not any([*folder.iterdir()] for folder in has.values())


def test_a_state_that_is_not_at_the_site_fails_its_silos_and_no_other(made, tmp_path, capsys):
    job = made(algorithm={"name": "scaffold"}, cohort={"quorum": 0.5})

    class PutBack(Here):
        def came(self, question):
            if self.n == 3:
                self.places["west"] = dict.fromkeys(self.places["west"], 0)
                self.running.pop("west")
            return super().came(question)

    here = PutBack(tmp_path / "sites", job)
    train(
        job,
        tmp_path / "run",
        (),
        False,
        Alone(),
        wings_of=lambda job: coordinators(job, wings_of(job), here),
    )
    faults = [record["faults"] for record in read_metrics(tmp_path / "run")]
    assert faults[0] == {}
    assert sorted(faults[2]) == ["2", "4"]
    assert "it was put back from a copy, or another `mpifl join` of this site runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"security": {"masks": False}}, r"\[security\] masks = false: sites send exact sums"),
        ({"checkpoint": {"mirror": True}}, r"\[checkpoint\] mirror = true"),
        ({"evaluate": {"where": "workers"}}, r"\[evaluate\] where = 'workers'"),
        ({"tracking": {"step_losses": 1}}, r"\[tracking\] step_losses = 1"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_does_not_go_over_sites_is_refused_by_name(made, tmp_path, tables, line):
    job = made(**tables)
    with pytest.raises(InputError, match=f"^the job: {line}"):
        over_sites(job, tmp_path / "run")


class GoesByANumber(FedAvg):
    """Its silos send no such number, as where consents withhold it."""

    def round(self, server, cohort):
        return {"path": cohort.mean(self.train, w=server.state["w"]).scalars["path"]}


def test_a_number_that_no_site_sends_is_told_with_the_consent_that_may_withhold_it(made, tmp_path):
    name = "unit.sites.test_questions:GoesByANumber"
    with pytest.raises(InputError) as refused:
        over_sites(made(algorithm={"name": name}), tmp_path / "run")
    what = f"'{name}' goes by the silos' number 'path', which no site sent; a site withholds what `figures`"
    to_do = "have sites consent by `mpifl consent --figures path`; numbers that came: 'train_loss'"
    assert str(refused.value) == f"{what} of its consent does not name; {to_do}"
    with pytest.raises(InputError) as plain:
        train(made(algorithm={"name": name}), tmp_path / "plain", (), False, Alone(), wings_of=wings_of)
    what = "the algorithm goes by the number 'path', which no silo that counts sent"
    assert str(plain.value) == f"{what}; numbers that came: 'train_loss'"


def test_a_coordinator_is_one_rank(made, tmp_path):
    class Two(Alone):
        size = property(lambda self: 2, lambda self, size: None)

    wing = Coordinator(made(), Here(tmp_path, made()))
    with pytest.raises(InputError, match="2 ranks were started, and a coordinator of sites is one"):
        wing.context(None, {}, Two(), "")


def test_a_silo_with_an_error_has_not_worked():
    """A site told "1 silos worked" of a worker that had failed."""
    names = ["north", "ulm"]
    failed = SiteAnswer(1, [Done(silo=0), Done(silo=1, fault="ValueError: no\nrows", passing=True)])
    assert (failed.worked, failed.first_fault(names)) == (1, "; ulm failed: ValueError: no rows")
    without_words = SiteAnswer(1, [Done(silo=1, fault=OTHER)])
    assert without_words.first_fault(names) == "; ulm failed: its error is told above"
    whole = SiteAnswer(1, [Done(silo=1)])
    assert (whole.worked, whole.first_fault(names)) == (1, "")


def test_a_shard_that_is_written_to_between_rounds_is_no_longer_trained_on(made, folders, tmp_path, capsys):
    """The mapped rows changed, and nothing was said."""
    shards = shutil.copytree(folders / "shards", tmp_path / "shards")
    job = made(shards, cohort={"quorum": 0.5})
    path = shards / "silo_0001.h5"
    whole = path.read_bytes()

    def harmed(record):
        path.touch()
        if record["round"] == 2:
            with path.open("r+b") as file:
                file.seek(len(whole) - 50)
                file.write(bytes(50))

    here = Here(tmp_path / "sites", job)
    wings = lambda job: coordinators(job, wings_of(job), here)  # noqa: E731
    train(job, tmp_path / "run", (), False, Alone(), on_round=harmed, wings_of=wings)
    faults = [record["faults"] for record in read_metrics(tmp_path / "run")]
    assert faults == [{}, {}, *[{"1": "a shard that cannot be read"}] * 2]
    assert "altered, its sha256 is not that in federation.json" in capsys.readouterr().err


def test_an_answer_that_is_kept_is_whole_or_refused(tmp_path):
    kept = KeptAnswers(tmp_path / "answers")
    kept.keep("ab" * 32, SiteAnswer(3, [Done(silo=1, fault="no rows", passing=True)]))
    assert kept.of("ab" * 32) is None
    kept.keep("ab" * 32, SiteAnswer(3, [Done(silo=1)], {(0, "w"): torch.ones(5, dtype=torch.float64)}))
    again = KeptAnswers(tmp_path / "answers").of("ab" * 32)
    assert (again.place, again.replies, again.sums[0, "w"].tolist()) == (3, [Done(silo=1)], [1.0] * 5)
    (path,) = (tmp_path / "answers").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="remove it, and its question is worked for again"):
        kept.of("ab" * 32)
