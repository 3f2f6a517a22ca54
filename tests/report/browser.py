"""A real browser for tests: Chromium without a window, told what to do over a pipe of its own.

The DevTools protocol goes over two file descriptors (`--remote-debugging-pipe`), so no port is open
and nothing but the standard library is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: A page must have nothing to say on these: they are collected for the tests to look at.
NOISY = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
# The browser reads from 3 and writes to 4, which may be each other's numbers here: first out of the
# way with both, then to their places.
_START = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3]]
for number in sys.argv[1:3]:
    os.close(int(number))
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def program() -> str | None:
    """Where the browser is, if there is one."""
    named = os.environ.get("HEADWAY_BROWSER")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused a command, or said nothing in time."""


class Browser:
    """One browser with a profile of its own; it goes, with all its processes, at the end."""

    def __init__(self, folder: Path) -> None:
        found = program()
        if found is None:
            raise BrowserError("no Chromium here: on Debian, apt-get install chromium")
        self._next = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = (
            "--headless=new",
            "--no-sandbox",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--no-default-browser-check",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        )
        with (folder / "browser.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs_in), str(theirs_out), found, *flags],
                pass_fds=(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")},
            )
        os.close(theirs_in)
        os.close(theirs_out)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ask it to go; what is left of its session after ten seconds is ended."""
        try:
            self.send("Browser.close", timeout=5)
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)  # the group that we started, by its id
            self.process.wait()
        finally:
            os.close(self._in)
            os.close(self._out)

    def send(
        self, method: str, session: str | None = None, timeout: float = 60, **parameters: Any
    ) -> dict[str, Any]:
        """One command and its answer; events that come before it are kept."""
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except BrokenPipeError:
            raise BrowserError(f"{method}: the browser is gone") from None
        until = time.monotonic() + timeout
        while True:
            answer = self._message(until, method)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _message(self, until: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise BrowserError(f"{waiting_for}: no answer in time")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise BrowserError(f"{waiting_for}: the browser is gone")
            self._buffer += chunk
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        return message

    def page(self, width: int = 1280, height: int = 900, *, phone: bool = False) -> Page:
        """A new page of that size."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session, width, height, phone)


class Page:
    """One page: open a file, look, click, type, and hear what it complains of."""

    def __init__(
        self, browser: Browser, target: str, session: str, width: int, height: int, phone: bool
    ) -> None:
        self.browser, self.target, self.session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        if phone:
            self.send("Emulation.setTouchEmulationEnabled", enabled=True)

    def send(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        """A command to this page."""
        return self.browser.send(method, self.session, timeout, **parameters)

    def media(self, *, scheme: str = "light", kind: str = "", motion: str = "") -> None:
        """As if the system were light or dark, the medium paper, or motion unwelcome."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features.append({"name": "prefers-reduced-motion", "value": motion})
        self.send("Emulation.setEmulatedMedia", media=kind, features=features)

    def open(
        self, path: Path, ready: str = "document.documentElement.dataset.ready === 'all'"
    ) -> None:
        """Open a file and wait until the page says that it is ready."""
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.until(f"document.readyState === 'complete' && ({ready})")

    def until(self, expression: str, timeout: float = 30) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + timeout
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise BrowserError(f"never true: {expression}; {self.complaints()}")
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression comes to, as JSON; promises are awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            raise BrowserError(f"{expression}: {text}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of an element, as a mouse does."""
        found = json.dumps(selector)
        self.value(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        x, y = self.value(
            f"(() => {{ const b = document.querySelector({found}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        self.mouse(x, y)

    def mouse(self, x: float, y: float) -> None:
        """Go to a place and click there."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def key(self, name: str, code: int = 0, text: str = "") -> None:
        """Press and release one key."""
        known = {"Tab": 9, "Enter": 13, "Escape": 27, "PageDown": 34, "End": 35, "Home": 36}
        known |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code = code or known.get(name, 0)
        text = text or ("\r" if name == "Enter" else name if len(name) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            extra: dict[str, Any] = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
                **extra,
            )

    def picture(self, path: Path, *, full: bool = False) -> Path:
        """What is to be seen, as a PNG; `full`: the whole length of the page."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=full, format="png")
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        """The page on paper."""
        answer = self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path

    def tree(self) -> list[tuple[str, str]]:
        """The accessibility tree: role and name of all that is not ignored."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), str(node.get("name", {}).get("value", "")))
            for node in nodes
            if not node.get("ignored")
        ]

    def complaints(self) -> list[str]:
        """Errors, warnings and messages of the console, and exceptions."""
        self.send("Runtime.evaluate", expression="0")  # what happened before has been told by now
        found = []
        for event in self._events():
            if event["method"] in NOISY:
                found.append(json.dumps(event["params"])[:600])
        return found

    def requests(self) -> list[str]:
        """Whatever the page asked for beside itself."""
        asked = [
            event["params"]["request"]["url"]
            for event in self._events()
            if event["method"] == "Network.requestWillBeSent"
        ]
        asked += [
            event["params"]["errorText"]
            for event in self._events()
            if event["method"] == "Network.loadingFailed"
        ]
        return [url for url in asked[1:] if not url.startswith("data:")]

    def _events(self) -> list[dict[str, Any]]:
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def close(self) -> None:
        """Close the page; the browser stays."""
        self.browser.send("Target.closeTarget", targetId=self.target)
