"""What parties come to share over a server that they do not trust, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mpifl.common import InputError
from mpifl.wings.masked import Offer, Session
from mpifl.wings.masked.session import _said as session_said
from mpifl.wings.site import Identity, Sites, read_sites
from mpifl.wings.site.ciphers import Exchange

IDENTITIES = {name: Identity(name, bytes([k + 1] * 32)) for k, name in enumerate("abc")}
SILOS = {"a": ["a1", "a2"], "b": ["b1"], "c": ["c1", "c2"]}
PARTIES = [("a", ["a1"]), ("a", ["a2"]), ("b", ["b1"]), ("c", ["c1", "c2"])]


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    path = tmp_path / "sites.toml"
    path.write_text("\n".join(IDENTITIES[name].listing(SILOS[name]) for name in "abc"))
    return read_sites(path)


def opened(sites: Sites | None, run: str = "run") -> dict[int, Session]:
    """Return a session for each party, at the ranks from 1 on."""
    signing = sites is not None
    made = (Session(run, silos, IDENTITIES[name] if signing else None, sites) for name, silos in PARTIES)
    return dict(enumerate(made, 1))


def offers_of(sessions: dict[int, Session]) -> dict[int, Offer]:
    return {rank: one.offer for rank, one in sessions.items()}


@pytest.mark.parametrize("signed", [False, True])
def test_each_pair_shares_a_secret_that_no_other_pair_has(sites, signed):
    sessions = opened(sites if signed else None)
    as_sent = {rank: one.model_dump_json() for rank, one in offers_of(sessions).items()}
    offers = {rank: Offer.model_validate_json(record) for rank, record in as_sent.items()}
    agreed = {rank: session.agree(offers, rank) for rank, session in sessions.items()}
    assert all(set(secrets) == set(sessions) - {rank} for rank, secrets in agreed.items())
    pairs = {(i, j): agreed[i][j] for i in sessions for j in sessions if i < j}
    assert all(agreed[j][i] == secret for (i, j), secret in pairs.items())
    assert len(set(pairs.values())) == 6
    other = opened(None)
    assert other[1].agree(offers_of(other), 1)[2] != agreed[1][2], "a key is for one start alone"


@pytest.mark.parametrize("silos", [[], [""], ["x" * 1025]], ids=["none", "no name", "a long name"])
def test_a_party_has_silos_with_names(silos):
    with pytest.raises(InputError, match="a party under masks has names of 1 to 1024 characters for each"):
        Session("run", silos)


def test_a_party_alone_shares_nothing():
    session = Session("run", ["a1"])
    assert session.agree({1: session.offer}, 1) == {}


def test_the_same_offers_are_looked_at_once(sites, monkeypatch):
    sessions = opened(sites)
    offers = offers_of(sessions)
    first = sessions[1].agree(offers, 1)
    monkeypatch.setattr(Exchange, "shared", None)
    monkeypatch.setattr(Sites, "signed", None)
    assert sessions[1].agree(dict(reversed(offers.items())), 1) == first
    assert sessions[1].agree({1: offers[1], 3: offers[3]}, 1) == {3: first[3]}
    forged = offers | {3: offers[3].model_copy(update={"signature": offers[2].signature})}
    with pytest.raises(TypeError):  # it is looked at again
        sessions[1].agree(forged, 1)


def forged(offers, **changed):
    """Return the offers with that of rank 3 changed, after it was signed."""
    return offers | {3: offers[3].model_copy(update=changed)}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"key": "5d" * 32}, r"site 'b' \(silos 'b1'\): its offer is not signed for this run"),
        ({"signature": "00" * 64}, "its offer is not signed for this run by the key that"),
        ({"signature": ""}, "site 'b'.*: its offer is not signed, and .*sites.toml lists sites; make"),
        ({"site": ""}, "the party of silos 'b1': its offer is not signed"),
        ({"site": "d"}, r"site 'd'.*sites\.toml has no such site; add what `mpifl identity show` prints"),
        ({"site": "c"}, "site 'c'.*silo 'b1' is of site 'b' in .*sites.toml; correct the list"),
        ({"silos": ["b1", "c9"]}, "silo 'c9' is of no site in .*sites.toml"),
        ({"silos": ["c1"]}, "silo 'c1' is offered twice, by site 'b'.* and site 'c'"),
        ({"silos": ["b1", "b1"]}, "silo 'b1' is offered twice"),
    ],
    ids=str,
)
def test_what_a_server_changes_is_noticed(sites, changed, what):
    sessions = opened(sites)
    with pytest.raises(InputError, match=what):
        sessions[1].agree(forged(offers_of(sessions), **changed), 1)


def test_a_signature_is_for_one_run_and_one_site(sites):
    sessions, before = opened(sites), opened(sites, run="other run")
    with pytest.raises(InputError, match=r"site 'b'.*not signed for this run"):
        sessions[1].agree(offers_of(sessions) | {3: before[3].offer}, 1)
    fake = Session("run", ["b1"], IDENTITIES["c"]).offer.model_copy(update={"site": "b"})
    with pytest.raises(InputError, match=r"site 'b'.*not signed for this run by the key"):
        sessions[1].agree(offers_of(sessions) | {3: fake}, 1)


def test_fields_cannot_be_shifted_into_each_other():
    """What is signed must tell ["a", "b"] from ["a, b"], and the run from the site's name."""
    session = Session("run", ["x"], IDENTITIES["a"])
    said = {
        session_said(run, Offer(site=site, silos=silos, key="ab" * 32))
        for run, site, silos in (
            ("run", "a", ["b", "c"]),
            ("run", "a", ["b,c"]),
            ("run", "a", ['b","c']),
            ("runa", "", ["b", "c"]),
            ("run", "ab", ["c"]),
        )
    }
    assert len(said) == 5
    assert session.offer.signature


@pytest.mark.parametrize("signed", [False, True])
def test_a_party_finds_its_own_offer_as_it_made_it(sites, signed):
    sessions = opened(sites if signed else None)
    offers = offers_of(sessions)
    swapped = offers[1].model_copy(update={"key": Exchange().public.hex()})
    with pytest.raises(InputError, match="the server hands around another offer of it; nothing is sent"):
        sessions[1].agree(offers | {1: swapped}, 1)
    with pytest.raises(InputError, match="the server leaves its offer out"):
        sessions[1].agree({2: offers[2]}, 1)


def test_a_key_is_offered_once(sites):
    sessions = opened(None)
    offers = offers_of(sessions)
    again = offers[3].model_copy(update={"key": offers[1].key})
    with pytest.raises(InputError, match=r"session key '[0-9a-f]{64}' is offered twice, by the party"):
        sessions[1].agree(offers | {3: again}, 1)


def test_a_key_of_small_order_is_refused():
    sessions = opened(None)
    offers = offers_of(sessions)
    weak = offers[3].model_copy(update={"key": "00" * 32})
    with pytest.raises(InputError, match=r"party of silos 'b1': its session key 00000000\.\.\. gives"):
        sessions[1].agree(offers | {3: weak}, 1)


def test_a_site_that_its_own_list_does_not_know_does_not_begin(sites):
    with pytest.raises(InputError, match=r"sites\.toml: lists the sites, and this one has no key; make it"):
        Session("run", ["a1"], None, sites)
    with pytest.raises(InputError, match="silo 'z' is of no site"):
        Session("run", ["z"], IDENTITIES["a"], sites)
    with pytest.raises(InputError, match="not signed for this run by the key"):
        Session("run", ["a1"], Identity("a", bytes(32)), sites)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "ab"},
        {"key": "AB" * 32},
        {"signature": "ab"},
        {"site": "a" * 65},
        {"silos": []},
        {"silos": [""]},
        {"silos": "b1"},
        {"more": 1},
    ],
    ids=str,
)
def test_an_offer_is_strict(wrong):
    with pytest.raises(ValidationError):
        Offer.model_validate({"silos": ["b1"], "key": "ab" * 32} | wrong)
