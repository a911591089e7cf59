"""How the upstream router applies a change, by its documentation: a baseline for :mod:`.changes`, not its program.

Upstream's router is a Go program that is not part of this repository. What it does with a change is documented: it
writes the whole ``frr.conf``, has ``frr-reload.py`` check and apply it, repeats that with a doubling pause until it
succeeds, and only then walks through the kernel's objects, resource by resource, creating what is missing and
correcting what it can; at last it deletes what belongs to no resource. A VXLAN device with any other attribute is
deleted and made again, and addresses are never removed.

Here ``frr-reload.py`` is Debian's (upstream has a newer FRR, with one change: it does not delete interfaces), and the
kernel's steps are ``ip -batch``, three processes for a whole pass: quicker than one request after the other.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.frr.harness import sh
from tests.router.node import LEAF_AS, VXLAN_OVERHEAD, Network, Node, Tenant

NIC = "toswitch1"
ADDRESS = "192.168.11.3/24"
#: It never gives up; the baseline does.
PATIENCE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.005


class NotAppliedError(Exception):
    """``frr-reload.py`` has failed until the patience was over."""


class DocumentedProcedure:
    """Applies networks to the router of a node on which our daemon does not run."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def apply(self, network: Network) -> None:
        """Apply a network to FRR, then to the kernel."""
        conf = self._node.directory / "whole-frr.conf"
        conf.write_text("".join(f"{line}\n" for line in frr_lines(network)))
        deadline, pause = time.monotonic() + PATIENCE_SECONDS, FIRST_PAUSE_SECONDS
        while refusal := frr_reload(conf, "--test") or frr_reload(conf, "--reload"):
            if time.monotonic() > deadline:
                raise NotAppliedError(refusal)
            time.sleep(pause)
            pause *= 2
        self._move_nic()
        self._make(network)
        self._remove(network)

    def _move_nic(self) -> None:
        if NIC in links():
            sh(f"ip link set {NIC} netns perouter")
            batch("perouter", [f"address add {ADDRESS} brd + dev {NIC}", f"link set {NIC} group 4242 up"])
            sh("ip netns exec perouter sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
            sh("ip netns exec perouter sysctl -qw net.ipv4.conf.all.arp_accept=1 net.ipv4.conf.default.arp_accept=1")

    def _make(self, network: Network) -> None:
        """Create what is missing and correct what differs, a resource after the other; nothing is removed yet."""
        host, router = links(), links("perouter")
        mtu = router[NIC]["mtu"] - VXLAN_OVERHEAD
        vtep = vtep_of(network)
        outside: list[str] = []
        inside: list[str] = [] if vtep in addresses("perouter", "lo") else [f"address add {vtep}/32 dev lo"]
        tables = {link["linkinfo"]["info_data"]["table"] for link in router.values() if kind_of(link) == "vrf"}
        for tenant in network.tenants:
            inside += l3vni_lines(tenant, vtep, router, tables)
            if f"host-e-{tenant.vni}" not in host:
                outside.append(f"link add host-e-{tenant.vni} type veth peer name pe-e-{tenant.vni} netns perouter")
            outside += [f"link set host-e-{tenant.vni} up mtu {mtu}"]
            side = host_side(tenant, network)
            if side not in addresses("", f"host-e-{tenant.vni}"):
                outside.append(f"address add {side}/24 dev host-e-{tenant.vni}")
            inside += [f"link set pe-e-{tenant.vni} up mtu {mtu}"]
            if router.get(f"pe-e-{tenant.vni}", {}).get("master") != tenant.vrf:
                inside.append(f"link set pe-e-{tenant.vni} master {tenant.vrf}")
            if tenant.gateway not in addresses("perouter", f"pe-e-{tenant.vni}"):
                inside.append(f"address add {tenant.gateway}/24 dev pe-e-{tenant.vni}")
        batch("", outside)
        batch("perouter", inside)

    def _remove(self, network: Network) -> None:
        vnis, vrfs = {str(tenant.vni) for tenant in network.tenants}, {tenant.vrf for tenant in network.tenants}
        batch("", [f"link del {name}" for name in links() if name.startswith("host-e-") and name[7:] not in vnis])
        gone = []
        for name, link in links("perouter").items():
            prefix = next((prefix for prefix in ("vni", "br-pe-") if name.startswith(prefix)), "")
            if (prefix and name[len(prefix) :] not in vnis) or (kind_of(link) == "vrf" and name not in vrfs):
                gone.append(f"link del {name}")
        batch("perouter", gone)


def frr_reload(conf: Path, action: str) -> str:
    """Run ``frr-reload.py``; return the end of what it says when it fails."""
    directories = ("--confdir", "/etc/frr", "--rundir", "/run/frr/perouter", "--pathspace", "perouter")
    command = ["/usr/lib/frr/frr-reload.py", *directories, action, "--stdout", str(conf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"frr-reload.py {action}: {done.stdout[-600:]}{done.stderr[-600:]}"


def frr_lines(network: Network) -> Iterator[str]:
    """Yield the whole configuration in the documented order of blocks."""
    yield from ("log timestamp precision 3", "hostname router", "ip nht resolve-via-default")
    yield "ipv6 nht resolve-via-default"
    for tenant in network.tenants:
        yield from (f"vrf {tenant.vrf}", f" vni {tenant.vni}", "exit-vrf")
    yield from ("route-map allowall permit 1", "exit", f"router bgp {network.asn}", *base_lines(network))
    yield f" neighbor 192.168.11.2 remote-as {LEAF_AS}"
    activated = ("  neighbor 192.168.11.2 activate", "  neighbor 192.168.11.2 allowas-in")
    yield from (" address-family ipv4 unicast", *activated, f"  network {vtep_of(network)}/32", " exit-address-family")
    yield from (" address-family l2vpn evpn", *activated, "  advertise-all-vni", " exit-address-family", "exit")
    for tenant in network.tenants:
        host = host_side(tenant, network)
        yield from (f"router bgp {network.asn} vrf {tenant.vrf}", *base_lines(network))
        yield f" neighbor {host} remote-as {tenant.host_as}"
        for family in ("ipv4", "ipv6"):
            yield f" address-family {family} unicast"
            yield f"  neighbor {host} activate"
            yield from (f"  neighbor {host} route-map allowall {way}" for way in ("in", "out"))
            if family == "ipv4":
                yield f"  network {host}/32"
            yield " exit-address-family"
        yield " address-family l2vpn evpn"
        yield from (f"  advertise {family} unicast" for family in ("ipv4", "ipv6"))
        yield from (f"  route-target {way} {LEAF_AS}:{tenant.number}" for way in ("export", "import"))
        yield from (" exit-address-family", "exit")


def base_lines(network: Network) -> tuple[str, ...]:
    """Return the lines that begin each BGP instance."""
    return (
        " no bgp ebgp-requires-policy",
        " no bgp network import-check",
        " no bgp default ipv4-unicast",
        f" bgp router-id 10.0.0.{network.index + 1}",
    )


def l3vni_lines(tenant: Tenant, vtep: str, router: dict[str, dict[str, Any]], tables: set[int]) -> Iterator[str]:
    """Yield iproute2's commands for a tenant's VRF, bridge and VXLAN device; ``tables`` are those in use."""
    bridge, vxlan = f"br-pe-{tenant.vni}", f"vni{tenant.vni}"
    if tenant.vrf not in router:
        table = next(number for number in range(1, 253) if number not in tables)
        tables.add(table)
        yield f"link add {tenant.vrf} type vrf table {table}"
    yield f"link set {tenant.vrf} up"
    if bridge not in router:
        yield f"link add {bridge} type bridge"
        yield f"link set {bridge} addrgenmode none"
    if router.get(bridge, {}).get("master") != tenant.vrf:
        yield f"link set {bridge} master {tenant.vrf}"
    yield f"link set {bridge} up"
    found = router.get(vxlan)
    if found is not None:
        data = found["linkinfo"]["info_data"]
        if (data["local"], data["port"], found.get("master")) != (vtep, tenant.port, bridge):
            yield f"link del {vxlan}"
            found = None
    if found is None:
        yield f"link add {vxlan} type vxlan id {tenant.vni} dev lo local {vtep} dstport {tenant.port} nolearning"
        yield f"link set {vxlan} addrgenmode none"
        yield f"link set {vxlan} master {bridge}"
        yield f"link set {vxlan} type bridge_slave neigh_suppress on"
        yield f"link set {vxlan} up"


def vtep_of(network: Network) -> str:
    """Return host number ``index`` of the pool."""
    return str(ipaddress.ip_network(network.vteps)[network.index])


def host_side(tenant: Tenant, network: Network) -> str:
    """Return the host's address of a tenant's session: the router has the first one."""
    return f"172.27.{tenant.number}.{network.index + 2}"


def links(netns: str = "") -> dict[str, dict[str, Any]]:
    """Return a namespace's links by name, as iproute2 has them."""
    where = f"-n {netns} " if netns else ""
    return {link["ifname"]: link for link in json.loads(sh(f"ip {where}-d -j link"))}


def kind_of(link: dict[str, Any]) -> str:
    """Return a link's kind, or nothing."""
    return str(link.get("linkinfo", {}).get("info_kind", ""))


def addresses(netns: str, name: str) -> set[str]:
    """Return a link's addresses; none of one that is not there."""
    where = f"-n {netns} " if netns else ""
    found = json.loads(sh(f"ip {where}-j address show dev {name} 2>/dev/null", check=False) or "[]")
    return {address["local"] for link in found for address in link.get("addr_info", [])}


def batch(netns: str, lines: list[str]) -> None:
    """Run iproute2's commands in one process."""
    if lines:
        text = "\n".join(lines)
        sh(f"ip {f'-n {netns} ' if netns else ''}-batch - <<'EOF'\n{text}\nEOF")
