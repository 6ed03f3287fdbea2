"""Each example of docs/examples runs in a short form, from a copy of its folder, by its own script."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, launcher, python

FOLDER = ROOT / "docs" / "examples"
LEFT = {
    "clinics": "predictions.csv",
    "outcomes": "cox.csv",
    "segmentation": "found.npz",
    "regression": "predictions.csv",
    "lora": "run/model.safetensors",
    "own-algorithm": "fedacg/model.safetensors",
    "own-metric": "run/model.safetensors",
    "secure-sums": "site2/released.jsonl",
    "vertical": "predictions.csv",
}
"""What each leaves at its end."""
WHOLE = {"outcomes"}
"""Those that are run as they are: a fit needs its rounds."""


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment where the commands that a script names start at once."""
    folder = tmp_path_factory.mktemp("commands")
    for name, module in {"python": [], "mpifl": ["-m", "mpifl"], "data-prep": ["-m", "data_prep"]}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join([*python(), *module])} "$@"\n')
        (folder / name).chmod(0o755)
    # `--ranks` and `align` start ranks by the Python that they run in
    swap = f'[[ $word = "{sys.executable}" ]] && words+=({shlex.join(python())}) || words+=("$word")'
    (folder / "start").write_text(
        f'#!/bin/bash\nfor word; do {swap}; done\nexec {shlex.join(launcher())} "${{words[@]}}"\n'
    )
    (folder / "start").chmod(0o755)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MPIFL_SITE")}
    path = os.pathsep.join([str(folder), own["PATH"]])
    return {**own, "PATH": path, "MPIFL_MPIRUN": str(folder / "start")}


@pytest.mark.parametrize("name", LEFT)
def test_it_runs(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    if name == "lora":
        pytest.importorskip("transformers", reason="needs the extra hf")
    shutil.copytree(FOLDER / name, tmp_path / name)
    command = ["bash", str(tmp_path / name / "run.sh"), *([] if name in WHOLE else ["--set", "rounds=1"])]
    done = subprocess.run(
        command,
        env={**environment, "STEPS": "2", "COLUMNS": "120"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert (tmp_path / name / LEFT[name]).is_file()
    if name == "outcomes":
        tutorial_shows((ROOT / "docs/tutorial/outcomes.md").read_text(), tmp_path / name, done.stdout)


def tutorial_shows(page: str, folder: Path, printed: str) -> None:
    """Check that the tutorial has the script's commands, and shows what they print."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    commands = [line for kind, block in blocks if kind for line in block.splitlines()][1:]
    script = (folder / "run.sh").read_text().replace(' "$@"', "").splitlines()
    ran = [
        line.split("  #")[0].rstrip() for line in script if line.startswith(("python", "data-prep", "mpifl"))
    ]
    assert commands == ["mpifl examples outcomes && cd outcomes", *ran]
    lines = {
        line.rstrip() for line in (*printed.splitlines(), *(folder / "linz.csv").read_text().splitlines())
    }
    told = [
        line
        for kind, block in blocks
        if not kind
        for line in block.splitlines()
        if line.strip() and line != "  ..."
    ]
    assert [line for line in told if line not in lines and not line.startswith("warning")] == []
