"""Trainings with `[security]` in one process: what goes on after a release is over the silos of before."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tomli_w
from unit.builders import Alone, write_folder

from mpifl.algorithms.fedavg import FedAvg
from mpifl.common.errors import InputError, RoundLost
from mpifl.run.job import read_job
from mpifl.run.job.tables import SecuritySettings
from mpifl.training.loop import End, train
from mpifl.wings import wings_of
from mpifl.wings.masked import masked_training
from mpifl.wings.site import read_sites

MODEL = "model.safetensors"


class Faulty(FedAvg):
    """Some silos fail when they train."""

    failing: ClassVar[set[int]] = set()

    def train(self, silo, w):
        if silo.id in self.failing:
            raise OSError("the disk is gone")
        return super().train(silo, w)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job over five silos at one site."""
    site = tmp_path / "site"
    site.mkdir(mode=0o700)
    monkeypatch.setenv("MPIFL_SITE", str(site))
    monkeypatch.setattr(Faulty, "failing", set())
    write_folder(tmp_path / "shards", [9, 4, 7, 3, 5])
    table: dict[str, Any] = {
        "name": "toy",
        "shards": str(tmp_path / "shards"),
        "rounds": 3,
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": f"{__name__}:Faulty"},
        "local": {"lr": 0.1},
        "cohort": {"quorum": 0.5},
        "checkpoint": {"every": 1, "keep": 9},
        "security": {"least": 1},
    }
    (tmp_path / "job.toml").write_text(tomli_w.dumps(table))
    return tmp_path / "job.toml"


def trained(job: Path, name: str, resume: bool = False, *overrides: str) -> Path:
    run = job.parent / name
    assert train(job, run, overrides, resume, Alone(), wings_of=wings_of) is End.FINISHED
    return run


def rewound(run: Path, round: int) -> Path:
    """The run as a crash has left it after a round, but for what was released."""
    for folder in run.glob("checkpoints/round_*"):
        if int(folder.name[6:]) > round:
            shutil.rmtree(folder)
    (run / MODEL).unlink()
    return run


def sets(run: Path) -> list[list[int]]:
    return [json.loads(line)["silos"] for line in (run / "released.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("still", [True, False])
def test_a_round_that_was_released_without_a_silo_is_asked_again_without_it(job: Path, still: bool) -> None:
    """Of five silos one fails: the four are summed up on the same grid when they alone are asked."""
    Faulty.failing = {2}
    run = trained(job, "run")
    whole = (run / MODEL).read_bytes()
    released = sets(run)
    assert released == [[0, 1, 3, 4]] * 3
    rewound(run, 1)
    Faulty.failing = {2} if still else set()
    trained(job, "run", True)
    assert (run / MODEL).read_bytes() == whole
    assert sets(run) == released


def test_a_released_round_of_which_a_silo_is_missing_is_not_asked_of_the_others(
    job: Path, capsys: pytest.CaptureFixture
) -> None:
    run = trained(job, "run")
    whole = (run / MODEL).read_bytes()
    rewound(run, 1)
    Faulty.failing = {3}
    with pytest.raises(Exception, match=r"round 2 was lost.*without 'silo_0003\.h5'.*both sums would tell"):
        trained(job, "run", True)
    assert not (run / MODEL).exists()
    Faulty.failing = set()
    trained(job, "run", True)
    assert (run / MODEL).read_bytes() == whole


def test_a_damaged_file_of_releases_ends_the_run_in_a_line(job: Path) -> None:
    run = rewound(trained(job, "run"), 1)
    with (run / "released.jsonl").open("a") as file:
        file.write("damaged\n")
    with pytest.raises(
        InputError, match=r"released\.jsonl: line 4 is not a line of a ledger; put back a copy"
    ):
        trained(job, "run", True)


def test_a_run_goes_on_with_its_own_file_of_releases_or_none(job: Path) -> None:
    """That of another run would have later rounds go over the silos of that one."""
    other, run = trained(job, "other"), trained(job, "run")
    whole, released = (run / MODEL).read_bytes(), (run / "released.jsonl").read_bytes()
    rewound(run, 1)
    shutil.copy(other / "released.jsonl", run)
    with pytest.raises(InputError, match=r"run/released\.jsonl: is that of another run; put back this run's"):
        trained(job, "run", True)
    (run / "released.jsonl").unlink()
    trained(job, "run", True)
    assert (run / MODEL).read_bytes() == whole
    assert (run / "released.jsonl").read_bytes() in released, "by the name that sites know the run by"


def test_a_file_of_releases_that_cannot_be_written_releases_nothing(job: Path) -> None:
    run = job.parent / "run"
    run.mkdir()
    (run / "released.jsonl").mkdir()
    with pytest.raises(Exception, match=r"released\.jsonl"):
        trained(job, "run")
    assert not (job.parent / "site/released.jsonl").exists()


def test_too_few_workers_for_least_are_named_at_the_start(job: Path) -> None:
    with pytest.raises(
        InputError, match=r"least = 3: 1 workers host silos, .*start 3 or more of them, or set"
    ):
        trained(job, "run", False, "security.least=3")
    assert not (job.parent / "run").exists()


@pytest.mark.parametrize(("fraction", "drawn"), [(0.0, 1), (0.2, 2)])
def test_a_round_that_draws_fewer_silos_than_least_is_refused_at_the_start(
    job: Path, fraction: float, drawn: int
) -> None:
    told = (
        rf"least = 3: \[cohort\] fraction = {fraction:g} draws {drawn} of 10 silos a round, .* use a larger"
    )
    asked = read_job(job, (f"cohort.fraction={fraction}", "security.least=3"))
    with pytest.raises(InputError, match=told):
        masked_training.check_least(asked, 3, "", 10)
    fewer = read_job(job, (f"cohort.fraction={fraction}", f"security.least={drawn}"))
    masked_training.check_least(fewer, 3, "", 10)


@pytest.mark.parametrize(
    ("silos", "split", "settings", "told"),
    [
        ({0: "test"}, "held-out", (), 1),
        ({0: "test", 1: "valid", 5: "test"}, "held-out", (), 2),
        ({0: "valid", 2: "valid", 4: "valid"}, "valid", ("evaluate.split=valid",), 0),
        ({0: "test"}, "held-out", ("evaluate.silos=false",), 0),
        ({}, "held-out", (), 0),
        ({0: "test", 2: "test", 4: "test"}, "test", ("evaluate.split=valid",), 0),
    ],
)
def test_scores_of_too_few_parties_are_refused_at_the_start(
    job: Path, tmp_path: Path, silos: dict[int, str], split: str, settings: tuple[str, ...], told: int
) -> None:
    """Two silos a party: the zeros of a party without held-out rows would hide nobody's scores."""
    spec = write_folder(tmp_path / "six", [8] * 6)
    for silo, name in silos.items():
        spec.silos[silo].examples[name] = 4
    asked = read_job(job, ("security.least=3", *settings))
    hosted = [(0, 1), (2, 3), (4, 5)]
    if not told:
        return masked_training.check_holding(asked, spec, FedAvg(), hosted)
    with pytest.raises(InputError) as error:
        masked_training.check_holding(asked, spec, FedAvg(), hosted)
    assert f"least = 3: only {told} of 3 parties have {split} rows, too few to hide one's scores" in str(
        error.value
    )
    assert "use [evaluate] silos = false, or hold out rows at 3 parties" in str(error.value)
    return None


def test_without_a_folder_for_the_site_nothing_begins(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPIFL_SITE")
    with pytest.raises(InputError, match=r"MPIFL_SITE names no folder for .*; set it, such as"):
        trained(job, "run")
    assert not (job.parent / "run").exists()


def test_a_restored_site_without_its_list_of_sites_still_trains(job: Path) -> None:
    """Without `sites.toml` offers are not signed: what that is worth stands in the docs."""
    run = trained(job, "run")
    assert (run / MODEL).exists()
    assert not (job.parent / "site/sites.toml").exists()


OFFER = {"site": "", "silos": ["a", "b"], "key": "0" * 64, "signature": ""}


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (OFFER, ""),
        ({**OFFER, "silos": ["b", "a"]}, ""),
        ({**OFFER, "silos": ["a"]}, "its offer is not for the silos that it hosts (b)"),
        ({**OFFER, "silos": ["a", "b", "c"]}, "its offer is not for the silos that it hosts (c)"),
        ({**OFFER, "key": "x"}, "what it offers for its keys cannot be read"),
        ([], "what it offers for its keys cannot be read"),
        (None, "what it offers for its keys cannot be read"),
    ],
)
def test_the_server_takes_offers_of_who_hosts_the_silos_alone(offered: Any, why: str) -> None:
    """Offers that claim what is another's would have all parties refuse."""

    def check() -> None:
        masked_training._check_offer(["a", "b", "c"], [[0, 1], [2]], [1], offered)

    if not why:
        check()
        return
    with pytest.raises(ValueError, match=re.escape(why)):
        check()


def test_what_a_site_demands_itself_holds_where_the_job_says_less(tmp_path: Path) -> None:
    """The job comes from the server, which could take `least = 1`."""
    table = f'[[site]]\nname = "a"\nsilos = ["a"]\nkey = "{"0" * 64}"\n'
    (tmp_path / "sites.toml").write_text("least = 5\ncolluding = 0.5\n" + table)
    sites = read_sites(tmp_path / "sites.toml")
    lax, strict = SecuritySettings(least=1, colluding=0.0), SecuritySettings(least=9, colluding=0.6)
    assert masked_training._strictest(lax, sites) == SecuritySettings(least=5, colluding=0.5)
    assert masked_training._strictest(strict, sites) == strict
    assert masked_training._strictest(lax, None) == lax
    (tmp_path / "sites.toml").write_text("least = 0\n" + table)
    with pytest.raises(InputError, match=r"least: '0' is none; it takes a whole number"):
        read_sites(tmp_path / "sites.toml")


def test_no_other_rank_takes_the_place_of_a_dead_server_under_masks(job: Path):
    heir = Alone()
    heir.origins = [1]
    with pytest.raises(RoundLost, match=r"rank 1 cannot take the dead server's place: .*; start .* --resume"):
        train(job, job.parent / "run", (), False, heir, wings_of=wings_of)
    assert "compute" not in asked(heir)
    heir.told.clear()
    assert (
        train(job, job.parent / "open", ("security.masks=false",), False, heir, wings_of=wings_of)
        is End.FINISHED
    )
    assert "compute" in asked(heir)


def asked(world: Alone) -> set[str]:
    """The kinds of requests that a server has made."""
    return {one["kind"] for one in map(json.loads, filter(None, world.told)) if "kind" in one}
