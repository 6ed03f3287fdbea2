"""The number of steps of a training, and the number of examples in each batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mpifl.common import InputError
from mpifl.silo.steps.local_settings import LocalTraining


def steps_of(local: LocalTraining, examples: int) -> int:
    """Return how many steps a training takes over this many examples."""
    return local.steps or (local.epochs or 1) * -(-_in_epoch(local, examples) // local.accumulate_batches)


def rows_of(local: LocalTraining, examples: int) -> list[int]:
    """Return the number of examples in each batch of a training over this many examples."""
    every = _in_epoch(local, examples)
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    epoch = [size] * (every - 1) + [size if local.drop_last else examples - size * (every - 1)]
    return [epoch[step % every] for step in range(steps_of(local, examples) * local.accumulate_batches)]


def check_batches(
    local: LocalTraining,
    examples: int,
    where: str,
    layer: str,
    key: str = "[local] batch_size",
    rounds: int = 1,
) -> None:
    """Check that a model that cannot train on one example never gets a batch of one.

    Args:
        local: The settings of its training.
        examples: The number of training examples.
        where: The model's name in the message.
        layer: The layer that needs two examples; "" if there is none.
        key: The job's key for the size of a batch.
        rounds: The number of rounds.

    Raises:
        InputError: it would; the line says what to do.
    """
    for round, at_round in _each_size(local, rounds) if layer else ():
        if what := why_one_row(at_round, examples):
            drops = key.startswith("[local]") and not what.startswith("each")
            to_do = "use drop_last = true, or another size" if drops else "use another size"
            to_do = "leave that silo out" if local.batch_size == "full" else to_do
            model = f"{where} in round {round + 1}" if round else where
            said = f"{what}, and {model} cannot train on one row ({layer}); {to_do}"
            raise InputError(f"{key} = {at_round.batch_size}: {said}")


def has_one_row(local: LocalTraining, examples: Iterable[int], rounds: int) -> bool:
    """Return whether any batch of any round has one row, for any of these numbers of training examples."""
    counts = {*examples}
    return any(why_one_row(one, count) for _, one in _each_size(local, rounds) for count in counts)


def why_one_row(local: LocalTraining, examples: int) -> str:
    """Return which batch has one row, for this many examples; "" if no batch that is trained on has."""
    if not examples:
        return ""
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    if size == 1:
        return "each batch has one row"
    reached = steps_of(local, examples) * local.accumulate_batches > examples // size
    last = examples % size == 1 and not local.drop_last
    return f"of {examples:,} rows the last batch has one" if last and reached else ""


def _each_size(local: LocalTraining, rounds: int) -> Iterator[tuple[int, LocalTraining]]:
    """Yield the first round with each size of batches, counted from 0, and that round's settings."""
    seen = set[int | str]()
    for round in range(rounds if local.batch_growth > 1 else 1):
        at_round = local.at_round(round)
        if at_round.batch_size not in seen:
            seen.add(at_round.batch_size)
            yield round, at_round


def _in_epoch(local: LocalTraining, examples: int) -> int:
    """Return the number of batches in an epoch."""
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    return examples // size if local.drop_last else -(-examples // size)
