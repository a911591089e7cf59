"""The addresses of one interface, wherever it is: in the host, or already in the router.

For deriving the node's index from an interface. Upstream looks in the host only, and so cannot start again once the
router has the NIC (openperouter#718).
"""

from __future__ import annotations

from pathlib import Path

from config.desired import IPInterface

from .wire.namespace_socket import NamespaceEnd
from .wire.namespace_thread import NamespaceMissing

#: Where iproute2 and systemd keep named namespaces.
NAMESPACES = Path("/run/netns")


def interface_addresses(name: str, netns: str) -> tuple[IPInterface, ...]:
    """Return an interface's addresses, in the kernel's order; empty when it is nowhere or has none. Blocks.

    KernelRefusal when the kernel cannot be asked.
    """
    for label, path in (("host", None), ("router", NAMESPACES / netns)):
        try:
            end = NamespaceEnd(label, path)
        except NamespaceMissing:
            continue
        try:
            view = end.view()
        finally:
            end.close()
        if name in view.links:
            return tuple(address.interface for address in view.addresses.get(name, ()))
    return ()
