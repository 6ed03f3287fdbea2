"""A shell completes commands, options and values: tried in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpifl.algorithms import ALGORITHMS
from mpifl.cli import completing
from mpifl.cli.job_tools import TEMPLATES, tables
from mpifl.cli.listing import _kinds

TRIED = """
source <(_MPIFL_COMPLETE=source_bash mpifl)
complete -p mpifl
COMP_WORDS=(mpifl {words}) COMP_CWORD={last}
"$(complete -p mpifl | sed 's/.*-F \\([^ ]*\\).*/\\1/')" mpifl
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("train --res", "--resume"),
        ("new --algorithm scaf", "scaffold"),
        ("train ow", "own.toml"),
        ("list sche", "schemes"),
        ("keys coh", "cohort"),
        ("examples own-a", "own-algorithm"),
    ],
)
def test_bash_completes_an_option_and_a_value(words: str, completed: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("")
    (tmp_path / "own.csv").write_text("")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    script = TRIED.format(words=words, last=len(words.split()))
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=180, env=environment, cwd=tmp_path
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == completed


def test_what_is_completed_is_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/one", "runs/two", ".hidden", "data"):
        Path(folder).mkdir(parents=True)
    Path("runs/one/job.toml").write_text("")
    Path("own.toml").write_text("")
    assert sorted(completing.algorithms("")) == sorted(ALGORITHMS)
    assert completing.kinds("") == list(TEMPLATES)
    assert completing.listed("") == list(_kinds())
    assert completing.tables("") == [table for table in tables() if table]
    assert completing.job_files("") == ["data/", "own.toml", "runs/"]
    assert completing.job_files(".h") == [".hidden/"]
    assert completing.runs("ru") == ["runs/"]
    assert completing.runs("runs/") == ["runs/one"]
    assert completing.runs("nowhere/") == []


HEAVY = """
import sys
from mpifl.cli import completing
print(len(completing.listed("")), len(completing.tables("")), *({"torch", "numpy"} & {*sys.modules}))
"""


def test_nothing_heavy_is_imported_to_complete_a_kind() -> None:
    done = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, timeout=180)
    listed, completed, *heavy = done.stdout.split()
    assert (int(listed) > 10, int(completed) > 10, heavy) == (True, True, [])
