"""Letters arrive as they were sent or not at all: each is for one run, party, number and kind."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
import torch
from links.two_ends import (
    COORDINATOR,
    HELLO,
    KEYS,
    LIFE,
    RUN,
    SITE,
    STRANGER,
    TwoEnds,
    ask,
    post,
    records,
    same,
    vectors,
)

from mpifl.common import InputError
from mpifl.wings.masked import Offer, Session
from mpifl.wings.masked.session import _said
from mpifl.wings.site import Exchange, read_sites
from mpifl.wings.sites.letters import (
    EndRecord,
    Journal,
    LetterFault,
    Mailbox,
    NoRecord,
    Superseded,
    header_of,
    mailbox,
    sealed_letter,
)
from mpifl.wings.sites.letters.letter_format import nonce_of


@pytest.fixture
def ends(tmp_path) -> TwoEnds:
    return TwoEnds(tmp_path, in_memory=True)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("piece", [1000, 8 << 20])
def test_each_kind_arrives_as_it_was_sent(tmp_path, monkeypatch, in_memory, piece):
    """Vectors cross the borders of pieces, and keep their bits."""
    monkeypatch.setattr("mpifl.wings.sites.letters.letter_format.PIECE", piece)
    ends = TwoEnds(tmp_path, in_memory, knows=False)
    for n, (kind, record) in enumerate(records().items()):
        sender, reader = (ends.site, ends.coordinator) if n % 2 == 0 else (ends.coordinator, ends.site)
        given = vectors(n) if kind in ("ask", "answer", "share", "end") else {}
        sealed = sender.dispatch(n, record, given)
        letter = reader.newest(kind)
        assert letter is not None
        assert (letter.n, letter.record) == (n, record)
        assert same(letter.vectors, given)
        assert letter.bytes == sealed.bytes
        assert len(sealed.parts) == (-(-sum(v.numel() * v.element_size() for v in given.values()) // piece))
    assert ends.coordinator.post.other_key == KEYS["graz"].public.hex()
    assert ends.lines == []


def test_a_record_has_a_padded_length(ends):
    """So the length of a letter does not show a reason or a name."""
    sizes = {ends.site.seal(4, NoRecord(life=LIFE, of=4, why="x" * k)).bytes // 1000 for k in (1, 50, 400)}
    assert sizes == {4}


def test_a_letter_that_was_changed_is_not_there(ends):
    """Each byte of header and signature, some of the contents and pieces: none is read as another letter."""
    ends.coordinator.dispatch(7, ask(), vectors())
    down = ends.shared["down"]
    (part,) = [name for name in down if name.endswith(".part")]
    for name, step in ((part, 97), ("000007-ask.msg", 1)):
        whole = down[name]
        for at in range(0, len(whole), step if step > 1 or len(whole) < 1000 else 1):
            if name.endswith(".msg") and at > 800 and at % 97:
                continue
            down[name] = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
            assert ends.mailbox(SITE, COORDINATOR).newest("ask") is None, (name, at)
            down[name] = whole[:at]
            if at % 50 == 0:
                assert ends.mailbox(SITE, COORDINATOR).newest("ask") is None
        down[name] = whole
    assert ends.site.newest("ask").n == 7


def test_a_letter_of_another_run_party_number_or_kind_is_not_there(ends):
    down = ends.shared["down"]
    for wrong in (
        ends.mailbox(COORDINATOR, SITE, run="cd" * 16),
        ends.mailbox(STRANGER, SITE),
        Mailbox(post(COORDINATOR, STRANGER), ends.link(COORDINATOR), ends.folder / "outbox-bern-graz-abab"),
    ):
        wrong.dispatch(7, ask())
        assert ends.site.newest("ask") is None
        wrong.forget(99)
    ends.coordinator.dispatch(7, ask())
    down["000008-ask.msg"] = down["000007-ask.msg"]
    down["000009-end.msg"] = down.pop("000007-ask.msg")
    assert ends.site.newest("ask", "end") is None
    ends.shared["up"].update(down)  # a site's own letters, or the coordinator's, sent back to them
    assert ends.coordinator.newest("ask", "end") is None


def test_another_run_key_opens_nothing(ends):
    """A letter that the coordinator has signed and sealed for another key is its fault."""
    ends.coordinator.post.other_key = KEYS["wien"].public.hex()
    ends.coordinator.dispatch(7, ask())
    with pytest.raises(LetterFault, match=r"000007-ask\.msg: does not open by this run's key here"):
        ends.site.newest("ask")


def test_a_piece_that_was_sealed_otherwise_than_signed_is_a_fault_of_its_sender(ends, monkeypatch):
    """Its digest is the signed one, and its tag is wrong. With another digest it is not there."""
    monkeypatch.setattr(sealed_letter, "nonce_of", lambda nth: nonce_of(7 * nth))
    part = ends.coordinator.dispatch(7, ask(), vectors()).parts[0]
    with pytest.raises(LetterFault, match=f"{part}: does not open by this run's key here"):
        ends.site.newest("ask")
    ends.shared["down"][part] = ends.shared["down"][part][::-1]
    ends.coordinator._put.clear()
    assert ends.site.newest("ask") is None


def test_a_second_hello_with_another_key_is_ignored_with_a_line(tmp_path):
    ends = TwoEnds(tmp_path, in_memory=True, knows=False)
    ends.site.dispatch(0, HELLO)
    assert ends.coordinator.newest("hello").key == KEYS["graz"].public.hex()
    ends.site.post._exchange = Exchange(bytes([77] * 32))  # a site that has lost its folder
    ends.site.dispatch(0, HELLO)
    assert ends.coordinator.newest("hello") is None
    assert ends.lines == ["000000-hello.msg: is a hello with another run key; it is ignored"]


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lambda told: b"[" * 9000, r"000007-ask\.msg: JSON: "),
        (lambda told: told | {"more": 1}, "more: Extra inputs are not permitted"),
        (lambda told: told | {"record": told["record"] | {"kind": "end"}}, "end.request"),
        (lambda told: told | {"record": {"kind": "end", "life": LIFE}}, "is a record of another kind"),
        (lambda told: told | {"pieces": []}, "0 pieces for 28 bytes"),
        (lambda told: told | {"pieces": ["ab" * 32] * 50_000}, "its contents have .* bytes, which are too"),
        (lambda told: told | {"vectors": told["vectors"] * 2}, "names a vector twice"),
        (
            lambda told: told | {"vectors": [{"name": "w", "length": 7, "dtype": "bfloat16"}]},
            "'bfloat16'; it",
        ),
        (lambda told: told | {"vectors": [{"name": "w", "length": 7, "dtype": ""}]}, "''; it takes"),
        (
            lambda told: told | {"vectors": [{"name": "w", "length": 1 << 60, "dtype": "uint8"}]},
            "has 1152921",
        ),
        (
            lambda told: told | {"vectors": [{"name": "w", "length": -1, "dtype": "uint8"}]},
            "vectors.0.length",
        ),
    ],
)
def test_a_signed_letter_with_nonsense_inside_is_a_fault_of_its_sender(ends, monkeypatch, harm, line):
    def padded(text: bytes) -> bytes:
        harmed = harm(json.loads(text))
        return whole(harmed if isinstance(harmed, bytes) else json.dumps(harmed).encode())

    whole = sealed_letter.padded
    monkeypatch.setattr(sealed_letter, "padded", padded)
    ends.coordinator.dispatch(7, ask(), {"w": torch.zeros(7)})
    with pytest.raises(LetterFault, match=line):
        ends.site.newest("ask")
    assert ends.site.newest("ask", after=7) is None


@pytest.mark.parametrize("harm", [{"kind": "sum"}, {"format": 2}, {"key": "ab" * 32}, {"n": 10**6}, {"x": 1}])
def test_a_signed_header_that_is_none_is_refused(ends, harm):
    """Nothing but what the name of the file says is read."""
    name, down = "000007-ask.msg", ends.shared["down"]
    ends.coordinator.dispatch(7, ask())
    (length,) = struct.unpack("<I", down[name][8:12])
    told = json.loads(down[name][12 : 12 + length])
    header = json.dumps(told | harm).encode()
    signature = bytes.fromhex(COORDINATOR.sign("letter", header))
    body = down[name][76 + length :]
    ends.coordinator.forget(99)
    down[name] = b"MPIFLS01" + struct.pack("<I", len(header)) + header + signature + body
    if harm == {"kind": "sum"}:
        assert ends.site.newest("ask", "sum") is None
    else:
        with pytest.raises(LetterFault, match=r"000007-ask\.msg: "):
            ends.site.newest("ask")


def test_a_key_of_a_small_subgroup_seals_nothing(ends):
    ends.site.post.other_key = "00" * 32
    with pytest.raises(LetterFault, match=r"the run key 00000000\.\.\. gives a secret that all know"):
        ends.site.dispatch(4, NoRecord(life=LIFE, of=4, why="no"))


def test_what_is_too_large_is_not_sent(ends):
    with pytest.raises(InputError, match=r"numbers up to 999999, 1048576 bytes of JSON and 4096 vectors"):
        ends.coordinator.dispatch(10**6, ask())
    with pytest.raises(InputError, match=r"1048576 bytes of JSON"):
        ends.coordinator.dispatch(7, ask().model_copy(update={"mark": "a" * (1 << 20)}))
    ends.coordinator.dispatch(7, ask(), {"w": torch.zeros(300_000)})
    with pytest.raises(LetterFault, match="has 1200000 bytes of vectors, and this run has 1048576 at most"):
        ends.site.newest("ask")


def test_a_signature_for_a_letter_is_none_for_a_session(tmp_path):
    """What a site signs as one thing was taken for an offer of masks by another site."""
    (tmp_path / "sites.toml").write_text(SITE.listing(["silo 1"]) + COORDINATOR.listing(["silo 2"]))
    sites = read_sites(tmp_path / "sites.toml")
    own, other = Session(RUN, ["silo 2"], COORDINATOR, sites), Session(RUN, ["silo 1"], SITE)
    own.agree({1: own.offer, 2: other.offer}, 1)
    key = Exchange(bytes([5] * 32)).public.hex()
    unsigned = Offer(site="graz", silos=["silo 1"], key=key)
    for purpose in ("letter", "invitation", "withdraw", ""):
        forged = unsigned.model_copy(update={"signature": SITE.sign(purpose, _said(RUN, unsigned))})
        with pytest.raises(InputError, match="its offer is not signed for this run"):
            own.agree({1: own.offer, 2: forged}, 1)


def test_a_header_that_is_passed_on_is_checked(ends):
    ends.site.dispatch(4, records()["answer"])
    signed = ends.coordinator.newest("answer").signed
    assert header_of(RUN, "answer", SITE.public, signed).n == 4
    for run, kind, key, line in (
        (RUN, "answer", COORDINATOR.public, "who has not signed it"),
        (RUN, "share", SITE.public, "is of another run or kind"),
        ("cd" * 16, "answer", SITE.public, "is of another run or kind"),
    ):
        with pytest.raises(LetterFault, match=line):
            header_of(run, kind, key, signed)


def test_the_newest_wins_and_an_older_one_is_not_worked_for_beside_it(ends, monkeypatch):
    monkeypatch.setattr("mpifl.wings.sites.letters.letter_format.PIECE", 1000)
    down = ends.shared["down"]
    ends.coordinator.dispatch(7, ask(), vectors())
    ends.coordinator.dispatch(9, ask(), vectors(1))
    part = next(name for name in down if name.startswith("000009") and name.endswith(".part"))
    content = down.pop(part)
    for _ in range(40):
        assert ends.mailbox(SITE, COORDINATOR).newest("ask") is None
        assert ends.site.newest("ask") is None
    down[part] = content[:-1]
    assert ends.site.newest("ask") is None
    down[part] = content
    assert ends.site.newest("ask").n == 9
    assert ends.site.newest("ask", after=9) is None
    down["000012-ask.msg"] = b"MPIFLS01" + bytes(99)  # anybody's: it hides nothing
    assert ends.site.newest("ask").n == 9


def test_a_file_that_is_wrong_is_not_read_at_each_look_and_is_found_when_it_is_whole(ends, monkeypatch):
    ends.coordinator.dispatch(7, ask())
    ends.coordinator._put.clear()
    down, reads = ends.shared["down"], []
    get = ends.site._link.get
    monkeypatch.setattr(ends.site._link, "get", lambda *asked: reads.append(asked) or get(*asked))
    whole = down["000007-ask.msg"]
    down["000007-ask.msg"] = whole[:-1] + bytes(
        [whole[-1] ^ 1]
    )  # keys are new in each run: any byte may stand there
    for _ in range(64):
        assert ends.site.newest("ask") is None
    assert 2 <= len(reads) <= 12
    down["000007-ask.msg"] = whole
    assert ends.site.newest("ask").n == 7


def test_after_ten_minutes_a_line_says_what_is_missing(ends, monkeypatch):
    monkeypatch.setattr(mailbox, "PATIENCE", -1.0)
    ends.coordinator.dispatch(7, ask(), vectors())
    ends.coordinator._put.clear()
    part = next(name for name in ends.shared["down"] if name.endswith(".part"))
    ends.shared["down"][part] = ends.shared["down"][part][:2048]
    for _ in range(3):
        ends.site.newest("ask")
    (line,) = ends.lines
    assert line.startswith(f"000007-ask.msg: since -0 min: {part}: 2 of ")


def test_what_vanished_or_was_put_back_is_put_again_until_it_is_forgotten(ends):
    down = ends.shared["down"]
    old = ends.coordinator.dispatch(7, ask(), vectors())
    assert ends.site.newest("ask").n == 7
    down.clear()
    ends.coordinator.newest("answer")
    assert sorted(down) == sorted(old.files)
    again = TwoEnds(ends.folder, True, shared=ends.shared)  # after a kill
    down.clear()
    assert again.coordinator.put_again(7, "ask")
    assert not again.coordinator.put_again(7, "end")
    assert again.site.newest("ask").n == 7
    new = again.coordinator.dispatch(7, ask(), vectors(1))  # another sealing takes the place of the old one
    assert sorted(down) == sorted(new.files)
    again.coordinator.dispatch(8, EndRecord(life=LIFE))
    again.coordinator.forget(8)
    again.coordinator.newest("answer")
    assert [*down] == ["000008-end.msg"]
    assert not again.coordinator.put_again(7, "ask")


def test_a_letter_leaves_only_after_it_is_noted(ends):
    noted = []

    def leaves(sealed, about):
        assert ends.shared["up"] == {}
        noted.append((sealed.name.file, sealed.lengths["w"], about["round"]))
        if len(noted) > 1:
            raise InputError("sent.jsonl: cannot be written")

    ends.site._leaves = leaves
    ends.site.put(ends.site.seal(4, records()["answer"], vectors()), {"round": 3})
    assert noted == [("000004-answer.msg", 1554, 3)]
    ends.site.forget(9)
    with pytest.raises(InputError, match=r"sent\.jsonl"):
        ends.site.put(ends.site.seal(5, records()["answer"], vectors()), {"round": 4})
    assert ends.shared["up"] == {}


def test_an_outbox_that_cannot_be_written_is_one_line(ends):
    outbox = ends.folder / "outbox-graz-bern-abab"
    (outbox / "000004-no.msg").mkdir()
    with pytest.raises(InputError, match=r"outbox-graz-bern-abab: cannot be written \(.*\); nothing is sent"):
        ends.site.dispatch(4, NoRecord(life=LIFE, of=4, why="no"))
    assert ends.shared["up"] == {}


@pytest.mark.parametrize("vectors", [1, 200])
def test_a_letter_takes_a_few_pieces_of_memory(tmp_path, monkeypatch, vectors):
    """Vectors of 8 MB are closed and opened with no second copy of them, also where a piece has several."""
    monkeypatch.setattr("mpifl.wings.sites.letters.letter_format.PIECE", 1 << 16)
    monkeypatch.setattr("mpifl.wings.sites.letters.folder_link._STEP", 1 << 16)
    ends = TwoEnds(tmp_path)
    ends.site.post._largest = 1 << 24
    whole = torch.arange(2_000_000, dtype=torch.float32)
    large = {f"w{k}": part for k, part in enumerate(whole.chunk(vectors))}
    tracemalloc.start()
    try:
        ends.coordinator.dispatch(7, ask(), large)
        letter = ends.site.newest("ask")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert same(letter.vectors, large)
    assert peak < 3 << 20, peak


def test_a_journal_knows_its_life_and_the_last_of_each_event(tmp_path):
    first = Journal(tmp_path / "journal.jsonl")
    first.note("taken", 7, asked="ab")
    first.note("answered", 7, sha256="cd")
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"life": "')  # a kill in a line
    second = Journal(tmp_path / "journal.jsonl")
    assert (second.last("taken").n, second.last("taken").about) == (7, {"asked": "ab"})
    assert second.last("share") is None
    with pytest.raises(Superseded, match="another program of this run was started after this one"):
        first.note("taken", 9)
    second.note("taken", 8)
    third = Journal(tmp_path / "journal.jsonl")
    assert [(line.event, line.n) for line in third.lines] == [
        *[("life", 0), ("taken", 7), ("answered", 7)],
        *[("life", 0), ("taken", 8), ("life", 0)],
    ]
    assert len({first.life, second.life, third.life}) == 3


def test_a_question_is_the_same_whatever_its_number_life_and_attempt():
    question = ask().question(vectors())
    again = ask(9).model_copy(update={"life": "00" * 16, "keep_from": 4, "settled": []})
    assert again.question(vectors()) == question
    request = again.request.model_copy(update={"round": 4})
    for change in ({"job": "00" * 32}, {"base": {"silo 1": "00" * 32}}, {"request": request}):
        assert again.model_copy(update=change).question(vectors()) != question
    assert again.question(vectors(1)) != question
