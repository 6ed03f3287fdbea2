"""The how-to of adapters as a new user follows it: a small GPT-2, silos' texts, a training, its result."""

import re
import runpy
import shlex
import sys

import pytest
from conftest import ROOT
from safetensors.torch import load_file
from typer.testing import CliRunner

import mpifl
from data_prep.cli import main as data_prep
from mpifl.cli import app
from mpifl.common.errors import InputError
from mpifl.run.job.job import read_job

PAGE = (ROOT / "docs" / "howto" / "lora.md").read_text()
PLAY = "\n\n".join(
    f"{role}:\nWhat say you, {other}? I say {n} times that it goes."
    for n in range(40)
    for role, other in (("ALL", "Anne"), ("ANNE", "Richard"), ("RICHARD", "Anne"))
)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def command(beginning):
    """Return the words of a command of the page behind its beginning."""
    lines = (line for block in blocks("bash") for line in block.splitlines())
    return shlex.split(next(line for line in lines if line.startswith(beginning)).removeprefix(beginning))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "tinyshakespeare").mkdir(parents=True)
    (tmp_path / "data" / "tinyshakespeare" / "input.txt").write_text(PLAY)
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_the_page_holds_from_the_model_to_the_text_that_it_writes(folder, monkeypatch, capsys):
    script = "scripts/examples/tiny_gpt2.py"
    few = ("--steps=2", "--vocabulary=280", "--width=8", "--silos=2")
    monkeypatch.setattr(sys, "argv", [script, *command(f"python {script}"), *few])
    runpy.run_path(str(ROOT / script), run_name="__main__")
    with pytest.raises(SystemExit) as ended:
        data_prep([*command("python -m data_prep"), "--jobs=1"])
    assert ended.value.code == 0
    job = read_job(ROOT / "jobs" / "lora-gpt2.toml", ["rounds=1"])
    run = mpifl.train(job, out="runs/lora-gpt2")
    assert run.finished
    assert {name.split(".")[-3] for name in load_file("runs/lora-gpt2/model.safetensors")} == {
        "lora_A",
        "lora_B",
    }
    capsys.readouterr()
    for target in ("models/letters", "adapters"):
        words = command(f"mpifl export runs/lora-gpt2 {target}")
        assert CliRunner().invoke(app, ["export", "runs/lora-gpt2", target, *words]).exit_code == 0
    capsys.readouterr()
    for block in blocks("python"):
        exec(compile(block, "lora.md", "exec"), {})
    assert capsys.readouterr().out.startswith("MY LORD,")
    assert (folder / "adapters" / "adapter_model.safetensors").exists()
    with pytest.raises(SystemExit) as ended:
        data_prep([*command("data-prep"), "--jobs=1"])
    assert ended.value.code == 0
    of_speakers = {
        "name": "speeches",
        "shards": "shards/speeches",
        "rounds": 1,
        "model": {"name": "hf-classifier", "path": "models/distilbert"},
        "local": {"lr": 0.01, "steps": 1},
    }
    with pytest.raises(InputError, match=r"classifier.bias has shape \[4\], and \[2\] is needed"):
        mpifl.train(of_speakers, out="runs/speeches")
    of_speakers["model"]["path"] = "data/lora/gpt2"
    assert mpifl.train(of_speakers, out="runs/speeches").finished
