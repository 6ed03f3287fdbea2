"""A headless Firefox that is told what to do over a socket (Marionette, its own remote control)."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from browser.chrome import PATIENCE, Browser, Refused

KEYS = {
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "Escape": "\ue00c",
}
FLAGS = ("--headless", "--marionette", "--remote-allow-system-access", "--no-remote")
PREFERENCES = {
    "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, 
    "datareporting.policy.firstRunURL": "",
    "browser.startup.homepage_override.mstone": "ignore", "toolkit.telemetry.enabled": False,
    "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
    "browser.safebrowsing.update.enabled": False, "extensions.update.enabled": False,
    "browser.region.network.url": "", "services.settings.server": "data:,",
}  # fmt: skip
TROUBLES = """
return Services.console.getMessageArray().filter(one => one instanceof Ci.nsIScriptError
  && (one.sourceName || "").startsWith("file:")
  && (!(one.flags & 1) || /CSP|Content.Security/.test(one.category)))
  .map(one => one.errorMessage.replace("Content-Security-Policy", "Content Security Policy"))
"""


def firefox() -> str | None:
    """Return the program, if there is one."""
    return next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)


class Firefox(Browser):
    """A browser with one page, as `Chrome` is."""

    name = "firefox"

    def __init__(self, folder: Path) -> None:
        program, self._numbers = firefox(), itertools.count(1)
        assert program
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        kept = {**PREFERENCES, "marionette.port": port}
        lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});\n" for key, value in kept.items()]
        (folder / "user.js").write_text("".join(lines))
        self._process = subprocess.Popen(
            [program, *FLAGS, "--profile", str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._socket = self._connected(port)
        self._told()
        self.do("WebDriver:NewSession", capabilities={"alwaysMatch": {"pageLoadStrategy": "normal"}})
        self.do("WebDriver:SetWindowRect", width=1500, height=1000)

    def _connected(self, port: int) -> socket.socket:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            except OSError:
                assert time.monotonic() < deadline, "the browser does not start"
                time.sleep(0.1)
            else:
                return found

    def close(self) -> None:
        """End the browser."""
        self._socket.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    def do(self, method: str, **parameters: Any) -> Any:
        """Send a command; return its answer."""
        number = next(self._numbers)
        message = json.dumps([0, number, method, parameters])
        self._socket.sendall(f"{len(message.encode())}:{message}".encode())
        _, answered, error, result = self._told()
        assert answered == number
        if error:
            raise Refused(method, error)
        return result

    def _told(self) -> Any:
        length = b""
        while (one := self._read(1)) != b":":
            length += one
        return json.loads(self._read(int(length)))

    def _read(self, many: int) -> bytes:
        found = b""
        while len(found) < many:
            more = self._socket.recv(many - len(found))
            assert more, "the browser is gone"
            found += more
        return found

    def _in_chrome(self, script: str, *given: Any) -> Any:
        """Run a script with the browser's own rights."""
        self.do("Marionette:SetContext", value="chrome")
        try:
            return self.do("WebDriver:ExecuteScript", script=script, args=given)["value"]
        finally:
            self.do("Marionette:SetContext", value="content")

    @property
    def troubles(self) -> list[str]:
        """What went wrong on the page since it was opened: errors of programs, and what was refused."""
        return self._in_chrome(TROUBLES)

    def open(self, page: Path, width: int, dark: bool = False) -> None:
        """Open a file in a window of this width."""
        self._in_chrome(
            "Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', arguments[0]);"
            "const {style} = gBrowser.selectedBrowser;"
            "style.setProperty('width', arguments[1] + 'px', 'important');"
            "style.setProperty('max-width', arguments[1] + 'px', 'important');"
            "Services.console.reset();",
            0 if dark else 1, width,
        )  # fmt: skip
        self.do("WebDriver:Navigate", url=page.absolute().as_uri())
        self.until_shown(f"document.readyState === 'complete' && innerWidth === {width}")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        return self.do("WebDriver:ExecuteScript", script="return eval(arguments[0])", args=[expression])[
            "value"
        ]

    def press(self, key: str) -> None:
        """Press a key."""
        strokes = [{"type": kind, "value": KEYS[key]} for kind in ("keyDown", "keyUp")]
        self.do("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": strokes}])

    def point(self, *places: tuple[float, float]) -> None:
        """Move the pointer to a place; to several with its button down."""
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0} for x, y in places
        ]
        if len(places) > 1:
            moves = [
                moves[0],
                {"type": "pointerDown", "button": 0},
                *moves[1:],
                {"type": "pointerUp", "button": 0},
            ]
        self.do("WebDriver:PerformActions", actions=[{"type": "pointer", "id": "mouse", "actions": moves}])

    def scripting(self, on: bool) -> None:
        """Let programs of pages run, or not."""
        self._in_chrome("gBrowser.selectedBrowser.browsingContext.allowJavascript = arguments[0]", on)

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        taken = self.do("WebDriver:TakeScreenshot", full=True, hash=False)["value"]
        path.write_bytes(base64.b64decode(taken))
