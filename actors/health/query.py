"""Reads FRR's state: one vtysh process for each daemon that runs.

Only zebra, bgpd and bfdd are queried, never mgmtd, so that polling neither breaks a configuration that is being written
nor waits for it (:mod:`actors.lib.frr.frr_lock`). Which daemons run is read from their PID files for the same reason.
"""

from __future__ import annotations

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

_COMMANDS: Final = {
    "zebra": (INTERFACES, VNIS, ROUTES_IPV4, ROUTES_IPV6),
    "bgpd": (SUMMARY, INSTANCES, PEER_GROUPS),
    "bfdd": (BFD_PEERS,),
}


class FrrReader(Protocol):
    """What this module needs of FRR; both methods raise :class:`DependencyFault`."""

    async def json(self, *commands: str, daemon: str) -> list[object]:
        """Return one daemon's decoded answer to each command."""

    async def daemons(self) -> frozenset[str]:
        """Return the running daemons."""


class PolledFrr(Vtysh):
    """The router's FRR; ``seconds`` is the deadline of each process."""

    def __init__(self, settings: Settings, *, seconds: float) -> None:
        super().__init__(vtysh=str(settings.vtysh), pathspace=settings.frr_pathspace, seconds=seconds)
        self._run_dir = settings.frr_run_dir / settings.frr_pathspace

    async def daemons(self) -> frozenset[str]:
        """Read the PID files: "show daemons" would open a session with mgmtd."""
        found = running_daemons(self._run_dir)
        if not found:
            raise FrrUnavailable(f"FRR is not running: no PID file in {self._run_dir} names a daemon")
        return found


async def observe(frr: FrrReader) -> Observation:
    """Read FRR's state once. That FRR does not answer is an observation too, not an exception."""
    answers: dict[str, object] = {}
    try:
        daemons = await frr.daemons()
        for daemon, commands in _COMMANDS.items():
            if daemon in daemons:
                answers |= zip(commands, await frr.json(*commands, daemon=daemon), strict=True)
    except DependencyFault as fault:
        return Observation(error=str(fault) or type(fault).__name__)
    return parse(daemons, answers)
