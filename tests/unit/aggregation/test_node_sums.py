"""Sums between nodes: whatever the nodes, the windows and the pieces, the bits of one sum of all parts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mpifl.sums import exact, kernels, node_sums
from mpifl.sums.kernels import Parts
from mpifl.sums.node_sums import RoundRobin, cut, place_in
from mpifl.sums.planning import ReductionPlan, Window, WindowPart
from mpifl.wire import Nodes


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], list[Window]]:
    """The node of each rank, the server's first; and who has a part of which window, as a sum or alone."""
    drawn = [0, *draw(st.lists(st.integers(0, 8), max_size=20))]
    order = list(dict.fromkeys(drawn))
    of = [order.index(node) for node in drawn]
    windows = []
    for number in draw(st.sets(st.integers(-2, 3), min_size=1, max_size=3)):
        ranks = sorted(draw(st.sets(st.sampled_from(range(len(of))), min_size=1)))
        silos = draw(st.dictionaries(st.sampled_from(ranks), st.integers(1, 3)))
        parts = {rank: parts_of(silos.get(rank, 0), rank) for rank in ranks}
        windows.append(Window(number=number, parts=parts))
    return of, sorted(windows, key=lambda window: -window.number)


def parts_of(silos: int, rank: int) -> list[WindowPart]:
    """The vectors of so many silos, as they came; of none a sum."""
    weights = [1.0 + (rank + nth) % 3 for nth in range(silos)]
    return [WindowPart(handle=1, weight=weight) for weight in weights or [0.0]]


@given(worlds())
def test_each_part_goes_up_the_tree_once(world):
    of, windows = world
    for window in windows:
        places = {node: place_in(window, of, node) for node in range(max(of) + 1)}
        having = {0, *(of[rank] for rank in window.parts)}
        assert {node for node, place in places.items() if place} == having
        children = [child.node for place in places.values() if place for child in place.children]
        assert sorted(children) == sorted(having - {0})
        for node, place in places.items():
            for child in place.children if place else ():
                below = places[child.node]
                assert below.parent == node
                assert below.lone == bool(child.weight)
                assert child.depth > max((one.depth for one in below.children), default=0)


class Pipelines:
    """The pipeline of a world in one process: whoever receives does so after all have sent."""

    def __init__(self) -> None:
        self.between: defaultdict[tuple[int, int], deque[torch.Tensor]] = defaultdict(deque)

    def of(self, rank: int) -> SimpleNamespace:
        def receive(expected) -> Iterator[torch.Tensor]:
            for one in expected:
                piece = self.between[one.rank, rank].popleft()
                assert (len(piece), piece.dtype) == (one.length, one.dtype)
                yield piece

        return SimpleNamespace(post=lambda piece, to: self.between[rank, to].append(piece), receive=receive)


def vectors_of(window: Window, length: int, summands: int) -> list[tuple[int, float, torch.Tensor]]:
    """Each part of a window: its rank, its weight and a silo's vector, or a sum of one."""
    found = []
    for rank, parts in window.parts.items():
        for nth, part in enumerate(parts):
            generator = torch.Generator().manual_seed(1000 * nth + 100 * rank + window.number + 50)
            vector = (torch.rand(length, generator=generator) - 0.5) * 2.0 ** (16 * window.number - 4)
            total = exact.ExactSum(length, summands)
            total.add(vector, 1.0, 2.0 ** (16 * window.number - 1), torch.empty(length, dtype=torch.float64))
            found.append((rank, part.weight, vector if part.weight else total.windows[window.number]))
    return found


@pytest.mark.parametrize("by", ["compiled", "tensors"])
@settings(max_examples=40, deadline=None)
@given(world=worlds(), length=st.integers(0, 40), piece=st.integers(1, 11), whole=st.integers(1, 20))
def test_any_nodes_windows_and_pieces_give_the_bits_of_one_sum(by, world, length, piece, whole):
    of, windows = world
    plan = ReductionPlan(name="delta", length=length, total=3.0, windows=windows)
    summands = 3 * len(of)
    vectors = [vectors_of(window, length, summands) for window in windows]
    anchors = [exact.anchor_of(window.number, summands) for window in windows]

    def parts(ranks) -> list[Parts]:
        return [
            Parts([v for r, _, v in found if r in ranks], [w for r, w, _ in found if r in ranks], anchor)
            for found, anchor in zip(vectors, anchors, strict=True)
        ]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node_sums, "WHOLE", whole)
        patched.setattr(node_sums, "PIECE", piece)
        if by == "tensors":
            patched.setattr(kernels, "compiled", lambda: None)
        expected, mean, pipeline = torch.empty(length), torch.full((length,), torch.nan), Pipelines()
        kernels.mean(expected, parts(range(len(of))), 1 / 3)
        relays = [[rank for rank in range(len(of)) if of[rank] == node] for node in range(max(of) + 1)]
        for rank in sorted(range(len(of)), key=lambda rank: -of[rank]):  # no node waits for a lower one
            transport = SimpleNamespace(nodes=Nodes(of, rank), rank=rank, transfer_timeout=1.0)
            turns = RoundRobin(transport, pipeline.of(rank), relays)
            turns.make(plan, parts(relays[of[rank]]), mean if of[rank] == 0 else None)
    assert mean.equal(expected)
    assert not any(pipeline.between.values())


@given(st.integers(0, 3 * node_sums.WHOLE))
def test_pieces_cover_a_vector_and_a_short_one_is_whole(length):
    pieces = list(cut(length))
    assert [one.start for one in pieces] == [0, *(one.stop for one in pieces)][: len(pieces)]
    assert (pieces[-1].stop if pieces else 0) == length
    assert len(pieces) == min(length, 1) or length > node_sums.WHOLE
    assert all(one.start % node_sums.ALIGNED == 0 for one in pieces)
