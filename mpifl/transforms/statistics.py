"""Running statistics (BatchNorm's mean, variance and counter) travel and are averaged beside the weights."""

from __future__ import annotations

from mpifl.server import Server
from mpifl.silo import Silo
from mpifl.transforms.base import Message, Transform
from mpifl.wire import Mean, Purpose, Update

STATISTICS = "statistics"


class RunningStatistics(Transform):
    """Send the statistics with every request, average how they changed, and keep the result at the server.

    They are weighted as the update is. Counters of batches stay whole numbers: they grow by the rounded
    weighted mean of what the silos counted, so that a cumulative average (momentum=None) goes on with the
    right share of the past.
    """

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the current statistics, if the model has any."""
        return {**message, STATISTICS: server.state[STATISTICS]} if STATISTICS in server.state else message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Have the silo start every pass over its data from them."""
        if STATISTICS not in message:
            return message
        silo.received[STATISTICS] = message[STATISTICS]
        return {name: value for name, value in message.items() if name != STATISTICS}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Add how training changed them."""
        if STATISTICS in silo.received and silo.learned_statistics is not None:
            update.vectors[STATISTICS] = silo.learned_statistics - silo.received[STATISTICS]
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Move the server's statistics by the mean change."""
        if STATISTICS in mean.vectors:
            server.model.statistics.write(server.state[STATISTICS] + mean.vectors.pop(STATISTICS))
            server.state[STATISTICS] = server.model.statistics.read().cpu()
        return mean
