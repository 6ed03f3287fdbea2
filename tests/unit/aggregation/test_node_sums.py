"""Whether a node's leader sees that a share of its sum was not made."""

from __future__ import annotations

import torch

from mpifl.aggregation.node_sums import ALIGNED, Probes, add_to_first


def _sums(ranks: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(ranks)
    return [
        torch.randint(-99, 99, (5 * ALIGNED + 7,), generator=generator, dtype=torch.float64)
        for _ in range(ranks)
    ]


def _probed(parts: list[torch.Tensor]) -> Probes:
    probes = Probes()
    probes.take([("delta", 0, parts[0])])
    return probes


def test_shares_that_were_made_show() -> None:
    parts = _sums(3)
    probes = _probed(parts)
    for where in (slice(0, 2 * ALIGNED), slice(2 * ALIGNED, None)):
        add_to_first([parts], where)
    assert probes.show("delta", 0, parts)


def test_a_share_that_was_not_made_shows_however_small() -> None:
    for missing in range(6):
        parts = _sums(2)
        probes = _probed(parts)
        for number in range(6):
            if number != missing:
                add_to_first([parts], slice(number * ALIGNED, (number + 1) * ALIGNED))
        assert not probes.show("delta", 0, parts), missing


def test_nothing_is_known_of_a_sum_made_in_another_ranks_part() -> None:
    parts = _sums(2)
    assert _probed(parts).show("delta", 1, parts)
    assert _probed(parts).show("delta", 0, [])
