"""Train under the libraries that are named, and print the table of docs/howto/mpi.md."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.mpi_matrix.cells import COLUMNS, CUT, JOB, OWN, Cells
from scripts.mpi_matrix.commands import ROOT, Library


def prepare(folder: Path) -> None:
    """Lay out what all trainings need."""
    (folder / "own.py").write_text(OWN)
    (folder / "job.toml").write_text(JOB)
    command = [sys.executable, "-m", "data_prep", "partition", "digits", "--out", "shards", *CUT.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, check=True, env=environment, stdout=subprocess.DEVNULL)


def rows(libraries: list[Library], words: list[str], folder: Path) -> Iterator[list[str]]:
    """Yield each library's name and cells; words choose libraries and cells, by default all."""
    cells = {cell.__name__ for cell in COLUMNS.values()}
    asked = cells.intersection(words) or cells
    names, bits = set(words) - cells, dict[str, str]()
    for library in libraries:
        if names and not any(name in library.name for name in names):
            continue
        under = Cells(library, [one for one in libraries if one is not library], folder, bits)
        row = [library.name]
        for column, cell in COLUMNS.items():
            began = time.monotonic()
            try:
                row.append(cell(under) if cell.__name__ in asked else "-")
            except AssertionError as error:
                row.append(f"**{error}**".replace("\n", " "))
            took = time.monotonic() - began
            print(f"{library.name}: {column}: {row[-1]} ({took:.0f} s)", file=sys.stderr, flush=True)
        yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words of libraries' names, and names of cells")
    parser.add_argument("libraries", nargs="+", help="NAME|PYTHON|LAUNCHER|LIBRARY")
    given = parser.parse_args()
    libraries = [Library(*one.split("|")) for one in given.libraries]
    with tempfile.TemporaryDirectory(prefix="matrix-") as name:
        prepare(Path(name))
        found = list(rows(libraries, given.only.split(), Path(name)))
    table = [["from", *COLUMNS], ["---"] * (len(COLUMNS) + 1), *found]
    print(f"Run on {time.strftime('%Y-%m-%d')}.\n", *(f"| {' | '.join(row)} |" for row in table), sep="\n")
    return int(any(cell.startswith("**") for row in found for cell in row))


if __name__ == "__main__":
    sys.exit(main())
