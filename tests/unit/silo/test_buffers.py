"""Buffers of any dtype, persistent or not: no silo finds what another has left, and nothing is lost."""

import itertools
import os
import random

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import nn
from unit.builders import CLASSES, make_federation, make_silo, net, same_bits, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.fedper import FedPer
from mpifl.common import InputError, RoundLost
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.lanes import Lanes
from mpifl.silo.parameters.buffer_rules import combined
from mpifl.silo.parameters.dtypes import _HELD
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.parameters.tensor_bits import from_words, same_bits as alike, words_of
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.transforms.running_statistics import RunningStatistics, own_name
from mpifl.wings.fast.stacked_training import train_together
from mpifl.wings.scoring.test_shares import score_of, share_of

REAL = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES = [*REAL, *WHOLE, torch.bool, torch.complex64]
COMPLEX = torch.complex64 in _HELD
"""Whether model files hold it, by the safetensors in use."""
FLAG, LOW = {"0.b": "any"}, {"0.b": "min"}
SLOW = bool(os.environ.get("MPIFL_SLOW"))
"""Whether steps are compiled, too."""
LOCAL = LocalTraining(lr=0.1, batch_size=4)


def changed(b, x):
    """Return something else than a buffer holds, that depends on the examples and on what it holds."""
    if b.dtype == torch.bool:
        return ~b
    if b.is_complex():
        return b + x
    if not b.is_floating_point():
        return b + 1 + (x > 0)
    return torch.nan_to_num(b.double(), 9.0, 9.0, -9.0) * 2 + x


class Writes(nn.Module):
    """Adds something of its buffer to what it is given, and writes to the buffer what it has seen."""

    def __init__(self, value, kept=True, how="copy"):
        super().__init__()
        self.how = how
        self.register_buffer("b", value, persistent=kept)

    def forward(self, x):
        if self.how != "never" and (self.training or self.how == "scored"):
            seen = changed(self.b, x.detach().sum()).to(self.b.dtype)
            if self.how == "replace":
                self.b = seen
            elif self.how == "data":
                self.b.data.copy_(seen)
            else:
                self.b.copy_(seen)
        return x + torch.nan_to_num(self.b.to(torch.complex128).real.float()).clamp(-1, 1).sum()


def model_of(value, kept=True, how="copy", **more):
    return FlatModel(nn.Sequential(Writes(value.clone(), kept, how), *net()), **more)


def trained(model, start, seed):
    """Return what a silo's training gives: its delta and statistics, or the line that refuses it."""
    silo = make_silo(model, seed=seed)
    if start is not None:
        silo.received["statistics"] = start
    try:
        run = silo.train_locally(net_start(model), LOCAL)
    except InputError as error:
        return str(error), None
    return run.delta.clone(), silo.learned_statistics


def net_start(model):
    return torch.linspace(-0.5, 0.5, len(model.trained))


def fits(value, kept, rule, personal):
    """Whether a buffer may have a rule."""
    if personal or rule == "reset":
        return not personal
    flag = value.dtype == torch.bool
    return kept and not value.is_complex() and flag == (rule in ("any", "all"))


VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 3.0, 100.0, float("inf"), float("nan")]), max_size=3)


@settings(max_examples=60)
@given(
    values=VALUES,
    dtype=st.sampled_from(DTYPES),
    kept=st.booleans(),
    how=st.sampled_from(["never", "copy", "data", "replace"]),
    rule=st.sampled_from(["", "any", "all", "min", "max", "reset"]),
    personal=st.booleans(),
)
@example([float("inf")], torch.float32, True, "copy", "min", False)
@example([1.0], torch.bool, True, "copy", "any", False)
@example([1.0], torch.float32, False, "data", "", False)
@example([1.0], torch.float32, True, "replace", "", False)
def test_a_silo_finds_nothing_of_the_one_before_it(values, dtype, kept, how, rule, personal):
    """What a silo makes of a lent model is the same after another, or both are refused by one line."""
    whole = [v if v == v and abs(v) < 1e9 else 7.0 for v in values]
    value = torch.tensor(values if dtype in REAL else whole).to(dtype)
    more = {"rules": {"0.b": rule} if rule else {}, "personal": ["0.b"] if personal else []}
    if rule and not fits(value, kept, rule, personal):
        with pytest.raises(InputError, match=r"^\[model\] buffers: 0.b = "):
            model_of(value, kept, how, **more)
        return
    lent, fresh = (model_of(value, kept, how, **more) for _ in range(2))
    start = lent.statistics.read() if len(lent.statistics) else None
    before = lent.personal_statistics.read()
    trained(lent, start, seed=1)
    lent.personal_statistics.write(before)  # as FedPer does for each silo
    (one, learned), (alone, as_alone) = trained(lent, start, 2), trained(fresh, start, 2)
    if isinstance(alone, str):
        assert one == alone
        assert "'0.b'" in one
        assert "\n" not in one
        return
    assert same_bits(one, alone)
    assert same_bits(learned, as_alone)
    if how == "never" or rule == "reset" or not value.numel():
        lent.put_back(start)
        assert same_bits(words_of(lent.module[0].b), words_of(value))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128, torch.uint16])
def test_any_tensor_comes_back_from_numbers_that_travel(dtype):
    bits = torch.arange(256, dtype=torch.uint8).repeat(3)
    value = (bits % 2 if dtype == torch.bool else bits).view(dtype)[:21]
    words = words_of(value)
    assert words.dtype == torch.float64
    assert bool(((words >= 0) & (words < 2**32) & (words == words.round())).all())
    assert torch.equal(words_of(from_words(words, value)), words)


@pytest.mark.parametrize("rule", ["min", "max"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, *WHOLE])
def test_extremes_are_the_same_bits_in_any_order(dtype, rule):
    drawn = [0.0, -0.0, 5.0, float("inf"), -float("inf")] if dtype in REAL else [0, 3, 100, 7, 2]
    values = [torch.tensor([value, 1], dtype=dtype) for value in drawn]
    found = [combined(order, rule) for order in itertools.permutations(values)]
    assert all(same_bits(words_of(one), words_of(found[0])) for one in found)
    assert found[0][0] == (min(drawn) if rule == "min" else max(drawn))
    assert torch.signbit(combined(values[:2], rule)[0]) == (rule == "min" and dtype in REAL)


def test_whole_numbers_beyond_float64_are_not_rounded():
    big = [torch.tensor([2**61 + nth]) for nth in range(3)]
    assert combined(big, "max").item() == 2**61 + 2
    model = model_of(big[1], how="never")
    assert not len(model.statistics)
    assert model.module[0].b.item() == 2**61 + 1


def rounds(tmp_path, value, rules, count=1, order=(0, 1, 2), **more):
    """Return the server after some rounds of three silos."""
    spec = write_folder(tmp_path, [9, 3, 10])
    model, algorithm = model_of(value, rules=rules, **more), FedAvg(local=LOCAL)
    server, federation = make_federation(tmp_path, spec, algorithm, model, [RunningStatistics()])
    for _ in range(count):
        algorithm.round(server, federation.cohort(list(order), server))
        server.round += 1
    return server, federation


def test_a_rule_takes_what_silos_have_made(tmp_path):
    server, _ = rounds(tmp_path / "any", torch.tensor([True, False]), FLAG)
    assert server.load(server.state["w"]).module[0].b.dtype == torch.bool
    least, _ = rounds(tmp_path / "min", torch.full((2,), torch.inf), {"*.b": "min"})
    assert least.model.module[0].b.dtype == torch.float32
    whole = torch.zeros(2, dtype=torch.int64)
    assert not same_bits(
        rounds(tmp_path / "max", whole, {"*": "max"})[0].state["statistics"], words_of(whole)
    )


def test_the_order_of_silos_changes_no_bit(tmp_path):
    found = [
        rounds(tmp_path / str(nth), torch.ones(3), LOW, 2, order)[0].state
        for nth, order in enumerate([(0, 1, 2), (2, 0, 1)])
    ]
    assert same_bits(found[0]["statistics"], found[1]["statistics"])
    assert same_bits(found[0]["w"], found[1]["w"])


REFUSED = {
    "flag": (
        torch.tensor(False),
        {},
        {},
        r"'0.b' \(bool\), .* = \{ \"0.b\" = \"any\" or \"all\" or \"reset\" \}",
    ),
    "not finite": (
        torch.tensor(torch.inf),
        {},
        {},
        r"\(float32\), .*\"min\" or \"max\" or \"reset\".*'fedper'",
    ),
    "not kept": (torch.zeros(2), {}, {"kept": False}, r"\"reset\" \}, or register it as persistent"),
    "large": (torch.tensor(2**61), {}, {}, r"\(int64\)"),
    "complex": (torch.tensor(1j), {}, {}, r"\(complex64\), .* = \{ \"0.b\" = \"reset\" \}"),
}


@pytest.mark.parametrize("what", [one for one in REFUSED if COMPLEX or one != "complex"])
def test_what_nothing_follows_is_refused_by_name(tmp_path, what):
    value, rules, more, line = REFUSED[what]
    with pytest.raises(RoundLost, match="silos failed alike") as lost:
        rounds(tmp_path, value, rules, **more)
    assert "\n" not in str(lost.value)
    with pytest.raises(RoundLost, match=line):
        rounds(tmp_path / "again", value, rules, **more)


UNFIT = {
    "nowhere": (torch.zeros(2), {"lwo": "min"}, {}, r"'lwo' matches no buffer; there are 0.b"),
    "min of a flag": (
        torch.tensor(True),
        LOW,
        {},
        r"0.b = 'min': .* it is bool; use 'any' or 'all' or 'reset'",
    ),
    "any of numbers": (torch.zeros(2), FLAG, {}, r"0.b = 'any': that is for flags .* use 'min' or 'max'"),
    "complex": (torch.tensor(1j), LOW, {}, r"real numbers, and it is complex64; use 'reset'"),
    "not kept": (torch.zeros(2), LOW, {"kept": False}, r"not persistent"),
    "two": (torch.zeros(2), {"0.*": "min", "*b": "max"}, {}, r"'0.b' has two rules, 'min' and 'max'"),
    "personal": (torch.zeros(2), LOW, {"personal": ["0.b"]}, r"it is personal"),
}


@pytest.mark.parametrize("what", [one for one in UNFIT if COMPLEX or one != "complex"])
def test_a_rule_that_fits_no_buffer_is_one_line(what):
    value, rules, more, line = UNFIT[what]
    with pytest.raises(InputError, match=rf"^\[model\] buffers: .*{line}") as refused:
        model_of(value, rules=rules, **more)
    assert "\n" not in str(refused.value)


def test_a_tensor_of_another_kind_in_the_place_of_a_buffer_is_refused():
    model = model_of(torch.zeros(2), how="never")
    silo = make_silo(model)
    with silo.loaded(net_start(model)) as module:
        module[0].b = torch.zeros(3)
    with pytest.raises(
        InputError, match=r"replaced the buffer '0.b', float32 \[2\], by float32 \[3\]; write into"
    ):
        silo.delta()
    model.put_back()
    assert model.module[0].b.shape == (2,)


def test_a_frozen_parameter_that_training_writes_is_refused():
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model = FlatModel(nn.Sequential(frozen, *net()))
    silo = make_silo(model)
    with silo.loaded(net_start(model)):
        frozen.bias.add_(1)
    with pytest.raises(InputError, match=r"parameter '0.bias', which is frozen; register it as a buffer"):
        silo.delta()


class Moves(nn.Module):
    """Puts other memory in its parameter, which the vector then no longer holds."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.scale.data = self.scale.data * 0.5
        return x * self.scale


def test_a_parameter_that_training_moves_is_refused():
    model = FlatModel(nn.Sequential(Moves(), *net()))
    with pytest.raises(InputError, match=r"other memory in the parameter '0.scale' \(.data\); write into it"):
        make_silo(model).train_locally(net_start(model), LOCAL)


def test_what_is_not_finite_after_training_is_named(tmp_path):
    with pytest.raises(
        RoundLost, match=r"the buffer '0.b' is not finite after training, .* \"0.b\" = \"min\" or"
    ):
        rounds(tmp_path, torch.tensor([3e38, 1e38], dtype=torch.float16).fill_(65504), {})


def test_of_a_training_that_diverged_altogether_the_sum_says_so():
    silo, transform = make_silo(model_of(torch.zeros(2))), RunningStatistics()
    silo.received["statistics"] = torch.zeros(2).double()
    silo.learned_statistics = torch.full((2,), torch.inf).double()
    transform.update(silo, silo.update(delta=torch.tensor([torch.nan])))
    with pytest.raises(InputError, match=r"the buffer '0.b' is not finite after training"):
        transform.update(silo, silo.update(delta=torch.zeros(1)))


LIES = {"no bits": 0.5, "too large": 2.0**32, "negative": -1.0, "no flag": 3.0}


@pytest.mark.parametrize("what", LIES)
def test_what_no_buffer_can_hold_is_refused_with_the_silos_number(what):
    statistics = model_of(torch.tensor(True), rules=FLAG).statistics
    with pytest.raises(ValueError, match=r"silo 7: its buffer '0.b' "):
        statistics.taken_of({2: torch.ones(1).double(), 7: torch.tensor([LIES[what]]).double()})


def test_nan_is_no_extreme():
    statistics = model_of(torch.tensor([1.0]), rules=LOW).statistics
    with pytest.raises(ValueError, match=r"silo 1: its buffer '0.b' holds NaN"):
        statistics.taken_of({1: words_of(torch.tensor([torch.nan]))})


def test_a_request_is_as_long_however_many_silos_have_vectors_of_their_own(tmp_path):
    spec = write_folder(tmp_path, [9] * 30)
    algorithm, model = FedAvg(local=LOCAL), model_of(torch.ones(3), rules=LOW)
    server, federation = make_federation(tmp_path, spec, algorithm, model, [RunningStatistics()])
    few, many = (federation.knowledge.expected(server, "train", range(n), {}) for n in (1, 30))
    assert few.lengths == many.lengths
    assert "statistics" in few.lengths


def test_another_silos_vector_is_refused(tmp_path):
    class Lies(RunningStatistics):
        def update(self, silo, update, purpose="training"):
            update = super().update(silo, update, purpose)
            if silo.id == 1:
                update.vectors[own_name(0)] = update.vectors.pop(own_name(1))
            return update

    spec = write_folder(tmp_path, [9, 6])
    algorithm, model = FedAvg(local=LOCAL), model_of(torch.ones(3), rules=LOW)
    server, federation = make_federation(tmp_path, spec, algorithm, model, [Lies()])
    with pytest.raises(RoundLost, match="'statistics of 0', which is another silo's"):
        algorithm.round(server, federation.cohort([0, 1], server))


@pytest.mark.parametrize(
    "value", [torch.tensor([True, False]), torch.full((2,), torch.inf), torch.tensor([2**61 + 1])]
)
def test_fedper_keeps_any_buffer_at_its_silo(value):
    model = model_of(value, how="copy", personal=["0.b"])
    algorithm, w = FedPer(personal=["0.b"], local=LOCAL), net_start(model)
    state, seen = {}, []
    for _ in range(2):
        model.personal_statistics.write(model.initial_personal[1])  # as another silo may have left it
        silo = make_silo(model, state=state, seed=3)
        algorithm.train(silo, w)
        state = dict(silo.kept)
        seen.append(state["personal_statistics"])
    silo = make_silo(model, state=state, seed=3)
    algorithm.personal_model(silo, w)
    assert same_bits(words_of(model.module[0].b), state["personal_statistics"])


@pytest.mark.parametrize(
    "value", [torch.zeros(2), torch.full((2,), torch.inf)], ids=["averaged", "not finite"]
)
def test_a_score_is_the_same_by_lanes_and_by_shares_where_scoring_writes(value):
    """It changes nothing, and no batch finds what the one before has left."""
    rules = {} if value.isfinite().all() else LOW
    found = []
    for lanes in (1, 3):
        model = model_of(value, how="scored", rules=rules)
        examples = make_silo(model, n=40)._splits["train"]
        model.trained.copy_(net_start(model))
        given = model, CLASSIFICATION, examples, 8
        parts = [
            ([*numbers], share_of(*given, [*numbers], None, Lanes(lanes))) for numbers in ((0, 2, 4), (1, 3))
        ]
        whole = [(range(5), share_of(*given, range(5), None, Lanes(lanes)))]
        found += [score_of(CLASSIFICATION, shares, [8] * 5) for shares in (parts, whole)]
        assert not model.buffers.written()
    assert all(one == found[0] for one in found)


def refused_dtypes():
    complex_ = nn.Module()
    complex_.weight = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    sparse = nn.Module()
    sparse.register_buffer("s", torch.eye(2).to_sparse())
    wide = nn.Module()
    wide.register_buffer("wide", torch.ones(2, dtype=torch.complex128))
    nested = nn.Module()
    nested.register_buffer("n", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    spread = nn.Module()
    spread.register_buffer("b", torch.ones(1).expand(5))
    return {
        "bfloat16": (
            nn.Linear(2, 2).bfloat16(),
            r"'weight' is bfloat16, and float32 is trained; build the model in",
        ),
        "float64": (nn.Linear(2, 2).double(), r"'weight' is float64, and float32 is trained"),
        "complex": (complex_, r"'weight' is complex64, and float32 is trained"),
        "sparse": (sparse, r"buffer 's' is sparse"),
        "complex128": (wide, r"buffer 'wide' is complex128, which model files do not hold"),
        "lazy": (nn.LazyLinear(3), r"'weight' has no values yet"),
        "nested": (nested, r"buffer 'n' is nested; use a plain tensor"),
        "expanded": (spread, r"buffer 'b' has several numbers in one place .*; use its \.contiguous"),
    }


@pytest.mark.parametrize("what", refused_dtypes())
def test_tensors_that_would_be_cast_or_lost_are_refused(what):
    module, line = refused_dtypes()[what]
    with pytest.raises(InputError, match=rf"\[model\]: the .*{line}") as refused:
        FlatModel(module)
    assert "\n" not in str(refused.value)


def of_one_memory(kind):
    """A trained layer, and something of its own that lies where a weight of the layer lies."""
    layer, module = nn.Linear(4, 4), nn.Module()
    module.layer, module.head = layer, nn.Linear(4, CLASSES)
    if kind == "a parameter":
        module.other = nn.Linear(4, 4)
        module.other.weight = nn.Parameter(layer.weight.data)
    elif kind == "a frozen row":
        module.row = nn.Parameter(layer.weight.data[1], requires_grad=False)
    else:
        module.register_buffer("seen", layer.weight.data.t(), persistent=kind == "a buffer")
    return module


@pytest.mark.parametrize("kind", ["a parameter", "a frozen row", "a buffer", "a buffer of no file"])
def test_what_lies_in_a_trained_parameters_memory_is_refused(kind):
    """The vector has a copy of the parameter: what had followed it no longer did, and no line said so."""
    with pytest.raises(
        InputError, match=r"^\[model\]: the parameter 'layer.weight' and the .* lie in one place; tie them"
    ) as refused:
        FlatModel(of_one_memory(kind))
    assert "\n" not in str(refused.value)


def test_parameters_that_lie_beside_each_other_or_are_one_are_trained():
    """As in a model whose parameters are views of a vector already, and one whose layers are tied."""
    module, whole = net(), torch.zeros(6, 4)
    module.register_parameter("left", nn.Parameter(whole[:, :2]))
    module.register_parameter("right", nn.Parameter(whole[:, 2:]))
    module.register_buffer("empty", whole[:0])
    module.again = module[0]
    FlatModel(FlatModel(module).module)


class Remembers(nn.Linear):
    """Adds to its state what is no tensor."""

    def get_extra_state(self):
        return {"steps": 3}

    def set_extra_state(self, state):
        """Take it back."""


def test_state_that_is_no_tensor_is_refused():
    """It ended the first run that wrote its model, in a traceback."""
    line = r"^\[model\]: its state has '0._extra_state', of type dict, which model files do not hold"
    with pytest.raises(InputError, match=line):
        FlatModel(nn.Sequential(Remembers(4, CLASSES)))


@pytest.mark.parametrize("dtype", [torch.complex32, torch.uint64, torch.float8_e5m2])
def test_tensors_of_any_dtype_are_compared_by_bits(dtype):
    value = torch.tensor([1.0, 0.0]).to(dtype)
    assert alike(value, value.clone())
    assert not alike(value, torch.tensor([1.0, 1.0]).to(dtype))


def test_frozen_parameters_of_any_dtype_stay_as_they_are():
    base = nn.Linear(4, 4).bfloat16().requires_grad_(False)
    before = base.weight.clone()
    model = FlatModel(nn.Sequential(net(), nn.ModuleDict({"base": base})))
    assert same_bits(words_of(model.module[1]["base"].weight), words_of(before))


class Draws(nn.Module):
    """Adds what numpy's and Python's generators give."""

    def forward(self, x):
        return x + 0.1 * (np.random.rand() + random.random()) if self.training else x  # noqa: NPY002


@pytest.mark.parametrize("key", ["plain", "batch_silos", *(["compile"] if SLOW else [])])
def test_draws_of_numpy_and_python_are_the_silos_own(key, capsys):
    """They do not depend on who has drawn before, and are not traced as constants."""
    found = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        model = FlatModel(nn.Sequential(Draws(), *net()))
        local = LOCAL.model_copy(update={key: True}) if key != "plain" else LOCAL
        trains = (
            {"trains": lambda asked: train_together([asked], 2)[0](asked)} if key == "batch_silos" else {}
        )
        found.append(make_silo(model, randomness=4, **trains).train_locally(net_start(model), local).delta)
    assert same_bits(*found)
    if key == "batch_silos":  # which has drawn the batches once more
        return
    plain = FlatModel(nn.Sequential(Draws(), *net()))
    assert same_bits(found[0], make_silo(plain, randomness=4).train_locally(net_start(plain), LOCAL).delta)


FAST = [("batch_silos", "copy"), ("batch_silos", "replace")]
FAST += [("compile", how) for how in ("replace", "copy", "data")] if SLOW else []


@pytest.mark.parametrize(("key", "how"), FAST)
def test_a_fast_way_does_with_buffers_what_the_plain_one_does(key, how):
    local = LOCAL.model_copy(update={key: True})
    trains = {"trains": lambda asked: train_together([asked], 2)[0](asked)} if key == "batch_silos" else {}
    fast, plain = (model_of(torch.full((2,), torch.inf), how=how, rules=LOW) for _ in range(2))
    silo, other = make_silo(fast, **trains), make_silo(plain)
    assert torch.allclose(
        silo.train_locally(net_start(fast), local).delta,
        other.train_locally(net_start(plain), LOCAL).delta,
        atol=1e-5,
    )
    assert torch.allclose(fast.module[0].b, plain.module[0].b, rtol=1e-5)
