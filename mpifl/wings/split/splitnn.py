"""SplitNN and FedBCD: silos send activations of their columns; the label holder answers with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from pydantic import PositiveInt
from torch import Tensor

from mpifl.algorithms import Algorithm, Cohort, Server
from mpifl.common import rng
from mpifl.silo import Score, Scoring
from mpifl.silo.steps import LOCAL, steps_of
from mpifl.wings.split.column_silo import ColumnSilo, in_order
from mpifl.wings.split.dialogue import Dialogue, DialogueLead
from mpifl.wings.split.network_part import NetworkPart, begun, order
from mpifl.wings.split.split_server import SplitServer
from mpifl.wire import Update

Lines: TypeAlias = "Generator[Tensor, Tensor | None, Update]"


class SplitNN(Algorithm):
    """SplitNN (Vepakomma et al. 2018): each silo holds a bottom, the label holder holds the top.

    For a batch S of rows, silo k sends its activations z_k = f_k(theta_k; x_k[S]). The label holder merges
    them to z and computes the loss of h(phi; z) on its labels. It answers dloss/dz_k and steps phi; silo k
    steps theta_k.

    With `local_steps` Q above 1 it is FedBCD-p (Liu et al. 2022, Algorithm 1). Each side takes Q steps on
    the last message that it received. For each step a silo computes a new Jacobian, and the label holder
    computes its own activations again.
    """

    layout: ClassVar[Literal["horizontal", "vertical"]] = "vertical"
    scored_at_silos: ClassVar[bool] = False
    ignores: ClassVar[frozenset[str]] = frozenset(
        {"evaluate.silos", *(f"local.{key}" for key in LOCAL.idle("split"))}
    )

    local_steps: PositiveInt = 1
    """Q of FedBCD: how many steps each side takes on a batch between two exchanges."""

    def begin(self, server: Server) -> None:
        """Put the first state of the top and its optimizer into the server's state."""
        server.state |= begun(server.model, self.local) | _split(server).gate.known()

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Train the bottoms and the top on the batches of a round."""
        here = _split(server)
        train = here.held["train"]
        steps = steps_of(self.local.at_round(server.round), len(train)) * self.local_steps
        top = NetworkPart(server.model, self.local, server.round, steps, server.state)
        out = here.gate.open(server.state, server.round)
        total, count = torch.zeros((), dtype=torch.float64), 0

        def lead(talk: Dialogue) -> None:
            nonlocal count
            holder = [talk.silos[here.holder]]
            server.model.module.train()
            for nth, rows in enumerate(order(self.local, len(train), server.seed, server.round)):
                said, y = talk.hear(len(rows)), train.targets(rows)
                for step in range(self.local_steps):
                    loss, gradients = self._gradients(server, top, said, y, nth * self.local_steps + step)
                    own = [gradients[here.holder]]
                    talk.say(out.sent(rows, gradients)) if step == 0 else talk.say(own, holder)
                    top.step()  # at the same time as the silos
                    if step == 0:
                        total.add_(loss.double().cpu(), alpha=len(rows))
                    if step < self.local_steps - 1:
                        (said[here.holder],) = talk.hear(len(rows), holder)
                count += len(rows)

        mean = cohort.dialogue(self.bottom, DialogueLead(lead, self._widths(cohort.silos)))
        server.state |= {name: _copied(value) for name, value in top.kept().items()}
        return {"train_loss": float(total) / count, **mean.scalars, **out.figures()}

    def bottom(self, silo: ColumnSilo) -> Lines:
        """Train the silo's bottom: send its activations of each batch, and step by the answered gradient."""
        part = silo.part(self.local, self.local_steps)
        for x in silo.batches(self.local):
            z = silo.forward(x)
            gradient = yield z
            part.learn(z, gradient)
            for _ in range(self.local_steps - 1):
                z = silo.forward(x)
                if silo.holds_labels:
                    gradient = yield z
                part.learn(z, gradient)
        silo.keep(**part.kept())
        return silo.update()

    def global_model(self, server: Server) -> dict[str, Tensor]:
        """Return nothing: the top stays with the label holder, and each bottom at its silo."""
        return {}

    def personal_model(self, silo: Any, w: Tensor | None = None) -> Tensor:
        """Return the parameters of the silo's bottom, shape [P]."""
        found: Tensor = silo.bottom_state["w"]
        return found

    def personal_statistics(self, silo: Any) -> Tensor | None:
        """Return the running statistics of the silo's bottom, if it has any."""
        found: Tensor | None = silo.bottom_state.get("statistics")
        return found

    def score(self, server: Server, everyone: Cohort, split: str) -> Score | None:
        """Return the score of the whole network on a split; None if the label holder lacks the split."""
        if split not in _split(server).held:
            return None
        scoring = Scoring(self.task, server.model.device)
        self.answer(server, everyone, split, scoring.add)
        return scoring.score()

    def answer(
        self, server: Server, everyone: Cohort, split: str, take: Callable[[Any, Any], None], /
    ) -> None:
        """Run the whole network on a split's rows in their order; `take` gets outputs and targets."""
        held = _split(server).held[split]

        @torch.no_grad()
        def lead(talk: Dialogue) -> None:
            module = server.load(server.state["w"]).module.eval()
            for rows in in_order(len(held), server.evaluation_batch):
                z = self.merge(talk.hear(len(rows)), server.model.device)
                talk.say()
                take(self.task.outputs(module, z), held.targets(rows))

        everyone.dialogue(self.forward, DialogueLead(lead, self._widths(everyone.silos)), split=split)

    def forward(self, silo: ColumnSilo, split: str) -> Lines:
        """Send the bottom's activations of a split's rows."""
        yield from silo.lines(split)
        return silo.update()

    def merge(self, lines: Sequence[Tensor], device: torch.device) -> Tensor:
        """Merge the activations of all silos to one tensor, shape [rows, width]."""
        here = [line.to(device) for line in lines]
        if self.split.merge == "concat":
            return torch.cat(here, dim=1)
        return functools.reduce(torch.add, here)

    def _gradients(
        self, server: Server, top: NetworkPart, said: Sequence[Tensor], y: Tensor, step: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, and its gradients for the activations of each silo."""
        device = server.model.device
        lines = [line.detach().to(device).requires_grad_() for line in said]
        with rng.inside(server.seed, "top", server.round, step, device=device):
            outputs = self.task.outputs(server.model.module, self.merge(lines, device))
            loss = self.task.mean_loss(outputs, y)
        return loss.detach(), list(top.gradients(loss, inputs=lines))

    def _widths(self, silos: Sequence[int]) -> dict[int, int]:
        return dict(zip(silos, self.split.widths(len(silos)), strict=True))


def _copied(value: Tensor | int) -> Tensor | int:
    return value.to("cpu", copy=True) if isinstance(value, Tensor) else value


def _split(server: Server) -> SplitServer:
    """Return the server, typed as a `SplitServer`."""
    assert isinstance(server, SplitServer)
    return server
