"""A shell completes commands and options: tried in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TRIED = """
source <(_MPIFL_COMPLETE=source_bash mpifl)
complete -p mpifl
COMP_WORDS=(mpifl train --res) COMP_CWORD=2
"$(complete -p mpifl | sed 's/.*-F \\([^ ]*\\).*/\\1/')" mpifl --res train
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_an_option():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", TRIED], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "--resume"
