"""Rules of columns: what they make of rows, and what the user is told of rules of his own."""

import functools
import itertools

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import given, strategies as st
from unit.builders import Alone, write_folder

from mpifl.common.errors import InputError, RoundLost
from mpifl.run.job.tables.aggregation_table import AggregationSettings
from mpifl.sums import kernels
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.robust.column_rules import network, rule_of
from mpifl.wings.robust.column_rules_run import ColumnRule, memory_of
from mpifl.wings.robust.disk_buffer import DiskBuffer
from mpifl.wings.robust.robust_wing import built as built_of
from mpifl.wire.memory import Memory
from mpifl.wire.messages import Header, Report, VectorHeader
from mpifl.wire.requests import Compute
from mpifl.wire.update import Update

values = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 3e38]
)
HERE = "unit.aggregation.test_rules"


@st.composite
def matrices(draw, least=1):
    """Draw rows of equal length, some with equal values and both zeros."""
    silos, length = draw(st.integers(least, 9)), draw(st.integers(1, 6))
    row = st.lists(values, min_size=length, max_size=length)
    return np.array(draw(st.lists(row, min_size=silos, max_size=silos)), np.float32)


def applied(name, rows, byzantine=None):
    """Apply a rule by the compiled loop, if there is one, and by tensors; return what both give."""
    vectors = [torch.from_numpy(row.copy()) for row in rows]
    found = rule_of(name, byzantine)(vectors).numpy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda: None)
        assert rule_of(name, byzantine)(vectors).numpy().tobytes() == found.tobytes()
    return found


def between(rows, first, last):
    chosen = np.sort(rows, axis=0)[first:last].astype(np.float64)
    return (functools.reduce(np.add, chosen) / (last - first)).astype(np.float32) + np.float32(0)


@given(matrices())
def test_the_median_is_that_of_numpy_to_the_bit(rows):
    expected = between(rows, (len(rows) - 1) // 2, len(rows) // 2 + 1)
    assert applied("median", rows).tobytes() == expected.tobytes()
    assert np.array_equal(expected, np.median(rows.astype(np.float64), axis=0).astype(np.float32))


@given(matrices(), st.integers(1, 4))
def test_values_at_the_edges_are_beyond_those_that_are_kept(rows, byzantine):
    silos = len(rows)
    trimmed, middle = (
        rule_of(*one) for one in (("trimmed", min(byzantine, (silos - 1) // 2)), ("median", None))
    )
    for rule, edge in ((trimmed, min(byzantine, (silos - 1) // 2)), (middle, silos // 4)):
        ordered = np.sort(rows, axis=0)
        beyond = (rows < ordered[edge]) | (rows > ordered[silos - 1 - edge])
        found = rule.outside([torch.from_numpy(row) for row in rows])
        assert found == (beyond.sum(1).tolist() if edge else None)


@given(matrices(least=3), st.integers(1, 4))
def test_the_trimmed_mean_leaves_the_ends_of_each_column_out(rows, byzantine):
    byzantine = min(byzantine, (len(rows) - 1) // 2)
    expected = between(rows, byzantine, len(rows) - byzantine)
    assert applied("trimmed", rows, byzantine).tobytes() == expected.tobytes()


@given(matrices(), st.randoms(use_true_random=False))
def test_the_order_of_silos_does_not_matter_to_the_rules_that_ship(rows, shuffle):
    mixed = rows[shuffle.sample(range(len(rows)), len(rows))]
    assert applied("median", rows).tobytes() == applied("median", mixed).tobytes()


def test_a_mean_that_rounds_to_zero_is_no_negative_zero():
    rows = np.array([[-(2.0**-149)], [0.0]], np.float32)
    assert applied("median", rows).tobytes() == np.zeros(1, np.float32).tobytes()


@given(matrices(least=5), st.sampled_from([(3e38, -3e38), (3e38, 3e38), (-3e38, -3e38)]))
def test_two_silos_of_five_or_more_cannot_take_the_result_out_of_the_others_range(rows, lies):
    low, high = rows[2:].min(0), rows[2:].max(0)
    rows[0], rows[1] = lies
    for name, byzantine in (("median", None), ("trimmed", 2)):
        found = applied(name, rows, byzantine)
        assert ((low <= found) & (found <= high)).all()


@pytest.mark.parametrize("silos", [127, 128, 129, 200])
def test_many_silos_are_sorted_by_torch_to_the_same_bits(silos, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((silos, 50)).astype(np.float32)
    found = applied("median", rows)
    monkeypatch.setattr(kernels, "compiled", lambda: None)
    for most in (0, 1000):
        monkeypatch.setattr(kernels, "ROWS", most)
        assert applied("median", rows).tobytes() == found.tobytes()


@pytest.mark.parametrize("wires", range(1, 13))
def test_a_network_sorts_everything_since_it_sorts_all_zeros_and_ones(wires):
    rows = np.array(list(itertools.product([0, 1], repeat=wires))).T
    for low, high in network(wires):
        assert low < high
        rows[low], rows[high] = np.minimum(rows[low], rows[high]), np.maximum(rows[low], rows[high])
    assert (np.diff(rows, axis=0) >= 0).all()


def too_short(rows):
    return rows[0][:-1]


def doubled(rows):
    return rows.double().mean(0)


def with_nan(rows):
    return rows[0] * torch.nan


def nothing(rows):
    return None


def raising(rows):
    raise KeyError("no such\nthing")


def huge(rows):
    """Fails for what silos send, and not for what it is tried with."""
    return rows.mean(0) if float(rows.abs().max()) <= 1 else rows.mean(0) / 0


def last(rows):
    return rows[-1]


NO_RULES = {
    "too_short": "returned a tensor of shape [7] for 8 columns",
    "doubled": "returned torch.float64",
    "with_nan": "returned NaN or Inf",
    "nothing": "returned None",
    "raising": "failed: KeyError: ",
    "NO_RULES": "is not a function",
    "missing": "has no attribute 'missing'",
    "DiskBuffer": "is not a function",
}


@pytest.fixture
def job(tmp_path):
    """Write a job over three silos; return its file."""
    write_folder(tmp_path / "shards", [10, 10, 10], test=5)

    def write(rule, **more):
        tables = {"name": "toy", "rounds": 1, "shards": str(tmp_path / "shards"), "model": {"name": "logreg"}}
        (tmp_path / "job.toml").write_text(tomli_w.dumps({**tables, "aggregation": {"rule": rule}, **more}))
        return tmp_path / "job.toml"

    return write


@pytest.mark.parametrize("name", NO_RULES)
def test_a_rule_of_the_users_that_is_none_is_refused_at_the_start_in_one_line(job, tmp_path, name):
    with pytest.raises(InputError) as refused:
        train(job(f"{HERE}:{name}"), tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'job.toml'}: [aggregation] rule = '{HERE}:{name}'")
    assert NO_RULES[name] in message
    assert "\n" not in message
    assert not (tmp_path / "run").exists()


def test_a_rule_of_the_users_that_fails_in_a_round_ends_the_run_at_once(job, tmp_path):
    file = job(f"{HERE}:huge", local={"lr": 1e6, "batch_size": 5})
    with pytest.raises(
        RoundLost, match=rf"round 1 was lost: \[aggregation\] rule = '{HERE}:huge' returned NaN or Inf"
    ):
        train(file, tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def test_more_than_a_round_asks_cannot_be_tolerated(job, tmp_path):
    file = job("trimmed", aggregation={"rule": "trimmed", "byzantine": 2})
    with pytest.raises(
        InputError, match=r"\[aggregation\] byzantine = 2 takes 5 silos in a round, and a round asks 3 of 3"
    ):
        train(file, tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def test_a_share_that_is_none_of_the_silos_of_a_round_is_refused(job, tmp_path):
    file = job("trimmed", aggregation={"rule": "trimmed", "byzantine": 0.2})
    what = r"byzantine = 0\.2: of the 3 silos that a round asks that is none; use 0\.334 or more"
    with pytest.raises(InputError, match=what):
        train(file, tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def test_a_folder_for_vectors_must_be_one(job, tmp_path):
    file = job("median", aggregation={"rule": "median", "disk_buffer": str(tmp_path / "none")})
    with pytest.raises(
        InputError, match=r"\[aggregation\] disk_buffer = '.*none': no file can be made there \(No such file"
    ):
        train(file, tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def aggregator(rule="median", byzantine=None, disk_buffer=None):
    made = ColumnRule(rule_of(rule, byzantine), Memory(shared=False), disk_buffer)
    made.begin(Compute(work="train"), {}, [0, 1])
    return made


def taken_up(aggregation, silos):
    headers = [
        Header(silo=k, weight=1.0, vectors=aggregation.accumulate(k, Update(1.0, v)))
        for k, v in silos.items()
    ]
    return Report(headers=headers, parts=aggregation.parts())


def test_if_too_few_silos_are_left_to_trim_the_round_is_lost_with_a_line():
    aggregation = aggregator("trimmed", 1)
    report = taken_up(aggregation, {0: {"delta": torch.ones(2)}, 1: {"delta": torch.ones(2)}})
    with pytest.raises(RoundLost, match=r"2 silos sent 'delta', and \[aggregation\] byzantine = 1 takes 3"):
        aggregation.place({0: report})


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        (torch.tensor([1.0, torch.nan]), "'delta' holds NaN or Inf"),
        (
            torch.tensor([1.0, 1e200], dtype=torch.float64),
            "'delta' reaches 1e\\+200, which is beyond float32",
        ),
        (torch.ones(3), "'delta' has 3 elements, other silos sent 2"),
        (torch.ones(2, dtype=torch.bfloat16), "'delta' is torch.bfloat16"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_refused_and_nothing_of_its_update_is_kept(vector, why):
    aggregation = aggregator()
    taken_up(aggregation, {0: {"delta": torch.ones(2), "more": torch.ones(1)}})
    with pytest.raises(ValueError, match=why):
        aggregation.accumulate(1, Update(1.0, {"more": torch.ones(1), "delta": vector}))
    assert [(row.name, row.silo) for row in aggregation.parts()] == [("delta", 0), ("more", 0)]


def test_a_vector_is_kept_as_it_was_though_its_memory_serves_the_next_silo():
    """What is lent is kept as it is; anything else may be a view of a model that all silos are lent."""
    aggregation = aggregator()
    lent, shared = aggregation.lend(2, torch.float32).fill_(1.0), torch.full((2,), 2.0)
    aggregation.accumulate(0, Update(1.0, {"lent": lent, "shared": shared}))
    shared.fill_(7.0)
    rows = {name: row for (name, _), row in aggregation._rows.items()}
    assert rows["lent"] is lent
    assert rows["shared"].tolist() == [2.0, 2.0]


def test_numbers_of_updates_are_combined_by_their_medians():
    headers = [
        Header(silo=k, scalars={"loss": loss, "all": True}) for k, loss in enumerate([1.0, 900.0, 2.0])
    ]
    headers.append(Header(silo=3, scalars={"all": False}))
    assert aggregator().scalars(headers) == {"all": 1.0, "loss": 2.0}


def row(name="delta", silo=0, **more):
    return {"name": name, "silo": silo, "handle": 0, **more}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "'delta' of silo 0"),
        ([row(), row()], "'delta' of silo 0"),
        ([row(silo=1)], "'delta' of silo 0"),
        ([row(), row(name="more")], "'more' of silo 0"),
        ([{"name": "delta"}], "its vectors cannot be read \\(0.silo: Field required"),
        ([row(handle=-1)], "its vectors cannot be read \\(0.handle"),
        ([None], "its vectors cannot be read"),
    ],
)
def test_a_report_with_other_vectors_than_its_headers_tell_of_is_refused(parts, why):
    headers = [Header(silo=0, weight=1.0, vectors={"delta": VectorHeader(length=2, window=None)})]
    with pytest.raises(ValueError, match=why):
        aggregator().accept(Alone(), 0, parts, headers)
    aggregator().accept(Alone(), 0, [row()], headers)


def test_vectors_in_files_leave_no_name_behind_and_a_full_disk_is_an_error_of_the_system(disk):
    disk_buffer = DiskBuffer(disk)
    vector = disk_buffer.empty(1000).fill_(1.0)
    assert float(vector.sum()) == 1000.0
    assert list(disk.iterdir()) == []
    with pytest.raises(OSError, match="No space left"):
        disk_buffer.empty(1 << 24)


def test_the_estimate_of_memory_is_that_of_the_rank_with_most_silos():
    said = memory_of([2, 5], 4, 1_000_000, None)
    assert "16.0 MB of memory on the rank with most silos (4)" in said
    assert "the server has the result, 4.0 MB" in said
    assert "16.0 MB in files in /scratch on" in memory_of([2, 5], 4, 1_000_000, "/scratch")


def test_settings_build_what_they_name():
    assert AggregationSettings().is_mean
    built = built_of(AggregationSettings(rule="trimmed", byzantine=3))
    assert (built.name, built.least) == ("trimmed", 7)
