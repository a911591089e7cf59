"""Serve the metrics over HTTP on a unix socket, a loopback address, or with TLS; only if ``metrics.listen`` is set.

    newest status, counters -> text, made at most once a second -> GET /metrics

Nothing else is served, and nothing can be changed. A client that stalls, floods or sends garbage costs a bounded amount
of memory and time. Certificate, key and authority are read again when their files change; while the new ones cannot be
used, the old ones are. If the endpoint cannot be opened, this actor fails and is restarted with back-off; the
router does not need it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from actors.lib.metrics.exposition import CONTENT_TYPE, metrics_text
from config.metrics_settings import MetricsSettings, endpoint_of
from config.status import Status
from config.syntax.files import Mark, mark
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import LatestReader
from supervisor.runtime.faults import DependencyFault

if TYPE_CHECKING:
    import h11

    from supervisor.process.http_server import Respond

log = get_logger("metrics_endpoint")

#: Minimum age of the text before it is rendered again, seconds: no client can keep the daemon busy.
FRESH_SECONDS: Final = 1.0
_PATH: Final = b"/metrics"


async def run(ctx: ActorContext, *, settings: MetricsSettings, status: LatestReader[Status]) -> None:
    """Serve indefinitely. Raises :class:`DependencyFault` when the endpoint cannot be opened."""
    if settings.listen is None:
        ctx.started()
        with ctx.idle():
            await trio.sleep_forever()
    # Most nodes do not serve HTTP, and the parser of it is a twentieth of what the daemon imports.
    from supervisor.process.http_server import HttpServer, listeners

    endpoint = endpoint_of(settings.listen or "")
    certificates = Certificates(settings) if endpoint.scheme == "https" else None
    server = HttpServer(responder(MetricsText(status).get), certificates.context if certificates else None)
    async with AsyncExitStack() as stack:
        path = endpoint.path if endpoint.scheme == "unix" else None
        try:
            opened = await stack.enter_async_context(listeners(path, endpoint.host, endpoint.port))
        except OSError as error:
            raise DependencyFault(f"metrics.listen: cannot listen: {error.strerror or error}") from error
        ctx.started()
        ctx.note(listen=settings.listen)
        log.info("serving metrics", listen=settings.listen)
        with ctx.idle():
            await trio.serve_listeners(server.handle, opened)


def responder(text: Callable[[], bytes | None]) -> Respond:
    """Return what answers requests with a text at ``/metrics``; None of it is not yet."""
    from supervisor.process.http_server import Response

    async def respond(request: h11.Request) -> Response:
        if request.target.partition(b"?")[0] != _PATH:
            return Response(404, b"the metrics are at /metrics\n")
        now = text()
        if now is None:
            return Response(503, b"the daemon has no status yet\n")
        return Response(200, now, CONTENT_TYPE)

    return respond


class MetricsText:
    """The metrics as text, of the newest status; None while there is none."""

    def __init__(self, status: LatestReader[Status]) -> None:
        self._status = status
        self._made_at = 0.0
        self._text: bytes | None = None

    def get(self) -> bytes | None:
        """Return a text that is no older than ``FRESH_SECONDS``."""
        now, status = trio.current_time(), self._status.peek()
        if status is not None and (self._text is None or now >= self._made_at + FRESH_SECONDS):
            self._text, self._made_at = metrics_text(status).encode(), now
        return self._text


class Certificates:
    """The TLS context of the last usable files."""

    def __init__(self, settings: MetricsSettings) -> None:
        """Raise :class:`DependencyFault` when they cannot be used."""
        self._settings = settings
        self._seen = self._marks()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        seen = self._marks()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._load()
            except DependencyFault as fault:
                log.warning(f"{fault}; the previous ones stay in use", message_id=message_ids.METRICS_CERTIFICATE)
        return self._context

    def _marks(self) -> tuple[Mark, ...]:
        return tuple(map(mark, self._files()))

    def _files(self) -> tuple[Path, ...]:
        found = (self._settings.certificate, self._settings.key, self._settings.client_authority)
        return tuple(path for path in found if path is not None)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        settings = self._settings
        try:
            # Without a password callback an encrypted key would prompt on the terminal.
            context.load_cert_chain(settings.certificate or "", settings.key, password=lambda: b"")
            if settings.client_authority is not None:
                context.load_verify_locations(cafile=settings.client_authority)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            names = ", ".join(map(str, self._files()))
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            raise DependencyFault(f"metrics: the certificates cannot be used ({reason}): {names}") from None
        return context
