"""Address pools of host sessions: all of them share the host's namespace, so no two may overlap.

Upstream stops the whole node at an overlap; here the one of lower precedence loses, and is told whose pool it meets.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from ipaddress import ip_network

from config.desired import SessionAddresses
from config.models import HostSession
from config.resolve.ipam import PoolExhaustedError, session_addresses
from config.resolve.precedence import named
from config.resources import Resource

from .findings import RefusedError

_FIELDS = {4: "hostSession.localCIDR.ipv4", 6: "hostSession.localCIDR.ipv6"}


@dataclass(slots=True)
class Pools:
    """Disjoint address ranges with their owners; one instance for each IP version is kept inside."""

    _starts: dict[int, list[int]] = field(default_factory=lambda: {4: [], 6: []})
    _ranges: dict[int, list[tuple[int, int, Resource]]] = field(default_factory=lambda: {4: [], 6: []})

    def overlapping(self, pool: str) -> Resource | None:
        """Return the owner of a pool that overlaps this one, or None."""
        network = ip_network(pool, strict=False)
        first, last = int(network.network_address), int(network.broadcast_address)
        # Ranges are disjoint, so only the one that begins last before this one's end can reach into it.
        position = bisect_right(self._starts[network.version], last) - 1
        if position < 0:
            return None
        _, end, owner = self._ranges[network.version][position]
        return owner if end >= first else None

    def add(self, pool: str, owner: Resource) -> None:
        """Take a pool that overlaps none."""
        network = ip_network(pool, strict=False)
        first, last = int(network.network_address), int(network.broadcast_address)
        position = bisect_right(self._starts[network.version], first)
        self._starts[network.version].insert(position, first)
        self._ranges[network.version].insert(position, (first, last, owner))


def place_session(session: HostSession, index: int) -> tuple[SessionAddresses, ...]:
    """Return both ends of the session on this node, IPv4 first. Raises :class:`RefusedError` beyond a pool's end."""
    placed = []
    for pool in session.local_cidr.pools:
        try:
            placed.append(session_addresses(pool, index))
        except PoolExhaustedError as error:
            version = ip_network(pool, strict=False).version
            raise RefusedError(f"no addresses for node index {index}: {error}", _FIELDS[version]) from None
    return tuple(placed)


def check_overlap(session: HostSession, taken: Pools) -> None:
    """Raise :class:`RefusedError` when a pool of the session overlaps one that is taken."""
    for pool in session.local_cidr.pools:
        owner = taken.overlapping(pool)
        if owner is not None:
            version = ip_network(pool, strict=False).version
            raise RefusedError(f"{pool} overlaps a host session of {named(owner)}", _FIELDS[version], winner=owner)


def claim(session: HostSession, owner: Resource, taken: Pools) -> None:
    """Take the session's pools."""
    for pool in session.local_cidr.pools:
        taken.add(pool, owner)
