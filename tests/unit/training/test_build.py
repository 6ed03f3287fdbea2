"""What every rank works out for itself before a training: its threads,
and whether it can compute as the job wants."""

import os

import pytest
from unit.builders import Alone, write_folder

from mpifl.common.errors import InputError
from mpifl.training import build, devices


class Placed(Alone):
    """The only worker of its node."""

    def place(self):
        return 0, 1


@pytest.mark.parametrize(
    ("mine", "launchers", "workers", "threads"),
    [
        (16, 16, 1, 16),
        (16, 16, 3, 5),
        (16, 16, 40, 1),
        (4, 16, 4, 4),  # bound to four cores each
        (8, 16, 4, 4),  # bound to two sockets, two ranks on each
        (1, 16, 2, 1),
        (16, 16, 0, 1),  # the server
    ],
)
def test_auto_shares_the_cores_that_a_rank_may_use(monkeypatch, mine, launchers, workers, threads):
    cores = {0: set(range(mine)), os.getppid(): set(range(launchers))}
    monkeypatch.setattr(os, "sched_getaffinity", cores.__getitem__, raising=False)
    assert devices.threads_of("auto", workers) == threads
    assert devices.threads_of(3, workers) == 3


def test_bfloat16_on_a_cpu_is_refused_in_a_line(tmp_path):
    write_folder(tmp_path / "shards", [8, 8])
    job = tmp_path / "job.toml"
    job.write_text(
        f'name = "toy"\nshards = "{tmp_path / "shards"}"\nrounds = 1\ndevice = "cpu"\n'
        '[model]\nname = "logreg"\n[local]\nprecision = "bf16"\n'
    )
    with pytest.raises(InputError, match=r"\[local\] precision = 'bf16': .* take 'fp32'") as refused:
        build.build(job, tmp_path / "run", (), False, Placed())
    assert "\n" not in str(refused.value)
