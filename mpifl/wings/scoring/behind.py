"""The server's side of scoring behind the round: a process of its own scores while the next round trains."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.algorithms import Server, scored_here
from mpifl.common import one_line
from mpifl.common.machine import SIGNALS, tuning
from mpifl.data.shards import FederationSpec
from mpifl.run.folder import serialization
from mpifl.run.job import Job
from mpifl.silo import Score

PROGRAM = Path(__file__).with_name("scorer.py")
ALIGNED = 64
"""Bytes between the beginnings of vectors."""
NUMBERS = ("loss", "metrics", "examples")
DIED = "it has died"
FAULT, STATE, SINGLE = "fault", "state ", "single "
_NO_MPI = {"MPI4PY_RC_INITIALIZE": "0", "MPI4PY_RC_FINALIZE": "0"}
"""The process belongs to no world of ranks, even if a model's code imports MPI."""


class LateScore(Score):
    """A score that another process computes; the first look at a figure waits for all of them."""

    def __init__(self, wait: Callable[[], Score]) -> None:
        vars(self)["_wait"] = wait

    def __getattr__(self, name: str) -> Any:
        if name not in (*NUMBERS, "states", "single"):
            raise AttributeError(name)
        vars(self).update(vars(self._wait()))
        return vars(self)[name]


class Behind:
    """Scores the server's models in a process of its own. See `Server.scored_by`.

    A model is copied into memory that both processes have, so that the server may change its own meanwhile.
    If the process fails, the server scores this copy itself, and every model from then on.
    """

    def __init__(self, job: Job, spec: FederationSpec, note: Callable[..., None]) -> None:
        self._note, self._awaited = note, Score(0.0, {}, 0)
        self._file, self._models = os.memfd_create("mpifl models"), dict[str, Tensor]()
        ours, its = socket.socketpair()
        self._link = ours.makefile("rwb")
        ours.close()  # the file keeps it open
        paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - keeps links
        # these signals are meant for the rank
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {*SIGNALS, signal.SIGHUP})
        try:
            # without a preexec_fn, so that Python does not fork, which MPI forbids
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(paths)],
                stdin=its.fileno(),
                stdout=self._file,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_NO_MPI},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            its.close()
        told = {"threads": torch.get_num_threads(), "zero": tuning.counts_subnormals_as_zero()}
        plan = {"job": job.model_dump_json(exclude_none=True), "spec": spec.model_dump_json()}
        self._send({**plan, **told})

    def __call__(self, server: Server, w: Tensor) -> Score:
        """Begin to score the model w, shape [shared], on the test set; the score waits when it is read."""
        _ = self._awaited.loss  # the memory is for one model
        if self._process is None:
            return scored_here(server, w)
        model = {**server.shared_state, "w": w}
        if not self._models:
            self._models = shared(self._file, {name: (one.dtype, len(one)) for name, one in model.items()})
        for name, one in model.items():
            self._models[name].copy_(one)
        self._send({name: (str(one.dtype).removeprefix("torch."), len(one)) for name, one in model.items()})
        self._awaited = LateScore(functools.partial(self._scored, server))
        return self._awaited

    def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
            os.close(self._file)
            with contextlib.suppress(OSError):  # what was not sent
                self._link.close()

    def _send(self, what: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has died, which is seen when its answer is read
            self._link.write(json.dumps(what).encode() + b"\n")
            self._link.flush()

    def _scored(self, server: Server) -> Score:
        """Return the score of the copied model, by the process or by the server."""
        try:
            return answer(self._link)
        except OSError:
            why = DIED
        except ValueError as error:
            why = one_line(error)
        what = "the process that scores behind the round scores no more"
        self._note(f"[evaluate] behind: {what}, so the server does: {why}")
        with server.holding(self._models):
            score = scored_here(server, self._models["w"])
        self.end()
        return score


def answered(score: Score) -> bytes:
    """Return a score as `answer` reads it."""
    states = {f"{STATE}{name}": of for name, of in score.states.items()}
    single = {f"{SINGLE}{columns}": of for columns, of in score.single.items()}
    content = serialization.packed({**states, **single, **{name: getattr(score, name) for name in NUMBERS}})
    return len(content).to_bytes(8, "little") + content


def answer(link: io.BufferedRWPair) -> Score:
    """Read a score.

    Raises:
        ValueError: the process has died, or says why it has none.
        OSError: it has died.
    """
    length = link.read(8)
    content = link.read(int.from_bytes(length, "little"))
    if not content:
        raise ValueError(DIED)
    told = serialization.unpack(content)
    if FAULT in told:
        raise ValueError(told[FAULT])
    states, single = (
        {name.removeprefix(kind): of for name, of in told.items() if name.startswith(kind)}
        for kind in (STATE, SINGLE)
    )
    by_columns = {int(columns): of for columns, of in single.items()}
    return Score(states=states, single=by_columns, **{name: told[name] for name in NUMBERS})


def shared(file: int, entries: Mapping[str, tuple[torch.dtype, int]]) -> dict[str, Tensor]:
    """Return vectors in the memory of a file, which is made as large as they are.

    Args:
        file: The file's descriptor.
        entries: The dtype and the length of each vector by its name.
    """
    sizes = [-(-dtype.itemsize * length // ALIGNED) * ALIGNED for dtype, length in entries.values()]
    os.ftruncate(file, sum(sizes))
    memory, ends = mmap.mmap(file, sum(sizes)), itertools.accumulate(sizes)
    return {
        name: torch.frombuffer(memory, dtype=dtype, count=length, offset=end - size)
        for size, end, (name, (dtype, length)) in zip(sizes, ends, entries.items(), strict=True)
    }
