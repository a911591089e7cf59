"""Which of many address ranges overlap with given ones.

Networks in CIDR notation are nested or disjoint. So those that overlap a network begin inside it, or contain its first
address; the latter are found by their sizes, of which there are few.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True, order=True)
class NetworkRange:
    """A network: IP version, first address, and how many addresses follow the first one (a power of two less one)."""

    version: int
    first: int
    size: int

    @classmethod
    def of(cls, text: str) -> NetworkRange:
        """Return the network of an address with a prefix length."""
        network = ip_network(text, strict=False)
        return cls(network.version, int(network.network_address), network.num_addresses - 1)


class Ranges(Generic[K]):
    """Ranges, each with its owners."""

    def __init__(self) -> None:
        self._owners: defaultdict[NetworkRange, set[K]] = defaultdict(set)
        self._sorted: list[NetworkRange] = []
        self._sizes: Counter[tuple[int, int]] = Counter()

    def add(self, found: NetworkRange, owner: K) -> None:
        """Add a range of an owner that does not have it yet."""
        if found not in self._owners:
            insort(self._sorted, found)
            self._sizes[found.version, found.size] += 1
        self._owners[found].add(owner)

    def remove(self, found: NetworkRange, owner: K) -> None:
        """Remove a range of an owner, if it exists."""
        owners = self._owners.get(found)
        if owners is None:
            return
        owners.discard(owner)
        if not owners:
            del self._owners[found]
            del self._sorted[bisect_left(self._sorted, found)]
            self._sizes[found.version, found.size] -= 1
            self._sizes += Counter()

    def overlapping(self, ranges: Iterable[NetworkRange]) -> set[K]:
        """Return the owners of all ranges that overlap with these."""
        return {owner for one in ranges for other in self._overlapping(one) for owner in self._owners[other]}

    def _overlapping(self, one: NetworkRange) -> Iterator[NetworkRange]:
        begin = bisect_left(self._sorted, NetworkRange(one.version, one.first, 0))
        end = bisect_right(self._sorted, NetworkRange(one.version, one.first + one.size, 1 << 128))
        yield from self._sorted[begin:end]
        for version, size in self._sizes:
            around = NetworkRange(version, one.first & ~size, size)
            if version == one.version and size > one.size and around.first != one.first and around in self._owners:
                yield around
