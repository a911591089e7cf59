"""The facts of a machine on which all is well: tests take one thing away and look at what the checks say."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from actors.lib.frr.processes import DAEMONS
from actors.netlink.planning.observed import NIC_GROUP, OWNED_GROUP, Address, Link, LinkKind, NamespaceView
from actors.netlink.planning.wanted import ROUTER_SYSCTLS
from config.desired import DesiredState, HostMasterKind
from config.settings import Settings
from config.status import ActorStatus, Status
from supervisor.operations.doctor import Finding, Level, examine
from supervisor.operations.doctor.facts import (
    ClockFacts,
    ConfigurationFacts,
    CredentialsFacts,
    DaemonFacts,
    DiskFact,
    Facts,
    FileFact,
    FrrFacts,
    ManagersFacts,
    NetworkFacts,
    UnitFact,
)
from tests.actors.netlink.builders import l2vni, l3vni, state, underlay

NIC = "toswitch1"
SETTINGS = Settings()
ADDRESS = Address(ip_interface("192.0.2.5/24"))
ROUTER = NamespaceView(
    {"lo": Link(1, "lo", up=True), NIC: Link(2, NIC, group=NIC_GROUP, up=True, mtu=9000)}, {NIC: (ADDRESS,)}
)
HOST = NamespaceView(
    {
        "lo": Link(1, "lo", up=True),
        "host-e-110": Link(5, "host-e-110", "veth", group=OWNED_GROUP, up=True, mtu=1500),
        "br0": Link(6, "br0", LinkKind.BRIDGE, up=True, mtu=1500),
    }
)
DESIRED: DesiredState = state(
    underlay=underlay(NIC),
    l3vnis=(l3vni(),),
    l2vnis=(l2vni(master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0"),),
)
KUBECONFIG = "/var/lib/hostbridge/kubeconfig"
TOKEN = "/var/lib/hostbridge/token"
STATUS = Status(
    pid=42, phase="running", ready=True, summary="ready: 2 sessions up", actors=(ActorStatus("frr", "running"),)
)
UNITS = {
    "openperouter.service": UnitFact("openperouter.service", "loaded", "active", "running", "enabled"),
    "frr@perouter.service": UnitFact(
        "frr@perouter.service",
        "loaded",
        "active",
        "running",
        drop_ins=("/usr/lib/systemd/system/frr@perouter.service.d/openperouter.conf",),
    ),
    "systemd-networkd.service": UnitFact("systemd-networkd.service", "loaded", "active", "running", started=2000.0),
    "NetworkManager.service": UnitFact("NetworkManager.service", "loaded", "active", "running"),
}
WELL = Facts(
    settings=SETTINGS,
    kinds=dict.fromkeys(("bridge", "veth", "vrf", "vxlan"), True),
    units=UNITS,
    frr=FrrFacts(
        version="10.5.1",
        vtysh=True,
        reload=True,
        daemons_file={"bgpd": "yes", "bfdd": "yes", "vtysh_enable": "yes"},
        running=DAEMONS,
        conf=FileFact("/etc/frr/perouter/frr.conf", 0o640, "frr", "frr"),
        inside=True,
    ),
    network=NetworkFacts(
        HOST,
        ROUTER,
        sysctls=dict.fromkeys((key for key, _, _ in ROUTER_SYSCTLS), "1"),
        rp_filter={"all": "0", "host-e-110": "2"},
    ),
    managers=ManagersFacts(
        networkd={
            "ManageForeignRoutes": "no",
            "ManageForeignRoutingPolicyRules": "no",
            "ManageForeignNextHops": "no",
        },
        networkd_changed=1000.0,
        unmanaged=True,
        network_manager=True,
        link=True,
        rules=True,
    ),
    files=(
        FileFact("/etc/openperouter/openperouter.yaml", 0o644),
        FileFact(str(SETTINGS.configs_dir), 0o755, directory=True, sheltered=True),
        FileFact(str(SETTINGS.configs_dir / "openpe_underlay.yaml"), 0o644, sheltered=True),
        FileFact(str(SETTINGS.configs_dir / "openpe_red.yaml"), 0o640),
        FileFact(str(SETTINGS.state_dir), 0o750, directory=True),
        FileFact(str(SETTINGS.state_dir / "last-good.json"), 0o600),
        FileFact(str(SETTINGS.configs_dir / "secrets" / "fabric"), 0o600),
    ),
    clock=ClockFacts(1_790_000_000.0, synchronised=True),
    disks=(DiskFact("/var/lib", 10**9, 10**6),),
    configuration=ConfigurationFacts(3, (), DESIRED),
    credentials=CredentialsFacts(
        KUBECONFIG,
        there=True,
        server="https://192.0.2.10:6443",
        ends=1_790_003_600.0,
        private=(FileFact(KUBECONFIG, 0o600), FileFact(TOKEN, 0o644)),
        directories=(
            FileFact("/var/lib", 0o755, directory=True),
            FileFact("/var/lib/hostbridge", 0o750, directory=True),
        ),
    ),
    daemon=DaemonFacts(42, "", STATUS),
)


def but(part: str, **changes: Any) -> Facts:
    """Return the well machine with one part changed."""
    return replace(WELL, **{part: replace(getattr(WELL, part), **changes)})


def unit_but(name: str, **changes: Any) -> Facts:
    """Return the well machine with one unit changed."""
    return replace(WELL, units={**UNITS, name: replace(UNITS[name], **changes)})


def host_with(link: Link, *addresses: Address) -> Facts:
    """Return the well machine with its NIC, as given, in the host instead of the router."""
    host = NamespaceView({**HOST.links, link.name: link}, {link.name: addresses})
    return but("network", host=host, router=NamespaceView({"lo": Link(1, "lo")}))


def complaints(facts: Facts) -> list[Finding]:
    """Return what is not ok."""
    return [finding for finding in examine(facts) if finding.level is not Level.OK]


def the_complaint(facts: Facts) -> Finding:
    """Return the one complaint that there is."""
    found = complaints(facts)
    assert len(found) == 1, found
    return found[0]


def path(name: str) -> str:
    """Return a path below the configuration."""
    return str(Path("/etc/openperouter") / name)
