"""`python -m mpifl`."""

from mpifl.cli import main

main()
