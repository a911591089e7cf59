"""The control socket's client: blocking, with a deadline for each answer, and quick to import."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .exit_codes import NO_ANSWER, NOT_RUNNING, USAGE, CommandError

#: The daemon answers within milliseconds unless the node is drowning; seconds.
ANSWER_SECONDS = 5.0
#: How long :func:`follow` waits for a daemon that has ended, and how often it tries; an upgrade takes seconds.
RESTART_SECONDS = 60.0
RETRY_SECONDS = 0.5


class NotRunningError(CommandError):
    """No process listens on the socket."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NOT_RUNNING)


class NoAnswerError(CommandError):
    """The daemon does not answer in time, or not in the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NO_ANSWER)


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """The result of a reload: ``ok`` only when all of the configuration is in force and verified."""

    ok: bool
    text: str
    problems: tuple[str, ...] = ()
    timed_out: bool = False


def reload(path: Path, seconds: float, progress: Callable[[str], None], *, forget_api: bool = False) -> ReloadOutcome:
    """Make the daemon read its files again; call ``progress`` with each change of its summary, return the outcome.

    ``forget_api`` drops the objects that the API server does not confirm now.

    Raises :class:`CommandError`: the daemon refuses the request, does not answer, or ended meanwhile.
    """
    request = {"verb": "reload", "seconds": seconds, "forget_api": forget_api}
    for answer in ask(path, request, seconds=seconds + ANSWER_SECONDS):
        if "error" in answer:
            raise CommandError(str(answer["error"]), USAGE)
        if answer.get("event") == "progress":
            progress(str(answer.get("summary", "")))
        if answer.get("event") == "done":
            problems = tuple(str(problem) for problem in answer.get("problems", ()))
            text = str(answer.get("summary", "") if answer.get("ok") else answer.get("reason"))
            return ReloadOutcome(bool(answer.get("ok")), text, problems, bool(answer.get("timeout")))
    raise NotRunningError("the daemon ended before the reload was complete")


def follow(shown: Callable[[], Iterable[object]], say: Callable[[str], object]) -> NoReturn:
    """Show what the daemon sends until it has ended for good; ``shown`` shows it over one connection, item by item.

    A daemon that ends after it has sent something, as in an upgrade, has some time to come back; ``say`` gets a line
    about that. Raises :class:`CommandError`.
    """
    seen, until = False, 0.0
    while True:
        gone: CommandError = NotRunningError("the daemon has stopped")
        try:
            for _ in shown():
                seen, until = True, 0.0
        except (NotRunningError, NoAnswerError) as error:
            gone = error
        if until == 0.0 and seen:
            until = time.monotonic() + RESTART_SECONDS
            say(f"{gone}; waiting {RESTART_SECONDS:g} s for it to come back")
        if time.monotonic() >= until:
            raise gone
        _pause()


def _pause() -> None:
    threading.Event().wait(RETRY_SECONDS)


def ask(path: Path, request: Mapping[str, object], *, seconds: float | None = ANSWER_SECONDS) -> Iterator[Any]:
    """Yield the daemon's answers to one request until it closes. ``seconds`` bounds the wait for each; None does not.

    Raises :class:`NotRunningError`, :class:`NoAnswerError`, and ``PermissionError`` unless run as root.
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
            raise NoAnswerError(f"the daemon closed the connection: {error}") from None


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
