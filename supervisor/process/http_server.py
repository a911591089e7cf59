"""Small pages over HTTP/1.1: ``GET`` and ``HEAD``, one request for each connection, on a unix socket or TCP.

    connection ──> TLS, if there is a context ──> request's head (bounded) ──> Response of the program ──> closed

h11 parses what clients send and bounds it; a connection has a deadline, and their number has a limit. Nothing can be
changed through it: other methods are refused, and a request's body is never read.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import h11
import trio

from ..logs.logger import get_logger
from .unix_socket import listening

log = get_logger("http_server")

MOST_CONNECTIONS: Final = 16
#: For the whole of a connection: handshake, request and answer. Prometheus gives a scrape ten seconds by default.
CONNECTION_SECONDS: Final = 10.0
#: More than any scraper's or browser's headers.
MOST_HEADER_BYTES: Final = 16 * 1024
#: Read and write for the owner and the group (unix(7): connecting needs write permission).
SOCKET_MODE: Final = 0o660
PLAIN: Final = "text/plain; charset=utf-8"
_READ_BYTES: Final = 4096

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@dataclass(frozen=True, slots=True)
class Response:
    """What a request is answered with; ``kind`` is the media type, ``headers`` are further ones."""

    status: int
    body: bytes
    kind: str = PLAIN
    headers: tuple[tuple[str, str], ...] = ()


Respond = Callable[[h11.Request], Awaitable[Response]]


@asynccontextmanager
async def listeners(path: Path | None, host: str = "", port: int = 0) -> AsyncIterator[list[trio.SocketListener]]:
    """Listen on a unix socket for this user and its group, or without ``path`` on an address. Raises ``OSError``."""
    if path is not None:
        with listening(path, mode=SOCKET_MODE, backlog=MOST_CONNECTIONS) as listener:
            yield [listener]
        return
    opened = await trio.open_tcp_listeners(port, host=host, backlog=MOST_CONNECTIONS)
    try:
        yield opened
    finally:
        for one in opened:
            with trio.CancelScope(shield=True):
                await one.aclose()


class HttpServer:
    """Serves what ``respond`` answers to a ``GET`` or ``HEAD``; over TLS if there is a ``context``."""

    def __init__(self, respond: Respond, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._respond = respond
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
            await _send(stream, connection, Response(error.error_status_hint, b"bad request\n"))
            return
        if request is None:
            return
        if request.method in (b"GET", b"HEAD"):
            answer = await self._respond(request)
        else:
            answer = Response(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        await _send(stream, connection, answer, head=request.method == b"HEAD")
        if isinstance(stream, trio.SSLStream):
            await stream.aclose()


async def _request(stream: Stream, connection: h11.Connection) -> h11.Request | None:
    """Return the request's head, None for a client that left. Raises h11's error if it is malformed."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(_READ_BYTES))


async def _send(stream: Stream, connection: h11.Connection, answer: Response, *, head: bool = False) -> None:
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body))), ("Connection", "close")]
    response = h11.Response(status_code=answer.status, headers=[*headers, *answer.headers])
    out = connection.send(response) or b""
    if not head:
        out += connection.send(h11.Data(data=answer.body)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(out)
