"""`mpifl selftest`; scripts/wheel.sh runs all of it in an installed wheel."""

from __future__ import annotations

import base64
import hashlib
from importlib.metadata import PathDistribution

import pytest
from conftest import ROOT

from mpifl.cli.doctor import selftest


@pytest.fixture
def installed(tmp_path):
    """A package of two files with the list that pip writes."""
    package, info = tmp_path / "mpifl", tmp_path / "mpifl-1.dist-info"
    package.mkdir()
    info.mkdir()
    rows = ["mpifl-1.dist-info/RECORD,,"]
    for name in ("__init__.py", "kernels.c"):
        (package / name).write_text(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
        rows.append(f"mpifl/{name},sha256={digest},{len(name)}")
    (info / "RECORD").write_text("\n".join(rows))
    return package, PathDistribution(info)


def test_a_files_harm_is_told(installed):
    package, at = installed
    assert selftest.files(package, at).startswith("files: 2 of mpifl ")
    (package / "old.py").touch()
    with pytest.raises(selftest.NotWhole, match=r"mpifl/old\.py: not of this version; install mpifl"):
        selftest.files(package, at)
    (package / "kernels.c").write_text("kernels.d")
    with pytest.raises(selftest.NotWhole, match=r"mpifl/kernels\.c: altered; install"):
        selftest.files(package, at)
    (package / "__init__.py").unlink()
    with pytest.raises(selftest.NotWhole, match=r"mpifl/__init__\.py: missing; install"):
        selftest.files(package, at)
    assert "comes from no wheel" in selftest.files(ROOT / "mpifl", at)


@pytest.mark.usefixtures("warm_python")
def test_a_training_that_fails_or_has_other_bits_is_told(tmp_path):
    trial = selftest.SmallTrainings(tmp_path)
    assert trial.alone() == f"training: 20 rounds on one rank, model {trial.bits[:16]}"
    assert trial._same("three ranks", trial.bits) == "three ranks: the same bits"
    with pytest.raises(selftest.NotWhole, match=r"^three ranks: model 0{16}, and of one rank [0-9a-f]{16}$"):
        trial._same("three ranks", "0" * 64)
    (tmp_path / "job.toml").write_text("rounds = 0")
    with pytest.raises(selftest.NotWhole, match=r"^mpifl train .* --ranks 3: exit code 2: error: job"):
        trial.ranks()
