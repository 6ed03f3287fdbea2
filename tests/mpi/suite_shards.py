"""The shards that the suite's jobs train on: what `data-prep` is asked for each of their folders."""

from __future__ import annotations

import json
from pathlib import Path

_PAIRS = [{"prompt": "?" * (n % 5), "completion": "ab" * (1 + n * 7 % 23)} for n in range(60)]
_TEXTS = [{"text": "so it goes, " * (1 + n % 4)} for n in range(30)]
_LINES = {"pairs.jsonl": _PAIRS, "held.jsonl": _PAIRS[:23], "texts.jsonl": _TEXTS}
_SKEWED = ["digits", "--scheme", "dirichlet", "--alpha", "0.5", "--silos"]
_LABELS = ["--label-silo", "1"]


def write_lines(folder: Path) -> None:
    """Write the texts that some shards are cut of."""
    for name, lines in _LINES.items():
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def requests(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of `data-prep` for each folder of shards; texts lie in the folder given.

    `digits` has 4 silos, `many` 7 that hold out a test split, `few` 2, and all others 3. Those of `columns`
    have columns of the same rows, and silo 1 the labels. `values` and `read` have a test set of the server.
    """

    def lines(name: str, *options: str) -> list[str]:
        given = [word for option in options for word in ("--option", option)]
        return ["jsonl", "--data", str(folder / name), "--scheme", "iid", "--silos", "3", *given]

    ragged = "ragged=true", "length=40"
    asked = {
        "digits": [*_SKEWED, "4"],
        "many": [*_SKEWED, "7", "--test", "0.2", "--public", "0.1"],
        "few": [*_SKEWED, "2"],
        "columns": [
            "digits",
            *["--scheme", "vertical", "--silos", "3", "--label-silo", "1", "--valid", "0.1"],
        ],
        "volumes": ["volumes:examples", "--scheme", "natural"],
        "yes": ["scored:yes", "--scheme", "iid", "--silos", "5"],
        "lived": ["scored:lived", "--scheme", "iid", "--silos", "5"],
        "counted": ["scored:counted", "--scheme", "iid", "--silos", "5"],
        "values": ["scored:values", "--scheme", "iid", "--silos", "3"],
        "ragged": [*lines("pairs.jsonl", *ragged), "--test", "0.3"],
        "read": lines("pairs.jsonl", *ragged, f"test={folder / 'held.jsonl'}"),
        "texts": [*lines("texts.jsonl", "length=16"), "--test", "0.2"],
    }
    return {name: ["partition", *given, "--seed", "7"] for name, given in asked.items()}
