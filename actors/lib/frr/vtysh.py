"""Runs vtysh: the one way in which actors and operations read FRR.

Each call is one process with a deadline: here, or with the setting ``runtime: podman`` in FRR's pod, by the reloader
(:mod:`.reloader_client`), which then takes the lock. A call that opens a session with mgmtd holds
:func:`.frr_lock.session_lock` for its duration. vtysh's exit codes are unreliable and its messages go to either stream,
so the output decides: a daemon that does not answer raises :class:`FrrUnavailable`, a refused or undecodable answer
:class:`VtyshRefused`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from pydantic_core import from_json

from config.settings import Settings
from config.syntax.frr_secrets import redact
from supervisor.process.subprocesses import Completed, run_command, run_query
from supervisor.runtime.faults import DependencyFault

from .frr_lock import session_lock
from .reloader_protocol import SOCKET, Lock

#: Default deadline of one call in seconds: a running configuration of a thousand VRFs takes FRR 10.3 about four.
SECONDS: Final = 20.0
#: Longest quotation of vtysh's output in a message, in characters.
MAX_QUOTATION: Final = 300

#: What vtysh prints, on either stream, when the daemon of a command is absent or stops answering. Only whole lines
#: count: a description in the running configuration may hold the same words.
_ABSENT: Final = re.compile(
    r"^(?:Exiting: failed to connect to any daemons|[a-z0-9]+ is not running[ \r]*$|vtysh: error reading from ).*",
    re.MULTILINE,
)
#: How FRR begins a refusal.
_COMPLAINT: Final = re.compile(r"^% .*", re.MULTILINE)
#: A daemon that ends in the middle of its answer leaves half a line; standard error never holds a user's text.
_LOST: Final = re.compile(r"vtysh: error reading from .*")


class FrrUnavailable(DependencyFault):
    """FRR, or a daemon that a command needs, is not running."""


class VtyshRefused(DependencyFault):
    """FRR runs but did not accept a command, or its answer is unexpected."""


class Vtysh:
    """Runs vtysh against the FRR of one pathspace; ``lock`` is the file of :mod:`.frr_lock`, None: take no lock.

    ``held`` are the descriptors with which the caller holds it. ``reloader`` is the socket of the reloader that runs it
    instead. Safe to use from several tasks at once: each call is a process of its own.
    """

    def __init__(
        self,
        *,
        vtysh: str,
        pathspace: str,
        seconds: float = SECONDS,
        lock: Path | None = None,
        held: Sequence[int] = (),
        reloader: Path | None = None,
    ) -> None:
        self.seconds = seconds
        self._command = (vtysh, "-N", pathspace)
        self._lock = lock
        self._held = tuple(held)
        self._reloader = reloader

    @classmethod
    def of(cls, settings: Settings, seconds: float = SECONDS, *, held: Sequence[int] | None = None) -> Self:
        """Return access to the router's FRR; with ``held`` the caller holds :func:`lock_file` itself."""
        lock = lock_file(settings) if held is None else None
        reloader = settings.pod_run_dir / SOCKET if settings.runtime == "podman" else None
        program, pathspace = str(settings.vtysh), settings.frr_pathspace
        return cls(vtysh=program, pathspace=pathspace, seconds=seconds, lock=lock, held=held or (), reloader=reloader)

    async def run(
        self, *arguments: str, seconds: float | None = None, writes: bool = False, query: bool = False
    ) -> Completed:
        """Run vtysh with further arguments; raise only for a missing program or an exceeded deadline.

        The deadline does not include the wait for the lock. A ``query`` that exceeds it is not killed, since that may
        end the daemon that answers (:mod:`.daemon_socket`), and keeps the lock until it ends. Raises
        :class:`.ReloaderFault` too where one runs vtysh.
        """
        locks = self._lock is not None and (writes or _reaches_mgmtd(arguments))
        if self._reloader is not None:
            # Most nodes do not use HTTP, and the parser of it is a twentieth of what the daemon imports.
            from .reloader_client import ReloaderClient

            lock: Lock = ("exclusive" if writes else "shared") if locks else ""
            return await ReloaderClient(self._reloader).vtysh(arguments, seconds=seconds or self.seconds, lock=lock)
        async with session_lock(self._lock if locks else None, exclusive=writes) as held:
            command, deadline = (*self._command, *arguments), seconds or self.seconds
            if query:
                return await run_query(command, seconds=deadline, pass_fds=(*self._held, *held))
            return await run_command(command, seconds=deadline)

    async def text(self, *commands: str, daemon: str = "") -> str:
        """Return what the commands, run in one process, print together; ``daemon`` limits the session to that daemon.

        Raises :class:`FrrUnavailable`, :class:`VtyshRefused`, or the runner's faults for a deadline or a missing
        program; all are :class:`DependencyFault`.
        """
        return _checked(await self.run(*_options(commands, daemon), query=True))

    async def json(self, *commands: str, daemon: str = "") -> list[object]:
        """Return one decoded JSON document for each command, in order, from one process; None for no output.

        Raises like :meth:`text`, and :class:`VtyshRefused` for an answer that is not JSON.
        """
        echoed = _checked(await self.run("-E", *_options(commands, daemon), query=True))
        return [decoded(command, answer) for command, answer in zip(commands, _split(echoed, commands), strict=True)]

    async def daemons(self) -> frozenset[str]:
        """Return the daemons that accept vtysh's connection now; raise if there are none."""
        return frozenset((await self.text("show daemons")).split())


def lock_file(settings: Settings) -> Path:
    """Return the file that sessions with mgmtd lock, where all that open one see it: with podman the reloader too."""
    return (settings.pod_run_dir if settings.runtime == "podman" else settings.run_dir) / "frr.lock"


def _reaches_mgmtd(arguments: Sequence[str]) -> bool:
    """Return whether vtysh opens a session with mgmtd: without ``-d`` with all daemons, in a dry run with none."""
    if "-C" in arguments:
        return False
    return "-d" not in arguments or arguments[arguments.index("-d") + 1] == "mgmtd"


def _options(commands: Sequence[str], daemon: str) -> list[str]:
    options = ["-d", daemon] if daemon else []
    return options + [argument for command in commands for argument in ("-c", command)]


def _checked(completed: Completed) -> str:
    output = f"{completed.stdout}\n{completed.stderr}"
    absence = _ABSENT.search(output) or _LOST.search(completed.stderr)
    if absence:
        raise FrrUnavailable(f"FRR does not answer: {absence[0].strip()}")
    complaint = first_complaint(completed.stdout)
    if completed.returncode != 0 or complaint:
        reason = complaint or last_line(output)
        raise VtyshRefused(f"vtysh failed with exit code {completed.returncode}: {reason}")
    return completed.stdout


def first_complaint(text: str) -> str:
    """Return the first line with which FRR refuses a command, for a message; nothing if there is none."""
    found = _COMPLAINT.search(text)
    return _quotation(found[0]) if found else ""


def last_line(text: str) -> str:
    """Return the last line for a message. It may be any line of a configuration: vtysh may have been killed there."""
    return next((_quotation(line) for line in reversed(text.splitlines()) if line.strip()), "no output")


def _quotation(line: str) -> str:
    return redact(line.strip()[:MAX_QUOTATION])


def _split(echoed: str, commands: Sequence[str]) -> list[str]:
    """Cut the output at the echoed prompts: with ``-E`` vtysh prints ``<hostname># <command>`` before each answer."""
    answers: list[list[str]] = []
    for line in echoed.splitlines():
        if len(answers) < len(commands) and line.endswith(f"# {commands[len(answers)]}"):
            answers.append([])
        elif answers:
            answers[-1].append(line)
    if len(answers) != len(commands):
        raise VtyshRefused(f"vtysh answered {len(answers)} of {len(commands)} commands")
    return ["\n".join(answer) for answer in answers]


def decoded(command: str, answer: str) -> object:
    """Return an answer's JSON document, None for no output; :class:`VtyshRefused` for anything else."""
    if not answer.strip():
        return None
    try:
        # In less than two thirds of the standard library's time.
        document: object = from_json(answer, cache_strings="keys")
    except ValueError as error:
        raise VtyshRefused(f"the answer to {command!r} is not JSON: {last_line(answer)}") from error
    return document
