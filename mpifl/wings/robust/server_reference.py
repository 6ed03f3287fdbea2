"""What the server compares the silos' updates with: its last aggregate, or an update of its own."""

from __future__ import annotations

from dataclasses import dataclass

from mpifl.algorithms import Server
from mpifl.common import InputError
from mpifl.silo import Silo
from mpifl.silo.parameters import Objective
from mpifl.silo.steps import LocalTraining
from mpifl.sums import REFERENCE
from mpifl.transforms import STATISTICS, Message, Transform
from mpifl.wings.robust.column_rules import Rule
from mpifl.wings.robust.weighing import Weighing
from mpifl.wings.robust.weight_rules import FLTrust
from mpifl.wire import Mean, Purpose


class Reference(Transform):
    """Send with every request of a training what updates are compared with; silos do not see it."""

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Leave it to the rank's aggregator."""
        return {name: value for name, value in message.items() if not name.startswith(REFERENCE)}


class LastAggregate(Reference):
    """For centered clipping: send the last aggregate, which the server keeps in its state."""

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the last aggregate of each vector; in the first round there is none."""
        kept = {name: v for name, v in server.state.items() if name.startswith(REFERENCE)}
        return {**message, **kept} if purpose == "training" else message

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Keep the aggregate, which the algorithm may write to."""
        if purpose == "training":
            for name in sorted(mean.vectors.keys() - {STATISTICS}):
                server.state[REFERENCE + name] = mean.vectors[name].clone()
        return mean


@dataclass(frozen=True)
class ServerUpdate(Reference):
    """For FLTrust: train the model that silos are sent on the server's public examples, as silos train it.

    Attributes:
        local: How.
        objective: By which loss.
    """

    local: LocalTraining
    objective: Objective

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the server's own update, from the same model."""
        if purpose != "training":
            return message
        kept = server.state.get(STATISTICS)
        run = server.train(server.state["w"], self.local.at_round(server.round), self.objective, ())
        if kept is not None:  # the server's statistics come from silos
            server.state[STATISTICS] = kept
        return {**message, f"{REFERENCE}delta": run.delta}


def reference_of(
    rule: Rule | Weighing | None, local: LocalTraining, objective: Objective, unlike: str, *, public: bool
) -> list[Transform]:
    """Return what brings the vectors that a rule compares updates with, if it is such a rule.

    Args:
        rule: The job's.
        local: How silos train.
        objective: By which loss.
        unlike: What their training is that the server's would not be; "" if nothing.
        public: Whether the federation has public examples.

    Raises:
        InputError: there is nothing that the server could train on, or silos train otherwise than it would.
    """
    if not (isinstance(rule, Weighing) and rule.reference):
        return []
    if not isinstance(rule.weights, FLTrust):
        return [LastAggregate()]
    key = f"[aggregation] rule = '{rule.name}'"
    if not public:
        raise InputError(f"{key}: the shards have no public examples; partition with --public 0.01")
    alike = "the server trains as silos do, since its update is as long as the model's step"
    if unlike:
        raise InputError(f"{key}: {alike}; a silo's training here {unlike}; take 'fedavg'")
    if local.straggler_chance or local.epochs_by_silo or local.deadline or local.keep_optimizer_state:
        keys = "straggler_chance, epochs_by_silo, deadline and keep_optimizer_state"
        raise InputError(f"{key}: {alike}; leave [local] {keys} out")
    return [ServerUpdate(local, objective)]
