"""A frozen base with adapters: what travels, what is saved, and what it is to be read with."""

import json

import pytest
import tomli_w
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from unit.builders import Alone, mapping_of, write_folder

import mpifl
from mpifl.common.errors import InputError
from mpifl.report.judging import evaluate_run
from mpifl.report.pages import write_report
from mpifl.training.loop import train
from mpifl.wings import wings_of


class Adapted(nn.Module):
    """A frozen linear map and a low-rank one beside it (LoRA, Hu et al. 2022, eq. 3)."""

    def __init__(self, shape, classes):
        super().__init__()
        self.base = nn.Linear(shape[0], classes)
        self.base.requires_grad_(False)
        self.a, self.b = nn.Linear(shape[0], 2, bias=False), nn.Linear(2, classes, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


@pytest.fixture
def job(tmp_path):
    spec = write_folder(tmp_path / "shards", (12, 12), test=8)
    base = {f"base.{k}": v for k, v in nn.Linear(spec.features.shape[0], spec.classes).state_dict().items()}
    save_file(base, tmp_path / "base.safetensors")
    model = {"weights": str(tmp_path / "base.safetensors"), "strict": False, "save": "trained"}
    usual = {"name": "lora", "shards": str(tmp_path / "shards"), "rounds": 3, "device": "cpu"}
    name = "unit.training.test_adapters:Adapted"
    return {**usual, "model": {"name": name, **model}, "local": {"lr": 0.5}}


def act(job, tmp_path, **more):
    (tmp_path / "job.toml").write_text(tomli_w.dumps({**job, **more}))
    train(tmp_path / "job.toml", tmp_path / "run", (), False, Alone(), wings_of=wings_of)


def test_adapters_alone_travel_and_are_saved(job, tmp_path, capsys):
    act(job, tmp_path)
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert saved.keys() == {"a.weight", "b.weight"}
    assert saved["b.weight"].abs().max() > 0
    told = capsys.readouterr()
    assert "has no a.weight, b.weight" in told.err
    about = json.loads((tmp_path / "run" / "environment.json").read_text())["before"]
    evaluate_run(tmp_path / "run", [job["model"]["name"]], "initial")
    begun = f"test loss {about['test_loss']:.4f}, test accuracy {about['test_accuracy']:.2%}, 8 examples"
    assert begun in capsys.readouterr().out
    assert f"before round 1  test accuracy {about['test_accuracy']:.2%}" in told.out
    page = write_report(tmp_path / "run").read_text()
    assert f"Before training it was {about['test_accuracy']:.2%}" in page
    sent = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])["bytes_sent"]
    numbers = sum(v.numel() for v in saved.values())
    assert 2 * 4 * numbers <= sent < 2 * 4 * numbers + 2000, "two silos, float32, and the request"


def test_the_model_is_the_base_with_the_adapters(job, tmp_path):
    run = mpifl.train(job, out=tmp_path / "run")
    module = run.model(Adapted)
    base = load_file(tmp_path / "base.safetensors")
    assert torch.equal(module.base.weight, base["base.weight"])
    assert torch.equal(module.b.weight, load_file(tmp_path / "run" / "model.safetensors")["b.weight"])


def test_a_file_that_lacks_parameters_is_refused_by_default(job, tmp_path):
    job["model"]["strict"] = True
    with pytest.raises(InputError, match=r"has no a\.weight, b\.weight; \[model\] strict = false takes what"):
        act(job, tmp_path)


def test_a_file_of_another_model_is_not_taken_for_adapters(job, tmp_path):
    run = mpifl.train(job, out=tmp_path / "run")
    save_file({"c": torch.zeros(1)}, tmp_path / "run" / "model.safetensors")
    with pytest.raises(InputError, match=r"is of another model, by a\.weight, b\.weight"):
        run.model(Adapted)


def test_frozen_weights_lie_in_the_file_and_writing_changes_no_one_elses(job, tmp_path):
    run = mpifl.train(job, out=tmp_path / "run")
    module, content = run.model(Adapted), (tmp_path / "base.safetensors").read_bytes()
    assert mapping_of(module.base.weight)[1] == "rw-p", "private: one page for all until somebody writes"
    assert mapping_of(module.base.weight)[-1] == str(tmp_path / "base.safetensors")
    with torch.no_grad():
        module.base.weight.zero_()
    assert (tmp_path / "base.safetensors").read_bytes() == content
    assert run.model(Adapted).base.weight.any()


def test_adapters_on_another_base_are_refused_and_said(job, tmp_path):
    run = mpifl.train(job, out=tmp_path / "run")
    told = json.loads((tmp_path / "run" / "environment.json").read_text())["frozen_sha256"]
    base, own = load_file(tmp_path / "base.safetensors"), tmp_path / "run" / "model.safetensors"
    later = {**job["model"], "weights": str(own), "strict": True}
    with pytest.raises(InputError, match=r"is of another base model, whose frozen weights have sha256"):
        mpifl.train({**job, "model": later}, out=tmp_path / "later")
    save_file({name: value + 1 for name, value in base.items()}, tmp_path / "base.safetensors")
    with pytest.raises(InputError, match=rf"model.safetensors: .*those of its training {told[:12]};"):
        run.model(Adapted)
    with pytest.raises(InputError, match=r"run: is of another base model"):
        mpifl.train({**job, "rounds": 4}, out=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["frozen_sha256"] == told
    save_file(base, tmp_path / "base.safetensors")
    mpifl.train({**job, "rounds": 4}, out=tmp_path / "run", resume=True).model(Adapted)
