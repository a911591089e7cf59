"""Which hosts have to be asked, and when. Pure.

EVPN announces a host for as long as its node's bridge has the host's MAC, and the address for as long as the IP stack
has the neighbour. Both age out when a host is silent: a MAC after 300 s (802.1D), a neighbour after 60 s if the table
has more than 128 (gc_thresh1). A host that only ever answers would so be withdrawn. It is asked when it has been silent
for a while, and every answer counts as a frame of its own. One that has left does not answer, and ages out as before.

In comes a :class:`Look` at the router, out come probes. Addresses are those that hosts use in ARP and neighbour
discovery, in frames from the host's side: also hosts that never use the gateway have them, and segments without one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Final

from config.desired import IPAddress, IPInterface

#: Remembered per MAC; the one that was not seen for the longest time makes room.
MOST_ADDRESSES: Final = 8
#: Hosts per segment that are remembered: one that floods its segment with MACs gets no more of our memory.
MOST_HOSTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretched segment whose host's side is asked."""

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
    """What the router has of its segments' hosts at one moment.

    ``silent`` are the MACs learned on the host's side with the seconds since their last frame; ``neighbors`` are the IP
    stack's, with whether they are stale; ``seen`` are addresses in frames since the last look, the oldest first.
    """

    silent: Mapping[Host, float] = field(default_factory=dict)
    neighbors: Mapping[tuple[Host, IPAddress], bool] = field(default_factory=dict)
    seen: tuple[tuple[Host, IPAddress], ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to a host: does it have this address? ``sender`` None: ask without an address of ours."""

    host: Host
    address: IPAddress
    sender: IPAddress | None = None


class Memory:
    """What was seen of hosts that a bridge still has. ``seconds`` is how long a host may be silent."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: Addresses of each host, in the order in which they were seen last.
        self._addresses: dict[Host, dict[IPAddress, None]] = {}
        self._asked: dict[tuple[Host, IPAddress], float] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def update(self, look: Look) -> None:
        """Take in a look: new addresses, and what has aged out since the last one."""
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
        """Return whom to ask now, ``most`` at the most, and remember that they were asked.

        Of a segment those come first that have been silent for the longest time; segments take turns, so that one with
        thousands of hosts leaves room for the others.
        """
        queues: defaultdict[int, list[Probe]] = defaultdict(list)
        for host in sorted(self._addresses, key=lambda host: -look.silent[host]):
            if host.vni in segments:
                queues[host.vni] += self._of_host(host, look, segments[host.vni], now)
        chosen = [probe for turn in zip_longest(*queues.values()) for probe in turn if probe is not None][:most]
        self._asked.update(((probe.host, probe.address), now) for probe in chosen)
        return chosen

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
    """Yield probes in order, so many at a time."""
    waiting = list(probes)
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]
