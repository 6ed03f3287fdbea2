"""What the fault tests share: jobs, runs on one rank that nothing troubled,
and many commands in one world."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from faults.processes import HERE, Command, train
from scenarios import job
from vertical import split

Commands = Mapping[str, Sequence[str]]
Batch = Callable[[int, Commands], list[dict[str, Any]]]
CHOICE = ("--set", "cohort.select=power-of-choice", "--set", "cohort.candidates=6")
"""What has the job `steady` choose a round's silos by their last losses, which the server keeps."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not Path("/proc/self/stat").exists():
            item.add_marker(pytest.mark.skip(reason="finds its processes in /proc"))


@pytest.fixture(scope="session")
def yard(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a TOML file for each job: steady, timed (which is steady with a clock), plain, uneven,
    split, fedasync, fedbuff and fedcompass."""
    folder = tmp_path_factory.mktemp("faults")
    model = {"name": "plugins:perceptron"}
    jobs = [
        job(
            "steady",
            shards=str(digits / "many"),
            rounds=6,
            model=model,
            algorithm={"name": "plugins:Steady"},
            local={"lr": 0.02, "batch_size": 16},
            cohort={"fraction": 0.6},
            checkpoint={"every": 1},
        ),
        job("plain", shards=str(digits / "few"), rounds=2, model=model),
        job(
            "uneven",
            shards=str(digits / "few"),
            rounds=1,
            model=model,
            algorithm={"name": "plugins:Uneven"},
            cohort={"quorum": 0.5},
        ),
    ]
    jobs.append(
        split(
            "split",
            "plugins:Talking",
            rounds=6,
            shards=str(digits / "columns"),
            local={"optimizer": "adam", "lr": 0.01, "batch_size": 128, "drop_last": True},
            checkpoint={"every": 1},
        )
    )
    groups = {"min_local_steps": 2, "max_local_steps": 8, "latest_time_factor": 1.1}
    for name, rounds, own in (
        ("fedasync", 10, {}),
        ("fedbuff", 5, {"buffer": 8, "concurrency": 4}),
        ("fedcompass", 12, groups),
    ):
        jobs.append(
            job(
                name,
                shards=str(digits / "many"),
                rounds=rounds,
                model=model,
                algorithm={"name": name, **own},
                clock={"jitter": 0.3},
                checkpoint={"every": 1},
            )
        )
    jobs.append({**jobs[0], "name": "timed", "clock": {"jitter": 0.3}})
    for table in jobs:
        (folder / f"{table['name']}.toml").write_text(tomli_w.dumps(table))
    return folder


@pytest.fixture(scope="session")
def batch(yard: Path, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Run many commands in one world of so many ranks, and return what came of each, for each rank."""

    def run(ranks: int, commands: Commands) -> list[dict[str, Any]]:
        file = tmp_path_factory.mktemp("batch") / "commands.json"
        file.write_text(json.dumps({name: list(arguments) for name, arguments in commands.items()}))
        with Command(file.parent / "command", ranks, HERE / "batch.py", file) as command:
            assert command.end(120).code == 0, command.out + command.err
        return [json.loads(file.with_suffix(f".{rank}.json").read_text()) for rank in range(ranks)]

    return run


@pytest.fixture(scope="session")
def untroubled(yard: Path, batch: Batch) -> Path:
    """A folder with the runs `whole` of the job `steady`, `long` with 12 rounds, `begun` with 3, `choice`
    whose silos are chosen by their losses, and one of each of `timed`, `uneven`, `split`, `fedasync`,
    `fedbuff` and `fedcompass`."""
    runs = yard / "untroubled"
    rounds = {"whole": 6, "long": 12, "begun": 3}
    commands = {
        name: train(yard / "steady.toml", runs / name, "--set", f"rounds={n}") for name, n in rounds.items()
    }
    commands["choice"] = train(yard / "steady.toml", runs / "choice", *CHOICE)
    for name in ("timed", "uneven", "split", "fedasync", "fedbuff", "fedcompass"):
        commands[name] = train(yard / f"{name}.toml", runs / name)
    (done,) = batch(1, {name: arguments[2:] for name, arguments in commands.items()})
    assert [result["code"] for result in done.values()] == [0] * len(commands), done
    return runs
