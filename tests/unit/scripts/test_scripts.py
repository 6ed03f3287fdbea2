"""What the shell scripts say while they work."""

import re
import shutil
import subprocess
import sys
import time

import pytest
from conftest import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def function(name, script="setup.sh"):
    """Return a function of a script."""
    text = (ROOT / "scripts" / script).read_text()
    return re.search(rf"^{name}\(\) {{.*?(^}}|}}$)", text, re.DOTALL | re.MULTILINE)[0]


def run(tmp_path, name, call, script="setup.sh", **variables):
    given = "\n".join(f"{key}={value}" for key, value in variables.items())
    dies = 'die() { echo "error: $*" >&2; exit 1; }'
    whole = f"set -euo pipefail\n{given}\n{dies}\n{function(name, script)}\n{call}\n"
    command = ["bash", "-c", whole]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, start_new_session=True)


def fake_pip(tmp_path, body):
    (tmp_path / "python").write_text(f"#!/usr/bin/env bash\n{body}\n")
    (tmp_path / "python").chmod(0o755)
    return {"py": tmp_path / "python", "log": tmp_path / "log", "root": ROOT, "every": 1}


def test_the_set_up_says_that_it_goes_on_while_pip_says_nothing(tmp_path):
    body = "echo Collecting numpy; sleep 2.5; echo 'Installing collected packages: numpy, torch'; sleep 2.5"
    done = run(tmp_path, "pip_install", "pip_install x", **fake_pip(tmp_path, body))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  [123] s: Collecting numpy$", done.stdout, re.MULTILINE)
    assert re.search(r"^  [2-9] s: Installing collected packages: numpy, torch$", done.stdout, re.MULTILINE)


def test_the_set_up_ends_pip_when_it_is_interrupted(tmp_path):
    body = "trap 'touch ended; kill $!; exit 1' TERM; sleep 60 & wait"
    call = "(sleep 1; kill -INT 0) & pip_install x"
    done = run(tmp_path, "pip_install", call, **fake_pip(tmp_path, body))
    assert done.returncode != 0
    deadline = time.monotonic() + 180
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_set_up_tells_the_end_of_what_pip_said_when_it_fails(tmp_path):
    done = run(tmp_path, "pip_install", "pip_install x", **fake_pip(tmp_path, "echo no such thing; exit 3"))
    assert done.returncode == 1
    assert "no such thing\nerror: pip failed; all it said is in" in done.stderr


@pytest.mark.parametrize(
    ("version", "taken"), [((3, 9, 9), False), ((3, 10, 0), True), ((3, 14), True), ((4, 0), True)]
)
def test_any_python_from_3_10_on_is_taken(tmp_path, version, taken):
    body = f'exec {sys.executable} -c "import sys; sys.version_info = {version}; $2"'
    (tmp_path / "python").write_text(f"#!/usr/bin/env bash\n{body}\n")
    (tmp_path / "python").chmod(0o755)
    assert (run(tmp_path, "in_range", "in_range ./python").returncode == 0) is taken


def test_no_python_is_too_new():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.10"


def test_a_deprecation_is_an_error_in_the_tests():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert {"error::DeprecationWarning", "error::PendingDeprecationWarning"} <= {*wanted["filterwarnings"]}


def test_the_demo_shows_its_rounds_wherever_its_output_goes():
    assert tomllib.loads((ROOT / "jobs" / "demo.toml").read_text())["tracking"]["console"] == "always"


def test_the_demo_says_what_it_does_before_anything_that_takes_long(tmp_path):
    """Nothing was to be seen for 18 seconds. Here the set-up ends at once, and nothing follows it."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/demo.sh", root / "scripts")
    (root / "scripts/setup.sh").write_text("echo set up; exit 3\n")
    done = subprocess.run(["bash", root / "scripts/demo.sh"], capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    assert first.startswith("A demo of mpifl: ")
    assert (second, done.returncode) == ("set up", 3)


def test_other_versions_are_tried_on_each_python_once_the_lowest_first(tmp_path):
    for name, version in (("python3", 12), ("python3.10", 10), ("python3.12", 12), ("python3.11", 9)):
        given = f"import sys; sys.version_info = (3, {version}); sys.executable = '{name}'; "
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} -c "{given} $2"\n')
        (tmp_path / name).chmod(0o755)
    call = f"PATH={tmp_path}:/bin PYENV_ROOT=/none pythons"
    found = run(tmp_path, "pythons", call, "versions.sh").stdout.split()
    assert [one for one in found if not one.startswith("/")] == ["python3.10", "python3"]


@pytest.mark.parametrize("what", ["features", "tools"])
def test_what_is_tried_at_its_lowest_is_what_the_project_asks_for(tmp_path, what):
    """No list of it is kept twice."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # a link would have no packages of its own
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    found = re.split(r"[,\n]", run(tmp_path, "asked", f"asked {what}", "versions.sh").stdout.strip())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    features = extras.keys() - {"all", "dev", "docs", "oracles", "mpich", "hf"}
    tools = {one for one in extras["dev"] if not one.startswith("mpifl")}
    assert set(found) == {"features": features, "tools": tools}[what]


NOT_IN_CI = {
    "setup.sh": "no check, and called first: it makes what the others run with",
    "demo.sh": "no check: it sets up and runs `mpifl demo`, which wheel.sh tries from the wheel",
    "slurm_testbed.sh": "no check: slurm_tests.sh starts it",
    "docs.sh": "what makes a site is an extra of its own; test.sh has the tests of the pages",
    "mpi_libraries.sh": "six libraries take an hour; mpich_tests.sh is a short form",
}
"""Scripts that `.ci/run` need not call, and why."""


def checks(text):
    """Return the commands of a script that run each time and end it when they fail."""
    let_pass = re.compile(r"\|\||&\s*$")
    lines = [line for line in text.splitlines() if line[:1].isalpha() or line.startswith(".venv/bin/")]
    return [line.removeprefix(".venv/bin/") for line in lines if not let_pass.search(line)]


IN_CI = checks((ROOT / ".ci" / "run").read_text())


def test_ci_calls_every_check_or_it_is_said_why_not():
    scripts = {path.name for path in (ROOT / "scripts").glob("*.sh")}
    called = {line.split("/")[1].split()[0] for line in IN_CI if line.startswith("bash scripts/")}
    assert called - {"setup.sh"} == scripts - NOT_IN_CI.keys()
    assert scripts >= NOT_IN_CI.keys()


@pytest.mark.parametrize(
    "line", ["ruff check", "ruff format --check", "mypy", "bash scripts/versions.sh short"]
)
def test_ci_has_this_line(line):
    assert IN_CI[0] == "set -euo pipefail"
    assert line in IN_CI


def test_what_may_fail_unseen_is_no_check():
    text = "bash a.sh x\n# bash b.sh\n  bash c.sh\nbash d.sh || true\nbash e.sh &\n.venv/bin/mypy"
    assert checks(text) == ["bash a.sh x", "mypy"]
