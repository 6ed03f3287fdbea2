"""A launcher, tried by processes that end at once."""

from __future__ import annotations

import subprocess
import tempfile

from mpifl.common import InputError
from mpifl.wire.launching.launcher import own_launcher, session_in

LONGEST = 60.0
"""Seconds after which a launcher is told as one that starts nothing."""
MOST = 300
"""Characters of its message."""


def check_launch(ranks: int, what: str) -> None:
    """See that the launcher starts so many processes.

    Args:
        ranks: How many.
        what: What asks for them, as a message begins.

    Raises:
        InputError: there is no launcher, or it does not.
    """
    command = [*own_launcher(), "-n", str(ranks), "true"]
    with tempfile.TemporaryDirectory(prefix="mpifl-", ignore_cleanup_errors=True) as session:
        try:
            done = subprocess.run(
                command,
                env=session_in(session),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{what}: {command[0]} has not ended after {LONGEST:g} s") from None
        except OSError as error:
            raise InputError(f"{what}: {command[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        raise InputError(f"{what}: {command[0]} starts no processes: {_told(done.stderr or done.stdout)}")


def _told(message: str) -> str:
    """Return what a launcher says, in one line, without its rules of dashes."""
    lines = (line.strip() for line in message.splitlines())
    said = " ".join(line for line in lines if line.strip("-"))
    return (said[: MOST - 3] + "..." if len(said) > MOST else said) or "it says nothing"
