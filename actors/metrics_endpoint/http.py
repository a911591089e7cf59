"""One page over HTTP/1.1: ``GET`` and ``HEAD`` of ``/metrics``, one request for each connection.

h11 parses what clients send and bounds it; a connection has a deadline, and their number has a limit.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import h11
import trio

from actors.lib.metrics.exposition import CONTENT_TYPE
from supervisor.logs.logger import get_logger

log = get_logger("metrics_endpoint")

MOST_CONNECTIONS: Final = 16
#: For the whole of a connection: handshake, request and answer. Prometheus gives a scrape ten seconds by default.
CONNECTION_SECONDS: Final = 10.0
#: More than any scraper's headers.
MOST_HEADER_BYTES: Final = 16 * 1024
_READ_BYTES: Final = 4096
_PATH: Final = b"/metrics"
_PLAIN: Final = "text/plain; charset=utf-8"

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class HttpServer:
    """Serves the text that ``page`` returns, None for not yet; over TLS if there is a ``context``."""

    def __init__(self, page: Callable[[], bytes | None], context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._page = page
        self._context = context
        self._connections = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one client; no error of its connection leaves this method."""
        self._connections += 1
        try:
            # Closing TLS properly needs the peer; the deadline covers that as well.
            with trio.move_on_after(CONNECTION_SECONDS):
                async with stream:
                    if self._connections <= MOST_CONNECTIONS:
                        await self._serve(self._secured(stream))
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError) as group:
            log.debug("a client disconnected", error=str(group.exceptions[0]))
        finally:
            self._connections -= 1

    def _secured(self, stream: trio.SocketStream) -> Stream:
        if self._context is None:
            return stream
        return trio.SSLStream(stream, self._context(), server_side=True, https_compatible=True)

    async def _serve(self, stream: Stream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        try:
            request = await _request(stream, connection)
        except h11.RemoteProtocolError as error:
            await _answer(stream, connection, error.error_status_hint, b"bad request\n")
            return
        if request is None:
            return
        status, body, kind = self._response(request)
        await _answer(stream, connection, status, body, kind=kind, head=request.method == b"HEAD")
        if isinstance(stream, trio.SSLStream):
            await stream.aclose()

    def _response(self, request: h11.Request) -> tuple[int, bytes, str]:
        if request.target.partition(b"?")[0] != _PATH:
            return 404, b"the metrics are at /metrics\n", _PLAIN
        if request.method not in (b"GET", b"HEAD"):
            return 405, b"only GET and HEAD\n", _PLAIN
        text = self._page()
        if text is None:
            return 503, b"the daemon has no status yet\n", _PLAIN
        return 200, text, CONTENT_TYPE


async def _request(stream: Stream, connection: h11.Connection) -> h11.Request | None:
    """Return the request's head, None for a client that left. Raises h11's error for what is none."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(_READ_BYTES))


async def _answer(
    stream: Stream, connection: h11.Connection, status: int, body: bytes, *, kind: str = _PLAIN, head: bool = False
) -> None:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Connection", "close")]
    if status == 405:
        headers.append(("Allow", "GET, HEAD"))
    out = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    if not head:
        out += connection.send(h11.Data(data=body)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(out)
