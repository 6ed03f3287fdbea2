"""A model's weights from anybody's file: safetensors are read,
a pickle is not, and a line says how to convert it."""

import pickle
import re
import shlex
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from unit.builders import net, same_bits

from mpifl.common.errors import InputError
from mpifl.run.weights import load_weights


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
    command = re.search(r"is a pickle, which is a program and not run here; convert it: (python .*)$", line)[
        1
    ]
    _, option, program = shlex.split(command)
    assert option == "-c"
    if zipped:
        subprocess.run([sys.executable, option, program], cwd=tmp_path, check=True)
    else:  # of the same words; one start of Python is enough
        monkeypatch.chdir(tmp_path)
        exec(program, {})
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
    assert "cannot be read: Error(s) in loading state_dict" in refused(tmp_path / "other.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"\xff" * 9)
    assert "cannot be read: " in refused(tmp_path / "torn.safetensors")
    assert "is not there; name a .safetensors file" in refused(tmp_path / "none.safetensors")
    assert "cannot be read: Is a directory" in refused(tmp_path)
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert "cannot be read: it is no file" in refused(tmp_path / "zero")
