"""`mpifl.train` in a script, on one rank without a launcher and on several: the bits of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ranks

HERE = Path(__file__).parent


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_script_trains_stops_resumes_and_leaves_all_as_it_was(n: int, digits: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = ranks(n, "-m", "mpi4py", HERE / "script.py", digits / "many", tmp_path / "out", timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    first, *others = (json.loads((tmp_path / "out" / f"told-{rank}.json").read_text()) for rank in range(n))
    assert first.pop("refusal").startswith("the job: has no key 'round'; did you mean 'rounds'?")
    assert first.pop("no model").endswith(
        "the training is not finished; continue with resume=True for its model"
    )
    assert first == {
        "stopped": [False, 2],
        "finished": [True, True],
        "rounds": [[1, 2, 3, 4]] * 2,
        "seen": True,
        "best": True,
        "job": [4, "__main__:Halved"],
        "model": True,
        "error": "division by zero",
        "heard": ["SIGUSR1"],
        "as found": True,
    }
    for other in others:
        assert other.pop("refusal").startswith("the job: has no key 'round'")
        assert other == {"error": "", "heard": [], "as found": True}
    for stopped, round in (("stopped", 4), ("failed", 1), ("signalled", 1)):
        folders = sorted(path.name for path in (tmp_path / "out" / stopped / "checkpoints").iterdir())
        assert folders[-1] == f"round_{round:06}"
    models = [(tmp_path / "out" / run / "model.safetensors").read_bytes() for run in ("stopped", "whole")]
    assert models[0] == models[1]


def test_a_script_and_the_command_come_to_the_same_bits(digits: Path, tmp_path: Path) -> None:
    job = (HERE.parents[1] / "jobs" / "demo.toml").read_text().splitlines()
    kept = [line for line in job if not line.startswith(("shards", "rounds"))]
    text = "\n".join([f'shards = "{digits / "many"}"', "rounds = 2", *kept])
    (tmp_path / "job.toml").write_text(text)
    script = "import mpifl; run = mpifl.train('job.toml'); print(run and (str(run.folder), run.finished))"
    (tmp_path / "script.py").write_text(script)
    called = ranks(3, "script.py", cwd=tmp_path)
    assert called.returncode == 0, called.stderr
    assert "('runs/job', True)" in called.stdout
    assert called.stdout.count("None") == 2  # ranks may write into one line
    commanded = ranks(1, "-m", "mpifl", "train", "job.toml", "--out", "commanded", cwd=tmp_path)
    assert commanded.returncode == 0, commanded.stderr
    models = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("runs/job", "commanded")]
    assert models[0] == models[1]
