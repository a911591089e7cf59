"""Every complaint of the doctor, each from a machine with exactly that fault; none about a healthy one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.lib.frr.processes import DAEMONS
from actors.netlink.planning.observed import Link, NamespaceView, NicPhase, NicRecord
from config.desired import CniAttachment
from config.problems import Origin, Problem, Severity
from config.status import ActorStatus
from supervisor.operations.doctor import HostState, Level, judge
from supervisor.operations.doctor.cni import Plugins
from supervisor.operations.doctor.files import File
from supervisor.operations.doctor.machine import Clock, Disk
from supervisor.operations.doctor.router import ConfigurationFiles, DaemonState
from tests.actors.netlink.builders import l2vni, state, underlay
from tests.supervisor.operations.doctor.healthy_machine import (
    ADDRESS,
    DESIRED,
    HEALTHY,
    HOST,
    NIC,
    ROUTER,
    SETTINGS,
    STATUS,
    but,
    complaints,
    host_with,
    path,
    the_complaint,
    unit_but,
)

FRR = "frr@perouter.service"
DAEMON = "openperouter.service"
PROBLEM = Problem("vni is missing", Origin("openpe_x.yaml", 3, 5))
RECORD = NicRecord(NIC, NicPhase.MOVING, 1500, "02::1", up=True)


def with_cni(present: str) -> HostState:
    """Return a machine whose underlay has the interface net1, made by CNI plugins; ``present`` is in the router."""
    plugin = '{"type":"macvlan","ipam":{"type":"static"}}'
    attachment = CniAttachment("net1", f'{{"cniVersion":"1.0.0","name":"fabric","plugins":[{plugin}]}}')
    desired = replace(DESIRED, underlay=replace(underlay("net1"), attachments=(attachment,)))
    links = {"lo": ROUTER.links["lo"], present: Link(2, present, "macvlan", up=True, mtu=9000)}
    return replace(but("network", router=NamespaceView(links)), configuration=ConfigurationFiles(3, (), desired))


def with_file(file: File) -> HostState:
    return replace(HEALTHY, files=(file,))


def with_nic_mtu(mtu: int, vtep: str = "100.65.0.0", frr: str = "10.6.0") -> HostState:
    nic = replace(ROUTER.links[NIC], mtu=mtu)
    desired = state(underlay=underlay(NIC), l2vnis=(l2vni(vtep=vtep),))
    return replace(
        but("network", router=NamespaceView({**ROUTER.links, NIC: nic}, ROUTER.addresses)),
        configuration=ConfigurationFiles(2, (), desired),
        frr=but("frr", version=frr).frr,
    )


def with_status(**changes: object) -> HostState:
    return replace(HEALTHY, daemon=DaemonState(42, "", replace(STATUS, **changes)))  # type: ignore[arg-type]


def with_host_link(link: Link) -> HostState:
    return but("network", host=NamespaceView({**HOST.links, link.name: link}))


def stopped(machine: HostState, **unit: object) -> HostState:
    units = unit_but(DAEMON, **{"active": "inactive", "sub": "dead", **unit}).units
    return replace(machine, units=units, daemon=DaemonState(0, "the daemon is not running"))


#: What is wrong, and the topic, level, a part of the message and a part of the fix.
FAULTS: dict[str, tuple[HostState, str, Level, str, str]] = {
    "no VRF": (
        replace(HEALTHY, device_kinds={"bridge": True, "vrf": False}),
        "kernel",
        Level.ERROR,
        "vrf",
        "modprobe vrf",
    ),
    "clock never set": (replace(HEALTHY, clock=Clock(86400.0, None)), "clock", Level.ERROR, "2024", "set-ntp"),
    "clock free running": (
        replace(HEALTHY, clock=Clock(1_790_000_000.0, synchronised=False)),
        "clock",
        Level.WARNING,
        "not synchronised",
        "set-ntp",
    ),
    "disk scarce": (replace(HEALTHY, disks=(Disk("/var", 10**7, 999),)), "disk", Level.WARNING, "/var", "df -h"),
    "disk full": (replace(HEALTHY, disks=(Disk("/var", 4096, 999),)), "disk", Level.ERROR, "/var", "df -h"),
    "no inodes": (replace(HEALTHY, disks=(Disk("/var", 10**9, 0),)), "disk", Level.ERROR, "0 inodes", "df -h"),
    "writable configuration": (
        with_file(File(path("configs/openpe_x.yaml"), 0o666, sheltered=True)),
        "files",
        Level.ERROR,
        "0666",
        "chmod go-w",
    ),
    "another user's configuration": (
        with_file(File(path("node-config.yaml"), 0o644, "joe", "joe")),
        "files",
        Level.WARNING,
        "joe",
        "chown root:",
    ),
    "open password": (
        with_file(File(path("configs/secrets/fabric"), 0o644)),
        "files",
        Level.ERROR,
        "secrets/fabric",
        "chmod 0600",
    ),
    "open configuration": (
        with_file(File(path("configs/openpe_x.yaml"), 0o644)),
        "files",
        Level.ERROR,
        "openpe_x.yaml has mode 0644",
        f"chmod 0600 {path('configs/openpe_x.yaml')}; or for all of them chmod 0750 {path('configs')}",
    ),
    "open state": (
        with_file(File(str(SETTINGS.state_dir), 0o755, directory=True)),
        "files",
        Level.ERROR,
        "0755",
        "chmod 0750",
    ),
    "open runtime directory": (
        with_file(File(str(SETTINGS.run_dir), 0o755, directory=True)),
        "files",
        Level.ERROR,
        f"{SETTINGS.run_dir} has mode 0755 and may hold passwords: any user can open it",
        f"chmod 0750 {SETTINGS.run_dir}",
    ),
    "FRR's own daemons file": (
        with_file(File("/etc/frr/perouter/daemons", 0o640, "frr", "frr")),
        "files",
        Level.ERROR,
        "/etc/frr/perouter/daemons belongs to frr, who could run commands as root when FRR starts",
        "chown root: /etc/frr/perouter/daemons",
    ),
    "FRR's own directory": (
        with_file(File("/etc/frr/perouter", 0o2750, "frr", "frr", directory=True)),
        "files",
        Level.ERROR,
        "/etc/frr/perouter belongs to frr, who could run commands as root when FRR starts",
        "chown root: /etc/frr/perouter",
    ),
    "daemons file that FRR's group writes": (
        with_file(File("/etc/frr/perouter/daemons", 0o660, "root", "frr")),
        "files",
        Level.ERROR,
        "/etc/frr/perouter/daemons has mode 0660: users other than root can change what the router does",
        "chmod go-w",
    ),
    "open leftovers of a trial": (
        with_file(File(str(SETTINGS.state_dir / "before-trial" / "1234"), 0o755, directory=True)),
        "files",
        Level.ERROR,
        "before-trial",
        "chmod 0750",
    ),
    "trial confirmed by half": (
        with_file(File(str(SETTINGS.state_dir / "trial-accepted.json"), 0o600)),
        "trial",
        Level.WARNING,
        "were not written",
        "try --confirm",
    ),
    "FRR upgraded underneath": (
        but("frr", outdated=("bgpd", "zebra")),
        "frr-running",
        Level.WARNING,
        "bgpd, zebra still run",
        "systemctl restart frr@perouter",
    ),
    "networkd not configured": (
        but("managers", networkd={"ManageForeignRoutes": "no", "ManageForeignRoutingPolicyRules": "no"}),
        "networkd",
        Level.ERROR,
        "ManageForeignNextHops",
        "ManageForeignNextHops=no",
    ),
    "networkd contradicted": (
        but("managers", networkd={**HEALTHY.managers.networkd, "ManageForeignRoutes": "yes"}),  # type: ignore[union-attr]
        "networkd",
        Level.ERROR,
        "ManageForeignRoutes",
        "restart systemd-networkd",
    ),
    "networkd configured after its start": (
        but("managers", networkd_changed=3000.0),
        "networkd",
        Level.WARNING,
        "has run since before",
        "restart systemd-networkd",
    ),
    "networkd manages us": (but("managers", unmanaged=False), "networkd", Level.WARNING, ".network", "networkctl"),
    "NetworkManager manages us": (
        but("managers", network_manager=False),
        "network-manager",
        Level.ERROR,
        "NetworkManager",
        "openperouter.conf",
    ),
    "udev changes addresses": (but("managers", link=False), "udev", Level.WARNING, ".link", "10-openperouter.link"),
    "udev changes names": (but("managers", rules=False), "udev", Level.WARNING, "udev rule", "70-openperouter.rules"),
    "FRR too old": (but("frr", version="10.2.1"), "frr-version", Level.ERROR, "10.2.1", "10.3"),
    "no vtysh": (but("frr", vtysh=False), "frr-programs", Level.ERROR, "vtysh", "apt install frr"),
    "no daemons file": (but("frr", daemons_file=None), "frr-daemons", Level.ERROR, "daemons", "confmiss"),
    "bgpd off": (
        but("frr", daemons_file={"bgpd": "no", "bfdd": "yes"}),
        "frr-daemons",
        Level.ERROR,
        "bgpd",
        "bgpd=yes",
    ),
    "PID files decide": (but("frr", guarded=False), "frr-daemons", Level.WARNING, "function kill", "package's file"),
    "bfdd unmentioned": (but("frr", daemons_file={"bgpd": "yes"}), "frr-daemons", Level.ERROR, "bfdd", "bfdd=yes"),
    "boots empty": (
        but("frr", daemons_file={"bgpd": "yes", "bfdd": "yes", "vtysh_enable": "no"}),
        "frr-daemons",
        Level.ERROR,
        "at start",
        "vtysh_enable=yes",
    ),
    "FRR's unit failed": (
        unit_but(FRR, active="failed", result="exit-code"),
        "frr-unit",
        Level.ERROR,
        "exit-code",
        f"journalctl -u {FRR}",
    ),
    "FRR's unit not there": (unit_but(FRR, load="not-found"), "frr-unit", Level.ERROR, "not-found", "apt install"),
    "no drop-in": (unit_but(FRR, drop_ins=()), "frr-unit", Level.ERROR, "drop-in", "daemon-reload"),
    "FRR silent": (but("frr", running=None, silence="it hangs"), "frr-running", Level.ERROR, "it hangs", "restart"),
    "bfdd dead": (
        but("frr", running=DAEMONS - {"bfdd"}),
        "frr-running",
        Level.WARNING,
        "without bfdd",
        "journalctl",
    ),
    "bgpd dead": (but("frr", running=DAEMONS - {"bgpd"}), "frr-running", Level.ERROR, "without bgpd", "journalctl"),
    "FRR in another namespace": (
        but("frr", inside=False),
        "frr-running",
        Level.ERROR,
        "perouter",
        f"systemctl restart {FRR}",
    ),
    "a cron job that runs vtysh": (
        but("frr", version="10.3", vtysh_users=("/etc/cron.d/routes",)),
        "frr-sessions",
        Level.WARNING,
        "/etc/cron.d/routes",
        "-d bgpd",
    ),
    "no frr.conf": (but("frr", conf=None), "frr-conf", Level.WARNING, "frr.conf", "restart openperouter"),
    "open frr.conf": (
        but("frr", conf=File("/etc/frr/perouter/frr.conf", 0o644)),
        "frr-conf",
        Level.ERROR,
        "0644",
        "chmod 0640",
    ),
    "FRR's own frr.conf": (
        but("frr", conf=File("/etc/frr/perouter/frr.conf", 0o640, "frr", "frr")),
        "frr-conf",
        Level.ERROR,
        "belongs to frr, who could run commands as root",
        "chown root:frr",
    ),
    "bad configuration": (
        replace(HEALTHY, configuration=ConfigurationFiles(3, (PROBLEM,), DESIRED)),
        "configuration",
        Level.ERROR,
        "openpe_x.yaml:3:5",
        "validate",
    ),
    "odd configuration": (
        replace(HEALTHY, configuration=ConfigurationFiles(3, (replace(PROBLEM, severity=Severity.WARNING),), DESIRED)),
        "configuration",
        Level.WARNING,
        "vni is missing",
        "validate",
    ),
    "no node index": (
        replace(HEALTHY, configuration=ConfigurationFiles(3, (), DESIRED, node_known=False)),
        "node",
        Level.ERROR,
        "index",
        "node-config.yaml",
    ),
    "NIC down": (
        but("network", router=NamespaceView({NIC: Link(2, NIC, mtu=9000)})),
        "underlay",
        Level.ERROR,
        "down",
        "restart openperouter",
    ),
    "CNI plugin missing": (
        replace(with_cni("net1"), cni=Plugins(SETTINGS.cni_plugin_dir, frozenset({"static"}))),
        "cni",
        Level.ERROR,
        "/usr/lib/cni lacks the CNI plugins macvlan",
        "containernetworking-plugins",
    ),
    "CNI interface not made": (with_cni("other"), "cni", Level.ERROR, "net1 is not in the router", "status says why"),
    "NIC nowhere": (but("network", router=NamespaceView()), "underlay", Level.ERROR, "neither", "interfaceName"),
    "NIC in a bond": (
        host_with(Link(2, NIC, master="bond0", mtu=9000), ADDRESS),
        "underlay",
        Level.ERROR,
        "bond0",
        "nomaster",
    ),
    "NIC that cannot move": (
        host_with(Link(2, NIC, kind="bond", mtu=9000), ADDRESS),
        "underlay",
        Level.ERROR,
        "is a bond",
        f"VLAN or macvlan interface on {NIC}",
    ),
    "NIC bare": (host_with(Link(2, NIC, mtu=9000)), "underlay", Level.WARNING, "no address", "ip address add"),
    "NIC not taken": (
        host_with(Link(2, NIC, mtu=9000), ADDRESS),
        "underlay",
        Level.ERROR,
        "still in the host",
        "openperouter status",
    ),
    "MTU of tenants": (with_nic_mtu(1500), "mtu", Level.WARNING, "1450", "1550"),
    "MTU of tenants over IPv6": (with_nic_mtu(1550, "2001:db8::1"), "mtu", Level.WARNING, "1480", "1570"),
    "IPv6 tunnels": (with_nic_mtu(9000, "2001:db8::1", "10.5.1"), "frr-version", Level.ERROR, "L2VNI blue", "10.6"),
    "MTU too small": (with_nic_mtu(1300), "mtu", Level.ERROR, "too small", "1550"),
    "no bridge": (
        but("network", host=NamespaceView({"lo": HOST.links["lo"]})),
        "bridges",
        Level.ERROR,
        "br0 does not exist",
        "ip link add br0",
    ),
    "no bridge by that name": (with_host_link(Link(6, "br0", "dummy")), "bridges", Level.ERROR, "br0", "type bridge"),
    "jumbo bridge": (
        with_host_link(Link(6, "br0", "bridge", mtu=9000)),
        "bridges",
        Level.WARNING,
        "9000",
        "ip link set br0 mtu 1500",
    ),
    "forwarding off": (
        but("network", sysctls={"net.ipv4.conf.all.forwarding": "0"}),
        "sysctls",
        Level.ERROR,
        "is 0",
        "ip netns exec perouter sysctl -w net.ipv4.conf.all.forwarding=1",
    ),
    "sockets outside of VRFs take what VRFs receive": (
        but("network", sysctls={"net.ipv4.udp_l3mdev_accept": "1"}),
        "sysctls",
        Level.ERROR,
        "net.ipv4.udp_l3mdev_accept is 1 in the router, must be 0",
        "sysctl -w net.ipv4.udp_l3mdev_accept=0",
    ),
    "forwarding off on one device": (
        but("network", sysctls={"net.ipv4.conf.br-pe-100.forwarding": "0"}),
        "sysctls",
        Level.ERROR,
        "br-pe-100",
        "sysctl -w",
    ),
    "strict path filter": (
        but("network", rp_filter={"all": "0", "host-e-110": "1"}),
        "sysctls",
        Level.WARNING,
        "host-e-110",
        "rp_filter=2",
    ),
    "strict path filter everywhere": (
        but("network", rp_filter={"all": "1", "host-e-110": "0"}),
        "sysctls",
        Level.WARNING,
        "host-e-110",
        "rp_filter=2",
    ),
    "not enabled": (unit_but(DAEMON, enabled="disabled"), "daemon", Level.WARNING, "at boot", "systemctl enable"),
    "stopped": (stopped(HEALTHY), "daemon", Level.ERROR, "stopped", "systemctl start"),
    "cannot use its configuration, between two starts": (
        stopped(HEALTHY, active="activating", result="exit-code", exit_status=78),
        "daemon",
        Level.ERROR,
        "78",
        "openperouter validate",
    ),
    "failed": (
        replace(unit_but(DAEMON, active="failed", result="watchdog"), daemon=DaemonState()),
        "daemon",
        Level.ERROR,
        "watchdog",
        "journalctl -u openperouter",
    ),
    "no daemon, no systemd": (
        replace(HEALTHY, units=None, daemon=DaemonState()),
        "daemon",
        Level.ERROR,
        "does not run",
        "systemctl start",
    ),
    "daemon mute": (
        replace(HEALTHY, daemon=DaemonState(42, "the daemon does not answer", STATUS)),
        "daemon",
        Level.ERROR,
        "42",
        "loses no packet",
    ),
    "degraded": (
        with_status(phase="degraded", summary="degraded: vni 100"),
        "daemon",
        Level.ERROR,
        "vni 100",
        "openperouter status",
    ),
    "not ready": (with_status(ready=False, summary="not ready"), "daemon", Level.ERROR, "not ready", "status"),
    "actor restarts": (
        with_status(actors=(ActorStatus("health", "running", 7, "boom"),)),
        "daemon",
        Level.WARNING,
        "boom",
        "ACTOR=health",
    ),
    "actor down": (
        with_status(actors=(ActorStatus("health", "backoff", 1, "boom"),)),
        "daemon",
        Level.WARNING,
        "backoff",
        "ACTOR=health",
    ),
    "unreadable": (
        replace(HEALTHY, device_kinds=None, unreadable={"device_kinds": "Permission\ndenied"}),
        "device_kinds",
        Level.WARNING,
        "Permission denied",
        "as root",
    ),
}


def test_a_healthy_machine_passes_every_check() -> None:
    assert complaints(HEALTHY) == []
    topics = {finding.topic for finding in judge(HEALTHY)}
    assert topics >= {"kernel", "clock", "disk", "files", "networkd", "network-manager", "udev"}
    assert topics >= {"frr-version", "frr-daemons", "frr-unit", "frr-running", "frr-conf"}
    assert topics >= {"netns", "configuration", "underlay", "mtu", "sysctls", "daemon"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_one_fault_is_one_complaint_with_its_fix(fault: tuple[HostState, str, Level, str, str]) -> None:
    machine, topic, level, message, fix = fault
    found = the_complaint(machine)
    assert (found.topic, found.level) == (topic, level)
    assert message in found.message
    assert fix in found.fix


def test_without_frr_its_absence_is_the_complaint_and_not_everything_that_follows() -> None:
    machine = but("frr", version="", vtysh=False, running=None, conf=None, inside=None)
    found = the_complaint(machine)
    assert (found.topic, found.fix) == ("frr-version", "apt install frr")


def test_a_later_frr_takes_any_session() -> None:
    assert complaints(but("frr", version="10.7.1", vtysh_users=("/etc/cron.d/routes",))) == []


@pytest.mark.parametrize("version", ["10.3", "10.4.4"])
def test_the_frr_that_may_leave_an_l3vni_stale_is_reported_as_ok(version: str) -> None:
    findings = judge(but("frr", version=version))
    [finding] = [one for one in findings if one.topic == "frr-version"]
    assert finding.level is Level.OK
    assert "stale" in finding.message


@pytest.mark.parametrize(("version", "may"), [("10.3", True), ("10.6.1", True), ("10.7.1", False), ("11.0", False)])
def test_the_frr_that_may_crash_upon_a_vrf_s_routes_is_named(version: str, may: bool) -> None:
    [finding] = [one for one in judge(but("frr", version=version)) if one.topic == "frr-version"]
    assert finding.level is Level.OK
    assert ("zebra may crash" in finding.message) == may


def test_a_missing_namespace_is_an_error_with_a_fix() -> None:
    machine = but("network", router=None, router_problem="netns perouter missing: No such file or directory")
    found = {finding.topic: finding for finding in complaints(machine)}
    assert found["netns"].level is Level.ERROR
    # FRR keeps the old one alive, nameless and with the NIC in it: a new one alone has neither.
    assert found["netns"].fix.startswith(f"systemctl restart {FRR};")


def test_an_interrupted_move_matters_only_while_no_daemon_completes_it() -> None:
    machine = but("network", journal={NIC: RECORD})
    assert complaints(machine) == []
    topics = {finding.topic: finding for finding in complaints(stopped(machine))}
    assert "teardown" in topics["NICs"].fix


def test_before_the_first_start_a_nic_in_the_host_is_no_complaint() -> None:
    machine = stopped(host_with(Link(2, NIC, mtu=9000), ADDRESS))
    assert {finding.topic for finding in complaints(machine)} == {"daemon"}


def test_managers_that_do_not_run_need_no_configuration() -> None:
    units = {
        name: unit for name, unit in (HEALTHY.units or {}).items() if not name.startswith(("systemd-net", "Network"))
    }
    machine = replace(but("managers", networkd={}, unmanaged=False, network_manager=False), units=units)
    assert complaints(machine) == []


def test_an_area_that_could_not_be_read_is_not_judged() -> None:
    nothing_read = HostState(SETTINGS, unreadable={"frr": "it hangs"})
    [found] = judge(nothing_read)
    assert (found.topic, found.level) == ("frr", Level.WARNING)


def test_every_finding_has_a_fix() -> None:
    for machine, *_ in FAULTS.values():
        for finding in complaints(machine):
            assert finding.fix
