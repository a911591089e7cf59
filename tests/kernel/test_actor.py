"""The actor on a real kernel: outcomes, drift, a deleted namespace, and what the command line shows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.lib.metrics import counters as metrics
from actors.lib.network_namespace import NAMESPACES
from actors.netlink import actor
from actors.netlink.preview import interface_addresses, observe_kernel, observe_text, preview, would_remove
from actors.netlink.wire.namespace import NamespaceHandle, namespace_events
from config.api import ApiAccess, ApiCredentials, ApiReach
from config.desired import DesiredState
from config.outcomes import FrrOutcome, KernelOutcome
from config.settings import Settings
from supervisor.process.change_events import LONGEST_SECONDS
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest, LatestReader
from tests.actors.netlink.builders import demo, passthrough, state, underlay, without_underlay
from tests.kernel.node import Node, ip

#: A busy machine may take long.
SECONDS = 180


@dataclass
class Running:
    frr: Latest[FrrOutcome]
    outcomes: LatestReader[KernelOutcome]
    cell: Latest[KernelOutcome]
    ctx: ActorContext

    def applied_in_frr(self, desired: DesiredState) -> None:
        self.frr.set(FrrOutcome(desired, applied=True))

    async def outcome(self) -> KernelOutcome:
        with trio.fail_after(SECONDS):
            return await self.outcomes.receive()


def settings_of(node: Node, **changes: Path) -> Settings:
    return Settings(state_dir=Path(node.state).absolute(), netns=Node.NETNS).model_copy(update=changes)


@asynccontextmanager
async def running(node: Node, **changes: Path) -> AsyncIterator[Running]:
    frr: Latest[FrrOutcome] = Latest("frr")
    cell: Latest[KernelOutcome] = Latest("kernel")
    ctx = ActorContext("netlink")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run, ctx, settings_of(node, **changes), frr, cell)
        yield Running(frr, cell.reader(), cell, ctx)
        nursery.cancel_scope.cancel()


async def _run(ctx: ActorContext, settings: Settings, frr: Latest[FrrOutcome], cell: Latest[KernelOutcome]) -> None:
    await actor.run(ctx, settings=settings, frr=frr.reader(), changing=trio.Lock(), out=cell)


async def until(condition: object, what: str) -> None:
    """Poll for a state of the kernel that no event reports."""
    assert callable(condition)
    with trio.move_on_after(SECONDS):
        while not condition():  # noqa: ASYNC110 - the kernel has no event for it
            await trio.sleep(0.05)
        return
    raise AssertionError(f"not in {SECONDS} s: {what}")


async def test_no_session_takes_the_address_of_the_api_server(node: Node) -> None:
    frr, cell, access = Latest[FrrOutcome]("frr"), Latest[KernelOutcome]("kernel"), Latest[ApiAccess]("access")
    access.set(ApiAccess(ApiReach.REACHABLE, ApiCredentials("https://192.168.40.200:6443")))
    options: dict[str, Any] = {"frr": frr.reader(), "changing": trio.Lock(), "out": cell, "access": access.reader()}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(actor.run, ActorContext("netlink"), settings=settings_of(node), **options))
        frr.set(FrrOutcome(state(passthrough=passthrough()), applied=True))
        with trio.fail_after(SECONDS):
            outcome = await cell.reader().receive()
        nursery.cancel_scope.cancel()
    [failure] = outcome.failures
    assert "host session 192.168.40.0/24 overlaps the API server 192.168.40.200" in failure.message
    assert "pt-host" not in node.names(router=False)


async def test_a_state_that_frr_applied_is_applied_and_reported(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(demo())
        outcome = await run.outcome()
        assert outcome.applied
        assert outcome.changed
        assert outcome.writes > 20
        assert (outcome.failures, outcome.underlay_mtu) == ((), 1500)
        assert "vni100" in node.names()


async def test_a_state_that_frr_has_not_applied_is_not_applied(node: Node) -> None:
    async with running(node) as run:
        run.frr.set(FrrOutcome(demo(), applied=False, error="vtysh hangs"))
        outcome = await run.outcome()
        assert not outcome.applied
        assert "vtysh hangs" in outcome.error
        assert "vni100" not in node.names()
        run.applied_in_frr(demo())
        assert (await run.outcome()).applied


async def test_the_same_state_again_writes_nothing_and_is_reported(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(demo(1))
        await run.outcome()
        run.applied_in_frr(demo(2))
        outcome = await run.outcome()
        assert (outcome.desired.generation, outcome.writes, outcome.changed) == (2, 0, False)


async def test_drift_in_either_namespace_is_noticed_and_repaired(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(demo())
        await run.outcome()
        drift, created = metrics.DRIFT_REPAIRS.values(), metrics.NETLINK_OPS.values()["create_link", "ok"]
        node.router("link", "del", "vni100")
        assert (await run.outcome()).writes > 0
        assert metrics.DRIFT_REPAIRS.values()["kernel",] == drift.get(("kernel",), 0) + 1
        assert metrics.NETLINK_OPS.values()["create_link", "ok"] > created
        assert node.link("vni100")["master"] == "br-pe-100"
        ip("link", "set", "host-e-110", "nomaster")
        assert (await run.outcome()).writes > 0
        assert node.link("host-e-110", router=False)["master"] == "br-hs-110"


async def test_a_nic_that_appears_later_is_taken(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(replace(demo(), underlay=underlay("toswitch9")))
        outcome = await run.outcome()
        assert [str(failure.resource) for failure in outcome.failures] == ["Underlay underlay"]
        assert not outcome.applied
        assert "toswitch9" in outcome.error
        node.add_nic("toswitch9", "leaf9")
        outcome = await run.outcome()
        assert outcome.applied
        assert outcome.failures == ()
        assert "toswitch9" in node.names()


async def test_a_node_with_one_of_two_nics_works_and_takes_the_other_when_it_appears(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(replace(demo(), underlay=underlay(Node.NIC, "toswitch9")))
        outcome = await run.outcome()
        assert (outcome.applied, outcome.error) == (True, "")
        assert ["toswitch9" in failure.message for failure in outcome.failures] == [True]
        assert "vni100" in node.names()
        node.add_nic("toswitch9", "leaf9")
        while outcome.failures:
            outcome = await run.outcome()
        assert {Node.NIC, "toswitch9"} <= set(node.names())


async def test_a_deleted_namespace_is_reported_and_a_new_one_is_configured(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(state())
        assert (await run.outcome()).applied
        ip("netns", "del", Node.NETNS)
        lost = await run.outcome()
        assert not lost.applied
        assert f"netns {Node.NETNS} missing" in lost.error
        node.add_netns()
        # A veth dies with its namespace, where hardware would have come back to the host.
        node.add_nic("toswitch1", "leaf-again")
        outcome = await run.outcome()
        while outcome.failures:
            outcome = await run.outcome()
        assert outcome.applied
        assert "toswitch1" in node.names()


async def test_a_deleted_namespace_is_an_event(node: Node) -> None:
    with namespace_events() as events:
        handle = NamespaceHandle("router", NAMESPACES / Node.NETNS)
        try:
            assert events.complete
            ip("netns", "del", Node.NETNS)
            with trio.fail_after(LONGEST_SECONDS / 2):
                while handle.is_current():
                    await events.wait(0.1)
        finally:
            handle.close()


async def test_events_do_not_keep_a_deleted_namespace(node: Node) -> None:
    """Nor does the one that silent hosts have, which without segments is not waited for."""
    ip("link", "add", "outside", "type", "veth", "peer", "name", "inside", "netns", Node.NETNS)
    with namespace_events() as events:
        assert events.complete
        ip("netns", "del", Node.NETNS)
        await until(lambda: "outside" not in node.names(router=False), "the namespace is gone")


async def test_a_deleted_namespace_is_released(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(state())
        await run.outcome()
        assert "leaf" in node.names(router=False)
        ip("netns", "del", Node.NETNS)
        await run.outcome()
        # The kernel destroys the namespace, and the veth in it with its other end, once no process holds it.
        await until(lambda: "leaf" not in node.names(router=False), "the namespace is gone")


async def test_the_next_incarnation_finds_everything_done(node: Node) -> None:
    async with running(node) as run:
        run.applied_in_frr(demo())
        await run.outcome()
    async with running(node) as run:
        run.applied_in_frr(demo())
        assert (await run.outcome()).writes == 0


async def test_a_preview_writes_nothing(node: Node) -> None:
    plan = await preview(demo(), settings_of(node))
    assert "router: create vrf red table 10000100" in plan.text
    assert "red" not in node.names()
    assert not node.state.exists()


async def test_what_would_take_something_from_a_running_router_is_recognised(node: Node) -> None:
    settings, nothing = settings_of(node), without_underlay(demo())
    assert not await would_remove(nothing, settings)
    node.converge(demo())
    assert not await would_remove(demo(), settings)
    assert await would_remove(state(), settings)
    node.converge(state())
    assert not await would_remove(demo(), settings)
    # Only the NIC is inside.
    assert await would_remove(nothing, settings)
    assert not await would_remove(nothing, settings.model_copy(update={"netns": "openperouter-not-there"}))


async def test_show_kernel_reads_both_namespaces_and_the_state_files(node: Node) -> None:
    node.converge(demo())
    found = await observe_kernel(settings_of(node))
    names = {link["name"] for link in found["router"]}
    assert {"red", "vni100", "br-pe-110", "toswitch1"} <= names
    assert found["tables"] == {"red": 10_000_100}
    assert found["journal"] == {"toswitch1": "inside"}
    assert "vni100 vxlan up" in await observe_text(settings_of(node))


@pytest.mark.parametrize("inside", [False, True])
def test_an_interfaces_addresses_are_found_wherever_it_is(node: Node, inside: bool) -> None:
    ip("addr", "add", "192.168.11.3/24", "dev", "toswitch1")
    if inside:
        node.converge(state())
    assert "192.168.11.3/24" in {str(address) for address in interface_addresses("toswitch1", Node.NETNS)}
    assert interface_addresses("nowhere", Node.NETNS) == ()
