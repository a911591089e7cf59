"""The router itself: both namespaces, the NIC journal, the configuration, and the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from actors.frr.abilities import IPV6_ADVICE, has_ipv6_tunnels, vnis_over_ipv6
from actors.lib.network_namespace import NAMESPACES
from actors.netlink.planning.observed import NIC_GROUP, LinkKind, NamespaceView, NicPhase, NicRecord, host_veth
from actors.netlink.planning.plan_nics import IMMOVABLE_KINDS, interface_on
from actors.netlink.planning.sysctls import LAYER_2_MARK, ROUTER_SYSCTLS, sysctl_key
from actors.netlink.planning.wanted import MTU_FLOOR, OVERHEAD_IPV4, OVERHEAD_IPV6
from actors.netlink.state_files import StateFiles
from actors.netlink.wire.namespace import NamespaceClosed, NamespaceHandle, NamespaceMissing
from config.desired import DesiredState, HostMasterKind
from config.problems import Problem, errors
from config.settings import Settings
from config.status import Status, StatusFormatError

from ..control_client import NoAnswerError, NotRunningError, ask
from ..node_configuration import read_all
from ..paths import CONTROL_SOCKET, STATE_FILE
from .findings import Finding, error, ok, warning
from .frr import Frr, frr_unit
from .network_managers import Unit, Units

UNIT = "openperouter.service"
#: What tenants expect of an Ethernet.
TENANT_MTU = 1500
#: rp_filter's strict mode (kernel: Documentation/networking/ip-sysctl.rst).
STRICT = "1"
#: Restarts of one actor beyond which something keeps killing it.
MANY_RESTARTS = 3
SYSCTLS = Path("/proc/sys/net/ipv4/conf")
LOCKS = Path("/proc/locks")
_JOURNAL = "journalctl -u openperouter -n 100"


@dataclass(frozen=True, slots=True)
class Network:
    """The links of both namespaces. ``router`` None: ``router_problem`` says why; ``sysctls`` are the router's.

    ``rp_filter`` has the host's setting for ``all`` and for each of our devices there that has an IP stack.
    """

    host: NamespaceView = field(default_factory=NamespaceView)
    router: NamespaceView | None = None
    router_problem: str = ""
    sysctls: Mapping[str, str | None] = field(default_factory=dict)
    rp_filter: Mapping[str, str] = field(default_factory=dict)
    journal: Mapping[str, NicRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigurationFiles:
    """What the files say now, without the last good content of broken ones."""

    resources: int
    problems: tuple[Problem, ...] = ()
    desired: DesiredState | None = None
    node_known: bool = True


@dataclass(frozen=True, slots=True)
class DaemonState:
    """``holder`` is the process that holds the lock, 0 for none.

    ``status`` is its answer or, with ``silence`` saying why there is none, the state file.
    """

    holder: int = 0
    silence: str = ""
    status: Status | None = None


def read_network(settings: Settings) -> Network:
    """Read both namespaces' links and addresses; a missing router namespace is recorded with its reason."""
    host_end = NamespaceHandle("host", None)
    try:
        host = host_end.view()
    finally:
        host_end.close()
    journal = StateFiles.of(settings, read_only=True).journal()
    rp_filter = _rp_filter(host)
    try:
        router_end = NamespaceHandle("router", NAMESPACES / settings.netns)
    except NamespaceClosed:
        raise  # Whether anything is wrong with the router is not known.
    except NamespaceMissing as missing:
        return Network(host, None, str(missing), {}, rp_filter, journal)
    try:
        router = router_end.view()
        keys = [key for key, _, _ in ROUTER_SYSCTLS]
        marks = router_end.read_sysctls(sysctl_key(name, LAYER_2_MARK[0]) for name in _routed(router))
        layer_2 = {key for key, value in marks.items() if value == LAYER_2_MARK[1]}
        # Dots in a device's name would count as separators, and no device of ours has any.
        keys += [
            sysctl_key(name, "ipv4.forwarding")
            for name in _routed(router)
            if sysctl_key(name, LAYER_2_MARK[0]) not in layer_2
        ]
        sysctls = router_end.read_sysctls(keys)
    finally:
        router_end.close()
    return Network(host, router, "", sysctls, rp_filter, journal)


def _routed(view: NamespaceView) -> list[str]:
    return [
        name for name, link in sorted(view.links.items()) if (link.ours or link.group == NIC_GROUP) and "." not in name
    ]


def _rp_filter(host: NamespaceView) -> dict[str, str]:
    found = {}
    for name in ("all", *(name for name, link in sorted(host.links.items()) if link.ours)):
        try:
            if (SYSCTLS / name / "arp_ignore").read_text().strip() != LAYER_2_MARK[1] or name == "all":
                found[name] = (SYSCTLS / name / "rp_filter").read_text().strip()
        except FileNotFoundError:
            continue
    return found


def read_configuration(settings_file: Path) -> ConfigurationFiles:
    """Read the files as the daemon would, without their last good contents."""
    read = read_all(settings_file, remembered=False)
    # Without an index of its own the node gets 0 here, and the problem says so.
    unknown = any(problem.origin.path == str(read.settings.node_config_file) for problem in read.problems)
    return ConfigurationFiles(len(read.resources), read.problems, read.desired, node_known=not unknown)


def read_daemon(settings: Settings) -> DaemonState:
    """Find the lock's holder without trying to take it, and query the daemon; without an answer read the state file."""
    holder = lock_holder(settings.run_dir / "lock")
    try:
        answer = next(ask(settings.run_dir / CONTROL_SOCKET, {"verb": "status"}), None)
        if isinstance(answer, dict) and "status" in answer:
            return DaemonState(holder, "", Status.from_data(answer["status"]))
        silence = "it closed the connection"
    except (NotRunningError, NoAnswerError, StatusFormatError) as error:
        silence = str(error)
    return DaemonState(holder, silence, _state_file(settings.run_dir / STATE_FILE))


def lock_holder(path: Path) -> int:
    """Return the process that holds a flock on a file, 0 when none does (proc_locks(5))."""
    try:
        inode = str(path.stat().st_ino)
    except FileNotFoundError:
        return 0
    for line in LOCKS.read_text().splitlines():
        words = line.split()
        found = len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode
        # Inode numbers repeat between file systems, and the device's number is not the same everywhere.
        if found and words[4].isdigit() and _has_open(int(words[4]), path):
            return int(words[4])
    return 0


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(_same(descriptor, path) for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False


def _same(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.samefile(path)
    except OSError:
        # Closed meanwhile, or something without a file behind it.
        return False


def _state_file(path: Path) -> Status | None:
    try:
        return Status.from_json(path.read_bytes())
    except (FileNotFoundError, StatusFormatError):
        return None


def netns(settings: Settings, network: Network) -> Iterator[Finding]:
    """Is the router's network namespace there and usable?"""
    if network.router is None:
        # FRR keeps one that was deleted alive, nameless, with the NIC in it. Its unit makes a new one when it starts.
        fix = f"systemctl restart {frr_unit(settings)}; a virtual NIC (VLAN, macvlan) must be created again on the host"
        yield error("netns", network.router_problem, fix)
    else:
        yield ok("netns", f"{settings.netns} exists")


def validity(settings: Settings, configuration: ConfigurationFiles) -> Iterator[Finding]:
    """Is the configuration valid?"""
    found = configuration
    wrong = errors(found.problems)
    for problem in found.problems:
        level = error if problem in wrong else warning
        yield level(
            "configuration",
            str(problem),
            "correct it, check with 'openperouter validate'; the daemon reads the change at once",
        )
    if not found.resources and not wrong:
        yield ok("configuration", f"{settings.configs_dir} has no resources: the router has nothing to do")
    elif not wrong:
        yield ok("configuration", f"valid: {found.resources} resource{'s' * (found.resources != 1)}")


def node_index(settings: Settings, configuration: ConfigurationFiles) -> Iterator[Finding]:
    """Is the node's index known, from which all its addresses follow?"""
    if configuration.node_known or not configuration.resources:
        return
    path = settings.node_config_file
    yield error("node", "the node's index is unknown", f"write nodeIndex into {path} (openperouter-files(5))")


def underlay_nics(
    configuration: ConfigurationFiles, network: Network, daemon: DaemonState | None = None
) -> Iterator[Finding]:
    """Are the NICs of the underlay in the router, or fit to be moved there?"""
    desired = configuration.desired
    if desired is None or desired.underlay is None:
        return
    for name in desired.underlay.nics:
        yield from _nic(name, network, running=is_running(daemon))


def _nic(name: str, network: Network, *, running: bool) -> Iterator[Finding]:
    if network.router is not None and name in network.router.links:
        if network.router.links[name].up:
            yield ok("underlay", f"{name} is in the router")
        else:
            yield error("underlay", f"{name} is in the router and down", "systemctl restart openperouter")
        return
    link = network.host.links.get(name)
    if link is None:
        yield error(
            "underlay",
            f"{name} is neither in the host nor in the router",
            "correct interfaceName in the underlay; 'ip -br link' lists the devices",
        )
    elif link.kind in IMMOVABLE_KINDS:
        yield error("underlay", f"{name} is a {link.kind}, which the kernel never moves", interface_on(name))
    elif link.master:
        fix = f"release it: ip link set {name} nomaster; or {interface_on(link.master)}"
        yield error("underlay", f"{name} belongs to {link.master}", fix)
    elif link.ours or name == "lo":
        yield error("underlay", f"{name} is a device of the router itself", "name a NIC in the underlay")
    elif not _addressed(network.host, name):
        yield warning(
            "underlay",
            f"{name} is in the host and has no address, which numbered neighbours need",
            f"configure it where the host configures its network, or: ip address add ADDRESS/LENGTH dev {name}",
        )
    elif running:
        yield error("underlay", f"{name} is still in the host although the daemon runs", "openperouter status says why")
    else:
        yield ok("underlay", f"{name} is in the host and can be moved")


def _addressed(view: NamespaceView, name: str) -> bool:
    return any(not interface.ip.is_link_local for interface in view.interfaces(name))


def ipv6_tunnels(configuration: ConfigurationFiles, frr: Frr) -> Iterator[Finding]:
    """Can this FRR use the tunnel endpoints?"""
    vnis = () if configuration.desired is None else vnis_over_ipv6(configuration.desired)
    if vnis and not has_ipv6_tunnels(frr.version):
        names = ", ".join(str(vni.resource) for vni in vnis)
        yield error("frr-version", f"FRR {frr.version} cannot use the IPv6 tunnel endpoints of {names}", IPV6_ADVICE)


def underlay_mtu(configuration: ConfigurationFiles, network: Network) -> Iterator[Finding]:
    """Do tenants' packets fit through the fabric?"""
    desired = configuration.desired
    if desired is None or desired.underlay is None or not (desired.l2vnis or desired.l3vnis):
        return
    vteps = [vni.vtep for vni in desired.l2vnis] + [vni.vtep for vni in desired.l3vnis]
    overhead = OVERHEAD_IPV6 if any(vtep.version == 6 for vtep in vteps) else OVERHEAD_IPV4
    for name in desired.underlay.interfaces:
        views = [view for view in (network.router, network.host) if view is not None and name in view.links]
        if not views:
            continue
        size = views[0].links[name].mtu
        if size - overhead >= TENANT_MTU:
            yield ok("mtu", f"{name} has {size} bytes: tenants have {size - overhead}")
            continue
        wanted = TENANT_MTU + overhead
        fix = f"give {name} and the fabric an MTU of at least {wanted} where the host configures it"
        if size - overhead <= MTU_FLOOR:
            yield error("mtu", f"{name} has {size} bytes: too small for IPv6 in a tunnel", fix)
        else:
            short = f"tenants have {size - overhead}, too small for their usual packets of {TENANT_MTU}"
            yield warning("mtu", f"{name} has {size} bytes: {short}", fix)


def host_bridges(configuration: ConfigurationFiles, network: Network) -> Iterator[Finding]:
    """Are the host's own bridges there, and no larger than their uplink?"""
    desired = configuration.desired
    if desired is None:
        return
    for vni in desired.l2vnis:
        if vni.host_master is not HostMasterKind.EXTERNAL_BRIDGE or not vni.bridge:
            continue
        bridge = network.host.links.get(vni.bridge)
        veth = network.host.links.get(host_veth(vni.vni))
        if bridge is None or bridge.kind != LinkKind.BRIDGE:
            fix = f"ip link add {vni.bridge} type bridge; ip link set {vni.bridge} up, and permanently"
            yield error("bridges", f"{vni.resource}: host bridge {vni.bridge} does not exist", fix)
        elif veth is not None and bridge.mtu > veth.mtu:
            fix = f"ip link set {vni.bridge} mtu {veth.mtu}, and the same on what is attached to it"
            message = f"{vni.bridge} has MTU {bridge.mtu}, its uplink {veth.name} {veth.mtu}: larger packets are lost"
            yield warning("bridges", message, fix)


def sysctls(
    settings: Settings, configuration: ConfigurationFiles, network: Network, daemon: DaemonState | None = None
) -> Iterator[Finding]:
    """Was something turned off that routing needs?"""
    desired = configuration.desired
    if network.router is None or desired is None or desired.underlay is None:
        return
    complaints = list(_router_sysctls(settings, network)) if is_running(daemon) else []
    default = network.rp_filter.get("all", "0")
    for name, value in sorted(network.rp_filter.items()):
        # The kernel takes the larger of the two.
        if name != "all" and max(value, default) == STRICT:
            key = f"net.ipv4.conf.{name}.rp_filter"
            message = f"{key} is strict: replies that arrive on another interface are dropped"
            complaints.append(warning("sysctls", message, f"sysctl -w {key}=2, permanently in /etc/sysctl.d"))
    yield from complaints
    if not complaints:
        yield ok("sysctls", "forwarding is enabled")


def _router_sysctls(settings: Settings, network: Network) -> Iterator[Finding]:
    optional = {key for key, _, may_lack in ROUTER_SYSCTLS if may_lack}
    required = {key: value for key, value, _ in ROUTER_SYSCTLS}
    for key, value in sorted(network.sysctls.items()):
        wanted = required.get(key, "1")
        if value == wanted or (value is None and key in optional):
            continue
        shown = "missing" if value is None else value
        fix = f"ip netns exec {settings.netns} sysctl -w {key}={wanted}; find what sets it (grep -r in /etc/sysctl.d)"
        yield error("sysctls", f"{key} is {shown} in the router, must be {wanted}", fix)


def interrupted_moves(network: Network, daemon: DaemonState | None = None) -> Iterator[Finding]:
    """Was a NIC's move interrupted?"""
    for name, record in sorted(network.journal.items()):
        if record.phase is not NicPhase.INSIDE and not is_running(daemon):
            yield warning(
                "NICs",
                f"the move of {name} was interrupted ({record.phase}); its settings are recorded",
                "systemctl start openperouter completes it, 'openperouter teardown' returns the NIC",
            )


def daemon_runs(daemon: DaemonState | None = None, units: Units | None = None) -> Iterator[Finding]:
    """Does the daemon run, answer, and have everything in force?"""
    found, unit = daemon, units.get(UNIT, Unit(UNIT)) if units is not None else None
    if unit is not None and unit.load == "loaded" and unit.enabled == "disabled":
        yield warning("daemon", f"{UNIT} does not start at boot", "systemctl enable openperouter")
    if unit is not None and unit.load == "loaded" and (unit.active in ("failed", "inactive") or unit.exit_status == 78):
        yield _stopped(unit)
    elif found is not None and not found.holder:
        yield error("daemon", "the daemon does not run", f"systemctl start openperouter; {_JOURNAL}")
    if found is not None and found.holder:
        yield from _alive(found)


def _stopped(unit: Unit) -> Finding:
    if unit.exit_status == 78:
        fix = "openperouter validate; correct what it names; systemd keeps starting the daemon"
        return error("daemon", f"{UNIT} ends at each start: its configuration cannot be used (exit code 78)", fix)
    if unit.active == "failed":
        fix = f"{_JOURNAL}; systemctl restart openperouter"
        return error("daemon", f"{UNIT} has failed ({unit.result}, exit code {unit.exit_status})", fix)
    return error("daemon", f"{UNIT} is stopped: drift is not repaired", "systemctl start openperouter")


def _alive(found: DaemonState) -> Iterator[Finding]:
    status = found.status
    if found.silence or status is None:
        fix = f"{_JOURNAL}; systemctl restart openperouter loses no packet"
        yield error("daemon", f"process {found.holder} runs but does not answer: {found.silence or 'no status'}", fix)
        return
    if status.phase == "degraded" or not status.ready:
        yield error("daemon", status.summary or f"the router is {status.phase}", "openperouter status names each cause")
    else:
        yield ok("daemon", status.summary)
    for actor in status.actors:
        if actor.restarts >= MANY_RESTARTS or actor.state not in ("running", "starting"):
            message = f"actor {actor.name} is {actor.state} after {actor.restarts} restarts: {actor.last_error}"
            yield warning("daemon", message, f"{_JOURNAL} ACTOR={actor.name}")


def is_running(daemon: DaemonState | None) -> bool:
    """Whether a daemon has had the time to do what the configuration says."""
    status = daemon.status if daemon is not None and daemon.holder else None
    return status is not None and status.phase != "starting"


CHECKS = (
    netns,
    validity,
    node_index,
    underlay_nics,
    ipv6_tunnels,
    underlay_mtu,
    host_bridges,
    sysctls,
    interrupted_moves,
    daemon_runs,
)
