"""The control socket, through which the command line uses the running daemon; besides signals the only way in.

A client sends one JSON object on one line and receives JSON objects, one per line, until the server closes:

    {"verb": "status"}                  {"status": {...}}
    {"verb": "watch"}                   {"status": {...}} now and at each change, until the client leaves
    {"verb": "reload", "seconds": 60}   {"event": "progress", ...} ..., {"event": "done", "ok": true|false, ...}
    {"verb": "events"}                  {"events": {"instance": ..., "first": n, "last": n}}, then an object for each
                                        (``supervisor.events``); with "follow": true until the client leaves, with
                                        "instance": ..., "after": n those after that one, if it is the same instance
    anything else                       {"error": "..."}

A reload with ``"forget_api": true`` drops the objects that the API server does not confirm now.

Promises: the socket is never reachable for anyone but root and its group, not even between its creation and its first
use; a client that floods, stalls, sends garbage or disconnects costs a bounded amount of memory and time and does not
disturb others; the outcome of a reload is that of the very request. Only plain status values pass through here, so no
secret can.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from config.desired import ResourceFailure
from config.problems import Origin, Problem, errors
from config.status import Status, what_remains

from .events import EventLog
from .logs import message_ids
from .logs.logger import get_logger
from .process.signals import request_reload
from .process.unix_socket import listening
from .runtime.actor import ActorContext
from .runtime.channel import Latest, LatestReader

log = get_logger("control")

#: The longest request has three short members.
MAX_REQUEST_BYTES: Final = 4096
#: Time for a client to send its request, and to read one answer; local programs need milliseconds.
CLIENT_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 16
DEFAULT_RELOAD_SECONDS: Final = 60.0
MAX_RELOAD_SECONDS: Final = 600.0
#: Read and write for the owner and the group (unix(7): connecting needs write permission).
SOCKET_MODE: Final = 0o660
#: ``getsockopt(2)`` number of the peer's supplementary groups, which Python does not name (asm-generic/socket.h).
SO_PEERGROUPS: Final = 59


class BadRequestError(Exception):
    """The client's request cannot be served; the text is sent back."""


async def run(
    ctx: ActorContext,
    *,
    path: Path,
    status: LatestReader[Status],
    reload: Latest[int],
    forget_api: Latest[int],
    events: EventLog,
) -> None:
    """Serve the control socket at ``path`` indefinitely, and keep ``events`` of what the statuses change.

    ``reload`` takes requests exactly as SIGHUP makes them, ``forget_api`` those of them that are to forget the API.
    Raises ``OSError`` when the socket cannot be made.
    """
    server = _Server(status, reload, forget_api, events)
    with listening(path, mode=SOCKET_MODE, backlog=MAX_CONNECTIONS) as listener:
        ctx.started()
        with ctx.idle():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_observe, status.another(), events)
                await trio.serve_listeners(server.handle, [listener])


async def _observe(reader: LatestReader[Status], events: EventLog) -> None:
    while True:
        events.observe(await reader.receive())


def reload_outcome(status: Status, reload_id: int) -> dict[str, object] | None:
    """Return the outcome of a reload request as an event, or None while it is not decided.

    A reload is about the files: a tenant's resource in the API that cannot be in force does not fail it.
    """
    reload = status.reload
    found: list[Problem | ResourceFailure] = [*errors(status.problems), *status.failures]
    complaints = [str(one) for one in found if one.origin.path or one.origin == Origin()]
    if reload.verified >= reload_id:
        return _done(status, not complaints, what_remains(len(complaints)) if complaints else "", complaints)
    if reload.failed >= reload_id:
        return _done(status, False, reload.reason or "not applied", complaints)
    if status.phase == "stopping":
        return _done(status, False, "the daemon is stopping", complaints)
    return None


def _done(status: Status, ok: bool, reason: str, complaints: list[str]) -> dict[str, object]:
    return {"event": "done", "ok": ok, "reason": reason, "problems": complaints, "summary": status.summary}


class _Server:
    """What all connections share."""

    def __init__(
        self, status: LatestReader[Status], reload: Latest[int], forget_api: Latest[int], events: EventLog
    ) -> None:
        self._status = status
        self._events = events
        self._reload_requests = reload
        self._forget_api = forget_api
        self._connections = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one client; no error of its connection leaves this method."""
        self._connections += 1
        try:
            async with stream:
                await self._serve(stream)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            log.debug("a client disconnected or stalled")
        finally:
            self._connections -= 1

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            self._check_room()
            _check_peer(stream)
            await self._answer(stream, await _read_request(stream))
        except BadRequestError as error:
            await _send(stream, {"error": str(error)})

    def _check_room(self) -> None:
        if self._connections > MAX_CONNECTIONS:
            raise BadRequestError(f"more than {MAX_CONNECTIONS} clients are connected; try again later")

    async def _answer(self, stream: trio.SocketStream, request: Mapping[str, object]) -> None:
        match request.get("verb"):
            case "status":
                status = self._status.peek()
                if status is None:
                    raise BadRequestError("the daemon has no status yet")
                await _send_line(stream, _status_line(status))
            case "watch":
                async with _while_connected(stream):
                    await self._watch(stream)
            case "reload":
                seconds = _seconds(request)
                async with _while_connected(stream):
                    await self._reload(stream, seconds, forget_api=request.get("forget_api") is True)
            case "events":
                after = _after(request)
                async with _while_connected(stream):
                    await self._send_events(stream, request, after)
            case verb:
                raise BadRequestError(f"unknown verb {verb!r}; known are status, watch, reload and events")

    async def _watch(self, stream: trio.SocketStream) -> None:
        reader = self._status.another()
        while True:
            await _send_line(stream, _status_line(await reader.receive()))

    async def _send_events(self, stream: trio.SocketStream, request: Mapping[str, object], after: int) -> None:
        """Send the events that are kept, or those after one. A slow client misses some, as numbers show."""
        events = self._events
        # Numbers of another daemon's life mean nothing in this one.
        sent = after if request.get("instance") == events.instance else 0
        head = {"instance": events.instance, "first": events.first, "last": events.last}
        await _send(stream, {"events": head})
        while True:
            for number, event in events.after(sent):
                await _send(stream, event.to_data(number))
                sent = number
            if request.get("follow") is not True:
                return
            await events.wait(sent)

    async def _reload(self, stream: trio.SocketStream, seconds: float, *, forget_api: bool) -> None:
        reload_id = request_reload(self._reload_requests)
        if forget_api:
            self._forget_api.set(reload_id)
        log.info("reload requested over the control socket", reload_id=reload_id, forget_api=forget_api or None)
        await _send(stream, {"event": "requested", "reload_id": reload_id})
        with trio.move_on_after(seconds):
            await _send(stream, await self._decided(stream, reload_id))
            return
        status = self._status.peek() or Status()
        late = _done(status, False, f"not verified within {seconds:g} s: {status.summary}", [])
        await _send(stream, late | {"timeout": True})

    async def _decided(self, stream: trio.SocketStream, reload_id: int) -> dict[str, object]:
        """Stream progress until the request is decided; return its outcome."""
        reader, before = self._status.another(), self._status.peek()
        shown = before.summary if before else ""
        while True:
            status = await reader.receive()
            outcome = reload_outcome(status, reload_id)
            if outcome is not None:
                return outcome
            if status.summary != shown:
                shown = status.summary
                await _send(stream, {"event": "progress", "summary": shown})


def _status_line(status: Status) -> bytes:
    return b'{"status": ' + status.to_json().encode() + b"}\n"


async def _send(stream: trio.SocketStream, answer: Mapping[str, object]) -> None:
    # A file's name need not be UTF-8.
    await _send_line(stream, json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


async def _send_line(stream: trio.SocketStream, line: bytes) -> None:
    with trio.fail_after(CLIENT_SECONDS):
        await stream.send_all(line)


async def _read_request(stream: trio.SocketStream) -> Mapping[str, object]:
    """Read one line; raise :class:`BadRequestError` when it is too long, late or not an object."""
    received = bytearray()
    with trio.move_on_after(CLIENT_SECONDS) as deadline:
        while b"\n" not in received and len(received) <= MAX_REQUEST_BYTES:
            chunk = await stream.receive_some(MAX_REQUEST_BYTES)
            if not chunk:
                break
            received += chunk
    if deadline.cancelled_caught:
        raise BadRequestError(f"no request within {CLIENT_SECONDS:g} s")
    return _parse_request(bytes(received))


def _parse_request(received: bytes) -> Mapping[str, object]:
    line, newline, _ = received.partition(b"\n")
    if len(line) > MAX_REQUEST_BYTES:
        raise BadRequestError(f"request longer than {MAX_REQUEST_BYTES} bytes")
    if not newline:
        raise BadRequestError("incomplete request")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("request is not JSON") from error
    if not isinstance(request, dict):
        raise BadRequestError("request is not a JSON object")
    return request


def _seconds(request: Mapping[str, object]) -> float:
    seconds = request.get("seconds", DEFAULT_RELOAD_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_RELOAD_SECONDS:
        raise BadRequestError(f"seconds must be a number above 0 and at most {MAX_RELOAD_SECONDS:g}")
    return float(seconds)


def _after(request: Mapping[str, object]) -> int:
    after = request.get("after", 0)
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise BadRequestError("after must be the number of an event")
    return after


@asynccontextmanager
async def _while_connected(stream: trio.SocketStream) -> AsyncIterator[None]:
    """Cancel a long answer once the client disconnects or sends more than its one request."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_closed, stream, nursery.cancel_scope)
        yield
        nursery.cancel_scope.cancel()


async def _wait_closed(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.receive_some(1)
    scope.cancel()


def _check_peer(stream: trio.SocketStream) -> None:
    """Refuse a peer that is neither root, nor this process's user, nor in its group.

    The file's mode already does; this also covers a descriptor that was opened before a change of mode.
    """
    _, uid, gid = struct.unpack("3i", stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if not may_connect(uid, {gid, *_peer_groups(stream)}):
        log.warning("refused a client of the control socket", message_id=message_ids.CLIENT_REFUSED, uid=uid, gid=gid)
        raise BadRequestError("permission denied")


def may_connect(uid: int, gids: set[int]) -> bool:
    """Return whether a peer with this user and these groups may use the socket."""
    return uid in {0, os.geteuid()} or os.getegid() in gids


def _peer_groups(stream: trio.SocketStream) -> tuple[int, ...]:
    """Return the peer's supplementary groups; none when they are more than any sane account has."""
    try:
        packed = stream.socket.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4096)
    except OSError:
        return ()
    return struct.unpack(f"{len(packed) // 4}I", packed)
