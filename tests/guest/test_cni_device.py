"""The packaged service with an underlay interface that CNI plugins make: a macvlan with an address from DHCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo import topology
from demo.checks import FABRIC_HOST_V4, LEAF, ping, session
from guestvm.machine import Machine
from tests.kernel.dhcp_server import offer

from .commands import CONFIGS, active, eventually, has_link, no_ping_lost, property_of, reload, write

UNDERLAY = f"{CONFIGS}/openpe_underlay.yaml"
ROUTER = "192.168.11.3"
#: The NIC stays in the host, without its address: that of the router is a lease.
BY_PLUGINS = """\
underlays:
  - asn: 64514
    interfaces:
      - type: CNIDevice
        cniDevice:
          type: RawConfig
          rawConfig:
            cniVersion: 1.0.0
            name: fabric
            plugins: [{type: macvlan, master: toswitch1, ipam: {type: dhcp}}]
    neighbors: [{asn: 64512, address: 192.168.11.2}]
    tunnelEndpoint: {cidrs: [100.65.0.0/24]}
"""
LOG = "/run/fabric-dhcp.log"
EVPN = session("perouter", "show bgp l2vpn evpn summary", LEAF)


def messages(node: Machine, word: str) -> int:
    """Return how many messages of a kind the DHCP server had, or sent."""
    return int(node.remote.run(f"grep -cw {word} {LOG} || true").stdout)


def daemons(node: Machine) -> set[str]:
    """Return the processes of the service that are DHCP daemons."""
    group = "/sys/fs/cgroup$(systemctl show --value -p ControlGroup openperouter)/cgroup.procs"
    found = node.remote.run(f"for p in $(cat {group}); do tr '\\0' ' ' </proc/$p/cmdline; echo $p; done", check=False)
    return {line.split()[-1] for line in found.stdout.splitlines() if "/usr/lib/cni/dhcp daemon" in line}


def use_nic(node: Machine, underlay: str) -> None:
    """Put the underlay back on the NIC, which needs its address for that."""
    node.remote.run(f"ip address replace {ROUTER}/24 brd + dev toswitch1")
    write(node, UNDERLAY, underlay)
    reload(node)
    node.remote.run("ip -n leaf neighbor flush dev tonode")


@pytest.fixture
def underlay(node: Machine) -> Iterator[str]:
    """Return the underlay's file, and put it back if the test did not."""
    before = node.remote.run(f"cat {UNDERLAY}").stdout
    yield before
    if node.remote.run(f"cat {UNDERLAY}").stdout != before:
        use_nic(node, before)
    node.remote.run("systemctl stop fabric-dhcp")
    eventually(lambda: EVPN(node).ok, "the fabric's session is back over the NIC")


@pytest.fixture
def leased(node: Machine, underlay: str) -> Machine:
    """The node with the underlay over a macvlan instead of the NIC; the switch has a DHCP server."""
    write(node, "/run/fabric-dhcp.py", (topology.CHECKOUT / "tests/kernel/dhcp_server.py").read_text())
    write(node, "/run/fabric-dhcp.json", offer(ROUTER, server=LEAF))
    node.remote.run(
        "systemd-run --quiet --unit=fabric-dhcp -p NetworkNamespacePath=/run/netns/leaf "
        f"python3 /run/fabric-dhcp.py tonode /run/fabric-dhcp.json {LOG}"
    )
    write(node, UNDERLAY, BY_PLUGINS)
    reload(node)
    node.remote.run(f"ip address del {ROUTER}/24 dev toswitch1 && ip -n leaf neighbor flush dev tonode")
    return node


def test_an_interface_with_a_lease_carries_the_tenants_and_outlives_the_service(leased: Machine, underlay: str) -> None:
    shown = leased.remote.run("ip -n perouter -d address show dev net1").stdout
    assert f"inet {ROUTER}/24" in shown
    assert "macvlan" in shown
    eventually(lambda: EVPN(leased).ok and ping(FABRIC_HOST_V4)(leased).ok, "the fabric's session is up, and forwards")
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups --"
    assert leased.remote.run(f"{user} ls /run/openperouter/dhcp", check=False).returncode != 0
    killed, before, acks = property_of(leased, "MainPID"), daemons(leased), messages(leased, "ACK")
    assert len(before) == 1
    with no_ping_lost(leased, FABRIC_HOST_V4):
        leased.remote.run("systemctl kill --kill-whom=main --signal=KILL openperouter")
        eventually(lambda: property_of(leased, "MainPID") not in {killed, "0"} and active(leased), "it runs again")
        eventually(lambda: messages(leased, "ACK") > acks, "its lease is acquired again")
    after = daemons(leased)
    assert len(after) == 1
    assert not after & before
    use_nic(leased, underlay)
    assert not has_link(leased, "net1")
    eventually(lambda: not daemons(leased), "the daemon has ended")
    assert messages(leased, "RELEASE") > 0
