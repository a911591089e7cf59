"""What the kernel has of the tunnels of L3VNIs: the fabric's router MACs, and where each of them is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TunnelEntries:
    """The kernel's entries, in the form in which FRR prints MACs and addresses.

    ``neighbors``: bridge, next hop and its router MAC; ``endpoints``: VXLAN device, router MAC and tunnel endpoint.
    """

    neighbors: frozenset[tuple[str, str, str]]
    endpoints: frozenset[tuple[str, str, str]]


#: Reads the entries of bridges (first) and VXLAN devices (second) of the router's namespace. Raises DependencyFault or
#: KernelFault.
ReadEntries = Callable[[Collection[str], Collection[str]], Awaitable[TunnelEntries]]
