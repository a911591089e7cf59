"""Answer the API server over HTTPS: ``POST /validate`` with an AdmissionReview, and ``GET /healthz`` and ``/readyz``.

    connection ──> TLS with the newest certificate ──> request (bounded) ──> review ──> answer; the connection stays

Until there are a certificate and a whole picture of the cluster the answer is 503, which the API server takes as no
webhook. A connection stays open longer than the API server keeps an idle one, because a request that meets a closing
connection is lost. Stopped, it takes no more connections and ends idle ones, and answers what was asked.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Final

import h11
import trio

from config.admission.review import ReviewRequest, ReviewResponse, review
from config.resolve.grants import Grants
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader
from supervisor.runtime.faults import DependencyFault

from .admission import NotAReviewError, read_review, write_review
from .certificates import Stored
from .follow import ClusterObjects

log = get_logger("webhook")

MOST_CONNECTIONS: Final = 128
#: Two versions of an object, of which etcd takes 1.5 MiB each. Decoded they take twenty times as much for a moment.
MOST_BODY_BYTES: Final = 4 * 1024 * 1024
#: All bodies together: any client that reaches the port may send some.
MOST_BODIES_BYTES: Final = 32 * 1024 * 1024
MOST_HEADER_BYTES: Final = 32 * 1024
#: Go's HTTP client closes idle connections after 90 s.
IDLE_SECONDS: Final = 150.0
#: For a handshake, and for a request after its head, which a stop waits for. The API server waits for five.
REQUEST_SECONDS: Final = 4.0
_READ_BYTES: Final = 65536
_PLAIN: Final = "text/plain; charset=utf-8"

Tls = trio.SSLStream[trio.SocketStream]


async def run(
    ctx: ActorContext,
    *,
    host: str,
    port: int,
    grants: Grants,
    known: LatestReader[ClusterObjects],
    certificates: LatestReader[Stored],
    opened: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve indefinitely; ``opened`` gets the port. Raises :class:`DependencyFault` when it cannot be opened."""
    server = WebhookServer(grants, known, certificates)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host or None)
    except OSError as error:
        raise DependencyFault(f"cannot listen on port {port}: {error.strerror or error}") from error
    try:
        opened(listeners[0].socket.getsockname()[1])
        ctx.started()
        log.info("serving admission reviews", port=listeners[0].socket.getsockname()[1])
        with ctx.idle():
            await trio.serve_listeners(server.handle, listeners)
    finally:
        for one in listeners:
            with trio.CancelScope(shield=True):
                await one.aclose()


class WebhookServer:
    """The connections of one run."""

    def __init__(self, grants: Grants, known: LatestReader[ClusterObjects], certificates: LatestReader[Stored]) -> None:
        self._grants, self._known, self._certificates = grants, known, certificates
        self._context: tuple[Stored, ssl.SSLContext] | None = None
        self._connections = 0
        #: Of the bodies that are being received.
        self._received_bytes = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one client; no error of its connection leaves this method."""
        self._connections += 1
        try:
            async with stream:
                context = self._tls()
                if context is not None and self._connections <= MOST_CONNECTIONS:
                    await self._serve(trio.SSLStream(stream, context, server_side=True, https_compatible=True))
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError, OSError) as group:
            log.debug("a client disconnected", error=str(group.exceptions[0]))
        finally:
            self._connections -= 1

    def _tls(self) -> ssl.SSLContext | None:
        """Return the context of the newest certificate."""
        stored = self._certificates.peek()
        if stored is None:
            return None
        if self._context is None or self._context[0] is not stored:
            self._context = stored, serving_context(stored)
        return self._context[1]

    async def _serve(self, stream: Tls) -> None:
        with trio.move_on_after(REQUEST_SECONDS) as handshake:
            await stream.do_handshake()
        if handshake.cancelled_caught:
            return
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        while await self._next(stream, connection):
            connection.start_next_cycle()

    async def _next(self, stream: Tls, connection: h11.Connection) -> bool:
        """Answer the next request; return whether another one may follow."""
        try:
            request = await _head(stream, connection)
            if request is None:
                return False
            # A stop takes effect after the answer: the API server waits for it.
            with trio.move_on_after(REQUEST_SECONDS, shield=True):
                status, body, kind = self._response(request, await self._body(stream, connection))
                await _send(stream, connection, status, body, kind)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await _send(stream, connection, error.error_status_hint, b"bad request\n", _PLAIN)
            return False
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _body(self, stream: Tls, connection: h11.Connection) -> bytes:
        """Return a request's body. Raises h11's error for one that is too large or incomplete."""
        parts = bytearray()
        try:
            while True:
                event = connection.next_event()
                if isinstance(event, h11.Data):
                    parts += event.data
                    self._received_bytes += len(event.data)
                    if len(parts) > MOST_BODY_BYTES:
                        raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
                    if self._received_bytes > MOST_BODIES_BYTES:
                        raise h11.RemoteProtocolError("too many bodies at once", error_status_hint=503)
                elif isinstance(event, h11.EndOfMessage):
                    return bytes(parts)
                elif event is h11.NEED_DATA:
                    if connection.they_are_waiting_for_100_continue:
                        go = h11.InformationalResponse(status_code=100, headers=[])
                        await stream.send_all(connection.send(go) or b"")
                    connection.receive_data(await stream.receive_some(_READ_BYTES))
                else:
                    raise h11.RemoteProtocolError("the request is incomplete")
        finally:
            self._received_bytes -= len(parts)

    def _response(self, request: h11.Request, body: bytes) -> tuple[int, bytes, str]:
        path, known = request.target.partition(b"?")[0], self._known.peek()
        if path == b"/healthz":
            return 200, b"ok\n", _PLAIN
        if path not in (b"/readyz", b"/validate"):
            return 404, b"reviews are at /validate\n", _PLAIN
        if known is None or not known.complete:
            return 503, b"the objects are not known yet\n", _PLAIN
        if path == b"/readyz":
            return 200, b"ok\n", _PLAIN
        try:
            return self._answer(known, *read_review(body))
        except NotAReviewError as error:
            return 400, f"{error}\n".encode(), _PLAIN

    def _answer(self, known: ClusterObjects, uid: str, asked: ReviewRequest) -> tuple[int, bytes, str]:
        try:
            answer = review(known.objects, known.nodes, asked, self._grants)
        except Exception as error:  # noqa: BLE001 - a bug with one object must not end the service for all others
            log.bug("a review failed; the object is admitted", error, message_id=message_ids.WEBHOOK_BUG)
            answer = ReviewResponse(warnings=("openperouter's webhook could not check this object",))
        if not answer.allowed and asked.new is not None:
            log.info("denied", kind=asked.new.kind, namespace=asked.new.namespace, name=asked.new.name)
        return 200, write_review(uid, answer), "application/json"


def serving_context(stored: Stored) -> ssl.SSLContext:
    """Return the TLS context of a certificate. OpenSSL reads only files: one in memory keeps the key off the disk."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    descriptor = os.memfd_create("webhook", os.MFD_CLOEXEC)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
        file.write(f"{stored.certificate}\n{stored.key}\n".encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: b"")
    return context


async def _head(stream: Tls, connection: h11.Connection) -> h11.Request | None:
    """Return the next request's head, None for a client that left or is silent for too long."""
    with trio.move_on_after(IDLE_SECONDS):
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            connection.receive_data(await stream.receive_some(_READ_BYTES))
    return None


async def _send(stream: Tls, connection: h11.Connection, status: int, body: bytes, kind: str) -> None:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
    out = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    out += connection.send(h11.Data(data=body)) or b""
    out += connection.send(h11.EndOfMessage()) or b""
    await stream.send_all(out)
