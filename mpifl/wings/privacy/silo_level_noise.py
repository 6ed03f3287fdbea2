"""Silo-level differential privacy: silos clip updates, and the server or the sum's parties add noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import InputError
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo import Silo
from mpifl.transforms import CLIPPED, Message, Transform, norm_of
from mpifl.wings.privacy.draws import EDITION
from mpifl.wings.privacy.mechanism import SiloMechanism
from mpifl.wings.privacy.released_account import Account
from mpifl.wings.site import digest
from mpifl.wire import Mean, Numbers, Purpose, Summed, Update, unmarked

CLIP = "clip of [privacy]"
"""The name of the norm C in a request; an adaptive C also has this name in the server's state."""
WHOLE = "within clip"
"""A number of an update, sent only if it is used: 1 if the update's norm was at most C, else 0."""


class Noising(Transform):
    """Clips training updates to the norm C at the silos, and releases only their noised mean.

    It is the first transform, so that none changes an update after it or sees a mean before it.

    Args:
        settings: The job's `[privacy]`.
        names: Names of the vectors that an update may have, each as long as w.
        mechanism: Returns the round's mechanism; called at the server, and at silos that add noise.
        account: The server's released account.
        algorithm: The name of the job's algorithm, for an error.
    """

    fills: ClassVar[bool] = True

    def __init__(
        self,
        settings: PrivacySettings,
        names: Collection[str],
        mechanism: Callable[[], SiloMechanism],
        account: Account,
        algorithm: str,
    ) -> None:
        self._settings, self._names = settings, sorted(names)
        self._mechanism, self._account = mechanism, account
        self._why = (
            f"[privacy] level = 'silo': '{algorithm}' goes by the silos' number '{{name}}', which noise does"
            " not protect, so that it is withheld; use 'fedavg', or have your own go by vectors alone"
        )
        self._asked = ""
        """The digest of the message that the silos received."""

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add C to the message, and keep a digest of the message.

        Raises:
            InputError: the server's secret or ledger is not the one of this run.
        """
        if purpose != "training":
            return message
        self._account.check(server.state)
        message = {**message, CLIP: self._clip(server)}
        self._asked = digest([], message)
        return message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Take C out of the message."""
        if CLIP in message:
            silo.received[CLIP] = message[CLIP]
        return {name: value for name, value in message.items() if name != CLIP}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Multiply all vectors by min(1, C / ||update||_2), with their joint norm; remove all numbers.

        If the parties add the noise in the sum, C is the job's: the server cannot choose another C.

        Raises:
            InputError: the update has a part that the clip does not bound and the noise does not hide.
        """
        if purpose == "evaluation" and self._settings.evaluate_unprotected:
            return update
        if why := self._unprotected(update, purpose):
            raise InputError(f"its update was refused: [privacy] level = 'silo' {why}")
        clip = self._settings.norm if self._settings.in_sum else float(silo.received[CLIP])
        norm = norm_of(unmarked(v) for v in update.vectors.values())
        vectors = {name: unmarked(value) for name, value in update.vectors.items()}
        if clip < norm < math.inf:  # the checks at the sum refuse NaN and Inf
            vectors = {name: vector * (clip / norm) for name, vector in vectors.items()}
        update.vectors = {**vectors}
        if self._settings.in_sum:
            update.noise = dict.fromkeys(vectors, self._mechanism().noise_of_updates * clip)
        told = self._settings.is_adaptive or self._settings.evaluate_unprotected
        update.scalars = {WHOLE: float(norm <= clip)} if told else {}
        return update

    def _unprotected(self, update: Update, purpose: Purpose) -> str:
        """Return which part of an update the clip does not bound; "" if there is none."""
        if purpose != "training":
            return f"protects training alone, and this is for {purpose}"
        for name, value in update.vectors.items():
            if name not in self._names or isinstance(value, Summed) or unmarked(value).dtype != torch.float32:
                what = f"bounds the float32 means {', '.join(self._names)} alone, and it has '{name}'"
                return f"{what}; an algorithm names its own by `noised`"
        return "" if update.weight == 1 else f"counts silos alike, and it weighs {update.weight:g}"

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Divide the sum by the expected number of silos, add noise if it has none, and note the answer.

        Raises:
            InputError: the ledger holds another answer to the same question, or cannot be written.
            RoundLost: another answer would exceed the budget.
        """
        if purpose != "training":
            return mean
        mechanism, clip = self._mechanism(), self._clip(server)
        part = len(mean) / mechanism.expected
        vectors = {name: vector * part for name, vector in mean.vectors.items()} or self._nothing(server)
        whole = round(mean.scalars.get(WHOLE, 0.0) * len(mean))  # a count over silos, not one silo's number
        halves = whole - 0.5 * len(mean)
        about = [EDITION, server.round, self._asked, mechanism, *sorted(mean.silos)]
        question = digest(about, {**vectors, "halves": halves})
        if not self._settings.in_sum:
            self._add_noise(vectors, mechanism.deviation(clip), question)
        adaptive = self._settings.is_adaptive
        noise = float(self._account.draws("noise of bits", question).normal(1)) if adaptive else 0.0
        share = mechanism.share(halves, noise)
        answer = digest([share], vectors)
        server.state |= self._account.release(question, answer, server.round, mechanism.step)
        told = {"clip_norm": clip, "noise_std": mechanism.deviation(clip)}
        if self._settings.is_adaptive:
            server.state[CLIP] = mechanism.next_clip(clip, share)
            told[CLIPPED] = min(max(1 - share, 0.0), 1.0)
        elif WHOLE in mean.scalars:
            told[CLIPPED] = 1 - mean.scalars[WHOLE]
        silos: Mapping[int, dict[str, Any]] = {silo: {} for silo in mean.silos}
        return Mean(vectors, Numbers(told, self._why), silos, mean.faults, mean.weight)

    def _clip(self, server: Server) -> float:
        return float(server.state.get(CLIP, self._settings.norm))

    def _nothing(self, server: Server) -> dict[str, Tensor]:
        """Return zeros: by chance no silo was drawn, and nobody may see that."""
        return {name: torch.zeros_like(server.model.shared, device="cpu") for name in self._names}

    def _add_noise(self, vectors: Mapping[str, Tensor], deviation: float, question: str) -> None:
        for name, vector in vectors.items():
            self._account.draws("noise", question, name).add_normal(vector, deviation)
