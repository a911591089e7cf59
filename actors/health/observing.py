"""Asking FRR: two vtysh processes a look, and no command to a daemon that is not there to answer it."""

from __future__ import annotations

from typing import Protocol

from supervisor.faults import DependencyFault

from .observation import (
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


class Asking(Protocol):
    """What this module needs of vtysh; both raise :class:`DependencyFault`."""

    async def json(self, *commands: str) -> list[object]:
        """Return one decoded answer for each command."""

    async def daemons(self) -> frozenset[str]:
        """Return the daemons that answer."""


async def observe(vtysh: Asking) -> Observation:
    """Look at FRR once. Never raises for FRR's sake: not answering is an observation too."""
    try:
        daemons = await vtysh.daemons()
        commands = questions(daemons)
        answers = dict(zip(commands, await vtysh.json(*commands), strict=True)) if commands else {}
    except DependencyFault as fault:
        return Observation(error=str(fault) or type(fault).__name__)
    return parse(daemons, answers)


def questions(daemons: frozenset[str]) -> tuple[str, ...]:
    """Return the commands that the running daemons can answer.

    vtysh ends at the first command whose daemon is absent, so one too many would cost the answers to all others.
    """
    zebra = (INTERFACES, VNIS, ROUTES_IPV4, ROUTES_IPV6) if "zebra" in daemons else ()
    bgpd = (SUMMARY, INSTANCES, PEER_GROUPS) if "bgpd" in daemons else ()
    bfdd = (BFD_PEERS,) if "bfdd" in daemons else ()
    return (*zebra, *bgpd, *bfdd)
