"""Which operations round a number the same wherever it lies, and how the others come to."""

import pytest
import torch

from mpifl.wings.fast.same_rounding import LANES, PIECE, SAME, by_lines, by_vectors, rounds_by_place

aten = torch.ops.aten
SIZE = 1 << 15
ARITHMETIC = {
    "add": lambda x, y: torch.add(x, y, alpha=-0.013),
    "mul": torch.mul,
    "div": torch.div,
    "sqrt": lambda x, y: x.abs().sqrt(),
    "rsqrt": lambda x, y: (x.abs() + 1e-3).rsqrt(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "square": lambda x, y: x.square(),
    "relu": lambda x, y: x.relu(),
    "leaky_relu": lambda x, y: torch.nn.functional.leaky_relu(x, 0.01),
    "threshold_backward": lambda x, y: aten.threshold_backward(x, y, 0),
    "clamp": lambda x, y: x.clamp(max=0.5),
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=1e-3),
    "lerp": lambda x, y: torch.lerp(x, y, 0.1),
}


def drawn(seed):
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def one_by_one(tensor):
    """Return the same numbers with gaps between them, which no vector holds."""
    return torch.stack([tensor, tensor], 1)[:, 0]


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_rounds_the_same_in_vectors_and_one_by_one(name):
    """Optimizers and corrections are made of it; no way around is needed there."""
    act, x, y = ARITHMETIC[name], drawn(0), drawn(1)
    assert name in SAME
    assert torch.equal(act(x, y), act(one_by_one(x), one_by_one(y)))


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        (aten.sigmoid.default, ()),
        (aten.silu.default, ()),
        (aten.elu.default, ()),
        (aten.softplus.default, ()),
        (aten.softplus_backward.default, (1.0, 20.0)),
        (aten.silu_backward.default, ()),
        (aten.gelu.default, ()),
        (aten.tanh.default, ()),
    ],
    ids=lambda given: given if isinstance(given, tuple) else given._schema.name,
)
def test_full_vectors_round_a_number_the_same_in_every_place(operation, more):
    assert rounds_by_place(operation)
    tensors = [drawn(0), drawn(1)][: 2 if "backward" in operation._schema.name else 1]
    act = by_vectors(operation)
    whole = act(*tensors, *more)
    assert torch.allclose(whole, operation(*tensors, *more), rtol=1e-5, atol=1e-6)
    for begin, end in ((0, LANES - 1), (5, 100), (77, PIECE - 3)):
        assert torch.equal(act(*(one[begin:end] for one in tensors), *more), whole[begin:end])
    assert torch.equal(act(*(one.view(-1, 4).t() for one in tensors), *more), whole.view(-1, 4).t())


def test_what_moves_numbers_or_sums_them_is_left_as_it_is():
    for operation in (
        aten.bmm.default,
        aten.sum.dim_IntList,
        aten.view.default,
        aten._log_softmax.default,
        len,
    ):
        assert not rounds_by_place(operation)


@pytest.mark.parametrize("turned", ["neither", "left", "right", "both"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(7, 21, 3), (7, 3, 21), (21, 7, 5), (1, 33, 1), (64, 7, 10)]
)
def test_a_product_is_the_same_wherever_a_matrix_lies_in_its_batch(rows, inner, columns, turned):
    """Without cache lines some of them are others on some CPUs."""
    left, right = drawn(0)[: rows * inner], drawn(1)[: inner * columns]
    left = left.view(inner, rows).t() if turned in ("left", "both") else left.view(rows, inner)
    right = right.view(columns, inner).t() if turned in ("right", "both") else right.view(inner, columns)
    batches = [
        torch.stack([one.mT] * 5).mT if one.stride(0) == 1 else torch.stack([one] * 5)
        for one in (left, right)
    ]
    products = by_lines(aten.bmm.default)(*batches)
    assert torch.equal(products, products[:1].expand_as(products))
    assert torch.allclose(products[4], left @ right, rtol=1e-4, atol=1e-4)
    held = by_lines(lambda *given: given)(*batches)
    assert all(one.data_ptr() % 64 == 0 for batch in held for one in batch)
