"""The server's side of scoring at the workers: it sends its test set, deals batches, and adds up shares.

The server itself scores batches whose share is missing or was refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.algorithms import Server, scored_here
from mpifl.data.shards import Split
from mpifl.exchange import Federation
from mpifl.silo import Score, as_fits
from mpifl.wings.scoring.test_scores import SPLIT, Scores
from mpifl.wings.scoring.test_shares import ScoreShare, score_of, share_of
from mpifl.wire import ArraySpec, KeepTestSet, ScoreBatches, VectorSpec


class AtWorkers:
    """Lets workers score the server's test set, each some of its batches.

    The batches are those of the server's own scoring. They are dealt in turn to the workers that have
    answered in time.
    """

    def __init__(self, federation: Federation, scores: Scores, note: Callable[..., None]) -> None:
        self._federation, self._scores, self._note = federation, scores, note
        self._sent_to: tuple[int, ...] = ()

    def __call__(self, server: Server, w: Tensor) -> Score:
        """Score the model w, shape [shared], on the test set.

        Raises:
            RankLost: a rank died; the remaining ranks may be asked again.
        """
        assert server.test is not None
        if not len(server.test) or not self._dealt:
            return scored_here(server, w)
        self._send_test_set(server)
        return as_fits(server.model, server.evaluation_batch, functools.partial(self._scored, server, w))

    @property
    def _dealt(self) -> list[int]:
        unreliable = self._federation.membership.unreliable
        return [rank for rank in self._federation.transport.workers if rank not in unreliable]

    def _send_test_set(self, server: Server) -> None:
        """Send the test set to all ranks, if they do not have it. After a death its memory may be gone."""
        if (ranks := tuple(self._federation.transport.origins)) == self._sent_to:
            return
        assert server.test is not None
        arrays = _lying(server.test.split)
        flat = {name: torch.from_numpy(array.reshape(-1).view(np.uint8)) for name, array in arrays.items()}
        specs = [
            ArraySpec(name=name, shape=list(one.shape), dtype=one.dtype.name) for name, one in arrays.items()
        ]
        self._ask(KeepTestSet, server, flat, arrays=specs)
        self._sent_to = ranks

    def _scored(self, server: Server, w: Tensor, size: int) -> Score:
        test, scores = server.test, self._scores
        assert test is not None
        vectors = {name: server.state[name] for name in ("statistics",) if name in server.state}
        how = {"size": test.bounded(size), "examples": len(test), "dealt": self._dealt}
        request = self._ask(ScoreBatches, server, {"w": w, **vectors}, **how)
        if scores.short and server.evaluation_batch == "auto" and size > 1:
            raise MemoryError("a worker's memory is short of these batches")
        task, sizes = server.task, request.sizes
        shares: list[tuple[Sequence[int], ScoreShare]] = [*scores.shares.values()]
        had = {number for numbers, _ in shares for number in numbers}
        if missing := [number for number in range(len(sizes)) if number not in had]:
            self._tell(server, request)
            model = server.load(w)
            own = share_of(
                model, task, test, size, missing, own_objective=server.own_objective, lanes=server.lanes
            )
            shares.append((missing, own))
        return score_of(task, shares, sizes, own=server.own_objective is not None)

    def _ask(self, kind: Any, server: Server, vectors: Mapping[str, Tensor], **fields: Any) -> Any:
        spec = [
            VectorSpec(name=name, length=len(one), dtype=str(one.dtype).removeprefix("torch."))
            for name, one in vectors.items()
        ]
        stamp = {"round": server.round, "attempt": self._federation.attempt()}
        request = kind(vectors=spec, **stamp, **fields)
        self._federation.exchange(request, vectors)
        return request

    def _tell(self, server: Server, request: ScoreBatches) -> None:
        """Tell the user which ranks' batches the server scores itself and why, once for each reason."""
        scores, origins = self._scores, self._federation.transport.origins
        for rank in request.dealt:
            if request.of(rank) and rank not in scores.shares:
                why = scores.faults.get(rank, "no answer that could be read")
                what = f"round {server.round}: the server scores what rank {origins[rank]} was to: {why}"
                self._note(what, once=("unscored share", origins[rank], re.sub(r"\d+", "#", why)))


def _lying(split: Split) -> dict[str, np.ndarray]:
    """Return the arrays of a split by their names in a shard, contiguous and in native byte order."""
    return {
        f"{SPLIT}/{name}": np.ascontiguousarray(one, one.dtype.newbyteorder("="))
        for name, one in split.stored.items()
    }
