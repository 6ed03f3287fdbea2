"""What ranks say of how they compute, who differs, and what cannot be pinned."""

import pytest
import torch
from torch import nn
from unit.builders import FEATURES, Alone, batch_norm_net, net, write_folder

from mpifl.common import InputError
from mpifl.common.machine import moved_from, pin_kernels, processor, tuning
from mpifl.data import Features
from mpifl.learning import models
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.run.job import check_job
from mpifl.silo.parameters import FlatModel
from mpifl.training.beforehand.rank_bits import BITS, PROCESSOR, about_plain, bits_of, differing, moved
from mpifl.training.loop import train
from mpifl.wings import wings_of

TOKENS = Features(shape=(6,), dtype="int64")
PIXELS = Features(shape=(1, 28, 28), dtype="uint8", scale=1 / 255)


class Stubborn(nn.Module):
    def forward(self, x):
        raise KeyError("not yet")


@pytest.mark.parametrize(
    ("make", "features"),
    [
        (net, FEATURES),
        (batch_norm_net, FEATURES),
        (lambda: net(nn.Dropout()), FEATURES),
        (lambda: models.build("cnn", {}, PIXELS, 10, 0), PIXELS),
        (lambda: models.build("char-lstm", {}, TOKENS, 80, 0), TOKENS),
    ],
)
def test_two_steps_are_a_digest_and_leave_everything_as_it_was(make, features):
    module = make()
    FlatModel(module)
    before, drawn = {name: one.clone() for name, one in module.state_dict().items()}, torch.get_rng_state()
    found = bits_of(module, CLASSIFICATION, features)
    assert len(found) == 16
    assert bits_of(module, CLASSIFICATION, features) == found
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert all(one.grad is None or not one.grad.any() for one in module.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_one_bit_of_a_parameter_is_another_digest(part):
    module, other = net(), net()
    with torch.no_grad():
        first = getattr(other[0], part).view(-1)
        first[0] = torch.nextafter(first[0], first[0] + 1)
    assert bits_of(module, CLASSIFICATION, FEATURES) != bits_of(other, CLASSIFICATION, FEATURES)


def test_a_model_that_cannot_be_asked_is_not_compared():
    assert bits_of(Stubborn(), CLASSIFICATION, FEATURES) == ""
    assert differing({0: {BITS: ""}, 1: {BITS: "a", PROCESSOR: "x"}, 2: {}}) == ""
    assert len(about_plain(torch.device("cpu"))[BITS]) == 16


def test_who_computes_otherwise_is_said_with_the_processors():
    old, new = {BITS: "a", PROCESSOR: "old (AVX2)"}, {BITS: "b", PROCESSOR: "new (AVX512)"}
    assert differing({0: old, 1: {**new, BITS: "a"}}) == ""
    said = differing({0: old, 1: new, 2: old})
    assert said.startswith(
        "ranks compute other bits of the same two steps: ranks 0, 2 on old (AVX2), rank 1 on "
    )
    assert said.endswith("new (AVX512); use one kind of processor, or kernels = 'avx2' and device = 'cpu'")
    assert (
        moved([old, old], [old]) == moved([old, new], [new]) == moved([], [new]) == moved([{}], [new]) == ""
    )
    goes = "this run was begun on old (AVX2), and continues on new (AVX512), which computes other bits"
    assert moved([old], [old, new]) == goes


def test_a_refusal_names_the_processor_that_answered_first():
    assert moved_from("") == moved_from(processor()) == ""
    assert moved_from("old (AVX2)") == f", old (AVX2); this is {processor()}"
    assert torch.backends.cpu.get_cpu_capability() in processor()


def test_kernels_are_pinned_before_anything_is_computed_or_not_at_all(monkeypatch):
    torch.rand(3, 3) @ torch.rand(3, 3)
    monkeypatch.setenv("MKL_CBWR", "AUTO")
    with pytest.raises(
        InputError, match="kernels = 'avx2': this process has computed before, or cannot: "
    ) as no:
        pin_kernels()
    assert "ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2" in str(no.value)
    assert "MKL_CBWR=AUTO" in processor()


def test_a_training_in_a_process_that_has_computed_otherwise_is_refused(tmp_path):
    torch.rand(3, 3) @ torch.rand(3, 3)
    write_folder(tmp_path / "shards", [8, 8])
    tables = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}
    with pytest.raises(InputError, match="the job: kernels = 'avx2': this process has computed before"):
        train({**tables, "device": "cpu", "kernels": "avx2"}, tmp_path / "run", (), False, Alone())


@pytest.mark.parametrize("large", [False, True])
def test_what_is_frozen_and_large_is_not_copied(monkeypatch, large):
    """A rank has little memory beside a large model of which it trains a part."""
    monkeypatch.setattr("mpifl.training.beforehand.model_copies.SHARED", 99 if large else 1000)
    module = net()
    module[0].requires_grad_(False)
    seen, hook = [], torch.nn.Module.__call__
    monkeypatch.setattr(torch.nn.Linear, "__call__", lambda of, x: seen.append(of.weight) or hook(of, x))
    assert bits_of(module, CLASSIFICATION, FEATURES)
    assert (seen[0] is module[0].weight) == large
    assert seen[1] is not module[2].weight


ORDER = []


def noted(rows):
    """A rule of the user's, which is tried at the start."""
    ORDER.append("tried")
    return rows[0]


def test_kernels_are_pinned_before_a_rule_of_the_users_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr("mpifl.training.devices.pin_kernels", lambda: ORDER.append("pinned"))
    write_folder(tmp_path / "shards", [8, 8])
    tables = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": {"name": "logreg"}}
    job = {**tables, "device": "cpu", "kernels": "avx2", "aggregation": {"rule": f"{__name__}:noted"}}
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    assert ORDER[:2] == ["pinned", "tried"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "kernels = 'avx2': is of processors, not of GPUs; use device = 'cpu' with it"),
        ({"device": "gpu"}, "use device = 'cpu' with it"),
        ({"device": "cpu", "local": {"compile": True}}, "does not hold what .local. compile = true compiles"),
        ({"device": "cpu", "kernels": "avx512"}, "kernels"),
    ],
)
def test_what_cannot_be_pinned_is_refused(more, why):
    tables = {"name": "toy", "shards": "s", "rounds": 1, "model": {"name": "logreg"}, "kernels": "avx2"}
    with pytest.raises(InputError, match=why):
        check_job({**tables, **more}, "the job")


def test_whether_subnormals_are_zero_is_found_without_torch_computing():
    for flush in (True, False):
        torch.set_flush_denormal(flush)
        with tuning.subnormals_as_zero():
            assert float(torch.tensor(1e-30) * 1e-10) == 0
        assert (float(torch.tensor(1e-30) * 1e-10) == 0) == flush
