"""What was found out so far: a JSON file that every step adds to, and the page that is made of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from mpifl.common import write_atomic
from scripts.gpu_day.steps import NOT_HERE, ROOT, STEPS, Place, Step

GRACE = 10
"""Seconds between the request to end and the end."""
LINES = 12
"""So many last lines of a step that failed are kept."""
HEAD = """# What was found on a GPU

`python -m scripts.gpu_day` wrote this page. A figure is in the unit that its name has.

"""


class Diary:
    """The steps that were taken, in a folder."""

    def __init__(self, folder: Path, about: dict[str, Any], steps: dict[str, dict[str, Any]]) -> None:
        self._folder, self._about, self._steps = folder, about, steps

    @classmethod
    def of(cls, folder: Path, device: str, quick: bool) -> Diary | None:
        """Return a folder's diary, or a new one; None if it is of another device or form."""
        folder.mkdir(parents=True, exist_ok=True)
        about = {"device": device, "quick": quick}
        path = folder / "gpu_day.json"
        if not path.exists():
            return cls(folder, about, {})
        told = json.loads(path.read_text())
        steps = told.pop("steps")
        return cls(folder, about, steps) if told == about else None

    def is_left(self, step: Step, again: bool) -> bool:
        """Whether a step is to be taken: never begun, cut by the end of a call, or asked for again."""
        state = self._steps.get(step.name, {}).get("state")
        return state in (None, "cut by the end") or (again and state in ("failed", "cut"))

    def run(self, step: Step, left: float) -> None:
        """Take a step, for its own time and no longer than is left, and write down what came of it."""
        figures = self._folder / f"{step.name}.json"
        log, began = self._folder / f"{step.name}.log", time.monotonic()
        if self._steps.get(step.name, {}).get("state") != "cut by the end":
            figures.unlink(missing_ok=True)
        limit = min(step.seconds, left)
        print(f"{step.name}: {step.about}, {limit:.0f} s at most", flush=True)
        place = Place(self._about["device"], self._about["quick"], figures.resolve())
        with log.open("wb") as said:
            state = self._state(step.command(place), said, limit, step.seconds)
        entry: dict[str, Any] = {"state": state, "seconds": round(time.monotonic() - began, 1)}
        entry["figures"] = step.read(json.loads(figures.read_text())) if figures.exists() else {}
        if state != "done":
            entry["said"] = log.read_text(errors="replace").strip().splitlines()[-LINES:]
        self._steps[step.name] = entry
        self._write()
        print(f"{step.name}: {state} in {entry['seconds']} s, {len(entry['figures'])} figures", flush=True)

    @staticmethod
    def _state(command: list[str], said: Any, limit: float, whole: float) -> str:
        """Run a command in a process group of its own, which a cut ends as a whole."""
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return "cut" if limit >= whole else "cut by the end"
        finally:
            _end(process)
        return {0: "done", NOT_HERE: "not here"}.get(code, "failed")

    def failed(self) -> list[str]:
        """Return the names of steps that failed."""
        return [name for name, entry in self._steps.items() if entry["state"] == "failed"]

    def summary(self) -> str:
        """Return a line on what is done, and what is left."""
        states = [self._steps.get(step.name, {}).get("state", "left") for step in STEPS]
        told = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{self._folder / 'gpu_day.md'}: of {len(STEPS)} steps {told}"

    def _write(self) -> None:
        whole = {**self._about, "steps": self._steps}
        write_atomic(self._folder / "gpu_day.json", (json.dumps(whole, indent=1) + "\n").encode())
        write_atomic(self._folder / "gpu_day.md", self._page().encode())

    def _page(self) -> str:
        """Return the page: a table for each step in the order of the day."""
        parts = [HEAD + self.summary().partition(": ")[2] + ".\n"]
        for step in STEPS:
            entry = self._steps.get(step.name, {"state": "left", "figures": {}})
            parts.append(f"\n## {step.name}\n\n{step.about[0].upper()}{step.about[1:]}: {entry['state']}.\n")
            if entry["figures"]:
                rows = [f"| {_plain(name)} | {_plain(value)} |" for name, value in entry["figures"].items()]
                parts.append("\n| | |\n|---|---|\n" + "\n".join(rows) + "\n")
            if entry.get("said"):
                parts.append("\n```\n" + "\n".join(entry["said"]) + "\n```\n")
        return "".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it has started: first as a launcher hands it on to its ranks."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, stop)
            process.wait(GRACE)


def _plain(value: Any) -> str:
    """Return a figure or a name as a cell of a table."""
    told = f"{value:.4g}" if isinstance(value, float) else str(value)
    return told.replace("|", "/").replace("\n", " ")
