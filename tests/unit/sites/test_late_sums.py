"""Sums that come after their round, by real letters in one process: they count as FedBuff says, and kills
change nothing."""

from __future__ import annotations

import json
import math
import re

import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from sites import kit
from unit.builders import Alone
from unit.sites.test_questions import SITES_OF, bits, folders, made, member, of_core  # noqa: F401

from mpifl import __version__
from mpifl.algorithms.fedavg import FedAvg
from mpifl.common import InputError
from mpifl.run.folder import checkpoint, read_metrics
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import sites, wings_of
from mpifl.wings.site import identity_of
from mpifl.wings.sites.answers import KeptAnswers
from mpifl.wings.sites.consents import RunHome, read_invitation
from mpifl.wings.sites.letters import (
    AnswerRecord,
    FolderLink,
    HelloRecord,
    HelloSilo,
    Mailbox,
    Post,
    SumHeader,
)
from mpifl.wings.sites.letters.site_journal import Journal
from mpifl.wings.sites.masks import sum_letters
from mpifl.wings.sites.told_job import largest_letter, torch_version
from mpifl.wire import Report

LIFE = "ab" * 16
LATE = {"quorum": 0.5, "deadline": 9.0, "late": "next"}
EXAMPLES = [9, 14, 6, 11, 8]
"""Of each silo; the site south has the second."""


class OneSite:
    """A site that answers letters whenever it is told to look, unless it is held."""

    def __init__(self, run, name, changed):
        self.run, self.name, self.changed, self.last, self.ended = run, name, changed, -1, False
        self.ranks, self.places = None, {}
        told = read_invitation(run.base / "link", kit.key_of(run.base, kit.COORDINATOR))
        home, identity = kit.home(run.base, name), identity_of(kit.home(run.base, name))
        room = RunHome(home, told.run)
        post = Post(told.run, identity, room.key(), told.key, told.run_key, largest_letter(1000, 2))
        link = FolderLink(run.base / "link", identity.public, "up")
        self.box = Mailbox(post, link, room.outbox(told.key))

    def look(self):
        if self.last < 0:
            sizes = [{"train": EXAMPLES[int(name[5:9])], "test": 5} for name in SITES_OF[self.name]]
            silos = [
                HelloSilo(name=name, shard="ab" * 32, sizes=size)
                for name, size in zip(SITES_OF[self.name], sizes, strict=True)
            ]
            versions = {"mpifl": __version__, "torch": torch_version()}
            self.box.dispatch(0, HelloRecord(life=LIFE, name=self.name, silos=silos, **versions))
            self.last = 0
        letter = self.box.newest("ask", after=self.last)
        if letter is not None and self.name not in self.run.held:
            self.answer(letter)

    def answer(self, letter):
        n, ask = letter.n, letter.record
        if self.ranks is None:
            self.ranks = member(self.run.base / self.name, self.run.job, SITES_OF[self.name], self.places)
        names = self.ranks._exchange.names
        base = {silo: ask.base[names[silo]] for silo in self.ranks.silos if names[silo] in ask.base}
        asked = ask.question(letter.vectors)
        answer = self.ranks.answer(n, ask.request, letter.vectors, base, ask.keep_from, question=asked)
        sums, vectors = [*answer.sums], {str(k): one for k, one in enumerate(answer.sums.values())}
        record = AnswerRecord(
            life=LIFE,
            asked=asked,
            report=Report(headers=list(answer.replies)),
            sums=[SumHeader(name=name, window=window) for window, name in sums],
            place=answer.place,
        )
        self.box.dispatch(n, *self.changed(self.name, record, vectors))
        self.box.forget(n)
        self.last, self.ended = n, ask.request.kind == "finish"


class ByLetters:
    """A run over three sites, of which south is held after round 1, and let go after round `until`."""

    def __init__(
        self, base, job, monkeypatch, until=3, changed=lambda name, record, vectors: (record, vectors)
    ):
        self.base, self.until, self.held, self._monkeypatch = base, until, set(), monkeypatch
        base.mkdir()
        path = base / "job.toml"
        path.write_text(tomli_w.dumps(json.loads(job.model_dump_json(exclude_none=True))))
        self.job = read_job(path)
        kit.set_up(base, path, SITES_OF)
        self.sites = {name: OneSite(self, name, changed) for name in SITES_OF}
        monkeypatch.setattr(sum_letters, "looks", self._looks)

    def _looks(self, remind, until=math.inf):
        for _ in range(3):
            for site in self.sites.values():
                site.look()
            yield

    def _told(self, record):
        self.held = {"south"} if 1 <= record["round"] < self.until else set()
        for site in self.sites.values():
            site.look()

    def train(self, resume=False):
        """Have the coordinator train, as a new process of it would."""
        self._monkeypatch.setenv("MPIFL_SITE", str(kit.home(self.base, kit.COORDINATOR)))
        wings = sites.over_sites(self.run, wings_of)
        train(self.job, self.run, (), resume, Alone(), on_round=self._told, wings_of=wings)
        return self

    @property
    def run(self):
        return self.base / "run"

    @property
    def late(self):
        """Round, and what it tells of the late sum of south, for each round that has one."""
        told = [(one["round"], one["sites"]["south"]) for one in read_metrics(self.run)]
        return [(n, one["late_round"], one["late_weight"]) for n, one in told if "late_round" in one]


@pytest.fixture
def by_letters(made, tmp_path, monkeypatch):  # noqa: F811
    """Return how to make a run of five rounds, with a table of [cohort]."""

    def run(name, cohort=LATE, **more):
        job = made(
            cohort=cohort,
            rounds=5,
            checkpoint={"every": 1},
            evaluate={"silos": False},
            tracking={"console": "always"},
        )
        return ByLetters(tmp_path / name, job, monkeypatch, **more)

    return run


class AsFedBuff(FedAvg):
    """FedAvg in which silo 1 is away in rounds 2 and 3, and what it made in round 2 counts in round 4."""

    def round(self, server, cohort):
        there = [silo for silo in cohort.silos if silo != 1] if server.round in (1, 2) else cohort.silos
        mean = cohort.of(there).mean(self.train, w=server.state["w"])
        delta = mean["delta"]
        if server.round == 1:
            server.state["of silo 1"] = cohort.of([1]).mean(self.train, w=server.state["w"])["delta"].clone()
        if server.round == 3:
            total, late = sum(EXAMPLES), EXAMPLES[1]
            delta = (delta * total + server.state["of silo 1"] * late * 3**-0.5) / (total + late)
        self.server_optimizer.step(server.state, delta)
        return mean.scalars


def said(capsys):
    return "".join(capsys.readouterr())


def test_a_late_sum_counts_as_fedbuff_says(made, by_letters, tmp_path, capsys):  # noqa: F811
    oracle = made(algorithm={"name": "unit.sites.test_late_sums:AsFedBuff"}, rounds=5)
    train(oracle, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    run = by_letters("run").train()
    expected, found = (load_file(at / "model.safetensors") for at in (tmp_path / "one", run.run))
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-5, atol=1e-7), name
    assert run.late == [(4, 2, 3**-0.5)]
    never = by_letters("never", {**LATE, "late": "never"}).train()
    assert (bits(never.run) == bits(run.run), never.late) == (False, [])
    told = said(capsys)
    assert "south is back (its sum of round 2 has come)" in told
    assert "south is back (its answer to letter 2 came too late to count)" in told
    assert not any((kit.home(run.base, kit.COORDINATOR) / "runs").glob("*/late/*"))


@pytest.mark.parametrize("why", ["nobody is late", "it is too old", "it is no sum", "a silo failed"])
def test_where_no_late_sum_counts_the_bits_are_those_without_the_key(by_letters, capsys, why):
    held = {"until": 1} if why == "nobody is late" else {}
    never = by_letters("never", {**LATE, "late": "never"}, **held).train()
    capsys.readouterr()

    def changed(name, record, vectors):
        if name == "south" and run.sites["south"].last == 1:
            if why == "it is no sum":
                return record, {key: one + 2.0**-52 for key, one in vectors.items()}
            if why == "a silo failed":
                header = record.report.headers[0].model_copy(update={"fault": "no rows"})
                return record.model_copy(update={"report": Report(headers=[header])}), vectors
        return record, vectors

    more = {"late_rounds": 1} if why == "it is too old" else {}
    run = by_letters("run", {**LATE, **more}, changed=changed, **held)
    run.train()
    assert (bits(run.run) == bits(never.run), run.late) == (True, [])
    line = {
        "nobody is late": "",
        "it is too old": "does not count: it came 2 rounds late, and [cohort] late_rounds = 1",
        "it is no sum": "the report of site 'south' was refused: its sum of 'delta' in window",
        "a silo failed": "does not count: a silo of it failed",
    }[why]
    assert line in said(capsys)


def test_a_site_that_is_away_at_the_end_ends_when_it_is_back(by_letters, capsys):
    """It waited for ever."""
    run = by_letters("run", until=9).train()
    assert [site.ended for site in run.sites.values()] == [True, False, True]
    assert re.search(r"'south' has not taken the model yet; its letter \d+ lies in", said(capsys))
    run.held.clear()
    run.sites["south"].look()
    assert run.sites["south"].ended


DEATHS = [
    (Journal, "note", "missed", "before", 1),
    (Journal, "note", "missed", "after", 1),
    (KeptAnswers, "keep", "/late", "before", 1),
    (KeptAnswers, "keep", "/late", "after", 1),
    (Journal, "note", "asked", "after", 4),
    *((checkpoint, "commit", "", "before", round) for round in (2, 4, 5)),
    *((checkpoint, "commit", "", "after", round) for round in (2, 3, 4)),
]


UNTROUBLED = {}
"""The bits of a run in which nobody died: it is made once."""


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: " ".join(map(str, death[1:])))
def test_a_coordinator_that_dies_counts_the_same_late_sum_once(by_letters, monkeypatch, death):
    """At each line at which it notes or keeps something of it, and around checkpoints."""
    kind, method, of, when, nth = death
    if not UNTROUBLED:
        whole = by_letters("whole").train()
        assert whole.late == [(4, 2, 3**-0.5)]
        UNTROUBLED["bits"] = bits(whole.run)
    run, usual, passes = by_letters("run"), getattr(kind, method), []

    def dies(*given, **more):
        told = str(given[0]._folder) if method == "keep" else given[1]
        passes.append(not of or str(told).endswith(of))
        now = passes[-1] and sum(passes) == nth
        if now and when == "before":
            raise KeyboardInterrupt
        found = usual(*given, **more)
        if now and when == "after":
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(kind, method, dies)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.train(resume=True)
    assert run.late == [(4, 2, 3**-0.5)]
    assert bits(run.run) == UNTROUBLED["bits"]


def test_silos_that_are_not_at_sites_are_not_late(made, tmp_path):  # noqa: F811
    line = r"\[cohort\] late = 'next': only a site may answer after its round.*`mpifl sites init`"
    with pytest.raises(InputError, match=line):
        train(made(cohort=LATE), tmp_path / "run", (), False, Alone(), wings_of=of_core)


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        (
            {"algorithm": {"name": "scaffold"}},
            r"\[algorithm\] name = 'scaffold': takes no late sums: its silos",
        ),
        ({"algorithm": {"name": "ditto"}}, r"\[algorithm\] name = 'ditto': takes no late sums: its silos"),
        ({"security": {}}, r"\[security\]: masks of a round cancel in that round alone"),
        (
            {"local": {"keep_optimizer_state": True, "momentum": 0.5}},
            r"\[local\] keep_optimizer_state = true",
        ),
        ({"cohort": {"late": "next"}}, r"\[cohort\] late = 'next' needs deadline"),
        ({"cohort": {"late_a": 1.0}}, r"\[cohort\] late_a and late_rounds belong to late = 'next'"),
    ],
    ids=str,
)
def test_what_does_not_go_with_late_sums_is_refused_by_name(made, tables, line):  # noqa: F811
    with pytest.raises(InputError, match=line):
        made(**{"cohort": LATE, **tables})
