"""`python -m mpifl`, and the installed command `mpifl`."""

import os
import sys

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is not to be had yet
if __name__ == "__main__" and sys.path[0] == os.getcwd() != HOME:  # noqa: PTH109
    # by `-m`: modules of a folder where a command happens to run would stand for Python's own
    del sys.path[0]

from mpifl.common.machine import floors, signals  # noqa: E402


def main() -> None:
    """Run a command; a training listens to signals before anything that takes long is imported,
    and libraries that are too old are refused before any is."""
    if sys.argv[1:2] == ["train"]:
        signals.install()
    floors.hold_or_exit()
    from mpifl.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
