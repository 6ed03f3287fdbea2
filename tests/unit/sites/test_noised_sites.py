"""Noise over sites in one process: the bits of one world, the same ledgers, and what a budget ends."""

import json
import os

import pytest
import tomli_w
from sites import kit
from unit.builders import Alone
from unit.sites.test_masked_sites import Masked, masked
from unit.sites.test_questions import SITES_OF, Here, bits, folders, made  # noqa: F401

from mpifl.common import BudgetSpent, InputError
from mpifl.data.shards import read_federation
from mpifl.run.folder import read_metrics
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.dpsgd import figures_of_plan, plans, question_ledger
from mpifl.wings.privacy import SiteFolder, silo_level_noise
from mpifl.wings.sites import joining
from mpifl.wings.sites.consents import read_consents, read_invitation, shown
from mpifl.wings.sites.consents.needed_numbers import needed_numbers

UNSCORED = {"evaluate": {"silos": False}}
EXAMPLES = {"privacy": {"clip": 0.5, "noise": 0.8, "delta": 1e-3}, **UNSCORED}
SILOS = {
    "privacy": {"level": "silo", "clip": 0.5, "noise": 0.8, "delta": 1e-2},
    "cohort": {"weights": "uniform"},
    **UNSCORED,
}
SUMMED = {
    "algorithm": {"name": "fedsgd"},
    "local": {"lr": 0.1, "batch_size": 12},
    "security": {"least": 1},
    "privacy": {**EXAMPLES["privacy"], "noise_at": "sum"},
    **UNSCORED,
}
MODES = {
    "examples": EXAMPLES,
    "examples under masks": {**EXAMPLES, "security": {"least": 1}},
    "examples by a rule": {**EXAMPLES, "aggregation": {"rule": "median"}},
    "silos": SILOS,
    "examples in a sum": SUMMED,
    "silos in a sum": {
        **SILOS,
        "security": {"least": 1},
        "privacy": {**SILOS["privacy"], "noise_at": "sum"},
    },
}


def key_into(folder, secret):
    """Have a folder draw by the secret of another."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    SiteFolder(folder)  # makes it as sites do
    (folder / "key").write_bytes((secret / "key").read_bytes())


def charged(folder):
    """What a ledger of budgets has, whatever the order of silos that work at once."""
    path = folder / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sorted((one["silo"], one["round"], one["question"], one["answer"], one["left"]) for one in lines)


def costs(record):
    return {name: value for name, value in record.items() if name.startswith(("epsilon", "budget", "noise"))}


class Noised(Masked):
    """Sites that draw by the secret of one world, and charge ledgers of their own."""

    def __init__(self, folder, job, secret, budget="", **more):
        super().__init__(folder, job, **more)
        for name in SITES_OF:
            key_into(self.at(name), secret)
            if budget:
                (self.at(name) / "budget.toml").write_text(budget)
            if not job.secure:  # such a list asks for masks
                (self.at(name) / "sites.toml").unlink()

    def came(self, question):
        return super().came(question) if self.job.secure else Here.came(self, question)

    def answer(self, site, *given):
        os.environ["MPIFL_SITE"] = str(self.at(site))
        return super().answer(site, *given)


def compared(made, tmp_path, tables, **more):  # noqa: F811
    """Train in one world and over sites, by the same secrets; return the sites."""
    job, secret, one = made(**tables), tmp_path / "secret", tmp_path / "one"
    key_into(secret, SiteFolder(tmp_path / "drawn").folder)
    if more.get("budget") and "level" not in tables["privacy"]:
        (secret / "budget.toml").write_text(more["budget"])
    for run in (one, tmp_path / "run"):
        key_into(run / "privacy", secret)
    train(job, one, (), False, Alone(), wings_of=lambda job: [w for w in wings_of(job) if w.name != "site"])
    here = Noised(tmp_path / "run-sites", job, secret, **more)
    masked(job, tmp_path / "run", here=here)
    return here


@pytest.mark.parametrize("name", MODES)
def test_the_bits_and_the_charges_of_one_world(made, tmp_path, name):  # noqa: F811
    """Under masks a site dies before each sum, which it reads from its disk."""
    here = compared(made, tmp_path, MODES[name], killed={"west"})
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    of_sites = sorted(line for site in SITES_OF for line in charged(here.at(site)))
    assert of_sites == charged(tmp_path / "secret")
    assert len(of_sites) == (0 if "silos" in name else 4 * 5)
    for site, silos in SITES_OF.items():
        assert {line[0] for line in charged(here.at(site))} <= {*silos}
    run, one = ([costs(record) for record in read_metrics(tmp_path / at)] for at in ("run", "one"))
    assert run == one
    assert run[-1]["epsilon"] > 0


@pytest.mark.parametrize("masks", [False, True])
def test_a_budget_ends_the_run_where_it_ends_one_world(made, folders, tmp_path, masks):  # noqa: F811
    """By the number that silos tell of it, which is told openly under masks where nothing is left."""
    tables = EXAMPLES | ({"security": {"least": 1}} if masks else {})
    job = made(**tables)
    spec = read_federation(folders / "shards")
    most = max(figures_of_plan(job, plans(job, spec, job.build_algorithm()), rounds=2))
    budget = f"epsilon = {most * 1.001}\ndelta = 1e-3\n"
    here = compared(made, tmp_path, tables, budget=budget)
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    told = [
        [one.get("budget_left") for one in read_metrics(at)] for at in (tmp_path / "run", tmp_path / "one")
    ]
    assert told[0] == told[1]
    assert told[0][-1] == 0
    assert len(told[0]) == 2
    assert [len(charged(here.at(site))) for site in SITES_OF] == [4, 2, 4]


def test_a_site_whose_budget_is_spent_refuses_before_it_says_hello(
    made,  # noqa: F811
    folders,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    path = tmp_path / "job.toml"
    told = made(**EXAMPLES).model_dump(mode="json", exclude_defaults=True)
    path.write_text(tomli_w.dumps(told))
    kit.set_up(tmp_path, path, SITES_OF)
    monkeypatch.setenv("MPIFL_SITE", str(home := kit.home(tmp_path, "west")))
    link, shards = tmp_path / "link", folders / "shards"
    assert joining(link, shards)[0] == 2
    (home / "budget.toml").write_text("epsilon = 0.01\ndelta = 1e-3\n")
    with pytest.raises(BudgetSpent) as refused:
        joining(link, shards)
    assert str(refused.value) == (
        "silo 2: its privacy budget is spent: with epsilon 0 in the site's ledger, the site's epsilon "
        "0.01 at delta 0.001 has 0.01 left, which allows 0 of 2 more steps; a larger epsilon in "
        f"{home}/budget.toml would allow more"
    )
    assert not (home / "ledger.jsonl").exists()
    (home / "budget.toml").unlink()
    (consent,) = read_consents(home)
    told = list(shown(read_invitation(link, consent.coordinator), consent, home))
    assert "noise: this site adds the noise, and counts it in its ledger.jsonl" in told
    assert any(
        line.startswith("privacy: hides each example of a silo in what leaves in a round, ") for line in told
    )


def test_a_site_with_a_budget_refuses_a_job_that_it_does_not_count(made, tmp_path):  # noqa: F811
    with pytest.raises(InputError, match=r"has a budget\.toml, and the job has no"):
        compared(made, tmp_path, SILOS, budget="epsilon = 1.0\ndelta = 1e-3\n")


def test_a_consent_names_the_numbers_by_which_noise_is_counted(made):  # noqa: F811
    named = (question_ledger.STEPS, question_ledger.LEFT), (question_ledger.LEFT,), (), ()
    for tables, names in zip((EXAMPLES, SUMMED, SILOS, {}), named, strict=True):
        assert needed_numbers(made(**tables).model_dump()) == [*names]
    norms = {"privacy": {"level": "silo", "clip": "adaptive"}}
    assert needed_numbers(norms) == [silo_level_noise.WHOLE]
