"""The sysctls that keep packets apart: the router's own, and those of single devices. Pure.

What belongs to a tenant's layer 2 only must not reach an IP stack: the bridge of a segment without routing domain in
the router (it is in the default VRF, with the underlay), and an L2VNI's devices in the host. There IPv6 is off; for
IPv4, which has no such switch, the strict reverse-path filter drops every packet on a device without a route, whatever
its source is, before it is delivered or forwarded (fib_validate_source), and ARP requests are not answered. The loose
filter, which the host's ``all`` may impose, does the same where the device has no address. They are set before the
device is up, and repaired like everything else.

A VRF needs no more than its unreachable default for what is forwarded. For what is delivered, ``*_l3mdev_accept`` 0
keeps packets of VRFs from sockets outside of them: also from the kernel's VXLAN socket, at the VTEP's address, which
the local table makes reachable from each VRF.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: Reference 4.3, the part for VXLAN, without ``arp_accept``: key, value, whether the kernel may lack it.
#: ``accept_untracked_na`` came with 5.18. The larger of ``all`` and a device's counts for rp_filter and arp_accept, so
#: ``all`` must leave it to the devices; a new namespace inherits the host's settings of IPv4. A strict filter on NICs
#: would drop what a fabric sends back over another one: 2 is loose, and Debian's default for all devices.
ROUTER_SYSCTLS: Final = (
    ("net.ipv4.conf.all.forwarding", "1", False),
    ("net.ipv6.conf.all.forwarding", "1", False),
    ("net.ipv4.conf.all.rp_filter", "0", False),
    ("net.ipv4.conf.default.rp_filter", "2", False),
    ("net.ipv4.conf.all.arp_accept", "0", False),
    ("net.ipv4.conf.default.arp_accept", "0", False),
    ("net.ipv6.conf.default.accept_ra", "0", False),
    ("net.ipv6.conf.default.accept_untracked_na", "0", True),
    ("net.ipv4.tcp_l3mdev_accept", "0", True),
    ("net.ipv4.udp_l3mdev_accept", "0", True),
    # Root's group may ping without CAP_NET_RAW (icmp(7)), IPv6 included.
    ("net.ipv4.ping_group_range", "0\t0", True),
)

#: A device's sysctls, of net/<family>/conf/<device>, by ``<family>.<name>``.
DeviceSysctls = tuple[tuple[str, str], ...]

#: Of a device that belongs to layer 2 only. arp_ignore 8: no answer for any local address. Since nothing else sets it,
#: it also marks such a device: it is written first, and taken back last.
LAYER_2_MARK: Final = ("ipv4.arp_ignore", "8")
LAYER_2_ONLY: Final[DeviceSysctls] = (
    LAYER_2_MARK,
    ("ipv6.disable_ipv6", "1"),
    ("ipv6.accept_ra", "0"),
    ("ipv4.rp_filter", "1"),
    ("ipv4.forwarding", "0"),
)
#: Of a segment's bridge with gateways: hosts that moved here are learnt from what they announce, for IPv4 in its own
#: subnets only (2; before kernel 6.0 that means 1).
GATEWAY: Final[DeviceSysctls] = (("ipv4.arp_accept", "2"), ("ipv6.accept_untracked_na", "1"))

#: Sysctls of one namespace by key; None: the kernel has no such sysctl.
Sysctls = Mapping[str, str | None]


def sysctl_key(device: str, name: str) -> str:
    """Return the key of a device's sysctl; the device has no dot in its name."""
    family, _, rest = name.partition(".")
    return f"net.{family}.conf.{device}.{rest}"


def device_writes(device: str, wanted: DeviceSysctls, found: Sysctls, *, created: bool) -> Iterator[tuple[str, str]]:
    """Yield key and value of what must be written; what this kernel does not have at all is left out."""
    if not created and wanted != LAYER_2_ONLY and found.get(sysctl_key(device, LAYER_2_MARK[0])) == LAYER_2_MARK[1]:
        yield from _as_new(device, found)
    for name, value in wanted:
        key = sysctl_key(device, name)
        if found.get(sysctl_key("default", name)) is not None and (created or found.get(key) != value):
            yield key, value


def _as_new(device: str, found: Sysctls) -> Iterator[tuple[str, str]]:
    """Yield what gives an IP stack to a device that had none."""
    for name, _ in LAYER_2_ONLY[1:]:
        usual = found.get(sysctl_key("default", name))
        if usual is not None:
            yield sysctl_key(device, name), usual
    yield sysctl_key(device, LAYER_2_MARK[0]), "0"
