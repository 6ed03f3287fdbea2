"""Examples of unequal lengths as tensors: a batch is padded to its longest example in one operation."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from mpifl.data import Ragged


class Padded(NamedTuple):
    """A batch before its padding is filled in.

    Attributes:
        rows: Shape [n, longest, ...]; after an example's last row there are arbitrary rows.
        inside: Whether a place has a row of the example, shape [n, longest].
        fill: The value for places without a row.
        mask: The mask's name in the model; None if it takes no mask.
    """

    rows: Tensor
    inside: Tensor
    fill: float
    mask: str | None

    def filled(self, rows: Tensor) -> Tensor:
        """Fill the padding of `rows`, or of a converted copy, in place."""
        outside = self.inside.logical_not().to(rows.device)
        return rows.masked_fill_(outside.view(*outside.shape, *[1] * (rows.dim() - 2)), self.fill)


class Uneven:
    """Ragged examples as tensors; an index [n] gives some of them as a padded batch."""

    def __init__(self, examples: Ragged) -> None:
        self._values = torch.from_numpy(examples.values)
        self._starts = torch.from_numpy(examples.starts)
        self._lengths = torch.from_numpy(examples.lengths)
        self._places = torch.arange(max(1, int(examples.lengths.max(initial=1))))
        self._longest, self._alike = examples.longest, False
        self._fill, self._mask = examples.fill, examples.mask

    def alike(self) -> Uneven:
        """Return the same examples, with every batch padded to the federation's longest."""
        other = copy.copy(self)
        other._places, other._alike = torch.arange(max(1, self._longest)), True
        return other

    @property
    def largest(self) -> int:
        """The number of values in the longest example."""
        return len(self._places) * self._values[:1].numel()

    def __getitem__(self, indices: Tensor) -> Padded:
        """Return examples, padded to the longest of them, at least to one row. See `alike`."""
        lengths = self._lengths[indices]
        places = self._places if self._alike else self._places[: max(1, int(lengths.max()))]
        inside = places < lengths.unsqueeze(1)
        # a place without a row may take any row; the clamp keeps it inside the values
        at = (self._starts[indices].unsqueeze(1) + places).clamp_(max=len(self._values) - 1)
        return Padded(self._rows(at), inside, self._fill, self._mask)

    def _rows(self, at: Tensor) -> Tensor:
        if not len(self._values):
            return self._values.new_zeros(*at.shape, *self._values.shape[1:])
        return self._values[at]
