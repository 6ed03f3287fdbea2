"""A training loop of the user's own: what it is given, and what comes home of it."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from unit.builders import batch_norm_net, make_silo, net, same_bits

from mpifl.common.errors import InputError
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining


def trained(silo, w, lr=0.1):
    """One step of gradient descent on all examples."""
    with silo.loaded(w) as module:
        x, y = next(iter(DataLoader(silo.split("train"), batch_size=99)))
        cross_entropy(module(x), y).backward()
        torch.optim.SGD(module.parameters(), lr=lr).step()
    return silo.delta()


def test_a_loop_comes_home_with_the_delta_of_mpifls_own():
    model = FlatModel(net())
    w = model.trained.clone()
    wanted = make_silo(model).train_locally(w, LocalTraining(lr=0.1, batch_size="full")).delta.clone()
    assert torch.allclose(trained(make_silo(model), w), wanted, atol=1e-7)


def test_what_was_in_the_lent_model_is_of_no_consequence():
    model = FlatModel(net(nn.Dropout(0.5)))
    w = model.trained.clone()
    first = trained(make_silo(model), w).clone()
    model.trained.fill_(7.0)
    torch.manual_seed(1)
    assert same_bits(trained(make_silo(model), w), first)
    assert not torch.equal(trained(make_silo(model, round=1), w), first)


def test_parameters_that_a_loop_has_moved_come_home():
    model = FlatModel(net())
    w = model.trained.clone()
    silo = make_silo(model)
    with silo.loaded(w) as module:
        for p in module.parameters():
            p.data = p.data + 1
    assert torch.equal(silo.delta(), (w + 1) - w)
    with silo.loaded(w):
        model.trained.add_(2)
        assert torch.equal(next(module.parameters()).reshape(-1), model.trained[: module[0].weight.numel()])


def test_running_statistics_that_a_loop_has_changed_come_home():
    model = FlatModel(batch_norm_net())
    start = model.statistics.read()
    silo = make_silo(model)
    trained(silo, model.trained.clone())
    assert silo.learned_statistics[-1] == start[-1] + 1


def test_predictions_are_the_outputs_by_row_and_leave_the_loop_as_it_was():
    model = FlatModel(net(nn.Dropout(0.5)))
    silo = make_silo(model, splits={"valid": 7}, evaluation_batch=3)
    w = model.trained.clone()
    with silo.loaded(w) as module:
        module[0].eval()
        found = silo.predict("valid")
        assert (module.training, module[0].training, module[1].training) == (True, False, True)
    [(x, _)] = silo._splits["valid"].in_order(7)
    assert torch.allclose(found, model.module.eval()(x).detach(), atol=1e-6)
    assert not found.requires_grad
    silo.evaluate(w + 1)
    assert not torch.equal(silo.predict("valid"), found)


def test_its_stream_goes_on_and_is_of_silo_and_round():
    def drawn(**more):
        silo = make_silo(FlatModel(net()), **more)
        return [int(torch.randint(10**9, (), generator=silo.generator)) for _ in range(2)]

    assert drawn() == drawn()
    assert len({*drawn(), *drawn(round=1), *drawn(id=1)}) == 6


def test_bad_input_is_one_line():
    silo = make_silo(FlatModel(net()), splits={"test": 3}, task=CLASSIFICATION)
    w = silo.model.trained.clone()
    with pytest.raises(InputError, match=r"^silo\.module: holds nothing of this silo yet; load weights"):
        silo.predict("test")
    with pytest.raises(
        InputError, match=r"silo\.loaded: w has shape \[3\], the model's parameters have \[43\]"
    ):
        silo.loaded(w[:3]).__enter__()
    with pytest.raises(InputError, match=r"^split 'valid': this silo has none; use train, test$"):
        silo.split("valid")
    with pytest.raises(InputError, match=r"^split 'vaild': this silo has none"):
        silo.evaluate(w, "vaild")
    with pytest.raises(InputError, match=r"silo\.delta: the model holds nothing of a loop of one's own"):
        silo.delta()
    with silo.loaded(w):
        silo.evaluate(w)
    with pytest.raises(InputError, match="ask before the model is used again"):
        silo.delta()
