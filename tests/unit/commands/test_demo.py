"""The demo, as far as scripts/wheel.sh does not run it: what stands in its way is one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpifl.cli import app
from mpifl.cli.job_tools import jobs, jobs_folder
from mpifl.common import InputError


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"--out .*file: cannot be written \(Not a directory\)"):
        CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")], catch_exceptions=False)


def test_its_job_is_among_those_that_ship() -> None:
    assert jobs()["demo"] == "Handwritten digits in four silos: what `mpifl demo` trains."
    assert (jobs_folder() / "demo.toml").is_file()
