"""Models of transformers from a folder: adapters, what they are exported to, the weights that ranks share."""

import json
import logging
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from typer.testing import CliRunner
from unit.builders import mapping_of, same_bits
from unit.report.test_evaluate import make_run

import mpifl
from data_prep.cli import app as data_prep
from mpifl.cli import app
from mpifl.common import Names
from mpifl.common.errors import InputError
from mpifl.data import Features
from mpifl.data.shards import open_shard, read_federation
from mpifl.learning import models
from mpifl.learning.tasks import TASKS
from mpifl.report.judging import evaluate_silos
from mpifl.report.pages.run_figures import curve
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs import read_run
from mpifl.run.folder.weights_file import load_initial
from mpifl.run.job.job import read_job
from mpifl.training.beforehand.run_checks import validate_job

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

TOKENS = 257
LORA = {"r": 2, "lora_alpha": 4, "target_modules": ["c_attn"]}
TEXT = Features(shape=(16,), dtype="int16")
NAMED = {"input_ids": TEXT, "attention_mask": TEXT}
LANGUAGE = TASKS["language"]()


def gpt2(kind="GPT2LMHeadModel", **more):
    shape = {"vocab_size": TOKENS, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**shape, bos_token_id=256, eos_token_id=256, pad_token_id=256, **more)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return getattr(transformers, kind)(config)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    gpt2().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    """A finished training of adapters on short texts, most of which are padded."""
    folder = tmp_path_factory.mktemp("lora")
    texts = [{"ward": f"w{n % 2}", "text": "so it goes " * (1 + n % 3)} for n in range(20)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, texts)))
    cut = ["partition", "jsonl", "--data", folder / "texts.jsonl", "--scheme", "natural", "--test", "0.3"]
    more = ["--option", "silo=ward", "--option", "length=16", "--out", folder / "shards"]
    data_prep([*map(str, (*cut, *more))], standalone_mode=False)
    model = {"name": "hf-causal", "path": str(base), "save": "trained", "lora": LORA}
    job = {"name": "lora", "shards": str(folder / "shards"), "rounds": 2, "device": "cpu", "model": model}
    local = {"optimizer": "adam", "lr": 0.01, "lr_decay": 0.5, "batch_size": 4}
    job |= {"task": {"name": "language"}, "local": local, "checkpoint": {"every": 1}}
    return mpifl.train(job, out=folder / "run")


def test_a_run_notes_the_libraries_that_its_model_comes_of(run):
    told = json.loads((run.folder / "environment.json").read_text())["versions"]
    assert (told["transformers"], told["peft"]) == (transformers.__version__, peft.__version__)
    assert {"tokenizers", "torch"} <= told.keys()
    assert [record["learning_rate"] for record in run.metrics] == [0.01, 0.005]
    assert not {"typer", "pytest", "huggingface_hub", "mpifl_demo"} & told.keys()


def test_the_page_of_adapters_names_them_and_tells_tokens_and_the_score_before(run):
    words = " ".join(re.sub("<[^>]*>", " ", write_report(run.folder).read_text()).split())
    assert "fedavg · hf-causal with LoRA r 2 · " in words
    assert " · optimizer adam · lr 0.01 · epochs 1 · batch size 4 · " in words
    spec = read_federation(Path(run.job.shards))
    many = sum(sum(entry.labels) for entry in spec.silos)
    assert "The data: sequences and tokens of every silo" in words
    assert f"They have {many:,} tokens of 257, without padding." in words
    assert "How unsure a model is of the next token" in words
    drawn = curve(read_run(run.folder), Names(()))
    assert drawn.blocks[0].scales[0].low == 0, "from the score before training on"


def test_adapters_alone_travel_and_are_saved(run, base):
    saved, before = load_file(run.folder / "model.safetensors"), load_file(base / "model.safetensors")
    assert len(saved) == 4
    assert all(".lora_A." in name or ".lora_B." in name for name in saved)
    numbers = sum(v.numel() for v in saved.values())
    assert numbers == 2 * 2 * (8 + 24)
    assert 2 * 4 * numbers <= run.metrics[0]["bytes_sent"] < 2 * 4 * numbers + 2000, "two silos, float32"
    after = run.model().model.get_base_model().state_dict()
    kept = {name.replace(".base_layer", ""): value for name, value in after.items() if "lora_" not in name}
    assert all(same_bits(kept[name], value) for name, value in before.items())


def test_a_models_folder_is_found_from_where_the_run_was_started(run, base, tmp_path, monkeypatch, capsys):
    shutil.copytree(run.folder, tmp_path / "run")
    job, environment = tmp_path / "run" / "job.toml", tmp_path / "run" / "environment.json"
    job.write_text(job.read_text().replace(f'"{base}"', '"gpt2"'))
    told = json.loads(environment.read_text())
    environment.write_text(json.dumps({**told, "directory": str(base.parent)}))
    monkeypatch.chdir(tmp_path)
    evaluate_silos(Path("run"))
    assert "perplexity" in capsys.readouterr().out
    environment.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"path = 'gpt2': no such folder"):
        evaluate_silos(Path("run"))


def test_next_tokens_of_texts_are_no_classes(run, tmp_path):
    job = {**run.job.model_dump(mode="json", exclude_none=True), "task": {"name": "classification"}}
    with pytest.raises(InputError, match=r"'classification': .* next tokens of texts, for which"):
        mpifl.train(job, out=tmp_path / "run")


def test_texts_by_another_tokenizer_than_the_models_are_refused_before_the_training(run, base, tmp_path):
    shutil.copytree(base, tmp_path / "gpt2")
    (tmp_path / "gpt2" / "tokenizer.json").write_text("{}")
    job = read_job(run.folder / "job.toml", (f"model.path={tmp_path / 'gpt2'}",))
    line = r"the texts in the shards became tokens by bytes, not by its tokenizer.json; cut them with --tok"
    with pytest.raises(InputError, match=line):
        validate_job(job, "job.toml")


def test_perplexity_and_speed_count_no_padding(run, base, tmp_path):
    module, total, count = run.model().eval(), 0.0, 0
    spec = read_federation(Path(run.job.shards))
    trained = [open_shard(Path(run.job.shards), entry, spec)["train"].y for entry in spec.silos]
    real, cells = (
        int(sum(of(np.asarray(y)).sum() for y in trained)) for of in (lambda y: y != -100, np.ones_like)
    )
    assert real < cells
    last = run.metrics[-1]
    assert last["tokens_per_second"] * last["seconds_training"] == pytest.approx(real)
    for entry in spec.silos:
        split = open_shard(Path(run.job.shards), entry, spec)["test"]
        x, y = torch.tensor(split.x).long(), torch.tensor(split.y).long()
        assert (y == -100).any()
        for tokens, targets in zip(x, y, strict=True):
            length = int((targets != -100).sum())
            with torch.no_grad():
                logits = module.model(input_ids=tokens[None, :length]).logits[0]
            total += float(F.cross_entropy(logits, targets[:length], reduction="sum"))
            count += length
    assert run.metrics[-1]["silo_perplexity_pooled"] == pytest.approx(np.exp(total / count), rel=1e-5)
    evaluate_silos(run.folder, file=tmp_path / "found.json")
    told = json.loads((tmp_path / "found.json").read_text())["pooled"]
    assert told["loss"] == pytest.approx(total / count, rel=1e-5), "of tokens, and not of texts"


def test_peft_opens_what_is_exported_and_generates_from_it(run, base, tmp_path):
    mpifl.Run.of(run.folder).model().save_pretrained(tmp_path / "adapters")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        p.name for p in (tmp_path / "adapters").iterdir()
    }
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    prompt = torch.tensor([list(b"so it ")])
    before = plain(input_ids=prompt).logits.detach()
    opened = peft.PeftModel.from_pretrained(plain, tmp_path / "adapters").eval()
    own = run.model().eval()(prompt).detach()
    assert same_bits(opened(input_ids=prompt).logits.movedim(-1, 1).detach(), own)
    assert not torch.allclose(own.movedim(1, -1), before)
    told = opened.generate(input_ids=prompt, max_new_tokens=4, do_sample=False, min_new_tokens=4)
    assert told.shape == (1, 10)
    (tmp_path / "prompts.txt").write_text("so it \n")
    words = ["generate", run.folder, "--prompts", tmp_path / "prompts.txt", "--length"]
    said = CliRunner().invoke(app, [*map(str, words), "4"]).output
    assert said == bytes(token for token in told[0].tolist() if token < 256).decode(errors="replace") + "\n\n"
    drawn = [CliRunner().invoke(app, [*map(str, words), "10", "--seed", seed]).output for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    (tmp_path / "prompts.txt").write_text("so\nso it \n")
    refused = CliRunner().invoke(app, [*map(str, words), "11"])
    assert not refused.output
    assert "line 2: 6 tokens and 11 more are beyond the model's 16 positions; shorten it, or give" in str(
        refused.exception
    )


def test_a_training_begins_from_adapters_that_peft_has_written(run, base, tmp_path):
    table = run.job.model.model_copy(update={"weights": str(tmp_path / "adapter_model.safetensors")})
    run.model().save_pretrained(tmp_path)
    fresh = built(base, lora=LORA)
    assert load_initial(fresh, table) == ""
    with pytest.raises(InputError, match=r"is a folder; name its file, .*/adapter_model\.safetensors"):
        load_initial(fresh, table.model_copy(update={"weights": str(tmp_path)}))
    wanted, found = run.model().state_dict(), fresh.state_dict()
    assert all(same_bits(value, found[name]) for name, value in wanted.items())
    with pytest.raises(InputError, match=r"of another model: .*; adapters need their \[model\] lora"):
        load_initial(built(base), table)
    told = r"has lora_alpha = 4, \[model\] lora has 8; give both the same"
    with pytest.raises(InputError, match=told):
        load_initial(built(base, lora={**LORA, "lora_alpha": 8}), table)
    of_run = table.model_copy(update={"weights": str(run.folder / "model.safetensors")})
    assert load_initial(built(base, lora=LORA), of_run) == ""
    others = ({"lora_alpha": 8}, "lora_alpha = 4, .* has 8"), ({"use_rslora": True}, "use_rslora = false")
    for own, said in others:
        with pytest.raises(InputError, match=f"job.toml beside it has {said}"):
            load_initial(built(base, lora={**LORA, **own}), of_run)
    first, other = (
        models.build(
            "hf-classifier", {"path": str(base), "lora": LORA}, NAMED, 3, seed, TASKS["classification"]()
        )
        for seed in (0, 1)
    )
    first.save_pretrained(tmp_path / "classes")
    of_classes = {"weights": str(tmp_path / "classes" / "adapter_model.safetensors")}
    assert load_initial(other, table.model_copy(update=of_classes)) == ""
    heads = [
        value for module in (first, other) for k, value in module.state_dict().items() if "save.default" in k
    ]
    assert len(heads) == 2
    assert same_bits(*heads)
    kept = load_file(table.weights)
    kept.popitem()
    save_file(kept, table.weights)
    with pytest.raises(InputError, match=r"has no model\.base_model.*; \[model\] strict = false"):
        load_initial(fresh, table)


def test_frozen_weights_lie_in_the_file_and_writing_changes_no_one_elses(run, base):
    content = (base / "model.safetensors").read_bytes()
    weight = run.model().model.get_base_model().transformer.h[1].mlp.c_fc.weight
    assert mapping_of(weight)[1] == "rw-p", "private: pages are one for all ranks until somebody writes"
    assert mapping_of(weight)[-1] == str(base / "model.safetensors")
    with torch.no_grad():
        weight.zero_()
    assert (base / "model.safetensors").read_bytes() == content
    assert run.model().model.get_base_model().transformer.h[1].mlp.c_fc.weight.any()


def test_a_run_that_is_not_finished_has_no_model(run, tmp_path):
    job = {**run.job.model_dump(mode="json", exclude_none=True), "rounds": 3}
    stopped = mpifl.train(job, out=tmp_path / "run", on_round=lambda record: True)
    assert not stopped.finished
    opened = mpifl.Run.of(tmp_path / "run")
    assert not opened.finished
    assert opened.job == stopped.job
    with pytest.raises(InputError, match="the training is not finished"):
        opened.model()
    with pytest.raises(InputError, match=r"job\.toml"):
        mpifl.Run.of(tmp_path / "nothing")


def built(base, name="hf-causal", features=TEXT, classes=TOKENS, task=LANGUAGE, **more):
    return models.build(name, {"path": str(base), **more}, features, classes, 0, task)


def test_without_adapters_every_parameter_is_trained(base):
    module = built(base)
    assert all(p.requires_grad for p in module.parameters())
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in gpt2().parameters())


def test_a_padded_vocabulary_answers_for_the_tokens_that_there_are(base):
    tokens = torch.arange(6)[None]
    whole = built(base).eval()(tokens)
    assert torch.equal(built(base, classes=200).eval()(tokens), whole[:, :200])
    with pytest.raises(InputError, match=r"shape \[2, 257, 16\], not \[2, 300\]"):
        built(base, classes=300)


def test_inputs_come_by_their_names(base):
    module = built(base, features=NAMED, lora=LORA).eval()
    tokens, mask = torch.arange(8).view(2, 4), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    masked = module(input_ids=tokens, attention_mask=mask)
    assert torch.allclose(masked[0], module(tokens)[0], atol=1e-6)
    assert not torch.allclose(masked[1], module(tokens)[1], atol=1e-6)


def test_a_classifier_trains_its_last_layer_beside_the_adapters(base):
    task = TASKS["classification"]()
    module = built(base, "hf-classifier", NAMED, 3, task, lora=LORA)
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    assert {name.split(".")[-3] for name in trained} == {"lora_A", "lora_B", "modules_to_save"}
    assert module(input_ids=torch.ones(5, 4).long(), attention_mask=torch.ones(5, 4)).shape == (5, 3)
    again = built(base, "hf-classifier", NAMED, 3, task, lora=LORA)
    assert all(map(torch.equal, module.parameters(), again.parameters())), "drawn from the seed"


WRONG = {
    "a name on the hub": ({"path": "gpt2-of-nobody"}, "no such folder; name one with config.json"),
    "a file": ({"path": "torn/config.json"}, "path = 'torn/config.json': is a file; name its folder, 'torn'"),
    "adapters": ({"path": "peft"}, "name the base model's folder, and [model] weights = 'peft/adapter_model"),
    "an empty folder": ({"path": "empty"}, "path = 'empty': cannot be read"),
    "a pickle": ({"path": "pickled"}, "path = 'pickled': cannot be read"),
    "half of the weights": ({"path": "half"}, "weights, such as transformer.h.0"),
    "a torn file": ({"path": "torn"}, "path = 'torn': cannot be read"),
    "a key of another name": ({"lora": {"rank": 8}}, "[model] lora has no key 'rank'; did you mean 'r'"),
    "a key that peft lacks": (
        {"lora": {"beta": 8}},
        "[model] lora has no key 'beta'; peft takes r, lora_alpha",
    ),
    "targets that there are not": (
        {"lora": {"target_modules": ["c_attn", "query"]}},
        "[model] lora target_modules = ['query']: the model has no layer of that name; its linear layers are",
    ),
    "a target by a text": (
        {"lora": {"target_modules": "c_attn"}},
        "the model has no layer of that name; a text is a pattern of whole names, write ['c_attn']; its",
    ),
    "longer texts": ({}, "texts of 17 tokens are beyond the model's 16 positions; cut them by --length 16"),
}


@pytest.fixture
def folders(base, tmp_path, monkeypatch):
    """Folders that are no model, where the test runs."""
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "pickled", "half", "torn", "peft"):
        (tmp_path / name).mkdir()
    (tmp_path / "peft" / "adapter_model.safetensors").write_bytes(b"")
    for name in ("pickled", "half", "torn"):
        (tmp_path / name / "config.json").write_bytes((base / "config.json").read_bytes())
    weights = load_file(base / "model.safetensors")
    torch.save(weights, "pickled/pytorch_model.bin")
    kept = {name: value for name, value in weights.items() if "h.0." not in name}
    transformers.modeling_utils.safe_save_file(kept, "half/model.safetensors", {"format": "pt"})
    (tmp_path / "torn" / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:999])


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_no_model_or_no_adapter_is_one_line(base, folders, mistake):
    arguments, reason = WRONG[mistake]
    length = 17 if mistake == "longer texts" else 16
    with pytest.raises(InputError) as refused:
        built(**{"base": base, "features": Features(shape=(length,), dtype="int16"), **named(arguments)})
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_texts_beyond_rotary_positions_are_refused_though_they_compute(tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(**sizes, vocab_size=TOKENS, max_position_embeddings=16)
    with torch.random.fork_rng(devices=[]):
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    built(tmp_path)
    with pytest.raises(InputError, match=r"texts of 17 tokens are beyond the model's 16 positions"):
        built(tmp_path, features=Features(shape=(17,), dtype="int16"))


def test_a_folder_with_other_classes_says_how_many_there_are_and_what_would_do(tmp_path):
    task = TASKS["classification"]()
    gpt2("GPT2ForSequenceClassification", num_labels=4).save_pretrained(tmp_path)
    shapes = r"score.weight has shape \[4, 8\], and \[3, 8\] is needed"
    wanted = f"{shapes}; save it with num_labels = 3, or without its last layer"
    with pytest.raises(InputError, match=wanted):
        built(tmp_path, "hf-classifier", NAMED, 3, task)
    built(tmp_path, "hf-classifier", NAMED, 4, task)
    whole = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(whole | {"n_positions": 99}))
    with pytest.raises(InputError, match=r"transformer.wpe.weight has shape .* is needed$"):
        built(tmp_path, "hf-classifier", NAMED, 4, task)


@pytest.mark.parametrize("targets", [["c_attn"], ["c_attn", "lm_head"], ["wte"], None])
def test_an_exported_folder_opens_without_mpifl(run, base, tmp_path, targets):
    job = read_job(run.folder / "job.toml", ()).model_dump(mode="json", exclude_none=True)
    job["model"] |= {"lora": LORA | {"target_modules": targets}} if targets else {"lora": None, "save": "all"}
    job["model"] = {key: value for key, value in job["model"].items() if value is not None}
    made = mpifl.train(job | {"rounds": 1}, out=tmp_path / "run")
    out = tmp_path / "out"
    told = CliRunner().invoke(app, ["export", str(made.folder), str(out)], catch_exceptions=False)
    assert (
        f"exported: {out}, for transformers.GPT2LMHeadModel; no tokenizer, since tokens are bytes"
        in told.output
    )
    opened = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    prompt = torch.tensor([list(b"so it ")])
    own = made.model().eval()(prompt).movedim(1, -1)
    torch.testing.assert_close(opened(input_ids=prompt).logits, own, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(own, gpt2().eval()(input_ids=prompt).logits, atol=1e-5)
    tied = targets in (["c_attn"], None)
    names = load_file(out / "model.safetensors")
    assert ("lm_head.weight" not in names) is tied, "tied weights are there once"
    config = json.loads((out / "config.json").read_text())
    first = json.loads((base / "config.json").read_text())
    assert {key for key in first if config.get(key) != first[key]} == (
        set() if tied else {"tie_word_embeddings"}
    )
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_an_export_has_the_tokenizer_of_the_training_and_overwrites_nothing(run, base, tmp_path):
    library = pytest.importorskip("tokenizers")
    shutil.copytree(base, model := tmp_path / "gpt2")
    made = library.Tokenizer(library.models.WordLevel({"[UNK]": 0, "so": 1, "it": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(model)
    (tmp_path / "texts.jsonl").write_text('{"text": "so it so it"}\n' * 8)
    cut = ["partition", "jsonl", "--data", tmp_path / "texts.jsonl", "--out", tmp_path / "shards"]
    more = ["--scheme", "iid", "--silos", 2, "--tokenizer", model, "--length", 8]
    data_prep([*map(str, (*cut, *more))], standalone_mode=False)
    job = read_job(run.folder / "job.toml", ()).model_dump(mode="json", exclude_none=True)
    job |= {"rounds": 1, "shards": str(tmp_path / "shards")}
    other = {"name": "hf-causal", "path": str(model)}
    whole = mpifl.train(job | {"model": other}, out=tmp_path / "run").folder
    out = tmp_path / "out"
    assert export(whole, out).endswith(f"exported: {out}, for transformers.GPT2LMHeadModel\n")
    assert len({one.stat().st_mode for one in out.iterdir()}) == 1, "whoever reads one file reads all"
    assert transformers.AutoTokenizer.from_pretrained(out)("it so")["input_ids"] == [2, 1]
    assert export(whole, out) == f"{out}: is there already; name a new folder"
    assert "has no adapters; leave --adapters out" in export(whole, tmp_path / "more", "--adapters")
    (model / "tokenizer.json").write_text((model / "tokenizer.json").read_text() + " ")
    assert "is another than that of the training; name its own" in export(whole, tmp_path / "more")
    assert f"{run.folder} has learned from bytes" in export(
        run.folder, tmp_path / "more", "--tokenizer", model
    )
    assert "for peft.PeftModel" in export(run.folder, tmp_path / "more", "--adapters")
    assert {one.name for one in tmp_path.joinpath("more").iterdir()} >= {"adapter_model.safetensors"}
    plain, _ = make_run(tmp_path / "plain")
    assert "is no model of transformers; model.safetensors in the run folder" in export(
        plain, tmp_path / "no"
    )
    assert not (tmp_path / "no").exists()


def export(run, out, *words):
    """Return what `mpifl export` printed, or the line by which it is refused."""
    told = CliRunner().invoke(app, ["export", *map(str, (run, out, *words))])
    return str(told.exception) if told.exception else told.output


def named(arguments):
    return {"base" if key == "path" else key: value for key, value in arguments.items()}


def test_without_the_library_a_line_says_what_to_install(base, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"needs transformers; pip install 'mpifl\[hf\]'"):
        built(base)


def test_a_model_that_was_trained_whole_is_exported_whole(base, tmp_path):
    built(base).save_pretrained(tmp_path / "whole")
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    assert all(map(torch.equal, opened.parameters(), gpt2().parameters()))
    prompt = torch.tensor([list(b"so it ")])
    assert opened.generate(input_ids=prompt, max_new_tokens=2, min_new_tokens=2, do_sample=False).shape == (
        1,
        8,
    )
