"""The command line's end of the control socket: blocking, with a deadline for each answer, and nothing but sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: The daemon answers within milliseconds unless the node is drowning; seconds.
ANSWER_SECONDS = 5.0


class NotRunningError(Exception):
    """Nobody listens on the socket."""


class NoAnswerError(Exception):
    """Somebody listens but does not answer in time, or answers nonsense."""


def ask(path: Path, request: Mapping[str, object], *, seconds: float | None = ANSWER_SECONDS) -> Iterator[Any]:
    """Yield the daemon's answers to one request until it closes. ``seconds`` bounds the wait for each; None does not.

    Raises :class:`NotRunningError`, :class:`NoAnswerError`, and ``PermissionError`` for others than root.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.settimeout(seconds)
            yield from _answers(connection)
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, str(path)) from None
        except TimeoutError:
            raise NoAnswerError("the daemon does not answer") from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunningError("the daemon is not running") from None
        except OSError as error:
            raise NoAnswerError(f"the daemon broke the connection off: {error}") from None


def _answers(connection: socket.socket) -> Iterator[Any]:
    pending = b""
    while chunk := _receive(connection):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                raise NoAnswerError("the daemon's answer is not JSON") from None


def _receive(connection: socket.socket) -> bytes:
    """Return more bytes; none at the end, which a daemon that refuses a request may mark with a reset."""
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""
