"""A daemon of FRR as its socket for vtysh shows it: one answer and status for each command."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

#: Ends the session without an answer.
DIES = ("", -1)
#: Keeps the session open without an answer.
HANGS = ("", -2)
#: Answers after so many seconds, with more than a socket holds; then there is a second word in the list of commands.
SLOW = ("", -3)
SLOW_SECONDS = 10.0
ANSWERED = "(answered)"


@asynccontextmanager
async def daemon(path: Path, answers: Mapping[str, tuple[str, int]], piece: int = 7) -> AsyncIterator[list[str]]:
    """Answer on a socket, in pieces of so many bytes; give the list of the commands that come in."""
    asked: list[str] = []
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await listener.bind(str(path))
    listener.listen()
    async with trio.open_nursery() as nursery:
        serve = partial(_serve, answers=answers, asked=asked, piece=piece)
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listener)])
        yield asked
        nursery.cancel_scope.cancel()


async def _serve(
    stream: trio.SocketStream, *, answers: Mapping[str, tuple[str, int]], asked: list[str], piece: int
) -> None:
    received, enabled = b"", False
    async for chunk in stream:
        received += chunk
        while b"\0" in received:
            command, _, received = received.partition(b"\0")
            if not enabled:
                # bfdd knows no other command before this one.
                enabled = command == b"enable"
                await stream.send_all(bytes((0, 0, 0, 0 if enabled else 2)))
                continue
            asked.append(command.decode())
            answer = answers[asked[-1]]
            if answer == DIES:
                await stream.send_all(b"half an ans")
                return
            if answer == HANGS:
                await trio.sleep_forever()
            if answer == SLOW:
                await trio.sleep(SLOW_SECONDS)
                await stream.send_all(bytes(1 << 22))
                asked.append(ANSWERED)
                return
            text, status = answer
            data = text.encode() + bytes((0, 0, 0, status))
            for start in range(0, len(data), piece):
                await stream.send_all(data[start : start + piece])
