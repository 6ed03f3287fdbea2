"""What stays at a site, and what ranks say of themselves where sums are masked."""

from __future__ import annotations

import json
import os
import pwd
import stat
from types import SimpleNamespace

import pytest
import torch
from unit.builders import Alone, write_folder

from mpifl.common import InputError, Names
from mpifl.exchange import KindsAlone, Telling
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import check_job
from mpifl.silo import Silo
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.dpsgd import PrivateRows
from mpifl.wings.masked import wing
from mpifl.wings.masked.who_sees import sharing
from mpifl.wings.privacy import SiteFolder

SECURE = {"security": {"least": 1, "colluding": 0.0}}
PRIVACY = {"clip": 1.0, "noise": 5.0, "delta": 0.01}
NOISE_OF = {"0": 5.0, "1": 7.0}


@pytest.fixture
def common(tmp_path, monkeypatch):
    """What a rank's silos have in common as a job's wings change it."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    spec = write_folder(tmp_path, [20, 30])

    def act(is_worker=True, told=None, **tables):
        given = {"name": "toy", "shards": str(tmp_path), "rounds": 2, "model": {"name": "mlp"}, **tables}
        job = check_job({**given, "local": {"lr": 0.1, "batch_size": "full"}}, "the job")
        run = tmp_path / "runs" / "run"
        model = SimpleNamespace(device=torch.device("cpu"))
        found = WorkerContext(None, run, spec, job.build_algorithm(), [], 0, "examples", [model])
        transport = SimpleNamespace(rank=1, workers=[1] if is_worker else [2])
        for one in wings_of(job):
            placed = {1 if is_worker else 2: [0, 1]}
            found = one.context(found, placed, transport, (told or {}).get(one.name, ""))
        return found

    return act


def test_a_usual_job_keeps_nothing_and_needs_no_site(common, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE")
    found = common()
    assert (found.silo, found.tells, found.seal, found.personal) == (Silo, Telling, None, None)


def noise(*multipliers):
    return {"dpsgd": json.dumps(multipliers)}


def test_a_private_job_tells_kinds_alone(common):
    found = common(told=noise(5.0, 5.0), privacy=PRIVACY)
    assert found.silo.func is PrivateRows
    assert found.silo.keywords["guard"].site.sync == found.sync
    assert found.tells is KindsAlone
    server = common(is_worker=False, told=noise(5.0, 5.0), privacy=PRIVACY)
    assert (server.tells, server.silo) == (KindsAlone, Silo)


def test_a_server_that_tells_other_noise_than_the_job_is_refused(common):
    with pytest.raises(InputError, match=r"\[privacy\] noise = 5: the server tells a noise of 0.1"):
        common(told=noise(5.0, 0.1), privacy=PRIVACY)
    each = {name: value for name, value in PRIVACY.items() if name != "noise"} | {"noise_of": NOISE_OF}
    common(told=noise(*NOISE_OF.values()), privacy=each)
    with pytest.raises(InputError, match=r"\[privacy\] noise = 7: the server tells a noise of 5"):
        common(told=noise(5.0, 5.0), privacy=each)


@pytest.mark.parametrize(
    "told", ["", "[]", "[5.0]", "{}", '[5.0, "5"]', "[5.0, null]", "[5.0, NaN]", "[true, 5.0]", "none"]
)
def test_a_server_that_tells_no_noise_of_each_silo_is_refused(common, told):
    with pytest.raises(InputError, match=r"^\[privacy\]: the server tells no noise of each silo"):
        common(told={"dpsgd": told}, privacy=PRIVACY)


def test_where_sums_are_masked_states_are_sealed_and_personal_models_stay(common, tmp_path):
    def masked(id="", **more):
        return common(told={"masked": id}, **SECURE, **more)

    found = masked()
    assert found.averaging.hides
    assert found.tells is KindsAlone
    assert found.personal.parent == tmp_path / "site" / "personal"
    assert found.personal.name.startswith("run-")
    assert masked().personal == found.personal
    for more in ({"id": "of another run"}, {"seed": 1}):  # in whose folder its models would be written over
        assert masked(**more).personal != found.personal
    assert stat.S_IMODE((tmp_path / "site").stat().st_mode) == 0o700
    sealed = found.seal.close(b"a state", 3)
    assert masked(rounds=9).seal.open(sealed, 3) == b"a state"  # a run that continues
    with pytest.raises(ValueError, match="is not what this site has sealed"):
        masked(seed=1).seal.open(sealed, 3)
    server = masked(is_worker=False)
    assert (server.seal, server.personal, server.tells) == (None, None, KindsAlone)


def test_whole_numbers_without_masks_keep_nothing_at_a_site(common, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE")
    found = common(security={"masks": False})
    assert (found.seal, found.personal, found.tells, found.averaging.hides) == (None, None, Telling, True)


def test_without_a_site_one_line_says_what_would_do(common, monkeypatch):
    monkeypatch.delenv("MPIFL_SITE")
    with pytest.raises(InputError) as caught:
        common(**SECURE)
    missing = "[security]: MPIFL_SITE names no folder for this site's keys and what it released"
    assert str(caught.value) == f"{missing}; set it, such as MPIFL_SITE=$HOME/mpifl-site, and keep it"


@pytest.mark.parametrize(("name", "tables"), [("ledger.jsonl", "privacy"), ("released.jsonl", "security")])
def test_a_ledger_that_is_none_is_found_before_anything_is_trained(tmp_path, monkeypatch, name, tables):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    SiteFolder(tmp_path / "site")
    (tmp_path / "site" / name).write_text("{}\n")
    write_folder(tmp_path / "shards", [20, 30], test=20)
    job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 2, "device": "cpu"}
    job |= {"model": {"name": "mlp", "hidden": [4]}}
    more = {"privacy": {"clip": 1.0, "noise": 1.0, "delta": 0.01}, **SECURE}
    with pytest.raises(InputError, match=rf"{name}: line 1 is not a line of a ledger; put back a copy"):
        train({**job, tables: more[tables]}, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    assert not (tmp_path / "run" / "initial.safetensors").exists()


def test_a_rank_says_whose_it_is_only_where_that_matters(tmp_path, monkeypatch):
    def about(**tables):
        job = {"name": "toy", "shards": "s", "rounds": 1, "model": {"name": "mlp"}, **tables}
        return wing(check_job(job, "the job")).about()

    assert about(security={"masks": False}) == {}
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path))
    told = about(**SECURE)
    assert told["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert told.keys() == {"user", "launcher", "sites"}
    assert told["sites"] == "no"
    (tmp_path / "sites.toml").write_text("")
    assert about(**SECURE)["sites"] == "yes"


def test_a_masked_run_goes_on_from_sealed_states_to_the_bits_of_one_without_masks(
    tmp_path, monkeypatch, capsys
):
    """Ditto's silos keep models of their own, SCAFFOLD's a correction."""
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    write_folder(tmp_path / "shards", [20, 30], test=20)

    def run(name, algorithm, rounds, resume=False, **more):
        job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": rounds, "device": "cpu"}
        job |= {"model": {"name": "mlp", "hidden": [4]}, "algorithm": {"name": algorithm}}
        train(
            {**job, "checkpoint": {"every": 1}, **more},
            tmp_path / name,
            (),
            resume,
            Alone(),
            wings_of=wings_of,
        )
        return tmp_path / name

    for algorithm in ("scaffold", "ditto"):
        open_ = run(f"{algorithm}-open", algorithm, 3, security={"masks": False})
        masked = run(f"{algorithm}-masked", algorithm, 2, **SECURE)
        (masked / "model.safetensors").unlink()
        run(f"{algorithm}-masked", algorithm, 3, resume=True, **SECURE)
        files = [(folder / "model.safetensors").read_bytes() for folder in (open_, masked)]
        assert files[0] == files[1]
        silos = [
            sorted({path.suffix for path in one.rglob("checkpoints/*/silo_*")}) for one in (open_, masked)
        ]
        assert silos == [[".safetensors"], [".sealed"]]
    assert not (masked / "personal").exists()
    (own_of_masked,) = (tmp_path / "site" / "personal").glob("ditto-masked-*")
    own = [own_of_masked, open_ / "personal"]
    one, other = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in own)
    assert one == other
    assert len(one) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "silos 0, 1 run as one user on host" in said


def test_a_site_answers_a_run_without_masks_as_one_with_masks_and_spends_nothing_more(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    write_folder(tmp_path / "shards", [20, 30], test=20)
    job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 2, "device": "cpu"}
    job |= {"model": {"name": "mlp", "hidden": [4]}, "algorithm": {"name": "fedavg"}}
    job["privacy"] = {"clip": 1.0, "noise": 1.0, "delta": 0.01}
    models, lines = [], []
    for masks in (True, False):
        run = tmp_path / f"masks-{masks}"
        train({**job, "security": {"masks": masks, "least": 1}}, run, (), False, Alone(), wings_of=wings_of)
        models.append((run / "model.safetensors").read_bytes())
        lines.append((tmp_path / "site" / "ledger.jsonl").read_text())
    assert models[0] == models[1]
    assert lines[0] == lines[1]
    assert lines[0].count("\n") == 4


NAMES = Names(["a", "b", "c", "d"])
STARTED = "masks hide updates from logs, files and the wire, not from whoever started the run"


def rank(host, user="ann", launcher="mpirun"):
    return {"host": host, "user": user, "launcher": launcher}


def test_silos_of_one_user_on_one_host_are_named_and_so_is_the_launcher():
    about = {0: rank("s"), 1: rank("x"), 2: rank("x"), 3: rank("y"), 4: rank("y", "bob")}
    assert sharing(about, {1: {0}, 2: {1}, 3: {2}, 4: {3}}, NAMES) == [
        "silos a, b run as one user on host x: not hidden from each other"
    ]
    about[4] = rank("y")
    assert sharing(about, {1: {0}, 2: {1}, 3: {2}, 4: {3}}, NAMES) == [
        "silos a, b run as one user on host x: not hidden from each other",
        "silos c, d run as one user on host y: not hidden from each other",
        f"all ranks were started by one user's mpirun: {STARTED}",
    ]


@pytest.mark.parametrize(
    ("about", "placed", "lines"),
    [
        (
            {0: rank("x", launcher=""), 1: rank("x", launcher=""), 2: rank("y", launcher="")},
            {1: {0}, 2: {1}},
            [
                "silo a and the server run as one user on host x: not hidden from each other",
                f"all ranks were started by one user: {STARTED}",
            ],
        ),
        ({0: rank("s"), 1: rank("x", "bob"), 2: rank("x")}, {1: {0}, 2: {1}}, []),
        ({0: rank("s")}, {0: {0, 1}}, ["silos a, b run as one user on host s: not hidden from each other"]),
        ({0: rank("s", "eve"), 1: rank("x"), 2: rank("y")}, {1: {0}, 2: {1}}, []),
    ],
    ids=["with the server", "two users on a host", "alone", "the server's user is another"],
)
def test_who_else_shares_what(about, placed, lines):
    assert sharing(about, placed, NAMES) == lines


def test_who_takes_keys_on_the_servers_word_is_told():
    about = {k: rank(f"h{k}", f"u{k}") | {"sites": "no" if k < 3 else "yes"} for k in range(4)}
    assert sharing(about, {1: {0}, 2: {1}, 3: {3}}, NAMES) == [
        "silos a, b have no sites.toml: keys are taken on the server's word, and one that swaps them sees "
        "updates"
    ]
    assert sharing(about, {3: {3}}, NAMES) == []
    assert sharing({0: rank("x") | {"sites": "no"}}, {0: {0}}, NAMES) == [], (
        "a party alone has no other's key"
    )


def test_of_many_silos_the_first_are_named():
    silos = set(range(20))
    (line,) = sharing({0: rank("x")}, {0: silos}, Names())
    assert line.startswith("20 silos (among them 0, 1, 2, 3, 4, 5, 6, 7) run as one user")


def test_a_site_that_lists_others_gives_no_sum_without_masks(common, tmp_path):
    """The server hands the job around: it could leave the masks out."""
    (tmp_path / "site").mkdir(mode=0o700)
    (tmp_path / "site/sites.toml").write_text("")
    for tables in ({}, {"security": {"masks": False}}):
        with pytest.raises(InputError, match=r"has a sites.toml, and the job has no \[security\] with masks"):
            common(**tables)
    with pytest.raises(InputError, match="site: is missing"):  # of a job with masks it is read
        common(**SECURE)
    (tmp_path / "site/sites.toml").unlink()
    (tmp_path / "site/sites.toml").symlink_to("not mounted")
    with pytest.raises(InputError, match=r"has a sites.toml, and the job has no \[security\] with masks"):
        common()
    assert common(is_worker=False).tells is Telling


def test_a_site_with_a_budget_tells_no_bare_figures_unless_it_says_so(common, tmp_path):
    common(told=noise(5.0, 5.0), privacy=PRIVACY | {"evaluate_unprotected": True})
    budget = "epsilon = 9.0\ndelta = 1e-2\n"
    (tmp_path / "site/budget.toml").write_text(budget)
    common(told=noise(5.0, 5.0), privacy=PRIVACY)
    with pytest.raises(InputError, match=r"budget.toml: has no evaluate_unprotected = true.*write it there"):
        common(told=noise(5.0, 5.0), privacy=PRIVACY | {"evaluate_unprotected": True})
    (tmp_path / "site/budget.toml").write_text(budget + "evaluate_unprotected = true\n")
    common(told=noise(5.0, 5.0), privacy=PRIVACY | {"evaluate_unprotected": True})
