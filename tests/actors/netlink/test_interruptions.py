"""What a plan for the kernel takes down, from one converged state to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.netlink.converge import converge, observe_and_plan
from actors.netlink.planning.observed import Link, Namespace
from actors.netlink.preview import interruptions
from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredState
from tests.actors.netlink.builders import l2vni, l3vni, state, underlay, without_underlay
from tests.fakes.kernel import FakeKernel

RED, BLUE = l3vni("red", 100), l2vni("blue", 200)
FABRIC = underlay("eth1")


DETACHED = "L3VNI red (VNI 100): the veth to the host goes, and what is attached to it loses the network"
Vnis = tuple[DesiredL3VNI | DesiredL2VNI, ...]


def with_vnis(vnis: Vnis) -> DesiredState:
    routed = tuple(vni for vni in vnis if isinstance(vni, DesiredL3VNI))
    return state(underlay=FABRIC, l3vnis=routed, l2vnis=tuple(vni for vni in vnis if isinstance(vni, DesiredL2VNI)))


def interrupted(before: DesiredState, after: DesiredState) -> list[str]:
    kernel = FakeKernel()
    for name in ("eth1", "eth2"):
        kernel.add(Namespace.HOST, Link(0, name, up=True))
    assert converge(before, kernel).clean
    observed, plan = observe_and_plan(after, kernel)
    return [str(one) for one in interruptions(plan, observed)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((RED, BLUE), (RED, BLUE), []),
        ((RED,), (RED, BLUE), []),
        ((RED, BLUE), (RED,), ["L2VNI blue (VNI 200): is removed"]),
        (
            (RED, BLUE),
            (replace(RED, vxlan_port=4790), BLUE),
            ["L3VNI red (VNI 100): is made again, and does not forward meanwhile"],
        ),
        (
            (RED, BLUE),
            (replace(RED, session=None), BLUE),
            [DETACHED],
        ),
    ],
)
def test_a_change_of_vnis_interrupts(before: Vnis, after: Vnis, expected: list[str]) -> None:
    assert interrupted(with_vnis(before), with_vnis(after)) == expected


def test_a_nic_that_changes_sides_is_named() -> None:
    assert interrupted(state(underlay=FABRIC), state(underlay=underlay("eth2"))) == [
        "NIC eth2: moves into the router: connections of the host over it end",
        "NIC eth1: returns to the host once the others are in the router",
    ]


def test_a_router_that_goes_returns_its_nics() -> None:
    assert interrupted(state(underlay=FABRIC), without_underlay(state())) == ["NIC eth1: returns to the host"]
