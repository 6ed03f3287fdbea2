"""Errors for users: one line that names the thing, says what was given, and gives advice."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

LONGEST = 2000
"""The most characters in an error's line."""
_PLACE = "mpifl_place"
"""The attribute of an error that says where it was raised."""


class InputError(Exception):
    """A job, a shard or an argument is wrong; the message is the line that the user sees (exit code 2)."""


class BudgetSpent(InputError):
    """A request would exceed a silo's privacy budget."""

    kind: ClassVar[str] = "privacy budget is spent"
    """What the server learns of it."""
    to_do: ClassVar[str] = "a larger [privacy] epsilon, or site's budget, would allow more"


class ShardError(InputError):
    """A shard file is missing, torn, altered or of another kind; the message begins with its path."""


class Unlike(InputError):
    """A silo's update has other vectors than most silos' updates. A new attempt may have another majority."""


class Unwritable(InputError):
    """A file of a run cannot be written: the disk is full, or fails."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.fact = f"{path}: cannot be written ({error.strerror or error})"
        super().__init__(f"{self.fact}; make room, and continue with --resume")


class Diverged(ValueError):
    """A vector holds NaN or Inf."""


class BeyondRange(ValueError):
    """A number is too large for the format in which it travels."""


class RoundLost(Exception):
    """Too few silos of the cohort answered; server and silos are as they were before the round.

    Attributes:
        in_vain: Whether a new attempt would end in the same way.
        spent: Whether nothing but spent privacy budgets kept silos from answering.
        few: Whether a lower quorum might have kept it.
    """

    def __init__(self, why: str, in_vain: bool = False, spent: bool = False, *, few: bool = False) -> None:
        super().__init__(why)
        self.in_vain, self.spent, self.few = in_vain, spent, few


class SharedVectorChanged(RuntimeError):
    """A client method wrote to a vector that other silos read, too."""


class DeviceLost(Exception):
    """A GPU no longer answers calls of this process. This ends the rank, but no other rank."""


class Misled(Exception):
    """A relayed record cannot be right: the relaying rank is broken, has another version, or lies.

    This ends the rank that received the record.
    """


class RankLost(Exception):
    """A rank has died and MPI lets the others live; they meet again by `Transport.recover`."""


class StartLost(Exception):
    """A rank has died before all ranks had met, so there is no world in which the others could continue.

    Attributes:
        speaks: Whether this rank, as far as it knows, is the one that tells the user.
    """

    def __init__(self, what: str, *, speaks: bool) -> None:
        super().__init__(what)
        self.speaks = speaks


def ranks_named(ranks: Sequence[int]) -> str:
    """Return `rank 3` or `ranks 1, 3`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


@contextlib.contextmanager
def noted(where: Callable[[], str]) -> Iterator[None]:
    """Attach a place to an error that is raised inside, for `place_of`; its type and text stay."""
    try:
        yield
    except Exception as error:
        vars(error)[_PLACE] = where()
        raise


def place_of(error: BaseException) -> str:
    """Return the place that `noted` attached to an error, such as `step 17 of 60`; "" if there is none."""
    place: str = vars(error).get(_PLACE, "")
    return place


def one_line(error: object) -> str:
    """Return an error's text as one line that a terminal can show, even if it quotes a stranger's file."""
    place = place_of(error) if isinstance(error, BaseException) else ""
    line = " ".join(visible(str(error)[: 2 * LONGEST]).split()) + (f" ({place})" if place else "")
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}"


def visible(text: str) -> str:
    """Return a text with a blank for each character that a terminal might obey instead of showing it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
