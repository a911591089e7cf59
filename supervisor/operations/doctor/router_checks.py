"""Is the router configured, has it what its configuration names, and does its daemon do its work?"""

from __future__ import annotations

from collections.abc import Iterator

from actors.netlink.planning.observed import LinkKind, NamespaceView, NicPhase, host_veth
from actors.netlink.planning.wanted import MTU_FLOOR, OVERHEAD_IPV4, OVERHEAD_IPV6, ROUTER_SYSCTLS
from config.desired import DesiredState, HostMasterKind
from config.problems import errors

from .facts import DaemonFacts, Facts, NetworkFacts, UnitFact
from .findings import Finding, error, ok, warning

UNIT = "openperouter.service"
#: What tenants expect of an Ethernet.
TENANT_MTU = 1500
#: rp_filter's strict mode (kernel: Documentation/networking/ip-sysctl.rst).
STRICT = "1"
#: Lives of one actor beyond which something keeps killing it.
MANY_RESTARTS = 3
_JOURNAL = "journalctl -u openperouter -n 100"


def netns(facts: Facts) -> Iterator[Finding]:
    """Is the router's network namespace there and usable?"""
    if facts.network is None:
        return
    if facts.network.router is None:
        # FRR keeps one that was deleted alive, nameless, with the NIC in it. Its unit makes a new one when it starts.
        cure = f"systemctl restart {facts.frr_unit}; a virtual NIC (VLAN, bond) has to be made again on the host"
        yield error("netns", facts.network.router_problem, cure)
    else:
        yield ok("netns", f"{facts.settings.netns} is there")


def configuration(facts: Facts) -> Iterator[Finding]:
    """Is what the user wrote right?"""
    found = facts.configuration
    if found is None:
        return
    wrong = errors(found.problems)
    for problem in found.problems:
        level = error if problem in wrong else warning
        yield level("configuration", str(problem), "mend it, check with 'openperouter validate'; it counts at once")
    if not found.resources and not wrong:
        yield ok("configuration", f"{facts.settings.configs_dir} has no resources: the router has nothing to do")
    elif not wrong:
        yield ok("configuration", f"{found.resources} resources are valid")


def node(facts: Facts) -> Iterator[Finding]:
    """Does the node know its index, from which all its addresses follow?"""
    found = facts.configuration
    if found is None or found.node_known or not found.resources:
        return
    path = facts.settings.node_config_file
    yield error("node", "the node's index is not known", f"write nodeIndex into {path} (openperouter-files(5))")


def underlay(facts: Facts) -> Iterator[Finding]:
    """Are the NICs of the underlay where they should be, or fit to be taken?"""
    desired = _desired(facts)
    if desired is None or desired.underlay is None or facts.network is None:
        return
    for name in desired.underlay.interfaces:
        yield from _nic(name, facts.network, running=_running(facts))


def _nic(name: str, network: NetworkFacts, *, running: bool) -> Iterator[Finding]:
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
            "correct interfaceName in the underlay; 'ip -br link' lists what there is",
        )
    elif link.master:
        yield error(
            "underlay",
            f"{name} belongs to {link.master}",
            f"give the router {link.master} itself, or release it: ip link set {name} nomaster",
        )
    elif link.ours or name == "lo":
        yield error("underlay", f"{name} is a device of the router itself", "name a NIC in the underlay")
    elif not _addressed(network.host, name):
        yield warning(
            "underlay",
            f"{name} is in the host and has no address, which numbered neighbours need",
            f"configure it where the host configures its network, or: ip address add ADDRESS/LENGTH dev {name}",
        )
    elif running:
        yield error("underlay", f"{name} is still in the host though the daemon runs", "openperouter status says why")
    else:
        yield ok("underlay", f"{name} is in the host and can be taken")


def _addressed(view: NamespaceView, name: str) -> bool:
    return any(not interface.ip.is_link_local for interface in view.interfaces(name))


def mtu(facts: Facts) -> Iterator[Finding]:
    """Do tenants' packets fit through the fabric?"""
    desired = _desired(facts)
    if desired is None or desired.underlay is None or facts.network is None or not (desired.l2vnis or desired.l3vnis):
        return
    vteps = [vni.vtep for vni in desired.l2vnis] + [vni.vtep for vni in desired.l3vnis]
    overhead = OVERHEAD_IPV6 if any(vtep.version == 6 for vtep in vteps) else OVERHEAD_IPV4
    for name in desired.underlay.interfaces:
        views = [view for view in (facts.network.router, facts.network.host) if view is not None and name in view.links]
        if not views:
            continue
        size = views[0].links[name].mtu
        if size - overhead >= TENANT_MTU:
            yield ok("mtu", f"{name} has {size} bytes: tenants have {size - overhead}")
            continue
        wanted = TENANT_MTU + overhead
        cure = f"give {name} and the fabric an MTU of at least {wanted} where the host configures it"
        if size - overhead <= MTU_FLOOR:
            yield error("mtu", f"{name} has {size} bytes: too few for IPv6 in a tunnel", cure)
        else:
            told = f"tenants have {size - overhead}, and their usual packets of {TENANT_MTU} do not fit"
            yield warning("mtu", f"{name} has {size} bytes: {told}", cure)


def bridges(facts: Facts) -> Iterator[Finding]:
    """Are the host's own bridges there, and no larger than the way out of them?"""
    desired = _desired(facts)
    if desired is None or facts.network is None:
        return
    for vni in desired.l2vnis:
        if vni.host_master is not HostMasterKind.EXTERNAL_BRIDGE or not vni.bridge:
            continue
        bridge = facts.network.host.links.get(vni.bridge)
        veth = facts.network.host.links.get(host_veth(vni.vni))
        if bridge is None or bridge.kind != LinkKind.BRIDGE:
            cure = f"ip link add {vni.bridge} type bridge; ip link set {vni.bridge} up, and permanently"
            yield error("bridges", f"{vni.resource}: host bridge {vni.bridge} is not there", cure)
        elif veth is not None and bridge.mtu > veth.mtu:
            cure = f"ip link set {vni.bridge} mtu {veth.mtu}, and the same on what is attached to it"
            message = f"{vni.bridge} has MTU {bridge.mtu}, its way out {veth.name} {veth.mtu}: larger packets are lost"
            yield warning("bridges", message, cure)


def sysctls(facts: Facts) -> Iterator[Finding]:
    """Has somebody turned off what routing needs?"""
    desired, network = _desired(facts), facts.network
    if network is None or network.router is None or desired is None or desired.underlay is None:
        return
    complaints = list(_router_sysctls(facts, network)) if _running(facts) else []
    default = network.rp_filter.get("all", "0")
    for name, value in sorted(network.rp_filter.items()):
        # The kernel takes the larger of the two.
        if name != "all" and max(value, default) == STRICT:
            key = f"net.ipv4.conf.{name}.rp_filter"
            message = f"{key} is strict: answers that come back another way than requests went are dropped"
            complaints.append(warning("sysctls", message, f"sysctl -w {key}=2, permanently in /etc/sysctl.d"))
    yield from complaints
    if not complaints:
        yield ok("sysctls", "nothing keeps packets from being forwarded")


def _router_sysctls(facts: Facts, network: NetworkFacts) -> Iterator[Finding]:
    optional = {key for key, _, may_lack in ROUTER_SYSCTLS if may_lack}
    for key, value in sorted(network.sysctls.items()):
        if value == "1" or (value is None and key in optional):
            continue
        shown = "missing" if value is None else value
        cure = f"ip netns exec {facts.settings.netns} sysctl -w {key}=1; find out who set it (grep -r in /etc/sysctl.d)"
        yield error("sysctls", f"{key} is {shown} in the router, must be 1", cure)


def nics(facts: Facts) -> Iterator[Finding]:
    """Was a NIC's way in or out interrupted?"""
    if facts.network is None:
        return
    for name, record in sorted(facts.network.journal.items()):
        if record.phase is not NicPhase.INSIDE and not _running(facts):
            yield warning(
                "NICs",
                f"the move of {name} was interrupted ({record.phase}); what it had is on record",
                "systemctl start openperouter goes on, 'openperouter teardown' gives the NIC back",
            )


def daemon(facts: Facts) -> Iterator[Finding]:
    """Does the daemon run, answer, and have everything in force?"""
    found, unit = facts.daemon, facts.unit(UNIT)
    if unit is not None and unit.load == "loaded" and unit.enabled == "disabled":
        yield warning("daemon", f"{UNIT} does not start at boot", "systemctl enable openperouter")
    if unit is not None and unit.load == "loaded" and unit.active in ("failed", "inactive"):
        yield _stopped(unit)
    elif found is not None and not found.holder:
        yield error("daemon", "the daemon does not run", f"systemctl start openperouter; {_JOURNAL}")
    if found is not None and found.holder:
        yield from _alive(found)


def _stopped(unit: UnitFact) -> Finding:
    if unit.exit_status == 78:
        cure = "openperouter validate; mend what it names; systemctl start openperouter"
        return error("daemon", f"{UNIT} has given up: its configuration cannot be used (exit code 78)", cure)
    if unit.active == "failed":
        cure = f"{_JOURNAL}; systemctl restart openperouter"
        return error("daemon", f"{UNIT} has failed ({unit.result}, exit code {unit.exit_status})", cure)
    return error("daemon", f"{UNIT} is stopped: nothing is kept as configured", "systemctl start openperouter")


def _alive(found: DaemonFacts) -> Iterator[Finding]:
    status = found.status
    if found.silent or status is None:
        cure = f"{_JOURNAL}; systemctl restart openperouter costs no packet"
        yield error("daemon", f"process {found.holder} runs but cannot be asked: {found.silent or 'no status'}", cure)
        return
    if status.phase == "degraded" or not status.ready:
        yield error("daemon", status.summary or f"the router is {status.phase}", "openperouter status names each cause")
    else:
        yield ok("daemon", status.summary)
    for actor in status.actors:
        if actor.restarts >= MANY_RESTARTS or actor.state not in ("running", "starting"):
            message = f"actor {actor.name} is {actor.state} after {actor.restarts} restarts: {actor.last_error}"
            yield warning("daemon", message, f"{_JOURNAL} ACTOR={actor.name}")


def _desired(facts: Facts) -> DesiredState | None:
    return facts.configuration.desired if facts.configuration is not None else None


def _running(facts: Facts) -> bool:
    """Say whether a daemon has had the time to do what the configuration says."""
    status = facts.daemon.status if facts.daemon is not None and facts.daemon.holder else None
    return status is not None and status.phase != "starting"


CHECKS = (netns, configuration, node, underlay, mtu, bridges, sysctls, nics, daemon)
