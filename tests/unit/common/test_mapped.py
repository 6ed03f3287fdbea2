"""A mapped file that is cut short ends who reads it, by the signal and with a line that names it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

READER = """
import os, sys
from pathlib import Path
import numpy as np
from mpifl.common import mapped
whole, torn = Path(sys.argv[1]), Path(sys.argv[2])
arrays = []
for path in (whole, torn):
    mapped.note(path, path.stat().st_size)
    arrays.append(np.memmap(path, np.uint8, mode="c"))
{trouble}
print(int(arrays[0].sum()), flush=True)
print(int(arrays[1].sum()), flush=True)
"""
TROUBLES = {
    "cut": (
        "os.truncate(torn, 100)",
        "{torn}: was cut from 100000 to 100 bytes while it was mapped; restore it\n",
    ),
    "sent": ("os.kill(os.getpid(), 7)", ""),
    "cut-in-a-thread": (
        "os.truncate(torn, 100); import threading; "
        "one = threading.Thread(target=lambda: arrays[1].sum()); one.start(); one.join()",
        "{torn}: was cut from 100000 to 100 bytes while it was mapped; restore it\n",
    ),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names a signal by Linux's number")
@pytest.mark.parametrize("name", TROUBLES)
def test_who_reads_a_file_that_was_cut_says_which_and_dies_of_it(tmp_path: Path, name: str) -> None:
    trouble, says = TROUBLES[name]
    files = [tmp_path / "whole", tmp_path / "torn"]
    for file in files:
        file.write_bytes(bytes(100_000))
    command = [sys.executable, "-c", READER.format(trouble=trouble), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == -signal.SIGBUS
    assert done.stderr == says.format(torn=files[1])


def test_a_file_that_stays_ends_nobody(tmp_path: Path) -> None:
    for name in ("whole", "torn"):
        (tmp_path / name).write_bytes(bytes(100_000))
    command = [
        sys.executable,
        "-c",
        READER.format(trouble=""),
        str(tmp_path / "whole"),
        str(tmp_path / "torn"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n0\n", "")
