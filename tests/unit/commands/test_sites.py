"""The commands `sites init`, `sites entry`, `consent` and `withdraw`: how a site agrees, and leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from links.https_ends import pin, write_certificate
from typer.testing import CliRunner, Result
from unit.builders import Alone, write_folder

from mpifl.cli import app
from mpifl.common import InputError
from mpifl.common.machine import signals
from mpifl.data.shards import read_federation
from mpifl.run.job import read_job
from mpifl.wings import OVER_SITES, wings_of
from mpifl.wings.site import identity_of
from mpifl.wings.sites import join, site_run
from mpifl.wings.sites.consents import HttpsServer, admitted, read_consents, read_invitation
from mpifl.wings.sites.told_job import names_of_silos, welcome_text

JOB = """
name = "heart"
shards = "{shards}"
rounds = 4
[model]
name = "mlp"
hidden = [3]
[algorithm]
name = "fedavg"
[local]
lr = 0.1
[evaluate]
every = 2
"""


class Places:
    """A coordinator `bern` and the sites `north` and `south`, each with a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        write_folder(folder / "shards", [12, 12, 12])
        self.silos = names_of_silos(read_federation(folder / "shards"))
        (folder / "job.toml").write_text(JOB.format(shards=folder / "shards"))
        entries = ""
        for name, silos in (("bern", []), ("north", self.silos[:2]), ("south", self.silos[2:])):
            self.at(name, "identity", "make", name)
            given = [word for silo in silos for word in ("--silos", silo)]
            entries += self.at(name, "sites", "entry", *given).stdout if silos else ""
        (folder / "sites.toml").write_text(entries)
        self.link, self.run = folder / "heart", folder / "runs" / "heart"

    def at(self, name: str, *arguments: object, given: str = "") -> Result:
        self._patch.setenv("MPIFL_SITE", str(self.folder / name))
        return CliRunner().invoke(app, list(map(str, arguments)), input=given, catch_exceptions=False)

    def init(self, *more: object, out: str = "runs/heart") -> Result:
        link = ("--link", self.link, "--out", self.folder / out)
        return self.at("bern", "sites", "init", self.folder / "job.toml", *link, *self.sites(), *more)

    def join(self, name: str, shards: str = "shards") -> bool:
        """Have a site join by one rank. It is asked to end when it says that it waits."""
        self._patch.setenv("MPIFL_SITE", str(self.folder / name))
        say = site_run.say
        self._patch.setattr(site_run, "say", lambda line: (say(line), signals.note()))
        try:
            return join(self.link, self.folder / shards, {"device": "cpu"}, Alone(), wings_of)
        finally:
            self._patch.setattr(site_run, "say", say)
            signals.clear()

    def sites(self) -> tuple[object, ...]:
        return "--sites", self.folder / "sites.toml"

    @property
    def key(self) -> str:
        return identity_of(self.folder / "bern").public


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(tmp_path, monkeypatch)


def test_an_invitation_is_made_looked_at_and_consented_to(places):
    done = places.init()
    digits = "-".join(places.key[k : k + 4] for k in range(0, 32, 4))
    assert "heart/invitation.toml is written: 2 sites, 3 silos, job " in done.stdout
    assert f"Your key: {digits}; say it to each site by another way" in done.stdout
    invitation = read_invitation(places.link, digits)
    assert read_invitation(places.run, places.key) == invitation
    assert (places.run / OVER_SITES).read_text() == f"{places.link}\n"
    job = done.stdout.split("job ")[1][:8]
    assert invitation.job_digest.startswith(job)

    north = places.folder / "north"
    refused = places.at("north", "consent", places.link, "--coordinator", digits, given="n\n")
    assert (refused.exit_code, read_consents(north)) == (1, [])
    (north / "sites.toml").write_text((places.folder / "sites.toml").read_text())
    asked = ("consent", places.link, "--coordinator", digits, "--figures", "loss")
    agreed = places.at("north", *asked, given="y\n")
    for part in (
        f"job heart ({job}) of bern: fedavg (algorithm), mlp (model), classification (task)",
        "rounds: 4; at most 16 questions and 1 run",
        f"yours: {', '.join(places.silos[:2])}",
        "leaves in a round: this site's sum of its silos' updates, which the coordinator sees",
        "leaves in a scoring: sums over this site's held-out rows, if it has some (metrics' states), which",
        "leaves for each silo: its weight, its state's digest, and loss",
        "privacy: no noise is added",
        "number of sites.toml: ",
        f"consent.toml has job {job}; take part by `mpifl join {places.link} --shards DIR`",
    ):
        assert part in agreed.stdout, agreed.stdout
    (entry,) = read_consents(north)
    assert (entry.silos, entry.questions, entry.figures) == (places.silos[:2], 16, ["loss"])

    assert "these are that silo's" not in agreed.stdout
    at_south = ("consent", places.link, "--coordinator", digits, "--yes", "--runs", 3)
    agreed = places.at("south", *at_south)
    assert "which the coordinator sees; with one silo these are that silo's" in agreed.stdout
    assert "at most 48 questions and 3 runs" in agreed.stdout
    assert [one.questions for one in read_consents(places.folder / "south")] == [48]

    spec, job = read_federation(places.folder / "shards"), read_job(places.folder / "job.toml")
    for changes, counts in (({"shards": "own", "device": "gpu"}, True), ({"rounds": 5}, False)):
        told = welcome_text(job.model_copy(update=changes), spec)["job"]
        if counts:
            assert admitted(north, invitation, told, places.silos, places.link) == entry
        else:
            with pytest.raises(InputError, match=r"job .* is not in .*consent\.toml; look at it by"):
                admitted(north, invitation, told, places.silos, places.link)


def test_what_cannot_be_an_invitation_is_one_line(places):
    def refused(line, *more, **given):
        with pytest.raises(InputError, match=line):
            places.init(*more, **given)

    refused(r"\[checkpoint\] mirror = true: no rank of a site takes", "--set", "checkpoint.mirror=true")
    refused(r"\[cohort\] select = 'poisson'", "--set", "cohort.select=poisson")
    whole = (places.folder / "sites.toml").read_text()
    (places.folder / "sites.toml").write_text(whole.replace(places.silos[2], "elsewhere"))
    refused("no site has the silo '.*', which the federation has; add it to the silos of its site")
    (places.folder / "sites.toml").write_text(whole)
    assert not places.link.exists()
    places.init()
    refused(r"runs/heart/invitation\.toml: is there, and sites know a run by it; .* by --out")
    refused(r"heart/invitation\.toml: is there, .* by --link", out="runs/other")
    (places.folder / "bern" / "identity.key").unlink()
    refused(r"bern: has no identity\.key; make it by `mpifl identity make`", out="runs/other")


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        ("file", r"silo_0000\.h5: "),
        ("name", r"federation\.json has no silo '.*', which the invitation has for this site"),
        (
            "digest",
            r"federation\.json: has digest .*, the invitation .*; take the coordinator's file",
        ),
    ],
)
def test_a_site_whose_shards_are_others_says_so_before_it_waits(places, capsys, harm, line):
    """It waited for the coordinator first, perhaps for days."""
    places.init()
    places.at("north", "consent", places.link, "--coordinator", places.key, "--yes")
    federation = places.folder / "shards" / "federation.json"
    whole = federation.read_text()
    if harm == "file":
        (places.folder / "shards" / "silo_0000.h5").unlink()
    else:
        told = json.loads(whole)
        told["silos"][0 if harm == "name" else 2] |= (
            {"name": "elsewhere"} if harm == "name" else {"sha256": "0" * 64}
        )
        federation.write_text(json.dumps(told))
    with pytest.raises(InputError, match=line):
        places.join("north")
    assert capsys.readouterr().out == ""
    assert [path.name for path in places.link.iterdir()] == ["invitation.toml"]


def test_a_consent_names_no_scoring_that_the_job_has_not(places):
    places.init("--set", "evaluate.silos=false")
    said = places.at("north", "consent", places.link, "--coordinator", places.key, "--yes").stdout
    assert "leaves in a round" in said
    assert "scoring" not in said


def test_a_consent_to_what_is_not_this_site_s_is_refused(places):
    places.init()

    def refused(line, name="north", key=None):
        with pytest.raises(InputError, match=line):
            places.at(name, "consent", places.link, "--coordinator", key or places.key, "--yes")

    refused("takes 32 to 64 digits", key="8ddc-4241")
    refused("the coordinator's key is abab.*; do not take part", key="ab" * 32)
    refused("heart: does not invite this site's key", name="bern")
    (places.folder / "north" / "sites.toml").write_text(
        (places.folder / "sites.toml").read_text().replace('name = "south"', 'name = "west"')
    )
    refused(r"the invitation has silo '.*' at 'south', .*sites\.toml at 'west'; nothing is answered")
    assert not (places.folder / "north" / "consent.toml").exists()


def test_a_coordinator_has_the_shards_of_no_silo(places):
    """`check` wanted --shards-elsewhere, and `train` without --resume named a shard of another site."""
    places.init()
    for entry in read_federation(places.folder / "shards").silos:
        (places.folder / "shards" / entry.file).unlink()
    asked = places.folder / "job.toml", "--out", places.run
    checked = places.at("bern", "check", *asked)
    assert "no error, but read the line above" in checked.stdout, checked.output
    (places.run / "job.toml").write_text((places.folder / "job.toml").read_text())
    with pytest.raises(InputError, match="holds a run already; continue with it by --resume"):
        places.at("bern", "train", *asked)


def test_a_site_waits_aloud_and_when_it_withdraws_is_out_of_the_run_for_good(places, capsys):
    """It printed nothing for as long as no coordinator ran."""
    places.init()
    agree = ("consent", places.link, "--coordinator", places.key, "--yes")
    for name in ("north", "south"):
        places.at(name, *agree)
    kept = places.at("south", "withdraw", places.link, given="n\n")
    assert (kept.exit_code, len(read_consents(places.folder / "south"))) == (1, 1)
    early = places.at("north", "withdraw", places.link, "--yes")
    assert "its consent is removed, and nobody was told" in early.stdout
    assert not places.join("south")
    assert capsys.readouterr().out == f"south: waiting for the coordinator's letter in {places.link}\n"
    (up,) = places.link.glob("*/up")
    (up / "000000-withdraw.msg").mkdir()
    with pytest.raises(InputError, match=r"a folder lies in its place; remove it, .* is not told yet$"):
        places.at("south", "withdraw", places.link, "--yes")
    assert len(read_consents(places.folder / "south")) == 1, "the command can be given again"
    (up / "000000-withdraw.msg").rmdir()
    told = places.at("south", "withdraw", places.link, "--yes")
    assert "its consent is removed, and it answers nothing any more" in told.stdout
    assert f"the coordinator is told by 000000-withdraw.msg in {places.link}" in told.stdout
    assert len([*places.link.glob("*/up/000000-withdraw.msg")]) == 1
    assert [read_consents(places.folder / name) for name in ("north", "south")] == [[], []]
    with pytest.raises(InputError, match=r"no job of it is in consent\.toml; look at it by"):
        places.at("south", "withdraw", places.link, "--yes")
    places.at("south", *agree)
    with pytest.raises(InputError, match=r"this site has left run .*; it can take part in another run alone"):
        places.join("south")


def test_an_invitation_names_a_server_and_its_key(places):
    """A site gets the invitation alone; what cannot be served is one line."""
    cert, key = write_certificate(places.folder)
    done = places.init("--server", "https://fl.example.org:8443/", "--cert", cert)
    assert f"serve the folder by `mpifl sites serve {places.link}`" in done.stdout
    assert "say it to each site by another way than the invitation" in done.stdout
    told = read_invitation(places.link, places.key)
    assert told.https == HttpsServer(url="https://fl.example.org:8443", key=pin())
    agreed = places.at("north", "consent", places.link, "--coordinator", places.key, "--yes")
    assert f"letters go to: https://fl.example.org:8443, whose key is {pin()[:16]}..." in agreed.stdout

    def refused(line, *words):
        with pytest.raises(InputError, match=line):
            places.at("bern", "sites", *words)

    serve = ("serve", places.link, "--listen", "localhost:0", "--cert", cert, "--key", key)
    refused("--listen here: give HOST:PORT", *serve[:3], "here", *serve[4:])
    refused(r"cert\.pem: is not the key of .*cert\.pem, without a password", *serve[:-1], cert)
    refused(r"key\.pem: holds no certificate in PEM \(it has none\)", *serve[:5], key, *serve[6:])
    refused(
        r"away: holds no certificate in PEM \(No such file", *serve[:5], places.folder / "away", *serve[6:]
    )
    text = (places.link / "invitation.toml").read_text()
    (places.link / "invitation.toml").write_text(text.replace("fl.example.org", "evil.example.org"))
    refused("is not as 'bern' has signed it", *serve)
    (places.link / "invitation.toml").write_text(text.replace(":8443", ":99999"))
    refused(r"https\.url: .*Port out of range", *serve)
    init = ("init", places.folder / "job.toml", *places.sites(), "--link", places.folder / "other")
    init += ("--out", places.folder / "out")
    refused("--server http://x: takes https://HOST or https://HOST:PORT", *init, "--server", "http://x")
    refused("--cert .*: is for a server; give --server, or leave it out", *init, "--cert", cert)
    places.at("bern", "sites", *init)
    refused("its invitation names no server", "serve", places.folder / "other", *serve[2:])


def test_a_site_joins_as_a_slurm_job(places):
    """Whoever may not take part hears it before a job waits in a queue."""
    places.init()
    shards = ("--shards", places.folder / "shards", "--dry-run", "--launcher", "srun")

    def submit(*words):
        return places.at("north", "submit", "--join", places.link, *words)

    with pytest.raises(InputError, match=r"no job of it is in consent\.toml"):
        submit(*shards)
    places.at("north", "consent", places.link, "--coordinator", places.key, "--yes")
    told = submit(*shards, "--time", "30", "--cpus-per-task", "2").stdout
    run = read_invitation(places.link, places.key).run
    for line in (
        "#SBATCH --job-name=join-heart\n",
        "#SBATCH --time=30\n",
        f"journal={places.folder}/north/runs/{run}/journal.jsonl\n",
        f"join {places.link} --shards {places.folder}/shards --device auto --threads 2)\n",
        "--ntasks=2 --cpus-per-task=2",
    ):
        assert line in told, told
    for words in (("--dry-run",), (*shards, "--force"), (*shards, "--set", "seed=1")):
        with pytest.raises(
            InputError, match="--join: takes the folder with the invitation, --shards DIR, and"
        ):
            submit(*words)
    with pytest.raises(InputError, match="--join: takes the folder"):
        places.at("north", "submit", places.folder / "job.toml", *shards)
    (places.folder / "shards" / "silo_0000.h5").unlink()
    with pytest.raises(InputError, match=r"silo_0000\.h5"):
        submit(*shards)
