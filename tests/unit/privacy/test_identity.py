"""A site's key and the list of sites: made once, and read with a line for each thing that is wrong."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mpifl.common import InputError
from mpifl.wings.site import identity_of, make_identity, problems_of, read_sites, sites_of

OTHER = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir(mode=0o700)
    return tmp_path / "site"


def listed(folder: Path, *tables: str) -> Path:
    (folder / "sites.toml").write_text("\n".join(tables))
    return folder / "sites.toml"


def table(name="b", silos='["y"]', key=OTHER) -> str:
    return f'[[site]]\nname = "{name}"\nsilos = {silos}\nkey = "{key}"\n'


def test_a_key_is_made_once_and_read_again(folder: Path):
    assert identity_of(folder) is None
    made = make_identity(folder, "Charité 2")
    assert (folder / "identity.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["identity.key"]
    found = identity_of(folder)
    assert (found.name, found.public) == ("Charité 2", made.public)
    assert found.sign("session", b"x") == made.sign("session", b"x")
    with pytest.raises(InputError, match=r"identity\.key: is there, and others know this site by it"):
        make_identity(folder, "other")
    assert identity_of(folder).public == made.public


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a" * 65, '"', "-a"])
def test_a_name_that_is_none_is_refused(folder: Path, name):
    with pytest.raises(InputError, match=r"name: .* is none; it takes 1 to 64 letters"):
        make_identity(folder, name)
    assert identity_of(folder) is None


def test_a_key_that_others_may_read_or_that_is_harmed_is_refused(folder: Path):
    make_identity(folder, "a")
    path = folder / "identity.key"
    path.chmod(0o640)
    with pytest.raises(InputError, match=r"has mode 0640, others may read it; chmod 600 .*identity\.key"):
        identity_of(folder)
    path.chmod(0o600)
    path.write_text('name = "a"\nprivate_key = "beef"\n')
    with pytest.raises(InputError, match=r"identity\.key: private_key: what is there is none.*a copy that"):
        identity_of(folder)
    path.write_text('name = "a"\n')
    with pytest.raises(InputError, match=r"identity\.key: private_key: is missing; it takes 64 digits"):
        identity_of(folder)


def test_a_wrong_private_key_is_not_shown(folder: Path):
    make_identity(folder, "a")
    path = folder / "identity.key"
    whole = path.read_text().split('"')[3]
    path.write_text(path.read_text().replace(whole, whole + "0"))
    with pytest.raises(InputError) as error:
        identity_of(folder)
    assert whole[:8] not in str(error.value)


def test_what_a_site_shows_is_a_table_of_sites(folder: Path):
    identity = make_identity(folder, "a")
    sites = read_sites(listed(folder, identity.listing(['x "1"', "ü\\"]), table()))
    assert sites.by_name["a"].key == identity.public
    assert [sites.owner(silo) for silo in ('x "1"', "ü\\", "y", "z")] == ["a", "a", "b", None]
    signature = identity.sign("session", b"said")
    assert sites.signed("a", "session", signature, b"said")
    assert not sites.signed("b", "session", signature, b"said")
    assert not sites.signed("a", "letter", signature, b"said")
    assert sites_of(folder).by_name == sites.by_name


def test_a_folder_without_a_list_has_none_and_one_that_cannot_be_read_is_not_none(folder: Path):
    assert sites_of(folder) is None
    for name, read in (("sites.toml", sites_of), ("identity.key", identity_of)):
        (folder / name).symlink_to(folder / "elsewhere")
        with pytest.raises(
            InputError, match=rf"{name}: cannot be read \(No such file or directory\); put back"
        ):
            read(folder)


def test_a_key_that_cannot_be_written_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"identity\.key: cannot be written \(No space left on device\)"):
        make_identity(folder, "a")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ([""], r"site: is missing; it takes tables \[\[site\]\]"),
        (["site = []"], r"site: '\[\]' is none; it takes tables"),
        (["[[site]]\n"], "site.1.name: is missing; it takes 1 to 64"),
        ([table(), "[more]\n"], "more: is not a key that is known; remove it"),
        ([table(), table("c", '["z"]', "cd" * 32) + "port = 4\n"], "site.2.port: is not a key that is known"),
        ([table(key="AB" * 32)], "site.1.key: 'ABAB.*' is none; it takes 64 digits 0-9a-f, as `mpifl id"),
        ([table(key="ab")], "site.1.key: 'ab' is none"),
        ([table(silos="[]")], r"site.1.silos: '\[\]' is none; it takes the names of the site's silos"),
        ([table(silos='"y"')], "site.1.silos: 'y' is none"),
        ([table(silos="[3]")], "site.1.silos.1: '3' is none"),
        ([table(), table(key="cd" * 32, silos='["z"]')], "name 'b' is there 2 times, at b; give each"),
        ([table(), table("c", silos='["z"]')], "key 'abab.*' is there 2 times, at b and c; give each"),
        ([table(), table("c", key="cd" * 32)], "silo 'y' is there 2 times, at b and c; give each site"),
        (
            [table("y", '["x"]'), table("c", key="cd" * 32), table("d", key="ef" * 32)],
            "silo 'y'.*at c and d;",
        ),
        ([table(silos='["y", "y"]')], "silo 'y' is there 2 times, at b;"),
        (["[[site]\n"], "not TOML"),
    ],
)
def test_a_wrong_list_is_refused_in_a_line(folder: Path, tables, what):
    path = listed(folder, *tables)
    with pytest.raises(InputError, match=rf"^{path}: {what}") as error:
        read_sites(path)
    assert "\n" not in str(error.value).strip()


def test_problems_are_told_one_by_one(folder: Path):
    path = listed(folder, table())
    assert list(problems_of(None, read_sites(path), ["y"])) == [
        f"{folder}/identity.key: is not there; make this site's key by `mpifl identity make`"
    ]
    identity = make_identity(folder, "b")
    found = list(problems_of(identity, read_sites(path), ["y", "z", "y"]))
    assert len(found) == 3
    assert f"site 'b' has the key abababab..., this folder's is {identity.public[:8]}..." in found[0]
    assert "2 silos are called 'y'" in found[1]
    assert "no site has the silo 'z'; add it" in found[2]
    listed(folder, table("c"))
    assert "has no site 'b'; add what `mpifl identity show` prints" in next(
        iter(problems_of(identity, read_sites(path), []))
    )
    listed(folder, identity.listing(["y"]))
    assert list(problems_of(identity, read_sites(path), ["y"])) == []
