"""What travels: records that come back as they went, and nothing that is not in their schema."""

import contextlib
import math

import pytest
import torch
from hypothesis import given, strategies as st
from pydantic import ValidationError
from unit import builders  # noqa: F401 - its settings of hypothesis

from mpifl.common import LARGEST_FIGURE, RoundLost
from mpifl.sums.planning import PartialSum, ReductionPlan, Window, WindowPart, parts_of, pieces_in
from mpifl.wire.messages import (
    DTYPES,
    LARGEST,
    ArraySpec,
    Done,
    FileReply,
    FinishReply,
    Header,
    Report,
    VectorHeader,
    VectorSpec,
    Verdict,
)
from mpifl.wire.requests import (
    Compute,
    Converse,
    Finish,
    Inventory,
    KeepTestSet,
    Load,
    Migrate,
    Open,
    Reassigning,
    Replicate,
    Request,
    Save,
    SaveStatus,
    ScoreBatches,
    Stop,
    read_request,
)
from mpifl.wire.update import Mean, Uniform, uniform

text = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
scalar = st.booleans() | numbers | text
scalars = st.dictionaries(text, scalar, max_size=4)
counts = st.integers(0, 2**40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.isprintable)
shown = text.filter(str.isprintable)
bounded = st.integers(-(2**63), 2**63) | st.floats(-LARGEST_FIGURE, LARGEST_FIGURE)
numbered = st.integers(-70, 60)
described = st.builds(
    VectorHeader,
    length=counts,
    window=st.none() | numbered,
    combined=st.sampled_from(["weighted", "uniform", "summed"]),
)
arrays = st.builds(ArraySpec, name=text, shape=st.lists(counts, max_size=3), dtype=text)
answered = {"silo": counts, "fault": st.none() | shown, "keeps": st.booleans()}
headers = st.builds(
    Header,
    **answered,
    weight=st.floats(0, LARGEST),
    scalars=st.dictionaries(names, st.booleans() | bounded | shown, max_size=4),
    vectors=st.dictionaries(names, described, max_size=3),
)
digests = st.none() | st.text("0123456789abcdef", min_size=64, max_size=64)
replies = (
    headers
    | st.builds(Done, **answered)
    | st.builds(FileReply, **answered, writing=st.booleans(), sha256=digests)
    | st.builds(FinishReply, **answered, unwritten=st.none() | shown)
)
found = st.lists(st.builds(WindowPart, handle=counts, weight=st.floats(0, LARGEST)), min_size=1, max_size=2)
windows = st.builds(Window, number=numbered, parts=st.dictionaries(st.integers(0, 9), found, max_size=3))
pieces = st.builds(
    ReductionPlan,
    name=text,
    length=counts,
    total=st.floats(0, 1e300),
    windows=st.lists(windows, max_size=3),
    mean=counts,
)
files = st.dictionaries(counts, text, max_size=3)
common = {
    "round": counts,
    "attempt": counts,
    "cohort": st.lists(counts, max_size=4),
    "resting": st.none() | st.lists(counts, max_size=3),
    "vectors": st.lists(st.builds(VectorSpec, name=text, length=counts, dtype=text), max_size=3),
}
assignments = st.dictionaries(counts, counts, max_size=3)
REQUESTS = [
    st.builds(Compute, work=text, scalars=scalars, assignment=assignments, **common),
    st.builds(SaveStatus, checkpoint=counts, wait=st.booleans(), **common),
    st.builds(Load, files=files, **common),
    st.builds(Migrate, assignment=assignments, checkpoint=counts, files=files, **common),
    st.builds(Replicate, figures=st.dictionaries(text, scalar | scalars, max_size=3), **common),
    st.builds(KeepTestSet, arrays=st.lists(arrays, max_size=3), **common),
    st.builds(
        ScoreBatches,
        size=st.integers(1, 99),
        examples=counts,
        dealt=st.lists(st.integers(0, 9), max_size=3),
        **common,
    ),
    st.builds(Finish, sha256=text, **common),
    st.builds(Converse, work=text, longest=counts, **common),
    *(st.builds(kind, **common) for kind in (Open, Save, Inventory, Stop)),
]
parts = st.builds(PartialSum, name=names, window=numbered, handle=st.integers(0, 2**31))
RECORDS = {
    Report: st.builds(
        Report,
        headers=st.lists(replies, max_size=3),
        seconds=st.floats(0, 1e6),
        interrupted=st.booleans(),
        about=st.dictionaries(names, shown, max_size=2),
    ),
    Verdict: st.builds(
        Verdict,
        lost=st.none() | st.text(),
        accepted=st.lists(counts, max_size=3),
    ),
}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_record_comes_back_as_it_went_types_included(kind, data):
    record = data.draw(RECORDS[kind])
    back = kind.model_validate_json(record.encode())
    assert back == record
    assert repr(back) == repr(record)  # == holds between True, 1 and 1.0


@given(st.lists(parts, max_size=3), st.lists(pieces, max_size=3))
def test_an_aggregators_own_records_come_back_as_they_went(parts, pieces):
    report = Report.model_validate_json(Report(parts=parts).encode())
    verdict = Verdict.model_validate_json(Verdict(pieces=pieces).encode())
    assert repr(parts_of(report)) == repr(parts)
    assert repr(pieces_in(verdict.pieces)) == repr(pieces)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: Header(silo=0, weight=v),
        lambda v: Header(silo=0, scalars={"loss": v}),
        lambda v: Compute(work="train", scalars={"mu": v}),
        lambda v: Report(seconds=v),
    ],
    ids=["weight", "a silo's scalar", "the server's scalar", "seconds"],
)
def test_nan_and_infinities_cannot_be_written(make, value):
    with pytest.raises(ValidationError):
        make(value)


GOOD = b'{"silo": 3, "weight": 1.5, "scalars": {"loss": 0.5}}'


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x00\xff",
        b"{",
        b"[]",
        b"null",
        b'"silo"',
        GOOD[:-1],
        GOOD + b"{}",
        GOOD.replace(b"silo", b"solo"),
        GOOD.replace(b"3", b'"3"'),
        GOOD.replace(b"3", b"3.5"),
        GOOD.replace(b"3", b"-3"),
        GOOD.replace(b"1.5", b"-1.5"),
        GOOD.replace(b"1.5", b"NaN"),
        GOOD.replace(b"1.5", b"1e999"),
        GOOD.replace(b"0.5", b"NaN"),
        GOOD.replace(b"0.5", b"-Infinity"),
        GOOD.replace(b"0.5", b"[0.5]"),
        GOOD.replace(b"0.5", b"null"),
        GOOD.replace(b"}}", b'}, "more": 1}'),
        GOOD.replace(b"}}", b'}, "vectors": {"w": {"length": -1, "window": 0}}}'),
        GOOD.replace(b"}}", b'}, "vectors": {"w": {"length": 1, "window": 0, "data": "x"}}}'),
        GOOD.replace(b"}}", b'}, "fault": 7}'),
    ],
)
def test_bytes_that_are_no_header_are_refused(record):
    assert Header.model_validate_json(GOOD).silo == 3
    with pytest.raises(ValidationError):
        Header.model_validate_json(record)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_refused(record):
    for kind in (*RECORDS, Header):
        with contextlib.suppress(ValidationError):
            assert isinstance(kind.model_validate_json(record), kind)


@given(request=st.one_of(REQUESTS))
def test_a_request_comes_back_as_it_went_its_kind_included(request):
    back = read_request(request.encode())
    assert back == request
    assert repr(back) == repr(request)


def test_every_kind_of_request_has_its_example():
    assert {kind.__name__ for kind in (*Request.__subclasses__(), *Reassigning.__subclasses__())} == {
        *("Reassigning", "Compute", "Converse", "Open", "Save", "SaveStatus", "Load"),
        *("Migrate", "Inventory", "Replicate", "KeepTestSet", "ScoreBatches", "Finish", "Stop"),
    }
    assert len(REQUESTS) == 13


NO_REQUESTS = [
    b"{}",
    b'{"kind": ""}',
    b'{"kind": "exec"}',
    b'{"kind": "Compute", "work": "a"}',
    b'{"kind": null}',
    b'{"kind": 1}',
    b'{"kind": "compute"}',
    b'{"kind": "stop", "work": "train"}',
    b'{"kind": "save", "files": {}}',
]


@pytest.mark.parametrize("record", NO_REQUESTS, ids=lambda record: record.decode())
def test_an_unknown_kind_or_another_kinds_field_is_refused(record):
    with pytest.raises(ValidationError):
        read_request(record)


def test_records_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Header(silo=0).silo = 1


def test_the_dtypes_that_travel_are_these():
    assert set(DTYPES.values()) == {torch.float32, torch.float64, torch.int64, torch.uint8}
    assert all(getattr(torch, name) is dtype for name, dtype in DTYPES.items())


def test_a_mean_gives_vectors_by_name_its_size_and_each_silos_numbers_in_order():
    mean = Mean({"w": torch.ones(2)}, {"loss": 1.0}, {4: {"loss": 3}, 1: {"loss": 1.5}, 2: {"other": True}})
    assert mean["w"].tolist() == [1.0, 1.0]
    assert len(mean) == 3
    assert list(mean.each("loss")) == [1.5, 3.0]
    with pytest.raises(RoundLost, match="your round asks for 'v', and silos sent 'w'") as lost:
        mean["v"]
    assert lost.value.in_vain
    mean.faults[3] = "too late"
    with pytest.raises(RoundLost, match="no silo that counts sent 'v'; vectors that came: 'w'") as lost:
        mean["v"]
    assert not lost.value.in_vain, "the one that failed may have sent it"


def test_uniform_marks_a_vector_and_leaves_it_as_it_is():
    vector = torch.ones(2)
    assert isinstance(uniform(vector), Uniform)
    assert uniform(vector).vector is vector
