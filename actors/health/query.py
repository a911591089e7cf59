"""Asking FRR: one vtysh process a daemon and look, and none for a daemon that is not there to answer.

Only the daemons that know are asked, never mgmtd, so that a look neither disturbs a configuration that is being written
nor waits for it (:mod:`actors.lib.frr.frr_lock`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from actors.lib.frr.processes import running_daemons
from actors.lib.frr.vtysh import FrrUnavailable, Vtysh
from config.settings import Settings
from supervisor.runtime.faults import DependencyFault

from .frr_json import (
    BFD_PEERS,
    INSTANCES,
    INTERFACES,
    PEER_GROUPS,
    ROUTES_IPV4,
    ROUTES_IPV6,
    SUMMARY,
    VNIS,
    Observation,
    parse,
)

_QUESTIONS: Final = {
    "zebra": (INTERFACES, VNIS, ROUTES_IPV4, ROUTES_IPV6),
    "bgpd": (SUMMARY, INSTANCES, PEER_GROUPS),
    "bfdd": (BFD_PEERS,),
}


class Asking(Protocol):
    """What this module needs of FRR; both raise :class:`DependencyFault`."""

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one decoded answer of a daemon for each command."""

    async def daemons(self) -> frozenset[str]:
        """Return the daemons that run."""


class Frr:
    """The router's FRR; ``seconds`` is the deadline of each question."""

    def __init__(self, settings: Settings, *, seconds: float) -> None:
        self._vtysh = Vtysh.of(settings, seconds)
        self._run_dir: Path = settings.frr_run_dir / settings.frr_pathspace

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Ask one daemon."""
        return await self._vtysh.json(*commands, daemon=daemon)

    async def daemons(self) -> frozenset[str]:
        """Look at the PID files."""
        found = running_daemons(self._run_dir)
        if not found:
            raise FrrUnavailable(f"FRR does not run: no PID file in {self._run_dir} names a daemon")
        return found


async def observe(frr: Asking) -> Observation:
    """Look at FRR once. Never raises for FRR's sake: not answering is an observation too."""
    answers: dict[str, object] = {}
    try:
        daemons = await frr.daemons()
        for daemon, commands in _QUESTIONS.items():
            if daemon in daemons:
                answers |= zip(commands, await frr.json(*commands, daemon=daemon), strict=True)
    except DependencyFault as fault:
        return Observation(error=str(fault) or type(fault).__name__)
    return parse(daemons, answers)
