"""A site's folder: its secret, its ledger, and what is refused."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mpifl.common import InputError
from mpifl.wings.privacy import BudgetEntry, SiteFolder, Steps, open_site
from mpifl.wings.site import refuse_unbudgeted


def entry(question="q", silo="a", shard="s", **more):
    return BudgetEntry(question=question, answer="x", silo=silo, shard=shard, taken=[(1.0, 0.1, 5)], **more)


def test_the_secret_is_made_once_and_the_folder_is_the_users_own(tmp_path: Path):
    one, other = SiteFolder(tmp_path / "site"), SiteFolder(tmp_path / "site")
    assert one.secret == other.secret
    assert one.secret != SiteFolder(tmp_path / "other").secret
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "site" / "key").stat().st_mode & 0o777 == 0o600


def test_many_ranks_that_come_first_make_one_secret(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda _: SiteFolder(tmp_path / "site").secret, range(16)))
    assert len(secrets) == 1


def test_a_line_is_seen_by_all_and_by_those_that_come_later(tmp_path: Path):
    one, other = SiteFolder(tmp_path / "site"), SiteFolder(tmp_path / "site")
    one.record(lambda: entry("q"))
    other.record(lambda: entry("r", silo="b"))
    assert one.answered("r") == other.answered("r") == SiteFolder(tmp_path / "site").answered("r")
    assert one.answered("q").steps == [Steps(1.0, 0.1, 5)]
    assert one.answered("p") is None


def test_a_silo_is_known_by_its_name_or_its_shard(tmp_path: Path):
    site = SiteFolder(tmp_path / "site")
    for question, silo, shard in (("1", "a", "s"), ("2", "a", "t"), ("3", "b", "s"), ("4", "b", "u")):
        site.record(partial(entry, question, silo, shard))
    assert [one.question for one in site.entries("a", "s")] == ["1", "2", "3"]
    assert len(site.entries()) == 4


def test_a_line_that_a_crash_has_torn_was_never_answered(tmp_path: Path):
    site = SiteFolder(tmp_path / "site")
    site.record(lambda: entry("q"))
    with (tmp_path / "site/ledger.jsonl").open("ab") as file:
        file.write(b'{"question": "half')
    again = SiteFolder(tmp_path / "site")
    assert len(again.entries()) == 1
    again.record(lambda: entry("r"))
    assert [one.question for one in SiteFolder(tmp_path / "site").entries()] == ["q", "r"]


def test_what_is_wrong_with_a_folder_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MPIFL_SITE", raising=False)
    with pytest.raises(InputError, match=r"MPIFL_SITE names no folder.*set it, such as"):
        open_site()
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    with pytest.raises(InputError, match="has mode 0755, others may look in; chmod 700"):
        SiteFolder(open_to_all)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        SiteFolder(tmp_path / "file")


def test_a_folder_put_back_without_its_secret_is_refused(tmp_path: Path):
    SiteFolder(tmp_path / "site").record(lambda: entry())
    (tmp_path / "site/key").unlink()
    with pytest.raises(InputError, match=r"has ledger\.jsonl and no key.*put the key back"):
        SiteFolder(tmp_path / "site")
    (tmp_path / "site/key").write_bytes(b"short")
    with pytest.raises(InputError, match="has 5 bytes, not 32"):
        SiteFolder(tmp_path / "site")


def test_a_folder_that_has_released_sums_and_lost_its_secret_is_refused(tmp_path: Path):
    """Else a new secret were made without a word, by which no sealed state opens."""
    SiteFolder(tmp_path / "site")
    (tmp_path / "site/released.jsonl").write_text("")
    (tmp_path / "site/key").unlink()
    with pytest.raises(InputError, match=r"has released\.jsonl and no key.*put the key back"):
        SiteFolder(tmp_path / "site")
    assert not (tmp_path / "site/key").exists()


def test_a_ledger_that_was_altered_is_refused(tmp_path: Path):
    site = SiteFolder(tmp_path / "site")
    site.record(lambda: entry("q"))
    ledger = tmp_path / "site/ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b"nonsense\n")
    with pytest.raises(InputError, match=r"ledger\.jsonl: line 2 is not a line of a ledger"):
        SiteFolder(tmp_path / "site").entries()
    os.truncate(ledger, 10)
    with pytest.raises(InputError, match="is shorter than it was"):
        site.entries()


def test_a_site_with_a_budget_refuses_jobs_without_privacy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    SiteFolder(tmp_path / "site")
    refuse_unbudgeted()
    (tmp_path / "site/budget.toml").write_text("epsilon = 2.0\ndelta = 1e-5\n")
    assert open_site().budget.epsilon == 2.0
    with pytest.raises(InputError, match=r"has a budget\.toml, and the job has no \[privacy\] with noise"):
        refuse_unbudgeted()
    (tmp_path / "site/budget.toml").write_text("epsilon = -1\ndelta = 1e-5\n")
    with pytest.raises(InputError, match=r"budget\.toml: epsilon: "):
        open_site()
    (tmp_path / "site/budget.toml").unlink()
    (tmp_path / "site/budget.toml").symlink_to("not mounted")
    for look, line in ((refuse_unbudgeted, "has a budget"), (open_site, "budget.toml: cannot be read")):
        with pytest.raises(InputError, match=line):
            look()
