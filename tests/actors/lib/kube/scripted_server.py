"""A server on the loopback that answers with exactly the bytes of a test, such as no real one would send."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from actors.lib.kube.client import KubeClient
from config.api import ApiCredentials

#: Gets the connection and the request's head; returns when the connection may carry the next request.
Answer = Callable[[trio.abc.Stream, str], Awaitable[None]]


@dataclass
class ScriptedServer:
    """What it received: the heads and bodies of requests, in order, and the number of connections."""

    answer: Answer
    port: int = 0
    scheme: str = "http"
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    #: Set when a client has closed its end.
    closed: trio.Event = field(default_factory=trio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer requests until the client disconnects."""
        self.connections += 1
        try:
            while await self._serve_one(stream):
                pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self.closed.set()

    async def _serve_one(self, stream: trio.abc.Stream) -> bool:
        received = b""
        while b"\r\n\r\n" not in received:
            some = await stream.receive_some()
            if not some:
                return False
            received += some
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        while length and len(body) < int(length[1]):
            body += await stream.receive_some()
        self.heads.append(head.decode())
        self.bodies.append(body)
        await self.answer(stream, head.decode())
        return True


async def start(nursery: trio.Nursery, answer: Answer, tls: ssl.SSLContext | None = None) -> ScriptedServer:
    """Return a server that listens, with TLS if there is a context for it, until the nursery ends."""
    server = ScriptedServer(answer, scheme="https" if tls else "http")
    [plain] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server.port = plain.socket.getsockname()[1]
    listener = plain if tls is None else trio.SSLListener(plain, tls, https_compatible=True)
    nursery.start_soon(trio.serve_listeners, server.serve, [listener])
    return server


@asynccontextmanager
async def talking(answer: Answer, **credentials: Any) -> AsyncIterator[tuple[KubeClient, ScriptedServer]]:
    """Yield a client, with these credentials, and the server that it talks to."""
    async with trio.open_nursery() as nursery:
        server = await start(nursery, answer)
        async with KubeClient(ApiCredentials(server=server.url, **credentials)) as client:
            yield client, server
        nursery.cancel_scope.cancel()


def whole(body: bytes = b"{}", status: str = "200 OK", *headers: str) -> bytes:
    """Return a complete answer."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes) -> bytes:
    """Return the beginning of a streamed answer; ``end()`` completes it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(chunk(one) for one in chunks)


def chunk(data: bytes) -> bytes:
    """Return one more piece of a streamed answer."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def end() -> bytes:
    """Return the orderly end of a streamed answer."""
    return b"0\r\n\r\n"


def saying(*answers: bytes) -> Answer:
    """Answer each request with the next bytes, the last ones again and again."""
    left = list(answers)

    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        await stream.send_all(left.pop(0) if len(left) > 1 else left[0])

    return answer


def hanging_up_after(data: bytes) -> Answer:
    """Answer with these bytes and close the connection."""

    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        await stream.send_all(data)
        await stream.aclose()

    return answer


def silent_after(data: bytes) -> Answer:
    """Answer with these bytes and keep the connection open."""

    async def answer(stream: trio.abc.Stream, _head: str) -> None:
        await stream.send_all(data)
        # Until the client disconnects.
        await stream.receive_some()

    return answer
