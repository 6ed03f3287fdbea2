"""What programs of this package share: their arguments, and a file of figures that grows."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from scripts.gpu_day.steps import NOT_HERE


def arguments(about: str | None) -> argparse.Namespace:
    """Return what every program of this package is told."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu", help="as in a job (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--json", type=Path, required=True, help="the file for the figures")
    return parser.parse_args()


class Noted:
    """Figures by name, in a file that is written after each. What it holds already is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, name: str, figure: Any) -> None:
        """Note a figure, and print it."""
        self.figures[name] = figure
        self._path.write_text(json.dumps(self.figures, indent=1) + "\n")
        print(f"{name}: {figure}", flush=True)


def not_here(why: str) -> NoReturn:
    """End, since this machine lacks what the step needs."""
    print(why)
    sys.exit(NOT_HERE)
