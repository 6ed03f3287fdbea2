"""The errors that a user is meant to read: one line that names the thing,
what was given and what would do."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

LONGEST = 2000
"""Characters of an error's line."""
_PLACE = "mpifl_place"
"""The attribute of an error that says where it was raised."""


class InputError(Exception):
    """A job, a shard or an argument is wrong; the message is the line that the user sees (exit code 2)."""


class BudgetSpent(InputError):
    """What is asked of a silo would pass its privacy budget."""


class ShardError(InputError):
    """A shard file is missing, torn, altered or of another kind; the message begins with its path."""


class Unlike(InputError):
    """A silo's update has other vectors than those of most silos: asked anew, most may be others."""


class Unwritable(InputError):
    """A file of a run cannot be written: the disk is full, or fails."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.fact = f"{path}: cannot be written ({error.strerror or error})"
        super().__init__(f"{self.fact}; make room, and go on with --resume")


class Diverged(ValueError):
    """A vector holds NaN or Inf."""


class BeyondRange(ValueError):
    """A number is larger than what it travels as can hold."""


class RoundLost(Exception):
    """Too few silos of the cohort answered; server and silos are as they were before the round.

    Attributes:
        in_vain: Whether the same would come of asking them again.
    """

    def __init__(self, why: str, in_vain: bool = False) -> None:
        super().__init__(why)
        self.in_vain = in_vain


class SharedVectorChanged(RuntimeError):
    """A silo's half of an algorithm wrote to a vector that other silos read, too."""


class DeviceLost(Exception):
    """A GPU answers no call of this process any more, which ends the rank and no other."""


class Misled(Exception):
    """What this rank is told cannot be: who relays it is broken, of another version, or lies.

    It ends the rank.
    """


class RankLost(Exception):
    """A rank has died, and MPI leaves the others alone; `Transport.recover` brings those together."""


class StartLost(Exception):
    """A rank has died before all had met: there is no world in which the others could go on.

    Attributes:
        speaks: Whether this rank is the one that tells the user, as far as it knows.
    """

    def __init__(self, what: str, *, speaks: bool) -> None:
        super().__init__(what)
        self.speaks = speaks


def ranks_named(ranks: Sequence[int]) -> str:
    """Return `rank 3` or `ranks 1, 3`."""
    return named("rank", ranks)


def named(what: str, numbers: Sequence[int]) -> str:
    """Return `silo 3` or `silos 1, 3`."""
    return f"{what}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


@contextlib.contextmanager
def noted(where: Callable[[], str]) -> Iterator[None]:
    """Have an error that is raised inside know where, for `place_of`; its type and its text stay."""
    try:
        yield
    except Exception as error:
        vars(error)[_PLACE] = where()
        raise


def place_of(error: BaseException) -> str:
    """Return where an error was noted to be raised, such as `step 17 of 60`; "" if it was not."""
    place: str = vars(error).get(_PLACE, "")
    return place


def one_line(error: object) -> str:
    """Return what an error says as one line that a terminal can show,
    whatever was in a file that it quotes."""
    place = place_of(error) if isinstance(error, BaseException) else ""
    line = " ".join(visible(str(error)[: 2 * LONGEST]).split()) + (f" ({place})" if place else "")
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}"


def visible(text: str) -> str:
    """Return a text with a blank for each letter that a terminal might obey in place of showing it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
