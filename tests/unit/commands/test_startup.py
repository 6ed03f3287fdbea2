"""What a command imports, and how: starting stays fast as long as nothing heavy slips in."""

import functools
import gc
import importlib
import subprocess
import sys

import pytest
from conftest import ROOT, launcher, rank_environment, ranks

import mpifl
from mpifl.common.machine import imports

HEAVY = {"torch", "numpy", "h5py", "mpi4py", "matplotlib", "safetensors"}
RUN = """
import runpy, sys
try:
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
finally:
    print(*sys.modules, file=sys.stderr)
"""


ENDED = """
import gc, runpy, sys
try:
    runpy.run_module("mpifl", run_name="__main__", alter_sys=True)
finally:
    collected = gc.isenabled(), gc.get_freeze_count()
    from mpifl.data.hdf5 import hdf5_reading
    parser = hdf5_reading._parser._process
    loaded = "torch" in sys.modules, "h5py" in sys.modules
    print(*collected, *loaded, parser and parser.poll(), file=sys.stderr)
"""
NOWHERE = "/nowhere/none"


@functools.cache
def told_at_the_end(program, *arguments):
    """The words that a program that runs `mpifl ARGUMENTS` as a rank prints on stderr, and its exit code."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=rank_environment(MPIFL_RANKS="1"), timeout=300
    )
    return done.stderr.split(), done.returncode


def imported(*arguments):
    """The packages that `mpifl ARGUMENTS` has imported at its end."""
    words, code = told_at_the_end(RUN, *arguments)
    assert code == 0, words
    return {name.partition(".")[0] for name in words}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["train", "--help"], ["keys", "local"], ["list", "metrics"]], ids=" ".join
)
def test_what_tells_of_the_package_imports_nothing_that_takes_long(arguments):
    found = imported(*arguments)
    assert "typer" in found
    assert not found & HEAVY


def test_a_report_imports_no_torch():
    words, code = told_at_the_end(RUN, "report", NOWHERE)
    assert code == 2  # there is no such run; that is told after the imports
    assert "mpifl.report.pages.run_page" in words
    assert "torch" not in words


def test_wrong_prompts_are_refused_before_torch_is_imported():
    words, code = told_at_the_end(RUN, "generate", NOWHERE, "--prompts", NOWHERE)
    assert code == 2
    assert {"--prompts", "read"} <= {*words}
    assert "torch" not in words


FACE = "import sys, mpifl; print(mpifl.__version__, *dir(mpifl), '|', *sys.modules, file=sys.stderr)"


def test_the_face_for_users_imports_nothing_until_a_name_is_asked_for():
    words, code = told_at_the_end(FACE)
    names, modules = set(words[: words.index("|")]), words[words.index("|") :]
    assert code == 0
    assert names >= {"Algorithm", "FedAvg", "Silo", "Server", "Update", "uniform", "Constant", "Proximal"}
    assert names >= {"Observer", "InputError", "Job", "train"}
    assert not {name.partition(".")[0] for name in modules} & HEAVY
    assert all(getattr(mpifl, name) is not None for name in dir(mpifl))


def test_a_training_leaves_h5py_to_another_process_that_is_started_first():
    words, code = told_at_the_end(ENDED, "train", NOWHERE)
    assert (words[-3:], code) == (["True", "False", "None"], 2)


FLUSHED = """
import sys, torch
import mpifl.training.loop
from mpifl.cli import main
from mpifl.common import InputError
def left():
    return (torch.full((1 << 20,), 1e-30) * 1e-9).view(torch.int32).count_nonzero().item()
def train(*_, **__):
    torch.set_num_threads(2)
    raise InputError(f"{left()} left")
mpifl.training.loop.train = train
try:
    main()
finally:
    torch.set_num_threads(1)
    print(left(), "afterwards", file=sys.stderr)
"""


def test_what_is_too_small_for_a_normal_number_is_zero_on_all_threads_of_a_training(tmp_path):
    (tmp_path / "flushed.py").write_text(FLUSHED)
    done = ranks(1, tmp_path / "flushed.py", "train", tmp_path / "job.toml", MPIFL_RANKS="1")
    words, code = done.stderr.split(), done.returncode
    assert (words[-5:], code) == (["error:", "0", "left", str(1 << 20), "afterwards"], 2)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("train", 2), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("evaluate", 2), ("doctor", 1)))],
)
def test_what_torch_brings_is_out_of_the_garbage_collectors_sight(command, wrong):
    words, code = told_at_the_end(ENDED, command, NOWHERE)
    assert code == wrong  # there is no such job, run or shard folder; that is told after the imports
    assert (words[-5], words[-3]) == ("True", "True")
    assert int(words[-4]) > 100_000


def test_the_garbage_collector_is_on_again_after_an_import_that_failed():
    def attempt():
        with imports.gc_frozen():
            assert not gc.isenabled()
            importlib.import_module("nothing_of_this_name")

    with pytest.raises(ModuleNotFoundError):
        attempt()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("optimizer", "size"),
    [("adam", 1), *(pytest.param(*of, 2, marks=pytest.mark.slow) for of in (["adam"], ["sgd"]))],
)
def test_the_benchmark_tells_the_parts_of_a_start_and_that_nothing_heavy_is_imported(
    tmp_path, monkeypatch, optimizer, size
):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench"))
    import common
    import startup

    monkeypatch.setattr(startup, "MPIRUN", launcher())
    monkeypatch.setattr(startup, "ENVIRONMENT", rank_environment())
    common.write_silos(tmp_path / "shards", *common.images(40)[:2], 2)
    common.write_job(tmp_path / "job.toml", tmp_path / "shards", 1, {"name": "logreg"}, optimizer=optimizer)
    told = startup.start(tmp_path, size, 0)
    assert told["heavy"] == []
    parts = [told[part] for part in ("imports", "to first round", "first round")]
    assert min(parts) > 0
    assert sum(parts) < startup.LIMIT
