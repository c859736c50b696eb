"""A real browser for tests: Chromium without a window, over the two pipes of its DevTools protocol.

No port, no driver and no package: messages are JSON with a zero byte behind each, to file descriptor 3 of the browser
and from its file descriptor 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio"]
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"]
PATIENCE = 60  # seconds


class Browser:
    """One page of one browser. `problems` are errors of its console, `requests` the addresses that it asked for."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM
        theirs_in, self.send_to = os.pipe()
        self.read_from, theirs_out = os.pipe()
        pipes = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        words = [CHROMIUM, "--remote-debugging-pipe", f"--user-data-dir={profile}", *FLAGS, *QUIET, "about:blank"]
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", pipes, *words], pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.count, self.session = b"", 0, ""
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer; events that come before it are noted."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_from], [], [], max(0, end - time.monotonic()))
            data = os.read(self.read_from, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method", ""), message.get("params", {}))
        return message

    def note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif event == "Log.entryAdded" or (
            event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning")
        ):
            self.problems.append(json.dumps(params))
        elif event == "Page.loadEventFired":
            self.loaded = True

    def open(self, path: Path, width: int = 1200, height: int = 900) -> None:
        self.size(width, height)
        self.problems.clear()
        self.requests.clear()
        self.loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self.receive()
        self.settle()

    def size(self, width: int, height: int = 900, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def theme(self, scheme: str = "light", media: str = "") -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])

    def settle(self) -> None:
        """Wait until what was changed is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, clicks: int = 0, held: bool = False) -> None:
        button = {"button": "left", "buttons": 1} if clicks or held else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=clicks, **button)

    def hover(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)

    def click(self, x: float, y: float, times: int = 1) -> None:
        for clicks in range(1, times + 1):
            self.mouse("mousePressed", x, y, clicks)
            self.mouse("mouseReleased", x, y, clicks)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *begin)
        self.mouse("mousePressed", *begin, clicks=1)
        self.mouse("mouseMoved", *end, held=True)
        self.mouse("mouseReleased", *end, clicks=1)

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Of the window, or of the whole page."""
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(image))

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self.send_to)
        os.close(self.read_from)
