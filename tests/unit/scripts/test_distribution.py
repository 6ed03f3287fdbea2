"""What stands beside the package says what the package says: versions, extras, requirements, recipes."""

import re
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT

import mpifl

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTAINERS = ROOT / "scripts" / "containers"


def names(requirements):
    return {re.match(r"[\w-]+", one)[0] for one in requirements}


def floors(requirements):
    return dict(re.match(r"([\w-]+)>=([\d.]+)", one).groups() for one in requirements)


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (mpifl.__version__, PROJECT["license"])
    bibtex = dict(re.findall(r"(\w+) += \{(.*)\},?\n", (ROOT / "docs" / "cite.md").read_text()))
    plain = {key: re.sub("[{}]", "", value) for key, value in bibtex.items()}
    assert plain == {
        "author": cited["authors"][0]["name"],
        "title": cited["title"],
        "version": cited["version"],
        "year": str(cited["date-released"])[:4],
        "license": cited["license"],
    }


def test_all_extras_are_those_that_users_want():
    extras = PROJECT["optional-dependencies"]
    (whole,) = extras["all"]
    within = set(re.search(r"\[(.*)\]", whole)[1].split(","))
    others = {"all", "dev", "docs", "oracles", "openmpi", "mpich", "text"}  # hf brings text
    assert within == extras.keys() - others
    assert "mpifl[text]" in extras["hf"]


def test_the_environment_of_conda_has_what_the_package_needs():
    made = yaml.safe_load((CONTAINERS / "environment.yml").read_text())["dependencies"]
    given = names(one for one in made if isinstance(one, str))
    asked = {"pytorch" if name == "torch" else name for name in names(PROJECT["dependencies"])}
    assert asked - given == {"lazy_loader", "tomli", "tomli-w"}  # pip brings these
    extras = PROJECT["optional-dependencies"]
    lowest = floors([*PROJECT["dependencies"], *extras["plots"], *extras["digits"], "openmpi>=5"])
    lowest["pytorch"] = lowest["torch"]
    named = floors(one for one in made if isinstance(one, str) and ">=" in one)
    assert named == {name: lowest[name] for name in named}
    (pip,) = (one["pip"] for one in made if isinstance(one, dict))
    assert (CONTAINERS / pip[0]).resolve() == ROOT


def test_the_package_of_spack_needs_what_the_package_does():
    """As `py-NAME@LOWEST:`, where pip has `NAME>=LOWEST`."""
    told = (CONTAINERS / "spack" / "package.py").read_text()
    given = dict(re.findall(r'depends_on\("py-([\w-]+)@([\d.]+):', told))
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["plots"], *extras["digits"]]
    wanted = {name.replace("_", "-"): least for name, least in floors(asked).items()}
    assert given == wanted | {"setuptools": "77"}
    assert re.search(r'version\("(.*)"\)', told)[1] == mpifl.__version__


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").rglob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_one_of_bash(path):
    assert subprocess.run(["bash", "-n", path], capture_output=True, check=False).stderr == b""
