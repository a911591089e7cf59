"""Changes of a configuration that carries traffic: each there and back, with the other tenants' pings running.

Untouched tenants lose no packet, and keep their devices and BGP sessions. What changes works afterwards in both
directions. No FRR daemon ends.
"""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from actors.lib.frr.frr_lock import PATIENCE_SECONDS
from actors.lib.frr.vtysh import lock_file
from config.settings import Settings
from tests.frr.harness import eventually, sh

from .node import Network, Node, Tenant, pings, running_node

pytestmark = pytest.mark.timeout(600)

RED, BLUE, GREEN = Tenant(1, "red", 100), Tenant(2, "blue", 200), Tenant(3, "green", 300)
BASE = Network((RED, BLUE, GREEN))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running_node(tmp_path_factory.mktemp("node")) as built:
        built.write(BASE)
        built.start()
        built.apply(BASE)
        yield built


def swapped(network: Network) -> Network:
    return network.with_tenant(replace(RED, vni=BLUE.vni)).with_tenant(replace(BLUE, vni=RED.vni))


#: What changes, and the tenants that it concerns.
CHANGES: dict[str, tuple[Callable[[Network], Network], set[int]]] = {
    "VNI": (lambda network: network.with_tenant(replace(RED, vni=101)), {1}),
    "two VNIs swapped": (swapped, {1, 2}),
    "VRF renamed": (lambda network: network.with_tenant(replace(RED, vrf="crimson")), {1}),
    "VRF names swapped": (
        lambda network: network.with_tenant(replace(RED, vrf="blue")).with_tenant(replace(BLUE, vrf="red")),
        {1, 2},
    ),
    "host's AS": (lambda network: network.with_tenant(replace(RED, host_as=64999)), {1}),
    "host's VRF": (lambda network: network.with_tenant(replace(RED, host_vrf=True)), {1}),
    "VXLAN port": (lambda network: network.with_tenant(replace(RED, port=8472)), {1}),
    "tenant removed": (lambda network: replace(network, tenants=(BLUE, GREEN)), {1}),
    "tenant added": (lambda network: replace(network, tenants=(*network.tenants, Tenant(4, "violet", 400))), set()),
    "router's AS": (lambda network: replace(network, asn=64600), {1, 2, 3}),
    "VTEP": (lambda network: replace(network, vteps="100.66.0.0/24"), {1, 2, 3}),
    "node index": (lambda network: replace(network, index=1), {1, 2, 3}),
    "MTU of the NIC": (lambda network: replace(network, mtu=1400), set()),
}


def changed(node: Node, network: Network, concerned: set[int]) -> int:
    """Apply a network; return the packets that the concerned tenants lost, and fail upon any other loss."""
    others = [tenant for tenant in node.network.tenants if tenant.number not in concerned and tenant in network.tenants]
    before = {tenant: node.fingerprint(tenant) for tenant in others}
    daemons = node.pids()
    with ExitStack() as stack:
        running = {tenant: stack.enter_context(pings(tenant)) for tenant in node.network.tenants}
        node.reload(network)
        # What was reported as verified is in FRR, also what had to leave it while its devices were moved.
        assert node.l3vnis() == {tenant.vrf: tenant.vni for tenant in network.tenants}
        node.follow(network)
        node.forwards()
    assert node.pids() == daemons
    assert {tenant: node.fingerprint(tenant) for tenant in others} == before
    assert {tenant.vrf: running[tenant].lost for tenant in others} == dict.fromkeys((t.vrf for t in others), 0)
    return sum(result.lost for tenant, result in running.items() if tenant not in others)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_and_its_reversal(node: Node, name: str, record_property: Callable[[str, object], None]) -> None:
    change, concerned = CHANGES[name]
    record_property("lost there", changed(node, change(BASE), concerned))
    record_property("lost back", changed(node, BASE, concerned))


def test_tunnel_endpoints_that_take_a_network_of_the_host_change_nothing(node: Node) -> None:
    """Neither at a reload nor at a restart of the daemon; and a route that comes later takes none out of force."""
    conflicts = "100.66.0.0/24 contains the host's route 100.66.0.128/25"
    devices = {tenant: node.fingerprint(tenant)["devices"] for tenant in BASE.tenants}
    sh("ip route add blackhole 100.66.0.128/25 && ip route add blackhole 100.65.0.128/25")
    try:
        with ExitStack() as stack:
            running = [stack.enter_context(pings(tenant)) for tenant in BASE.tenants]
            node.write(replace(BASE, vteps="100.66.0.0/24"))
            validated = node.command("validate")
            assert (validated.returncode, conflicts in validated.stdout) == (78, True), validated.stdout
            for _ in range(2):
                done = node.command("reload", "--timeout", "120")
                assert (done.returncode, conflicts in f"{done.stdout}{done.stderr}") == (1, True), done
                assert conflicts in node.command("status").stdout
                node.stop()
                node.start()
                # Until then the status is the one that the last daemon left.
                eventually("the daemon answers", lambda: node.command("status").returncode not in {3, 4})
        assert [result.lost for result in running] == [0] * len(running)
        assert {tenant: node.fingerprint(tenant)["devices"] for tenant in BASE.tenants} == devices
        node.write(BASE)
        assert node.command("reload", "--timeout", "120").returncode == 0
        assert "100.65.0.0/24 contains the host's route 100.65.0.128/25" in node.command("status").stdout
    finally:
        sh("ip route del blackhole 100.66.0.128/25; ip route del blackhole 100.65.0.128/25")
        node.apply(BASE)


def test_a_tenant_that_comes_back_while_the_leaf_is_busy_forwards(node: Node) -> None:
    """zebra 10.3 that receives two router MACs at once keeps the first (FRR #21448), so a node has only one."""
    zebra = node.leaf.frr
    zebra.kill("zebra", signal.SIGSTOP)
    try:
        for network, known in ((replace(BASE, tenants=(BLUE, GREEN)), False), (BASE, True)) * 2:
            node.reload(network)
            node.bird.follow(network)
            eventually("the leaf's bgpd follows", lambda known=known: announces(node, RED) is known)  # type: ignore[misc]
    finally:
        zebra.kill("zebra", signal.SIGCONT)
    node.forwards()


def announces(node: Node, tenant: Tenant) -> bool:
    """Return whether the leaf's bgpd, which alone is asked, has the route of a tenant's host."""
    shown = sh(f"vtysh -N {node.leaf.frr.name} -d bgpd -c 'show bgp l2vpn evpn route type prefix'")
    return f"[{tenant.announced.split('/')[0]}]" in shown


def test_neither_validate_nor_plan_waits_while_frr_is_being_changed(node: Node) -> None:
    """A change of FRR holds this lock as long as it takes, and the daemon's own one waits for it here."""
    changing = lock_file(Settings(run_dir=node.directory / "run"))
    with ExitStack() as held:
        for path in (changing.with_suffix(".turn"), changing):
            fcntl.flock(held.enter_context(path.open("rb")), fcntl.LOCK_EX)
        node.write(replace(BASE, tenants=(*BASE.tenants, Tenant(4, "violet", 400))))
        begin = time.monotonic()
        validated, planned = node.command("validate"), node.command("plan")
        seconds = time.monotonic() - begin
    assert validated.returncode == 0, validated.stdout
    assert "FRR is being changed at this moment" in planned.stdout, f"{planned.stdout}{planned.stderr}"
    assert "+ vrf violet / vni 400" in planned.stdout
    assert seconds < PATIENCE_SECONDS
    node.apply(BASE)
