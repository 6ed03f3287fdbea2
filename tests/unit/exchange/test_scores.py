"""The workers score the server's test set, and the server believes nothing of it that it can check.

The world is one process, in which every rank has a model of its own.
"""

import base64
import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import CPU, batch_norm_net, make_worker, net, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server, scored_here
from mpifl.common.errors import InputError
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import open_shard, read_federation
from mpifl.exchange.server_side.admission import ExpectedUpdates, screened
from mpifl.exchange.server_side.report_reading import Refused, read
from mpifl.learning.tasks import TASKS
from mpifl.run.job.tables import Evaluate
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.wings.scoring import wing
from mpifl.wire.requests import KeepTestSet, ScoreBatches, read_request

EXAMPLES, SIZE = 47, 5


class Shifted(FedAvg):
    """Has an objective of its own."""

    def objective(self, module, x, y):
        return self.task.objective(module, x, y) + 1


JOB = SimpleNamespace(evaluate=Evaluate(where="workers"))


class World:
    """What the server reaches its workers by; `spoil` changes what they report."""

    def __init__(self, folder, ranks, algorithm, make):
        spec = read_federation(folder)
        models = [FlatModel(make(seed=rank)) for rank in range(ranks)]
        self.workers = [
            make_worker(folder, spec, algorithm, model, silos=[], rank=rank)
            for rank, model in enumerate(models)
        ]
        self.wings = [wing(JOB) for _ in self.workers]
        for one, scoring in zip(self.workers, self.wings, strict=True):
            one.aggregators |= scoring.aggregators(one._context, one._transport)
        self.scores = self.workers[0].aggregators[ScoreBatches]
        hosts = range(1, ranks) if ranks > 1 else range(1)
        self.transport = SimpleNamespace(workers=hosts, origins=list(range(ranks)))
        self.membership = SimpleNamespace(unreliable=set())
        self.spoil, self.asked = {}, []
        shard = open_shard(folder, spec.test, spec)["test"]
        self.server = Server(
            [models[0]],
            state={"w": FlatModel(make(seed=9)).shared.clone()},
            test=Batches(shard, spec.features, CPU),
            own_objective=algorithm.own_objective,
            evaluation_batch=SIZE,
        )
        if len(models[0].statistics):
            self.server.state["statistics"] = FlatModel(make(seed=8)).statistics.read() + 0.5
        self.notes = []

    def attempt(self, nth=0):
        return nth

    def exchange(self, request, vectors):
        asked = read_request(request.encode())
        self.asked.append(asked)
        reports = {rank: one.answer(asked, dict(vectors)) for rank, one in enumerate(self.workers)}
        for rank, report in reports.items():
            if isinstance(asked, ScoreBatches) and (spoil := self.spoil.get(rank)):
                report = spoil(report)
            if report is not None:
                accept = functools.partial(self.scores.accept, None, rank)
                came = report if isinstance(report, Refused) else read(report.encode())
                screened(came, asked, f"rank {rank}", [], ExpectedUpdates(), accept)

    def score(self):
        self.wings[0].begin(self.server, self, lambda text, once=None: self.notes.append(text))
        return self.again()

    def again(self):
        return self.server.evaluate(self.server.state["w"])


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, [10] * 2, test=EXAMPLES)
    return tmp_path


def world_of(folder, ranks=3, algorithm=None, make=net):
    return World(folder, ranks, algorithm or FedAvg(), lambda seed: make(seed=seed))


def bits(score):
    return score.loss.hex(), {name: value.hex() for name, value in score.metrics.items()}, score.examples


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 14])
@pytest.mark.parametrize("algorithm", [FedAvg, Shifted])
@pytest.mark.parametrize("make", [net, batch_norm_net])
def test_the_score_has_the_bits_of_the_servers_own(folder, ranks, algorithm, make):
    world = world_of(folder, ranks, algorithm(), make)
    here = world.again()
    assert bits(world.score()) == bits(here)
    assert bits(world.again()) == bits(here)
    assert [type(one) for one in world.asked] == [KeepTestSet, ScoreBatches, ScoreBatches]
    dealt = [number for rank in range(ranks) for number in world.asked[1].of(rank)]
    assert sorted(dealt) == list(range(10))
    assert not world.notes


def test_an_unreliable_rank_is_dealt_nothing_and_a_new_world_is_sent_the_test_set_again(folder):
    world = world_of(folder)
    here = world.again()
    world.membership.unreliable = {2}
    assert bits(world.score()) == bits(here)
    assert world.asked[-1].dealt == [1]
    world.transport.origins = [0, 1, 3]
    assert bits(world.again()) == bits(here)
    assert [type(one) for one in world.asked] == [KeepTestSet, ScoreBatches] * 2
    world.membership.unreliable = {1, 2}
    assert bits(world.again()) == bits(here)
    assert len(world.asked) == 4


def part(**changes):
    """A report whose share of the score is changed."""

    def spoil(report):
        one = report.parts[0]
        made = {key: act(getattr(one, key)) if callable(act) else act for key, act in changes.items()}
        return report.model_copy(update={"parts": [one.model_copy(update=made)]})

    return spoil


def numbers(act):
    def changed(text):
        found = np.frombuffer(base64.b64decode(text)).copy()
        return base64.b64encode(np.ascontiguousarray(act(found)).tobytes()).decode()

    return changed


def put(value, at=0):
    def act(found):
        found[at] = value
        return found

    return numbers(act)


LIES = {
    "more": (part(rows=numbers(lambda found: np.append(found, 1.0))), "numbers of batches have"),
    "fewer": (part(rows=numbers(lambda found: found[:-3])), "numbers of batches have"),
    "nan": (part(rows=put(np.nan)), "numbers of batches are not finite"),
    "inf": (part(whole=put(np.inf)), "whole numbers are not finite"),
    "negative": (part(rows=put(-1.0, at=1)), "is not a count"),
    "fraction": (part(rows=put(0.5, at=1)), "is not a count"),
    "half": (part(whole=put(1.5)), "its whole numbers are none"),
    "large": (part(whole=put(1e300)), "its whole numbers are none"),
    "examples": (part(examples=24), "it has scored 24 examples, and was asked for 2"),
    "words": (part(rows="#" * 40), "cannot be read"),
    "dtype": (part(counted="object"), "cannot be read"),
    "fault": (part(fault="no such layer"), "no such layer"),
    "twice": (lambda report: report.model_copy(update={"parts": report.parts * 2}), "2 shares"),
    "none": (lambda report: report.model_copy(update={"parts": []}), "0 shares"),
    "unread": (lambda report: Refused("it cannot be read"), "no answer that could be read"),
    "silence": (lambda report: None, "no answer that could be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_wrong_or_missing_is_scored_by_the_server(folder, lie):
    spoil, why = LIES[lie]
    world = world_of(folder)
    here = world.again()
    world.spoil[2] = spoil
    assert bits(world.score()) == bits(here)
    (note,) = world.notes
    assert note.startswith("round 0: the server scores what rank 2 was to: ")
    assert why in note


def test_a_rank_that_was_not_asked_says_nothing(folder):
    world = world_of(folder)
    here = world.again()
    sent = {}

    def steal(report):
        sent["parts"] = report.parts
        return report

    world.spoil = {1: steal, 0: lambda report: report.model_copy(update={"parts": sent.get("parts", [1])})}
    assert bits(world.score()) == bits(here)
    assert 0 not in world.scores.shares


class Fails(nn.Module):
    """A model that fails on some ranks: it has no memory for many examples, or makes a mistake."""

    def __init__(self, seed, raises):
        super().__init__()
        self.inner, self._seed, self._raises, self.seen = net(seed=seed), seed, raises, []

    def forward(self, x):
        self.seen.append(len(x))
        if error := self._raises(self._seed, len(x)):
            raise error
        return self.inner(x)


def test_a_worker_that_fails_costs_its_share_alone(folder):
    odd = lambda rank, n: KeyError("odd") if rank == 2 else None  # noqa: E731
    world = world_of(folder, make=lambda seed: Fails(seed, odd))
    here = world.again()
    assert bits(world.score()) == bits(here)
    assert world.notes == ["round 0: the server scores what rank 2 was to: KeyError: 'odd'"]


def test_figures_that_are_not_finite_are_the_servers_to_find(folder):
    world = world_of(folder)
    world.server.state["w"][0] = torch.nan
    here = world.again()
    assert bits(world.score()) == bits(here)
    assert [note.rpartition(": ")[2] for note in world.notes] == ["its figures are not finite"] * 2


def test_by_auto_fewer_examples_are_scored_at_a_time_where_a_workers_memory_is_short(folder):
    short = lambda rank, n: MemoryError("no room") if rank and n > 13 else None  # noqa: E731
    world = world_of(folder, make=lambda seed: Fails(seed, short))
    world.server.evaluation_batch = "auto"
    found = world.score()
    assert [one.size for one in world.asked[1:]] == [1000, 500, 250, 125, 62, 31, 15, 7]
    assert not world.notes
    world.server.scored_by, world.server.evaluation_batch = scored_here, 7
    assert bits(found) == bits(world.again())


def test_a_worker_keeps_numbers_alone(folder):
    world = world_of(folder)
    here = world.again()
    world.score()
    arrays = [one.model_copy(update={"dtype": "object"}) for one in world.asked[0].arrays]
    spec = {"vectors": world.asked[0].vectors, "arrays": arrays}
    given = {one.name: torch.zeros(one.length, dtype=torch.uint8) for one in world.asked[0].vectors}
    world.workers[2].answer(KeepTestSet(**spec), given)
    assert bits(world.again()) == bits(here)
    assert "is not a dtype of numbers" in world.notes[0]


def test_a_metric_that_does_not_add_up_is_refused():
    told = {"classes": None, "silos": [], "features": None}
    targets = SimpleNamespace(dtype="float32", shape=(2,), ignore=None, names=None)
    task = TASKS["survival"]().for_federation(SimpleNamespace(targets=targets, **told))
    with pytest.raises(
        InputError, match=r"^\[evaluate\] where = 'workers': .* 'c_index' .*; leave where out, or"
    ):
        wing(JOB).check(None, FedAvg(task=task))
    wing(JOB).check(None, FedAvg())
