"""Running statistics (BatchNorm's mean, variance and counter) travel and are averaged beside the weights.

So do buffers that a job has a rule for: the server is told what each silo has made of them.
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
    """Return the name of a vector of one silo: what it has made of buffers that are taken by a rule."""
    return f"{_OF}{silo}"


def is_own(name: str) -> bool:
    """Return whether a vector has such a name."""
    return name.startswith(_OF)


def common_name(name: str, silo: int) -> str:
    """Return what a vector of a silo's is called at every silo: without its number, if it is its own."""
    return _OF if name == own_name(silo) else name


def statistics_lengths(server: Server) -> dict[str, int]:
    """Return the lengths of the vectors that an update has of statistics, by what `length_name` returns."""
    averaged = server.model.statistics.averaged
    taken = len(server.model.statistics) - averaged
    return {STATISTICS: averaged, **({_OF: taken} if taken else {})}


def length_name(name: str) -> str:
    """Return by which name the length of a vector is told: those of single silos are of one length."""
    return _OF if is_own(name) else name


class RunningStatistics(Transform):
    """Send the statistics with every request, average how they changed, and keep the result at the server.

    They are weighted as the update is. Counters of batches stay whole numbers: they grow by the rounded
    weighted mean of what the silos counted, so that a cumulative average (momentum=None) goes on with the
    right share of the past. What is taken by a rule travels bit for bit.
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
        """Add how training changed them.

        Raises:
            InputError: what training has made of a buffer has no mean, or is nothing for its rule.
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
        """Move the server's statistics by the mean change, and take others by their rules.

        Raises:
            RoundLost: what is said to be a silo's is no value of a buffer.
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
    except InputError:  # of a training that diverged altogether the sum says so
        if all(bool(unmarked(vector).isfinite().all()) for vector in update.vectors.values()):
            raise


def _taken(server: Server, told: dict[int, Tensor]) -> Tensor:
    try:
        return server.model.statistics.taken_of(told)
    except ValueError as error:
        raise RoundLost(str(error)) from None
