"""The terminal's picture of a shard folder: a table with a bar and a label histogram a silo, and what it amounts to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from data_prep.heterogeneity import heterogeneity
from mpifl.errors import ShardError
from mpifl.shards import SPLITS, FederationSpec, ShardEntry

MOST_ROWS = 40
MOST_COLUMNS = 32  # of a label histogram; more classes than that share columns
BAR = 12
BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#@"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def label_counts(spec: FederationSpec) -> np.ndarray:
    """Return the label histograms of all silos, int [silos, classes]."""
    for entry in spec.silos:
        if len(entry.labels) != spec.classes:
            found = f"{len(entry.labels)} label counts for {spec.classes} classes"
            raise ShardError(f"federation.json: silos.{entry.silo}.labels: {found}; partition again")
    return np.array([entry.labels for entry in spec.silos], dtype=np.int64)


def show(spec: FederationSpec, console: Console, *, everything: bool = False) -> None:
    """Print what every silo holds, the totals, and how much the silos differ."""
    counts = label_counts(spec)
    console.print(Text(_title(spec), style="bold"))
    console.print(_table(spec, counts, console, everything))
    if hidden := len(spec.silos) - len(_rows(spec, everything)):
        console.print(Text(f"{hidden} silos are left out; --all shows them."))
    console.print(Text(_totals(spec)))
    console.print(_measures(counts))


def _title(spec: FederationSpec) -> str:
    options = ", ".join(f"{key} {value}" for key, value in spec.scheme.items() if key != "name")
    shape = "x".join(map(str, spec.features.shape))
    cut = f"{spec.source.get('name')} by {spec.scheme.get('name')} ({options}), seed {spec.seed}"
    return f"{spec.name}: {cut}; {spec.features.dtype} {shape}, {spec.classes} classes"


def _rows(spec: FederationSpec, everything: bool) -> list[int]:
    """Choose the silos to print: all, or the first and the last ones."""
    silos = list(range(len(spec.silos)))
    return silos if everything or len(silos) <= MOST_ROWS else silos[: MOST_ROWS // 2] + silos[-MOST_ROWS // 2 :]


def _table(spec: FederationSpec, counts: np.ndarray, console: Console, everything: bool) -> Table:
    splits = [split for split in SPLITS if any(split in entry.examples for entry in spec.silos)]
    unicode = console.encoding.lower().startswith("utf")
    table = Table(header_style="bold")
    for heading in ("silo", "name", *splits):
        table.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=True)
    for heading in ("size", "labels", "seen", "file"):
        table.add_column(heading, justify="right" if heading in ("seen", "file") else "left", no_wrap=True)
    rows, largest = _rows(spec, everything), int(counts.sum(axis=1).max())
    for silo in rows:
        entry, of_label = spec.silos[silo], counts[silo]
        drawings = bar(of_label.sum() / max(largest, 1), unicode), sparkline(of_label, unicode)
        cells = [str(silo), entry.name, *_examples(entry, splits), *drawings, _seen(of_label), decimal(entry.bytes)]
        table.add_row(*map(Text, cells), end_section=len(rows) < len(spec.silos) and silo == rows[len(rows) // 2 - 1])
    return table


def _examples(entry: ShardEntry, splits: Sequence[str]) -> list[str]:
    return [f"{entry.examples.get(split, 0):,}" for split in splits]


def _seen(of_label: np.ndarray) -> str:
    return f"{np.count_nonzero(of_label)}/{len(of_label)}"


def bar(share: float, unicode: bool = True) -> str:
    """Draw a share of the full width, in eighths of a character where the terminal has them."""
    if not unicode:
        return "#" * round(share * BAR)
    whole, eighths = divmod(round(share * BAR * 8), 8)
    return "█" * whole + EIGHTHS[eighths] * (eighths > 0)


def sparkline(of_label: np.ndarray, unicode: bool = True) -> str:
    """Draw a histogram [classes] with a character a class, the tallest full; a class that occurs is never blank."""
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    columns = [int(piece.sum()) for piece in np.array_split(of_label, min(len(of_label), MOST_COLUMNS))]
    top = max(*columns, 1)
    return "".join(blocks[-(-count * (len(blocks) - 1) // top)] for count in columns)


def counted(spec: FederationSpec) -> str:
    """Say how many silos there are."""
    return f"{len(spec.silos):,} silo{'s' * (len(spec.silos) > 1)}"


def _totals(spec: FederationSpec) -> str:
    held = ", ".join(
        f"{sum(entry.examples.get(split, 0) for entry in spec.silos):,} {split}"
        for split in SPLITS
        if any(split in entry.examples for entry in spec.silos)
    )
    server = f"; the server's test set {sum(spec.test.examples.values()):,}" if spec.test else ""
    size = decimal(sum(entry.bytes for entry in (*spec.silos, *filter(None, [spec.test]))))
    return f"{counted(spec)}: {held}{server}; {size}"


def _measures(counts: np.ndarray) -> Table:
    found = heterogeneity(counts)
    table = Table.grid(padding=(0, 2))
    table.add_row("Label skew, mean Jensen-Shannon divergence to the pooled labels", f"{found.jensen_shannon:.4f} bit")
    table.add_row("Label skew, mean earth mover's (total variation) distance", f"{found.total_variation:.4f}")
    table.add_row("Size skew, Gini coefficient of the training sets", f"{found.gini:.4f}")
    return table
