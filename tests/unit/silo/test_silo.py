"""A silo as an algorithm sees it, and the server beside it."""

import pytest
import torch
from torch import nn
from unit.builders import arrays, batch_norm_net, batches, cross_entropy, make_silo, net, same_bits, training

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.moon import Moon
from mpifl.algorithms.server import Server
from mpifl.common import rng
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps import training_loop as local
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wire.update import uniform

DROPOUT = lambda: FlatModel(net(nn.Dropout(0.5)))  # noqa: E731


def run_of(silo, **settings):
    return silo.train_locally(
        silo.model.trained.clone(), LocalTraining(**{"lr": 0.1, "batch_size": 5, **settings})
    )


def test_a_silo_trains_on_its_own_stream_of_the_round():
    model = FlatModel(net())
    settings = LocalTraining(lr=0.1, lr_decay=0.5, batch_size=5)
    start = model.trained.clone()
    order = rng.torch_stream(4, "train", 2, 3)
    expected = local.train(
        training(model, batches(12), start, settings.model_copy(update={"lr": 0.0125}), order, cross_entropy)
    )
    silo = make_silo(FlatModel(net()), id=2, round=3, randomness=4)
    assert same_bits(silo.train_locally(start, settings).delta, expected.delta)


@pytest.mark.parametrize(
    ("more", "steps"),
    [({}, (2, 4, 6)), ({"accumulate_batches": 2, "optimizer": "adam"}, (2, 4)), ({"batch_size": 6}, (2, 4))],
    ids=["plain", "adam", "even"],
)
def test_losses_by_step_are_those_of_shorter_trainings(more, steps):
    silo, total, seen, wanted = make_silo(FlatModel(net()), losses_every=2), 0.0, 0, []
    whole = run_of(silo, epochs=2, **more).delta.clone()
    for many in steps:
        shorter = run_of(make_silo(FlatModel(net())), steps=many, **more)
        wanted.append((shorter.loss * shorter.examples - total) / (shorter.examples - seen))
        total, seen = shorter.loss * shorter.examples, shorter.examples
    assert silo.losses == pytest.approx(wanted, rel=1e-5)
    assert silo.seen == seen == 24
    assert same_bits(run_of(make_silo(FlatModel(net())), epochs=2, **more).delta, whole), (
        "noting changes no bit"
    )


@pytest.mark.parametrize("make", [lambda: FlatModel(net()), DROPOUT], ids=["plain", "dropout"])
def test_training_depends_on_silo_and_round_and_not_on_global_randomness(make):
    torch.manual_seed(1)
    one = run_of(make_silo(make(), round=1))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert same_bits(run_of(make_silo(make(), round=1)).delta, one.delta)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(state, before)
    assert not torch.equal(run_of(make_silo(make(), round=2)).delta, one.delta)
    assert not torch.equal(run_of(make_silo(make(), round=1, id=1)).delta, one.delta)


def test_training_does_not_depend_on_what_was_in_the_lent_model():
    model = FlatModel(net())
    w = model.trained.clone()
    first = make_silo(model).train_locally(w, LocalTraining(lr=0.1))
    delta = first.delta.clone()
    model.trained.fill_(7.0)
    assert same_bits(make_silo(model).train_locally(w, LocalTraining(lr=0.1)).delta, delta)


def test_the_gradient_is_that_of_all_training_examples():
    model = FlatModel(net())
    run = make_silo(model).gradient(model.trained.clone())
    [everything] = batches(12).in_order(12)
    expected = model.flatten(model.gradients(cross_entropy(model.module, *everything)))
    assert torch.allclose(run.delta, expected, atol=1e-7)
    assert run.examples == 12


def test_the_gradient_of_a_batch_is_that_of_the_batch():
    model = FlatModel(net())
    x, y = batches(12).take(torch.tensor([3, 5]))
    run = make_silo(model).gradient(model.trained.clone(), (x, y))
    assert same_bits(run.delta, model.flatten(model.gradients(cross_entropy(model.module, x, y))))
    assert run.examples == 2


@pytest.mark.parametrize("track", [False, True])
def test_running_statistics_learn_from_a_gradient_only_if_told(track):
    silo = make_silo(FlatModel(batch_norm_net()))
    silo.gradient(silo.model.trained.clone(), track=track)
    assert (silo.learned_statistics is not None) is track
    assert not track or silo.learned_statistics[-1] == 1


def test_running_statistics_learn_from_training_and_from_no_pass_after_it():
    silo = make_silo(FlatModel(batch_norm_net()))
    w = silo.model.trained.clone()
    silo.evaluate(w)
    assert silo.learned_statistics is None
    run_of(silo)
    learned = silo.learned_statistics.clone()
    assert learned[-1] == 3
    silo.gradient(w)
    silo.loss(w)
    assert torch.equal(silo.learned_statistics, learned)


def test_an_evaluation_counts_right_answers_and_leaves_statistics_alone():
    model = FlatModel(batch_norm_net())
    silo = make_silo(model, splits={"test": 8})
    before = model.statistics.read()
    score = silo.evaluate(model.trained.clone(), "test")
    x, y = arrays(8, seed=1)
    logits = model.module.eval()(torch.from_numpy(x))
    assert score.examples == 8
    assert score.metrics["accuracy"] == (logits.argmax(1) == torch.from_numpy(y)).double().mean()
    loss = nn.functional.cross_entropy(logits.detach(), torch.from_numpy(y))
    assert score.loss == pytest.approx(float(loss), rel=1e-6)
    assert torch.equal(model.statistics.read(), before)


def test_the_loss_that_is_reported_is_the_objective_where_an_algorithm_has_its_own():
    def doubled(module, x, y):
        return 2 * cross_entropy(module, x, y)

    usual = make_silo(FlatModel(net()), n=1500, splits={"test": 1100})
    own = make_silo(FlatModel(net()), n=1500, splits={"test": 1100})
    w = usual.model.trained.clone()
    own.own_objective = doubled
    one, other = usual.evaluate(w, "test"), own.evaluate(w, "test")
    assert other.loss == pytest.approx(2 * one.loss, rel=1e-6)
    assert (other.metrics, other.examples) == (one.metrics, one.examples)
    scores = [
        Server([FlatModel(net())], test=batches(1100), own_objective=o).evaluate(w) for o in (None, doubled)
    ]
    assert scores[1].loss == pytest.approx(2 * scores[0].loss, rel=1e-6)


def test_an_algorithm_has_an_objective_of_its_own_if_it_or_a_parent_overrides_it():
    class Own(FedAvg):
        def objective(self, module, x, y):
            return module(x).square().mean()

    class Heir(Own):
        pass

    assert FedAvg().own_objective is None
    assert Moon().own_objective is None
    assert Own().own_objective(torch.nn.Identity(), torch.ones(2), None) == 1
    assert Heir().own_objective is not None


def test_the_loss_of_a_model_is_that_on_the_training_examples():
    model = FlatModel(net())
    silo = make_silo(model)
    w = torch.zeros_like(model.trained)
    assert silo.loss(w) == pytest.approx(torch.log(torch.tensor(3.0)).item(), rel=1e-6)
    assert silo.evaluate(w).examples == 12


@pytest.mark.parametrize(
    ("splits", "held_out"),
    [
        ({}, None),
        ({"valid": 2}, "valid"),
        ({"valid": 2, "test": 3}, "test"),
        ({"valid": 2, "test": 0}, "valid"),
    ],
    ids=str,
)
def test_the_split_to_judge_by_is_test_before_valid_if_it_holds_anything(splits, held_out):
    assert make_silo(FlatModel(net()), splits=splits).held_out == held_out


@pytest.mark.parametrize(("weights", "weight"), [("examples", 12.0), ("uniform", 1.0)])
def test_an_update_weighs_its_examples_unless_all_weigh_alike_or_it_is_told(weights, weight):
    silo = make_silo(FlatModel(net()), weights=weights)
    v = torch.ones(2)
    update = silo.update(delta=v, shift=uniform(v), loss=0.5, word="a", done=True)
    assert update.weight == weight
    assert update.vectors.keys() == {"delta", "shift"}
    assert update.scalars == {"loss": 0.5, "word": "a", "done": True}
    assert silo.update(weight=0.25).weight == 0.25
    assert silo.update(weight=0.0).weight == 0.0


def test_what_is_kept_stays_as_it_was_when_it_was_kept():
    silo = make_silo(FlatModel(net()))
    run = run_of(silo)
    end = run.end.clone()
    silo.keep(end=run.end, steps=run.steps)
    silo.keep(more=1)
    run_of(silo)  # the lent model goes on to other work
    silo.model.trained.zero_()
    assert torch.equal(silo.kept["end"], end)
    assert (silo.kept["steps"], silo.kept["more"]) == (3, 1)


def test_every_pass_starts_from_the_statistics_that_the_server_sent():
    model = FlatModel(batch_norm_net())
    silo = make_silo(model, round=1)
    silo.received["statistics"] = torch.full((11,), 2.0, dtype=torch.float64)
    w = model.trained.clone()
    fresh = silo.evaluate(w)
    model.statistics.write(torch.zeros(11))  # another silo's work
    assert silo.evaluate(w) == fresh
    run_of(silo)
    assert model.statistics.read()[-1] == 2 + 3
    assert silo.evaluate(w) == fresh
    silo.gradient(w)
    assert model.statistics.read()[-1] == 2 + 1
    assert silo.evaluate(w) == fresh


def test_a_silo_is_lent_another_architecture_when_it_takes_it():
    models = [FlatModel(net()), FlatModel(net(hidden=3))]
    silo = make_silo(models[0], models=models)
    assert silo.model is models[0]
    assert silo.take(1) is silo.model is models[1]
    assert len(run_of(silo).delta) == len(models[1].trained)
    assert silo.take(0) is models[0]


def test_public_logits_are_what_the_model_says_of_every_public_example_in_order():
    silo = make_silo(FlatModel(net()), public=batches(7, seed=5))
    x = torch.from_numpy(arrays(7, seed=5)[0])
    w = silo.model.trained.clone()
    assert torch.allclose(silo.public_logits(w), silo.model.module(x), atol=1e-7)


def test_the_server_trains_on_the_public_examples_by_the_round_and_not_by_global_randomness():
    def trained(round, seed=0):
        torch.manual_seed(seed)
        server = Server([FlatModel(net())], public=batches(12), round=round)
        w = server.model.trained.clone()
        return server.train(w, LocalTraining(lr=0.1, batch_size=5), cross_entropy, ()).delta

    assert same_bits(trained(1), trained(1, seed=1))
    assert not torch.equal(trained(1), trained(2))


def test_the_features_are_those_of_every_training_example_in_order():
    module = net()
    module.features = module[0]
    silo = make_silo(FlatModel(module))
    x = torch.from_numpy(arrays(12)[0])
    assert torch.allclose(silo.features(silo.model.trained.clone()), module[0](x))


def test_randomness_inside_the_model_is_of_the_purpose_the_silo_and_the_round():
    def drawn(purpose="train", **more):
        with make_silo(FlatModel(net()), **more).randomness(purpose):
            return torch.rand(3).tolist()

    names = [{}, {"purpose": "gradient"}, {"id": 1}, {"round": 1}, {"randomness": 1}]
    assert [drawn(**name) for name in names] == [drawn(**name) for name in names]
    assert len({tuple(drawn(**name)) for name in names}) == len(names)


def test_streams_of_two_purposes_are_two():
    silo = make_silo(FlatModel(net()))
    one, again, other = (torch.rand(3, generator=silo.stream(p)).tolist() for p in ("a", "a", "b"))
    assert one == again != other


def test_the_server_scores_with_its_own_statistics_on_its_own_test_set():
    model = FlatModel(batch_norm_net())
    server = Server([model], test=batches(10))
    server.state["statistics"] = model.statistics.read()
    w = model.shared.clone()
    first = server.evaluate(w)
    model.statistics.write(torch.full((11,), 9.0))
    model.trained.zero_()
    assert server.evaluate(w) == first
    assert first.examples == 10
    server.state["statistics"] = torch.full((11,), 9.0)
    assert server.evaluate(w) != first


def test_a_server_without_a_test_set_scores_nothing():
    assert Server([FlatModel(net())]).evaluate(torch.zeros(1)) is None


def test_loading_a_shared_part_leaves_the_personal_one():
    model = FlatModel(net(), personal=["2.weight", "2.bias"])
    personal = model.personal.clone()
    Server([model]).load(torch.zeros(len(model.shared)))
    assert model.shared.abs().sum() == 0
    assert torch.equal(model.personal, personal)


def test_what_augments_is_drawn_from_the_silos_own_stream_and_leaves_the_order_alone():
    seen, plain = [], []

    def noted(batch, generator):
        seen.append((batch["y"].tolist(), float(torch.rand((), generator=generator))))
        return batch

    def heard(module, x, y):
        plain.append(y.tolist())
        return cross_entropy(module, x, y)

    model, local = FlatModel(net()), LocalTraining(batch_size=5, epochs=2)
    start = model.trained.clone()
    usual = make_silo(model, round=3).train_locally(start, local, heard).delta.clone()
    changed = make_silo(model, round=3, augment=noted).train_locally(start, local).delta.clone()
    assert same_bits(changed, usual)
    assert [labels for labels, _ in seen] == plain
    own = make_silo(model, round=3).stream("augment")
    assert [number for _, number in seen] == [float(torch.rand((), generator=own)) for _ in plain]
