"""Serve the page: who may ask, what is read from the daemon, and how often.

    GET / ──> Host is this machine? ──> status and events, read at most once a second ──> page ──> answer

A page of the web that an operator visits may point its name at 127.0.0.1 and read what a browser fetches from there
(DNS rebinding), so the request's ``Host`` must be a name of loopback. The page itself allows neither scripts nor
frames nor anything from elsewhere. Connections are bounded as the metrics' (``supervisor.process.http_server``).
"""

from __future__ import annotations

import re
import signal
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import h11
import trio

from config.metrics_settings import Endpoint
from supervisor.operations.control_client import NoAnswerError, ask
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.inspection.current_status import read_status
from supervisor.operations.inspection.history import PastEvent
from supervisor.operations.paths import CONTROL_SOCKET
from supervisor.process.http_server import HttpServer, Response, listeners

from .page import POLICY, failure_page, status_page

#: The page is made at most so often, seconds: no number of browsers keeps the daemon busy.
FRESH_SECONDS: Final = 1.0
#: Changes that the page shows.
MOST_EVENTS: Final = 50
#: Names of loopback. A port may follow: the one that ssh forwards is any.
LOCAL_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_HTML: Final = "text/html; charset=utf-8"
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)


async def serve(endpoint: Endpoint, directory: Path) -> None:
    """Serve until SIGINT or SIGTERM; ``directory`` is the daemon's runtime directory. Raises ``OSError``."""
    path = endpoint.path if endpoint.scheme == "unix" else None
    site = Site(directory, endpoint.host)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with listeners(path, endpoint.host, endpoint.port) as opened, trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, HttpServer(site.respond).handle, opened)
            at = f"unix:{path}" if path else f"http://{_in_url(endpoint.host)}:{endpoint.port}"
            print(f"serving the status of this node at {at}, until it is interrupted", flush=True)
            await anext(aiter(signals))
            nursery.cancel_scope.cancel()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class Site:
    """Answers requests with the page; all browsers share what was read from the daemon."""

    def __init__(self, directory: Path, host: str = "") -> None:
        """``host`` is the address that is served, which may be another one of loopback."""
        self._directory = directory
        self._names = LOCAL_NAMES | ({_in_url(host).encode()} if host else frozenset())
        self._lock = trio.Lock()
        self._changes = Changes()
        self._pages: dict[bool, Response] = {}
        self._made_at = float("-inf")

    async def respond(self, request: h11.Request) -> Response:
        """Answer one request."""
        if not self._is_local(request):
            return Response(403, b"ask for localhost: other names of this machine are not served\n", headers=HEADERS)
        path, _, query = request.target.partition(b"?")
        if path != b"/" or query not in (b"", b"still"):
            return Response(404, b"the page is at /\n", headers=HEADERS)
        async with self._lock:
            if trio.current_time() >= self._made_at + FRESH_SECONDS:
                made = partial(_make, self._directory, self._changes)
                self._changes, self._pages = await trio.to_thread.run_sync(made, abandon_on_cancel=True)
                self._made_at = trio.current_time()
            return self._pages[query == b"still"]

    def _is_local(self, request: h11.Request) -> bool:
        hosts = [value for name, value in request.headers if name == b"host"]
        if len(hosts) != 1:
            return False
        name = re.sub(rb":[0-9]{1,5}\Z", b"", hosts[0])
        return name.lower() in self._names


@dataclass(frozen=True, slots=True)
class Changes:
    """The newest changes, oldest first, of one life of the daemon."""

    instance: str = ""
    events: tuple[PastEvent, ...] = ()


def _make(directory: Path, known: Changes) -> tuple[Changes, dict[bool, Response]]:
    """Read the daemon; return its changes, and the page by whether it stays as it is instead of refreshing itself."""
    try:
        seen = read_status(directory)
    except (CommandError, OSError) as error:
        return known, {still: _answer(503, failure_page(str(error), still=still)) for still in (False, True)}
    missing = ""
    if not seen.is_last:
        try:
            known = _changes(directory, known)
        except (CommandError, OSError, KeyError, TypeError, ValueError) as error:
            missing = f"the daemon's changes cannot be read: {error}"
    events, now = known.events[::-1], time.time()
    texts = {still: status_page(seen, events, now, still=still, missing=missing) for still in (False, True)}
    return known, {still: _answer(200, text) for still, text in texts.items()}


def _answer(status: int, text: str) -> Response:
    return Response(status, text.encode("utf-8", "replace"), _HTML, HEADERS)


def _changes(directory: Path, known: Changes) -> Changes:
    """Return the changes that are known with those since then."""
    after = known.events[-1].number if known.events else 0
    instance, found = known.instance, deque(known.events, maxlen=MOST_EVENTS)
    request = {"verb": "events", "instance": instance, "after": after}
    for answer in ask(directory / CONTROL_SOCKET, request):
        if not isinstance(answer, dict) or "error" in answer:
            raise NoAnswerError(f"the daemon refuses: {answer}")
        if isinstance(head := answer.get("events"), dict):
            if head["instance"] != instance:
                instance = str(head["instance"])
                found.clear()
        else:
            found.append(PastEvent.of(answer))
    return Changes(instance, tuple(found))
