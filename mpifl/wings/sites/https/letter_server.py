"""The coordinator's server of letters: HTTPS over the folder of a run, which the coordinator itself reads.

Every connection has a thread of its own, also for its handshake. So one that says nothing stops no other. It
is closed when it takes too long, and there are so many at a time.
"""

from __future__ import annotations

import re
import socket
import socketserver
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import BoundedSemaphore

from mpifl.common import InputError, visible
from mpifl.common.machine import signals
from mpifl.wings.sites.consents import Invitation, invitation_in
from mpifl.wings.sites.https.link_requests import STEP, key_in, signer_of
from mpifl.wings.sites.https.site_shelf import RequestRefused, SiteShelf
from mpifl.wings.sites.letters import NAME, most_bytes

MOST_CONNECTIONS = 256
STRANGERS, IDLE, LONG = 15.0, 90.0, 900.0
"""Seconds which a connection has until its first signed request, between two, and for one."""
_LOOK, _MOST_LINES = 0.5, 1000
_NUMBER = "(0|[1-9][0-9]{0,11})"
_TARGET = re.compile(
    rf"(?P<names>names)|down/(?P<get>{NAME.pattern})\?from=(?P<at>{_NUMBER})&mark=(?P<mark>[0-9-]{{1,100}})"
    rf"|up/(?P<put>{NAME.pattern})\?size=(?P<size>{_NUMBER})&sha256=(?P<sha256>[0-9a-f]{{64}})"
    rf"&from=(?P<start>{_NUMBER})|up/(?P<remove>{NAME.pattern})",
    re.ASCII,
)
_VERBS = {"names": "GET", "get": "GET", "put": "PUT", "remove": "DELETE"}


class LetterServer(socketserver.ThreadingTCPServer):
    """Serves one run's folder to its sites until it is closed.

    Args:
        address: Host and port; port 0 takes a free one.
        invitation: Says whose run it is, and which sites may come.
        link: The folder of the run.
        tls: The server's side of TLS.
        quota: Bytes of each site's own files, at most.
        aside: A folder for files that arrive.
        say: Told lines for people.
    """

    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    timeout = _LOOK

    def __init__(
        self,
        address: tuple[str, int],
        invitation: Invitation,
        link: Path,
        tls: ssl.SSLContext,
        *,
        quota: int,
        aside: Path,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.run, self._tls, self._say = invitation.run, tls, say
        self._names = {one.key: one.name for one in invitation.site}
        self._shelves = {key: SiteShelf(link, key, aside / key, quota) for key in self._names}
        self._due: dict[socket.socket, float] = {}
        self._free, self._said = BoundedSemaphore(MOST_CONNECTIONS), set[str]()
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client: object) -> None:
        """Begin a connection in a thread of its own; close it if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client)
        else:
            self.shutdown_request(request)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client: object
    ) -> None:
        """Serve a connection, and make room for another."""
        try:
            super().process_request_thread(request, client)
        finally:
            self._free.release()

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client: object) -> None:
        """Shake hands, and answer a connection's requests."""
        assert isinstance(request, socket.socket)
        with (
            suppress(OSError),  # it was cut, or is no TLS
            self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as tls,
        ):
            self.allow(tls, STRANGERS)
            try:
                tls.do_handshake()
                _Handler(tls, client, self)
            finally:
                self._due.pop(tls, None)

    def allow(self, connection: socket.socket, seconds: float) -> None:
        """Let a connection take so long from now on."""
        self._due[connection] = time.monotonic() + seconds

    def close_late(self) -> None:
        """Close the connections that take too long."""
        for connection, due in [*self._due.items()]:
            if time.monotonic() > due:
                self._due.pop(connection, None)
                with suppress(OSError):  # not that of TLS, which its own thread uses
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def shelf_of(self, header: str, method: str, target: str) -> SiteShelf:
        """Return the files of the site that has signed a request.

        Raises:
            RequestRefused: no site of this run has.
        """
        key = signer_of(header, self._names, self.run, method, target)
        if key is None:
            raise RequestRefused(403, "no site of this run has signed this request")
        self.tell(f"{self._names[key]} is connected")
        return self._shelves[key]

    def tell(self, line: str) -> None:
        """Tell a line once."""
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            self._say(line)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after another."""

    protocol_version, server_version, sys_version = "HTTP/1.1", "mpifl", ""
    disable_nagle_algorithm = True
    server: LetterServer

    def do_GET(self) -> None:
        """Answer a request; every other one has a body or is none of ours."""
        try:
            length = self._length()
            status, size, body = 200, *self._answered(length)
        except RequestRefused as refused:
            line = f"{refused}\n".encode()
            status, size, body = refused.status, len(line), [line]
            self.server.tell(f"refused a request from {self.client_address[0]} ({status}): {refused}")
            self.close_connection = True  # its body may not have been read
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        for part in body:
            self.wfile.write(part)
            size -= len(part)
        self.close_connection |= size != 0  # the file has become another
        self.server.allow(self.connection, STRANGERS if status == 403 else IDLE)

    do_PUT = do_DELETE = do_GET

    def _length(self) -> int:
        """Return the length of the body.

        Raises:
            RequestRefused: it is given twice, or is no number.
        """
        given = self.headers.get_all("Content-Length", ["0"])
        if (
            len(given) > 1
            or not re.fullmatch(_NUMBER, given[0], re.ASCII)
            or self.headers["Transfer-Encoding"]
        ):
            raise RequestRefused(400, "the length of the body is to be given once")
        return int(given[0])

    def _answered(self, length: int) -> tuple[int, Iterable[bytes]]:
        """Carry out a request; return the length of the answer and its parts."""
        target = self.path.removeprefix(f"/{self.server.run}/")
        shelf = self.server.shelf_of(self.headers.get("Authorization", ""), self.command, target)
        self.server.allow(self.connection, LONG)
        found = _TARGET.fullmatch(target)
        verb = next((verb for verb in _VERBS if found and found[verb]), "")
        if found is None or _VERBS[verb] != self.command or target == self.path:
            raise RequestRefused(
                400, "there is no such request; let both sides run the same version of mpifl"
            )
        told, size = found.groupdict(), max(length, int(found["size"] or 0))
        if size > most_bytes(told["put"] or ""):
            raise RequestRefused(413, f"{told['put'] or 'the body'} has {size} bytes, which are too many")
        try:
            return self._of_site(shelf, verb, told, length)
        except OSError as error:
            if isinstance(error, ConnectionError | TimeoutError | ssl.SSLError):
                raise
            raise RequestRefused(507, f"the server cannot write ({error.strerror})") from None

    def _of_site(
        self, shelf: SiteShelf, verb: str, told: Mapping[str, str], length: int
    ) -> tuple[int, Iterable[bytes]]:
        if verb == "get":
            return shelf.read(told["get"], int(told["at"]), told["mark"])
        if verb == "put":
            size, start = int(told["size"]), int(told["start"])
            text = shelf.put(told["put"], size, told["sha256"], start, self._body(length)).encode()
        elif verb == "remove":
            shelf.remove(told["remove"])
            text = b""
        else:
            text = shelf.listing().encode()
        return len(text), [text]

    def _body(self, left: int) -> Iterator[bytes]:
        while left:
            part = self.rfile.read1(min(STEP, left))
            if not part:
                raise ConnectionError("it was cut")
            yield part
            left -= len(part)

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no HTTP, with one line."""
        self.server.tell(f"refused a request from {self.client_address[0]} ({code}): is not mpifl's")
        self.close_connection = True
        self.send_response(code, "refused")
        self.send_header("Connection", "close")
        self.send_header("Content-Length", "0")
        self.end_headers()


def serve(
    link: Path, listen: str, certificate: Path, key: Path, quota: int, say: Callable[[str], None]
) -> None:
    """Serve the folder of a run to its sites until a signal comes.

    Args:
        listen: `HOST:PORT`, or `[ADDRESS]:PORT` for IPv6.
        certificate, key: The server's certificate with those that it is signed by, and its private key: PEM.
        quota: Bytes of each site's own files, at most.

    Raises:
        InputError: there is no invitation, or the address, the certificate or the key cannot be used.
    """
    told = invitation_in(link)
    pin = key_in(certificate)
    if told.https is None:
        raise InputError(
            f"{link}: its invitation names no server; give `mpifl sites init` --server, and invite anew"
        )
    if told.https.key not in ("", pin):
        what = f"has the key {pin[:8]}..., and the invitation names {told.https.key[:8]}..."
        raise InputError(f"{certificate}: {what}; sites would not talk to this server")
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]*)):([0-9]{1,5})", listen)
    if found is None or int(found[3]) > 65535:
        raise InputError(f"--listen {listen}: give HOST:PORT, such as 0.0.0.0:8443")
    address, tls = (found[1] or found[2], int(found[3])), _with_certificate(certificate, key)
    with tempfile.TemporaryDirectory() as aside:
        try:
            server = LetterServer(address, told, link, tls, quota=quota, aside=Path(aside), say=say)
        except OSError as error:
            raise InputError(f"--listen {listen}: {error.strerror or error}; name another address") from None
        with server:
            sites = ", ".join(visible(one.name) for one in told.site)
            say(f"serving {link} at {listen} for {sites}; sites come to {told.https.url}")
            while not signals.pending():
                server.handle_request()
                server.close_late()


def _with_certificate(certificate: Path, key: Path) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        tls.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{key}: is not the key of {certificate}, without a password ({why})") from None
    return tls
