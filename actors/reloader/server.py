"""Runs vtysh in FRR's pod for the daemon on the host: HTTP on a unix socket (``actors/lib/frr/reloader_protocol.py``).

    connection ──> request (bounded) ──> checked ──> 102 ──> lock ──> vtysh (deadline) ──> outcome ──> closed

Only vtysh is started, with the router's pathspace and arguments that cannot do more than show something or load the
text of the request, which it reads from memory: no file ever holds it. Changes are one after the other: each holds the
lock of :mod:`actors.lib.frr.frr_lock`, which the daemon and the command line on the host take too when they read from
mgmtd's own socket. A change that has begun is never cut off, not by its client's end nor by a stop, because a session
that ends during a commit breaks mgmtd; it has a deadline of its own. A query that is given up is left to end by itself,
with the lock (:mod:`actors.lib.frr.daemon_socket` says why). Anything else ends with its client.

A line is logged for each change, without the text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import h11
import trio

from actors.lib.frr import reloader_protocol as protocol
from actors.lib.frr.daemon_socket import DaemonSockets
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.processes import CORE_DAEMONS, abandoned, end_daemon, running_daemons
from actors.lib.frr.reloader_protocol import JSON, RefusedRequestError, VtyshRequest, write_numbers, write_outcome
from actors.lib.frr.vtysh import lock_file
from config.settings import Settings
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.http_server import Connections, Response, read_body, read_head, send
from supervisor.process.subprocesses import REAP_SECONDS, Completed, run_command, run_query
from supervisor.process.unix_socket import listening
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.faults import DependencyFault

log = get_logger("reloader")

#: More than the daemon and a support bundle use at once. A further client's connection is closed unread.
MOST_CONNECTIONS: Final = 32
#: How many vtysh may run at once, besides queries that were given up; each takes megabytes, and FRR answers one session
#: at a time.
MOST_VTYSH: Final = 4
MOST_HEADER_BYTES: Final = 16 << 10
#: For a request, whatever its length.
REQUEST_SECONDS: Final = 10.0
#: How long a daemon may take to say its version.
QUERY_SECONDS: Final = 5.0
#: Root's alone: the container's root is the host's.
SOCKET_MODE: Final = 0o600
#: Daemons without a command line of this kind.
_SILENT_BY_NATURE: Final = frozenset({"mgmtd", "watchfrr"})
_REASON: Final = "text/plain; charset=utf-8"

Work = Callable[[], Awaitable[Response]]


async def run(ctx: ActorContext, *, settings: Settings, version: str, opened: Callable[[], None]) -> None:
    """Serve beside the FRR of the settings' pathspace indefinitely; ``opened`` is called when clients can connect."""
    run_dir = settings.frr_run_dir / settings.frr_pathspace
    lock, program, pathspace = lock_file(settings), settings.vtysh, settings.frr_pathspace
    server = ReloaderServer(ctx, vtysh=program, pathspace=pathspace, run_dir=run_dir, lock=lock, version=version)
    await server.run(settings.pod_run_dir / protocol.SOCKET, opened)


class ReloaderServer:
    """Runs ``vtysh`` for one FRR; ``run_dir`` has its daemons' sockets and PID files."""

    def __init__(
        self, ctx: ActorContext, *, vtysh: Path, pathspace: str, run_dir: Path, lock: Path, version: str
    ) -> None:
        self._ctx = ctx
        self._command = (str(vtysh), "-N", pathspace)
        self._run_dir = run_dir
        self._lock = lock
        self._version = version
        self._one_at_a_time = trio.Lock()
        self._slots = trio.CapacityLimiter(MOST_VTYSH)
        self._daemons = DaemonSockets(run_dir, seconds=QUERY_SECONDS)

    async def run(self, path: Path, opened: Callable[[], None] = lambda: None) -> None:
        """Serve on a socket indefinitely. Raises :class:`DependencyFault` when it cannot be made."""
        try:
            with listening(path, mode=SOCKET_MODE, backlog=MOST_CONNECTIONS) as listener:
                self._ctx.started()
                log.info("serving", socket=path, vtysh=self._command[0], pathspace=self._command[2])
                opened()
                with self._ctx.idle():
                    await trio.serve_listeners(Connections(self.serve, MOST_CONNECTIONS).handle, [listener])
        except OSError as error:
            raise DependencyFault(f"cannot listen on {path}: {error.strerror or error}") from error

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one client's request."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        try:
            with trio.fail_after(REQUEST_SECONDS):
                request = await read_head(stream, connection)
                if request is None:
                    return
                body = await read_body(stream, connection, protocol.MOST_BYTES)
        except trio.TooSlowError:
            await send(stream, connection, _refusal(408, "the request took too long"))
            return
        except h11.RemoteProtocolError as error:
            await send(stream, connection, _refusal(error.error_status_hint, "the request is too large or no HTTP"))
            return
        try:
            await self._answer(stream, connection, request, body)
        except RefusedRequestError as refusal:
            log.warning("refused a request", message_id=message_ids.RELOADER_REFUSES, reason=str(refusal))
            await send(stream, connection, _refusal(400, str(refusal)))

    async def _answer(
        self, stream: trio.SocketStream, connection: h11.Connection, request: h11.Request, body: bytes
    ) -> None:
        path, _, query = request.target.decode("latin-1").partition("?")
        writes = False
        match request.method, path:
            case b"POST", protocol.VTYSH:
                asked = protocol.read_vtysh(body)
                await stream.send_all(connection.send(h11.InformationalResponse(status_code=102, headers=[])) or b"")
                work: Work = partial(self._run_vtysh, asked)
                writes = asked.writes
                answer = await (work() if writes else _while_connected(stream, work))
            case b"POST", protocol.END:
                answer = await self._end(body)
            case b"GET", protocol.ABANDONED:
                answer = await self._abandoned(query)
            case b"GET", protocol.HEALTH:
                answer = await self._health()
            case _, protocol.VTYSH | protocol.END | protocol.ABANDONED | protocol.HEALTH:
                answer = _refusal(405, "another method is needed")
            case _:
                answer = _refusal(404, "unknown: the host's openperouter may be of another release than the image's")
        if answer is not None:
            with trio.move_on_after(REQUEST_SECONDS, shield=writes):
                await send(stream, connection, answer)

    async def _run_vtysh(self, asked: VtyshRequest) -> Response:
        async with session_lock(self._lock if asked.lock else None, exclusive=asked.lock == "exclusive") as held:
            outcome = await (self._change(asked) if asked.writes else self._outcome(asked, held))
        return Response(200, write_outcome(outcome), JSON)

    async def _change(self, asked: VtyshRequest) -> Completed | DependencyFault:
        # The lock is best effort. A stop waits for what is declared, and the deadline is run_command's.
        async with self._one_at_a_time:
            with self._ctx.working("changing FRR", asked.seconds + REAP_SECONDS), trio.CancelScope(shield=True):
                began = trio.current_time()
                outcome = await self._outcome(asked)
                _log_change(asked, outcome, trio.current_time() - began)
        return outcome

    async def _outcome(self, asked: VtyshRequest, held: Sequence[int] = ()) -> Completed | DependencyFault:
        try:
            # A place is held only by a vtysh that runs, and so ends: none waits for the lock in it.
            async with self._slots:
                return await self._process(asked, held)
        except DependencyFault as fault:
            return fault

    async def _process(self, asked: VtyshRequest, held: Sequence[int]) -> Completed:
        if asked.is_query:
            return await run_query((*self._command, *asked.arguments), seconds=asked.seconds, pass_fds=held)
        with _in_memory(asked.text) as (options, descriptors):
            command = (*self._command, *asked.arguments, *options)
            return await run_command(command, seconds=asked.seconds, pass_fds=descriptors)

    async def _end(self, body: bytes) -> Response:
        asked = protocol.read_end(body)
        try:
            ended = await end_daemon(self._run_dir, asked.daemon, asked.pid, by_systemd=False)
        except ProcessLookupError:
            ended = False
        except OSError as error:
            return _refusal(500, f"{asked.daemon} cannot be ended: {error.strerror or error}")
        log.info(
            "ended a daemon" if ended else "did not end a daemon: its process is another one",
            daemon=asked.daemon,
            pid=asked.pid,
        )
        return Response(200, json.dumps(ended).encode(), JSON)

    async def _abandoned(self, daemon: str) -> Response:
        if daemon not in protocol.DAEMONS:
            raise RefusedRequestError("must name one of FRR's daemons")
        try:
            found = await trio.to_thread.run_sync(abandoned, self._run_dir / f"{daemon}.vty")
            return Response(200, write_numbers(found), JSON)
        except OSError as error:
            return _refusal(500, f"the kernel does not list connections: {error.strerror or error}")

    async def _health(self) -> Response:
        running, silent = running_daemons(self._run_dir), dict[str, str]()
        for daemon in sorted(CORE_DAEMONS - running):
            silent[daemon] = "it does not run"

        async def ask(daemon: str) -> None:
            try:
                await self._daemons.text("show version", daemon=daemon)
            except DependencyFault as fault:
                silent[daemon] = str(fault)

        async with trio.open_nursery() as nursery:
            # A session with mgmtd could break a change (actors/lib/frr/frr_lock.py): its process has to do.
            for daemon in running - _SILENT_BY_NATURE:
                nursery.start_soon(ask, daemon)
        found = {"version": self._version, "running": sorted(running), "silent": silent}
        return Response(503 if silent else 200, json.dumps(found).encode(), JSON)


@contextmanager
def _in_memory(text: str | None) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Give vtysh's options for a text, and the descriptors that it must inherit for them.

    vtysh opens the file once in each process that it forks: the name of a descriptor opens it again each time.
    """
    if text is None:
        yield (), ()
        return
    descriptor = os.memfd_create("configuration", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        yield ("-f", f"/proc/self/fd/{descriptor}"), (descriptor,)
    finally:
        os.close(descriptor)


async def _while_connected(stream: trio.SocketStream, work: Work) -> Response | None:
    """Return what the work does, or nothing once its client has left: no one waits for it."""
    answer: Response | None = None

    async def watch(scope: trio.CancelScope) -> None:
        # The request is complete: the client sends nothing more before it has the answer.
        try:
            await stream.receive_some(1)
        except trio.BrokenResourceError:
            log.debug("a client left before its answer")
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        answer = await work()
        nursery.cancel_scope.cancel()
    return answer


def _log_change(asked: VtyshRequest, outcome: Completed | DependencyFault, seconds: float) -> None:
    daemon = asked.arguments[asked.arguments.index("-d") + 1] if "-d" in asked.arguments else "all"
    facts = {"daemon": daemon, "lines": (asked.text or "").count("\n"), "seconds": round(seconds, 2)}
    if isinstance(outcome, Completed):
        log.info("vtysh loaded a configuration", exit_code=outcome.returncode, **facts)
    else:
        log.warning("vtysh failed", message_id=message_ids.RELOADER_FAILS, reason=str(outcome), **facts)


def _refusal(status: int, reason: str) -> Response:
    return Response(status, f"{reason}\n".encode(), _REASON)
