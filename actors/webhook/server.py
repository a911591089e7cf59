"""Response the API server over HTTPS: ``POST /validate`` with an AdmissionReview, and ``GET /healthz`` and ``/readyz``.

    connection ──> TLS with the newest certificate ──> request (bounded) ──> review ──> answer; the connection stays

Without a certificate connections end; without a whole and recent picture of the cluster the answer is 503, which the
API server takes as no webhook. A connection stays open longer than the API server keeps an idle one, because a request
that meets a closing connection is lost. Stopped, it takes no more connections and ends idle ones, and answers what was
asked.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import h11
import trio

from actors.lib.kube.client import load_pair
from config.admission.review import ReviewRequest, ReviewResponse, review
from config.resolve.grants import Grants
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.http_server import Connections, Response, listeners, read_head, send
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
#: Others may not be followed by what HTTP calls an answer: a success to CONNECT ends HTTP on the connection.
_METHODS: Final = (b"GET", b"HEAD", b"POST")
_NOT_ALLOWED: Final = Response(405, b"only GET, HEAD and POST\n", headers=(("Allow", "GET, HEAD, POST"),))

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
    async with AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(listeners(None, host, port, backlog=MOST_CONNECTIONS))
        except OSError as error:
            raise DependencyFault(f"cannot listen on port {port}: {error.strerror or error}") from error
        opened(found[0].socket.getsockname()[1])
        ctx.started()
        log.info("serving admission reviews", port=found[0].socket.getsockname()[1])
        with ctx.idle():
            await trio.serve_listeners(Connections(server.serve, MOST_CONNECTIONS).handle, found)


class WebhookServer:
    """The connections of one run."""

    def __init__(self, grants: Grants, known: LatestReader[ClusterObjects], certificates: LatestReader[Stored]) -> None:
        self._grants, self._known, self._certificates = grants, known, certificates
        self._context: tuple[Stored, ssl.SSLContext] | None = None
        #: Of the bodies that are being received.
        self._received_bytes = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Response one client's requests; without a certificate there is nothing to say."""
        context = self._tls()
        if context is None:
            return
        tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with trio.move_on_after(REQUEST_SECONDS) as handshake:
            await tls.do_handshake()
        if handshake.cancelled_caught:
            return
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        while await self._next(tls, connection):
            connection.start_next_cycle()

    def _tls(self) -> ssl.SSLContext | None:
        """Return the context of the newest certificate."""
        stored = self._certificates.peek()
        if stored is None:
            return None
        if self._context is None or self._context[0] is not stored:
            self._context = stored, serving_context(stored)
        return self._context[1]

    async def _next(self, stream: Tls, connection: h11.Connection) -> bool:
        """Response the next request; return whether another one may follow."""
        request: h11.Request | None = None
        try:
            with trio.move_on_after(IDLE_SECONDS):
                request = await read_head(stream, connection)
            if request is None:
                return False
            # A stop takes effect after the answer: the API server waits for it.
            with trio.move_on_after(REQUEST_SECONDS, shield=True):
                body = await self._body(stream, connection)
                answer = self._response(request, body) if request.method in _METHODS else _NOT_ALLOWED
                await send(stream, connection, answer, head=request.method == b"HEAD", close=False)
        except h11.RemoteProtocolError as error:
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await send(stream, connection, Response(error.error_status_hint, b"bad request\n"))
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

    def _response(self, request: h11.Request, body: bytes) -> Response:
        path, known = request.target.partition(b"?")[0], self._known.peek()
        if path == b"/healthz":
            return Response(200, b"ok\n")
        if path not in (b"/readyz", b"/validate"):
            return Response(404, b"reviews are at /validate\n")
        if known is None or not known.ready:
            return Response(503, b"the cluster's objects are not known\n")
        if path == b"/readyz":
            return Response(200, b"ok\n")
        try:
            return self._reviewed(known, *read_review(body))
        except NotAReviewError as error:
            return Response(400, f"{error}\n".encode())

    def _reviewed(self, known: ClusterObjects, uid: str, asked: ReviewRequest) -> Response:
        try:
            decision = review(known.objects, known.nodes, asked, self._grants)
        except Exception as error:  # noqa: BLE001 - a bug with one object must not end the service for all others
            log.bug("a review failed; the object is admitted", error, message_id=message_ids.WEBHOOK_BUG)
            decision = ReviewResponse(warnings=("openperouter's webhook could not check this object",))
        if not decision.allowed and asked.new is not None:
            log.info("denied", kind=asked.new.kind, namespace=asked.new.namespace, name=asked.new.name)
        return Response(200, write_review(uid, decision), "application/json")


def serving_context(stored: Stored) -> ssl.SSLContext:
    """Return the TLS context of a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, stored.certificate, stored.key)
    return context
