"""What the daemon on the host and the reloader in FRR's pod say to one another: HTTP/1.1 on a unix socket, with JSON.

    POST /v1/vtysh      run vtysh of the router's pathspace: arguments, a configuration, the lock, the deadline
    POST /v1/end        kill one of FRR's daemons, if the process that is named is still that daemon
    GET  /v1/abandoned  connections to a daemon's socket whose clients are gone
    GET  /healthz       which daemons run and answer

A request to run vtysh is answered twice: with 102 once it has been read, so that a reloader that hangs is recognised
within seconds, and with the outcome. What is refused gets another status than 200 and one line of text. A host and an
image may be of different releases: what one of them does not know is an error, never something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from supervisor.process.subprocesses import CommandMissing, CommandTimeout, CommandTooTalkative, Completed
from supervisor.runtime.faults import DependencyFault

SOCKET: Final = "reloader.sock"
VTYSH: Final = "/v1/vtysh"
END: Final = "/v1/end"
ABANDONED: Final = "/v1/abandoned"
HEALTH: Final = "/healthz"
JSON: Final = "application/json"

#: How a call holds the lock of :mod:`.frr_lock`. Nothing: it opens no session with mgmtd, or its caller holds the lock.
Lock = Literal["", "shared", "exclusive"]
_LOCKS: Final = ("", "shared", "exclusive")

#: Longest configuration in bytes: ten times that of a thousand VRFs with a session each.
MOST_BYTES: Final = 32 << 20
#: Longest deadline that a client may ask for, seconds: twice that of a whole configuration.
MOST_SECONDS: Final = 120.0
MOST_ARGUMENTS: Final = 200
LONGEST_ARGUMENT: Final = 1000

DAEMONS: Final = ("zebra", "bgpd", "bfdd", "staticd", "isisd", "mgmtd", "watchfrr")
_FLAGS: Final = frozenset({"-C", "-E"})
#: With which mgmtd is asked for its lock (``actors/frr/mgmtd_recovery.py``). All other commands only show something.
_PROBES: Final = frozenset({"configure terminal file-lock", "end"})
_SHOW: Final = "show "


class RefusedRequestError(Exception):
    """A request that the reloader does not carry out; the text never quotes it, since it may hold a secret."""


@dataclass(frozen=True, slots=True)
class VtyshRequest:
    """One run of vtysh.

    ``text`` is the configuration that it reads, None for commands; ``seconds`` its deadline without the wait for the
    lock.
    """

    arguments: tuple[str, ...]
    text: str | None
    lock: Lock
    seconds: float

    @property
    def is_query(self) -> bool:
        """Whether it only shows something, and must not be killed (:mod:`.daemon_socket`)."""
        return is_query(self.arguments)

    @property
    def writes(self) -> bool:
        """Whether it may change FRR, and so must not be cut off."""
        return self.text is not None and "-C" not in self.arguments

    def encode(self) -> bytes:
        """Return the request's body."""
        fields = {"arguments": self.arguments, "text": self.text, "lock": self.lock, "seconds": self.seconds}
        return json.dumps(fields).encode()


def is_query(arguments: Sequence[str]) -> bool:
    """Whether vtysh only shows something with these arguments."""
    return "-c" in arguments and _PROBES.isdisjoint(arguments)


@dataclass(frozen=True, slots=True)
class EndRequest:
    """Which daemon to end; ``pid`` is its process in the pod."""

    daemon: str
    pid: int

    def encode(self) -> bytes:
        """Return the request's body."""
        return json.dumps({"daemon": self.daemon, "pid": self.pid}).encode()


def read_vtysh(body: bytes) -> VtyshRequest:
    """Return a request to run vtysh; raise :class:`RefusedRequestError` for anything that vtysh should not be given."""
    fields = _fields(body, {"arguments", "text", "lock", "seconds"})
    words, text, lock, seconds = fields["arguments"], fields["text"], fields["lock"], fields["seconds"]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise RefusedRequestError("arguments: must be a list of strings")
    if text is not None and (not isinstance(text, str) or "\0" in text):
        raise RefusedRequestError("text: must be a configuration or null")
    if lock not in _LOCKS:
        raise RefusedRequestError("lock: must be shared, exclusive or empty")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise RefusedRequestError(f"seconds: must be more than 0 and at most {MOST_SECONDS:g}")
    check_arguments(words, with_text=text is not None)
    request = VtyshRequest(tuple(words), text, cast(Lock, lock), float(seconds))
    if request.writes and lock != "exclusive":
        raise RefusedRequestError("lock: a change needs the exclusive one")
    return request


def check_arguments(words: Sequence[str], *, with_text: bool) -> None:
    """Raise :class:`RefusedRequestError` for options that could do more than show something or load the given text.

    vtysh itself can write files, read others', and start programs (``start-shell``, ``ping``).
    """
    if len(words) > MOST_ARGUMENTS or any(len(word) > LONGEST_ARGUMENT for word in words):
        raise RefusedRequestError(f"arguments: at most {MOST_ARGUMENTS}, each of {LONGEST_ARGUMENT} characters")
    commands, rest = 0, iter(enumerate(words, 1))
    for number, word in rest:
        if word in _FLAGS:
            continue
        _, value = next(rest, (0, ""))
        if word == "-d" and value in DAEMONS:
            continue
        if word != "-c" or not _is_harmless(value):
            raise RefusedRequestError(f"arguments: argument {number} is not one that vtysh is given here")
        commands += 1
    if with_text == bool(commands):
        raise RefusedRequestError("arguments: either commands (-c) or a text is needed")
    if "-C" in words and not with_text:
        raise RefusedRequestError("arguments: -C checks a text, and there is none")


def _is_harmless(command: str) -> bool:
    # vtysh takes several lines for several commands, whatever they are.
    return command.isprintable() and (command.startswith(_SHOW) or command in _PROBES)


def read_end(body: bytes) -> EndRequest:
    """Return a request to end a daemon; raise :class:`RefusedRequestError`."""
    fields = _fields(body, {"daemon", "pid"})
    daemon, pid = fields["daemon"], fields["pid"]
    if daemon not in DAEMONS or isinstance(pid, bool) or not isinstance(pid, int) or pid < 2:
        raise RefusedRequestError("must name one of FRR's daemons and its process")
    return EndRequest(str(daemon), pid)


def _fields(body: bytes, names: set[str]) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedRequestError("the body is not JSON") from None
    if not isinstance(fields, dict) or fields.keys() != names:
        raise RefusedRequestError(f"the body must have the members {', '.join(sorted(names))}")
    return fields


def write_outcome(outcome: Completed | DependencyFault) -> bytes:
    """Return the body that says how vtysh ended: it ran, exceeded its deadline, wrote too much, or is not there."""
    match outcome:
        case Completed():
            fields: dict[str, object] = {"outcome": "ended", "returncode": outcome.returncode}
        case CommandTimeout():
            fields = {"outcome": "timeout", "argv": outcome.argv, "seconds": outcome.seconds}
        case CommandTooTalkative():
            return json.dumps({"outcome": "talkative", "message": str(outcome)}).encode()
        case _:
            return json.dumps({"outcome": "missing", "message": str(outcome)}).encode()
    return json.dumps(fields | {"stdout": outcome.stdout, "stderr": outcome.stderr}).encode()


def read_outcome(argv: tuple[str, ...], body: bytes) -> Completed:
    """Return how vtysh ended, or raise the fault that running it here would have raised.

    Raises ``ValueError``, ``KeyError`` or ``TypeError`` for any other answer.
    """
    fields = json.loads(body)
    match fields["outcome"]:
        case "ended":
            return Completed(argv, int(fields["returncode"]), str(fields["stdout"]), str(fields["stderr"]))
        case "timeout":
            said = str(fields["stdout"]), str(fields["stderr"])
            command = tuple(map(str, fields["argv"]))
            raise CommandTimeout(command, float(fields["seconds"]), *said, is_query=is_query(argv))
        case "talkative":
            raise CommandTooTalkative(str(fields["message"]))
        case "missing":
            raise CommandMissing(f"in FRR's pod: {fields['message']}")
    raise ValueError("unknown outcome")


def write_numbers(numbers: Iterable[int]) -> bytes:
    """Return the body of a list of numbers."""
    return json.dumps(sorted(numbers)).encode()


def read_numbers(body: bytes) -> frozenset[int]:
    """Return a list of numbers; raise ``ValueError`` or ``TypeError`` for something else."""
    return frozenset(int(number) for number in json.loads(body))
