"""A printed command works in the shell of the person who reads it."""

import subprocess
import sys
from pathlib import Path

import pytest

import mpifl
from mpifl.common.machine import runnable


@pytest.mark.parametrize("activated", [True, False])
def test_a_printed_command_starts_this_very_package(
    activated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent) if activated else "/usr/bin:/bin")
    line = runnable("mpifl --version")
    assert line.startswith("mpifl ") == activated
    told = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, f"{mpifl.__version__}\n")


def test_where_no_command_is_installed_python_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my python"))
    assert runnable("data-prep inspect a") == f"'{tmp_path}/my python' -m data_prep inspect a"


def test_another_installation_on_the_path_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("other", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mpifl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "own" / "python"))
    assert runnable("mpifl new") == f"{tmp_path}/own/mpifl new"
