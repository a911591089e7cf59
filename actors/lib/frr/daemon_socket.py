"""Sends commands directly to one of FRR's daemons, as vtysh does.

A vtysh process first builds the commands of all daemons, which takes longer than most answers. Each daemon listens on
a socket of its own for vtysh: a command ends with a null byte, and its answer with three of them and a status
(``lib/vty.c``, ``vtysh_read``). Only root and FRR's group can connect.

A socket's commands are one session, with one deadline. Errors are the faults of :mod:`.vtysh`. A session with mgmtd
needs the lock of :mod:`.frr_lock`, which the caller takes.

FRR 10.3 dies while it prints more than 128 KiB to a session that has ended (a use after free; FRR #19109 fixes it).
So a session that is given up before all answers have come stays open until they have; nothing waits for that. One with
mgmtd ends at once, while its lock is held: mgmtd prints less than that for 2,500 VRFs. So does one that configures a
daemon: the daemon then carries out at most one more command.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import trio

from config.settings import Settings
from supervisor.process.unix_socket import connect
from supervisor.runtime.faults import DependencyFault, PermissionFault

from .vtysh import SECONDS, FrrUnavailable, VtyshRefused, decoded, first_complaint, last_line

#: Longest answer in bytes: ten times that of a thousand VRFs with a session each.
MAX_ANSWER: Final = 64 << 20
#: As vtysh begins: some daemons show nothing before it.
_ENABLE: Final = "enable"
_END: Final = b"\0\0\0"
_READ: Final = 1 << 16
#: What a daemon ends an answer with (``lib/command.h``): a command that carries on with a warning still has an answer.
_ANSWERED: Final = frozenset({0, 1})
#: How long a session that was given up stays open: watchfrr ends a daemon that has not answered for 90 seconds.
LINGER_SECONDS: Final = 120.0
#: The same when the process ends.
PARTING_SECONDS: Final = 5.0


class DaemonTooSlow(DependencyFault):
    """A daemon did not answer in time."""


class Answer(NamedTuple):
    """What a daemon printed for a command, and the status that it ended with (``lib/command.h``)."""

    text: str
    status: int

    @property
    def accepted(self) -> bool:
        """Whether the command was carried out, perhaps with a warning."""
        return self.status in _ANSWERED


class DaemonSession:
    """An open session with one daemon, after ``enable``."""

    def __init__(self, stream: trio.SocketStream, daemon: str, *, writes: bool = False) -> None:
        self.daemon = daemon
        self._stream = stream
        self._lingers = not writes and daemon != "mgmtd"
        self._data = bytearray()
        self._missing = 0

    def close(self) -> None:
        """End the session: one that lingers once the daemon has answered everything."""
        if self._missing and self._lingers:
            self._missing = 0
            trio.lowlevel.spawn_system_task(_linger, self._stream.socket)
        else:
            self._stream.socket.close()

    async def run(self, commands: Sequence[str]) -> list[Answer]:
        """Send commands together and return their answers, in order; the daemon carries them out one by one."""
        await self.send(commands)
        return await self.answers(commands)

    async def send(self, commands: Sequence[str]) -> None:
        """Send commands; :meth:`answers` has to follow before others are sent."""
        self._missing += len(commands)
        await self._write(b"".join(command.encode() + b"\0" for command in commands))

    async def answers(self, commands: Sequence[str]) -> list[Answer]:
        """Return the answers to the commands that were sent, in order."""
        return [await self._answer(command) for command in commands]

    async def texts(self, commands: Sequence[str], *, sent: bool = False) -> list[str]:
        """Return what each command prints; :class:`.VtyshRefused` if the daemon refuses one.

        ``sent``: they have been sent already.
        """
        answers = await (self.answers(commands) if sent else self.run(commands))
        return [self._accepted(command, answer) for command, answer in zip(commands, answers, strict=True)]

    def _accepted(self, command: str, answer: Answer) -> str:
        # Only a line with this sign is one, and no answer is searched line by line for that.
        complaint = first_complaint(answer.text) if "%" in answer.text else ""
        if answer.accepted and not complaint:
            return answer.text
        reason = complaint or last_line(answer.text)
        raise VtyshRefused(f"{self.daemon} refuses {command!r} with status {answer.status}: {reason}")

    async def _answer(self, command: str) -> Answer:
        data, searched = self._data, 0
        # The status follows the end, and may come later.
        while (end := data.find(_END, searched)) < 0 or len(data) < end + len(_END) + 1:
            searched = max(0, len(data) - len(_END)) if end < 0 else end
            chunk = await self._read()
            if not chunk:
                raise FrrUnavailable(f"FRR does not answer: {self.daemon} ended the session")
            data += chunk
            if len(data) > MAX_ANSWER:
                raise VtyshRefused(f"{self.daemon}'s answer to {command!r} is longer than {MAX_ANSWER} bytes")
        found = Answer(data[:end].decode(errors="replace"), data[end + len(_END)])
        del data[: end + len(_END) + 1]
        self._missing -= 1
        return found

    # trio's own methods take a turn of the event loop each time, also when nothing has to be waited for. These turns
    # were a large part of what a node at rest does.

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._stream.socket.fileno(), _READ)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._stream.socket)

    async def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._stream.socket.fileno(), left) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._stream.socket)


async def _linger(connection: trio.socket.SocketType) -> None:
    """Drop what the daemon still answers, then close."""
    with connection:
        try:
            with trio.move_on_after(LINGER_SECONDS):
                await _drop(connection)
        except trio.Cancelled:
            with trio.move_on_after(PARTING_SECONDS, shield=True):
                await _drop(connection)
            raise


async def _drop(connection: trio.socket.SocketType) -> None:
    with suppress(OSError):
        # The daemon closes after its last answer.
        connection.shutdown(socket.SHUT_WR)
        while await connection.recv(_READ):
            continue


class DaemonSockets:
    """The sockets of one FRR's daemons; ``seconds`` is the deadline of a session.

    Safe to use from several tasks at once: each call is a session of its own.
    """

    def __init__(self, run_dir: Path, *, seconds: float = SECONDS) -> None:
        self.run_dir = run_dir
        self.seconds = seconds

    @classmethod
    def of(cls, settings: Settings, seconds: float = SECONDS) -> Self:
        """Return access to the router's FRR."""
        return cls(settings.frr_run_dir / settings.frr_pathspace, seconds=seconds)

    async def text(self, command: str, *, daemon: str) -> str:
        """Return what a command prints.

        Raises :class:`.FrrUnavailable` for a daemon that does not run or ends meanwhile, :class:`.VtyshRefused` for a
        refused command, :class:`DaemonTooSlow`, and :class:`PermissionFault` for a user who may not use the socket; all
        are :class:`DependencyFault`.
        """
        [answer] = await self.texts(command, daemon=daemon)
        return answer

    async def texts(self, *commands: str, daemon: str) -> list[str]:
        """Return what each command prints, in order and in one session; raises like :meth:`text`."""
        async with self.session(daemon) as session:
            return await session.texts(commands)

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one decoded JSON document for each command, in order; None for no output.

        Raises like :meth:`text`, and :class:`.VtyshRefused` for an answer that is not JSON.
        """
        answers = await self.texts(*commands, daemon=daemon)
        return [decoded(command, answer) for command, answer in zip(commands, answers, strict=True)]

    @asynccontextmanager
    async def session(
        self, daemon: str, *, seconds: float | None = None, writes: bool = False
    ) -> AsyncIterator[DaemonSession]:
        """Open a session for as long as the context lasts, ``seconds`` at the most; raises like :meth:`text`.

        One that ``writes`` is to configure the daemon.
        """
        with self._faults(daemon, seconds or self.seconds):
            session = await self._open(daemon, writes=writes)
            try:
                yield session
            finally:
                session.close()

    @contextmanager
    def _faults(self, daemon: str, seconds: float) -> Iterator[None]:
        """Allow so many seconds for a part of a session, and raise like :meth:`text`."""
        try:
            with trio.fail_after(seconds):
                yield
        except trio.TooSlowError:
            raise DaemonTooSlow(f"{daemon} did not answer within {seconds:g} s") from None
        except PermissionError:
            path = self.run_dir / f"{daemon}.vty"
            raise PermissionFault(f"permission denied: {path}; only root and FRR's group can use it") from None
        except (trio.BrokenResourceError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise FrrUnavailable(f"FRR does not answer: {daemon} is not running ({reason})") from error

    async def _open(self, daemon: str, *, writes: bool = False) -> DaemonSession:
        session = DaemonSession(await self._connect(daemon), daemon, writes=writes)
        try:
            await session.texts((_ENABLE,))
        except BaseException:
            session.close()
            raise
        return session

    async def _connect(self, daemon: str) -> trio.SocketStream:
        # One that is busy has room for six more sessions (FRR 10.3, vty_serv_un).
        return await connect(self.run_dir / f"{daemon}.vty")
