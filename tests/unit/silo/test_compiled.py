"""The compiled step: equal to the plain one to rounding, made once,
and no step at all where that cannot be."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from unit.builders import (
    FEATURES,
    Keeper,
    batch_norm_net,
    batches,
    cross_entropy,
    net,
    same_bits,
    stream,
    training,
)

from mpifl.data.shards.shards import Features
from mpifl.learning.models.image_models import cnn
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.fast import code_loading, codegen, compiled, cuda_graphs, quickly

IMAGES = Features(shape=(1, 8, 8), dtype="float32")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of this session's own; nothing was told before."""
    folder = tmp_path_factory.getbasetemp() / "compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(compiled, "_TOLD", set())
    return folder / "mpifl"


def trained(settings, model=None, correct=None, features=FEATURES, seed=0, n=23, objective=cross_entropy):
    model = model or FlatModel(net())
    start = torch.linspace(-0.5, 0.5, len(model.trained))
    asked = model, batches(n, features=features), start, LocalTraining(**settings), stream(seed)
    return quickly(training(*asked, objective, correct))


def compare(settings, factory=net, kind=None, **more):
    """Train plainly and compiled, twice on the same model at two learning rates; see that both end alike."""
    plain, fast = FlatModel(factory()), FlatModel(factory())
    vector = torch.linspace(-1, 1, len(plain.trained))
    for lr, scale in ((0.1, 1.0), (0.03, 0.5)):
        correct = {None: None, "constant": Constant(vector * scale), "proximal": Proximal(vector, scale)}[
            kind
        ]
        given = {"batch_size": 5, "epochs": 2, **settings, "lr": lr}
        expected = trained(given, plain, correct, **more)
        found = trained({**given, "compile": True}, fast, correct, **more)
        assert (found.end - expected.end).abs().max() <= 1e-6 * expected.end.abs().max()
        assert found.loss == pytest.approx(expected.loss, rel=1e-6)
        assert (found.steps, found.examples) == (expected.steps, expected.examples)
        assert torch.allclose(fast.statistics.read(), plain.statistics.read(), rtol=1e-5, atol=1e-6)
    [step] = compiled.steps_of(fast).values()
    assert isinstance(step, compiled.CompiledStep), "it was the plain step that ran"
    return fast


@pytest.mark.parametrize(
    ("settings", "factory", "kind"),
    [
        ({"weight_decay": 0.02}, net, None),
        pytest.param(
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02, "drop_last": True},
            batch_norm_net,
            "constant",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"optimizer": "adamw", "weight_decay": 0.1, "epsilon": 1e-3},
            net,
            "proximal",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["decay", "momentum", "adamw"],
)
def test_a_compiled_step_is_the_plain_one_to_a_millionth_odd_batches_in_between(settings, factory, kind):
    model = compare(settings, factory, kind)
    assert not len(model.statistics) or model.statistics.read().abs().max() > 0.5


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"deadline": 60.0},
        pytest.param({"optimizer": "adamw"}, marks=pytest.mark.slow),
    ],
    ids=["sgd", "deadline", "adamw"],
)
def test_steps_that_graphs_take_together_are_those_of_single_ones(settings, monkeypatch):
    """Of 43 examples eight batches make one graph; the ninth, which is smaller, is a plain step behind it."""
    given = {"lr": 0.1, "batch_size": 5, "epochs": 3, "weight_decay": 0.02, "compile": True, **settings}
    model = FlatModel(net())
    single = trained(given, model, n=43)
    [step] = compiled.steps_of(model).values()
    end, played = single.end.clone(), []
    shown = next(batches(43).shuffled(5, stream(0)))

    def recorded(call):
        return lambda: (played.append(call), call())

    monkeypatch.setattr(step, "_graphs", cuda_graphs.Graphs(step._run, step._inputs, shown, recorded))
    together = trained(given, model, n=43)
    assert same_bits(together.end, end)
    assert (together.loss, together.steps, together.examples) == (single.loss, 27, 129)
    assert len(played) == (24 if settings else 3)


@pytest.mark.slow
def test_convolutions_are_compiled_too():
    compare({"batch_size": 10, "epochs": 1}, lambda: cnn((1, 8, 8), 3), features=IMAGES, n=30)


def test_what_lies_in_the_cache_is_loaded_and_gives_the_same_bits(cache, monkeypatch):
    settings = {"lr": 0.1, "batch_size": 5, "weight_decay": 0.02, "compile": True}
    first = trained(settings).delta
    made = {path: path.stat().st_mtime_ns for path in cache.glob("*.pt2")}
    assert made
    monkeypatch.setattr(codegen, "_package", lambda *_: pytest.fail("it was compiled again"))
    assert same_bits(trained(settings).delta, first)
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.pt2")} == made


def test_machine_code_that_others_may_have_written_is_made_anew_and_the_compiler_works_in_the_cache(
    cache, monkeypatch, capsys
):
    settings = {"lr": 0.1, "batch_size": 5, "weight_decay": 0.02, "compile": True}
    first = trained(settings).delta
    capsys.readouterr()
    assert any((cache / "inductor").iterdir())
    packages, again = {path.stem: path.read_bytes() for path in cache.glob("*.pt2")}, []
    for name in packages:
        (cache / f"{name}.pt2").write_bytes(b"planted")
        (cache / f"{name}.pt2").chmod(0o666)

    def packaged(graph, inputs, pieces):
        """Hand out what the compiler made before: it takes long."""
        again.append(codegen._digest(graph, inputs, inputs[0].device))
        return packages[again[-1]]

    monkeypatch.setattr(codegen, "_package", packaged)
    assert same_bits(trained(settings).delta, first)
    assert len(again) == 1
    (waited_for,) = capsys.readouterr().err.splitlines()
    assert f"compiling the local step (10 to 20 s), kept in {cache}" in waited_for


def test_code_that_ends_its_process_is_tried_in_another_and_the_plain_step_runs(
    cache, tmp_path, monkeypatch, capsys
):
    """As where a compiler brings a library of its own, which the process has in another version."""
    settings = {"lr": 0.1, "batch_size": 5, "weight_decay": 0.02}
    trained({**settings, "compile": True})
    package = next(cache.glob("*.pt2")).read_bytes()
    monkeypatch.setattr(codegen, "_package", lambda *_: package)
    monkeypatch.setattr(code_loading, "PROGRAM", tmp_path / "dies.py")
    code_loading.PROGRAM.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    capsys.readouterr()
    assert same_bits(trained({**settings, "compile": True}).delta, trained(settings).delta)
    said = capsys.readouterr().err
    assert "makes code that crashes with SIGSEGV; name another compiler by CXX" in said
    assert "the plain step runs instead" in said
    assert not list((tmp_path / "mpifl").glob("*.pt2"))


def test_a_trial_that_could_not_be_made_is_not_remembered_as_one(cache, tmp_path, monkeypatch):
    """As on a GPU that is for one process alone. One that was made is remembered of its compiler."""
    settings = {"lr": 0.1, "batch_size": 5, "weight_decay": 0.02, "compile": True}
    trained(settings)
    package, made = next(cache.glob("*.pt2")).read_bytes(), []
    monkeypatch.setattr(codegen, "_package", lambda *_: package)
    for ends in (1, 0):
        folder = tmp_path / str(ends)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        program = tmp_path / f"ends{ends}.py"
        program.write_text(f"raise SystemExit({ends})\n")
        monkeypatch.setattr(code_loading, "PROGRAM", program)
        trained(settings)
        made.append(len([*folder.glob("mpifl/compiler-*")]))
    assert made == [0, 1]


def test_machine_code_of_other_constants_has_another_name():
    def digest(constant):
        def step(x):
            x.mul_(torch.tensor([1.0, constant]))
            return ()

        inputs = [torch.ones(3, 2)]
        return codegen._digest(codegen.trace(step, inputs), inputs, torch.device("cpu"))

    assert digest(2.0) == digest(2.0)
    assert digest(2.0) != digest(3.0)


@pytest.mark.slow  # the same of several silos at once is quick
def test_what_a_model_keeps_of_its_first_pass_is_none_of_the_trace():
    keeping = compare({}, lambda: net(Keeper()), n=25)  # no plain step came before
    assert keeping.module(torch.ones(2, 4)).isfinite().all()


def looks_inside(module, x, y):
    return cross_entropy(module, x, y) * (2.0 if float(x.sum()) > 0 else 1.0)


@pytest.mark.parametrize(
    ("settings", "more", "reason"),
    [
        ({}, {"model": lambda: net(nn.Dropout(0.5))}, "draws random numbers"),
        ({}, {"objective": looks_inside}, "cannot be traced"),
        (
            {},
            {"objective": lambda module, x, y: cross_entropy(module, x, y)},
            "neither a function of a module",
        ),
        ({}, {"correct": lambda gradient, at, batch: gradient.mul_(0.5)}, "a function of its own"),
        ({"batch_size": "full"}, {}, "another shape"),
    ],
    ids=["dropout", "control flow", "lambda", "correction", "full"],
)
def test_what_cannot_be_compiled_runs_plainly_and_is_told_once(settings, more, reason, capsys):
    model = FlatModel(more.pop("model", net)())
    settings = {"lr": 0.1, "batch_size": 5, **settings}
    for _ in range(2):
        found = trained({**settings, "compile": True}, model, **more)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert reason in told
    torch.manual_seed(0)
    if "random" not in reason:
        assert same_bits(found.delta, trained(settings, **more).delta)


def test_without_a_compiler_the_plain_step_runs_and_one_line_says_so(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("/nonexistent/c++",))
    settings = {"lr": 0.1, "batch_size": 4}
    found = trained({**settings, "compile": True})
    told = [line for line in capfd.readouterr().err.splitlines() if "compile = true" in line]
    assert len(told) == 1
    assert "cannot compile" in told[0]
    assert same_bits(found.delta, trained(settings).delta)


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"optimizer": "adam"}], ids=["sgd", "momentum", "adam"]
)
def test_machine_code_that_does_something_else_is_not_run(settings, monkeypatch, capsys):
    monkeypatch.setattr(compiled, "compile_graph", lambda graph, inputs, device: lambda given: graph(*given))
    model, settings = FlatModel(net()), {"lr": 0.1, "batch_size": 5, **settings}
    trained({**settings, "compile": True}, model)
    assert not capsys.readouterr().err
    assert list(compiled.steps_of(model).values()) != [None]

    def halved(graph, inputs, device):
        # the first layer's, and its state's
        weights = [i for i, tensor in enumerate(inputs) if tensor.shape == (5, 4)]

        def run(given):
            before = [given[i].clone() for i in weights]
            graph(*given)
            for i, old in zip(weights, before, strict=True):
                given[i].lerp_(old, 0.5)

        return run

    monkeypatch.setattr(compiled, "compile_graph", halved)
    found = trained({**settings, "compile": True})
    assert "made another step of it; the plain step runs instead" in capsys.readouterr().err
    assert same_bits(found.delta, trained(settings).delta)


MOMENTUM, ADAM = {"momentum": 0.9}, {"optimizer": "adam"}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("settings", "name", "wrong"),
    [
        ({"weight_decay": 0.1}, "trained", lambda old, new: new - 0.05 * old),
        (MOMENTUM, "trained", lambda old, new: new + 0.3 * (new - old)),
        (MOMENTUM, "state 0", lambda old, new: new + 0.9 * old),
        (ADAM, "state 0", lambda old, new: new - 0.5 * old),
        (ADAM, "state 1", lambda old, new: old + 2 * (new - old)),
        (ADAM, "trained", lambda old, new: old + 2 * (new - old)),
        (ADAMW, "trained", lambda old, new: new - 0.45 * old),
        (ADAMW, "trained", lambda old, new: new + 0.05 * old),
        ({}, "rest", lambda old, new: old.lerp(new, 0.5)),
        (ADAM, "total", lambda old, new: old + 1.5 * (new - old)),
    ],
    ids=[
        "decay",
        "step",
        "velocity",
        "first",
        "second",
        "adam",
        "decay of 1",
        "no decay",
        "statistics",
        "total",
    ],
)
def test_machine_code_that_is_wrong_in_one_place_is_not_run(settings, name, wrong, monkeypatch, capsys):
    model, groups = FlatModel(batch_norm_net()), {}

    def mistaken(graph, inputs, device):
        def run(given):
            old = [tensor.clone() for tensor in given]
            graph(*given)
            at = 0
            for group, tensors in groups.items():
                for i in range(at, at + len(tensors)):
                    if group == name and given[i].is_floating_point():
                        given[i].copy_(wrong(old[i], given[i]))
                at += len(tensors)

        return run

    whole = compiled.CompiledStep._groups
    monkeypatch.setattr(compiled, "compile_graph", mistaken)
    monkeypatch.setattr(
        compiled.CompiledStep,
        "_groups",
        lambda self, model: groups.update(whole(self, model)) or dict(groups),
    )
    trained({"lr": 0.1, "batch_size": 5, **settings, "compile": True}, model)
    assert "made another step of it" in capsys.readouterr().err


def test_machine_code_that_cannot_be_run_is_not_run_again(monkeypatch, capsys):
    def broken(graph, inputs, device):
        def run(given):
            raise RuntimeError("isIntList() INTERNAL ASSERT FAILED")

        return run

    monkeypatch.setattr(compiled, "compile_graph", broken)
    settings = {"lr": 0.1, "batch_size": 5}
    found = trained({**settings, "compile": True})
    assert "cannot be run (RuntimeError); the plain step runs instead" in capsys.readouterr().err
    assert same_bits(found.delta, trained(settings).delta)


def test_a_rank_that_is_not_to_speak_says_nothing(capsys):
    model = FlatModel(net(), is_reporter=False)
    trained({"lr": 0.1, "batch_size": "full", "compile": True}, model)
    assert not capsys.readouterr().err


def test_bfloat16_rounds_the_passes_and_leaves_the_parameters_float32():
    exact, rounded = (trained({"lr": 0.1, "batch_size": 5, "precision": p}) for p in ("fp32", "bf16"))
    assert rounded.end.dtype == torch.float32
    assert 0 < (rounded.end - exact.end).abs().max() < 0.05


def test_an_older_pytorch_is_asked_what_it_takes(monkeypatch):
    """2.6 loads a path and no more; scripts/versions.sh tries it. On which GPU, 2.8 is the first to hear."""
    package = SimpleNamespace(loader=SimpleNamespace(run=len))
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda path: package)
    assert code_loading.load(Path("step.pt2"), torch.device("cpu")) is len
    with pytest.raises(code_loading.NotLoaded, match=r"on a GPU this needs PyTorch 2\.8"):
        code_loading.load(Path("step.pt2"), torch.device("cuda", 1))
