"""Whatever a checkpoint or a run folder says: it is used, passed over,
or refused in one line, never a traceback."""

import os
import shutil

import pytest
import tomli_w
import torch
from unit.builders import Alone, write_folder
from unit.run.mutations import mutate_checkpoint, mutate_run

from mpifl.common.errors import InputError, RoundLost
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs, show_run
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.metrics_file import encode_record, read_metrics
from mpifl.training.loop import train
from mpifl.wings import wings_of

JOB = {
    "name": "toy", "shards": "shards", "rounds": 3, "model": {"name": "mlp", "hidden": [4]},
    "algorithm": {"name": "scaffold"}, "local": {"lr": 0.05, "batch_size": 4},
    "server_optimizer": {"name": "sgd", "momentum": 0.5}, "checkpoint": {"every": 1, "keep": 3},
    "evaluate": {"target_accuracy": 0.99}, "tracking": {"console": False},
}  # fmt: skip
SEEDS = range(0, 300 if os.environ.get("MPIFL_SLOW") else 40, 20)
"""Each stands for twenty mutations."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with shards, a job, and a run of three rounds."""
    folder = tmp_path_factory.mktemp("trained")
    write_folder(folder / "shards", [6, 5, 7], test=8, valid=4)
    (folder / "job.toml").write_text(tomli_w.dumps({**JOB, "shards": str(folder / "shards")}))
    train(folder / "job.toml", folder / "run", (), False, Alone(), wings_of=wings_of)
    several = {
        "rank_seconds": {"1": {"training": 0.5, "waiting": 0.1}, "2": {"training": 0.4, "waiting": 0.2}}
    }
    records = [{**record, **several, "faults": {"1": "why"}} for record in read_metrics(folder / "run")]
    # as of a run on three ranks
    (folder / "run" / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
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


def refusal(act, *given):
    """Return the line that a user sees of an act, nothing if it went well."""
    try:
        act(*given)
    except (InputError, RoundLost) as error:
        return str(error)
    return ""


def resume(again):
    """Continue with the copy for another round; return the line that a user sees, nothing if it went well."""
    return refusal(train, again.job, again.run, ("rounds=4",), True, Alone())


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
    digest = serialization.write_state(checkpoint.server_file(run, 3), state)
    checkpoint.commit(run, 3, digest, silos)


WRONG = {
    "'w' is not finite": lambda state: state["w"][0].fill_(float("nan")),
    "'c' is not finite": lambda state: state["c"][-1].fill_(float("-inf")),
    "has no 'c'": lambda state: state.pop("c"),
    "'w' is float64 [35], and should be float32 [35]": lambda state: state.update(w=state["w"].double()),
    "'w' is float32 [36], and should be float32 [35]": lambda state: state.update(w=torch.zeros(36)),
    "'w' is float32 [35, 1], and should be float32 [35]": lambda state: state.update(w=state["w"][:, None]),
    "'velocity' is float32 [3], and should be float32 [35]": lambda state: state.update(
        velocity=torch.zeros(3)
    ),
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


READERS = {
    "report": write_report,
    "compare": lambda run: compare_runs(
        [run, run.parent / "run"], 0.5, Output(json=run / "x.json", csv=run / "x.csv")
    ),
    "show": show_run,
    "evaluate": evaluate_run,
}


@pytest.mark.parametrize("first", SEEDS)
def test_a_run_folder_that_says_something_else_is_read_or_refused_in_one_line(again, capfd, first):
    for seed in range(first, first + 20):
        what = again(mutate_run, seed)
        for name, read in READERS.items():
            assert "\n" not in refusal(read, again.run), (what, name)
        if seed % 4 == 0:
            assert "\n" not in resume(again), what
        assert "Traceback" not in capfd.readouterr().err, what


DEEP = "[" * 100_000 + "]" * 100_000
ODD = {
    "metrics.jsonl": [
        DEEP,
        f'{{"round": 4, "test_loss": {"9" * 400}}}',
        '{"round": 4, "rank_seconds": {"x": {}}}',
        '{"round": 4, "rank_seconds": {"1": 3}}',
        '{"round": 4, "test_accuracy": "0.5"}',
        '{"round": 4, "test_accuracy": true}',
        '{"round": 4, "seconds": [1]}',
        f'{{"round": {"9" * 400}}}',
        '{"round": 4, "time": 1e80}',
        '{"round": 4, "note": {"deep": Infinity}}',
    ],
    "environment.json": [
        DEEP,
        '{"data": {"sha256": NaN}}',
        '{"directory": "a\\u0000"}',
        '{"ranks": {"1": []}}',
    ],
    "job.toml": [
        f"x = {DEEP}",
        ".".join(["x"] * 5000) + " = 1",
        'name = "toy"\nshards = "a\\u0000b"',
        f"rounds = {'9' * 400}",
        f"rounds = {'9' * 5000}",
        "rounds = 3\n[evaluate]\ntarget_accuracy = nan",
        "rounds = 3\n[model]\nname = 'mlp'\nslope = inf\nsince = 1979-05-27",
    ],
}


@pytest.mark.parametrize(("name", "content"), [(name, text) for name, texts in ODD.items() for text in texts])
def test_what_no_program_has_to_reckon_with_is_read_or_refused_in_one_line(again, capfd, name, content):
    again(lambda run: (run / name).open("a" if name == "metrics.jsonl" else "w").write(content + "\n"))
    lines = [*(refusal(read, again.run) for read in READERS.values()), resume(again)]
    assert all("\n" not in line and len(line) < 1000 for line in lines)
    assert "Traceback" not in capfd.readouterr().err
