"""Requests to the server of letters with harm done to them: cut, forged, and signed with nonsense inside."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

from links.https_ends import invitation
from links.two_ends import RUN, SITE, STRANGER

from fuzzing.mutations import evil, harmed_bytes
from fuzzing.outcomes import Undocumented
from mpifl.wings.sites.https import LetterServer, letter_server, link_requests
from mpifl.wings.sites.letters import FolderLink

BODY, LETTER = b"letter" * 100, b"ask" * 200
NAMES = ("000007-answer.msg", "000008-answer-0123456789abcdef.part")
HARMS = ("bytes", "bytes", "target", "none")


def requests(draw: Random, valid: Path, folder: Path) -> tuple[str, bytes, Path]:
    """Return the harm, a request, and a folder with a served run."""
    for one in (SITE, STRANGER):
        (folder / "given").write_bytes(LETTER)
        FolderLink(folder, one.public, "down").put("000008-ask.msg", folder / "given")
        FolderLink(folder, one.public, "up").put(NAMES[0], folder / "given")
    (folder / "given").unlink()
    mark = link_requests.text_of(FolderLink(folder, SITE.public, "up").names()["000008-ask.msg"])
    sha256, name = hashlib.sha256(BODY).hexdigest(), draw.choice(NAMES)
    start = draw.choice((0, 0, 5))
    method, target = draw.choice(
        (
            ("GET", "names"),
            ("GET", f"down/000008-ask.msg?from={start}&mark={mark}"),
            ("DELETE", f"up/{name}"),
            *[("PUT", f"up/{name}?size={len(BODY)}&sha256={sha256}&from={start}")] * 3,
        )
    )
    harm, body = draw.choice(HARMS), BODY if method == "PUT" else b""
    if harm == "target":
        target = re.sub(r"[^!-~]", "~", harmed_bytes(draw, target.encode()).decode("latin-1"))
        target = target if draw.random() < 0.7 else target.replace("=0", f"={evil(draw)}")
        target = re.sub(r"[^!-~]", "~", target)
    told = link_requests.authorization(SITE, RUN, method, target)
    fields = f"Host: x\r\nAuthorization: {told}\r\nContent-Length: {len(body)}"
    request = f"{method} /{RUN}/{target} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body
    return harm, harmed_bytes(draw, request, (request,)) if harm == "bytes" else request, folder


def answer_request(given: tuple[str, bytes, Path]) -> None:
    harm, request, folder = given
    (aside := folder / "aside").mkdir()
    before = _contents(folder)
    tls, lines = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str]()
    of_run = {"quota": 1 << 20, "aside": aside, "say": lines.append}
    with LetterServer(("127.0.0.1", 0), invitation(), folder, tls, **of_run) as server:
        near = socket.create_connection(server.server_address[:2])
        far, _ = server.get_request()
        with near, far:
            near.sendall(request)
            near.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                letter_server._Handler(far, ("here", 0), server)
            far.close()
            near.settimeout(5)
            said = b""
            with suppress(ConnectionError):  # it closes the connection of a body that it has not read
                said += b"".join(iter(lambda: near.recv(1 << 16), b""))
    after = _contents(folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    up = f"{SITE.public[:16]}/up/"
    put = {name for name in changed & after.keys() if after[name] != BODY}
    if odd := {name for name in changed if not name.startswith(up)} | put:
        raise Undocumented(f"a request has changed {odd}: {request[:300]!r}")
    if harm == "bytes" and changed - {up + name for name in NAMES}:
        raise Undocumented(f"an unsigned request has changed {changed}: {request[:300]!r}")
    if harm == "none" and not said.startswith(b"HTTP/1.1 200 "):
        raise Undocumented(f"a request without harm is refused: {said[:300]!r}")


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*.*")
        if path.is_file() and path.parent.name != "aside"
    }
