"""A machine without faults: tests change one thing and look at the findings."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from actors.lib.frr.processes import DAEMONS
from actors.netlink.planning.observed import NIC_GROUP, OWNED_GROUP, Address, Link, LinkKind, NamespaceView
from actors.netlink.planning.sysctls import ROUTER_SYSCTLS
from config.desired import DesiredState, HostMasterKind
from config.settings import Settings
from config.status import ActorStatus, Status
from supervisor.operations.doctor import Finding, HostState, Level, judge
from supervisor.operations.doctor.cni import Plugins
from supervisor.operations.doctor.credentials import Credentials
from supervisor.operations.doctor.files import File
from supervisor.operations.doctor.frr import Frr
from supervisor.operations.doctor.machine import Clock, Disk
from supervisor.operations.doctor.network_managers import NetworkManagers, Unit
from supervisor.operations.doctor.router import ConfigurationFiles, DaemonState, Network
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
    "openperouter.service": Unit("openperouter.service", "loaded", "active", "running", "enabled"),
    "frr@perouter.service": Unit(
        "frr@perouter.service",
        "loaded",
        "active",
        "running",
        drop_ins=("/usr/lib/systemd/system/frr@perouter.service.d/openperouter.conf",),
    ),
    "systemd-networkd.service": Unit("systemd-networkd.service", "loaded", "active", "running", started=2000.0),
    "NetworkManager.service": Unit("NetworkManager.service", "loaded", "active", "running"),
}
HEALTHY = HostState(
    settings=SETTINGS,
    device_kinds=dict.fromkeys(("bridge", "veth", "vrf", "vxlan"), True),
    units=UNITS,
    frr=Frr(
        version="10.5.1",
        vtysh=True,
        daemons_file={"bgpd": "yes", "bfdd": "yes", "vtysh_enable": "yes"},
        running=DAEMONS,
        conf=File("/etc/frr/perouter/frr.conf", 0o640, "root", "frr"),
        inside=True,
    ),
    network=Network(
        HOST,
        ROUTER,
        sysctls={key: value for key, value, _ in ROUTER_SYSCTLS},
        rp_filter={"all": "0", "host-e-110": "2"},
    ),
    managers=NetworkManagers(
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
        File("/etc/openperouter/openperouter.yaml", 0o644),
        File(str(SETTINGS.configs_dir), 0o755, directory=True, sheltered=True),
        File(str(SETTINGS.configs_dir / "openpe_underlay.yaml"), 0o644, sheltered=True),
        File(str(SETTINGS.configs_dir / "openpe_red.yaml"), 0o640),
        File(str(SETTINGS.state_dir), 0o750, directory=True),
        File(str(SETTINGS.state_dir / "last-good.json"), 0o600),
        File(str(SETTINGS.configs_dir / "secrets" / "fabric"), 0o600),
        File(str(SETTINGS.run_dir), 0o750, directory=True),
        File("/etc/frr/perouter", 0o2750, "root", "frr", directory=True),
        File("/etc/frr/perouter/daemons", 0o640, "root", "frr"),
    ),
    clock=Clock(1_790_000_000.0, synchronised=True),
    disks=(Disk("/var/lib", 10**9, 10**6),),
    configuration=ConfigurationFiles(3, (), DESIRED),
    credentials=Credentials(
        KUBECONFIG,
        exists=True,
        server="https://192.0.2.10:6443",
        expires_at=1_790_003_600.0,
        private=(File(KUBECONFIG, 0o600), File(TOKEN, 0o644)),
        directories=(
            File("/var/lib", 0o755, directory=True),
            File("/var/lib/hostbridge", 0o750, directory=True),
        ),
    ),
    daemon=DaemonState(42, "", STATUS),
    cni=Plugins(SETTINGS.cni_plugin_dir, frozenset({"macvlan", "static"})),
)


def but(part: str, **changes: Any) -> HostState:
    """Return the healthy machine with one part changed."""
    return replace(HEALTHY, **{part: replace(getattr(HEALTHY, part), **changes)})


def unit_but(name: str, **changes: Any) -> HostState:
    """Return the healthy machine with one unit changed."""
    return replace(HEALTHY, units={**UNITS, name: replace(UNITS[name], **changes)})


def host_with(link: Link, *addresses: Address) -> HostState:
    """Return the healthy machine with its NIC, as given, in the host instead of the router."""
    host = NamespaceView({**HOST.links, link.name: link}, {link.name: addresses})
    return but("network", host=host, router=NamespaceView({"lo": Link(1, "lo")}))


def complaints(machine: HostState) -> list[Finding]:
    """Return what is not ok."""
    return [finding for finding in judge(machine) if finding.level is not Level.OK]


def the_complaint(machine: HostState) -> Finding:
    """Return the one complaint that there is."""
    found = complaints(machine)
    assert len(found) == 1, found
    return found[0]


def path(name: str) -> str:
    """Return a path below the configuration."""
    return str(Path("/etc/openperouter") / name)
