"""A worker whose silos train together: each answers as by itself, whatever becomes of the others."""

import pytest
import torch
from unit.builders import make_worker, write_folder

from mpifl.algorithms.ditto import Ditto
from mpifl.algorithms.fedavg import FedAvg
from mpifl.common.errors import SharedVectorChanged
from mpifl.data.shards.shards import read_federation
from mpifl.exchange.worker_side.worker import Worker
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.fast import stacked_training, stacked_worker
from mpifl.wings.fast.stacked_worker import Batching
from mpifl.wire.messages import Verdict
from mpifl.wire.requests import Compute, Open

LOCAL = LocalTraining(lr=0.1, batch_size=4, batch_silos=True, silos_per_step=2)
EVERY = (0, 1, 2, 3, 4)


class Noting(FedAvg):
    """FedAvg of silos that note how often they were asked, and fail where they are told to."""

    def train(self, silo, w, fail=-1, how="before", times=1):
        silo.keep(asked=silo.state.get("asked", 0) + 1)
        if silo.id == fail and how == "before":
            raise RuntimeError("before it trained")
        if silo.id == fail and how == "writes":
            w.zero_()
        for _ in range(times):
            run = silo.train_locally(w, self.local)
        if silo.id == fail and how == "after":
            raise RuntimeError("after it trained")
        delta = run.delta * torch.nan if silo.id == fail and how == "nan" else run.delta
        places = torch.linspace(1, 2, len(delta), dtype=torch.float64)
        told = {"end": float(run.delta.double() @ places), "asked": silo.state.get("asked", 0)}
        return silo.update(delta=delta, train_loss=run.loss, **told)


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path, [4, 9, 6, 12, 7])
    return tmp_path


def hosting(folder, algorithm=None, kind=Batching, silos=EVERY):
    algorithm = algorithm or Noting(local=LOCAL)
    return make_worker(folder, read_federation(folder), algorithm, kind=kind, silos=list(silos))


def ask(worker, round=0, attempt=0, cohort=EVERY, **scalars):
    """Ask and settle; return each silo's header."""
    w = torch.linspace(-0.5, 0.5, len(worker._model.trained))
    request = Compute(work="train", round=round, attempt=attempt, cohort=list(cohort), scalars=scalars)
    report = worker.answer(request, {"w": w})
    good = [header.silo for header in report.headers if header.fault is None]
    worker.commit(request, Verdict(accepted=good))
    return {header.silo: header for header in report.headers}


@pytest.fixture
def chunks(monkeypatch):
    """How many silos each chunk had."""
    sizes, whole = [], stacked_training._trained
    monkeypatch.setattr(
        stacked_training, "_trained", lambda stack, lanes: sizes.append(len(lanes)) or whole(stack, lanes)
    )
    return sizes


def trained(headers):
    """What came of the training of each silo that did not fail."""
    good = {silo: header.scalars for silo, header in headers.items() if header.fault is None}
    return {silo: [scalars.get(name) for name in ("train_loss", "end")] for silo, scalars in good.items()}


def alike(one, other):
    return all(trained(one)[silo] == pytest.approx(trained(other)[silo], rel=1e-4) for silo in EVERY)


def test_a_silo_answers_the_same_whichever_silos_the_rank_hosts(folder, chunks):
    """As on another number of ranks, or when some have died: chunks of two, of another, and of none."""
    every = ask(hosting(folder))
    assert chunks == [2, 2, 1]
    apart = {
        k: v for silos in ([0, 4, 2], [3], [1]) for k, v in trained(ask(hosting(folder, silos=silos))).items()
    }
    assert trained(every) == apart
    plain = ask(hosting(folder, kind=Worker))
    assert alike(every, plain)
    assert list(every) == list(plain) == [*EVERY]


@pytest.mark.parametrize("how", ["before", "after", "nan"])
def test_a_fault_of_one_silo_takes_no_other_of_its_chunk(folder, how):
    whole = trained(ask(hosting(folder)))
    headers = ask(hosting(folder), fail=3, how=how)
    assert [silo for silo, header in headers.items() if header.fault] == [3]
    assert {"before": "before it trained", "after": "after it trained", "nan": "NaN"}[how] in headers[3].fault
    assert trained(headers) == {silo: loss for silo, loss in whole.items() if silo != 3}


def test_a_half_that_is_asked_twice_keeps_once(folder):
    worker = hosting(folder)
    for round in range(3):
        headers = ask(worker, round)
        assert [header.scalars["asked"] for header in headers.values()] == [round] * 5


def test_a_lost_attempt_changes_nothing(folder):
    worker = hosting(folder)
    ask(worker, 0)
    first = trained(ask(worker, 1, attempt=0))
    again = ask(worker, 1, attempt=1)
    assert trained(again) == first
    assert [header.scalars["asked"] for header in again.values()] == [1] * 5


def test_several_trainings_of_a_half_are_batched_one_after_another(folder, chunks):
    one = ask(hosting(folder), times=3)
    assert chunks == [2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert trained(one) == trained(ask(hosting(folder)))
    ditto = Ditto(local=LOCAL, **{"lambda": 0.5})
    plain = ask(hosting(folder, ditto, Worker))
    for silo, header in ask(hosting(folder, ditto)).items():
        assert header.scalars["train_loss"] == pytest.approx(plain[silo].scalars["train_loss"], rel=1e-5)


def test_a_write_to_the_shared_vector_ends_the_run(folder):
    with pytest.raises(SharedVectorChanged, match="train wrote to 'w'"):
        ask(hosting(folder), fail=3, how="writes")


def test_where_a_chunk_fails_each_silo_trains_by_itself_in_the_same_steps(folder, monkeypatch):
    """Its bits are those of a chunk; who fails alone has the fault."""
    whole, taken = trained(ask(hosting(folder))), stacked_training._trained

    def failing(stack, lanes):
        if any(len(lane.asked.data) == 9 for lane in lanes):
            raise MemoryError("no room for silo 1")
        return taken(stack, lanes)

    monkeypatch.setattr(stacked_training, "_trained", failing)
    headers = ask(hosting(folder))
    assert [silo for silo, header in headers.items() if header.fault] == [1]
    assert "no room for silo 1" in headers[1].fault
    assert headers[1].passing
    assert trained(headers) == {silo: loss for silo, loss in whole.items() if silo != 1}


def test_what_is_not_to_train_is_answered_at_once(folder):
    worker = hosting(folder)
    report = worker.answer(Open(round=0, attempt=0, cohort=[0, 2]), {})
    assert [header.silo for header in report.headers] == [0, 2]
    assert not [header.fault for header in report.headers if header.fault]


def test_each_silo_has_its_part_of_the_time_by_its_steps(folder, monkeypatch):
    """A chunk of a silo with 3 steps and one with 2 takes 5 s."""
    ticks = iter(range(0, 10**6, 5))
    monkeypatch.setattr(stacked_worker.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(Worker, "_guarded", untimed(Worker._guarded))
    headers = ask(hosting(folder, silos=[2, 3]), cohort=(2, 3))
    assert {silo: header.seconds for silo, header in headers.items()} == {3: 3.0, 2: 2.0}


def untimed(guarded):
    return lambda *given: guarded(*given).model_copy(update={"seconds": 0.0})
