"""`python -m mpifl`, and the installed command `mpifl`."""

import sys

from mpifl import interrupts


def main() -> None:
    """Run a command; a training listens to signals before anything that takes long is imported."""
    if sys.argv[1:2] == ["train"]:
        interrupts.install()
    from mpifl.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
