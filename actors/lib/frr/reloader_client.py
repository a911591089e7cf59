"""The host's side of the reloader (:mod:`.reloader_protocol`): runs vtysh inside FRR's pod.

A call goes out and what vtysh did comes back, or the fault that running it here would have raised. Each call has a
deadline: the reloader must have read it within :data:`ACCEPT_SECONDS`, and must answer within the call's own deadline
and the time that it may wait for the lock. A reloader that is absent, hangs, refuses or ends is a
:class:`ReloaderFault`, after which the caller tries again as with an FRR that is absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import h11
import trio

from supervisor.process.subprocesses import REAP_SECONDS, Completed
from supervisor.process.unix_socket import connect
from supervisor.runtime.faults import DependencyFault

from .frr_lock import PATIENCE_SECONDS
from .reloader_protocol import (
    ABANDONED,
    END,
    HEALTH,
    JSON,
    VTYSH,
    EndRequest,
    Lock,
    VtyshRequest,
    read_numbers,
    read_outcome,
)

#: How long the reloader may take to read a request. A node that is short of CPU needs tenths of a second.
ACCEPT_SECONDS: Final = 10.0
#: Beyond the deadlines of a call: to end a vtysh that does not end by itself, and to answer.
MARGIN_SECONDS: Final = REAP_SECONDS + 5.0
#: Deadline of what takes only a moment, seconds.
QUICK_SECONDS: Final = 15.0
#: Longest answer in bytes: both of vtysh's outputs, as JSON.
MOST_ANSWER: Final = 256 << 20
_READ: Final = 1 << 16
_LONGEST_REASON: Final = 300
_T = TypeVar("_T")


class ReloaderFault(DependencyFault):
    """The reloader hangs, refuses, or ended before it answered."""


class ReloaderAbsent(ReloaderFault):
    """Nothing listens on the reloader's socket."""


@dataclass(frozen=True, slots=True)
class ReloaderHealth:
    """What the reloader says of FRR: ``silent`` has the reason for each daemon that does not answer."""

    version: str
    healthy: bool
    running: frozenset[str] = frozenset()
    silent: dict[str, str] = field(default_factory=dict)


class ReloaderClient:
    """Calls to the reloader that listens on ``socket``. Safe to use from several tasks at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def vtysh(self, arguments: Sequence[str], *, seconds: float, lock: Lock) -> Completed:
        """Run vtysh in the pod; the file after ``-f`` is read here. Raises as ``run_command``, and ReloaderFault."""
        words, text = list(arguments), None
        if "-f" in words:
            place = words.index("-f")
            text = await trio.Path(words[place + 1]).read_text()
            del words[place : place + 2]
        request = VtyshRequest(tuple(words), text, lock, seconds)
        waits = PATIENCE_SECONDS if lock else 0.0
        _, body = await self._ask("POST", VTYSH, request.encode(), seconds=seconds + waits + MARGIN_SECONDS)
        return self._understood(body, lambda answer: read_outcome(("vtysh", *arguments), answer))

    async def end(self, daemon: str, pid: int) -> bool:
        """Kill a daemon by its process ID in the pod; return whether it was that daemon."""
        _, body = await self._ask("POST", END, EndRequest(daemon, pid).encode())
        return self._understood(body, lambda answer: json.loads(answer) is True)

    async def abandoned(self, daemon: str) -> frozenset[int]:
        """Return the connections to a daemon's socket whose clients in the pod are gone, by inode."""
        _, body = await self._ask("GET", f"{ABANDONED}?{daemon}")
        return self._understood(body, read_numbers)

    async def health(self) -> ReloaderHealth:
        """Return which daemons run and answer."""

        def read(answer: bytes) -> ReloaderHealth:
            fields = json.loads(answer)
            silent = {str(name): str(reason) for name, reason in fields["silent"].items()}
            return ReloaderHealth(str(fields["version"]), status == 200, frozenset(fields["running"]), silent)

        status, body = await self._ask("GET", HEALTH, accepted=(200, 503))
        return self._understood(body, read)

    def _understood(self, body: bytes, read: Callable[[bytes], _T]) -> _T:
        try:
            return read(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ReloaderFault(f"the reloader's answer at {self.path} is not understood: another release?") from None

    async def _ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        seconds: float = QUICK_SECONDS,
        accepted: tuple[int, ...] = (200,),
    ) -> tuple[int, bytes]:
        """Send one request on a connection of its own; return status and body. Raises :class:`ReloaderFault`."""
        connection = h11.Connection(h11.CLIENT)
        headers = [("Host", "reloader"), ("Content-Type", JSON), ("Content-Length", str(len(body)))]
        request = h11.Request(method=method, target=target, headers=[*headers, ("Connection", "close")])
        out = (connection.send(request) or b"") + (connection.send(h11.Data(data=body)) or b"")
        out += connection.send(h11.EndOfMessage()) or b""
        try:
            async with await self._connect() as stream:
                # A reloader with a long queue and one that hangs look the same until it says that it has read this.
                with trio.fail_after(ACCEPT_SECONDS if target == VTYSH else seconds):
                    # One that refuses a request need not read all of it: then its answer says why.
                    sent = await self._sent(stream, out)
                    head = await self._event(stream, connection)
                with trio.fail_after(seconds):
                    status, answer = await self._answer(stream, connection, head)
        except trio.TooSlowError:
            raise ReloaderFault(f"the reloader at {self.path} does not answer in time") from None
        except (trio.BrokenResourceError, h11.RemoteProtocolError, OSError) as error:
            raise ReloaderFault(f"the reloader at {self.path} ended before it answered: {_reason(error)}") from error
        if status not in accepted:
            said = answer.decode(errors="replace").strip().partition("\n")[0][:_LONGEST_REASON]
            raise ReloaderFault(f"the reloader at {self.path} refuses (status {status}): {said or 'no reason'}")
        if not sent:
            raise ReloaderFault(f"the reloader at {self.path} did not read the request")
        return status, answer

    async def _connect(self) -> trio.SocketStream:
        try:
            # A full queue blocks: that too is a reloader that hangs.
            with trio.fail_after(ACCEPT_SECONDS):
                return await connect(self.path)
        except OSError as error:
            what = f"FRR's reloader does not run: {self.path}: {_reason(error)}"
            raise ReloaderAbsent(what) from error

    @staticmethod
    async def _sent(stream: trio.SocketStream, data: bytes) -> bool:
        try:
            await stream.send_all(data)
        except trio.BrokenResourceError:
            return False
        return True

    async def _answer(self, stream: trio.SocketStream, connection: h11.Connection, event: object) -> tuple[int, bytes]:
        while isinstance(event, h11.InformationalResponse):
            event = await self._event(stream, connection)
        if not isinstance(event, h11.Response):
            raise h11.RemoteProtocolError("the connection ended")
        body = bytearray()
        while isinstance(part := await self._event(stream, connection), h11.Data):
            body += part.data
            if len(body) > MOST_ANSWER:
                raise ReloaderFault(f"the reloader's answer is longer than {MOST_ANSWER} bytes")
        if not isinstance(part, h11.EndOfMessage):
            raise h11.RemoteProtocolError("the connection ended")
        return event.status_code, bytes(body)

    @staticmethod
    async def _event(stream: trio.SocketStream, connection: h11.Connection) -> object:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_READ))
        return event


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
