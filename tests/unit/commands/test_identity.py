"""The commands `identity`: a key is made once, shown as others list it, and held against the lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result
from unit.builders import write_folder

from mpifl.cli import app
from mpifl.common import InputError, read_toml

SILOS = ["silo_0000.h5", "silo_0001.h5"]
"""As `write_folder` calls them."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    return tmp_path / "site"


def told(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["identity", *map(str, arguments)], catch_exceptions=False)


def test_a_site_is_made_shown_and_found_to_fit(site: Path, tmp_path: Path) -> None:
    assert "site 'kiel' has a key; give all sites what" in told("make", "kiel").stdout
    write_folder(tmp_path / "shards", [3, 3])
    shown = told("show", "--silos", SILOS[0], "--silos", SILOS[1]).stdout
    (site / "sites.toml").write_text(shown)
    table = read_toml(site / "sites.toml")["site"][0]
    assert (table["name"], table["silos"], len(table["key"])) == ("kiel", SILOS, 64)
    for arguments in (["check"], ["check", tmp_path / "shards"]):
        done = told(*arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "the key and the list of sites fit" in done.stdout


def test_the_host_names_a_site_and_silos_are_to_be_filled_in(site: Path, monkeypatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node7.example.org")
    told("make")
    done = told("show")
    assert 'name = "node7.example.org"\nsilos = []\n' in done.stdout
    assert "fill in silos" in done.stderr


def test_each_problem_is_a_line_and_the_code_is_2(site: Path, tmp_path: Path) -> None:
    told("make", "kiel")
    done = told("check")
    assert done.exit_code == 2
    assert "sites.toml: is not there; write there what `mpifl identity show` prints" in done.stderr
    (site / "sites.toml").write_text(
        f'[[site]]\nname = "kiel"\nsilos = ["{SILOS[0]}"]\nkey = "{"ab" * 32}"\n'
    )
    write_folder(tmp_path / "shards", [3, 3, 3])
    done = told("check", tmp_path / "shards")
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"error: {site}/sites.toml: ") for line in lines)
    assert "the key abababab..." in lines[0]
    assert f"no site has the silo {SILOS[1]!r}" in lines[1]
    done = told("check", tmp_path / "nothing")
    assert (done.exit_code, "federation.json: is not there" in done.stderr) == (2, True)


def test_what_cannot_be_done_is_said(site: Path, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"has no identity\.key; make it by `mpifl identity make`"):
        told("show")
    told("make", "kiel")
    with pytest.raises(InputError, match="is there, and others know this site by it"):
        told("make", "kiel")
    site.chmod(0o755)
    with pytest.raises(InputError, match="has mode 0755, others may look in; chmod 700"):
        told("check")
    monkeypatch.delenv("MPIFL_SITE")
    with pytest.raises(InputError, match="mpifl identity: MPIFL_SITE names no folder for this site's key"):
        told("show")
