"""Reads FRR's state: one session with each daemon that runs, then one each for the routes in bgpd and in zebra.

The routes are read only up to :data:`MOST_ROUTES` and :data:`MOST_RECEIVED`: their number is the fabric's, and bgpd
forwards no update while it prints them. Nothing is read per VNI.

Only zebra, bgpd and bfdd are queried, never mgmtd, so that polling neither breaks a configuration that is being written
nor waits for it (:mod:`actors.lib.frr.frr_lock`). Which daemons run is read from their PID files for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, Self

from actors.lib.frr.daemon_socket import DaemonSession, DaemonSockets
from actors.lib.frr.pod_processes import processes_of
from actors.lib.frr.processes import FrrProcesses, NativeProcesses
from actors.lib.frr.vtysh import SECONDS, FrrUnavailable, decoded
from config.settings import Settings
from supervisor.runtime.faults import DependencyFault

from .frr_json import (
    BFD_COUNTERS,
    BFD_PEERS,
    BGP_IPV4,
    BGP_IPV6,
    EVPN,
    EVPN_VNIS,
    INSTANCES,
    INTERFACES,
    KEPT_ROUTES,
    NEXT_HOPS,
    PEER_GROUPS,
    ROUTES_IPV4,
    ROUTES_IPV6,
    SUMMARY,
    TYPE_3,
    TYPE_5,
    VNIS,
    Decoder,
    Observation,
    parse,
    parse_evpn,
)

_COMMANDS: Final = {
    "zebra": (INTERFACES, VNIS, ROUTES_IPV4, ROUTES_IPV6),
    "bgpd": (SUMMARY, INSTANCES, PEER_GROUPS, EVPN_VNIS),
    "bfdd": (BFD_PEERS, BFD_COUNTERS),
}
#: bgpd first: what it has must be in zebra a moment later.
_ROUTES: Final = {"bgpd": (TYPE_3, TYPE_5), "zebra": (BGP_IPV4, BGP_IPV6, NEXT_HOPS)}
#: How many sessions one poll takes at most.
SESSIONS: Final = len(_COMMANDS) + len(_ROUTES)
#: More routes than this, in bgpd and zebra together, are not read: 10 000 are 6 MB of JSON, a tenth of a second's work.
MOST_ROUTES: Final = 10_000
#: Nor are EVPN's if one neighbour has sent more than this. Type 2, which is not read, is included: bgpd does not count
#: by type, and the size of its own table is the number of route distinguishers.
MOST_RECEIVED: Final = 30_000


#: What zebra says of a route beside it: how long ago it came.
_AGE: Final = re.compile(r'"uptime":"[^"]*"')
_WITH_AGES: Final = frozenset({BGP_IPV4, BGP_IPV6})
#: Answers that are another text each time, with counters and times.
_NEVER_THE_SAME: Final = frozenset({SUMMARY, BFD_COUNTERS})
#: Longest text that is kept with its document, which takes several times as much memory; characters.
LONGEST_KEPT: Final = 512 << 10


class _Unanswered(DependencyFault):
    """A daemon that runs did not answer."""

    def __init__(self, daemon: str, fault: DependencyFault) -> None:
        super().__init__(str(fault) or type(fault).__name__)
        self.daemon = daemon


class FrrReader(Protocol):
    """What this module needs of FRR; all but :meth:`send` raise :class:`DependencyFault`."""

    async def send(self, asked: Mapping[str, tuple[str, ...]]) -> None:
        """Send several daemons their commands, so that they work side by side; :meth:`json` follows for each."""

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one daemon's decoded answer to each command."""

    async def daemons(self) -> frozenset[str]:
        """Return the running daemons."""


class PolledFrr(DaemonSockets):
    """The router's FRR; ``seconds`` is the deadline of each daemon's answers.

    An answer with the text of the last one is that answer's document, which nothing may change. Long ones are not kept.
    Sessions are kept until the next poll, when a daemon that was restarted meanwhile gets a new one.
    """

    def __init__(self, run_dir: Path, *, seconds: float, processes: FrrProcesses | None = None) -> None:
        super().__init__(run_dir, seconds=seconds)
        self._processes = processes or NativeProcesses(run_dir, run_dir.name)
        self._last: dict[tuple[str, str], tuple[str, object]] = {}
        self._sessions: dict[str, DaemonSession] = {}
        self._sent: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, settings: Settings, seconds: float = SECONDS) -> Self:
        """Return access to the router's FRR, wherever it runs."""
        run_dir = settings.frr_run_dir / settings.frr_pathspace
        return cls(run_dir, seconds=seconds, processes=processes_of(settings))

    async def send(self, asked: Mapping[str, tuple[str, ...]]) -> None:
        """Send commands to the daemons with which there is a session; the others get theirs when they are asked."""
        for daemon, commands in asked.items():
            session = self._unused(daemon)
            if session is not None:
                with suppress(DependencyFault), self._faults(daemon, self.seconds), self._kept(session):
                    await session.send(commands)
                    self._sent[daemon] = commands

    def _unused(self, daemon: str) -> DaemonSession | None:
        """Take the session of the last time, unless answers of it are still to come."""
        session = self._sessions.pop(daemon, None)
        if session is not None and self._sent.pop(daemon, None) is not None:
            session.close()
            return None
        return session

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one decoded JSON document for each command, as :meth:`DaemonSockets.json`."""
        answers = await self.texts(*commands, daemon=daemon)
        return [self._decoded(daemon, command, text) for command, text in zip(commands, answers, strict=True)]

    async def texts(self, *commands: str, daemon: str) -> list[str]:
        """Return what each command prints, in the session of the last time if it still is one."""
        sent = self._sent.get(daemon) == commands
        if sent:
            del self._sent[daemon]
        session = self._unused(daemon)
        if session is not None:
            with suppress(FrrUnavailable), self._faults(daemon, self.seconds), self._kept(session):
                return await session.texts(commands, sent=sent)
        with self._faults(daemon, self.seconds):
            session = await self._open(daemon)
            with self._kept(session):
                return await session.texts(commands)

    @contextmanager
    def _kept(self, session: DaemonSession) -> Iterator[None]:
        """Keep a session for the next time, unless this one fails."""
        try:
            yield
        except BaseException:
            # What has not been read yet would be the answer to another command.
            session.close()
            raise
        self._sessions[session.daemon] = session

    def close(self) -> None:
        """End all sessions."""
        self._sent.clear()
        while self._sessions:
            self._sessions.popitem()[1].close()

    def _decoded(self, daemon: str, command: str, answer: str) -> object:
        if command in _NEVER_THE_SAME or len(answer) > LONGEST_KEPT:
            self._last.pop((daemon, command), None)
            return decoded(command, answer)
        text = _AGE.sub("", answer) if command in _WITH_AGES else answer
        known = self._last.get((daemon, command))
        if known is None or known[0] != text:
            known = self._last[daemon, command] = text, decoded(command, answer)
        return known[1]

    async def daemons(self) -> frozenset[str]:
        """Read the PID files: "show daemons" would open a session with mgmtd."""
        found = self._processes.running()
        if not found:
            raise FrrUnavailable(f"FRR is not running: no PID file in {self.run_dir} names a daemon")
        return found


async def observe(frr: FrrReader, decoder: Decoder | None = None) -> Observation:
    """Read FRR's state once. That FRR does not answer is an observation too, not an exception.

    ``decoder`` is that of the polls before.
    """
    decoder, daemons = decoder or Decoder(), frozenset[str]()
    try:
        daemons = await frr.daemons()
        await frr.send({daemon: commands for daemon, commands in _COMMANDS.items() if daemon in daemons})
        seen = parse(daemons, await _answers(frr, _COMMANDS, daemons), decoder)
        if not seen.bgp_vnis or seen.evpn_size is None or too_many(seen):
            return seen
        # FRR 10.3 prints an empty EVPN table as something that is not JSON.
        routes = _ROUTES if seen.evpn_size else {"zebra": _ROUTES["zebra"]}
        kept = decoder if seen.table_size <= KEPT_ROUTES else None
        return replace(seen, evpn=parse_evpn(await _answers(frr, routes, daemons), kept))
    except DependencyFault as fault:
        silent = fault.daemon if isinstance(fault, _Unanswered) else ""
        return Observation(daemons, error=str(fault) or type(fault).__name__, silent=silent)


def too_many(seen: Observation) -> str:
    """Return which routes are too many to be read, or nothing."""
    received = max((peer.prefixes.get(EVPN, 0) for peer in seen.peers.values()), default=0)
    if received > MOST_RECEIVED:
        return f"{received} EVPN routes from one neighbour are more than {MOST_RECEIVED}"
    return f"{seen.table_size} routes are more than {MOST_ROUTES}" if seen.table_size > MOST_ROUTES else ""


async def _answers(frr: FrrReader, asked: Mapping[str, tuple[str, ...]], daemons: frozenset[str]) -> dict[str, object]:
    answers: dict[str, object] = {}
    for daemon, commands in asked.items():
        if daemon in daemons:
            try:
                answers |= zip(commands, await frr.json(*commands, daemon=daemon), strict=True)
            except DependencyFault as fault:
                raise _Unanswered(daemon, fault) from fault
    return answers
