"""Find out all that only a machine with a GPU can tell, and write one JSON file and one page.

    python -m scripts.gpu_day --out DIR
    python -m scripts.gpu_day --out DIR --minutes 9 tests steps

What is done stays done, and the same command goes on with what is left: a machine that is lent for minutes at
a time will do. A step that the end of --minutes cuts is taken up again by the next call. DIR/gpu_day.json has
all figures, DIR/gpu_day.md is the page. --quick is the short form, which runs on a CPU, too.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scripts.gpu_day.diary import Diary
from scripts.gpu_day.steps import STEPS

LEAST = 15.0
"""Seconds: with less left no step begins."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [step.name for step in STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(names)} (all)")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the figures and the page")
    parser.add_argument("--device", default="gpu", help="as in a job (%(default)s)")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call (%(default)s)")
    parser.add_argument("--again", action="store_true", help="also the steps that failed or took too long")
    parser.add_argument("--quick", action="store_true", help="the first figure of each step alone")
    given = parser.parse_args()
    if unknown := set(given.steps) - set(names):
        parser.error(f"{', '.join(sorted(unknown))}: the steps are {', '.join(names)}")
    if given.minutes <= 0:
        parser.error("--minutes must be above 0")
    diary = Diary.of(given.out, given.device, given.quick)
    if diary is None:
        parser.error(f"--out {given.out}: has the figures of another device or form; name another folder")
    end = time.monotonic() + 60 * given.minutes
    for step in (step for step in STEPS if step.name in (given.steps or names)):
        left = end - time.monotonic()
        if left >= LEAST and diary.is_left(step, given.again):
            diary.run(step, left)
    print(diary.summary())
    sys.exit(1 if diary.failed() else 0)


if __name__ == "__main__":
    main()
