"""Reproduce a table of a paper: train what is not done, print it beside the paper's figures, and write it to
OUT.

A stopped reproduction goes on where it was. `--cell` takes some of the cells, `--list` names them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run the tree that this file stands in, whatever is installed

from mpifl.common.errors import InputError  # noqa: E402
from scripts.reproduce import byzantine, dinh, flamby, mcmahan, niid, opacus, synthetic, vertical  # noqa: E402
from scripts.reproduce.cells import QUICK_ROUNDS, Cell, Reproduction, Table, use_this_tree  # noqa: E402

PAPERS = (mcmahan, flamby, synthetic, niid, byzantine, opacus, vertical, dinh)
TABLES: dict[str, Table] = {name: table for paper in PAPERS for name, table in paper.TABLES.items()}


def options_of(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument(
        "--cell", nargs="+", default=[], metavar="TEXT", help="cells by name, or all that begin so"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cells, and train nothing")
    parser.add_argument("--show", action="store_true", help="print the table as it stands, and train nothing")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds on tiny data, to see that it works"
    )
    parser.add_argument(
        "--retry", action="store_true", help="continue with runs that were lost (diverged), too"
    )
    parser.add_argument("--ranks", type=int, default=1, help="MPI ranks of each run (%(default)s)")
    parser.add_argument("--out", type=Path, help="the runs go here, and continue here (runs/papers/TABLE)")
    return parser.parse_args(given)


def chosen(table: Table, wanted: list[str]) -> list[Cell]:
    names = {cell.name for cell in table.cells}
    whole, begun = (
        [text for text in wanted if text in names],
        tuple(text for text in wanted if text not in names),
    )
    cells = [cell for cell in table.cells if not wanted or cell.name in whole or cell.name.startswith(begun)]
    if not cells:
        raise SystemExit(f"error: --cell {' '.join(wanted)}: no such cell; --list names them")
    return cells


def main(given: list[str] | None = None) -> int:
    try:
        return reproduce(options_of(given))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def reproduce(options: argparse.Namespace) -> int:
    table = TABLES[options.table]
    cells = chosen(table, options.cell)
    if options.list:
        print(*(cell.name for cell in cells), sep="\n")
        return 0
    use_this_tree()
    out = options.out or Path("runs", "papers-quick" if options.quick else "papers", options.table)
    out.mkdir(parents=True, exist_ok=True)
    reproduction, code = Reproduction(table, out, options.quick, options.ranks, options.retry), 0
    for cell in [] if options.show else cells:
        if code := reproduction.train(cell):
            break
        print(f"{' | '.join(reproduction.row(cell))}", file=sys.stderr, flush=True)
        (out / "table.md").write_text(reproduction.markdown())
    print(f"{table.title}\n\n{reproduction.markdown()}")
    if options.quick:
        print(f"--quick: {QUICK_ROUNDS} rounds on tiny data, which say nothing about the paper.")
    return code


if __name__ == "__main__":
    sys.exit(main())
