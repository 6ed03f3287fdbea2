"""What a site agrees to: the invitation and roster as signed and listed, its consent, and what it counts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from links.two_ends import (
    COORDINATOR,
    DIGEST,
    KEYS,
    LIFE,
    RUN,
    SITE,
    STRANGER,
    TwoEnds,
    ask,
    records,
    vectors,
)

from mpifl.common import InputError
from mpifl.run.job import check_job, read_job
from mpifl.wings.site import Identity, read_sites
from mpifl.wings.sites.consents import (
    ConsentedRun,
    ConsentLedger,
    Invitation,
    RunHome,
    SentFile,
    add_consent,
    admitted,
    check_roster,
    code_digest,
    code_in,
    federation_digest,
    job_digest,
    number_of,
    paths_in,
    read_consents,
    read_invitation,
    roster_of,
    shared_job,
    signed_invitation,
    write_invitation,
)
from mpifl.wings.sites.letters import Member, NoRecord

ROOT = Path(__file__).parents[3]
SILOS = ["silo 0", "silo 1", "silo 2"]
JOB = read_job(ROOT / "jobs" / "demo.toml")
TEXT = JOB.model_dump_json(exclude_none=True)


def job(**changes) -> str:
    whole = {**JOB.model_dump(exclude_none=True), **changes}
    return check_job(whole, "job").model_dump_json(exclude_none=True)


def sites_in(folder: Path, *lists: tuple[Identity, list[str]]):
    folder.mkdir(exist_ok=True)
    (folder / "sites.toml").write_text("".join(one.listing(silos) for one, silos in lists))
    return read_sites(folder / "sites.toml")


LISTED = ((COORDINATOR, ["silo 0"]), (SITE, ["silo 1", "silo 9"]), (STRANGER, ["silo 2"]))


def invitation(folder: Path, text: str = TEXT) -> Invitation:
    unsigned = Invitation(
        run=RUN,
        mpifl="0.2.0",
        coordinator="bern",
        key=COORDINATOR.public,
        run_key=KEYS["bern"].public.hex(),
        federation=federation_digest("{}"),
        site=roster_of(sites_in(folder, *LISTED), SILOS),
        job=text,
        signature="00" * 64,
    )
    return signed_invitation(unsigned, COORDINATOR)


def consent(text: str = TEXT, **given) -> ConsentedRun:
    usual = {
        "coordinator": COORDINATOR.public,
        "job": job_digest(text),
        "federation": federation_digest("{}"),
        "silos": ["silo 1"],
        "masks": "none",
        "questions": 3,
    }
    return ConsentedRun.model_validate({**usual, **given})


def test_an_invitation_is_read_as_it_was_signed(tmp_path):
    made = invitation(tmp_path)
    write_invitation(tmp_path, made)
    key = COORDINATOR.public
    for given in (key, key[:32], "-".join([key[:16], key[16:40]]).upper(), f" {key} "):
        assert read_invitation(tmp_path, given) == made
    for given in ("", key[:31], key + "0", "x" * 32):
        with pytest.raises(
            InputError, match="takes 32 to 64 digits 0-9a-f, which the coordinator says to you"
        ):
            read_invitation(tmp_path, given)
    with pytest.raises(InputError, match=r"the coordinator's key is .*; do not take part"):
        read_invitation(tmp_path, STRANGER.public)


def test_an_invitation_that_was_changed_is_refused(tmp_path):
    made = invitation(tmp_path)
    site = [*made.site[:-1], made.site[-1].model_copy(update={"silos": ["silo 7"]})]
    for change in (
        *({"run": "cd" * 16}, {"job": job(rounds=99)}, {"federation": "00" * 32}, {"mpifl": "0.3"}),
        *({"coordinator": "ulm"}, {"run_key": KEYS["wien"].public.hex()}, {"site": site}),
        {"signature": SITE.sign("invitation", made.said)},
        {"signature": COORDINATOR.sign("letter", made.said)},
    ):
        write_invitation(tmp_path, made.model_copy(update=change))
        with pytest.raises(InputError, match=r"is not as '(bern|ulm)' has signed it"):
            read_invitation(tmp_path, COORDINATOR.public)
    for wrong, line in (
        (made.site[::-1], "its sites are not sorted by key"),
        ([*made.site, made.site[-1]], "has the key '.*' twice"),
        ([one.model_copy(update={"silos": ["a"]}) for one in made.site], "has the silo 'a' twice"),
    ):
        write_invitation(tmp_path, signed_invitation(made.model_copy(update={"site": [*wrong]}), COORDINATOR))
        with pytest.raises(InputError, match=line):
            read_invitation(tmp_path, COORDINATOR.public)


@pytest.mark.parametrize("harm", ["fifo", "folder", "text", "missing", "run"])
def test_a_file_that_is_no_invitation_is_one_line(tmp_path, harm):
    path = tmp_path / "invitation.toml"
    if harm == "run":
        write_invitation(tmp_path, invitation(tmp_path).model_copy(update={"run": "../../etc"}))
    elif harm == "text":
        path.write_text("[[")
    elif harm != "missing":
        (path.mkdir if harm == "folder" else lambda: os.mkfifo(path))()
    with pytest.raises(InputError, match=r"invitation\.toml: is (no invitation|not there)"):
        read_invitation(tmp_path, COORDINATOR.public)


def test_a_roster_that_gives_silos_of_honest_sites_to_an_accomplice_is_refused(tmp_path):
    """It passed `colluding = 1/3` with 2 accomplices of 6, and one site's sum was read exactly."""
    sites = sites_in(tmp_path, *LISTED)
    honest = roster_of(sites, SILOS)
    assert [one.key for one in honest] == sorted(one.public for one in (COORDINATOR, SITE, STRANGER))
    check_roster(sites, honest, SILOS, "the welcome")
    by_name = {one.name: one for one in honest}

    def roster(**silos):
        told = [one.model_copy(update={"silos": silos.get(one.name, one.silos)}) for one in honest]
        return [one for one in told if one.silos]

    accomplice = Identity("riga", bytes([9] * 32))
    more = [*honest, Member(name="riga", key=accomplice.public, silos=["silo 7"])]
    other_key = [
        one.model_copy(update={"key": accomplice.public}) if one.name == "graz" else one for one in honest
    ]
    for wrong, line in (
        (
            roster(graz=["silo 1", "silo 2"], wien=[]),
            r"the welcome has silo 'silo 2' at 'graz', .* at 'wien'",
        ),
        (roster(graz=[]), r"the welcome lacks silo 'silo 1', .* at 'graz'"),
        (sorted(more, key=lambda one: one.key), r"the welcome has (.* as site|4 sites)"),
        (sorted(other_key, key=lambda one: one.key), r"the welcome has .* with key .* as site"),
        (roster(graz=["silo 1", "silo 9"]), "the welcome has 'graz' with key"),
    ):
        with pytest.raises(InputError, match=line):
            check_roster(sites, wrong, SILOS, "the welcome")
    with pytest.raises(InputError, match="no site has the silo 'silo 5', which the federation has"):
        check_roster(sites, honest, [*SILOS, "silo 5"], "the welcome")
    assert by_name["graz"].silos == ["silo 1"]


def test_the_number_of_a_list_is_of_its_content_alone(tmp_path):
    number = number_of(sites_in(tmp_path / "a", *LISTED))
    assert number == number_of(sites_in(tmp_path / "b", *LISTED[::-1]))
    assert len(number) == 32
    others = ((COORDINATOR, ["silo 0", "silo 2"]), (SITE, ["silo 1", "silo 9"]), (STRANGER, ["silo 3"]))
    assert number != number_of(sites_in(tmp_path / "c", *others))


def test_the_digest_of_a_job_covers_all_keys_but_a_site_s_own():
    assert job_digest(job(shards="elsewhere", device="gpu", threads=7)) == job_digest(TEXT)
    assert job_digest(job(checkpoint={"every": 7}, tracking={"tensorboard": True})) == job_digest(TEXT)
    found = {job_digest(job(rounds=JOB.rounds + 1)), job_digest(TEXT), job_digest(job(seed=99))}
    found |= {job_digest(job(security={})), job_digest(job(evaluate={"every": 3}))}
    found.add(job_digest(job(local={**JOB.local.model_dump(exclude_none=True), "lr": 0.123})))
    assert len(found) == 6
    assert code_in(shared_job(TEXT)) == paths_in(shared_job(TEXT)) == []
    for text in (
        "",
        "[]",
        "[" * 9000,
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": 99999999999999999999}',
    ):
        with pytest.raises(InputError, match="the job of the invitation is no job"):
            job_digest(text)


NAMED = {
    "model": {"name": "subprocess:Popen", "args": "id"},
    "data": {"augment": "subprocess:Popen"},
    "cohort": {"select": "subprocess:Popen"},
    "aggregation": {"rule": "subprocess:Popen"},
    "task": {"name": "classification", "metrics": ["accuracy", {"name": "subprocess:Popen"}]},
    "x": [[{"y": "subprocess:Popen"}]],
}


@pytest.mark.parametrize("table", NAMED)
def test_code_is_refused_wherever_a_job_names_it(tmp_path, table):
    """Also of the standard library: `[model] name = "subprocess:Popen"` ran a command."""
    text = json.dumps({**json.loads(TEXT), table: NAMED[table]})
    told = invitation(tmp_path, text)
    add_consent(tmp_path, consent(text))
    with pytest.raises(
        InputError, match="the job names the code 'subprocess:Popen', and `code` there does not"
    ):
        admitted(tmp_path, told, text, SILOS, tmp_path)


def test_code_is_looked_at_before_it_is_imported_and_as_a_whole_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "own_unets"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (package / "inner" / "nets.py").write_text("def make(): pass")
    name = "own_unets.inner.nets:make"
    text = job(model={"name": name})
    add_consent(tmp_path, consent(text, code={name: code_digest(name)}))
    told = invitation(tmp_path, text)
    assert admitted(tmp_path, told, text, SILOS, tmp_path).code == {name: code_digest("own_unets:x")}
    (package / "inner" / "table.bin").write_bytes(b"1")
    with pytest.raises(
        InputError, match=r"code of 'own_unets.inner.nets:make' is .* there, and .* is installed"
    ):
        admitted(tmp_path, told, text, SILOS, tmp_path)
    assert not (tmp_path / "ran").exists()
    assert not [module for module in sys.modules if module.startswith("own_unets")]
    for wrong, line in (
        ("absent_module:f", "is not installed here"),
        ("sys:exit", "has no files"),
        (":f", "is not"),
    ):
        with pytest.raises(InputError, match=line):
            code_digest(wrong)
    assert code_digest("subprocess:Popen") != code_digest("json:loads")


def test_without_a_consent_that_fits_nothing_is_admitted(tmp_path):
    told = invitation(tmp_path)

    def refused(line, text=TEXT, told=told):
        with pytest.raises(InputError, match=line):
            admitted(tmp_path, told, text, SILOS, Path("/mnt/heart"))

    missing = rf"/mnt/heart: job {job_digest(TEXT)[:8]} is not in .*; .* `mpifl consent /mnt/heart --coor"
    refused(missing)
    add_consent(tmp_path, consent(coordinator=SITE.public))
    refused(missing)
    add_consent(tmp_path, consent())
    assert admitted(tmp_path, told, TEXT, SILOS, tmp_path).silos == ["silo 1"]
    refused(r"job .* is not in", job(rounds=77))  # by --resume --force with another job
    refused("the federation of job", told=told.model_copy(update={"federation": "00" * 32}))
    weighted = job(model={"name": "mlp", "weights": "/etc/shadow"})
    add_consent(tmp_path, consent(weighted))
    refused("the job names the file '/etc/shadow', and `paths` there does not", weighted)
    for tables in (
        {"aggregation": {"rule": "median"}, "cohort": {"weights": "uniform"}},
        {"compression": {"upload": "qsgd", "bits": 4}},
    ):
        single = job(**tables)
        add_consent(tmp_path, consent(single))
        refused("needs each silo's update by itself, and `singles` there is false; .* --singles", single)
        add_consent(tmp_path, consent(single, singles=True))
        assert admitted(tmp_path, told, single, SILOS, tmp_path)
    masked = job(security={})
    for text in (masked, TEXT):
        add_consent(tmp_path, consent(text, masks="required"))
    refused(r"masks = 'required', and the job has no \[security\]")
    bare = job(security={"masks": False})
    add_consent(tmp_path, consent(bare, masks="required"))
    refused(r"masks = 'required', and the job has no \[security\]", bare)
    assert admitted(tmp_path, told, masked, SILOS, tmp_path)
    swapped = told.model_copy(update={"site": told.site[:2]})
    refused(r"the invitation lacks silo '.*', .*sites\.toml at", masked, swapped)
    (tmp_path / "sites.toml").unlink()
    refused(r"masks = 'required' needs .*sites\.toml, which is not there", masked)


def test_a_consent_that_is_wrong_is_one_line(tmp_path):
    add_consent(tmp_path, consent())
    path = tmp_path / "consent.toml"
    whole = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    add_consent(tmp_path, consent(questions=9))
    assert [one.questions for one in read_consents(tmp_path)] == [9]
    for text, line in (
        (whole + whole, "run 2: job .* is there twice; remove one"),
        (whole.replace("questions = 3", "questions = -3"), r"run\.1\.questions: .*, not '-3'"),
        (whole.replace('masks = "none"', 'masks = "maybe"'), r"run\.1\.masks: "),
        (whole.replace("runs = 1", "runs = 1\ncolour = 3"), r"run\.1\.colour"),
        ("[[", r"consent\.toml: cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=line):
            read_consents(tmp_path)


def test_runs_and_questions_are_counted_and_repeats_are_not(tmp_path):
    own = consent()
    question = ask().model_copy(update={"job": own.job})

    def count(k, run=RUN):
        ConsentLedger(tmp_path, own).count(run, question, f"{k:064x}")

    ConsentLedger(tmp_path, own).count(RUN)
    for k in (1, 2, 2, 1, 3, 3):
        count(k)
    with pytest.raises(InputError, match=r"questions = 3 for job .*, and all are used; nothing is answered"):
        count(4)
    with pytest.raises(InputError, match=r"runs = 1 for job .*, and all are used"):
        ConsentLedger(tmp_path, own).count("cd" * 16)
    with pytest.raises(InputError, match=r"the coordinator asks for job efefefef\.\.\., and .* has"):
        ConsentLedger(tmp_path, own).count(RUN, ask(), DIGEST)
    more = ConsentLedger(tmp_path, consent(runs=2, questions=4))
    more.count("cd" * 16)
    more.count("cd" * 16, question, f"{4:064x}")
    count(3)


def test_numbers_of_single_silos_leave_as_the_consent_names_them():
    report = records()["answer"].report
    assert consent(figures=["loss"]).shown(report) == report
    assert consent().shown(report).headers[0].scalars == {}
    assert consent().shown(report).headers[0].weight == report.headers[0].weight


def test_all_that_leaves_has_a_line_before(tmp_path):
    ends = TwoEnds(tmp_path, in_memory=True)
    ends.site._leaves = SentFile(tmp_path, RUN).note
    ends.site.dispatch(0, NoRecord(life=LIFE, of=4, why="no"))
    sealed = ends.site.seal(4, records()["answer"], vectors())
    ends.site.put(sealed, {"round": 3, "work": "train"})
    first, second = SentFile(tmp_path, RUN).lines
    assert (first.n, first.kind, first.vectors, first.numbers, first.round) == (0, "no", {}, [], None)
    assert second.vectors == {name: len(vector) for name, vector in vectors().items()}
    assert (second.round, second.work, second.silos, second.numbers) == (3, "train", [1], ["loss"])
    assert (second.bytes, second.sha256) == (sealed.bytes, sealed.sha256)
    assert sum(map(len, ends.shared["up"].values())) == first.bytes + second.bytes


def test_a_run_has_a_private_folder_with_a_key_and_a_lock(tmp_path):
    home = RunHome(tmp_path, RUN)
    assert home.key().public == RunHome(tmp_path, RUN).key().public
    assert home.key().public != RunHome(tmp_path, "cd" * 16).key().public
    assert home.folder.stat().st_mode & 0o777 == home.outbox(SITE.public).stat().st_mode & 0o777 == 0o700
    in_use = pytest.raises(InputError, match=r"is in use by .*; end that first$")
    with home.held(), in_use, RunHome(tmp_path, RUN).held():
        pass
    path = home.folder / "run.key"
    path.chmod(0o644)
    with pytest.raises(InputError, match="has mode 0644, others may read it"):
        home.key()
    path.chmod(0o600)
    for text in ("", "ab", "xy" * 32, "é" * 32):
        path.write_text(text)
        with pytest.raises(InputError, match=r"run\.key: what is there is no key"):
            home.key()
    home.forget("run.key")
    assert not path.exists()
    for run in ("../../x", "AB" * 16, RUN + "\n", "", "."):
        with pytest.raises(InputError, match="a run's id has 32 digits 0-9a-f"):
            RunHome(tmp_path, run)
