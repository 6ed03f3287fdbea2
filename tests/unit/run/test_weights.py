"""A model's weights from anybody's file: safetensors are read,
a pickle is not, and a line says how to convert it."""

import argparse
import copy
import pickle
import re
import shlex
import subprocess
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner
from unit.builders import net, same_bits

from mpifl.cli import app
from mpifl.common.errors import InputError
from mpifl.run.folder.conversion import convert
from mpifl.run.folder.weights_file import load_initial, load_weights
from mpifl.run.job.tables.job_tables import Model
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.parameters.wrapped_names import unwrapped


def refused(path):
    with pytest.raises(InputError) as error:
        load_weights(net(), path, f"[model] weights = '{path}'")
    assert "\n" not in str(error.value)
    return str(error.value)


class Trap:
    """What a pickle calls when it is loaded."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_not_run_and_the_line_says_how_to_convert_it(tmp_path, monkeypatch, zipped):
    path, model = tmp_path / "start.pt", net(seed=3)
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=zipped)
    line = refused(path)
    monkeypatch.chdir(tmp_path)
    if zipped:
        subprocess.run(command_of(line), check=True)
    else:  # of the same words; one start of Python is enough
        CliRunner().invoke(app, command_of(line)[-2:], catch_exceptions=False)
    load_weights(found := net(seed=4), tmp_path / "start.safetensors", "x")
    assert all(same_bits(value, model.state_dict()[name]) for name, value in found.state_dict().items())


def test_a_pickle_under_another_name_is_not_run_either(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(pickle.dumps(Trap()))
    assert "is a pickle" in refused(tmp_path / "a.safetensors")


def test_a_header_as_long_as_pickles_begin_is_no_pickle(tmp_path):
    """One safetensors file in 32 begins with the byte that pickles begin with: the length of its header."""
    path, model = tmp_path / "a.safetensors", net()
    for length in range(1, 300):
        save_file(model.state_dict(), path, metadata={"padding": "x" * length})
        if path.read_bytes()[0] == 0x80:
            break
    load_weights(found := net(seed=4), path, "x")
    assert all(same_bits(value, model.state_dict()[name]) for name, value in found.state_dict().items())


def test_weights_of_another_model_or_no_model_are_one_line(tmp_path):
    save_file({"0.weight": torch.zeros(2, 2)}, tmp_path / "other.safetensors")
    told = refused(tmp_path / "other.safetensors")
    assert (
        "is of another model: has no 0.bias, 2.weight, 2.bias, 0.weight has shape [2, 2] and not [5, 4]"
        in told
    )
    (tmp_path / "torn.safetensors").write_bytes(b"\xff" * 9)
    assert "cannot be read: " in refused(tmp_path / "torn.safetensors")
    assert "is not there; name a .safetensors file" in refused(tmp_path / "none.safetensors")
    assert "is a folder; name a .safetensors file" in refused(tmp_path)
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert "cannot be read: it is not a file" in refused(tmp_path / "zero")


def saved(path, state):
    save_file({name: value.contiguous().clone() for name, value in state.items()}, path)
    return path


def table(path, **more):
    return Model(name="mlp", weights=str(path), **more)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_names_of_wrappers_are_left_out_at_either_side(tmp_path, prefix):
    wanted = net(seed=3).state_dict()
    path = saved(tmp_path / "a.safetensors", {prefix + name: value for name, value in wanted.items()})
    load_weights(found := net(seed=4), path, "x")
    assert all(same_bits(value, wanted[name]) for name, value in found.state_dict().items())
    load_weights(found := torch.compile(net(seed=4), backend="eager"), path, "x")
    assert all(same_bits(value, wanted[unwrapped(name)]) for name, value in found.state_dict().items())
    plain = saved(tmp_path / "b.safetensors", wanted)
    load_weights(found := torch.nn.DataParallel(net(seed=4)), plain, "x")
    assert all(same_bits(value, wanted[unwrapped(name)]) for name, value in found.state_dict().items())


class Holder(torch.nn.Module):
    """Calls a part of its own as wrappers call theirs."""

    def __init__(self, seed=0):
        super().__init__()
        self.module, self.head = net(seed=seed), net(seed=seed + 1)

    def forward(self, x):
        return self.module(x) + self.head(x)


def test_what_is_saved_has_no_names_of_wrappers(tmp_path):
    wanted = Holder(seed=3)
    wrapped = torch.compile(torch.nn.DataParallel(copy.deepcopy(wanted)), backend="eager")
    wrapped._orig_mod.module.head = torch.compile(wrapped._orig_mod.module.head, backend="eager")
    assert [*FlatModel(wrapped).state_dict()] == [*wanted.state_dict()] == [*FlatModel(Holder()).state_dict()]
    path = saved(tmp_path / "a.safetensors", FlatModel(wrapped).state_dict())
    load_weights(found := Holder(), path, "x")
    assert all(same_bits(value, wanted.state_dict()[name]) for name, value in found.state_dict().items())
    load_weights(wrapped, path, "x")


def test_a_name_that_two_of_a_file_may_be_is_missing(tmp_path):
    state = net(seed=3).state_dict()
    twice = {
        f"{prefix}{name}": value for name, value in state.items() for prefix in ("module.", "_orig_mod.")
    }
    assert "is of another model: has no 0.weight" in refused(saved(tmp_path / "a.safetensors", twice))


def test_strict_is_named_where_it_would_do_and_takes_what_fits(tmp_path):
    state = net(seed=3).state_dict()
    del state["0.bias"]
    state |= {"2.weight": torch.zeros(7, 5), "more": torch.zeros(1)}
    path = saved(tmp_path / "a.safetensors", state)
    left = "has no 0.bias, more not used, 2.weight has shape [7, 5] and not [3, 5]"
    before = net(seed=4)
    with pytest.raises(InputError) as strict:
        load_initial(before, table(path))
    what = f"[model] weights = '{path}'"
    assert str(strict.value) == f"{what}: is of another model: {left}; [model] strict = false takes what fits"
    assert all(same_bits(v, net(seed=4).state_dict()[name]) for name, v in before.state_dict().items())
    found = net(seed=4)
    assert load_initial(found, table(path, strict=False)) == f"{what}: {left}"
    for name, value in found.state_dict().items():
        source = state if name in ("0.weight", "2.bias") else before.state_dict()
        assert same_bits(value, source[name])


def test_adapters_alone_are_a_whole_file_where_only_they_are_saved(tmp_path):
    state, own = net(seed=3).state_dict(), net(seed=4)
    own[0].requires_grad_(False)
    own.tied = own[0]
    state |= {f"tied.{name}": state[f"0.{name}"] for name in ("weight", "bias")}
    adapters = {name: state[name] for name in ("2.weight", "2.bias")}
    path = saved(tmp_path / "a.safetensors", adapters)
    with pytest.raises(
        InputError, match=r"is of another model: has no 0\.weight, 0\.bias, tied\.weight and 1 more; "
    ):
        load_initial(own, table(path))
    own_table = table(path).model_copy(update={"save": "trained"})
    assert load_initial(own, own_table) == ""
    first = net(seed=4).state_dict()
    assert all(
        same_bits(v, (adapters.get(k, first[k.replace("tied", "0")]))) for k, v in own.state_dict().items()
    )
    assert load_initial(own, own_table.model_copy(update={"weights": str(saved(path, state))})) == ""
    del adapters["2.bias"]
    for wrong, line in ((adapters, "has no 2.bias"), ({**state, "more": state["2.bias"]}, "more not used")):
        saved(path, wrong)
        with pytest.raises(InputError, match=rf"is of another model: {line}; "):
            load_initial(own, own_table)


def test_a_file_of_which_nothing_fits_is_none_for_the_model(tmp_path):
    path = saved(tmp_path / "a.safetensors", {"other": torch.zeros(3)})
    with pytest.raises(InputError, match=r"nothing in it fits the model: has no 0\.weight, .*, other not"):
        load_initial(net(), table(path, strict=False))


def command_of(line):
    """The command that a line suggests."""
    told = "is a pickle, which is a program and not run here; convert it: "
    assert told in line
    return shlex.split(line.partition(told)[2])


def converted(path, *more):
    """Run what the line suggests; return what it says."""
    *_, command, given = command_of(refused(path))
    return CliRunner().invoke(app, [command, given, *more], catch_exceptions=False).stdout


@pytest.mark.parametrize("name", ["last.ckpt", "it's a $5 file.pt", 'a "b".pth'])
def test_a_checkpoint_of_a_training_is_converted_by_the_line(tmp_path, name):
    """Weights may lie within it, beside an optimizer, and another model's that has fewer numbers."""
    model = torch.nn.DataParallel(net(seed=3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(2, 4)).sum().backward()
    optimizer.step()
    held = {"epoch": 3, "state": {"model": model.state_dict(), "teacher": {"w": torch.zeros(2)}}}
    torch.save({**held, "optimizer": optimizer.state_dict(), "best": 0.5}, tmp_path / name)
    said = converted(tmp_path / name)
    assert '4 tensors of "state.model"; not taken: state.teacher' in said
    load_weights(found := net(seed=4), (tmp_path / name).with_suffix(".safetensors"), "x")
    assert all(same_bits(v, model.module.state_dict()[key]) for key, v in found.state_dict().items())


class Call:
    """What a pickle calls by a name that torch does not block."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was run')",))


class Settings(dict):
    """Settings as Lightning keeps them: a dict with attributes."""

    def __setstate__(self, state):
        pytest.fail("code of the file was run")


@pytest.mark.parametrize("zipped", [True, False])
def test_settings_beside_the_weights_are_left_out_and_not_run(tmp_path, zipped):
    model, path = net(seed=3), tmp_path / "epoch=3.ckpt"
    own = argparse.Namespace(lr=0.1, inner=argparse.Namespace(w=torch.zeros(99999)))
    held = {"state_dict": model.state_dict(), "hyper_parameters": own, "pytorch-lightning_version": "2.5"}
    if zipped:
        settings = Settings(lr=0.1, path=Path("x"), best=np.float64(0.5), on=torch.device("cpu"))
        settings.more = 1
        held |= {"args": settings, "callbacks": {"Trap": [np.ones(3), {1, 2}, slice(3), datetime.now()]}}
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    assert '4 tensors of "state_dict"\n' in converted(path)
    load_weights(found := net(seed=4), path.with_suffix(".safetensors"), "x")
    assert all(same_bits(v, model.state_dict()[key]) for key, v in found.state_dict().items())


def test_weights_are_taken_by_their_key_and_go_where_they_are_asked_to(tmp_path):
    torch.save({"a": {"w": torch.zeros(2)}, "b": {"w": torch.ones(1)}}, tmp_path / "a.pt")
    said = converted(tmp_path / "a.pt", "--key", "b", "--out", str(tmp_path / "b.safetensors"))
    assert said == f'{tmp_path / "b.safetensors"}: 1 tensors of "b"; not taken: a (--key takes another)\n'


def test_what_cannot_be_converted_is_a_line(tmp_path):
    torch.save(net(), tmp_path / "whole.pt")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    torch.save({"a": {"w": torch.zeros(2)}}, tmp_path / "a.pt")
    torch.save({"a": Call(), "w": {"w": torch.zeros(2)}}, tmp_path / "trap.pt")
    torch.save({"w": torch.zeros(2)}, tmp_path / "same.safetensors")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:200])
    for name, told, *more in (
        ("whole.pt", "a whole module"),
        ("none.pt", "holds no dict of tensors"),
        ("gone.pt", "cannot be read"),
        ("torn.pt", "holds no weights by name"),
        ("same.safetensors", "is the file itself; name another by --out"),
        ("a.pt", "has no weights 'A'; did you mean 'a'?", "A"),
        ("a.pt", "cannot be written", None, tmp_path / "no" / "x.safetensors"),
    ):
        with pytest.raises(InputError, match=re.escape(told)) as error:
            convert(tmp_path / name, *more)
        assert "\n" not in str(error.value)
    assert '1 tensors of "w"' in convert(tmp_path / "trap.pt"), "nothing that it names is called"
