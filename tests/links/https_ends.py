"""A coordinator and a site whose letters go over HTTPS: a real server on this machine, and a proxy that cuts
each connection."""

from __future__ import annotations

import datetime
import functools
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from links.two_ends import COORDINATOR, DIGEST, KEYS, RUN, SITE, STRANGER, TwoEnds
from mpifl.wings.site import Identity
from mpifl.wings.sites.consents import HttpsServer, Invitation
from mpifl.wings.sites.https import HttpsLink, LetterServer, key_of_certificate
from mpifl.wings.sites.letters import FolderLink, LetterLink, Member


@functools.cache
def certificate() -> tuple[bytes, bytes]:
    """Return a certificate that signs itself, and its private key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption())


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write `cert.pem` and `key.pem`; return their paths."""
    paths = folder / "cert.pem", folder / "key.pem"
    for path, text in zip(paths, certificate(), strict=True):
        path.write_bytes(text)
    return paths


def pin() -> str:
    return key_of_certificate(ssl.PEM_cert_to_DER_cert(certificate()[0].decode()))


def invitation() -> Invitation:
    """Return an invitation to two sites, which nobody has signed."""
    members = [Member(name=one.name, key=one.public, silos=[one.name]) for one in (SITE, STRANGER)]
    return Invitation(
        run=RUN,
        mpifl="0",
        coordinator=COORDINATOR.name,
        key=COORDINATOR.public,
        run_key=KEYS["bern"].public.hex(),
        federation=DIGEST,
        site=sorted(members, key=lambda one: one.key),
        job="{}",
        signature="00" * 64,
    )


@contextmanager
def served(folder: Path, quota: int = 1 << 30, port: int = 0) -> Iterator[LetterServer]:
    """Serve `folder / "link"` while the context lasts."""
    (folder / "link").mkdir(exist_ok=True)
    (folder / "aside").mkdir(exist_ok=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*write_certificate(folder))
    lines: list[str] = []
    address = "127.0.0.1", port
    of_run = {"quota": quota, "aside": folder / "aside", "say": lines.append}
    server = LetterServer(address, invitation(), folder / "link", tls, **of_run)
    server.timeout, server.lines, over = 0.01, lines, threading.Event()

    def loop() -> None:
        while not over.is_set():
            server.handle_request()
            server.close_late()

    (thread := threading.Thread(target=loop)).start()
    try:
        yield server
    finally:
        over.set()
        thread.join()
        server.server_close()

        def ended() -> bool:
            for connection in [*server._due]:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
            return threads_of(server) == 0

        until(ended)


def threads_of(server: LetterServer) -> int:
    """Return how many connections a server still serves."""
    target = type(server).process_request_thread.__name__
    return sum(f"({target})" in one.name for one in threading.enumerate())


@contextmanager
def port_to_be() -> Iterator[int]:
    """Keep a port of this machine free for a server that is still to come: no other program is given it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


class CuttingProxy:
    """A proxy for CONNECT that cuts each connection after so many bytes, and at most 16,384 more.

    Attributes:
        url: What HTTPS_PROXY is to say.
        counts: Bytes that went up and down.
    """

    def __init__(self, after: int) -> None:
        self._after, self.counts, self.cuts = after, {"up": 0, "down": 0}, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:pass%20word@127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        told = b""
        while b"\r\n\r\n" not in told:
            if not (part := near.recv(4096)):
                return near.close()
            told += part
        self.asked.append(told)
        host, port = told.split()[1].decode().rsplit(":", 1)
        try:
            far = socket.create_connection((host, int(port)))
        except OSError:
            return near.close()
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        left = [self._after]
        for way in ((near, far, "up"), (far, near, "down")):
            threading.Thread(target=self._copy, args=(*way, left), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, way: str, left: list[int]) -> None:
        with suppress(OSError):
            while part := source.recv(min(16384, max(left[0], 1))):
                left[0] -= len(part)
                self.counts[way] += len(part)
                target.sendall(part)
                if left[0] <= 0:
                    self.cuts += left[0] + len(part) > 0  # or the other way has cut it
                    break
        with suppress(OSError):  # who is slow has what was on its way before the other end knows of the cut
            target.shutdown(socket.SHUT_WR)


@dataclass
class HttpsEnds(TwoEnds):
    """The mailboxes of both parties: the coordinator's over the folder, the site's over HTTPS."""

    port: int = 0
    key: str = field(default_factory=pin)

    def link(self, own: Identity) -> LetterLink:
        if own is COORDINATOR:
            return FolderLink(self.folder / "link", SITE.public, "down")
        (inbox := self.folder / f"inbox-{own.name}").mkdir(exist_ok=True)
        return HttpsLink(HttpsServer(url=f"https://localhost:{self.port}", key=self.key), RUN, own, inbox)


def until(true, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)
