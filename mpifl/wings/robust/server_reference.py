"""The reference for the silos' updates: the server's last aggregate, or the server's own update."""

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
    """Sends the reference for updates with every training request; silos do not see it."""

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Remove the reference from a silo's message; the rank's aggregator has it."""
        return {name: value for name, value in message.items() if not name.startswith(REFERENCE)}


class LastAggregate(Reference):
    """For centered clipping: sends the last aggregate, which the server keeps in its state."""

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the last aggregate of each vector; there is none in the first round."""
        kept = {name: v for name, v in server.state.items() if name.startswith(REFERENCE)}
        return {**message, **kept} if purpose == "training" else message

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Keep a copy of the aggregate, since the algorithm may change the aggregate itself."""
        if purpose == "training":
            for name in sorted(mean.vectors.keys() - {STATISTICS}):
                server.state[REFERENCE + name] = mean.vectors[name].clone()
        return mean


@dataclass(frozen=True)
class ServerUpdate(Reference):
    """For FLTrust: trains the round's model on the server's public examples, as silos train it.

    Attributes:
        local: The silos' settings of local training.
        objective: The silos' objective.
    """

    local: LocalTraining
    objective: Objective

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the server's own update of the same model."""
        if purpose != "training":
            return message
        kept = server.state.get(STATISTICS)
        run = server.train(server.state["w"], self.local.at_round(server.round), self.objective, ())
        if kept is not None:  # running statistics of the server must come from silos, not from its training
            server.state[STATISTICS] = kept
        return {**message, f"{REFERENCE}delta": run.delta}


def reference_of(
    rule: Rule | Weighing | None, local: LocalTraining, objective: Objective, unlike: str, *, public: bool
) -> list[Transform]:
    """Return the transform that sends the reference, if the rule compares updates with one.

    Args:
        rule: The job's rule.
        local: The silos' settings of local training.
        objective: The silos' objective.
        unlike: How the silos' training differs from the server's; "" if it does not.
        public: Whether the federation has public examples.

    Raises:
        InputError: the server has no examples to train on, or silos train in another way than the server.
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
        raise InputError(f"{key}: {alike}; a silo's training here {unlike}; use 'fedavg'")
    if local.straggler_chance or local.epochs_by_silo or local.deadline or local.keep_optimizer_state:
        keys = "straggler_chance, epochs_by_silo, deadline and keep_optimizer_state"
        raise InputError(f"{key}: {alike}; leave [local] {keys} out")
    return [ServerUpdate(local, objective)]
