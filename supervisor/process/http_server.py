"""HTTP/1.1 with bounds; and small pages, one ``GET`` or ``HEAD`` for each connection, on a unix socket or TCP.

    connection ──> TLS, if there is a context ──> request's head (bounded) ──> Response of the program ──> closed

h11 parses what clients send and bounds it; the number of connections has a limit. A connection for pages has a
deadline, and nothing can be changed through it: other methods are refused, and a request's body is never read. The
admission webhook (actors/webhook/server.py) has the same limits on heads and connections, and reads bodies.
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
#: A head may be larger than its bound by one read.
_READ_BYTES: Final = 4096
_BODY_READ_BYTES: Final = 1 << 16

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
async def listeners(
    path: Path | None, host: str = "", port: int = 0, *, backlog: int = MOST_CONNECTIONS
) -> AsyncIterator[list[trio.SocketListener]]:
    """Listen on a unix socket for this user and its group, or without ``path`` on an address, "" for all addresses.

    Raises ``OSError``.
    """
    if path is not None:
        with listening(path, mode=SOCKET_MODE, backlog=backlog) as listener:
            yield [listener]
        return
    opened = await trio.open_tcp_listeners(port, host=host or None, backlog=backlog)
    try:
        yield opened
    finally:
        for one in opened:
            with trio.CancelScope(shield=True):
                await one.aclose()


class Connections:
    """Serves clients, up to ``most`` at once, each by ``serve``, which gets its connection and need not close it."""

    def __init__(self, serve: Callable[[trio.SocketStream], Awaitable[None]], most: int = MOST_CONNECTIONS) -> None:
        self._serve, self._most = serve, most
        self._open = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one client; no error of its connection leaves this method."""
        self._open += 1
        try:
            async with stream:
                if self._open <= self._most:
                    await self._serve(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError) as group:
            log.debug("a client disconnected", error=str(group.exceptions[0]))
        finally:
            self._open -= 1


class HttpServer:
    """Serves what ``respond`` answers to a ``GET`` or ``HEAD``; over TLS if there is a ``context``."""

    def __init__(self, respond: Respond, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._respond = respond
        self._context = context
        self.handle = Connections(self._handle).handle

    async def _handle(self, stream: trio.SocketStream) -> None:
        # Closing TLS properly needs the peer; the deadline covers that as well.
        with trio.move_on_after(CONNECTION_SECONDS):
            await self._serve(self._secured(stream))

    def _secured(self, stream: trio.SocketStream) -> Stream:
        if self._context is None:
            return stream
        return trio.SSLStream(stream, self._context(), server_side=True, https_compatible=True)

    async def _serve(self, stream: Stream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        try:
            request = await read_head(stream, connection)
        except h11.RemoteProtocolError as error:
            await send(stream, connection, Response(error.error_status_hint, b"bad request\n"))
            return
        if request is None:
            return
        if request.method in (b"GET", b"HEAD"):
            answer = await self._respond(request)
        else:
            answer = Response(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        await send(stream, connection, answer, head=request.method == b"HEAD")
        if isinstance(stream, trio.SSLStream):
            await stream.aclose()


async def read_head(stream: Stream, connection: h11.Connection) -> h11.Request | None:
    """Return the next request's head, None for a client that left. Raises h11's error if it is malformed."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(_READ_BYTES))


async def read_body(stream: Stream, connection: h11.Connection, most: int) -> bytes:
    """Return a request's body. Raises h11's error for one that is longer than ``most`` bytes or incomplete."""
    body = bytearray()
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            body += event.data
            if len(body) > most:
                raise h11.RemoteProtocolError(f"the body is longer than {most} bytes", error_status_hint=413)
        elif event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_BODY_READ_BYTES))
        else:
            raise h11.RemoteProtocolError("the request is incomplete")
    return bytes(body)


async def send(
    stream: Stream, connection: h11.Connection, answer: Response, *, head: bool = False, close: bool = True
) -> None:
    """Send an answer, or its ``head`` only; ``close``: it says that it is the connection's last one."""
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body))), *answer.headers]
    headers += [("Connection", "close")] if close else []
    out = connection.send(h11.Response(status_code=answer.status, headers=headers)) or b""
    if not head:
        out += connection.send(h11.Data(data=answer.body)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(out)
