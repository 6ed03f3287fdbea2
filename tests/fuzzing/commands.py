"""Commands of both programs, on harmed files: a line to read and an exit code, whatever they find."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from random import Random

from data_prep import cli as data_prep
from fuzzing import artefacts
from fuzzing.folders import harmed_federation, runs
from fuzzing.jobs import jobs
from fuzzing.outcomes import Undocumented
from mpifl.cli.commands import app
from mpifl.cli.ending import run


def commands(draw: Random, valid: Path, folder: Path) -> tuple[str, list[str]]:
    """Return a command that ends soon, on a harmed folder or file."""
    what = draw.choice(("check", "inspect", "import", "report", "compare", "evaluate", "submit", "sweep"))
    if what in ("check", "inspect"):
        where = harmed_federation(draw, valid / draw.choice(artefacts.SHARDS), folder)
        return "data_prep", [
            what,
            str(where),
            *(["--features"] if what == "inspect" and draw.random() < 0.3 else []),
        ]
    if what == "import":
        where = harmed_federation(draw, valid / "plain", folder)
        more = ["--spec", str(where / "federation.json"), "--out", str(folder / "site"), "--silo", "0"]
        return "data_prep", ["import", "npz", "--data", str(valid / "own.npz"), *more]
    if what in ("report", "compare", "evaluate"):
        return "mpifl", [what, str(runs(draw, valid, folder))]
    path, overrides = jobs(draw, valid, folder)
    sets = [word for key in overrides or ("seed=1",) for word in ("--set", key)]
    return "mpifl", [what, str(path), "--dry-run", "--out", str(folder / "out"), *sets]


def run_command(given: tuple[str, list[str]]) -> None:
    """Run a command as its main function does; an exit code that tells of a traceback is one."""
    program, arguments = given
    said, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")),
        contextlib.redirect_stderr(errors),
    ):
        code = _code(program, arguments)
    told = errors.getvalue()
    if "Traceback" in told or code not in (0, 1, 2) or (code == 1 and arguments[0] != "check"):
        raise Undocumented(f"{program} {arguments[0]}: exit code {code}: {told}")
    if code == 2 and (len(told) > 20_000 or any(ord(c) < 32 and c != "\n" for c in told)):
        raise Undocumented(
            f"{program} {arguments[0]}: not a line to read: {len(told)} characters: {told[:200]!r}"
        )
    said.close()


def _code(program: str, arguments: list[str]) -> int:
    if program == "mpifl":
        before, sys.argv = sys.argv, ["mpifl", *arguments]
        try:
            return run(app)
        finally:
            sys.argv = before
    try:
        data_prep.main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0
