"""``openperouter web`` in a real headless browser: what an operator sees, in which colour, and what the page asks for.

The program serves as it does on a node; only the daemon's control socket is scripted. There is no network but loopback.
"""

from __future__ import annotations

import base64
import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from config.status import Status
from supervisor.cli.verbs.node.web.page import REFRESH_SECONDS
from supervisor.version import VERSION
from tests.browser.browser import SECONDS, Browser
from tests.supervisor.cli.examples import status_answer, write_settings
from tests.supervisor.operations.inspection.example_node import STATUS

ROOT: Final = Path(__file__).parents[2]
#: Where ``make screenshot`` has the picture of the documentation.
SCREENSHOT: Final = os.environ.get("OPENPEROUTER_SCREENSHOT", "")
RED: Final = "rgb(179, 38, 30)"
GREEN: Final = "rgb(23, 105, 58)"
HOSTILE: Final = "<img src=x onerror=alert(1)></svg><script>document.title='taken'</script>"
CHANGES: Final = (
    (7810, "router", "node-a", "ready: 7 sessions up, 3 VNIs, generation 5", "info"),
    (130, "interface", "eth2", "no carrier", "warning"),
    (130, "session", "eth2", "down: the peer sends no BFD packets", "warning"),
    (9, "VNI", "L2VNI tenant/lone", "does not work: host bridge br0 is missing", "warning"),
)


def example(now: float) -> Status:
    """A node on which a NIC, sessions and a segment do not work."""
    summary = "degraded: L2VNI tenant/lone: host bridge br0 is missing (and 4 more)"
    return replace(
        STATUS,
        node="node-a",
        version=VERSION,
        pid=28636,
        phase="degraded",
        summary=summary,
        started_at=now - 93600,
        updated_at=now,
        daemons={"bgpd": True, "zebra": True, "bfdd": False},
    )


class Daemon(socketserver.ThreadingUnixStreamServer):
    """The control socket of a daemon with this status."""

    daemon_threads = True

    def __init__(self, directory: Path, status: Status) -> None:
        self.status = status
        super().__init__(str(directory / "control.sock"), _Client)


class _Client(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer one request."""
        assert isinstance(self.server, Daemon)
        if json.loads(self.rfile.readline())["verb"] == "status":
            self._send(status_answer(self.server.status))
            return
        self._send({"events": {"instance": "boot/1", "first": 1, "last": len(CHANGES)}})
        for number, (age, topic, subject, message, level) in enumerate(CHANGES, 1):
            at = self.server.status.updated_at - age
            self._send(
                {"number": number, "at": at, "topic": topic, "subject": subject, "message": message, "level": level}
            )

    def _send(self, answer: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(answer).encode() + b"\n")


@contextmanager
def served(directory: Path, status: Status) -> Iterator[tuple[str, Daemon]]:
    """``openperouter web`` beside a daemon; yields the page's address."""
    settings = write_settings(directory)
    with Daemon(directory / "run", status) as daemon:
        thread = threading.Thread(target=daemon.serve_forever)
        thread.start()
        command = [sys.executable, "-m", "supervisor", "web", "--settings", str(settings)]
        # Port 0 is not a setting: a free one is taken and given back.
        with socketserver.TCPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
            url = f"http://127.0.0.1:{free.server_address[1]}"
        web = subprocess.Popen([*command, "--listen", url], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert web.stdout is not None
            assert url in web.stdout.readline()
            yield f"{url}/", daemon
        finally:
            web.terminate()
            assert web.wait(SECONDS) == 0
            daemon.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("web"), example(time.time())) as (url, _):
        yield f"{url}?still"


def texts(browser: Browser, selector: str) -> list[str]:
    found: list[str] = browser.value(f"[...document.querySelectorAll({selector!r})].map(one => one.textContent.trim())")
    return found


def colour(browser: Browser, selector: str, style: str, text: str) -> list[str]:
    """Return a computed style of the elements whose text begins with ``text``."""
    chosen = f"[...document.querySelectorAll({selector!r})].filter(one => one.textContent.trim().startsWith({text!r}))"
    found: list[str] = browser.value(f"{chosen}.map(one => getComputedStyle(one)[{style!r}])")
    assert found, text
    return found


def test_there_is_no_network_but_loopback() -> None:
    devices = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    assert devices == ["lo"]


def test_the_page_shows_the_node_and_what_is_down_in_red(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.value("document.title") == "degraded - node-a - openperouter"
    assert texts(browser, "h2") == ["Problems", "Topology", "Sessions", "VNIs", "Recent changes", "FRR"]
    assert colour(browser, "#summary", "color", "degraded") == [RED]
    assert colour(browser, "#problems li", "color", "L2VNI tenant/lone: host bridge br0 is missing") == [RED]
    assert colour(browser, "#sessions td", "color", "Idle") == [RED]
    assert set(colour(browser, "#sessions td", "color", "Established")) == {GREEN}
    assert colour(browser, "#vnis td", "color", "host bridge br0 is missing") == [RED]
    assert colour(browser, "#frr span", "color", "bfdd (not running)") == [RED]
    assert texts(browser, "#changes tr:nth-child(2) td")[1:] == [
        "VNI",
        "L2VNI tenant/lone: does not work: host bridge br0 is missing",
    ]
    rows = ("#sessions tr", len(STATUS.sessions)), ("#vnis tr", len(STATUS.vnis)), ("#changes tr", len(CHANGES))
    for selector, count in rows:
        assert len(texts(browser, selector)) == count + 1


def test_the_topology_is_drawn(browser: Browser, page: str) -> None:
    browser.open(page)
    box = browser.value("(({width, height}) => [width, height])(document.querySelector('svg').getBoundingClientRect())")
    assert box[0] > 400
    assert box[1] > 200
    drawn = texts(browser, "#topology svg text")
    assert any(text.startswith("node-a, AS 64514") for text in drawn)
    # Each box with its text is a group or stands before it: the colour of what is down is that of its text's frame.
    frames = browser.value(
        "[...document.querySelectorAll('#topology svg rect')].map(one => "
        "[getComputedStyle(one).stroke, one.getBoundingClientRect().width])"
    )
    red = [width for stroke, width in frames if stroke == RED]
    down = [text for text in drawn if "DOWN" in text]
    assert len(red) == len(down) >= 5
    assert all(width > 50 for width in red)


def test_it_asks_for_nothing_but_itself_and_the_browser_has_no_complaint(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.requested() == [page]
    assert browser.complaints() == []


def test_on_a_narrow_screen_only_the_drawing_scrolls(browser: Browser, page: str) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(page)
        assert browser.value("innerWidth") == 400  # as the page's viewport says, and not a desktop's scaled down
        assert browser.value("document.documentElement.scrollWidth") <= 400
        figure = browser.value("(one => [one.scrollWidth, one.clientWidth])(document.querySelector('figure'))")
        assert figure[0] > figure[1]
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


def test_a_dark_scheme_leaves_it_light(browser: Browser, page: str) -> None:
    """The page has one scheme, and says so: its colours do not mix with a browser's dark ones."""
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        browser.open(page)
        assert colour(browser, "body", "backgroundColor", "") == ["rgb(255, 255, 255)"]
        assert browser.value("getComputedStyle(document.documentElement).colorScheme") == "light"
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])


def test_names_that_are_markup_are_text_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    status = example(time.time())
    sessions = (replace(status.sessions[0], peer=HOSTILE, detail=HOSTILE), *status.sessions[1:])
    with served(tmp_path, replace(status, node=HOSTILE, summary=HOSTILE, sessions=sessions)) as (url, _):
        browser.open(f"{url}?still")
        assert HOSTILE in browser.value("document.title")
        assert browser.value("document.querySelectorAll('script, img').length") == 0
        assert texts(browser, "#summary") == [HOSTILE]
        assert HOSTILE in texts(browser, "#sessions td")
        assert browser.requested() == [f"{url}?still"]
        assert browser.complaints() == []


def test_it_refreshes_itself_and_says_when_the_daemon_is_gone(browser: Browser, tmp_path: Path) -> None:
    status = example(time.time())
    with served(tmp_path, status) as (url, daemon):
        browser.open(url)
        assert texts(browser, "#banner") == []
        (tmp_path / "run/state.json").write_text(status.to_json())
        daemon.server_close()
        (tmp_path / "run/control.sock").unlink()
        browser.wait_for("Page.loadEventFired", REFRESH_SECONDS + SECONDS)
        [banner] = texts(browser, "#banner")
        assert banner.startswith("the daemon is not running; this is its last status")
        assert colour(browser, "#banner", "color", "the daemon") == [RED]


class _Intrusive(BaseHTTPRequestHandler):
    """A page as ours must not be."""

    def do_GET(self) -> None:
        """Answer with it."""
        page = b"<!doctype html><title>x</title><img src='http://192.0.2.1/x.png'><script>console.error('x')</script>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_page_that_loads_or_complains_would_be_seen(browser: Browser) -> None:
    with HTTPServer(("127.0.0.1", 0), _Intrusive) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser.open(f"http://127.0.0.1:{server.server_address[1]}/")
        finally:
            server.shutdown()
            thread.join()
    assert "http://192.0.2.1/x.png" in browser.requested()
    assert any('"x"' in complaint for complaint in browser.complaints())


def test_a_picture_of_the_page_can_be_taken(browser: Browser, page: str, tmp_path: Path) -> None:
    """``make screenshot`` gives the place of the documentation's."""
    size = {"width": 1280, "height": 1500, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(page)
        picture = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20], "big") == 1280
    Path(SCREENSHOT or tmp_path / "web.png").write_bytes(picture)
