"""What a job may not say of its model's buffers, a line each; and a run that continues with its rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from torch import nn
from unit.builders import Alone, write_folder

from mpifl.common import InputError
from mpifl.run.job.job import Job, check_job
from mpifl.training.loop import train
from mpifl.wings import wings_of

RULES = {"ready": "any"}


def checked(**tables: Any) -> Job:
    model = {"name": "2nn", "buffers": RULES}
    return check_job({"name": "toy", "shards": "s", "rounds": 3, "model": model, **tables}, "toy.toml")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rule": (
        {"aggregation": {"rule": "median"}},
        r"a single silo decides it, .* use 'reset', or rule = 'mean'",
    ),
    "masks": ({"security": {}}, r"masks hide them; use 'reset'"),
    "privacy": (
        {"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}},
        r"protected by nothing; use 'reset'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_rule_that_cannot_be_followed_is_refused(what: str) -> None:
    tables, line = REFUSED[what]
    with pytest.raises(
        InputError, match=rf"^toy.toml: \[model\] buffers: ready = 'any': .*{line}"
    ) as refused:
        checked(**tables)
    assert "\n" not in str(refused.value)
    assert checked(**tables, model={"name": "2nn", "buffers": {"ready": "reset"}}).model.buffers


def test_no_such_rule_is_one_line() -> None:
    with pytest.raises(
        InputError, match=r"\[model\] buffers = \"mean\": should be 'any', 'all', 'min'"
    ) as refused:
        checked(model={"name": "2nn", "buffers": {"ready": "mean"}})
    assert "\n" not in str(refused.value)


def test_a_split_network_takes_no_rules() -> None:
    tables = {"algorithm": {"name": "splitnn"}, "split": {"cut_width": 4}}
    with pytest.raises(InputError, match=r"\[model\] buffers: each party keeps all buffers"):
        checked(**tables)
    bottoms = {"split": {"cut_width": 4, "bottoms": {"0": {"name": "2nn", "buffers": RULES}}}}
    with pytest.raises(InputError, match=r"\[split.bottoms.0\] buffers: each party keeps all buffers"):
        checked(**{**tables, **bottoms, "model": {"name": "2nn"}})


class Flagged(nn.Module):
    """Notes by a flag, and by a number that is not finite at first, that it was trained."""

    def __init__(self, shape: list[int], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], classes)
        self.register_buffer("ready", torch.tensor(False))
        self.register_buffer("low", torch.tensor(torch.inf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.ready.fill_(True)
            self.low = torch.minimum(self.low, x.detach().min())
        return self.layer(x)


def job_in(folder: Path, **buffers: str) -> Path:
    if not (folder / "shards").exists():
        write_folder(folder / "shards", [6, 5])
    path = folder / "job.toml"
    model = {"name": "unit.run.test_buffers:Flagged", "buffers": buffers}
    path.write_text(
        tomli_w.dumps({"name": "toy", "shards": str(folder / "shards"), "rounds": 2, "model": model})
    )
    return path


def test_what_has_no_rule_is_refused_at_the_start_and_a_rule_lets_it_train(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"'ready' \(bool\).* ready = \"any\" or \"all\" or \"reset\""
    ) as refused:
        train(job_in(tmp_path), tmp_path / "one", (), False, Alone(), wings_of=wings_of)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=r"'low' \(float32\).* low = \"min\" or \"max\" or \"reset\""):
        train(job_in(tmp_path, ready="any"), tmp_path / "two", (), False, Alone(), wings_of=wings_of)
    train(job_in(tmp_path, ready="any", low="min"), tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    with pytest.raises(InputError, match=r"it differs in model.buffers.low; resume with the job"):
        train(
            job_in(tmp_path, ready="any", low="max"), tmp_path / "run", (), True, Alone(), wings_of=wings_of
        )


def test_a_rule_of_no_buffer_is_refused_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\[model\] buffers: 'lwo' matches no buffer; there are ready, low"):
        train(job_in(tmp_path, lwo="min"), tmp_path / "run", (), False, Alone(), wings_of=wings_of)
