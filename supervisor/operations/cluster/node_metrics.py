"""The metrics of a node's daemon, served inside the cluster by a pod on each node.

    the daemon's file in a directory of the host, mounted read-only ──> GET /metrics on the pod's address

The file is complete at any moment, since the daemon replaces it. It stays when the daemon dies: the time in it shows
how old it is, and an alert rule compares that with the clock. Without a file the answer is 503, so Prometheus' ``up``
is 0. A pod of its own and not the hostbridge's: that one is in the host's network, where no NetworkPolicy limits who
reads the names of tenants.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import h11
import trio

from actors.lib.metrics.exposition import CONTENT_TYPE
from config.syntax.files import UnreadableFileError, read_bounded
from supervisor.logs.logger import get_logger
from supervisor.operations.exit_codes import OK, UNAVAILABLE, CommandError
from supervisor.process.http_server import HttpServer, Response, listeners

log = get_logger("node_metrics")

#: More than all series within their limits (docs/metrics.md), and little enough to be answered sixteen times at once.
MOST_BYTES: Final = 4 * 1024 * 1024
#: Deadline of reading the file, seconds: less than that of a scrape, so that Prometheus gets the reason.
READ_SECONDS: Final = 5.0
_PATH: Final = b"/metrics"


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """Serves ``file`` on ``host`` (empty: all addresses) and ``port``."""

    file: Path
    port: int
    host: str = ""

    async def serve(self, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code. Reports the port that is served when it is open.

        Raises :class:`CommandError` when the port cannot be opened.
        """
        server = HttpServer(self.respond)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with AsyncExitStack() as stack:
                try:
                    opened = await stack.enter_async_context(listeners(None, self.host, self.port))
                except OSError as error:
                    raise CommandError(f"port {self.port}: {error.strerror or error}", UNAVAILABLE) from None
                port: int = opened[0].socket.getsockname()[1]
                log.info("serving the node's metrics", port=port, file=self.file)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.serve_listeners, server.handle, opened)
                    task_status.started(port)
                    async for _ in signals:
                        break
                    nursery.cancel_scope.cancel()
        return OK

    async def respond(self, request: h11.Request) -> Response:
        """Response ``/metrics`` with the file, or say why not."""
        if request.target.partition(b"?")[0] != _PATH:
            return Response(404, b"the metrics are at /metrics\n")
        read = partial(read_bounded, self.file, MOST_BYTES)
        try:
            with trio.fail_after(READ_SECONDS):
                text, _ = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        except FileNotFoundError:
            return self._absent("is not there: openperouter has not run on this node, or writes its metrics elsewhere")
        except UnreadableFileError as error:
            return self._absent(error.reason)
        except trio.TooSlowError:
            return self._absent(f"could not be read within {READ_SECONDS:g} seconds")
        if len(text) > MOST_BYTES:
            return self._absent(f"has more than {MOST_BYTES} bytes")
        return Response(200, text, CONTENT_TYPE)

    def _absent(self, reason: str) -> Response:
        return Response(503, f"{self.file}: {reason}\n".encode())
