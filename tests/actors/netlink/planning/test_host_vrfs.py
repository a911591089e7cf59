"""A session with ``hostVRF``: its VRF in the host, the VRF's table, and switching it on and off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.netlink.converge import converge
from actors.netlink.planning.observed import Link, LinkKind, Namespace, NamespaceView, Observed
from actors.netlink.planning.steps import AddUnreachable, AwaitZebra, ChangeLink, CreateLink
from actors.netlink.planning.vrf_tables import assign_host_tables, candidate_host_tables
from config.desired import Family
from tests.actors.netlink.builders import l3vni, node, passthrough, settle, state
from tests.fakes.kernel import FakeKernel

HOST = Namespace.HOST
APART = state(l3vnis=(l3vni(host_vrf=True),), passthrough=passthrough(host_vrf=True))
JOINED = state(2, l3vnis=(l3vni(),), passthrough=passthrough())
ENDS = {"host-e-100": "host-v-100", "pt-host": "pt-vrf"}
TABLES = {"host-v-100": 10_000_100, "pt-vrf": 10_000_000}


@pytest.fixture
def kernel() -> FakeKernel:
    return node()


def masters(kernel: FakeKernel) -> dict[str, str]:
    return {name: kernel.links[HOST, name].master for name in ENDS}


def test_the_hosts_end_is_in_a_vrf_of_its_own_with_an_unreachable_default(kernel: FakeKernel) -> None:
    settle(APART, kernel)
    assert masters(kernel) == ENDS
    assert {name: kernel.links[HOST, name].table for name in TABLES} == TABLES
    assert all(kernel.links[HOST, name].up and kernel.links[HOST, name].ours for name in TABLES)
    assert kernel.host_unreachable == {(family, table) for family in Family for table in TABLES.values()}
    assert settle(APART, kernel) == 0


def test_the_routers_zebra_is_not_asked_about_vrfs_of_the_host(kernel: FakeKernel) -> None:
    settle(APART, kernel)
    waits = [step for step in kernel.applied if isinstance(step, AwaitZebra)]
    assert [step.vrfs for step in waits] == [("red",)]


def test_nothing_is_in_the_vrf_before_it_is_closed(kernel: FakeKernel) -> None:
    settle(JOINED, kernel)
    kernel.applied.clear()
    settle(APART, kernel)
    steps = kernel.applied
    joined = [n for n, step in enumerate(steps) if isinstance(step, ChangeLink) and step.master == "host-v-100"]
    closed = [n for n, step in enumerate(steps) if isinstance(step, AddUnreachable) and step.table == 10_000_100
              and step.namespace is HOST]  # fmt: skip
    assert len(closed) == len(Family)
    assert max(closed) < min(joined)


def test_a_vrf_that_cannot_be_closed_gets_no_device(kernel: FakeKernel) -> None:
    kernel.fail.add("host: add ipv6 unreachable default to table 10000100")
    result = converge(APART, kernel)
    assert [failure.resource.name for failure in result.failures] == ["red"]
    assert (HOST, "host-e-100") not in kernel.links
    kernel.fail.clear()
    settle(APART, kernel)
    assert masters(kernel) == ENDS


def test_switching_it_on_and_off_keeps_the_addresses(kernel: FakeKernel) -> None:
    fresh = node()
    settle(JOINED, fresh)
    settle(JOINED, kernel)
    for _ in range(2):
        settle(APART, kernel)
        assert {name: len(kernel.addresses[HOST, name]) for name in ENDS} == dict.fromkeys(ENDS, 2)
        settle(JOINED, kernel)
        assert kernel.fingerprint() == fresh.fingerprint()


def test_what_others_change_is_repaired(kernel: FakeKernel) -> None:
    settle(APART, kernel)
    before = kernel.fingerprint()
    kernel.links[HOST, "host-e-100"] = replace(kernel.links[HOST, "host-e-100"], master="")
    kernel.host_unreachable.discard((Family.IPV4, 10_000_000))
    settle(APART, kernel)
    assert kernel.fingerprint() == before


def test_a_foreign_device_with_the_name_is_left_alone(kernel: FakeKernel) -> None:
    kernel.add(HOST, Link(0, "host-v-100", kind=LinkKind.VRF, up=True, table=7))
    result = converge(APART, kernel)
    [failure] = result.failures
    assert failure.resource.name == "red"
    assert "device host-v-100 (vrf) in the host was not created by openperouter" in failure.message
    assert kernel.links[HOST, "host-v-100"].table == 7
    assert not [step for step in kernel.applied if isinstance(step, CreateLink) and step.wanted.name == "host-e-100"]


def test_a_table_of_the_hosts_is_not_taken() -> None:
    vrf = Link(1, "mgmt", kind=LinkKind.VRF, table=10_000_100)
    seen = Observed(host=NamespaceView({"mgmt": vrf}), busy_host_tables=frozenset({10_000_000}))
    stride = 1 << 24
    assert assign_host_tables(APART, seen) == {name: table + stride for name, table in TABLES.items()}
    assert candidate_host_tables(APART, {"pt-vrf"}) == (10_000_100, 10_000_100 + stride)


def test_a_vrf_keeps_the_table_that_it_has(kernel: FakeKernel) -> None:
    kernel.busy_host_tables = {10_000_100}
    settle(APART, kernel)
    kernel.busy_host_tables = set()
    assert settle(APART, kernel) == 0
    assert kernel.links[HOST, "host-v-100"].table == 10_000_100 + (1 << 24)
