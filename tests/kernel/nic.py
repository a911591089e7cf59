"""A NIC in the host with everything that it could lose, and its state as iproute2 reports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kernel.node import Node, ip, ip_json

CONF = Path("/proc/sys/net")
#: A NIC that ignores router advertisements and accepts asymmetric paths.
SYSCTLS = {
    "ipv4/conf/{}/rp_filter": "2",
    "ipv4/conf/{}/arp_ignore": "1",
    "ipv6/conf/{}/accept_ra": "0",
    "ipv6/conf/{}/autoconf": "0",
    "ipv6/conf/{}/addr_gen_mode": "1",
}


def furnish(nic: str = Node.NIC) -> None:
    """Configure everything that a NIC could lose: addresses, flags, an MTU, routes, sysctls and an alternative name.

    Both families' default routes are as at hosting providers: the gateway is in no subnet of the NIC, but has a route
    of its own.
    """
    ip("link", "set", nic, "down")
    ip("link", "set", nic, "mtu", "9000", "up")
    ip("link", "set", nic, "address", "52:54:00:aa:bb:01")
    ip("addr", "add", "192.168.11.3/24", "brd", "+", "dev", nic)
    ip("addr", "add", "192.168.12.3/24", "dev", nic, "noprefixroute")
    ip("addr", "add", "192.168.13.3/24", "brd", "192.168.13.0", "dev", nic, "label", f"{nic}:1")
    ip("addr", "add", "10.255.0.1", "peer", "10.255.0.2/32", "dev", nic)
    ip("addr", "add", "2001:db8:11::3/64", "dev", nic, "nodad")
    ip("route", "add", "10.9.0.0/16", "via", "192.168.11.2")
    ip("route", "add", "10.10.0.0/16", "dev", nic, "metric", "50", "table", "77", "proto", "static")
    ip("-6", "route", "add", "2001:db8:9::/48", "via", "2001:db8:11::2", "metric", "20")
    ip("addr", "add", "10.0.0.5/32", "dev", nic)
    ip("route", "add", "10.0.0.1", "dev", nic)
    ip("route", "add", "default", "via", "10.0.0.1")
    ip("-6", "route", "add", "2001:db8:ffff::1", "dev", nic)
    ip("-6", "route", "add", "default", "via", "2001:db8:ffff::1", "metric", "30")
    ip("route", "add", "10.11.0.0/16", "via", "172.31.0.1", "dev", nic, "onlink")
    for sysctl, value in SYSCTLS.items():
        (CONF / sysctl.format(nic)).write_text(value)
    ip("link", "property", "add", "dev", nic, "altname", "enp1s0")


def outside(nic: str = Node.NIC) -> dict[str, Any]:
    """Return the state of a NIC in the host, as iproute2 reports it."""
    link = ip_json("addr", "show", "dev", nic)[0]
    addresses = {
        (
            *(a["local"], a.get("address"), a["prefixlen"], a["scope"], a.get("noprefixroute", False)),
            *(a.get("broadcast"), a.get("label")),
        )
        for a in link["addr_info"]
        if a["scope"] != "link"
    }
    routes = [ip(family, "route", "show", "table", table, "dev", nic) for family in ("-4", "-6") for table in ("main",)]
    routes.append(ip("route", "show", "table", "77", "dev", nic))
    return {
        "addresses": addresses,
        "mac": link["address"],
        "mtu": link["mtu"],
        "group": link["group"],
        "up": "UP" in link["flags"],
        "altnames": link.get("altnames"),
        "sysctls": sysctls(nic),
        "routes": [sorted(line for line in lines.splitlines() if "fe80" not in line) for lines in routes],
    }


def sysctls(nic: str = Node.NIC) -> dict[str, str]:
    """Return the values of all sysctls that a NIC has of its own."""
    files = [file for family in ("ipv4", "ipv6") for file in sorted((CONF / family / "conf" / nic).iterdir())]
    # The secret of stable addresses cannot be read before it is set.
    return {str(file.relative_to(CONF)): file.read_text() for file in files if file.name != "stable_secret"}
