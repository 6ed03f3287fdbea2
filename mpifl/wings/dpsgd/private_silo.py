"""A silo with differentially private answers: it uses its examples only through DP-SGD.

All draws follow from the site's secret and the question. So the same question gets the same answer, which
costs nothing again. The site's ledger holds questions and answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.common import BudgetSpent, InputError, rng
from mpifl.common.machine import accelerators, processor
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo import Silo
from mpifl.silo.steps import LOCAL, Constant, Correction, LocalRun, LocalTraining, Method, Proximal, steps_of
from mpifl.wings.dpsgd.dpsgd import DPSGD, SumsOnce
from mpifl.wings.privacy import EDITION, BudgetEntry, Budgets, Draws, SiteFolder, Steps
from mpifl.wings.site import digest


@dataclass(frozen=True)
class Guard:
    """What the private silos of a rank share.

    Attributes:
        site: Their site's folder.
        settings: The job's `[privacy]`.
        job: The job's name.
        run: The digest of all parts of the job that affect an answer.
        rounds: How many rounds the job asks for.
        names: The name of each silo.
        shards: The sha256 of each silo's shard.
        noise: The noise multiplier of each silo.
        budgets: The budgets that each silo must keep.
        scale: Returns the factor of a gradient in a round's update, counted from 0, if noise is added to the
            sum over all silos. None if each silo adds its own noise.
        rate: q, the rate of all silos together, if noise is added to their sum.
        federation: A digest of all silos, if noise is added to their sum. What the server says of other silos
            affects the size of the noise, so it is a part of the question.
    """

    site: SiteFolder
    settings: PrivacySettings
    job: str
    run: str
    rounds: int
    names: Sequence[str]
    shards: Sequence[str]
    noise: Sequence[float]
    budgets: Budgets
    scale: Callable[[int], float] | None = None
    rate: float = 1.0
    federation: str = ""


def environment_of(device: torch.device | None = None) -> tuple[int | str, ...]:
    """Return what a question names of the software and, where the device is known, of the machine."""
    machine = () if device is None else (device.type, torch.get_num_threads())
    return (EDITION, str(torch.__version__), *machine)


class PrivateSilo(Silo):
    """One silo during one request. Its training is DP-SGD, and it refuses any other use of its examples.

    Attributes:
        question: The digest of all that the answer follows from, except the secret; "" before `ask`.
    """

    def __init__(self, *given: Any, guard: Guard, **more: Any) -> None:
        super().__init__(*given, **more)
        self.question = ""
        self._guard = guard
        self._ways: list[DPSGD | SumsOnce] = []

    def randomness(self, purpose: str) -> AbstractContextManager[torch.Generator]:
        """Lend the stream of a purpose, as `Lent` does, but with secret draws for dropout.

        Dropout masks depend on an example's place in the batch: without one example, all later ones get other
        masks. If others knew the masks, one example could change the sum by more than C.
        """
        if not self.question:
            return super().randomness(purpose)
        secret = Draws(self._guard.site.secret, "inside the model", self.question, purpose, len(self._ways))
        stream = rng.scope(int(secret.words(1)), purpose, self.id, self.round, device=self.model.device)
        return _secretly(stream, secret)

    def ask(self, message: Mapping[str, Any]) -> None:
        """Note the question, before the algorithm's client method answers it."""
        guard, id = self._guard, self.id
        about = [guard.run, guard.names[id], guard.shards[id], self.work, self.round, guard.noise[id]]
        about += environment_of(self.model.device)
        about += [guard.federation] if guard.scale is not None else []
        held = {**self.received, **{f"message {name}": value for name, value in message.items()}}
        held |= {f"state {name}": self.state[name] for name in self.state}
        self.question = digest(about, held)

    def settle(self, vectors: Mapping[str, Any], scalars: Mapping[str, Any]) -> dict[str, float]:
        """Note the answer in the ledger; return the numbers that the server may know.

        The line is on the disk when the site's `sync` returns. Nothing may be sent before.

        Raises:
            InputError: the question got another answer before, or the ledger cannot be written.
        """
        if not self._ways:
            return {}
        answer = digest([], {**vectors, **scalars, **{f"kept {name}": v for name, v in self.kept.items()}})
        site = self._guard.site
        site.add(lambda: None if site.answered(self.question) else self._entry(answer))
        entry = site.answered(self.question)
        assert entry is not None
        entry.check(answer)
        told = {"private_steps": float(entry.total)}
        told |= {"budget_left": float(entry.left)} if entry.left is not None else {}
        return told | self._unprotected()

    def _entry(self, answer: str) -> BudgetEntry:
        guard, name, shard = self._guard, self._guard.names[self.id], self._guard.shards[self.id]
        before = guard.site.of_silo(name, shard)
        taken = [Steps(way.noise, way.rate, way.steps) for way in self._ways]
        total = sum(one.count for one in taken)
        # another run may have spent budget meanwhile
        self._afford(before.spent, Steps(taken[0].noise, taken[0].rate, total))
        return BudgetEntry(
            question=self.question,
            answer=answer,
            silo=name,
            shard=shard,
            job=guard.job,
            run=guard.run,
            round=self.round,
            taken=[(one.noise, one.rate, one.count) for one in taken],
            total=before.of_run[guard.run, name, shard] + total,
            left=self._left([*before.spent, *taken], Steps(taken[0].noise, taken[0].rate, total)),
            processor=processor(),
            environment=environment_of(self.model.device),
        )

    def _left(self, spent: Sequence[Steps], like: Steps) -> int | None:
        """Return how many more questions like this one the budget allows, at most as many as the job asks."""
        more = max(self._guard.rounds - self.round - 1, 1)
        wanted = Steps(like.noise, like.rate, like.count * more)
        room = self._guard.budgets.room(spent, wanted)
        return None if room is None else room // like.count

    def _unprotected(self) -> dict[str, float]:
        drawn = sum(way.drawn for way in self._ways)
        if not (self._guard.settings.evaluate_unprotected and drawn):
            return {}
        return {"clipped_examples": sum(way.clipped for way in self._ways) / drawn}

    def _method(self, settings: LocalTraining) -> Method:
        """Return DP-SGD with its own draws.

        Raises:
            InputError: the settings do not fit DP-SGD, or the noise is added to the sum over silos.
            BudgetSpent: the budget does not allow it.
        """
        if not LOCAL.honours("private", settings):
            raise self._refusal("takes steps by accumulate_batches, compile or half precision")
        if self._guard.scale is not None:
            raise self._refusal("takes steps of its own, where the noise is that of one sum a round")
        count = self.examples
        size = count if settings.batch_size == "full" else min(settings.batch_size, count)
        return self._noted(size / count, max(steps_of(settings, count), 1), size)

    def _noted(self, rate: float, steps: int, size: float, *, alone: bool = True) -> DPSGD:
        """Return DP-SGD of so many steps, if the budget allows it."""
        if not self.question:
            raise self._refusal("looks at examples outside of a training's request")
        guard, noise = self._guard, self._guard.noise[self.id]
        if guard.site.answered(self.question) is None:
            before = guard.site.of_silo(guard.names[self.id], guard.shards[self.id])
            self._afford(before.spent, Steps(noise, rate, steps + sum(way.steps for way in self._ways)))
        purpose = f"{self.question} {len(self._ways)}"
        way = DPSGD(
            secret=guard.site.secret,
            purpose=purpose,
            clip=guard.settings.norm,
            noise=noise,
            rate=rate,
            steps=steps,
            expected=size,
            alone=alone,
        )
        self._ways.append(way)
        return way

    def _afford(self, before: Sequence[Steps], more: Steps) -> None:
        """Check that the budgets allow more steps after those in the ledger."""
        room = self._guard.budgets.room(before, more)
        if room is not None and room < more.count:
            raise BudgetSpent(self._guard.budgets.refusal(before, more))

    def train_locally(self, w: Tensor, settings: LocalTraining, *given: Any, **more: Any) -> Any:
        """Train by DP-SGD; see `Silo.train_locally`. The run's loss is NaN.

        Raises:
            InputError: a function corrects gradients, which may use examples, or buffers of the model learn
                from examples.
        """
        correct: Correction | None = more.get("correct", given[1] if len(given) > 1 else None)
        if correct is not None and not isinstance(correct, Constant | Proximal):
            raise self._refusal("corrects gradients by a function of its own")
        return super().train_locally(w, settings, *given, **more)

    def _learned(self) -> Tensor:
        """Return the running statistics. They must not have learned from examples."""
        if self.model.buffers.written():
            raise self._refusal("trains a model whose buffers learn of examples")
        return super()._learned()

    @property
    def share_of(self) -> float:
        """The deviation of the noise that hides this silo's gradient in the sum of weight * update.

        It is 0 if the silo adds its own noise. A silo's mean over q n_k examples weighs n_k, so one example
        changes the sum by at most C / q.
        """
        if self._guard.scale is None or not self._ways:
            return 0.0
        return self._guard.scale(self.round) * self._ways[0].noise * self._ways[0].clip / self._ways[0].rate

    def gradient(self, w: Tensor, batch: Any = None, *, track: bool = False) -> LocalRun:
        """Return the clipped gradients of a batch that is drawn in secret; see `Silo.gradient`.

        The noise is added later, to the sum over all silos.

        Raises:
            InputError: no noise is added to that sum, so nothing would protect the gradient.
        """
        if self._guard.scale is None or batch is not None or self._ways:
            raise self._refusal("takes a gradient of all examples")
        self._begin_pass()
        self.model.trained.copy_(w)
        self.model.module.train()
        size = self._guard.rate * self.examples
        way = self._noted(self._guard.rate, 1, size, alone=False)
        way.of_outputs = self._loss(None).of_outputs
        device = self.model.device
        with self.randomness("gradient"), accelerators.rounding(device, tf32=False):
            found = way.noised(self.model, self.objective, next(way.drawn_from(self._splits["train"])))
        self._learned()
        return LocalRun(self.model.flatten(found).clone(), self.model.trained, 1, way.drawn, math.nan)

    def loss(self, w: Tensor) -> float:
        """Refuse: a loss is a query."""
        raise self._refusal("takes the loss of the examples")

    def frequencies(self) -> Tensor:
        """Refuse: the frequencies of features are a query."""
        raise self._refusal("counts features of the examples")

    def evaluate(self, *given: Any, **more: Any) -> Any:
        """Score a model if the job allows this without protection; see `Silo.evaluate`."""
        if not self._guard.settings.evaluate_unprotected:
            raise self._refusal("scores a model on the silo's examples")
        return super().evaluate(*given, **more)

    def split(self, name: str) -> Any:
        """Refuse: nothing protects the examples themselves."""
        raise self._refusal("reads examples by a loop of its own")

    def predict(self, split: str) -> Any:
        """Refuse: outputs for examples are queries."""
        raise self._refusal("looks at outputs for the silo's examples")

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"[privacy]: the algorithm {what}, which noise does not protect; train_locally alone is noised"
        )


@contextmanager
def _secretly(stream: AbstractContextManager[torch.Generator], secret: Draws) -> Iterator[torch.Generator]:
    """Lend a stream; meanwhile the whole state of torch's global CPU generator comes from a secret.

    A secret seed would not do: the generator keeps 32 bits of a seed, and others could try them all.
    """
    with stream as lent:
        rng.fill(torch.default_generator, secret.words(rng.STATE_WORDS // 2).view(torch.int32))
        yield lent
