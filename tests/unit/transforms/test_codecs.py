"""Codecs: true sizes, round trips, what is lost and what is not, and the same bytes for the same draws."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from unit.builders import same_bits, stream

from mpifl.wings.compression.codecs import BLOCK, QSGD, Cast, TopK, largest
from mpifl.wings.compression.packing import pack, unpack

LENGTHS = [1, 2, 7, 8, 9, 511, 512, 513, 3000]
QSGDS = [
    QSGD(bits, bucket, norm)
    for bits in (2, 3, 4, 7, 8)
    for bucket in (1, 64, 10**9)
    for norm in ("max", "l2")
]
ALL = [Cast("float16"), Cast("bfloat16"), *QSGDS, *map(TopK, (0.01, 0.05, 0.3, 1.0))]


def vector_of(length, seed=0, spread=1.5):
    """Normal numbers whose scale differs from place to place by powers of e."""
    draw = stream(seed)
    scale = torch.randn(length, generator=draw).mul_(spread).exp_()
    return torch.randn(length, generator=draw) * scale


def there_and_back(codec, vector, seed=1):
    return codec.decode(codec.encode(vector, stream(seed)), len(vector))


def size_of(codec, n):
    if isinstance(codec, Cast):
        return 2 * n
    if isinstance(codec, QSGD):
        return 4 * math.ceil(n / codec.bucket) + math.ceil(n * codec.bits / 8)
    k = math.ceil(codec.share * n)
    return 4 * k + min(math.ceil(n / 8), 2 * k + 4 * math.ceil(n / BLOCK))


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_a_payload_has_exactly_the_bytes_that_its_parts_take(codec):
    for length in LENGTHS:
        payload = codec.encode(vector_of(length), stream())
        assert (payload.dtype, payload.dim(), len(payload)) == (torch.uint8, 1, size_of(codec, length)), (
            length
        )


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_what_comes_back_is_a_float32_vector_and_the_same_from_a_copy_of_the_bytes(codec):
    for length in LENGTHS:
        vector = vector_of(length)
        before = vector.clone()
        payload = codec.encode(vector, stream())
        copied = torch.frombuffer(bytearray(payload.numpy().tobytes()), dtype=torch.uint8)
        back = codec.decode(copied, length)
        assert (back.dtype, back.shape) == (torch.float32, (length,))
        assert back.isfinite().all(), length
        assert same_bits(back, codec.decode(payload, length)), length
        assert same_bits(vector, before), length
        assert same_bits(payload, codec.encode(vector, stream())), length


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_zeros_come_back_as_zeros(codec):
    assert not there_and_back(codec, torch.zeros(700)).any()


@given(st.integers(1, 8), st.lists(st.integers(0, 255), max_size=70))
def test_packed_codes_come_back_and_take_their_bits_and_no_more(bits, codes):
    codes = torch.tensor(codes, dtype=torch.uint8) & (1 << bits) - 1
    packed = pack(codes, bits)
    assert len(packed) == math.ceil(len(codes) * bits / 8)
    assert torch.equal(unpack(packed, bits, len(codes)), codes)
    number = sum(code << bits * place for place, code in enumerate(codes.tolist()))
    assert int.from_bytes(packed.numpy().tobytes(), "little") == number


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    65504.0,
    65519.99,
    1e-4,
    6e-5,
    6e-8,
    3e-8,
    2.9e-8,
    1e-40,
    1 + 2**-8,
    1 + 3 * 2**-8,
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "vector",
    [torch.tensor(SPECIAL), vector_of(10_000, spread=1.0), 1e-6 * vector_of(999)],
    ids=["special", "", "tiny"],
)
def test_casts_are_torchs_subnormals_signs_and_ties_to_even_too(dtype, vector):
    codec = Cast(str(dtype).removeprefix("torch."))
    assert same_bits(there_and_back(codec, vector), vector.to(dtype).float())


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float16", 65520.0), ("float16", -1e30), ("bfloat16", 3.4e38)],
    ids=["16", "minus", "b16"],
)
def test_a_value_beyond_the_range_is_refused_with_its_size(dtype, value):
    with pytest.raises(ValueError, match=f"reaches .* beyond the range of {dtype}"):
        Cast(dtype).encode(torch.tensor([0.0, value, 1.0]), stream())
    assert Cast(dtype).encode(torch.tensor([65519.0]), stream()) is not None


def steps_of(codec, vector):
    """The distance between two neighbouring values of each element's bucket."""
    s = 2 ** (codec.bits - 1) - 1
    parts = torch.split(vector.double(), min(codec.bucket, len(vector)))
    norms = [part.abs().max() if codec.norm == "max" else part.norm() for part in parts]
    return torch.cat(
        [torch.full((len(p),), float(n) / s) for p, n in zip(parts, norms, strict=True)]
    ).double()


@pytest.mark.parametrize("codec", QSGDS, ids=str)
def test_qsgd_takes_one_of_the_two_multiples_next_to_each_element(codec):
    vector = vector_of(1500, spread=1.0)
    back, step = there_and_back(codec, vector).double(), steps_of(codec, vector)
    assert ((back - vector).abs() < step * (1 + 1e-6)).all()
    assert ((back / step) - (back / step).round()).abs().max() < 1e-4
    assert not ((back * vector) < 0).any()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("norm", ["max", "l2"])
def test_qsgd_is_unbiased_and_its_error_is_within_lemma_3_1(bits, norm):
    """Whole buckets are drawn at once, since none touches another; one that is not whole stands at an end."""
    codec, draws, vector, draw = QSGD(bits, 64, norm), 4000, vector_of(200, spread=0.5), stream(5)
    whole, end = torch.split(vector, [192, 8])
    many = codec.decode(codec.encode(whole.repeat(draws), draw), 192 * draws).view(draws, 192)
    ends = torch.stack([codec.decode(codec.encode(end, draw), 8) for _ in range(draws // 8)])
    for part, found in ((whole, many), (end, ends)):
        check_draws(codec, part, found.double())


def check_draws(codec, vector, found):
    """See that draws of a vector's message, a row each, are spread about it as they should."""
    step, draws = steps_of(codec, vector), len(found)
    share = (vector.double() / step) % 1  # of the way from the multiple below to the one above
    variance = share * (1 - share) * step**2
    deviations = (found.mean(0) - vector) / (variance / draws).sqrt().clamp_min(1e-9)
    assert deviations.abs().max() < 4.5
    # they are spread as they should: neither more nor less
    assert len(vector) < 64 or abs(float(deviations.square().mean()) - 1) < 0.5
    assert abs(float((found - vector).square().sum() / (draws * variance.sum())) - 1) < 0.1
    s, error = 2 ** (codec.bits - 1) - 1, (found - vector).square()
    for part, errors in zip(torch.split(vector.double(), 64), torch.split(error, 64, dim=1), strict=True):
        d, size = len(part), float(part.square().sum())
        lemma = min(d / s**2, d**0.5 / s) * size
        bound = lemma if codec.norm == "l2" else d / (4 * s**2) * float(part.abs().max()) ** 2
        assert 0 < float(errors.sum(1).mean()) <= bound


def test_qsgd_keeps_the_largest_of_each_bucket_and_buckets_do_not_touch_each_other():
    vector = torch.cat([vector_of(512, 1), 1e6 * vector_of(512, 2), 1e-30 * vector_of(100, 3)])
    back = there_and_back(QSGD(4), vector)
    for part, found in zip(torch.split(vector, 512), torch.split(back, 512), strict=True):
        where = part.abs().argmax()
        assert float(found[where]) == float(part[where])
    alone = QSGD(4).decode(QSGD(4).encode(vector[:512], stream(1)), 512)
    assert same_bits(alone, back[:512])


def test_qsgd_refuses_a_euclidean_norm_that_float32_cannot_hold_and_takes_the_maximum():
    huge = torch.full((512,), 1e38)
    with pytest.raises(ValueError, match="norm beyond the range of float32; use norm = 'max'"):
        QSGD(8, norm="l2").encode(huge, stream())
    assert torch.equal(there_and_back(QSGD(8), huge), huge)
    assert torch.equal(there_and_back(QSGD(8, 1, "l2"), huge), huge)
    tiny = torch.full((5,), 1e-44)
    assert torch.equal(there_and_back(QSGD(8), tiny), tiny)


def test_pieces_of_a_long_vector_make_no_difference(monkeypatch):
    vector = vector_of(5000)
    whole = QSGD(3, 64).encode(vector, stream())
    back = QSGD(3, 64).decode(whole, 5000)
    monkeypatch.setattr("mpifl.wings.compression.codecs.PIECE", 640)
    assert same_bits(QSGD(3, 64).decode(whole, 5000), back)


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 1e-42, 1e38]), min_size=1, max_size=60),
    st.data(),
)
def test_the_largest_are_the_largest_and_of_equals_the_first(values, data):
    count = data.draw(st.integers(1, len(values)))
    order = sorted(range(len(values)), key=lambda i: (-abs(torch.tensor(values[i]).item()), i))
    assert largest(torch.tensor(values), count).nonzero().squeeze(1).tolist() == sorted(order[:count])


@pytest.mark.parametrize("share", [0.001, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("length", [1, 1000, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_topk_sends_the_largest_whole_and_zeros_for_the_others(share, length):
    vector = vector_of(length)
    back = there_and_back(TopK(share), vector)
    kept = torch.topk(vector.abs(), math.ceil(share * length)).indices
    right = torch.zeros(length).index_copy_(0, kept, vector[kept])
    assert same_bits(back, right)


def test_topk_of_all_is_the_vector_to_the_bit():
    vector = torch.cat([torch.tensor([-0.0, 0.0, 1e-45, -3e38]), vector_of(100_000)])
    assert same_bits(there_and_back(TopK(1.0), vector), vector)


def finite_or_refused(codec, payload, length):
    """Decode, and hold what comes to the contract; whether it came."""
    try:
        back = codec.decode(payload, length)
    except ValueError as error:
        assert "payload" in str(error)  # noqa: PT017 - it may also be a vector
        return False
    assert (back.dtype, back.shape) == (torch.float32, (length,))
    assert back.isfinite().all()
    return True


def as_payload(content):
    return (
        torch.frombuffer(bytearray(content), dtype=torch.uint8)
        if content
        else torch.empty(0, dtype=torch.uint8)
    )


@given(st.sampled_from(ALL), st.integers(0, 300), st.binary(max_size=700), st.booleans())
def test_any_bytes_are_a_finite_vector_or_refused(codec, length, content, fitting):
    if fitting:
        size = size_of(codec, length) if length else 0
        content = (content * (size // max(len(content), 1) + 1))[:size]
    finite_or_refused(codec, as_payload(content), length)


@given(st.sampled_from(ALL), st.sampled_from([1, 9, 300, BLOCK + 500]), st.data())
def test_any_changed_bytes_of_a_payload_are_a_finite_vector_or_refused(codec, length, data):
    payload = codec.encode(vector_of(length, spread=0.5), stream()).clone()
    places = data.draw(st.lists(st.integers(0, len(payload) - 1), max_size=4))
    for place in places:
        payload[place] = data.draw(st.sampled_from([0x00, 0x7C, 0x7F, 0x80, 0xFC, 0xFF]))
    assert finite_or_refused(codec, payload, length) or places


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_a_payload_of_another_length_or_dtype_is_refused(codec):
    for length in (1, 513, BLOCK + 1):
        payload = codec.encode(vector_of(length), stream())
        for other in (
            payload[:-1],
            torch.cat([payload, payload[:1]]),
            payload[:0],
            payload[None],
            payload.view(torch.int8),
        ):
            with pytest.raises(ValueError, match=f"it must be {len(payload)} bytes"):
                codec.decode(other, length)


def sparse(length, counts, places, share=0.0001):
    """Write the payload of a top-k whose blocks have these counts and these positions within them."""
    parts = [torch.ones(TopK(share)._count(length)), torch.tensor(counts, dtype=torch.int32)]
    parts.append((torch.tensor(places) - BLOCK // 2).to(torch.int16))
    return TopK(share), torch.cat([part.view(torch.uint8) for part in parts]), length


@pytest.mark.parametrize(
    ("counts", "places", "said"),
    [
        ([-1, 15], range(14), "blocks do not hold 14"),
        ([2**31 - 1, -(2**31) + 15], range(14), "blocks do not hold 14"),
        ([14, 1], range(14), "blocks do not hold 14"),
        ([0, 0], range(14), "blocks do not hold 14"),
        ([7, 7], [*range(7), *range(9_995, 10_002)], "positions are not 14 of 75536 in their order"),
        ([14, 0], [5] * 14, "positions are not 14"),
        ([14, 0], [*range(12, -1, -1), 13], "positions are not 14"),
    ],
)
def test_positions_that_are_none_are_refused(counts, places, said):
    codec, payload, length = sparse(BLOCK + 10_000, counts, list(places), share=14 / (BLOCK + 10_000))
    with pytest.raises(ValueError, match=said):
        codec.decode(payload, length)


def test_too_many_bits_for_the_elements_are_refused():
    payload = TopK(0.3).encode(vector_of(80), stream())
    payload[-10:] = 0xFF
    with pytest.raises(ValueError, match="80 positions for 24 elements"):
        TopK(0.3).decode(payload, 80)


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_values_and_norms_that_are_not_finite_are_refused(codec):
    payload = codec.encode(vector_of(600), stream())
    dtype = getattr(torch, codec.dtype) if isinstance(codec, Cast) else torch.float32
    for value in (math.nan, math.inf, -math.inf):
        payload[: dtype.itemsize] = torch.tensor([value]).to(dtype).view(torch.uint8)
        with pytest.raises(ValueError, match="NaN or Inf"):
            codec.decode(payload, 600)


def test_a_code_above_the_highest_leads_not_beyond_float32():
    payload = torch.cat([torch.tensor([3.4e38]).view(torch.uint8), torch.full((5,), 255, dtype=torch.uint8)])
    with pytest.raises(ValueError, match="code above the highest"):
        QSGD(8).decode(payload, 5)
    payload[4:] = 254
    assert QSGD(8).decode(payload, 5).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_half_that_is_finite_comes_back_and_no_other(dtype):
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    codec, finite = Cast(str(dtype).removeprefix("torch.")), every.float().isfinite()
    whole = every[finite]
    assert same_bits(codec.decode(whole.view(torch.uint8), len(whole)), whole.float())
    for one in every[~finite].split(1):
        assert not finite_or_refused(codec, one.view(torch.uint8), 1)
