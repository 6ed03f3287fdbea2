"""A headless Chromium that is told what to do over a pipe (the Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--remote-debugging-pipe",
]
PATIENCE = 60
"""Seconds in which a browser gives one answer. It has died if it does not: no answer takes a tenth of it."""
ANSWERS = 1200
"""Answers in which a page shows what it will show. Seconds are no bound: on a busy machine both the page and
its answers are slow. The answers of a minute on an idle machine are many more than it needs."""
TOO_SMALL = """
[...document.querySelectorAll("body *")].filter(one =>
  [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())
  && one.checkVisibility({visibilityProperty: true}) && !one.closest("svg")
  && parseFloat(getComputedStyle(one).fontSize) < LEAST).map(one => one.className + ": " + one.textContent)
"""


def chromium() -> str | None:
    """Return the program, if there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Refused(Exception):
    """The browser did not do as it was told."""


class Browser:
    """What all browsers do alike."""

    def ask(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        raise NotImplementedError

    def until_shown(self, expression: str) -> None:
        """Wait until an expression is true on the page, and stays so; it may load itself anew meanwhile."""
        for _ in range(ANSWERS):
            with contextlib.suppress(Refused):  # the page went in the meantime
                if self.ask(expression) is True:
                    return
            time.sleep(0.05)
        raise AssertionError(expression)

    def smaller_than(self, pixels: int) -> list[str]:
        """Return the texts that are written smaller."""
        return self.ask(TOO_SMALL.replace("LEAST", str(pixels)))


class Chrome(Browser):
    """A browser with one page.

    Attributes:
        troubles: What went wrong on the page since it was opened: errors of programs, and what was refused.
    """

    name = "chromium"

    def __init__(self, folder: Path) -> None:
        self._numbers, self._read = itertools.count(1), b""
        self.troubles: list[str] = []
        (theirs, self._out), (self._in, ours) = os.pipe(), os.pipe()
        program = chromium()
        assert program

        def hand_over() -> None:  # commands come in by file 3, and answers go out by 4
            one, other = os.dup(theirs), os.dup(ours)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}"], preexec_fn=hand_over, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(ours)
        self._session: str | None = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError):
            os.close(self._out)
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._in)

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; return its answer."""
        number = next(self._numbers)
        told = {"id": number, "method": method, "params": parameters}
        told |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(told).encode() + b"\0")
        answer = self._until(lambda told: told.get("id") == number)
        if "error" in answer:
            raise Refused(method, answer["error"])
        return answer["result"]

    def open(self, page: Path, width: int, dark: bool = False) -> None:
        """Open a file in a window of this width, of a phone where it is narrow."""
        phone = width < 600
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=844 if phone else 900,
                deviceScaleFactor=1, mobile=phone)  # fmt: skip
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.troubles = []
        self.do("Page.navigate", url=page.absolute().as_uri())
        self._until(lambda told: told.get("method") == "Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        self.do("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)

    def point(self, *places: tuple[float, float]) -> None:
        """Move the pointer to a place; to several with its button down."""
        button = {"button": "left", "clickCount": 1} if len(places) > 1 else {}
        kinds = (
            ["mousePressed", *["mouseMoved"] * (len(places) - 2), "mouseReleased"]
            if button
            else ["mouseMoved"]
        )
        for kind, (x, y) in zip(kinds, places, strict=True):
            self.do("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **button)
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def scripting(self, on: bool) -> None:
        """Let programs of pages run, or not."""
        self.do("Emulation.setScriptExecutionDisabled", value=not on)

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        taken = self.do("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _until(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            *messages, self._read = self._read.split(b"\0")
            for nth, message in enumerate(messages):
                told = json.loads(message)
                self._note(told)
                if wanted(told):
                    self._read = b"\0".join([*messages[nth + 1 :], self._read])
                    return told
            assert time.monotonic() < deadline, "the browser does not answer"
            if select.select([self._in], [], [], 1)[0]:
                self._read += os.read(self._in, 1 << 20)

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(str(told["params"]["exceptionDetails"]))
        if told.get("method") == "Log.entryAdded":
            self.troubles.append(told["params"]["entry"]["text"])
