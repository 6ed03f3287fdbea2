"""Running statistics (BatchNorm's mean, variance and counter) travel and are averaged beside the weights."""

from __future__ import annotations

from mpifl.server import Server
from mpifl.silo import Silo
from mpifl.transforms.base import Message, Transform
from mpifl.wire import Mean, Purpose, Update

NAME = "statistics"


class RunningStatistics(Transform):
    """Send the statistics with every request, average how they changed, and keep the result at the server.

    They are weighted as the update is. Counters of batches stay whole numbers: they grow by the rounded
    weighted mean of what the silos counted, so that a cumulative average (momentum=None) goes on with the
    right share of the past.
    """

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the current statistics, if the model has any."""
        return {**message, NAME: server.state[NAME]} if NAME in server.state else message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Have the silo start every pass over its data from them."""
        if NAME not in message:
            return message
        silo.received[NAME] = message[NAME]
        return {name: value for name, value in message.items() if name != NAME}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Add how training changed them."""
        if NAME in silo.received and silo.learned_statistics is not None:
            update.vectors[NAME] = silo.learned_statistics - silo.received[NAME]
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Move the server's statistics by the mean change."""
        if NAME in mean.vectors:
            server.model.statistics.write(server.state[NAME] + mean.vectors.pop(NAME))
            server.state[NAME] = server.model.statistics.read()
        return mean
