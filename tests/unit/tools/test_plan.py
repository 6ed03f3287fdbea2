"""What a plan says before a job is trained, held against what the training moves."""

import json
import os
import shutil

import pytest
import tomli_w
from unit.builders import Alone, write_folder

from mpifl.cli.job_commands import submit
from mpifl.cli.plan import played_rounds
from mpifl.cli.plan.asked_plan import asked_by
from mpifl.cli.plan.bill import bill_of, show_bill
from mpifl.cli.plan.planned_job import planned, show_plan
from mpifl.cli.plan.played_rounds import play
from mpifl.cli.plan.target_costs import until_target
from mpifl.common.errors import InputError, RoundLost
from mpifl.common.toml import tables
from mpifl.run.job.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.jobs_at_random.draw import Draws, cells
from scripts.jobs_at_random.federations import make

JOBS, LONGEST = 20 if os.environ.get("MPIFL_SLOW") else 3, 48
"""How many jobs are compared; the most bytes by which digits make a state's file shorter than planned."""


def records_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def files(run):
    """Return the bytes of the server's file of the last checkpoint, and of each silo's."""
    last = max((run / "checkpoints").iterdir())
    silos = {int(one.stem[5:]): one.stat().st_size for one in last.glob("silo_*")}
    return (last / "server.safetensors").stat().st_size, silos


def test_the_bytes_of_a_plan_are_those_of_the_training(tmp_path, monkeypatch):
    """Jobs are drawn over all keys; what is refused, loses a silo or goes by chance does not count. What
    trains is planned, but for split networks."""
    draws = Draws(11, cells(), lambda kind, number: make(kind, number, tmp_path))
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    compared = number = 0
    while compared < JOBS:
        path, run = tmp_path / f"{number}.toml", tmp_path / f"run-{number}"
        path.write_text(tomli_w.dumps(draws.job(number)[0]))
        number += 1
        try:
            train(path, run, (), False, Alone(), wings_of=wings_of)
        except (InputError, RoundLost):
            continue
        if (job := read_job(path)).split is not None:
            continue
        found = play(job)
        records = records_of(run)
        if found.at_most or found.unknown or any(one["faults"] or "attempts_lost" in one for one in records):
            continue
        moved = [(one["bytes_sent"], one["bytes_received"], one["bytes_of_silo_max"]) for one in records]
        told = [(one.sent, one.received, one.of_silo_max) for one in found.rounds]
        assert moved == told[: len(moved)], path.read_text()
        compared += 1
        if len(told) == len(moved) and (run / "checkpoints").exists():
            server, silos = files(run)
            assert 0 <= found.server_state - server <= LONGEST, path.read_text()
            assert found.silo_states.keys() == silos.keys()
            assert all(0 <= found.silo_states[k] - size <= LONGEST for k, size in silos.items())


def test_a_plan_counts_the_most_digits_that_a_digest_can_have():
    """Most digests in a private run's state have 15 digits, some fewer. The plan was short by its own."""
    most = played_rounds._longest({"privacy key": (1 << 48) - 1, "privacy events": 3})
    assert most == played_rounds._longest({"privacy key": 19_529_800_691_169, "privacy events": 3})
    assert most["privacy events"] == 3


@pytest.fixture
def measured(tmp_path):
    """A job of three silos, and a profile of it that has seen three ranks on one node."""
    write_folder(tmp_path / "shards", [20, 30, 45])
    table = {"name": "toy", "rounds": 3, "seed": 1, "shards": str(tmp_path / "shards")}
    table |= {"model": {"name": "mlp", "hidden": [4]}, "local": {"lr": 0.1, "batch_size": 10, "epochs": 2}}
    table |= {"evaluate": {"every": 2}, "checkpoint": {"every": 2}}
    job, profile = tmp_path / "toy.toml", tmp_path / "toy.profile"
    job.write_text(tomli_w.dumps(table))
    seen = {
        "ranks": 3,
        "nodes": 1,
        "rounds": 3,
        "start_seconds": 7.0,
        "step_seconds": 0.5,
        "first_seconds": 4.0,
    }
    seen |= {"communication_seconds": 0.5, "server_seconds": 1.5}
    seen |= {"evaluation_seconds": 1.0, "checkpoint_seconds": 3.0, "server_bytes": 300 << 20}
    seen |= {"worker_bytes": 320 << 20, "node_bytes": 1000 << 20}
    told = {"version": 1, "job": read_job(job).model_dump_json(exclude_none=True), "world": [seen]}
    profile.write_text(tomli_w.dumps(told))
    return job, profile


def test_a_forecast_is_of_the_steps_of_the_fullest_worker(measured, tmp_path, capsys):
    """Silos of 20 and 30 rows are one worker's, and take 2 + 3 batches in an epoch; 45 rows take 5."""
    job, profile = measured
    found = planned(job, ("rounds=5",), profile)
    assert found["forecast"]["round_seconds"] == [4.0 + 7.0, *[2.0 + 0.5 * 10] * 4]
    whole = {"start": 7.0, "rounds": 39.0, "evaluations": 3.0, "checkpoints": 9.0}
    assert found["forecast"]["of_it"] == whole
    assert found["forecast"]["sbatch"] == {"time": "0:05:00", "mem": "1300M"}, "58 s and the margins"
    show_plan(found)
    assert "a round 7 to 11 s, in all 58.0 s" in capsys.readouterr().out
    show_plan(planned(job))
    assert "time and memory: not measured" in capsys.readouterr().out
    (tmp_path / "plan.json").write_text(json.dumps(found))
    for plan in (profile, tmp_path / "plan.json"):
        submit(job, set_=["rounds=5"], plan=plan, launcher="srun", dry_run=True, out=tmp_path / "run")
        text = capsys.readouterr().out
        assert "#SBATCH --time=0:05:00\n#SBATCH --mem=1300M\n" in text
        assert "--ntasks=3 " in text
    submit(job, mem="2G", plan=profile, launcher="srun", dry_run=True, out=tmp_path / "run")
    assert "#SBATCH --mem=2G\n" in capsys.readouterr().out, "what is given counts"


@pytest.mark.parametrize(
    ("change", "asked", "why"),
    [
        ({}, {"ranks": 5}, "--ranks 5: PROFILE has measured 3 ranks on 1 node; give one of these"),
        ({}, {"nodes": 2}, "--nodes 2: PROFILE has measured 3 ranks on 1 node; give one of these"),
        ({}, {"overrides": ("model.hidden=[5]",)}, "PROFILE: was measured with another model.hidden;"),
        ({"step_seconds": -1.0}, {}, "PROFILE: world.0.step_seconds = -1.0: Input should be greater"),
        ({"worker_bytes": 0}, {}, "PROFILE: world.0.worker_bytes = 0: Input should be greater"),
        ({"ranks": "3"}, {}, "PROFILE: world.0.ranks = '3': Input should be a valid integer"),
        ({"step_seconds": float("nan")}, {}, "PROFILE: world.0.step_seconds = nan: Input should be "),
        ({"nodes": 4}, {}, "PROFILE: world.0: nodes = 4: is more than ranks = 3; measure by"),
        ({"ranks": 10**7}, {}, "PROFILE: world.0.ranks = 10000000: Input should be less than"),
        ({"node_bytes": 1000}, {}, "PROFILE: world.0: node_bytes = 1000: is less than one process of it"),
        ({"start_seconds": float("inf")}, {}, "PROFILE: world.0.start_seconds = inf: Input should be "),
    ],
)
def test_what_a_profile_has_not_seen_is_refused_in_a_line(measured, change, asked, why):
    job, profile = measured
    text = tables(profile)
    text["world"][0] |= change
    profile.write_text(tomli_w.dumps(text))
    with pytest.raises(InputError) as refused:
        planned(job, profile=profile, **asked)
    assert str(refused.value).startswith(why.replace("PROFILE", str(profile)))
    with pytest.raises(InputError, match=r"none\.toml: is not there; measure by mpifl doctor JOB --profile"):
        planned(job, profile=profile.with_name("none.toml"))


def test_a_plan_without_a_profile_or_of_another_job_gives_submit_nothing(measured, tmp_path):
    job, profile = measured
    with pytest.raises(InputError, match=r"^--ranks, --nodes: bytes do not depend on it"):
        planned(job, ranks=3)
    bare, other = tmp_path / "bare.json", tmp_path / "other.json"
    bare.write_text(json.dumps(planned(job)))
    figures = planned(job, profile=profile)
    for plan, why in ((bare, "holds no forecast"), (job, "toml: version: Field required; measure")):
        with pytest.raises(InputError, match=why):
            asked_by(plan, job, (), None, None)
    for wrong in ({"ranks": -5}, {"ranks": True}, {"nodes": 4}, {"sbatch": {"time": "soon", "mem": "1M"}}):
        other.write_text(json.dumps({**figures, "forecast": {**figures["forecast"], **wrong}}))
        with pytest.raises(InputError, match="holds no forecast"):
            asked_by(other, job, (), None, None)
    other.write_text(json.dumps(figures))
    assert asked_by(other, job, ("seed=4", "local.lr=0.3"), None, None)["sbatch"]["mem"] == "1300M"
    for key in ("rounds=3000", "local.batch_size=1"):
        with pytest.raises(InputError, match=f"is of a job with another {key.partition('=')[0]}; plan this"):
            asked_by(other, job, (key,), None, None)
    with pytest.raises(InputError, match=r"^--ranks 4: .* is for 3"):
        asked_by(other, job, (), 4, None)
    with pytest.raises(InputError, match=r"^--plan: is of one job"):
        submit(job, plan=profile, sweep=True)


def test_a_bill_holds_a_run_against_its_plan(measured, tmp_path, capsys):
    job, _ = measured
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    lines, notes = bill_of(tmp_path / "run", None)
    found = {one.what: one for one in lines}
    for what in ("bytes, server to silos", "bytes, silos to server"):
        assert found[what].planned == found[what].found > 0
    assert found["seconds, rounds"].planned is None
    assert any(note.startswith("energy: ") for note in notes)
    metered = [{**one, "joules_processors": 2.5} for one in records_of(tmp_path / "run")]
    (tmp_path / "metered").mkdir()
    shutil.copy(tmp_path / "run" / "job.toml", tmp_path / "metered")
    (tmp_path / "metered" / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in metered))
    more, words = bill_of(tmp_path / "metered", None)
    assert more[-1] == ("joules, processors of the server's machine", None, 7.5)
    assert any(note.startswith("energy: of all that ran on the server's machine") for note in words)
    show_bill(tmp_path / "run", lines, notes)
    assert "not measured" in capsys.readouterr().out
    first, second, third = records_of(tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    for records, why in (
        ([first, third], "rounds are missing"),
        ([first, {**second, "bytes_sent": "many"}], "round 2 is not as mpifl"),
        ([first, {**second, "bytes_received": -5}], "round 2: bytes_received = -5 is not a number"),
        ([first, second, third, {**third, "round": 4}], "has 4 rounds, and its job.toml 3"),
    ):
        metrics.write_text("".join(json.dumps(one) + "\n" for one in records))
        with pytest.raises(InputError, match=why):
            bill_of(tmp_path / "run", None)
    metrics.write_text(json.dumps({**first, "bytes_sent": 0}) + "\n")
    assert next(one for one in bill_of(tmp_path / "run", None)[0]).found == 0, "a round may send nothing"
    metrics.write_text(json.dumps(first) + "\n")
    assert "1 of 3 rounds are done, and billed" in bill_of(tmp_path / "run", None)[1]
    for folder, why in ((tmp_path, "holds no run"), (tmp_path / "run", "no round is done yet")):
        (tmp_path / "run" / "metrics.jsonl").write_text("")
        with pytest.raises(InputError, match=why):
            bill_of(folder, None)


def test_a_plan_tells_what_a_job_takes_to_its_target_by_a_run_that_is_like_it(measured, tmp_path, capsys):
    """The round is the run's, and the bytes and seconds are the plan's up to it."""
    job, profile = measured
    write_folder(tmp_path / "shards", [20, 30, 45], valid=9)
    train(job, tmp_path / "run", ("evaluate.every=1",), False, Alone(), wings_of=wings_of)
    scores = [one["silo_accuracy_pooled"] for one in records_of(tmp_path / "run")]
    round = 1 + next(nth for nth, score in enumerate(scores) if score >= max(scores))
    wanted = (f"evaluate.target_accuracy={max(scores)}", "local.lr=0.2")
    found = planned(job, wanted, profile)
    found["to_target"] = until_target(job, wanted, tmp_path / "run", found)
    told = found["to_target"]
    assert round > 1, "the plan's first round alone would show little"
    assert told["round"] == round
    assert told["bytes_sent"] == sum(one["bytes_sent"] for one in found["rounds"][:round])
    assert told["seconds"] == sum(found["forecast"]["round_seconds"][:round])
    show_plan(found)
    assert f"as in {tmp_path / 'run'}: {round} rounds, " in (out := capsys.readouterr().out)
    assert "that run has another evaluate.every, evaluate.target_accuracy, local.lr" in out
    for overrides, run, why in (
        ((), "run", "the job has no target"),
        (wanted, "none", "none: is not a folder"),
        (("evaluate.target_accuracy=1.0",), "run", "did not reach 1 in 3 rounds; its best was 0"),
        ((*wanted, f"rounds={round - 1}"), "run", f"in round {round}; this job ends with"),
    ):
        with pytest.raises(InputError, match=why):
            until_target(job, overrides, tmp_path / run, found)
