"""Pooling: what PyTorch's gives, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mpifl.learning.models.pooling_layers import MaxPool2x2


@pytest.mark.parametrize(
    "shape", [(2, 3, 8, 8), (2, 3, 7, 9), (4, 1, 2, 2), (3, 6, 4), (1, 2, 5, 6)], ids=str
)
@pytest.mark.parametrize("values", [None, 3, 1], ids=["no ties", "some ties", "ties only"])
def test_values_and_gradients_are_pytorchs(shape, values):
    draw = torch.Generator().manual_seed(7)
    drawn = torch.randint(values, shape, generator=draw) if values else torch.randn(shape, generator=draw)
    images = drawn.float()
    ours, theirs = images.clone().requires_grad_(), images.clone().requires_grad_()
    pooled, expected = MaxPool2x2()(ours), F.max_pool2d(theirs, 2)
    assert torch.equal(pooled, expected)
    gradient = torch.randn(expected.shape, generator=draw)
    pooled.backward(gradient)
    expected.backward(gradient)
    assert torch.equal(ours.grad, theirs.grad)


def test_images_laid_out_otherwise_give_the_same():
    images = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(7))
    last = images.contiguous(memory_format=torch.channels_last).requires_grad_()
    ours = images.clone().requires_grad_()
    MaxPool2x2()(last).square().sum().backward()
    MaxPool2x2()(ours).square().sum().backward()
    assert torch.equal(last.grad, ours.grad)


def test_an_image_without_a_window_is_refused():
    with pytest.raises(RuntimeError, match="too small"):
        MaxPool2x2()(torch.zeros(1, 1, 1, 4))
