"""Run on every rank: many commands of mpifl one after another in one world, each with its exit code and its
words.

python batch.py COMMANDS.json    {NAME: [argument, ...], ...}; the results go to COMMANDS.RANK.json
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from mpifl.cli import main
from mpifl.common.machine import signals
from mpifl.wire.launching.joining import world


class _Tee(io.StringIO):
    """Remembers, and hands on in case that the world ends."""

    def write(self, text: str) -> int:
        sys.__stderr__.write(text)
        return super().write(text)


def run(arguments: list[str]) -> dict[str, object]:
    sys.argv = ["mpifl", *arguments]
    signals.clear()
    code: object = 0
    with contextlib.redirect_stdout(_Tee()) as out, contextlib.redirect_stderr(_Tee()) as err:
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


file = Path(sys.argv[1])
rank = world().rank
done = {name: run(arguments) for name, arguments in json.loads(file.read_text()).items()}
file.with_suffix(f".{rank}.json").write_text(json.dumps(done))
