"""A connection that a site opens to the coordinator's server: TLS, a pinned key, and the system's proxy."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from mpifl.common import visible
from mpifl.wings.sites.https.link_requests import key_of_certificate
from mpifl.wings.sites.letters import Blocked, NotThere

SECONDS = 20.0
"""How long a connection may say nothing."""
_MOST_LINE = 300


class HttpsConnection:
    """Asks one server, over a connection that stays open between requests.

    Args:
        url: The server, `https://HOST` or `https://HOST:PORT`.
        key: The sha256 of the public key of its certificate; "": the system's authorities say whom to trust.
    """

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key
        self._open: http.client.HTTPSConnection | None = None

    def ask(
        self, method: str, path: str, signature: str, body: Iterable[bytes] = (), length: int = 0
    ) -> http.client.HTTPResponse:
        """Return the server's answer, which is then to be read whole, or the connection to be closed.

        Args:
            signature: The header `Authorization`.
            body: The parts of the body, `length` bytes.

        Raises:
            Blocked: the server has another key, or refuses the request.
            NotThere: it has no such file.
            OSError, http.client.HTTPException: the connection was cut.
        """
        headers = {"Authorization": signature, "Content-Length": str(length)}
        used = self._open is not None
        try:
            connection = self._open = self._open or self._opened()
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            if not used or length:  # a server closes idle connections; a body was used up
                raise
            return self.ask(method, path, signature)
        except BaseException:
            self.close()
            raise
        if answer.status != http.client.OK:
            line = visible(answer.read(_MOST_LINE).decode("utf-8", "replace").strip())
            self.close()
            if answer.status == http.client.NOT_FOUND:
                raise NotThere(line)
            raise Blocked(
                f"{self._url}: refuses ({answer.status}): {line}; letters go on when that is mended"
            )
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open.close()
        self._open = None

    def _opened(self) -> http.client.HTTPSConnection:
        at = urlsplit(self._url)
        host, port = at.hostname or "", at.port or 443
        if self._key:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        else:
            context = ssl.create_default_context()
        proxy = "" if proxy_bypass(host) else getproxies().get("https", "")
        by = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        to = (by.hostname or "", by.port or 3128) if proxy else (host, port)
        made = http.client.HTTPSConnection(*to, timeout=SECONDS, context=context)
        if proxy:
            made.set_tunnel(host, port, _as_user(by.username, by.password))
        made.connect()
        if self._key:
            self._check(made)
        return made

    def _check(self, made: http.client.HTTPSConnection) -> None:
        """Check the key of the server's certificate, before anything is said."""
        key = key_of_certificate(made.sock.getpeercert(True) or b"")
        if key != self._key:
            made.close()
            what = f"its certificate has the key {key[:8]}..., the invitation names {self._key[:8]}..."
            raise Blocked(f"{self._url}: {what}; ask the coordinator, and letters go on when it is mended")


def _as_user(name: str | None, password: str | None) -> dict[str, str]:
    if name is None:
        return {}
    told = base64.b64encode(f"{unquote(name)}:{unquote(password or '')}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {told}"}
