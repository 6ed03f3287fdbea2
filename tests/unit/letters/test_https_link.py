"""A site's letters over real TLS: as over a folder, whatever is cut, and nothing for who is not invited."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from contextlib import suppress

import pytest
from links.https_ends import CuttingProxy, HttpsEnds, certificate, port_to_be, served, threads_of, until
from links.two_ends import RUN, SITE, STRANGER, TwoEnds, ask, records, same, vectors

from mpifl.common.machine import signals
from mpifl.wings.site import Identity
from mpifl.wings.sites.consents import HttpsServer
from mpifl.wings.sites.https import HttpsLink, letter_server, link_requests
from mpifl.wings.sites.https.https_connection import HttpsConnection
from mpifl.wings.sites.letters import Blocked, NotThere


@pytest.fixture
def server(tmp_path):
    with served(tmp_path) as one:
        yield one


@pytest.fixture
def ends(tmp_path, server) -> HttpsEnds:
    return HttpsEnds(tmp_path, knows=False, port=server.server_address[1])


@pytest.fixture
def port():
    with port_to_be() as one:
        yield one


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("piece", [1000, 8 << 20])
def test_each_kind_arrives_as_over_a_folder(ends, server, monkeypatch, piece):
    monkeypatch.setattr("mpifl.wings.sites.letters.letter_format.PIECE", piece)
    for n, (kind, record) in enumerate(records().items()):
        sender, reader = (ends.site, ends.coordinator) if n % 2 == 0 else (ends.coordinator, ends.site)
        given = vectors(n) if kind in ("ask", "answer", "share", "end") else {}
        sender.dispatch(n, record, given)
        letter = reader.newest(kind)
        assert (letter.n, letter.record) == (n, record)
        assert same(letter.vectors, given)
    (ends.up / "000000-hello.msg").unlink()
    assert [ends.site.newest("sum", after=99) for _ in range(2)] == [None] * 2
    assert (ends.up / "000000-hello.msg").exists(), "what vanished is put again"
    there, again = contents(ends.up), HttpsEnds(ends.folder, port=ends.port)
    again.site.put_again(8, "end")
    assert contents(ends.up) == there
    ends.site.forget(99)
    assert contents(ends.up) == {}
    ends.coordinator.forget(99)
    assert ends.site.newest("ask") is None
    assert contents(ends.folder / "inbox-graz") == {}
    assert server.lines == ["graz is connected"]


def test_what_is_cut_goes_on_where_it_was(tmp_path, monkeypatch, server):
    """A proxy ends each connection after 300 kB; a letter has 2 MB. No more than what was on its way is sent
    twice."""
    proxy = CuttingProxy(after=300_000)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setattr("links.two_ends.LARGEST", 1 << 22)
    ends, given = HttpsEnds(tmp_path, port=server.server_address[1]), vectors(length=100_000)
    sealed = ends.site.dispatch(7, records()["answer"], given)
    got: list[object] = []
    until(lambda: ends.site.newest("ask") or got.append(1) or ends.coordinator.newest("answer"))
    assert same(ends.coordinator.newest("answer").vectors, given)
    ends.coordinator.dispatch(8, ask(), given)
    until(lambda: (letter := ends.site.newest("ask")) and got.append(letter) is None)
    assert same(got[-1].vectors, given)
    proxy.close()
    assert proxy.cuts >= 2 * sealed.bytes // (300_000 + 16_384)
    for way, count in proxy.counts.items():
        assert sealed.bytes < count < 1.1 * sealed.bytes, (way, count, sealed.bytes)
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n" in proxy.asked[0]
    assert ends.lines == []


def test_a_signal_ends_a_transfer_and_the_next_life_has_what_came(tmp_path, monkeypatch, server):
    monkeypatch.setattr("links.two_ends.LARGEST", 1 << 22)
    port, given = server.server_address[1], vectors(length=100_000)
    ends = HttpsEnds(tmp_path, port=port)
    ends.coordinator.dispatch(8, ask(), given)
    try:
        signals.note()
        assert ends.site.newest("ask") is None
        ends.site.dispatch(7, records()["answer"], given)
    finally:
        signals.clear()
    assert ends.lines == [f"https://localhost:{port}: a signal came; the same command carries the rest"]
    assert ends.coordinator.newest("answer") is None
    again = HttpsEnds(tmp_path, port=port)
    assert same(again.site.newest("ask").vectors, given)
    assert again.site.put_again(7, "answer")
    assert same(again.coordinator.newest("answer").vectors, given)


def requested(ends, method, target, signer=None, run=RUN, body=b"", signed=None) -> int:
    """Return the status of a request."""
    told = link_requests.authorization(signer, run, method, signed or target) if signer else ""
    connection = HttpsConnection(f"https://localhost:{ends.port}", ends.key)
    try:
        connection.ask(method, f"/{run}/{target}", told, [body] if body else (), len(body)).read()
    except NotThere:
        return 404
    except Blocked as error:
        return int(str(error).split("refuses (")[1][:3])
    finally:
        connection.close()
    return 200


def test_who_is_not_invited_sees_and_changes_nothing(ends):
    ends.coordinator.post.other_key = ends.site._link and None
    ends.site.dispatch(0, records()["hello"])
    assert ends.coordinator.newest("hello")
    ends.coordinator.dispatch(7, ask())
    before, mallory = contents(ends.folder / "link"), Identity("mallory", bytes([9] * 32))
    put = f"up/000000-hello.msg?size=1&sha256={hashlib.sha256(b'x').hexdigest()}&from=0"
    mark = link_requests.text_of(ends.site._link.names()["000007-ask.msg"])
    for method, target in (
        ("GET", "names"),
        ("PUT", put),
        ("DELETE", "up/000000-hello.msg"),
        ("GET", f"down/000007-ask.msg?from=0&mark={mark}"),
    ):
        body = b"x" if method == "PUT" else b""
        assert requested(ends, method, target, body=body) == 403
        assert requested(ends, method, target, mallory, body=body) == 403
        assert requested(ends, method, target, SITE, run="ba" * 16, body=body) == 403
        assert requested(ends, method, target, SITE, signed="other", body=body) == 403
    assert requested(ends, "GET", f"down/000007-ask.msg?from=0&mark={mark}", STRANGER) == 404
    assert requested(ends, "DELETE", "up/000000-hello.msg", STRANGER) == 200
    assert contents(ends.folder / "link") == before
    for method, target, status in (
        ("GET", "up/000000-hello.msg", 400),
        ("GET", "down/../../secret?from=0&mark=1", 400),
        ("PUT", put.replace("000000", "%B2%B2%B2%B2%B2%B2"), 400),
        ("PUT", put.replace("size=1", "size=9000000"), 413),
        ("DELETE", "down/000007-ask.msg", 400),
        ("GET", f"down/000007-ask.msg?from=99999&mark={mark}", 404),
        ("GET", "down/000007-ask.msg?from=0&mark=1-2", 404),
    ):
        assert requested(ends, method, target, SITE) == status, target
    assert contents(ends.folder / "link") == before
    assert requested(ends, "PUT", put.replace("hello.msg", "no.msg"), SITE, body=b"y") == 200
    assert contents(ends.folder / "link") == before, "another digest than was signed"
    assert requested(ends, "PUT", put.replace("hello.msg", "no.msg"), SITE, body=b"x") == 200
    assert (ends.up / "000000-no.msg").read_bytes() == b"x"


def test_a_site_has_so_much_room(tmp_path):
    with served(tmp_path, quota=160_000) as server:
        ends = HttpsEnds(tmp_path, port=server.server_address[1])
        ends.site.dispatch(7, records()["answer"], vectors(length=3000))
        ends.site.dispatch(8, records()["share"], vectors(length=3000))
        assert "000007-answer.msg" in contents(ends.up)
        assert "000008-share.msg" not in contents(ends.up)
        assert "refuses (507): this site has 0.1 MB at the server, which takes 0.2 MB of it" in ends.lines[0]
        ends.site.forget(8)
        ends.site.newest("ask")
        assert ends.coordinator.newest("share").n == 8


def test_connections_that_say_nothing_stop_no_other_and_are_closed(ends, server, monkeypatch):
    """One silent connection stopped all sites, when the handshake was the listener's."""
    monkeypatch.setattr(letter_server, "STRANGERS", 0.3)
    silent = [socket.create_connection(server.server_address[:2]) for _ in range(3)]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    slow = context.wrap_socket(socket.create_connection(server.server_address[:2]))
    slow.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n")
    ends.coordinator.post.other_key = "00" * 32
    ends.site.dispatch(0, records()["hello"])
    # a busy machine may take longer than a stranger has for the site's own handshake: it comes again
    until(lambda: "000000-hello.msg" in contents(ends.up) or ends.site.newest("ask"))
    for one in (*silent, slow):
        one.settimeout(60)
        with suppress(ConnectionError):
            assert one.recv(100) == b""
        one.close()
    until(lambda: threads_of(server) <= 1)  # each gives its room back at its very end; one is the site's
    monkeypatch.setattr(server, "_free", threading.BoundedSemaphore(1))
    server._free.acquire()
    (inbox := ends.folder / "inbox").mkdir()
    with pytest.raises(Blocked, match="cannot be reached"):
        HttpsLink(HttpsServer(url=f"https://localhost:{ends.port}", key=ends.key), RUN, SITE, inbox).names()
    server._free.release()
    until(lambda: not server._due or len(server._due) == 1)


def test_another_key_and_a_server_that_is_away_are_told_once_and_waited_for(tmp_path, monkeypatch, port):
    for name in ("other", "by_system"):
        (tmp_path / name).mkdir()
    ends, other = HttpsEnds(tmp_path, port=port), HttpsEnds(tmp_path / "other", port=port, key="ab" * 32)
    by_system = HttpsEnds(tmp_path / "by_system", port=port, key="")
    for one in (ends, other, by_system):
        one.site.dispatch(7, records()["answer"], vectors())
        assert one.site.newest("ask") is None
    url = f"https://localhost:{port}"
    for one in (ends, other):
        assert one.lines == [f"{url}: cannot be reached (Connection refused); letters go on when it is"]
    with served(tmp_path, port=port):
        for one in (other, by_system, ends):
            one.lines.clear()
            assert one.site.newest("ask") is None
            assert one.site.newest("ask") is None
        assert [line.split("; ask")[0] for line in other.lines] == [
            f"{url}: its certificate has the key {ends.key[:8]}..., the invitation names abababab..."
        ]
        assert len(by_system.lines) == 1
        assert "certificate verify failed" in by_system.lines[0]
        assert ends.lines == []
        assert ends.coordinator.newest("answer").n == 7
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert [*by_system.site._link.names(own=True)], "an authority that the system trusts"
        assert certificate()[0] in (tmp_path / "cert.pem").read_bytes()


def test_what_came_harmed_comes_again(ends):
    ends.coordinator.post.other_key = None
    ends.site.dispatch(0, records()["hello"])
    assert ends.coordinator.newest("hello")
    ends.coordinator.dispatch(7, ask(), vectors())
    link = ends.site._link
    (piece,) = (name for name in link.names() if name.endswith(".part"))
    whole = link.get(piece, 0, 1 << 20)
    (kept,) = (ends.folder / "inbox-graz").glob(f"{piece}.*")
    kept.write_bytes(bytes(len(whole)))
    assert same(ends.site.newest("ask").vectors, vectors())
    kept.write_bytes(whole[:100])
    assert link.get(piece, 50, 100) == whole[50:150]
    with pytest.raises(NotThere):
        link.get("000009-ask.msg", 0, 1)
    assert TwoEnds(ends.folder).coordinator.newest("answer") is None
