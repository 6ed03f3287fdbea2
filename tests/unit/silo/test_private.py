"""A private silo: what it answers, what it costs, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from unit.builders import FEATURES, arrays, cross_entropy, make_silo, net

from mpifl.common import InputError
from mpifl.common.machine import processor
from mpifl.data.batches.batches import Batches
from mpifl.data.ragged_arrays import Ragged
from mpifl.data.shards.shards import Split
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Constant, LocalTraining, Proximal
from mpifl.wings.dpsgd import Guard, PrivateSilo
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.privacy import EDITION, Budgets, Draws, SiteFolder

N = 12
LOCAL = LocalTraining(lr=0.1, batch_size=4, steps=3)


def guard(folder, noise=1.0, clip=0.5, limits=(), rounds=10, **more):
    settings = PrivacySettings(clip=clip, noise=noise, delta=0.01, **more)
    budgets = Budgets(limits, "pld")
    return Guard(
        SiteFolder(folder), settings, "toy", "run", rounds, ["a", "b"], ["s", "t"], [noise, noise], budgets
    )


def private(folder, model=None, round=0, id=0, state=None, guarded=None, **more):
    guarded = guarded or guard(folder)
    kinds = {"id": id, "round": round, "state": state or {}, "work": "train"}
    maker = {"model": model or FlatModel(net()), **kinds, **more}
    found = make_silo(**maker, n=N, kind=lambda **given: PrivateSilo(**given, guard=guarded))
    return found


def answered(silo, w=None, settings=LOCAL):
    w = torch.zeros(len(silo.model.trained)) + 0.1 if w is None else w
    silo.ask({"w": w})
    run = silo.train_locally(w, settings)
    told = silo.settle({"delta": run.delta}, {})
    return run, told


def test_the_same_question_has_the_same_answer_and_costs_nothing_again(tmp_path):
    first = answered(private(tmp_path / "site"))
    again = answered(private(tmp_path / "site"))
    assert first[0].delta.equal(again[0].delta)
    assert first[1] == again[1] == {"private_steps": 3.0}
    assert len(SiteFolder(tmp_path / "site").entries()) == 1


@pytest.mark.parametrize(
    "other",
    [{"round": 1}, {"id": 1}, {"work": "other"}, {"state": {"c": 1.0}}, {"state": {"c": torch.ones(3)}}, "w"],
)
def test_another_question_has_noise_of_its_own(tmp_path, other):
    """Without gradients, by a clip of nearly nothing, the answer is the noise alone."""
    guarded = guard(tmp_path / "site", noise=1e6, clip=1e-6)
    one, w = answered(private(tmp_path / "site", guarded=guarded))[0], None
    if other == "w":
        other, w = {}, torch.zeros(len(one.delta)) + 0.1000001
    two = answered(private(tmp_path / "site", guarded=guarded, **other), w)[0]
    assert abs(torch.corrcoef(torch.stack([one.delta, two.delta]))[0, 1]) < 5 / math.sqrt(len(one.delta))
    assert len(SiteFolder(tmp_path / "site").entries()) == 2


def test_what_an_older_edition_was_asked_is_another_question(tmp_path, monkeypatch):
    """Its answer had other noise, so both cost; none is another answer to the same question."""
    guarded = guard(tmp_path / "site", noise=1e6, clip=1e-6)
    new = answered(private(tmp_path / "site", guarded=guarded))[0]
    monkeypatch.setattr("mpifl.wings.dpsgd.private_silo.EDITION", EDITION - 1)
    old = answered(private(tmp_path / "site", guarded=guarded))[0]
    assert abs(torch.corrcoef(torch.stack([new.delta, old.delta]))[0, 1]) < 5 / math.sqrt(len(new.delta))
    assert len({entry.question for entry in SiteFolder(tmp_path / "site").entries()}) == 2


def test_another_answer_to_the_same_question_is_refused(tmp_path):
    answered(private(tmp_path / "site"))
    silo = private(tmp_path / "site")
    silo.ask({"w": torch.zeros(len(silo.model.trained)) + 0.1})
    run = silo.train_locally(torch.zeros(len(silo.model.trained)) + 0.1, LOCAL)
    with pytest.raises(InputError, match=r"the same question would get another answer.* answered it first$"):
        silo.settle({"delta": run.delta * 2}, {})


def test_a_site_that_moved_to_another_processor_is_told_which_one_answered_first(tmp_path, monkeypatch):
    monkeypatch.setattr("mpifl.wings.dpsgd.private_silo.processor", lambda: "old (AVX2)")
    answered(private(tmp_path / "site"))
    assert [entry.processor for entry in SiteFolder(tmp_path / "site").entries()] == ["old (AVX2)"]
    silo = private(tmp_path / "site")
    silo.ask({"w": torch.zeros(len(silo.model.trained)) + 0.1})
    run = silo.train_locally(torch.zeros(len(silo.model.trained)) + 0.1, LOCAL)
    with pytest.raises(InputError) as refused:
        silo.settle({"delta": run.delta * 2}, {})
    assert str(refused.value).endswith(
        f"the machine that answered it first, old (AVX2); this is {processor()}"
    )


def test_a_step_is_the_clipped_sum_with_noise_by_the_expected_batch(tmp_path):
    """The one step of Abadi et al. (2016), written from its definition; noise is taken away again."""
    model = FlatModel(net())
    silo = private(tmp_path / "site", model)
    w = torch.cat([p.detach().flatten() for p in model.parameters]).clone()
    silo.ask({"w": w})
    run = silo.train_locally(w, LocalTraining(lr=1.0, batch_size=4, steps=1))
    secret, purpose = SiteFolder(tmp_path / "site").secret, f"{silo.question} 0"
    drawn = Draws(secret, purpose, 0, "batch").chosen(N, 4 / N)
    x, y = Batches(Split(*arrays(N)), FEATURES, torch.device("cpu")).take(drawn)
    total = torch.zeros(len(w), dtype=torch.float64)
    module = net()
    for i in range(len(drawn)):
        grads = torch.autograd.grad(
            cross_entropy(module, x[i : i + 1], y[i : i + 1]), list(module.parameters())
        )
        flat = torch.cat([g.flatten() for g in grads]).double()
        total += flat * min(1.0, 0.5 / float(flat.norm()))
    noise = Draws(secret, purpose, 0, "noise").normal(len(w)).double() * 1.0 * 0.5
    torch.testing.assert_close(run.delta.double(), -(total + noise) / 4, rtol=1e-4, atol=1e-6)


def test_noise_of_a_training_is_normal_and_of_the_stated_size(tmp_path):
    """Many steps of a silo whose gradients are clipped to nothing beside the noise."""
    way = DPSGD(bytes(32), "p", clip=1e-4, noise=1e4, rate=4 / N, steps=500, expected=4)
    model, examples = FlatModel(net()), Batches(Split(*arrays(N)), FEATURES, torch.device("cpu"))
    found = [
        torch.cat([g.flatten() for g in way.noised(model, cross_entropy, batch)])
        for batch in way.drawn_from(examples)
    ]
    drawn = torch.stack(found).flatten().double().numpy() * 4  # the noise of a sum has deviation z C = 1
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert 0 < way.drawn / 500 < N


def test_what_a_model_draws_follows_from_the_secret_and_the_question(tmp_path):
    """Whoever knew dropout's masks would see them move from example to example as one is left out, and the
    sum by many times C."""
    model = FlatModel(net(nn.Dropout(0.5)))
    w = torch.zeros(len(model.trained)) + 0.1

    def drawn(folder, question="a", purpose="train"):
        silo = private(tmp_path / folder, model)
        silo.question = question
        with silo.randomness(purpose):
            return torch.rand(50)

    first = drawn("site")
    assert drawn("site").equal(first)
    for other in (drawn("other"), drawn("site", "b"), drawn("site", purpose="gradient")):
        assert not other.isclose(first).any()
    one, again = (answered(private(tmp_path / "site", model), w)[0] for _ in range(2))
    assert one.delta.equal(again.delta)


class OverPlaces(nn.Module):
    """The mean over all places of an example, those of the padding as well."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)).mean(1))


def test_the_longest_example_moves_the_sum_by_no_more_than_c(tmp_path):
    """All others had its length, were they padded to it."""
    lengths, clip = [5] * 30 + [60], 0.1
    x, y = [np.random.default_rng(i).normal(1, 1, (n, 4)) for i, n in enumerate(lengths)], np.arange(31) % 3
    x = [one.astype(np.float32) for one in x]

    def total(count):
        examples = Batches(Split(Ragged.of(x[:count], longest=60), y[:count]), FEATURES, torch.device("cpu"))
        way = DPSGD(bytes(32), "p", clip, noise=1.0, rate=1.0, steps=1, expected=1.0)
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = FlatModel(OverPlaces())
        [batch] = way.drawn_from(examples)
        assert batch[0].shape[1] == 60
        return model.flatten(way.clipped_mean(model, cross_entropy, batch)).clone()

    assert float((total(31) - total(30)).norm()) == pytest.approx(clip, rel=1e-3)


def test_batches_are_filled_up_to_multiples_of_one_size(tmp_path):
    way = DPSGD(bytes(32), "p", clip=1.0, noise=1.0, rate=4 / N, steps=300, expected=4)
    examples = Batches(Split(*arrays(N)), FEATURES, torch.device("cpu"))
    batches = list(way.drawn_from(examples))
    assert {len(batch[1]) for batch in batches} == {8, 16}
    assert {batch.real for batch in batches} >= {1, 4, 7, 9}
    assert abs(sum(batch.real for batch in batches) / 300 - 4) < 5 * math.sqrt(4 * (1 - 4 / N) / 300)


@pytest.mark.parametrize("key", [{"accumulate_batches": 2}, {"precision": "fp16"}, {"compile": True}])
def test_settings_that_would_go_round_the_noise_are_refused(tmp_path, key):
    with pytest.raises(InputError, match=r"takes steps by accumulate"):
        answered(private(tmp_path / "site"), settings=LOCAL.model_copy(update=key))
    assert not SiteFolder(tmp_path / "site").entries()


def test_what_the_server_tells_of_other_silos_is_asked_where_noise_is_in_the_sum(tmp_path):
    """It decides how large the shares of noise are; a share that is drawn anew is to be paid for."""

    def question(federation, **more):
        silo = private(
            tmp_path / "site", guarded=replace(guard(tmp_path / "site"), federation=federation, **more)
        )
        silo.ask({"w": torch.zeros(len(silo.model.trained))})
        return silo.question

    in_sum = {"scale": lambda round: 1.0}
    assert question("x") == question("y")
    assert question("x", **in_sum) == question("x", **in_sum) != question("y", **in_sum)


def test_a_loss_is_withheld(tmp_path):
    run, _ = answered(private(tmp_path / "site"))
    assert math.isnan(run.loss)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda silo, w: silo.gradient(w), "takes a gradient of all examples"),
        (lambda silo, w: silo.loss(w), "takes the loss of the examples"),
        (lambda silo, w: silo.frequencies(), "counts features of the examples"),
        (lambda silo, w: silo.split("train"), "reads examples by a loop of its own"),
        (lambda silo, w: silo.predict("train"), "looks at outputs"),
        (lambda silo, w: silo.evaluate(w), "scores a model on the silo's examples"),
        (
            lambda silo, w: silo.train_locally(w, LOCAL, correct=lambda *given: None),
            "corrects gradients by a function of its own",
        ),
        (lambda silo, w: silo.train_locally(w, LOCAL, None, lambda *given: None), "corrects gradients by"),
    ],
)
def test_what_no_noise_protects_is_refused(tmp_path, ask, what):
    silo = private(tmp_path / "site")
    w = torch.zeros(len(silo.model.trained))
    silo.ask({"w": w})
    with pytest.raises(InputError, match=rf"\[privacy\]: the algorithm {what}"):
        ask(silo, w)


def test_training_outside_of_a_question_is_refused(tmp_path):
    silo = private(tmp_path / "site")
    with pytest.raises(InputError, match="looks at examples outside of a training's request"):
        silo.train_locally(torch.zeros(len(silo.model.trained)), LOCAL)


def test_constants_and_pulls_towards_a_centre_are_allowed(tmp_path):
    w = torch.zeros(len(FlatModel(net()).trained))
    for correct in (Constant(w), Proximal(w, 0.1)):
        silo = private(tmp_path / "site")
        silo.ask({"w": w})
        assert silo.train_locally(w, LOCAL, correct=correct).delta.isfinite().all()


def test_evaluation_unprotected_is_as_the_job_says(tmp_path):
    silo = private(tmp_path / "site", guarded=guard(tmp_path / "site", evaluate_unprotected=True))
    assert silo.evaluate(torch.zeros(len(silo.model.trained))).examples == N
    _, told = answered(silo)
    assert 0 <= told["clipped_examples"] <= 1


def test_a_budget_ends_what_a_site_answers(tmp_path):
    """By the closed form: at q = 1 and z = 10 epsilon 4.3772 at 1e-5 allows 100 steps; a round takes 30."""
    whole = LocalTraining(lr=0.1, batch_size="full", steps=30)
    guarded = guard(tmp_path / "site", noise=10.0, limits=[(4.3772, 1e-5)], rounds=10)
    left = []
    for round in range(3):
        left.append(answered(private(None, guarded=guarded, round=round), None, whole)[1]["budget_left"])
    assert left == [2, 1, 0]
    with pytest.raises(
        InputError,
        match=r"its privacy budget is spent: .* 4.3772 at delta 1e-05 has 0.259 left, which allows 10 of 30",
    ):
        answered(private(None, guarded=guarded, round=3), None, whole)
    for round in range(3):  # what was answered is answered again, with the figures of that time
        assert (
            answered(private(None, guarded=guarded, round=round), None, whole)[1]["budget_left"]
            == left[round]
        )
    assert len(guarded.site.entries()) == 3


def test_a_budget_holds_across_runs_by_name_or_shard(tmp_path):
    whole = LocalTraining(lr=0.1, batch_size="full", steps=90)
    guarded = guard(tmp_path / "site", noise=10.0, limits=[(4.3772, 1e-5)])
    answered(private(None, guarded=guarded), None, whole)
    other = guard(tmp_path / "site", noise=10.0, limits=[(4.3772, 1e-5)])
    other = Guard(**{**vars(other), "run": "another", "names": ["c", "b"], "shards": ["s", "t"]})
    with pytest.raises(InputError, match=r"budget is spent.* allows 10 of 90 more steps"):
        answered(private(None, guarded=other), None, whole)
    answered(private(None, guarded=other, id=1), None, whole)


def test_a_run_beside_that_spends_meanwhile_is_counted(tmp_path):
    """Both see room before they train; the second one's answer does not leave."""
    whole = LocalTraining(lr=0.1, batch_size="full", steps=60)
    silos = [
        private(None, guarded=guard(tmp_path / "site", 10.0, limits=[(4.3772, 1e-5)]), round=r)
        for r in (0, 1)
    ]
    w = torch.zeros(len(silos[0].model.trained))
    for silo in silos:
        silo.ask({"w": w})
    runs = [silo.train_locally(w, whole) for silo in silos]
    silos[0].settle({"delta": runs[0].delta}, {})
    with pytest.raises(InputError, match="its privacy budget is spent"):
        silos[1].settle({"delta": runs[1].delta}, {})
    assert len(SiteFolder(tmp_path / "site").entries()) == 1


class Counts(torch.nn.Module):
    """Keeps the mean of what it was given."""

    def __init__(self, kept=True):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4), persistent=kept)

    def forward(self, x):
        if self.training:
            self.seen.lerp_(x.detach().mean(0), 0.1)
        return x


@pytest.mark.parametrize(("kept", "rules"), [(True, {}), (False, {}), (False, {"*seen": "reset"})])
def test_buffers_that_learn_of_examples_are_refused(tmp_path, kept, rules):
    model = FlatModel(torch.nn.Sequential(Counts(kept), net()), rules=rules)
    with pytest.raises(InputError, match="trains a model whose buffers learn of examples"):
        answered(private(tmp_path / "site", model))


def test_plain_trainings_go_the_plain_way():
    model = FlatModel(net())
    silo = make_silo(model)
    assert type(silo) is Silo
    assert silo._method(LOCAL) is None
