"""Five Unix users without a SLURM: a coordinator, three sites, and who carries their letters."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from sites.driver import sha256
from sites.people import COORDINATOR, People, users_python as users_python
from sites.test_site_runs import SITES, in_one_world, job_of


@pytest.mark.slow
def test_users_train_a_model_and_no_one_reads_what_is_anothers(users_python, tmp_path, digits):
    shards = digits / "many"
    job = job_of(tmp_path, shards, "scaffold")
    expected = in_one_world(tmp_path, job)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o755)
        people = People(base, shards, SITES, users_python)
        people.agree(job, shards)
        started = {}
        try:
            with people.copying(3):
                for name in SITES:
                    started[name] = people.start(
                        name, "join", people.link(name), "--shards", "shards", ranks=2
                    )
                people.said(COORDINATOR, "train", "job.toml", "--out", "run")
                for name in SITES:
                    people.end(name, started[name])
        finally:
            for process in started.values():
                process.kill()
                process.wait()
        assert sha256(base / COORDINATOR / "run" / "model.safetensors") == expected
        people.no_one_reads_what_is_anothers()
