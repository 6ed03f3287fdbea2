"""What the doctor finds in a world of one rank, and what it makes of many ranks' conditions."""

import _ctypes
import fcntl
import json
import signal
import subprocess
import sys

import pytest
import torch
from conftest import python, rank_environment
from unit.builders import write_folder

from mpifl.cli import main
from mpifl.cli.doctor import contract
from mpifl.cli.doctor.condition import Condition, FoundShards, Plan, _deaf
from mpifl.cli.doctor.disk import Disk, examine_folder, file_system
from mpifl.cli.doctor.findings import Finding, hurts
from mpifl.cli.doctor.gpus import Gpu
from mpifl.cli.doctor.judgement import judge
from mpifl.cli.doctor.site_check import SiteCondition
from mpifl.sums import kernels
from mpifl.wings.fast import Trial
from mpifl.wings.privacy import open_site
from mpifl.wire.launching import libraries
from mpifl.wire.launching.joining import world
from mpifl.wire.launching.mpi_facts import MPIFacts

JOB = 'name = "toy"\nshards = "{shards}"\nrounds = 1\ndevice = "{device}"\n[model]\nname = "logreg"\n'


def doctor(*words):
    """Run the command in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["mpifl", "doctor", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
    return stop.value.code


@pytest.fixture
def shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "shards", [8, 9], test=20)
    return tmp_path / "shards"


@pytest.fixture
def states(tmp_path):
    """Return the states of what the last run of the command has written, by what was looked at."""

    def read():
        found = json.loads((tmp_path / "found.json").read_text())["findings"]
        return {finding["what"]: finding["state"] for finding in found}

    return read


def test_one_rank_is_well_and_leaves_nothing_behind(shards, tmp_path, states, capfd):
    job = tmp_path / "toy.toml"
    job.write_text(JOB.format(shards=shards, device="cpu"))
    before = sorted(tmp_path.rglob("*"))
    assert doctor(job, "--json", "found.json") == 0
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "found.json"])
    assert {what for what, state in states().items() if state == "ok"} >= {
        "MPI library", "node", "doorbells", "signals", "HDF5", "shards", "run folder", "job", "transport",
    }  # fmt: skip
    assert f"{shards}: 3 files opened, 3 mapped into memory" in capfd.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["hurts"] is False
    assert found["figures"]["mean_ms"] > 0
    assert [(rank["rank"], rank["shards"]["count"]) for rank in found["ranks"]] == [(0, 3)]


HIDDEN = """
import sys
from mpi4py import _mpiabi
_mpiabi.LIBMPI_PATH = [sys.argv.pop(1)]  # where libraries are looked for
from mpifl.cli import main
main()
"""


@pytest.mark.parametrize("ranks", [(), ("--ranks", "2")], ids=["one", "two"])
@pytest.mark.parametrize("named", [False, True], ids=["debians", "named"])
def test_the_doctor_says_what_would_do_where_no_library_can_be_loaded(tmp_path, ranks, named):
    """Debian's MPICH has another name than the one that mpi4py's wheel looks for; or a name leads nowhere."""
    (tmp_path / "libmpich.so.12").symlink_to(_ctypes.__file__)  # any library
    missing = str(tmp_path / "libmpi.so")
    environment = rank_environment(LD_LIBRARY_PATH=str(tmp_path), COLUMNS="1000")
    environment |= {"MPI4PY_LIBMPI": missing} if named else {}
    environment.pop("MPIFL_MPIRUN", None)
    (tmp_path / "hidden.py").write_text(HIDDEN)
    start = python() if named else [sys.executable]  # the loader looks at LD_LIBRARY_PATH when Python starts
    command = [*start, str(tmp_path / "hidden.py"), str(tmp_path), "doctor", *ranks]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    if not done.returncode:
        pytest.skip("mpi4py is built for the one library that it loads")
    # a line of the command's, or a cell of a table that is folded
    said = "".join((done.stderr if ranks else done.stdout).split())
    ways = [f"MPI4PY_LIBMPI={missing}: no such MPI library"] if named else libraries.WAYS
    assert [way for way in ways if "".join(way.split()) not in said] == []
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode == (2 if ranks else 1)


def test_batched_steps_are_tried_on_the_jobs_own_silos_and_model(shards, tmp_path, capfd):
    job = tmp_path / "toy.toml"
    job.write_text(
        JOB.format(shards=shards, device="cpu") + "[local]\nsilos_per_step = 4\nbatch_silos = true\n"
    )
    assert doctor(job, "--json", "found.json") == 0
    (rank,) = json.loads((tmp_path / "found.json").read_text())["ranks"]
    assert rank["batched"]["ratio"] > 0
    assert "steps of 2 silos, 4 to a step, took" in capfd.readouterr().out
    job.write_text(
        job.read_text().replace("batch_silos = true", "compile = true").replace("silos_per_step = 4", "")
    )
    doctor(job, "--json", "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["ranks"][0]["batched"] is None


@pytest.mark.parametrize(
    ("found", "asked", "state", "says"),
    [
        ({"ratio": 0.4}, False, "note", "0.40 of the time of single ones (rank 1, cpu)"),
        ({"ratio": 0.4}, True, "note", "0.40"),
        ({"ratio": 1.4}, False, "note", "1.40"),
        ({"ratio": 1.4}, True, "warning", "1.40"),
        ({"why": "the model has whims"}, False, "note", "cannot be: the model has whims"),
        ({"why": "the model has whims"}, True, "warning", "whims"),
    ],
)
def test_what_batched_steps_bring_is_a_warning_only_where_a_job_asks_in_vain(found, asked, state, says):
    tried = Trial(silos=4, per_step=16, **found)
    ranks = [rank(0), rank(1, batched=tried)]
    (finding,) = [one for one in judge(ranks, Plan(batched=asked)) if one.what == "batch_silos = true"]
    assert finding.state == state
    assert says in finding.found
    assert ("leave it out" in finding.remedy) == (state == "warning")


def test_nothing_is_asked_of_what_is_not_named(shards, states):
    assert doctor("--json", "found.json") == 0
    assert [states()[what] for what in ("shards", "run folder")] == ["note", "note"]


def test_shards_that_cannot_be_read_hurt(shards, states, capfd):
    (shards / "silo_0001.h5").write_bytes(b"cut")
    assert doctor(shards, "--json", "found.json") == 1
    printed = " ".join(capfd.readouterr().out.split())  # a long path folds the cell
    assert "silo_0001.h5: 3 bytes, federation.json says" in printed
    assert states()["shards"] == "bad"
    assert doctor(shards.parent / "nowhere") == 1
    assert "federation.json: is not there" in capfd.readouterr().out


def test_a_shard_that_is_no_hdf5_of_the_right_size_hurts(shards, capfd):
    path = shards / "silo_0000.h5"
    path.write_bytes(bytes(path.stat().st_size))
    assert doctor(shards) == 1
    assert "not a readable HDF5 shard" in " ".join(capfd.readouterr().out.split())


def test_a_job_that_is_wrong_hurts(tmp_path, shards, capfd):
    (tmp_path / "toy.toml").write_text(JOB.format(shards=shards, device="tpu"))
    assert doctor("toy.toml") == 1
    assert 'device = "tpu": ' in capfd.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize(
    ("more", "line"),
    [
        *(
            (f'[algorithm]\nname = "{name}"\n[aggregation]\nrule = "median"\n', f"'{name}' needs the mean")
            for name in ("scaffold", "fednova", "qfedavg")
        ),
        ("[privacy]\nepsilon = 3.0\ndelta = 0.5\nclip = 1.0\n", "delta"),
    ],
)
def test_a_job_that_a_training_would_refuse_hurts(tmp_path, shards, states, capfd, more, line):
    job = tmp_path / "toy.toml"
    job.write_text(JOB.format(shards=shards, device="cpu") + more)
    assert doctor(job, "--json", "found.json") == 1
    assert states()["job"] == "bad"
    said = "".join(capfd.readouterr().out.split())  # however wide the terminal is
    assert f"{job}:" in said
    assert line.replace(" ", "") in said


def test_a_gpu_that_is_asked_for_and_not_there_hurts(tmp_path, shards, states):
    (tmp_path / "toy.toml").write_text(JOB.format(shards=shards, device="cuda"))
    assert doctor("toy.toml", "--json", "found.json") == 1
    assert states()["device"] == "bad"


def test_a_run_folder_that_cannot_be_written_hurts(tmp_path, shards, states):
    assert doctor("--out", shards / "silo_0000.h5" / "run", "--json", "found.json") == 1
    assert states()["run folder"] == "bad"


def test_a_run_folder_in_use_is_a_warning(tmp_path, shards, capfd):
    run = tmp_path / "run"
    run.mkdir()
    with (run / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert doctor("--out", run) == 0
    assert "is in use by another training" in capfd.readouterr().out


def test_without_a_compiler_there_is_a_warning(monkeypatch, shards, states):
    monkeypatch.setenv("MPIFL_KERNELS", "tensors")
    kernels.compiled.cache_clear()
    assert doctor("--json", "found.json") == 0
    kernels.compiled.cache_clear()
    assert states()["sums"] == "warning"


def test_a_file_that_cannot_be_written_is_one_line(shards, capfd):
    assert doctor("--json", "nowhere/found.json") == 2
    assert capfd.readouterr().err.startswith("error: --json nowhere/found.json: cannot be written")


def test_the_folder_above_is_tried_where_a_run_would_be_made(tmp_path):
    disk = examine_folder(tmp_path / "a" / "b")
    assert (disk.folder, disk.fault, disk.locks) == (str(tmp_path), None, None)
    assert disk.free > 0
    assert disk.inode == tmp_path.stat().st_ino
    assert disk.system == file_system(tmp_path) != ""
    assert not list(tmp_path.iterdir())


def test_a_file_system_is_that_of_the_nearest_mount():
    assert file_system("/proc/self") == "proc"
    assert file_system("/") not in ("", "proc")


def test_blocked_signals_are_noticed_and_handlers_put_back():
    before = signal.getsignal(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        assert _deaf() == ["SIGTERM"]
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    assert _deaf() == []
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("part", ["broadcast_record", "broadcast_vector", "sum"])
def test_a_transport_that_alters_what_it_moves_is_found(monkeypatch, part):
    transport = world()
    assert contract.check(transport) == []
    whole = getattr(transport, part)

    def altered(*given):
        moved = whole(*given)
        if len(moved) and isinstance(moved, bytes):
            return moved[:-1]
        if len(moved):
            moved[-1] += 1
        return moved

    monkeypatch.setattr(transport, part, altered)
    assert contract.check(transport)


MPI = MPIFacts(
    library="Open MPI 5",
    vendor="Open MPI",
    standard="3.1",
    threads="multiple",
    revokes=True,
    tolerant=False,
    cuda=None,
)


def rank(number, **more):
    given = {
        "rank": number, "host": "a", "node": 0, "doorbell": True, "memory": True, "mpi": MPI,
        "launcher": "/opt/mpi/bin/prterun", "family": "Open MPI", "device": "cpu", "cores": [0, 1, 2, 3],
        "threads": 1,
        "kernels": "compiled", "compiler": "/usr/bin/cc", "cpp": "/usr/bin/g++", "versions": "1", "hdf5": "2",
        "deaf": [], "computes": {"processor": "a", "bits": "1"}, "granted": 2.0,
        "hardware": {"instructions": "avx2", "caches": "L3 1M", "numa": f"{number} of 3"},
        "room": {"/tmp": 10**9, "/dev/shm": 10**8},
    }  # fmt: skip
    return Condition(**{**given, **more})


ONE_BAD = {
    "libraries": ({"mpi": MPI.model_copy(update={"library": "MPICH 5"})}, "MPI library", "bad"),
    "versions": ({"versions": "2"}, "versions", "warning"),
    "memory": ({"node": 1}, "node", "warning"),
    "another host": ({"host": "b", "node": 1}, "node", "ok"),
    "no doorbell": ({"doorbell": False}, "doorbells", "warning"),
    "threads": ({"threads": 5}, "cores", "warning"),
    "bound": ({"cores": [2], "threads": 2}, "cores", "warning"),
    "deaf": ({"deaf": ["SIGTERM"]}, "signals", "warning"),
    "no gpu": ({"device": "none", "device_fault": "no GPU"}, "device", "bad"),
    "tensors": ({"kernels": "tensors"}, "sums", "warning"),
    "other bits": ({"computes": {"processor": "b", "bits": "2"}}, "processors", "warning"),
    "other cores": ({"hardware": {"instructions": "avx", "caches": "L3 1M"}}, "hardware", "warning"),
    "halted": ({"granted": 1.5}, "processor time", "warning"),
    "little /tmp": ({"room": {"/tmp": 10**8}}, "room for files", "warning"),
    "little /dev/shm": ({"room": {"/dev/shm": 50 * 10**6}}, "room for files", "warning"),
    "not pinned": ({"computes": {"processor": "b", "fault": "it cannot"}}, "processors", "bad"),
    "no g++": ({"cpp": None}, "compile = true", "warning"),
    "shard": ({"shards": FoundShards(count=1, faults=["cut"])}, "shards", "bad"),
    "disk": ({"run": Disk(folder="/", system="nfs4", fault="Read-only")}, "run folder", "bad"),
    "no locks": (
        {"run": Disk(folder="/", system="nfs4", free=1 << 40, locks="none")},
        "run folder",
        "warning",
    ),
    "not shared": ({"run": Disk(folder="/", system="nfs4", free=1 << 40, inode=7)}, "run folder", "warning"),
    "full": ({"run": Disk(folder="/", system="nfs4", free=1000)}, "run folder", "warning"),
}


@pytest.mark.parametrize(("more", "what", "state"), ONE_BAD.values(), ids=ONE_BAD)
def test_what_is_wrong_with_one_rank_is_found(monkeypatch, more, what, state):
    monkeypatch.delenv("MPIFL_RANKS_PER_NODE", raising=False)
    plan = Plan(folder="shards", spec="{}", compile=True, run="run")
    disk = Disk(folder="/", system="nfs4", free=1 << 40)
    well = {finding.what: finding.state for finding in judge([rank(n, run=disk) for n in range(3)], plan)}
    assert well[what] == "ok"
    conditions = [rank(0, run=disk), rank(1, **{"run": disk, **more}), rank(2, run=disk)]
    found = [finding for finding in judge(conditions, plan) if finding.what == what]
    assert state in {finding.state for finding in found}
    assert hurts(found) == (state == "bad")


A, B = (Gpu(id=id, free=10**10, total=4 * 10**10) for id in "AB")


@pytest.mark.parametrize(
    ("gpus", "state", "said"),
    [
        ((A, B, A), "ok", "2 in use, 1 worker on one; 10.0 of 40.0 GB free on the fullest"),
        ((B, A, A), "warning", "1 in use, 2 workers on one"),
        (tuple(one.model_copy(update={"served": True}) for one in (A, B, B)), "ok", "by MPS at once"),
        (tuple(one.model_copy(update={"part": True}) for one in (A, A, A)), "warning", "a MIG instance"),
    ],
)
def test_who_shares_a_gpu_is_said(gpus, state, said):
    conditions = [rank(n, gpu=gpu) for n, gpu in enumerate(gpus)]
    [found] = [finding for finding in judge(conditions, Plan()) if finding.what == "GPUs"]
    assert (found.state, said in found.found) == (state, True)


def test_gpus_of_two_hosts_are_two():
    conditions = [rank(0), rank(1, gpu=A), rank(2, gpu=A, host="b", node=1)]
    assert "2 in use, 1 worker on one" in {f.what: f for f in judge(conditions, Plan())}["GPUs"].found


SITE = SiteCondition(folder="/site", mark="m1")
OTHER = SiteCondition(folder="/other", mark="m2")
TORN = SiteCondition(folder="/site", mark="m1", problems=[("bad", "/site/ledger.jsonl: line 3 is none")])


@pytest.mark.parametrize(
    ("sites", "plan", "told"),
    [
        ((None, None, None), Plan(), [("note", "none named")]),
        (
            (None, SITE, None),
            Plan(),
            [("warning", "MPIFL_SITE is not set on rank 2"), ("ok", "whole on rank 1")],
        ),
        ((None, SITE, None), Plan(private=True), [("bad", "not set on rank 2"), ("ok", "whole on rank 1")]),
        ((None, None, None), Plan(masked=True), [("bad", "MPIFL_SITE is not set on ranks 1-2")]),
        ((None, SITE, OTHER), Plan(masked=True), [("ok", "whole on ranks 1-2")]),
        (
            (None, SITE, SITE),
            Plan(),
            [("ok", "ranks 1-2"), ("note", "ranks 1-2 share /site: they are one site")],
        ),
        (
            (None, SITE, SITE.model_copy(update={"folder": "/copy"})),
            Plan(),
            [("ok", "ranks 1-2"), ("warning", "ranks 1-2 have one key in /copy and /site: the same noise")],
        ),
        (
            (None, TORN, TORN),
            Plan(),
            [("bad", "ranks 1-2: /site/ledger.jsonl: line 3 is none"), ("note", "share /site")],
        ),
    ],
)
def test_what_site_folders_mean_is_said_once(sites, plan, told):
    conditions = [rank(n, site=site, user=f"user {n}") for n, site in enumerate(sites)]
    found = [finding for finding in judge(conditions, plan) if finding.what == "site folder"]
    assert [finding.state for finding in found] == [state for state, _ in told]
    assert all(words in finding.found for finding, (_, words) in zip(found, told, strict=True))


def test_ranks_of_one_user_on_one_host_are_said_not_to_be_hidden():
    conditions = [rank(n, site=SITE, user="ann", host="x" if n < 2 else "y") for n in range(3)]
    (found,) = [finding for finding in judge(conditions, Plan()) if finding.what == "same user"]
    assert (found.state, found.found) == ("note", "ranks 0-1 run as ann on x: not hidden from each other")


def test_a_site_of_this_rank_is_looked_at_and_left_as_it_is(shards, states, capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    assert doctor(shards, "--json", "found.json") == 0
    assert states()["site folder"] == "note"
    assert not (tmp_path / "site").exists()
    open_site()
    (tmp_path / "site" / "key").chmod(0o644)
    assert doctor(shards, "--json", "found.json") == 0
    assert states()["site folder"] == "warning"
    assert "has mode 0644, not 0600" in " ".join(capfd.readouterr().out.split())
    job = tmp_path / "toy.toml"
    job.write_text(JOB.format(shards=shards, device="cpu"))
    (tmp_path / "site" / "key").chmod(0o600)
    (tmp_path / "site" / "budget.toml").write_text("epsilon = 1.0\ndelta = 1e-5\n")
    assert doctor(job, "--json", "found.json") == 1
    assert "has a budget.toml, and the job has no [privacy]" in " ".join(capfd.readouterr().out.split())
    monkeypatch.delenv("MPIFL_SITE")
    job.write_text(
        JOB.format(shards=shards, device="cpu") + "[privacy]\nclip = 1.0\nnoise = 1.0\ndelta = 1e-5\n"
    )
    assert doctor(job, "--json", "found.json") == 1
    assert states()["site folder"] == "bad"


@pytest.mark.parametrize(
    ("family", "vendor", "state"),
    [
        ("MPICH", "Open MPI", "warning"),
        ("Open MPI", "Open MPI", "ok"),
        ("Slurm", "MPICH", "ok"),
        ("MPICH", "MVAPICH", "ok"),
    ],
)
def test_a_launcher_of_another_family_is_a_warning(family, vendor, state):
    mpi = MPI.model_copy(update={"vendor": vendor})
    found = judge([rank(0, family=family, mpi=mpi), rank(1, family=family, mpi=mpi)], Plan())
    assert [finding.state for finding in found if finding.what == "launcher"] == [state]


@pytest.mark.parametrize(("revokes", "tolerant", "state"), [(0, 0, "note"), (1, 0, "note"), (1, 1, "ok")])
def test_surviving_a_death_is_well_and_doing_without_is_no_trouble(revokes, tolerant, state):
    mpi = MPI.model_copy(update={"revokes": bool(revokes), "tolerant": bool(tolerant)})
    (found,) = [f for f in judge([rank(n, mpi=mpi) for n in range(5)], Plan()) if f.what == "fault tolerance"]
    assert (found.state, found.remedy) == (state, "")
    assert ("the others continue" in found.found) is bool(tolerant)


def test_more_working_threads_than_cores_are_a_warning_and_so_is_the_server():
    def cores(ranks):
        return next(f for f in judge([rank(n) for n in range(ranks)], Plan()) if f.what == "cores")

    assert cores(4).state == "ok"
    assert "4 working threads, 4 cores; more by the server alone" in f"{cores(5).found}; {cores(5).remedy}"
    assert "silos take turns" in cores(6).remedy


def test_only_what_is_bad_hurts():
    assert not hurts([Finding("a", "ok", ""), Finding("b", "warning", ""), Finding("c", "note", "")])
    assert hurts([Finding("a", "ok", ""), Finding("b", "bad", "")])
