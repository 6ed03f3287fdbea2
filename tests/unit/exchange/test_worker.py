"""A worker: silos placed evenly, what they keep true at the right time,
and faults that stay with their silo."""

import errno
import math
import os

import pytest
import torch
from safetensors.torch import load_file
from unit.builders import Alone, make_worker, net, room_for, write_folder

from mpifl.algorithms.algorithm import Algorithm
from mpifl.common.errors import SharedVectorChanged
from mpifl.common.files import sha256_of
from mpifl.data.shards.shards import read_federation
from mpifl.exchange.server_side.admission import ABOUT
from mpifl.run.folder import checkpoint, told_round
from mpifl.run.job.tables import PrivacySettings
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.dpsgd import Guard, PrivateSilo, Protection
from mpifl.wings.privacy import Budgets, SiteFolder
from mpifl.wings.site import SiteSeal
from mpifl.wire.messages import FileReply, Report, Verdict
from mpifl.wire.requests import Compute, Finish, Load, Migrate, Open, Save, SaveStatus


class Counting(Algorithm):
    """Counts in each silo how often it was asked; fails where it is told to."""

    def round(self, server, cohort):
        raise NotImplementedError

    def count(self, silo, fail=-1, how="raise", v=1.0):
        seen = silo.state.get("count", 0)
        silo.keep(count=seen + 1, latest=torch.full((2,), float(seen + 1)))
        if silo.id == fail and how == "raise":
            raise RuntimeError("the disk is on fire\nand this is the second line")
        vector = torch.full((3,), math.nan if silo.id == fail and how == "vector" else v)
        scalar = (
            {"text": [1.0], "nan": math.nan, "inf": -math.inf, "none": None}.get(how)
            if silo.id == fail
            else seen
        )
        scalar = float(seen) if how in ("raise", "vector", "weight", "negative") else scalar
        weight = {"weight": math.nan, "negative": -1.0}.get(how, 1.0) if silo.id == fail else 1.0
        return silo.update(weight=weight, seen=scalar, v=vector)

    def forgetful(self, silo):
        silo.update(seen=1.0)

    def plain(self, silo):
        return {"seen": 1.0}


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, [4, 5, 6])
    return tmp_path


@pytest.fixture
def worker(folder):
    return make_worker(folder, read_federation(folder), Counting(), silos=[0, 1, 2])


def ask(worker, round=0, attempt=0, accepted=None, cohort=(0, 1, 2), kind=Compute, explain=(), **fields):
    """Make a request and settle it; return each header by silo.
    By default all that did not fail are accepted."""
    own = {"work": "count", "scalars": fields} if kind is Compute else fields
    request = kind(round=round, attempt=attempt, cohort=list(cohort), **own)
    report = worker.answer(request, {})
    good = [header.silo for header in report.headers if header.fault is None]
    worker.commit(request, Verdict(accepted=good if accepted is None else accepted, explain=list(explain)))
    return {header.silo: header for header in report.headers}


def save(worker, round):
    """Have a worker write the states of its silos, and wait until it has."""
    begun = [silo for silo, header in ask(worker, round, kind=Save).items() if header.writing]
    return ask(worker, round, kind=SaveStatus, cohort=begun, checkpoint=round, wait=True)


def seen(headers):
    return [header.scalars["seen"] for header in headers.values() if header.fault is None]


def test_a_fresh_silo_has_kept_nothing_and_what_it_keeps_is_seen_in_later_rounds(worker):
    assert [seen(ask(worker, round)) for round in range(3)] == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


def test_what_is_kept_is_seen_by_the_next_question_of_the_same_round(worker):
    assert [seen(ask(worker)) for _ in range(2)] == [[0, 0, 0], [1, 1, 1]]


def test_a_new_attempt_of_the_round_starts_from_before_it(worker):
    ask(worker, 0)
    for attempt in (0, 1, 2):
        assert seen(ask(worker, 1, attempt)) == [1, 1, 1]
    assert seen(ask(worker, 2)) == [2, 2, 2]


def test_a_lost_round_changes_nothing(worker):
    ask(worker, 0)
    for attempt in range(3):
        request = Compute(work="count", round=1, attempt=attempt, cohort=[0, 1, 2])
        worker.answer(request, {})
        worker.commit(request, Verdict(lost="too few"))
    assert seen(ask(worker, 2)) == [1, 1, 1]


def test_what_a_silo_keeps_that_is_not_accepted_is_forgotten(worker):
    ask(worker, 0, accepted=[0, 2])
    assert seen(ask(worker, 1)) == [1, 0, 1]


def test_a_silo_outside_of_the_cohort_is_not_asked_and_keeps_what_it_has(worker):
    ask(worker, 0)
    assert list(ask(worker, 1, cohort=[0, 2, 7])) == [0, 2]
    assert seen(ask(worker, 2)) == [2, 1, 2]


def test_kept_state_is_saved_once_it_is_true_and_loads_into_another_worker(worker, folder):
    ask(worker, 0)
    ask(worker, 1, accepted=[0, 1])
    saved = {silo: header.sha256 for silo, header in save(worker, 2).items()}
    run = folder / "run"
    states = [checkpoint.read_state(checkpoint.silo_file(run, 2, k), saved[k]) for k in saved]
    assert [state["count"] for state in states] == [2, 2, 1]
    assert states[0]["latest"].tolist() == [2.0, 2.0]
    other = make_worker(folder, read_federation(folder), Counting())
    assert all(header.fault is None for header in ask(other, 2, kind=Load, files=saved).values())
    assert seen(ask(other, 2)) == [2, 2, 1]


def test_a_silo_without_state_saves_nothing_and_loading_none_forgets(worker, folder):
    assert all(
        header == FileReply(silo=k, seconds=header.seconds) for k, header in ask(worker, 0, kind=Save).items()
    )
    assert save(worker, 0) == {}
    assert not (folder / "run").exists()
    ask(worker, 0)
    ask(worker, 1, kind=Load)
    assert seen(ask(worker, 1)) == [0, 0, 0]


def test_a_torn_state_is_a_fault_of_its_silo(worker, folder):
    ask(worker, 0)
    saved = {k: header.sha256 for k, header in save(worker, 1).items()}
    path = checkpoint.silo_file(folder / "run", 1, 1)
    path.write_bytes(path.read_bytes()[:-1])
    faults = {k: header.fault for k, header in ask(worker, 1, kind=Load, files=saved).items()}
    assert (faults[0], faults[2]) == (None, None)
    assert faults[1].startswith(f"{path}: torn or altered")


def test_a_silo_that_fails_is_a_fault_with_file_and_line_and_keeps_nothing(worker, capsys):
    headers = ask(worker, 0, fail=1)
    fault = headers[1].fault
    assert fault.startswith("RuntimeError: the disk is on fire")
    assert "(test_worker.py:" in fault
    assert (headers[0].fault, headers[2].fault) == (None, None)
    assert seen(ask(worker, 1)) == [1, 0, 1]


def test_a_fault_is_one_line(worker):
    assert "\n" not in ask(worker, 0, fail=1)[1].fault


def test_a_traceback_of_the_users_lines_is_printed_where_the_server_asks_for_it(worker, capsys):
    ask(worker, 0, fail=1)
    assert capsys.readouterr().err == ""
    ask(worker, 1, fail=1, explain=[1])
    said = capsys.readouterr().err
    assert said.startswith("silo 1 failed:\nTraceback")
    assert "in count" in said
    assert "mpifl/exchange/worker_side/worker.py" not in said
    ask(worker, 2, explain=[0, 1, 7])
    assert capsys.readouterr().err == ""


def mean_of(worker, headers):
    reports = {0: Report(headers=list(headers.values()), parts=worker.aggregation.parts())}
    verdict = Verdict(ranks=[0], pieces=worker.aggregation.place(reports))
    return worker.aggregation.combine(Alone(), verdict).vectors


class Careless(Counting):
    def count(self, silo, w):
        w.add_(1.0)
        return silo.update(v=w)


def test_writing_to_a_vector_that_all_silos_read_ends_the_run(folder):
    worker = make_worker(folder, read_federation(folder), Careless(), silos=[0, 1])
    with pytest.raises(SharedVectorChanged, match="count wrote to 'w'"):
        worker.answer(Compute(work="count", cohort=[0, 1]), {"w": torch.zeros(3)})


def test_silos_that_move_take_their_state_along(folder):
    spec = read_federation(folder)
    old, new = (
        make_worker(folder, spec, Counting(), silos=silos, rank=k) for k, silos in ((1, [0, 1, 2]), (2, []))
    )
    assert seen(ask(old, 0)) == [0, 0, 0]
    saved = save(old, 1)
    states = {k: header.sha256 for k, header in saved.items()}
    files = {1: states[1], 2: "torn"}
    request = Migrate(round=1, cohort=[1, 2], assignment={1: 2, 2: 2}, files=files, checkpoint=1)
    reports = {1: old.answer(request, {}), 2: new.answer(request, {})}
    assert reports[1].headers == []
    assert [header.fault is None for header in reports[2].headers] == [True, False]
    for worker in (old, new):
        worker.commit(request, Verdict(accepted=[1]))
    assert (old.silos, new.silos) == ({0, 2}, {1})
    assert seen(ask(new, 1)) == [1]
    assert seen(ask(old, 1)) == [1, 1]


def test_a_silo_that_was_dealt_here_and_not_accepted_leaves_nothing_behind(folder):
    worker = make_worker(folder, read_federation(folder), Counting(), silos=[1], rank=2)
    request = Compute(work="count", round=0, cohort=[0, 1], assignment={0: 2})
    assert [header.silo for header in worker.answer(request, {}).headers] == [0, 1]
    worker.commit(request, Verdict(accepted=[1]))
    assert seen(ask(worker, 1)) == [1]
    again = Compute(work="count", round=2, cohort=[0], assignment={0: 2})
    [header] = worker.answer(again, {}).headers
    assert header.scalars["seen"] == 0


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("vector", "'v' holds NaN or Inf"),
        ("text", "seen = [1.0]: is no"),
        ("weight", "weight"),
        ("negative", "weight"),
    ],
)
@pytest.mark.parametrize("fail", [0, 2])
def test_an_update_that_is_not_finite_is_a_fault_and_never_reaches_the_sum(worker, capsys, how, reason, fail):
    headers = ask(worker, 0, fail=fail, how=how, v=2.0)
    assert [k for k, header in headers.items() if header.fault] == [fail]
    assert mean_of(worker, headers)["v"].tolist() == [2.0] * 3
    assert headers[fail].fault.startswith("its update was refused: ")
    assert reason in headers[fail].fault
    assert capsys.readouterr().err == ""
    assert seen(ask(worker, 1)) == [0.0 if k == fail else 1.0 for k in range(3)]


@pytest.mark.parametrize("how", ["nan", "inf", "none"])
def test_an_undefined_number_is_missing_and_no_fault(worker, how):
    headers = ask(worker, 0, fail=1, how=how, v=2.0)
    assert [header.fault for header in headers.values()] == [None] * 3
    assert [header.scalars for header in headers.values()] == [{"seen": 0}, {}, {"seen": 0}]
    assert mean_of(worker, headers)["v"].tolist() == [2.0] * 3


@pytest.mark.parametrize("how", ["text", "weight", "negative"])
def test_a_refusal_names_no_cause_that_is_not_known(worker, how):
    fault = ask(worker, 0, fail=1, how=how)[1].fault
    assert "diverged" not in fault
    assert "lr" not in fault


def test_a_vector_that_is_not_finite_has_diverged(worker):
    fault = ask(worker, 0, fail=1, how="vector")[1].fault
    assert fault.endswith("'v' holds NaN or Inf; if training diverged, use a lower [local] lr")


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("forgetful", "Counting.forgetful returned None; have it return silo.update(...)"),
        ("plain", "Counting.plain returned a dict; have it return silo.update(...)"),
    ],
)
def test_a_half_that_returns_no_update_is_told_so(worker, capsys, work, said):
    report = worker.answer(Compute(work=work, cohort=[0, 1]), {})
    assert [header.fault for header in report.headers] == [said] * 2
    assert capsys.readouterr().err == ""


def test_a_broken_shard_is_a_fault_of_its_silo_and_is_read_again_when_mended(worker, folder):
    path = folder / "silo_0001.h5"
    content = path.read_bytes()
    path.unlink()
    headers = ask(worker, 0, kind=Open)
    assert headers[1].fault.startswith(f"{path}: is missing")
    assert headers[0].fault is None
    path.write_bytes(content)
    assert ask(worker, 0, kind=Open)[1].fault is None


def test_a_worker_opens_its_own_silos_files_and_no_other(folder):
    (folder / "silo_0000.h5").unlink()
    worker = make_worker(folder, read_federation(folder), Counting(), silos=[1])
    assert list(ask(worker, 0)) == [1]


def test_a_worker_tells_about_itself_when_it_opens_its_shards_only(worker):
    assert worker.answer(Open(cohort=[0]), {}).about == dict.fromkeys(ABOUT, "here")
    assert worker.answer(Compute(work="count", cohort=[0]), {}).about == {}


def finish(worker, w, sha256, cohort=(0, 1, 2), kept=0):
    return worker.answer(Finish(cohort=list(cohort), sha256=sha256, kept=kept), {"w": w}).headers


def final_model(folder, value, kept=0):
    """Return a final model, w and the sha256 of its file, as the server would write it."""
    model, path = FlatModel(net()), folder / "server" / "model.safetensors"
    model.trained.fill_(value)
    return model.trained.clone(), checkpoint.write_model(path, model, told_round(kept))


def test_the_final_model_is_left_where_the_run_folder_has_none_or_that_of_an_earlier_end(folder):
    path = folder / "run" / "model.safetensors"
    for value, kept in ((0.5, 0), (1.5, 3)):  # the second time the run was resumed, and keeps its best
        w, sha256 = final_model(folder, value, kept)
        worker = make_worker(folder, read_federation(folder), Counting(), FlatModel(net()))
        finish(worker, w, sha256, kept=kept)
        assert sha256_of(path) == sha256
        plain = net()
        plain.load_state_dict(load_file(path))
        assert all(bool((p == value).all()) for p in plain.parameters())


def test_the_final_model_is_written_once_and_never_over_the_servers_own(folder):
    path = folder / "run" / "model.safetensors"
    w, sha256 = final_model(folder, 0.5)
    worker = make_worker(folder, read_federation(folder), Counting(), FlatModel(net()))
    finish(worker, w, sha256, cohort=[0])
    inode = path.stat().st_ino
    finish(worker, w, sha256, cohort=[1, 2])
    finish(make_worker(folder, read_federation(folder), Counting(), FlatModel(net())), w, sha256)
    assert path.stat().st_ino == inode


class Owner(Counting):
    def personal_model(self, silo, w):
        return w + silo.id


@pytest.mark.parametrize(("algorithm", "name"), [(Counting, "model"), (Owner, "personal/silo_0001")])
def test_a_final_model_that_a_full_disk_does_not_take_is_a_line_and_no_fault(folder, capsys, algorithm, name):
    worker = make_worker(folder, read_federation(folder), algorithm(), FlatModel(net()))
    w, sha256 = final_model(folder, 0.5)
    with room_for(50):
        (header,) = finish(worker, w, sha256, cohort=[1])
    path = folder / "run" / f"{name}.safetensors"
    said = f"{path}: cannot be written (File too large); make room, and continue with --resume"
    assert (header.fault, header.unwritten) == (None, said)
    assert capsys.readouterr().err == ""
    assert not path.exists()


def test_a_sealed_state_loads_where_its_site_hosts_it_and_no_silo_takes_anothers(folder):
    def sealing(secret):
        given = folder, read_federation(folder), Counting()
        return make_worker(*given, silos=[0, 1, 2], seal=SiteSeal(secret, "run"))

    worker = sealing(bytes(32))
    ask(worker, 0)
    ask(worker, 1, accepted=[0, 1])
    saved = {silo: header.sha256 for silo, header in save(worker, 2).items()}
    assert {path.suffix for path in (folder / "run").rglob("silo_*")} == {".sealed"}
    other = sealing(bytes(32))
    assert all(header.fault is None for header in ask(other, 2, kind=Load, files=saved).values())
    assert seen(ask(other, 2)) == [2, 2, 1]
    faults = [header.fault for header in ask(sealing(b"1" * 32), 2, kind=Load, files=saved).values()]
    assert all("is not what this site has sealed as round 2" in fault for fault in faults)


def test_silos_own_models_stay_where_the_site_keeps_them(folder, tmp_path):
    given = folder, read_federation(folder), Owner(), FlatModel(net())
    worker = make_worker(*given, personal=tmp_path / "site" / "personal" / "run")
    finish(worker, *final_model(folder, 0.5), cohort=[1])
    assert [path.name for path in (tmp_path / "site").rglob("*.safetensors")] == ["silo_0001.safetensors"]
    assert not (folder / "run" / "personal").exists()


class Training(Counting):
    def count(self, silo, w):
        silo.keep(seen=1)
        run = silo.train_locally(w, LocalTraining(lr=0.1, batch_size=4, steps=1))
        return silo.update(weight=silo.weight, v=run.delta)


@pytest.fixture
def private(folder, tmp_path):
    """A worker of three private silos, its site, and what it is asked."""
    site, spec = SiteFolder(tmp_path / "site"), read_federation(folder)
    settings, names = PrivacySettings(clip=1.0, noise=1.0, delta=0.01), ["a", "b", "c"]
    guard = Guard(site, settings, "toy", "run", 9, names, names, [1.0] * 3, Budgets([], "pld"))
    model = FlatModel(net())
    worker = make_worker(
        *(folder, spec, Training(), model, [Protection(3)]),
        sync=site.sync,
        silo=lambda *given, **more: PrivateSilo(*given, **more, guard=guard),
    )
    return worker, site, {"w": model.trained.clone()}


def test_a_rank_waits_once_for_the_lines_of_all_its_silos(private, monkeypatch):
    worker, site, vectors = private
    path, synced, sync = site.folder / "ledger.jsonl", [], os.fsync

    def counted(file):
        if os.path.samestat(os.fstat(file), path.stat()):
            synced.append(len(path.read_text().splitlines()))
        sync(file)

    monkeypatch.setattr(os, "fsync", counted)
    for attempt in range(2):  # what was answered before may be a line that nobody has waited for
        report = worker.answer(Compute(work="count", cohort=[0, 1, 2], attempt=attempt), vectors)
        assert [header.fault for header in report.headers] == [None] * 3
        synced.append("answered")
    assert synced == [3, "answered", 3, "answered"]


def test_nothing_leaves_a_rank_whose_ledger_cannot_be_synced(private, monkeypatch):
    worker, site, vectors = private

    def fail(file):
        raise OSError(errno.EIO, "Input/output error")

    site.record(lambda: None)
    monkeypatch.setattr(os, "fsync", fail)
    request = Compute(work="count", cohort=[0, 1, 2])
    report = worker.answer(request, vectors)
    said = f"{site.folder}/ledger.jsonl: cannot be written (Input/output error); nothing is answered"
    assert [header.fault for header in report.headers] == [said] * 3
    assert report.parts == []
    assert len(site.entries()) == 3, "they count against the budget"
    worker.commit(request, Verdict(lost="too few"))
    assert not any(worker.states.has(silo) for silo in range(3))
