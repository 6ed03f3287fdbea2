"""How a language model goes on with the prompts of a file: greedy, drawn by a seed, and what is refused."""

import csv
import json
import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner
from unit.report.test_evaluate import make_run

import mpifl
from data_prep.cli import app as data_prep
from mpifl.cli import app
from mpifl.cli.job_tools.language_runs import _LanguageModel
from mpifl.common.errors import InputError

TEXT = "so it goes, and so they go\nand on it goes\n" * 30
LENGTH = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small transformer of the package after a round on the characters of a text."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "book.txt").write_text(TEXT)
    cut = ["partition", "text", "--data", folder / "book.txt", "--out", folder / "shards", "--scheme", "iid"]
    more = ["--silos", "2", "--option", "roles=false", "--option", f"length={LENGTH}"]
    data_prep([*map(str, (*cut, *more))], standalone_mode=False)
    model = {"name": "gpt", "width": 8, "layers": 1, "heads": 2}
    job = {"name": "text", "shards": str(folder / "shards"), "rounds": 1, "device": "cpu", "model": model}
    local = {"optimizer": "adam", "lr": 0.01, "batch_size": 4}
    return mpifl.train({**job, "task": {"name": "language"}, "local": local}, out=folder / "run")


def generate(run, *words):
    """Return what the command printed, or the line by which it is refused."""
    told = CliRunner().invoke(app, ["generate", *map(str, (run, *words))])
    return str(told.exception) if isinstance(told.exception, InputError) else told.output


@pytest.fixture
def prompts(tmp_path):
    def of(*texts, name="prompts.txt"):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
        return tmp_path / name

    return of


def test_the_likeliest_characters_follow(run, prompts, tmp_path):
    given, out = ("so it", "and on it goes, and so"), tmp_path / "out.jsonl"
    file = prompts(*given)
    said = generate(run.folder, "--prompts", file, "--length", 9, "--out", out)
    assert said.endswith(f"generated: {out}, 2 texts\n")
    module, characters = run.model().eval(), sorted(set(TEXT))
    for told, prompt in zip(map(json.loads, out.read_text().splitlines()), given, strict=True):
        text = [characters.index(one) for one in prompt]
        for _ in range(9):
            with torch.no_grad():
                text.append(int(module(torch.tensor([text[-LENGTH:]]))[0, :, -1].argmax()))
        more = "".join(characters[one] for one in text[len(prompt) :])
        assert told == {"prompt": prompt, "completion": more, "tokens": 9, "ended": False}
    before = generate(run.folder, "--prompts", file, "--length", 9, "--initial")
    assert before.startswith("── 1 ───")
    assert "\nso it" in before
    assert before != generate(run.folder, "--prompts", file, "--length", 9)


def test_a_seed_draws_and_draws_the_same_again(run, prompts):
    file = prompts('{"prompt": "so"}', '{"prompt": "so"}', name="prompts.jsonl")
    drawn = [generate(run.folder, "--prompts", file, "--seed", seed) for seed in (1, 1, 2)]
    cold = generate(run.folder, "--prompts", file, "--seed", 3, "--temperature", 0.001)
    assert drawn[0] == drawn[1] != drawn[2]
    rule, one, other = drawn[0].replace("── 2 ─", "── 1 ─").split("── 1 " + "─" * 35 + "\n")
    assert not rule
    assert one != other, "each prompt has draws of its own"
    assert one.startswith("so")
    assert cold == generate(run.folder, "--prompts", file), "a low temperature takes the likeliest"


def test_what_cannot_go_on_is_one_line(run, prompts, tmp_path):
    file, empty = prompts("so"), ('{"prompt": "so"}', '{"prompt": ""}')
    for words, told in (
        (["--prompts", prompts("so", "sö", name="b.txt")], "b.txt: line 2: character 'ö' of 'sö' is not"),
        (["--prompts", prompts("so", " ", "it", name="e.txt")], "e.txt: line 2 is blank; write a prompt"),
        (["--prompts", prompts(*empty, name="f.jsonl")], "f.jsonl: line 2 is blank; write a prompt"),
        (["--prompts", prompts(empty[0], "", empty[0], name="g.jsonl")], "g.jsonl: line 2 is blank; write"),
        (["--prompts", tmp_path / "none.txt"], "none.txt: cannot be read (No such file"),
        (["--prompts", prompts("", name="c.txt")], "c.txt: has no prompt; write one on each line"),
        (["--prompts", prompts('{"text": 1}', name="d.jsonl")], "line 1: is not an object with a prompt"),
        (["--prompts", file, "--temperature", "2"], "--temperature 2: is for tokens that are drawn; give"),
        (["--prompts", file, "--out", tmp_path / "a.csv"], "ends in '.csv'; it must be .jsonl or .txt"),
    ):
        said = generate(run.folder, *words)
        assert told in said
        assert "\n" not in said, "nothing is printed before"
    other, _ = make_run(tmp_path)
    named = f"{other}: [task] name = 'classification'"
    wanted = f"{named}: has no next token; use a run of the task 'language'"
    assert generate(other, "--prompts", file) == wanted


def test_a_text_with_another_character_is_named(run, tmp_path):
    lines = ['{"text": "so"}', "", '{"text": "sö"}']
    (tmp_path / "new").mkdir()
    for name, text, place in (
        ("a.jsonl", "\n".join(lines), "a.jsonl: line 3: character 'ö' of 'sö' is not among"),
        ("new/b.txt", f"{TEXT}so it göes\n", f"new/b.txt: line {TEXT.count(chr(10)) + 1}: character 'ö' of"),
    ):
        (tmp_path / name).write_text(text)
        path, out = tmp_path / name.removesuffix("/b.txt"), tmp_path / "p.csv"
        words = ["predict", run.folder, "--texts", path, "--out", out]
        said = str(CliRunner().invoke(app, [*map(str, words)]).exception)
        assert said.startswith(f"--texts {tmp_path / place}")
        assert "\n" not in said
        assert not out.exists()


def test_texts_are_told_how_well_they_are_predicted(run, tmp_path, monkeypatch):
    """By the mean of -log p over the characters after the first, in sequences as long as the training's."""
    (tmp_path / "new").mkdir()
    texts = {"b.txt": "and so it goes\n" * 20, "a.txt": "so"}
    for name, text in texts.items():
        (tmp_path / "new" / name).write_text(text)
    out = tmp_path / "p.csv"
    words = ["predict", run.folder, "--texts", tmp_path / "new", "--out", out]
    whole, sizes = _LanguageModel.outputs, []
    monkeypatch.setattr(_LanguageModel, "outputs", lambda self, x: sizes.append(len(x)) or whole(self, x))
    assert CliRunner().invoke(app, [*map(str, words)]).exit_code == 0
    assert len(sizes) <= 3, "the windows of a text are answered together"
    with out.open() as file:
        found = list(csv.DictReader(file))
    assert [one["id"] for one in found] == ["a.txt", "b.txt"]
    module, characters = run.model().eval(), sorted(set(TEXT))
    for told in found:
        text, total = [characters.index(one) for one in texts[told["id"]]], 0.0
        for start in range(0, len(text) - 1, LENGTH):
            x, y = (torch.tensor([text[start + at : start + at + LENGTH]]) for at in (0, 1))
            with torch.no_grad():
                total += float(cross_entropy(module(x[:, : y.shape[1]]), y, reduction="sum"))
        assert int(told["tokens"]) == len(text) - 1
        assert float(told["loss"]) == pytest.approx(total / (len(text) - 1), rel=1e-5)
        assert float(told["perplexity"]) == pytest.approx(math.exp(float(told["loss"])))
