"""A change is planned from what the last pass has verified, and whatever has changed since, the outcome is the same."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, cast

import pytest

from actors.netlink import actor
from actors.netlink.converge import converge
from actors.netlink.kernel import Refusal
from actors.netlink.link_monitor import Interest
from actors.netlink.planning.observed import Link, LinkKind, Namespace, NamespaceView, Observed
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import Step
from config.desired import DesiredState, HostMasterKind
from tests.actors.netlink.builders import demo, l2vni, l3vni, state
from tests.fakes.kernel import FakeKernel

RED, BLUE = state(l3vnis=(l3vni(),)), state(generation=2, l3vnis=(l3vni(), l3vni("blue", 200)))

EXTERNAL = state(l2vnis=(l2vni(master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0"),))


class CountingKernel(FakeKernel):
    """Counts complete observations, and the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.observations = 0
        self.steps = 0

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        self.observations += known is None
        return super().observe(desired, known)

    def apply_all(self, batch: Any) -> list[Refusal | None]:
        self.steps += len(batch)
        return super().apply_all(batch)


def networks(count: int) -> DesiredState:
    return state(l3vnis=tuple(l3vni(f"t{number}", 1000 + number) for number in range(count)))


def kernel_with(desired: DesiredState) -> tuple[CountingKernel, Observed]:
    """Return a kernel in that state, and what was verified of it."""
    kernel = CountingKernel()
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True))
    result = converge(desired, kernel)
    assert result.clean, (result.failures, result.errors)
    return kernel, result.observed


def devices(kernel: FakeKernel) -> dict[object, object]:
    """Return what there is, without numbers that depend on the order in which it was made."""
    return {
        key: (link.kind, link.master, link.up, link.vxlan, link.table, link.mtu, frozenset(kernel.addresses[key]))
        for key, link in kernel.links.items()
    }


@pytest.mark.parametrize("count", [2, 40])
def test_one_more_network_costs_the_same_among_few_and_among_many(count: int) -> None:
    kernel, known = kernel_with(networks(count))
    kernel.observations = kernel.steps = 0
    drained: list[int] = []
    result = converge(networks(count + 1), kernel, lambda: drained.append(1), known=known)
    few, of_few = kernel_with(networks(1))
    few.steps = 0
    assert converge(networks(2), few, known=of_few).clean
    assert result.clean
    assert (kernel.observations, len(drained), kernel.steps) == (1, 1, few.steps)


def test_what_has_changed_unnoticed_is_repaired_all_the_same() -> None:
    kernel, known = kernel_with(RED)
    kernel._remove((Namespace.ROUTER, "vni100"))
    assert converge(BLUE, kernel, known=known).clean
    assert devices(kernel) == devices(kernel_with(BLUE)[0])


def test_a_state_with_nothing_to_do_is_verified() -> None:
    kernel, known = kernel_with(RED)
    kernel._remove((Namespace.ROUTER, "vni100"))
    kernel.observations = 0
    result = converge(state(generation=2, l3vnis=(l3vni(),)), kernel, known=known)
    assert result.clean
    assert (Namespace.ROUTER, "vni100") in kernel.links
    assert kernel.observations == 2


def test_a_refusal_that_comes_from_what_has_changed_is_none() -> None:
    kernel, known = kernel_with(RED)
    kernel.add(Namespace.ROUTER, Link(0, "br-pe-200", kind=LinkKind.BRIDGE))
    result = converge(BLUE, kernel, known=known)
    assert [failure.resource for failure in result.failures] == [BLUE.l3vnis[1].resource]
    assert "was not created by openperouter" in result.failures[0].message
    kernel._remove((Namespace.ROUTER, "br-pe-200"))
    assert converge(BLUE, kernel).clean


@pytest.mark.parametrize("filters", [True, False])
def test_a_packet_filter_that_is_gone_is_repaired_by_the_same_pass(*, filters: bool) -> None:
    """Nothing notifies of it, and the first plan is made from the table that was verified."""
    kernel, known = kernel_with(demo())
    assert known.filter
    kernel.filter = ()
    kernel.filter_problem = "" if filters else "nft is not installed"
    result = converge(demo(2), kernel, known=known)
    assert result.complete
    if filters:
        assert result.clean
        assert kernel.filter == known.filter
    else:
        assert "nft is not installed" in result.plan.warnings[0].message


def test_a_step_that_the_kernel_refuses_again_fails_its_resource() -> None:
    kernel, known = kernel_with(RED)
    [creation] = [step for step in plan(BLUE, known).steps if "create bridge br-pe-200" in str(step)]
    kernel.fail = {str(creation)}
    result = converge(BLUE, kernel, known=known)
    assert [failure.resource for failure in result.failures] == [BLUE.l3vnis[1].resource]
    kernel.fail = set()
    assert converge(BLUE, kernel).clean


@pytest.mark.parametrize(("before", "after"), [(RED, BLUE), (BLUE, RED), (RED, demo(2)), (demo(), BLUE)])
def test_any_prefix_of_a_plan_and_planning_from_what_was_before_it_converge(
    before: DesiredState, after: DesiredState
) -> None:
    whole = devices(kernel_with(after)[0])
    start, known = kernel_with(before)
    steps: tuple[Step, ...] = plan(after, known).steps
    for length in range(len(steps) + 1):
        kernel = start.copy()
        for step in steps[:length]:
            kernel.apply(step)
        result = converge(after, kernel, known=known)
        assert result.clean, (length, result.failures, result.errors)
        assert devices(kernel) == whole


class Monitors(ExitStack):
    """Sockets that a test sends notifications to."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        pairs = {name: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for name in names}
        self.ours = {name: self.enter_context(one) for name, (one, _) in pairs.items()}
        self.far = {name: self.enter_context(other) for name, (_, other) in pairs.items()}
        for one in self.ours.values():
            one.setblocking(False)


@pytest.mark.parametrize(
    ("notified", "desired", "reused"),
    [
        ((), BLUE, True),
        ((("host", b"pod-eth0"),), BLUE, True),
        ((("host", b"pod-eth0"), ("host", b"host-e-100")), BLUE, False),
        ((("host", b"toswitch1"),), BLUE, False),
        ((("router", b"anything"),), BLUE, False),
        # A bridge that this state is the first to name may have come unnoticed.
        ((), EXTERNAL, False),
    ],
)
def test_what_was_verified_is_used_unless_something_that_counts_was_notified(
    notified: tuple[tuple[str, bytes], ...], desired: DesiredState, *, reused: bool
) -> None:
    verified = Observed(host=NamespaceView())
    with Monitors("host", "router") as monitors:
        nothing = cast("Any", None)
        loop = actor._ControlLoop(nothing, nothing, nothing, nothing, nothing, nothing, 60.0, nothing, nothing)
        loop.verified, loop.monitors = verified, monitors.ours
        loop.interest = Interest.of_host([b"toswitch1"], [])
        for name, datagram in notified:
            monitors.far[name].send(bytes(24) + datagram)
        assert (loop._known(desired) is verified) is reused
        loop.changed()
        assert loop._known(desired) is None
        assert loop.wake.is_set()
