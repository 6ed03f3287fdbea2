"""The commands that pages advise: each can start from the folder where its page was made."""

import html
import re
import shlex
from dataclasses import replace
from pathlib import Path

import tomli_w
from typer.testing import CliRunner
from unit.builders import write_folder

from mpifl.cli import app
from mpifl.common import tables
from mpifl.data.shards import read_any
from mpifl.report.findings import next_of_settings
from mpifl.report.findings.settings_steps import NONE_LEARNT
from mpifl.report.pages.run_page import write_report
from mpifl.report.runs import chance, member, read_run, standings_of
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe
from mpifl.run.job.job import check_job

JOB = {"name": "toy", "rounds": 2, "device": "cpu", "model": {"name": "mlp", "hidden": [4]}}
TRAIN = ("train", "sweep", "baseline")


def called(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert not done.exit_code, done.output
    return done


def trained(name, shards):
    """Train a small job, whose shards have a path that begins in the current folder."""
    path = Path(f"{name}.toml")
    path.write_text(tomli_w.dumps({**JOB, "shards": shards}))
    called("train", path, "--out", name)


def told(run, ends, **job):
    """Write a run as if it was trained on three ranks."""
    claim_run(run, check_job({**JOB, "rounds": len(ends) or 2, "shards": "none", **job}, "toy.toml"))
    ranks, data = {key: {} for key in "012"}, describe(read_any(Path("none")))
    write_environment(run, ranks=ranks, data=data, directory=str(Path.cwd()))
    each = {"train_loss": 1.0, "seconds": 1.0, "bytes_sent": 1, "bytes_received": 1}
    (run / "metrics.jsonl").write_bytes(
        b"".join(encode_record({"round": n, "test_accuracy": one, **each}) for n, one in enumerate(ends, 1))
    )
    (run / "model.safetensors").touch()
    return run


def advised(page):
    """Return the words of each command of a page, and the folder in which it runs."""
    found = re.findall(r"(?s)<(?:code|pre|kbd)[^>]*>(.*?)</", re.sub("</?span[^>]*>", "", page.read_text()))
    lines = dict.fromkeys(line for one in found for line in html.unescape(one).splitlines())
    for line in lines:
        if match := re.fullmatch(r"\(cd (.*) && (.*)\)", line):
            yield Path(*shlex.split(match[1])), shlex.split(match[2])
        elif line.startswith("mpifl "):
            yield Path(), shlex.split(line)


def check(page):
    """Check what can be told of a page's commands without running them; return those that train."""
    found = [(folder, words) for folder, words in advised(page) if words[1] in TRAIN]
    for folder, words in found:
        job, out = tables(folder / words[2]), folder / words[words.index("--out") + 1]
        given = [word.removeprefix("shards=") for word in words if word.startswith("shards=")]
        shards = folder / (given or [job["shards"]])[0]
        assert shards.is_dir(), words
        assert ("--resume" in words) == out.exists(), words
        assert "--resume" not in words or not member(out), "a baseline or a sweep would refuse it"
        assert "--ranks" in words or "security" not in job, words
        if words[1] == "baseline":
            assert any(entry.examples.get("test") for entry in read_any(shards).silos), words
    return [words for _, words in found]


def test_advised_commands_start_from_the_folder_of_the_page(tmp_path, monkeypatch):
    begun = tmp_path / "it's there"
    write_folder(begun / "held", [8, 9], silos_test=4)
    write_folder(begun / "none", [8, 9], test=6)
    monkeypatch.chdir(begun)
    trained("run", "held")
    trained("bare", "none")
    for name in ("federated", "pooled", "alone_0000"):
        told(Path("base", name), [0.5, 0.6, 0.7, 0.8])
    Path("base", "baseline.json").write_text('{"verdict": "Yes."}')
    told(Path("rising"), [0.5, 0.6, 0.7, 0.8])
    told(Path("masked"), [0.5, 0.6, 0.7, 0.8], security={})
    note_lost(told(Path("lost"), []), "round 1 was lost: its update holds NaN or Inf")
    for place in (begun, tmp_path):
        monkeypatch.chdir(place)
        runs = [found.parent for found in begun.glob("*/metrics.jsonl")]
        pages = {run.name: write_report(run.relative_to(place)) for run in runs}
        commands = {name: check(page) for name, page in pages.items()}
        assert [words[1] for words in commands["run"]].count("baseline") == 1
        assert not any("baseline" in words for words in commands["bare"]), "no silo holds out rows"
        assert any("--resume" in words for words in commands["rising"])
        assert any("local.lr=0.01" in words for words in commands["lost"])
        base = (begun / "base").relative_to(place)
        check(write_report(base / "federated"))
        for name in ("pooled", "alone_0000"):
            assert not [*advised(write_report(base / name))], "its shards are gone"
        compare_runs([base / "federated", base / "pooled"], output=Output(page=Path("c.html")))
        assert not check(Path("c.html")), "the baseline tells whether it helped"
    for folder, words in advised(pages["bare"]):  # ranks of their own would start this test again
        assert folder == Path()
        called(*words[1:])
    (out,) = {words[words.index("--out") + 1] for words in commands["bare"]}
    again = [words for _, words in advised(write_report((begun / "bare").relative_to(tmp_path)))]
    assert ["mpifl", "report", out] in again, "that run is there by now"


def test_a_comparison_names_no_setting_that_is_worse_by_its_rows_or_that_guesses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "none", [8, 9], test=400)
    ends = {0.1: 0.95, 0.2: 0.94, 0.4: 0.6}
    runs = [told(Path(f"r{lr}"), [0.5, end], local={"lr": lr}) for lr, end in ends.items()]
    found = standings_of([read_run(run) for run in runs])
    (said, commands), *_ = next_of_settings(found)
    assert said == "Take the simplest of lr 0.1 and lr 0.2, or run more seeds of each, and compare all again:"
    assert commands.splitlines() == [
        "mpifl sweep r0.1/job.toml --set seed=1,2,3 --out r0.1-seeds --ranks 3",
        "mpifl sweep r0.2/job.toml --set seed=1,2,3 --out r0.2-seeds --ranks 3",
        "mpifl compare . r0.1-seeds r0.2-seeds",
    ]
    (said, commands), *_ = next_of_settings(found[1:])
    assert said == "Take lr 0.2; the others are worse on these rows, and one seed cannot show more."
    assert not commands
    guess = standings_of([replace(read_run(run), remarks=(chance.NO_BETTER,)) for run in runs])
    assert [said for said, _ in next_of_settings(guess)] == [NONE_LEARNT]
