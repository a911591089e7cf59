"""A headless Chromium, driven over a pipe by the DevTools protocol: JSON objects that end with a zero byte.

Nothing but the standard library, and no port that others could connect to. It waits for what the browser reports, never
for time to pass.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import Any, Self

#: For the browser's start and for each of its answers, on a busy machine.
SECONDS = 120.0
#: As root there is no sandbox, and none is needed for pages of our own; nothing is asked for in the background.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


class Browser:
    """One page in a browser: its methods, what it reports, and what it asked the network for."""

    def __init__(self, program: str, directory: Path) -> None:
        to_browser, self._requests = os.pipe()
        self._answers, from_browser = os.pipe()
        shell = 'exec "$@" 3<&$REQUESTS 4>&$ANSWERS'
        command = ["bash", "-c", shell, "bash", program, *OPTIONS, f"--user-data-dir={directory / 'profile'}"]
        environment = {**os.environ, "HOME": str(directory), "REQUESTS": str(to_browser), "ANSWERS": str(from_browser)}
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        self._selector.close()
        os.close(self._requests)
        os.close(self._answers)
        self._log.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._requests, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, method: str, seconds: float = SECONDS) -> dict[str, Any]:
        """Return the next event of a name, one that has come already included."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            for position, event in enumerate(self.events[seen:], seen):
                if event.get("method") == method:
                    del self.events[position]
                    parameters: dict[str, Any] = event["params"]
                    return parameters
            seen = len(self.events)
            self.events.append(self._read(deadline))

    def open(self, url: str) -> None:
        """Load a page with everything that it asks for."""
        self.events.clear()
        assert "errorText" not in self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, which the browser evaluates beside the page's own policy."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def requested(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        wanted = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(one["request"]["url"]) for one in wanted]

    def complaints(self) -> list[str]:
        """Return what the browser's console has: errors, warnings, what scripts print, what a policy forbids."""
        found = [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]
        calls = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return found + [json.dumps(event["params"]) for event in self.events if event.get("method") in calls]

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            part = os.read(self._answers, 1 << 16) if ready else b""
            if not part:
                why = "ended" if ready else "did not answer in time"
                raise AssertionError(f"the browser {why}: {Path(self._log.name).read_text(errors='replace')[-2000:]}")
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
