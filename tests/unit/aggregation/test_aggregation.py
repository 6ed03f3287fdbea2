"""The weighted mean: the same bits however it is summed, within the stated error, and nothing half added."""

import math
import os
import random
import resource
from collections import defaultdict, deque

import pytest
import torch
from hypothesis import given, strategies as st
from unit.builders import CPU, Alone, same_bits

from mpifl.sums import kernels, mean, node_sums
from mpifl.sums.exact import ExactSum, is_finite, peak_of, window_of
from mpifl.sums.mean import WeightedMean
from mpifl.sums.planning import PartialSum, ReductionPlan, Window, WindowPart, plan
from mpifl.wings.sites.answers.site_share import SiteShare, window_named
from mpifl.wire.memory import Memory
from mpifl.wire.messages import Header, Report, VectorHeader, Verdict
from mpifl.wire.nodes import Nodes
from mpifl.wire.transport import Transport
from mpifl.wire.update import Update, summed, uniform

LARGEST = 2.0**127
magnitudes = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-LARGEST, max_value=LARGEST)
near_one = st.floats(-2, 2, width=32)
weights = st.one_of(st.floats(1e-6, 1e9), st.integers(1, 60_000).map(float))


@st.composite
def updates(draw, values=magnitudes):
    """Draw (weight, vector) of 1 to 9 silos, all vectors of one length."""
    length = draw(st.integers(0, 12))
    vectors = st.lists(values, min_size=length, max_size=length).map(
        lambda v: torch.tensor(v, dtype=torch.float32)
    )
    return draw(st.lists(st.tuples(weights, vectors), min_size=1, max_size=9))


class Shared(Memory):
    """What the ranks of one process have handed out, to be found by any of them."""

    def __init__(self, vectors):
        super().__init__(shared=True)
        self.vectors = vectors

    def empty(self, length, dtype):
        self.vectors.append(torch.full((length,), 77, dtype=dtype))
        return self.vectors[-1]

    def handle(self, vector):
        return 1 + next((i for i, known in enumerate(self.vectors) if known is vector), -1)


class Rank(Transport):
    """One of several ranks that run one after another, those of the lowest node last: what a rank is sent is
    there when it wants it."""

    def __init__(self, rank, of, vectors, sent_to):
        self.rank, self.size, self.nodes, self.origins = rank, len(of), Nodes(of, rank), list(range(len(of)))
        self.memory, self.sent_to, self.silent, self.sent = Shared(vectors), sent_to, set(), 0

    def read(self, rank, handle, length, dtype):
        assert self.nodes.of[rank] == self.nodes.number
        assert self.memory.vectors[handle - 1].dtype == dtype
        return self.memory.vectors[handle - 1][:length]

    def done(self, serial):
        pass

    def await_done(self, workers, serial, seconds=None):
        return set()

    def send_piece(self, piece, rank, serial):
        self.sent_to[self.rank, rank].append(piece.clone())

    def receive_piece(self, into, rank, serial, until):
        return into.copy_(self.sent_to[rank, self.rank].popleft())

    def wait(self, request, until):
        return True


def over_ranks(silos, workers, seed, kind=WeightedMean, summands=None):
    """Return what a kind of mean makes of [(id,
    update)] that are dealt to workers of drawn nodes and folded in a drawn order."""
    shuffle = random.Random(seed)
    silos = shuffle.sample(silos, len(silos))
    size, per_node = workers + (workers > 1), shuffle.randint(1, workers + 1)
    of, vectors, sent = [rank // per_node for rank in range(size)], [], defaultdict(deque)
    ranks = [Rank(rank, of, vectors, sent) for rank in range(size)]
    sums = [kind(CPU, rank.memory) for rank in ranks]
    headers = defaultdict(list)
    dealt = [shuffle.choice(list(ranks[0].workers)) for _ in silos]
    for rank, one in enumerate(sums):
        one.expect(summands or len(silos), dealt.count(rank))
    for rank, (silo, update) in zip(dealt, silos, strict=True):
        headers[rank].append(
            Header(silo=silo, weight=update.weight, vectors=sums[rank].accumulate(silo, update))
        )
    reports = {rank: Report(headers=headers[rank], parts=one.parts()) for rank, one in enumerate(sums)}
    verdict = Verdict(accepted=[k for k, _ in silos], ranks=list(range(size)), pieces=sums[0].place(reports))
    for rank in sorted(ranks, key=lambda rank: (-rank.nodes.number, -rank.rank)):
        means = sums[rank.rank].combine(rank, verdict).vectors
        assert rank.is_server or not means
    assert not any(sent.values())
    return means


def empty(length):
    return torch.empty(length, dtype=torch.float64)


def mean_of(drawn, ranks=1, seed=0, wrap=lambda vector: vector):
    return over_ranks([(k, Update(w, {"delta": wrap(v)})) for k, (w, v) in enumerate(drawn)], ranks, seed)[
        "delta"
    ]


@given(updates(), st.integers(1, 5), st.integers(0, 2**32))
def test_order_and_grouping_never_change_a_bit(drawn, ranks, seed):
    assert same_bits(mean_of(drawn, ranks, seed), mean_of(drawn))


@given(updates(near_one), st.integers(1, 5), st.integers(0, 2**32))
def test_order_and_grouping_never_change_a_bit_of_ordinary_updates(drawn, ranks, seed):
    assert same_bits(mean_of(drawn, ranks, seed), mean_of(drawn))


full = st.floats(2.0**15, 2.0**16, exclude_max=True).map(lambda value: value * (-1) ** (int(value) % 2))


@given(st.lists(full, min_size=2, max_size=70), st.randoms(use_true_random=False))
def test_summands_of_full_precision_that_fill_their_window_add_up_exactly_in_any_grouping(values, shuffle):
    summands = [torch.tensor([value, abs(value)], dtype=torch.float64) for value in values]

    def total(part):
        sums = ExactSum(2, len(values))
        for vector in part:
            sums.add(vector, 1.0, peak_of(vector), empty(2))
        return sums.windows[1]

    order = shuffle.sample(summands, len(summands))
    cut = shuffle.randrange(1, len(order))
    assert same_bits(total(order[:cut]) + total(order[cut:]), total(summands))


def error_bound(drawn):
    """The stated error of the sum, relative to its total weight, with what float32 itself loses."""
    bits = max(1, math.ceil(math.log2(len(drawn))))
    total = math.fsum(w for w, _ in drawn)
    rounding = math.fsum(2.0 ** (bits - 37) * w * peak_of(v) for w, v in drawn) / total
    return lambda value: rounding * (1 + 1e-9) + 2.0**-24 * abs(value) * (1 + 1e-9) + 2.0**-149


def fsum_mean(drawn):
    total = math.fsum(w for w, _ in drawn)
    return [math.fsum(w * float(v[i]) for w, v in drawn) / total for i in range(len(drawn[0][1]))]


@given(st.one_of(updates(), updates(near_one)))
def test_the_mean_is_within_the_stated_error_of_the_exact_one(drawn):
    bound = error_bound(drawn)
    for found, exact_value in zip(mean_of(drawn).tolist(), fsum_mean(drawn), strict=True):
        assert abs(found - exact_value) <= bound(exact_value)


@given(updates(), st.integers(2, 4), st.integers(1, 4), st.integers(0, 99))
def test_sums_that_are_made_elsewhere_lead_to_the_same_bits(drawn, sites, ranks, seed):
    """Each site adds up its silos in a world of its own; the server divides what comes."""
    server, headers = WeightedMean(CPU, Memory(shared=False)), []
    server.expect(len(drawn))
    silos = [(k, Update(w, {"delta": v})) for k, (w, v) in enumerate(drawn)]
    for nth in range(sites):
        own = silos[nth::sites]
        found = over_ranks(own, ranks, seed + nth, SiteShare, len(drawn)) if own else {}
        server.take({window_named(key)[::-1]: (total, len(own)) for key, total in found.items()})
    for silo, update in silos:
        window = window_of(update.weight * peak_of(update.vectors["delta"]))
        told = VectorHeader(length=len(update.vectors["delta"]), window=window)
        headers.append(Header(silo=silo, weight=update.weight, vectors={"delta": told}))
    pieces = server.place({0: Report(headers=headers, parts=server.parts())})
    made = server.combine(Alone(), Verdict(ranks=[0], pieces=pieces)).vectors["delta"]
    assert same_bits(made, mean_of(drawn))


@pytest.mark.parametrize("wrong", ["off the grid", "too large", "nan", "of another length"])
def test_a_sum_that_no_updates_have_is_refused_and_nothing_is_added(wrong):
    server, good = WeightedMean(CPU, Memory(shared=False)), torch.tensor([0.5, -0.25], dtype=torch.float64)
    server.expect(4)
    server.take({("w", 0): (good.clone(), 2)})
    bad = {
        "off the grid": good + 2.0**-51,
        "too large": good * 8,
        "nan": good * math.nan,
        "of another length": torch.zeros(3, dtype=torch.float64),
    }[wrong]
    with pytest.raises(ValueError, match="'w'"):
        server.take({("v", 0): (good.clone(), 2), ("w", 0): (bad, 2)})
    assert [(name, total.tolist()) for name, _, total in server._here.sums()] == [("w", [0.5, -0.25])]


def test_ordinary_updates_are_averaged_to_the_float32_that_is_nearest():
    vectors = torch.randn(20, 1000, generator=torch.Generator().manual_seed(0)) * 0.01
    sizes = torch.arange(1, 21, dtype=torch.float64) * 30
    found = mean_of(list(zip(sizes.tolist(), vectors, strict=True)))
    nearest = (sizes @ vectors.double() / sizes.sum()).float()
    assert (found - nearest).abs().max() <= 2.0**-30
    assert (found == nearest).double().mean() > 0.95


exponents = st.integers(-11, -1)
near_the_peak = st.lists(
    st.tuples(st.floats(0.5, 1, width=32, exclude_max=True), exponents, st.sampled_from([1, -1])), max_size=20
)


@given(near_the_peak, st.integers(-60, 60), st.integers(-20, 20))
def test_one_silo_of_a_power_of_two_gets_its_own_vector_back_to_the_bit(elements, scale, weight):
    """Elements down to 2^-11 of the peak: below that the grid of the window is coarser than float32."""
    values = [2.0**scale, *(sign * value * 2.0 ** (scale + exponent) for value, exponent, sign in elements)]
    vector = torch.tensor(values, dtype=torch.float32)
    assert same_bits(mean_of([(2.0**weight, vector)]), vector)


@given(updates(), st.integers(1, 3))
def test_silos_that_all_send_zeros_have_the_mean_zero(drawn, ranks):
    zeros = [(weight, torch.zeros_like(vector)) for weight, vector in drawn]
    assert mean_of(zeros, ranks).tolist() == [0.0] * len(drawn[0][1])


@given(updates(), st.integers(1, 3))
def test_uniform_vectors_are_averaged_with_equal_weights(drawn, ranks):
    equal = [(1.0, vector) for _, vector in drawn]
    assert same_bits(mean_of(drawn, ranks, wrap=uniform), mean_of(equal))


@given(
    st.lists(st.tuples(weights, st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3)), min_size=1),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_whole_numbers_are_added_up_to_the_last_one(drawn, ranks, seed):
    counts = [(weight, torch.tensor(numbers)) for weight, numbers in drawn]
    found = mean_of(counts, ranks, seed, wrap=summed)
    assert found.dtype == torch.float64
    assert found.tolist() == [sum(numbers[i] for _, numbers in drawn) for i in range(3)]


def test_weighted_and_uniform_vectors_of_one_update_go_their_own_ways():
    values = {0: (1.0, torch.tensor([4.0])), 1: (3.0, torch.tensor([8.0]))}
    silos = [(k, Update(weight, {"a": v, "b": uniform(v)})) for k, (weight, v) in values.items()]
    found = over_ranks(silos, 2, 0)
    assert {name: vector.tolist() for name, vector in found.items()} == {"a": [7.0], "b": [6.0]}


def test_vectors_longer_than_a_piece_and_a_chunk_are_the_same(monkeypatch):
    drawn = [(float(k + 1), torch.randn(1000, generator=torch.Generator().manual_seed(k))) for k in range(5)]
    whole = mean_of(drawn, 3)
    monkeypatch.setattr(kernels, "PIECE", 7)
    monkeypatch.setattr(node_sums, "WHOLE", 13)
    monkeypatch.setattr(node_sums, "PIECE", 13)
    monkeypatch.setattr(mean, "ALIGNED", 3)
    for seed in range(8):
        assert same_bits(mean_of(drawn, 2 + seed % 4, seed), whole)
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    for seed in range(8):
        assert same_bits(mean_of(drawn, 2 + seed % 4, seed), whole)


@pytest.mark.skipif(
    kernels.compiled() is None, reason="no C compiler here: there are only the loops in tensors"
)
@given(updates(), st.sampled_from([1.0, 24.0, 1.5 * 2.0**60]), st.integers(0, 1))
def test_the_compiled_loops_and_those_in_tensors_give_the_same_bits(drawn, anchor, fresh):
    totals = [torch.ones(len(drawn[0][1]), dtype=torch.float64) for _ in range(2)]
    means = [torch.ones(len(drawn[0][1])) for _ in range(2)]
    for total, out, library in zip(totals, means, (kernels.compiled(), None), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "compiled", lambda library=library: library)
            for weight, vector in drawn:
                kernels.add(total, vector, weight, anchor, fresh=bool(fresh))
            summands = [vector for _, vector in drawn]
            weights = [weight for weight, _ in drawn]
            one = kernels.Parts([total, *summands, total.flip(0)], [0.0, *weights, 0.0], anchor)
            kernels.mean(out, [one, kernels.Parts([total * 2.0**-20], [0.0], 1.0)], 1 / 3)
            total.copy_(kernels.total(one))
    assert same_bits(*totals)
    assert same_bits(*means)


def test_without_a_compiler_the_loops_run_in_tensors(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert kernels.compiled.__wrapped__() is None
    monkeypatch.setenv("CC", "false")
    assert kernels.compiled.__wrapped__() is None
    assert not list(tmp_path.rglob("*.so"))


def test_float64_vectors_are_added_with_their_own_precision():
    tiny = torch.tensor([1.0, 2.0**-30], dtype=torch.float64)
    assert mean_of([(1.0, tiny), (1.0, torch.tensor([-1.0, 0.0], dtype=torch.float64))]).tolist() == [
        0.0,
        2.0**-31,
    ]


BAD = {
    "NaN": (torch.tensor([1.0, math.nan, 3.0]), "NaN or Inf"),
    "Inf": (torch.tensor([1.0, 2.0, -math.inf]), "NaN or Inf"),
    "too short": (torch.ones(2), "2 elements, other silos sent 3"),
    "too long": (torch.ones(4), "4 elements, other silos sent 3"),
    "matrix": (torch.ones(3, 1), "shape \\[3, 1\\]; send flat"),
    "scalar": (torch.tensor(1.0), "shape \\[\\]; send flat"),
    "bfloat16": (torch.ones(3, dtype=torch.bfloat16), "bfloat16"),
    "float16": (torch.ones(3, dtype=torch.float16), "float16"),
    "integers": (torch.ones(3, dtype=torch.int64), "int64"),
}


def sums_of(aggregation):
    """Return the sums of all that has been added, by name."""
    windows = {name: sorted(sums.windows, reverse=True) for name, sums in aggregation._here._sums.items()}
    pieces = [
        ReductionPlan(
            name=name,
            length=aggregation._here._sums[name].length,
            total=1.0,
            windows=[Window(number=number, parts={0: [WindowPart(handle=0)]}) for number in numbers],
        )
        for name, numbers in sorted(windows.items())
    ]
    return aggregation.combine(Alone(), Verdict(ranks=[0], pieces=aggregation.placed(pieces))).vectors


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_vector_is_refused_and_nothing_of_its_update_is_added(kind, name):
    bad, reason = BAD[kind]
    good = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor([4.0, 5.0, 6.0])}
    aggregation = WeightedMean(CPU, Memory(shared=False))
    aggregation.expect(2)
    aggregation.accumulate(0, Update(2.0, dict(good)))
    before = sums_of(aggregation)
    with pytest.raises(ValueError, match=f"^'{name}'.*{reason}"):
        aggregation.accumulate(0, Update(3.0, {**good, name: bad}))
    after = sums_of(aggregation)
    assert before.keys() == after.keys() == good.keys()
    assert all(same_bits(before[key], after[key]) for key in good)


@pytest.mark.parametrize("kind", ["NaN", "Inf", "too short", "matrix", "bfloat16"])
def test_a_refused_update_that_came_first_is_no_measure_for_the_others(kind):
    aggregation = WeightedMean(CPU, Memory(shared=False))
    aggregation.expect(2)
    bad = (
        {"a": torch.ones(2), "b": torch.tensor([math.nan])}
        if kind == "too short"
        else {"a": BAD[kind][0][1:]}
    )
    with pytest.raises(ValueError):
        aggregation.accumulate(0, Update(1.0, bad))
    aggregation.accumulate(0, Update(1.0, {"a": torch.ones(3), "b": torch.ones(1)}))
    assert {name: vector.tolist() for name, vector in sums_of(aggregation).items()} == {
        "a": [1.0] * 3,
        "b": [1.0],
    }


@pytest.mark.parametrize(
    ("weight", "vector"),
    [
        (math.nan, torch.ones(3)),
        (math.inf, torch.ones(3)),
        (1e300, torch.full((3,), 1e30)),
        (1.0, torch.full((3,), 1e306, dtype=torch.float64)),
    ],
    ids=["NaN weight", "infinite weight", "product overflows", "too large for any window"],
)
def test_what_cannot_be_added_up_is_refused_and_nothing_of_it_is_added(weight, vector):
    aggregation = WeightedMean(CPU, Memory(shared=False))
    aggregation.expect(2)
    aggregation.accumulate(0, Update(1.0, {"a": torch.ones(3), "b": torch.ones(3)}))
    before = sums_of(aggregation)
    with pytest.raises(ValueError):
        aggregation.accumulate(0, Update(weight, {"a": torch.ones(3), "b": vector}))
    after = sums_of(aggregation)
    assert all(same_bits(before[key], after[key]) for key in "ab")


@pytest.mark.parametrize("few", [True, False])
def test_without_memory_for_one_of_its_vectors_nothing_of_an_update_is_added(few):
    """The process may open two files more, which is what the first vector takes:
    one that Python's mmap dups."""
    aggregation = WeightedMean(CPU, Memory(shared=True))
    aggregation.expect(2, 2 if few else None)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0), os.dup(0)]
    for file in free:
        os.close(file)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[1] + 1, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            aggregation.accumulate(0, Update(1.0, {"a": torch.ones(3), "b": torch.ones(4)}))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert aggregation.parts() == []
    aggregation.accumulate(0, Update(1.0, {"a": torch.full((3,), 2.0), "b": torch.ones(4)}))
    assert [part.name for part in aggregation.parts()] == ["a", "b"]
    if not few:
        assert [vector.tolist() for vector in sums_of(aggregation).values()] == [[2.0] * 3, [1.0] * 4]


def test_a_new_round_forgets_the_sums_of_the_one_before():
    aggregation = WeightedMean(CPU, Memory(shared=False))
    for length, value in ((3, 5.0), (2, 1.0)):
        aggregation.expect(1)
        aggregation.accumulate(0, Update(1.0, {"a": torch.full((length,), value)}))
    assert sums_of(aggregation)["a"].tolist() == [1.0, 1.0]


def header(silo, weight, **vectors):
    return Header(
        silo=silo,
        weight=weight,
        vectors={k: VectorHeader(length=n, window=w) for k, (n, w) in vectors.items()},
    )


def test_a_plan_lists_every_window_of_every_name_once_largest_first():
    reports = {
        2: Report(
            headers=[header(0, 2.0, b=(3, 0), a=(4, -1)), header(1, 0.5, a=(4, 2))],
            parts=[
                PartialSum(name="a", window=-1, handle=7),
                PartialSum(name="a", window=2),
                PartialSum(name="b", window=0),
            ],
        ),
        1: Report(headers=[header(2, 1.0, a=(4, -1))], parts=[PartialSum(name="a", window=-1, handle=5)]),
        3: Report(headers=[Header(silo=3, fault="no disk")]),
    }
    one, other = plan(reports)
    assert (one.name, one.length, one.total, one.windows) == (
        "a",
        4,
        3.5,
        [
            Window(number=2, parts={2: [WindowPart(handle=0)]}),
            Window(number=-1, parts={1: [WindowPart(handle=5)], 2: [WindowPart(handle=7)]}),
        ],
    )
    assert (other.name, other.length, other.total, other.windows) == (
        "b",
        3,
        2.0,
        [Window(number=0, parts={2: [WindowPart(handle=0)]})],
    )


@given(st.permutations(range(7)), st.integers(1, 7))
def test_a_plan_does_not_depend_on_which_rank_answers_first(order, ranks):
    headers = [header(k, 0.1 * 3**k, a=(2, k % 3), b=(5, None)) for k in range(7)]
    reports = {k % ranks: Report(headers=[h for h in headers if h.silo % ranks == k % ranks]) for k in order}
    assert plan(reports) == plan(dict(sorted(reports.items())))


@given(st.floats(min_value=5e-324, max_value=1e300))
def test_a_window_is_the_least_that_holds_its_peak(peak):
    window = window_of(peak)
    assert math.ldexp(peak, -16 * window) < 1
    assert math.ldexp(peak, -16 * (window - 1)) >= 1


def test_zeros_have_no_window_and_leave_a_sum_empty():
    total = ExactSum(3, 2)
    assert total.add(torch.zeros(3), 5.0, peak_of(torch.zeros(3)), None) is None
    assert total.windows == {}


@pytest.fixture(params=["compiled", "tensors"])
def loops(request, monkeypatch):
    """Either way of the loops."""
    if request.param == "tensors":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    elif kernels.compiled() is None:
        pytest.skip("no C compiler here")


def test_a_peak_is_the_largest_magnitude(loops):
    @given(st.lists(magnitudes, max_size=40))
    def found(values):
        assert peak_of(torch.tensor(values, dtype=torch.float32)) == max(map(abs, values), default=0.0)

    found()


@pytest.mark.parametrize("extreme", [-5.0, 3.4e38, math.inf, -math.inf, math.nan, -math.nan])
def test_a_peak_is_found_wherever_it_lies_and_nan_before_all_others(loops, extreme):
    for length in (1, 2, 71):
        for place in range(length):
            vector = torch.linspace(-1, 1, length).where(torch.arange(length) % 9 != 4, -0.0)
            vector[-1 - place] = -4.0 if math.isfinite(extreme) else -math.inf
            vector[place] = extreme
            for kind in (vector, vector.double(), vector.repeat_interleave(3)[::3]):
                assert repr(peak_of(kind)) == repr(abs(float(vector[place])))
                assert is_finite(kind) == math.isfinite(extreme)


def test_vectors_whose_sum_is_beyond_all_numbers_are_finite(loops):
    assert is_finite(torch.full((9,), 3e38))
    assert is_finite(torch.empty(0))
