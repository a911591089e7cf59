"""A host that only ever answers stays in the bridge's table and in the IP stack's, on bridges that forget quickly.

The tenants are those of :mod:`.test_isolation`: segments 110 and 120 have no IP stack in the router, 130 and 140 have
gateways.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from actors.netlink.refresh import actor
from config.outcomes import KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.kernel.node import Node, ip, ip_json
from tests.kernel.test_isolation import FAMILIES, wanted

#: The bridges' ageing time, of which the hosts may be silent for a part.
AGEING, SILENT = 6, 1
PATIENCE = 120
#: Each tenant's address, and one that it asks for: segments without and with an IP stack in the router, IPv4 and IPv6.
TENANTS = {
    110: ("192.168.66.9/24", "192.168.66.1"),
    120: ("2001:db8:66::9/64", "2001:db8:66::1"),
    130: ("172.27.1.9/24", "172.27.1.1"),
    140: ("2001:db8:4::9/64", "2001:db8:4::1"),
}
ROUTED = (130, 140)

pytestmark = pytest.mark.parametrize("defaults", ["kernel"], indirect=True)


def attach(node: Node, number: int, address: str, ageing: int = AGEING) -> str:
    """Give a segment a tenant that answers, and nothing else by itself; return its MAC."""
    namespace = f"tenant-{number}"
    ip("link", "add", f"t{number}", "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("-n", namespace, "link", "set", "eth0", "addrgenmode", "none", "up")
    ip("-n", namespace, "addr", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
    ip("link", "set", f"t{number}", "master", f"br-hs-{number}", "up")
    node.router("link", "set", f"br-pe-{number}", "type", "bridge", "ageing_time", str(ageing * 100))
    return str(ip_json("-n", namespace, "link", "show", "eth0")[0]["address"])


def ask_once(number: int, target: str) -> None:
    """Have the tenant send what it does not send by itself."""
    ip("netns", "exec", f"tenant-{number}", "sh", "-c", f"ping -c 1 -W 1 {target} || true")


def is_learned(node: Node, number: int, mac: str) -> bool:
    entries = ip("netns", "exec", node.NETNS, "bridge", "fdb", "show", "dev", f"pe-e-{number}")
    return any(line.startswith(mac) and "permanent" not in line for line in entries.splitlines())


def neighbor(node: Node, number: int, mac: str) -> list[dict[str, Any]]:
    found = node.router_json("neigh", "show", "dev", f"br-pe-{number}")
    return [one for one in found if one.get("lladdr") == mac and not one["dst"].startswith("fe80")]


async def eventually(what: str, check: Callable[[], bool], evidence: Callable[[], object] = str) -> None:
    with trio.move_on_after(PATIENCE):
        while not check():  # noqa: ASYNC110 - the kernel's tables have no event here
            await trio.sleep(0.2)
        return
    raise AssertionError(f"not within {PATIENCE} s: {what}; {evidence()}")


@asynccontextmanager
async def refresher(node: Node) -> AsyncIterator[ActorContext]:
    kernel: Latest[KernelOutcome] = Latest("kernel")
    kernel.set(KernelOutcome(wanted("ipv4"), applied=True))
    settings = Settings(netns=node.NETNS, silent_host_seconds=SILENT)
    context = ActorContext("refresh")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(actor.run, context, settings=settings, kernel=kernel.reader()))
        await eventually("the actor looks", lambda: "segments" in context.facts)
        yield context
        nursery.cancel_scope.cancel()


async def test_hosts_that_only_ever_answer_are_not_forgotten_until_they_leave(fabric: Node) -> None:
    node = fabric
    assert node.converge(wanted("ipv4")).clean
    macs = {number: attach(node, number, address) for number, (address, _) in TENANTS.items()}

    def known() -> set[int]:
        return {number for number, mac in macs.items() if is_learned(node, number, mac)}

    # Without questions they are forgotten.
    for number, (_, target) in TENANTS.items():
        ask_once(number, target)
    await eventually("all are forgotten", lambda: not known())
    async with refresher(node) as context:
        for number, (_, target) in TENANTS.items():
            ask_once(number, target)
        assert known() == set(TENANTS)
        until = trio.current_time() + 3 * AGEING
        while trio.current_time() < until:
            await trio.sleep(0.5)
            assert known() == set(TENANTS)
        for number in ROUTED:
            [entry] = neighbor(node, number, macs[number])
            assert entry["state"] != ["FAILED"]
        assert int(context.facts["asked"] or 0) > 0
        # One that left does not answer.
        for number in TENANTS:
            ip("-n", f"tenant-{number}", "link", "set", "eth0", "down")
        await eventually("all have aged out", lambda: not known())


async def test_the_gateway_s_question_confirms_a_neighbour(fabric: Node) -> None:
    node = fabric
    assert node.converge(wanted("ipv4")).clean
    macs = {number: attach(node, number, TENANTS[number][0], ageing=PATIENCE) for number in ROUTED}
    for number, family in zip(ROUTED, FAMILIES, strict=True):
        # A neighbour is reachable for half of it at least, which must exceed delay_first_probe_time, 5 s: the kernel
        # itself asks again for a neighbour that was used within that time.
        key = f"net.{family}.neigh.br-pe-{number}.base_reachable_time_ms=12000"
        ip("netns", "exec", node.NETNS, "sysctl", "-qw", key)
        ask_once(number, TENANTS[number][1])

    def states() -> list[list[str]]:
        return [one["state"] for number in ROUTED for one in neighbor(node, number, macs[number])]

    await eventually("both are stale", lambda: states() == [["STALE"]] * 2, states)
    reachable = set[int]()

    def confirmed() -> bool:
        reachable.update(number for number, state in zip(ROUTED, states(), strict=True) if state == ["REACHABLE"])
        return reachable == set(ROUTED)

    async with refresher(node):
        await eventually("both are reachable again", confirmed, states)


async def test_the_namespace_of_the_router_can_be_deleted_meanwhile(fabric: Node) -> None:
    node = fabric
    assert node.converge(wanted("ipv4")).clean
    async with refresher(node):
        node.crash()
        ip("netns", "del", node.NETNS)
        # The NIC's other end goes with it once no socket keeps the namespace.
        await eventually("the namespace is gone", lambda: "host-e-110" not in node.names(router=False))
