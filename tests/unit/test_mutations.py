"""Whatever a checkpoint or a run folder says: it is used, passed over, or refused in one line, never a traceback."""

import shutil

import pytest
import tomli_w
import torch
from unit.builders import Alone, write_folder
from unit.mutations import mutate_checkpoint

from mpifl import checkpoint
from mpifl.errors import InputError, RoundLost
from mpifl.train import train

JOB = {
    "name": "toy", "shards": "shards", "rounds": 3, "model": {"name": "mlp", "hidden": [4]},
    "algorithm": {"name": "scaffold"}, "local": {"lr": 0.05, "batch_size": 4},
    "server_optimizer": {"name": "sgd", "momentum": 0.5}, "checkpoint": {"every": 1, "keep": 3},
    "evaluate": {"target_accuracy": 0.99}, "tracking": {"console": False},
}  # fmt: skip
SEEDS = range(0, 300, 20)
"""Each stands for twenty mutations."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with shards, a job, and a run of three rounds."""
    folder = tmp_path_factory.mktemp("trained")
    write_folder(folder / "shards", [6, 5, 7], test=8, valid=4)
    (folder / "job.toml").write_text(tomli_w.dumps({**JOB, "shards": str(folder / "shards")}))
    train(folder / "job.toml", folder / "run", (), False, Alone())
    return folder


@pytest.fixture
def again(trained, tmp_path):
    """Return a function that makes a copy of the run, changes it by a seed, and says what was changed."""

    def act(mutate, *given):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(trained / "run", tmp_path / "run")
        return mutate(tmp_path / "run", *given)

    act.run, act.job = tmp_path / "run", trained / "job.toml"
    return act


def resume(again):
    """Go on with the copy for another round; return what is wrong with it, nothing if it ended well."""
    try:
        train(again.job, again.run, ("rounds=4",), True, Alone())
    except (InputError, RoundLost) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("first", SEEDS)
def test_a_checkpoint_whose_hashes_agree_and_whose_content_does_not_is_passed_over(again, capfd, first):
    for seed in range(first, first + 20):
        what = again(mutate_checkpoint, 3, seed)
        problem = resume(again)
        assert "Traceback" not in capfd.readouterr().err, what
        assert "\n" not in problem, what


def reread(run, change):
    """Have the server's state of round 3 be another; all hashes agree with it."""
    state, silos = checkpoint.read(run, 3)
    change(state)
    digest = checkpoint.write_state(checkpoint.server_file(run, 3), state)
    checkpoint.commit(run, 3, digest, silos)


WRONG = {
    "'w' is not finite": lambda state: state["w"][0].fill_(float("nan")),
    "'c' is not finite": lambda state: state["c"][-1].fill_(float("-inf")),
    "has no 'c'": lambda state: state.pop("c"),
    "'w' is float64 [35], and should be float32 [35]": lambda state: state.update(w=state["w"].double()),
    "'w' is float32 [36], and should be float32 [35]": lambda state: state.update(w=torch.zeros(36)),
    "'w' is float32 [35, 1], and should be float32 [35]": lambda state: state.update(w=state["w"][:, None]),
    "'velocity' is float32 [3], and should be float32 [35]": lambda state: state.update(velocity=torch.zeros(3)),
    "'c' is a number, and should be float32 [35]": lambda state: state.update(c=0.5),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_state_that_the_training_cannot_have_had_is_named_and_the_one_before_used(again, capfd, wrong):
    again(reread, WRONG[wrong])
    assert resume(again) == ""
    told = capfd.readouterr().err
    assert f"round_000003/server.safetensors: {wrong}; using the checkpoint before it" in told
    assert checkpoint.read(again.run, 4)


def test_what_is_altered_not_at_all_goes_on_where_it_was(again, capfd):
    again(reread, lambda state: None)
    assert resume(again) == ""
    assert "checkpoint before it" not in capfd.readouterr().err
