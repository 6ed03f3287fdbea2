"""A death amid a checkpoint, whose silos continue with what they kept before."""

from __future__ import annotations

from pathlib import Path

import torch
from faults.processes import Command, checkpoints, train
from faults.test_survival import LONGEST, pytestmark as pytestmark

from mpifl.data.shards import read_federation
from mpifl.run.folder import checkpoint, serialization


def test_a_checkpoint_amid_which_silos_move_fits_the_servers_state(
    yard: Path, tmp_path: Path, digits: Path
) -> None:
    run, rounds = tmp_path / "run", 3
    keys = ("algorithm.name=scaffold", f"rounds={rounds}", "cohort.fraction=1.0")
    arguments = train(yard / "steady.toml", run, *(word for key in keys for word in ("--set", key)))
    trouble = {"die": {"2": ("asked", "save", rounds)}}
    with Command(tmp_path / "command", 3, *arguments, trouble=trouble, survive=True) as command:
        assert command.end(LONGEST).code == 0
    assert "rank 2 died" in command.err
    assert max(checkpoints(run)) == rounds
    sizes = [entry.examples["train"] for entry in read_federation(digits / "many").silos]
    files = {silo: checkpoint.silo_file(run, rounds, silo) for silo in range(len(sizes))}
    mean = sum(
        sizes[silo] / sum(sizes) * serialization.unpack(file.read_bytes())["c"].double()
        for silo, file in files.items()
        if file.exists()
    )
    state = serialization.unpack(checkpoint.server_file(run, rounds).read_bytes())
    torch.testing.assert_close(state["c"].double(), mean, atol=1e-6, rtol=1e-4)
