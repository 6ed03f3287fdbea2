"""Marks of ledgers: a site whose folder was put back from a copy finds out by what it told before."""

import pytest

from mpifl.common import InputError
from mpifl.wings.site import SiteLedger, SiteSeal
from mpifl.wings.sites.letters import SignedHeader
from mpifl.wings.sites.masks import LedgerMarks


def marks_at(folder, seal=None):
    """Return a site's ledger and its marks, as a start of it makes them."""
    ledger = SiteLedger(folder / "released.jsonl", SignedHeader, lambda line: None)
    return ledger, LedgerMarks(seal or SiteSeal(bytes(32), "run"), [ledger])


def add(ledger, text):
    ledger.record(lambda: SignedHeader(header=text, signature="00" * 64))


def test_a_ledger_that_was_put_back_or_is_another_is_found_out(tmp_path):
    ledger, marks = marks_at(tmp_path)
    marks.check(marks.mark())
    add(ledger, "first")
    copy, early = (tmp_path / "released.jsonl").read_bytes(), marks.mark()
    add(ledger, "second")
    late = marks.mark()
    for mark in ("", early, late):
        marks_at(tmp_path)[1].check(mark)
    (tmp_path / "released.jsonl").write_bytes(copy)
    again, here = marks_at(tmp_path)
    here.check(early)
    with pytest.raises(InputError, match=r"has 1 lines, and had 2 .* put back from a copy: nothing"):
        here.check(late)
    add(again, "another second")
    with pytest.raises(InputError, match=r"released\.jsonl: .*put back from a copy"):
        here.check(late)


def test_a_mark_of_another_site_or_run_is_none(tmp_path):
    _, marks = marks_at(tmp_path)
    for seal in (SiteSeal(bytes([1]) * 32, "run"), SiteSeal(bytes(32), "another run")):
        _, others = marks_at(tmp_path, seal)
        with pytest.raises(InputError, match="was not made by this site in this run"):
            marks.check(others.mark())
    for odd in ("00", "ab" * 600):
        with pytest.raises(InputError, match="was not made by this site in this run"):
            marks.check(odd)
