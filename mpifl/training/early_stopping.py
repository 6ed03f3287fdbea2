"""The best model so far, and the run's model at the end: `[evaluate] keep_best` and `patience`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from mpifl.algorithms import Algorithm, Server
from mpifl.common import Unwritable, one_line
from mpifl.report.observers import Record, judged
from mpifl.run.folder import checkpoint, round_of, told_round
from mpifl.run.job.tables import Evaluate
from mpifl.silo.parameters import FlatModel

BEST = "best so far"
"""The key of the server's state for four float64 numbers. These are the best value of the main metric, its
round, the evaluations since then, and the round of the last evaluation. The best round is negative while
all values are the same: then none is best, and the run's model is the last one."""
UNSCORED = (torch.nan, 0, 0, 0)


class BestModel:
    """Records the round with the best main metric, and keeps the model of that round.

    If the job has `patience` or `keep_best`, the record is in the server's state. So it is also in
    checkpoints and mirrors. A kept model is the run's. None is kept where silos have models of their own:
    what silos keep goes with the last round.

    Attributes:
        keeps: Whether the best model is kept.
    """

    def __init__(self, table: Evaluate, algorithm: Algorithm, server: Server, run: Path) -> None:
        model = server.model
        own = algorithm.own_models or len(model.personal) or len(model.personal_statistics)
        self.keeps = table.keeps_best and not own
        self._wanted = self.keeps or table.patience is not None
        self._metric, self._server = algorithm.task.main_metric, server
        self._path = run / "best.safetensors"

    def begin(self) -> None:
        """Start from the record in the server's state; without a record, nothing was scored.

        If the kept model's round differs from the state's, the model is deleted, and the next better one is
        kept. Either the run went back before that round, or it ran for a while without keeping a model.
        """
        kept = self._server.state.pop(BEST, None)
        if not self._wanted:
            return
        fits = isinstance(kept, Tensor) and kept.shape == (4,) and kept.dtype == torch.float64
        self._server.state[BEST] = kept if fits else torch.tensor(UNSCORED, dtype=torch.float64)
        if self.keeps and not self._in_file:
            self._path.unlink(missing_ok=True)

    def observe(self, record: Record, model: Mapping[str, Tensor] = MappingProxyType({})) -> Record:
        """Note a round's main metric, once for each round; return the figures of the best for the round's
        record.

        Args:
            record: The round's figures.
            model: Entries of the server's state after that round, if the state is of a later round.
        """
        if not self._wanted or (found := judged(record, self._metric)) is None:
            return {}
        best, of_round, since, last = self._server.state[BEST].tolist()
        if record["round"] > last:
            last = record["round"]
            # before the first, `best` is NaN, which is as good as nothing
            as_good = self._metric.best(best, found[1]) == best or found[1] == best
            better = not as_good and self._keep(last, model)
            if better:
                best, of_round = found[1], last if of_round else -last
            elif found[1] != best:
                of_round = abs(of_round)
            since = 0 if better else since + 1
            self._server.state[BEST] = torch.tensor([best, of_round, since, last], dtype=torch.float64)
        return {"best_round": abs(int(of_round)), "evaluations_since_best": int(since)}

    @property
    def kept(self) -> int:
        """The round of the model that is kept as the best one; 0 if there is none, or all are the same."""
        round, last = self._in_file, int(self._server.state[BEST][3]) if self.keeps else 0
        return abs(round) if round > 0 or -round == last else 0

    @property
    def lacks(self) -> bool:
        """Whether the best model was to be kept and is not there."""
        return self.keeps and not self._in_file

    @property
    def _in_file(self) -> int:
        """The best round by the record, negative while none is better, if its model is there; else 0."""
        best = int(self._server.state[BEST][1]) if self.keeps else 0
        return best if round_of(self._path) == abs(best) else 0

    @contextlib.contextmanager
    def lent(self) -> Iterator[int]:
        """Let the server have the run's model until the context ends: the best one if it is kept, else the
        last one. Its state is then as before.

        Yields:
            The round of the best model; 0 if the model is the last one.
        """
        server, state, kept = self._server, self._server.state, self.kept
        if kept and kept != server.round:
            try:
                server.state = state | self._read()
            except (OSError, KeyError, RuntimeError, SafetensorError) as error:
                print(f"{self._path}: cannot be read ({one_line(error)})", file=sys.stderr, flush=True)
                kept = 0
        try:
            yield kept
        finally:
            server.state = state

    def _read(self) -> dict[str, Tensor]:
        """Return the kept model as entries of the server's state."""
        model = self._server.model
        model.take(load_file(self._path))
        found = {"w": model.shared.to("cpu", copy=True)}
        return found | ({"statistics": model.statistics.read().cpu()} if len(model.statistics) else {})

    def _keep(self, round: int, of: Mapping[str, Tensor]) -> bool:
        """Write the model if the job keeps it; return False if it could not be written."""
        if not self.keeps:
            return True
        with self._server.holding(of) as model:
            return self._written(model, round)

    def _written(self, model: FlatModel, round: int) -> bool:
        try:
            checkpoint.write_model(self._path, model, told_round(round))
        except Unwritable as error:
            what = "training continues, and the next model that is better is kept"
            print(f"{error.fact}; {what}", file=sys.stderr, flush=True)
            return False
        return True
