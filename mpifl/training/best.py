"""The best model so far: `[evaluate] keep_best` and `patience`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import Unwritable
from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import Record, judged
from mpifl.run.folder import ROUND, checkpoint, round_of
from mpifl.run.job.tables import Evaluate

BEST = "best so far"
"""The key of the server's state for four float64 numbers. These are the best value of the main metric, its
round, the evaluations since then, and the round of the last evaluation."""
UNSCORED = (torch.nan, 0, 0, 0)


class BestModel:
    """Records the round with the best main metric, and keeps the model of that round.

    If the job has `patience` or `keep_best`, the record is in the server's state. So it is also in
    checkpoints and mirrors.
    """

    def __init__(self, table: Evaluate, metric: MetricInfo, server: Server, run: Path) -> None:
        self._keeps, self._wanted = table.keep_best, table.keep_best or table.patience is not None
        self._metric, self._server, self._path = metric, server, run / "best.safetensors"

    def begin(self) -> None:
        """Start from the record in the server's state; without a record, nothing was scored.

        If the kept model's round differs from the state's, the model is deleted and the search starts anew.
        Either the run went back before that round, or it ran for a while without keeping a model.
        """
        kept = self._server.state.pop(BEST, None)
        if not self._wanted:
            return
        fits = isinstance(kept, Tensor) and kept.shape == (4,) and kept.dtype == torch.float64
        best = kept if fits else torch.tensor(UNSCORED, dtype=torch.float64)
        if self._keeps and round_of(self._path) != int(best[1]):
            self._path.unlink(missing_ok=True)
            best[:3] = torch.tensor(UNSCORED[:3])
        self._server.state[BEST] = best

    def observe(self, record: Record) -> Record:
        """Note a round's main metric, once for each round; return the figures of the best for the round's
        record."""
        if not self._wanted or (found := judged(record, self._metric)) is None:
            return {}
        best, of_round, since, last = self._server.state[BEST].tolist()
        if record["round"] > last:
            last, better = record["round"], self._is_better(found[1], best) and self._keep(record["round"])
            if better:
                best, of_round = found[1], last
            since = 0 if better else since + 1
            self._server.state[BEST] = torch.tensor([best, of_round, since, last], dtype=torch.float64)
        return {"best_round": int(of_round), "evaluations_since_best": int(since)}

    def _is_better(self, value: float, best: float) -> bool:
        return not self._metric.reaches(best, value)  # before the first, `best` is NaN, which reaches nothing

    def _keep(self, round: int) -> bool:
        """Write the model if the job keeps it; return False if it could not be written."""
        if not self._keeps:
            return True
        model = self._server.load(self._server.state["w"])
        try:
            checkpoint.write_model(self._path, model, {ROUND: str(round)})
        except Unwritable as error:
            what = "training goes on, and the next model that is better is kept"
            print(f"{error.fact}; {what}", file=sys.stderr, flush=True)
            return False
        return True
