"""Lines as they are written: to the bits of the formula, counted, the same wherever a silo lives."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from reference.split import float16, grid

from mpifl.common import BeyondRange, Diverged
from mpifl.run.job.tables import CompressionSettings
from mpifl.wings.split import LONGEST, PLAIN_LINES, ActivationCodecs

ROWS, WIDTH, HOME = 40, 6, 1


def line(seed=0, rows=ROWS, width=WIDTH):
    drawn = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return drawn * torch.logspace(-3, 2, rows)[:, None]


def writing(up="none", seed=3, work="bottom", round=2, **keys):
    return ActivationCodecs.of(CompressionSettings(upload=up, **keys), HOME, seed).writing(work, round)[0]


def there(way, sent, silo=0, number=0):
    payload = way.write(sent, silo, number)
    return way.read(memoryview(bytearray(payload)), silo, *sent.shape), len(payload)


CODECS = [("none", {}), ("float16", {}), ("bfloat16", {}), ("qsgd", {}), ("qsgd", {"bits": 4, "norm": "l2"})]


@pytest.mark.parametrize(("name", "keys"), CODECS)
def test_a_line_that_stays_on_its_rank_is_what_the_other_side_would_read(name, keys):
    way = writing(name, **keys)
    read, nbytes = there(way, line(), 0, 5)
    own, counted = way.carried(line(), 0, 5)
    assert torch.equal(own, read)
    assert counted == nbytes
    assert (read.dtype, read.shape) == (torch.float32, (ROWS, WIDTH))
    per_row = {"none": 24, "float16": 12, "bfloat16": 12, "qsgd": 10 if not keys else 7}
    assert nbytes == ROWS * per_row[name]


@pytest.mark.parametrize(("name", "silo"), [*((name, 0) for name, _ in CODECS), ("qsgd", HOME)])
def test_what_is_read_lies_in_memory_of_its_own_row_after_row_wherever_it_comes_from(name, silo):
    """Products round otherwise where numbers lie otherwise: a column of a gradient is no line that came."""
    way, cut = writing(name), torch.cat([line(), line()], 1)[:, :WIDTH]
    payload = bytearray(3) + way.write(cut, silo, 0)
    for found in (way.carried(cut, silo, 0)[0], way.read(memoryview(payload)[3:], silo, *cut.shape)):
        assert found.is_contiguous()
        assert found.data_ptr() % 64 == 0


def test_halves_are_rounded_to_the_nearest():
    assert torch.equal(there(writing("float16"), line())[0], float16(line()))
    assert torch.equal(there(writing("bfloat16"), line())[0], line().bfloat16().float())


@pytest.mark.parametrize(("norm", "bits"), [("max", 8), ("l2", 4)])
def test_qsgd_takes_each_row_for_itself_and_is_right_in_the_mean(norm, bits):
    sent, levels = line(), 2 ** (bits - 1) - 1
    low, high = grid(sent, levels, norm)
    low, high = torch.minimum(low, high), torch.maximum(low, high)
    way, total, times = writing("qsgd", bits=bits, norm=norm), torch.zeros(ROWS, WIDTH), 400
    for number in range(times):
        read = there(way, sent, 0, number)[0]
        near = 1e-5 * sent.abs().amax(1, keepdim=True)
        assert (((read - low).abs() < near) | ((read - high).abs() < near)).all()
        total += read
    assert ((total / times - sent).abs() < 5 * (high - low) / times**0.5 / 2 + near).all()


def test_each_line_has_draws_of_its_own_and_the_same_when_it_is_said_again():
    def read(silo=0, number=0, **about):
        return there(writing("qsgd", bits=2, **about), line(), silo, number)[0]

    others = [read(2), read(0, 1), read(seed=4), read(round=3), read(work="forward")]
    assert torch.equal(read(), read())
    assert not any(torch.equal(read(), other) for other in others)
    down = ActivationCodecs.of(CompressionSettings(upload="qsgd", download="qsgd", bits=2), HOME, 3).writing(
        "bottom", 2
    )[1]
    assert not torch.equal(read(), there(down, line())[0])


def test_the_holders_own_lines_go_nowhere():
    way = writing("qsgd", bits=2)
    assert there(way, line(), HOME)[0].equal(line())
    own, counted = way.carried(line(), HOME, 0)
    assert counted == 0
    assert own.equal(line())
    assert PLAIN_LINES.writing("bottom", 0)[0].carried(line(), 0, 0)[1] == 4 * ROWS * WIDTH


@pytest.mark.parametrize(("name", "keys"), CODECS)
def test_a_payload_of_another_size_is_refused(name, keys):
    way = writing(name, **keys)
    payload = way.write(line(), 0, 0)
    for wrong in (payload[:-1], bytes(payload) + b"\0", b""):
        with pytest.raises(ValueError, match=r"bytes|size"):
            way.read(memoryview(bytearray(wrong)), 0, ROWS, WIDTH)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["float16", "qsgd"])
def test_what_is_not_finite_is_not_written(name, value):
    sent = line()
    sent[3, 1] = value
    with pytest.raises(Diverged, match="a line is not finite"):
        writing(name).write(sent, 0, 0)


def test_a_line_beyond_float16_says_what_would_do():
    with pytest.raises(BeyondRange, match=r"\[compression\] upload: a line reaches 70000, .*; use bfloat16"):
        writing("float16").write(torch.full((2, 2), 7e4), 0, 0)


def test_a_payload_that_holds_no_numbers_is_refused():
    payload = memoryview(bytearray(b"\xff" * ROWS * WIDTH * 2))
    with pytest.raises(ValueError, match=r"\[compression\] upload: a line has a payload that holds NaN"):
        writing("float16").read(payload, 0, ROWS, WIDTH)


@given(rows=st.integers(1, 30), width=st.integers(1, 9), codec=st.sampled_from(CODECS))
@settings(max_examples=60, deadline=None)
def test_no_payload_is_longer_than_is_taken(rows, width, codec):
    name, keys = codec
    sent = line(1, rows, width)
    read, nbytes = there(writing(name, **keys), sent)
    assert nbytes <= LONGEST * rows * width
    assert read.shape == sent.shape
