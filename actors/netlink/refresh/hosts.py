"""Which hosts have to be probed, and when. Pure.

EVPN announces a host for as long as its node's bridge has the host's MAC, and the address for as long as the IP stack
has the neighbour. Both age out when a host is silent: a MAC after 300 s (802.1D), a neighbour after 60 s if the table
has more than 128 (gc_thresh1). So a host that sends nothing by itself would be withdrawn. It is probed when it has been
silent for a while, and every answer counts as a frame from it. One that has left does not answer, and ages out as
before.

Input is a :class:`Look` at the router, outputs are probes. Addresses are those that hosts use in ARP and neighbour
discovery, in frames from the host's side: this covers hosts that never use the gateway, and segments without one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Final

from config.desired import IPAddress, IPInterface

#: Addresses per MAC; a new one replaces the one that was not seen for longest.
MOST_ADDRESSES: Final = 8
#: Hosts per segment: a host that floods its segment with MACs does not exhaust the memory.
MOST_HOSTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretched segment whose hosts are probed."""

    vni: int
    gateways: tuple[IPInterface, ...] = ()

    def sender(self, target: IPAddress) -> IPAddress | None:
        """Return the gateway's address in a target's subnet, if there is one."""
        return next((own.ip for own in self.gateways if target in own.network and target != own.ip), None)


@dataclass(frozen=True, slots=True)
class Host:
    """A MAC on a segment."""

    vni: int
    mac: bytes


@dataclass(frozen=True, slots=True)
class Look:
    """The router's tables about its segments' hosts at one moment.

    ``silent`` are the MACs learned on the host's side with the seconds since their last frame; ``neighbors`` are the IP
    stack's, with whether they are stale; ``seen`` are addresses in frames since the last poll, the oldest first.
    ``ports`` are the indices of the segments' ports, by VNI.
    """

    silent: Mapping[Host, float] = field(default_factory=dict)
    neighbors: Mapping[tuple[Host, IPAddress], bool] = field(default_factory=dict)
    seen: tuple[tuple[Host, IPAddress], ...] = ()
    ports: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """One request to a host: does it have this address? ``sender`` None: send it without an address of ours."""

    host: Host
    address: IPAddress
    sender: IPAddress | None = None


class Memory:
    """The known addresses of hosts that a bridge still has. ``seconds`` is how long a host may be silent."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: Addresses of each host, in the order in which they were seen last.
        self._addresses: dict[Host, dict[IPAddress, None]] = {}
        self._asked: dict[tuple[Host, IPAddress], float] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def update(self, look: Look) -> None:
        """Update from a poll: add new addresses, remove what has aged out."""
        kept = {host: known for host, known in self._addresses.items() if host in look.silent}
        counts: defaultdict[int, int] = defaultdict(int)
        for host in kept:
            counts[host.vni] += 1
        for host, address in chain(look.neighbors, look.seen):
            if host not in look.silent:
                continue
            if host not in kept:
                if counts[host.vni] >= MOST_HOSTS:
                    continue
                counts[host.vni] += 1
            known = kept.setdefault(host, {})
            known.pop(address, None)
            known[address] = None
            while len(known) > MOST_ADDRESSES:
                del known[next(iter(known))]
        self._addresses = kept
        self._asked = {key: at for key, at in self._asked.items() if key[1] in kept.get(key[0], ())}

    def due(self, look: Look, segments: Mapping[int, Segment], now: float, most: int) -> list[Probe]:
        """Return up to ``most`` probes to send now, and record that they are sent.

        In a segment the hosts that have been silent for longest come first; segments take turns, so that one with
        thousands of hosts leaves room for the others.
        """
        queues: defaultdict[int, list[Probe]] = defaultdict(list)
        for host in sorted(self._addresses, key=lambda host: -look.silent[host]):
            if host.vni in segments:
                queues[host.vni] += self._of_host(host, look, segments[host.vni], now)
        chosen = [probe for turn in zip_longest(*queues.values()) for probe in turn if probe is not None][:most]
        self._asked.update(((probe.host, probe.address), now) for probe in chosen)
        return chosen

    def every(self, hosts: Iterable[Host], segments: Mapping[int, Segment], now: float) -> list[Probe]:
        """Return a probe for each known address of some hosts, and record that they are sent."""
        probes = [
            Probe(host, address, segments[host.vni].sender(address))
            for host in hosts
            if host.vni in segments
            for address in self._addresses.get(host, ())
        ]
        self._asked.update(((probe.host, probe.address), now) for probe in probes)
        return probes

    def _of_host(self, host: Host, look: Look, segment: Segment, now: float) -> Iterator[Probe]:
        # A host that is silent for that long does not just now find out whether another one has its address (RFC 5227,
        # RFC 4862), which a question without a sender could disturb.
        silent = look.silent[host] >= self._seconds
        for address in self._addresses[host]:
            sender = segment.sender(address)
            stale = sender is not None and look.neighbors.get((host, address), False)
            if (silent or stale) and now - self._asked.get((host, address), -math.inf) >= self._seconds / 2:
                yield Probe(host, address, sender)


def batches(probes: Iterable[Probe], size: int) -> Iterator[list[Probe]]:
    """Yield probes in order, in batches."""
    waiting = list(probes)
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]
