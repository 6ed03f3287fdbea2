"""`python -m data_prep`, and the installed command `data-prep`."""

from mpifl.common.machine import floors


def main() -> None:
    """Run a command; libraries that are too old are refused before any is imported."""
    floors.hold_or_exit()
    from data_prep.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
