"""Running statistics (BatchNorm's mean, variance and counter) travel and are averaged beside the weights.

Buffers with a rule in the job travel, too: the server gets the value of each silo.
"""

from __future__ import annotations

from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import InputError, RoundLost
from mpifl.silo import Silo
from mpifl.transforms.transform import Message, Transform
from mpifl.wire import Mean, Purpose, Update, summed, unmarked

STATISTICS = "statistics"
_OF = f"{STATISTICS} of "


def own_name(silo: int) -> str:
    """Return the name of the vector that holds one silo's buffers with a rule."""
    return f"{_OF}{silo}"


def is_own(name: str) -> bool:
    """Return whether a vector's name is an `own_name`."""
    return name.startswith(_OF)


def common_name(name: str, silo: int) -> str:
    """Return a vector's name that is the same at every silo: an `own_name` without the silo's number."""
    return _OF if name == own_name(silo) else name


def statistics_lengths(server: Server) -> dict[str, int]:
    """Return the lengths of an update's vectors of statistics, by `length_name`."""
    averaged = server.model.statistics.averaged
    taken = len(server.model.statistics) - averaged
    return {STATISTICS: averaged, **({_OF: taken} if taken else {})}


def length_name(name: str) -> str:
    """Return the name under which a vector's length is known; all silos' own vectors have one length."""
    return _OF if is_own(name) else name


class RunningStatistics(Transform):
    """Sends the statistics with every request, averages their changes, and keeps the result at the server.

    The changes have the weight of the update. Counters of batches stay whole numbers: they grow by the
    rounded weighted mean of the silos' counts. So a cumulative average (momentum=None) goes on with the right
    share of the past. Buffers with a rule travel bit for bit.
    """

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Add the current statistics to the message, if the model has any."""
        return {**message, STATISTICS: server.state[STATISTICS]} if STATISTICS in server.state else message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Let the silo start every pass over its data from these statistics."""
        if STATISTICS not in message:
            return message
        silo.received[STATISTICS] = message[STATISTICS]
        return {name: value for name, value in message.items() if name != STATISTICS}

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Add the changes of the statistics in training to the update.

        Raises:
            InputError: a buffer's value has no mean, or does not suit its rule.
        """
        if STATISTICS in silo.received and silo.learned_statistics is not None:
            learned, averaged = silo.learned_statistics, silo.model.statistics.averaged
            _check(silo, update, learned)
            if averaged:
                update.vectors[STATISTICS] = (learned - silo.received[STATISTICS])[:averaged]
            if averaged < len(learned):
                update.vectors[own_name(silo.id)] = summed(learned[averaged:])
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Move the server's statistics by the mean change, and set buffers with a rule by their rules.

        Raises:
            RoundLost: a silo sent a value that such a buffer cannot have.
        """
        kept, names = server.model.statistics, {silo: own_name(silo) for silo in mean.silos}
        told = {silo: mean.vectors.pop(name) for silo, name in names.items() if name in mean.vectors}
        if STATISTICS in mean.vectors or told:
            now = server.state[STATISTICS].clone()
            if STATISTICS in mean.vectors:
                now[: kept.averaged] += mean.vectors.pop(STATISTICS)
            if told:
                now[kept.averaged :] = _taken(server, told)
            kept.write(now)
            server.state[STATISTICS] = kept.read().cpu()
        return mean


def _check(silo: Silo, update: Update, learned: Tensor) -> None:
    try:
        silo.model.statistics.check(learned)
    except InputError:  # if the whole training diverged, the checks of the sum say so
        if all(bool(unmarked(vector).isfinite().all()) for vector in update.vectors.values()):
            raise


def _taken(server: Server, told: dict[int, Tensor]) -> Tensor:
    try:
        return server.model.statistics.taken_of(told)
    except ValueError as error:
        raise RoundLost(str(error)) from None
