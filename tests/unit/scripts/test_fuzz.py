"""Whatever others wrote is read as a value or refused with the documented error: no traceback, no hang, no
crash.

`scripts/fuzz.py` does the same for as long as one likes, in processes of their own.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from fuzzing import artefacts
from fuzzing.kinds import KINDS
from fuzzing.outcomes import outcome_of
from hypothesis import HealthCheck, given, settings, strategies as st

SCRIPT = Path(__file__).parents[3] / "scripts" / "fuzz.py"
INPUTS = 1000 if os.environ.get("MPIFL_SLOW") else 40


@pytest.fixture(scope="session")
def valid(tmp_path_factory):
    return artefacts.make(tmp_path_factory.mktemp("fuzzing") / "valid")


@pytest.mark.parametrize("name", KINDS)
def test_a_harmed_input_is_a_value_or_the_documented_error(valid, name):
    kind, counts = KINDS[name], Counter()

    @given(st.randoms(use_true_random=False))
    @settings(max_examples=INPUTS // kind.cost, suppress_health_check=list(HealthCheck))
    def read(draw):
        with tempfile.TemporaryDirectory(dir=valid.parent) as folder:
            outcome = outcome_of(kind, kind.make(draw, valid, Path(folder)))
        counts[outcome.name] += 1
        assert outcome.good, outcome

    read()
    assert counts["value"]  # or the harm is so great that nothing is reached


def test_the_script_finds_and_counts_all_that_must_not_be():
    """Each planted kind but the sound one does what it is called, a "deaf" one without hearing a signal."""
    command = [sys.executable, SCRIPT, "--kinds", "fuzzing.planted", "--inputs", "1", "--patience", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1, ran.stderr
    rows = dict(
        line.split(maxsplit=1) for line in ran.stdout.splitlines() if line[:1].isalpha() and ":" not in line
    )
    assert {
        name: list(map(int, row.split()[1:7])) for name, row in rows.items() if name not in ("kind", "sound")
    } == {
        "traceback": [0, 0, 1, 0, 0, 0],
        "hang": [0, 0, 0, 1, 0, 0],
        "deaf": [0, 0, 0, 1, 0, 0],
        "crash": [0, 0, 0, 0, 1, 0],
        "memory": [0, 0, 0, 0, 0, 1],
        "all": [*map(int, rows["all"].split()[1:3]), 1, 2, 1, 1],
    }
    assert sum(map(int, rows["all"].split()[1:3])) == 1
    assert re.search(r"hang: hang  at tests/fuzzing/planted.py:\d+ spin", ran.stdout)
