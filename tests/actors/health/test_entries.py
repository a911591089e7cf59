"""The kernel's entries of L3VNIs' next hops: which one is missing, and when the kernel is read."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest

from actors.health.entries import MOST_NEXT_HOPS, READ_SECONDS, EntryReader, missing_entry
from actors.health.frr_json import Observation, Vni
from actors.health.routes import VniFault
from actors.health.vnis import faults_of
from actors.lib.tunnel_entries import TunnelEntries
from supervisor.runtime.faults import DependencyFault, KernelFault
from tests.actors.health.examples import ENTRIES, RED, fabric, observed

NOTHING = TunnelEntries(frozenset(), frozenset())
VNI_100 = Vni("L3", "red", vxlan="vni100", svi="br-pe-100", up=True)
MAC = "02:00:00:00:40:01"
OTHER_MAC = "02:00:00:00:40:02"


def entries(neighbors: dict[str, str], endpoints: dict[str, str]) -> TunnelEntries:
    """Return entries of VNI 100: next hops with their MACs, and MACs with their tunnel endpoints."""
    return TunnelEntries(
        frozenset(("br-pe-100", address, mac) for address, mac in neighbors.items()),
        frozenset(("vni100", mac, endpoint) for mac, endpoint in endpoints.items()),
    )


@pytest.mark.parametrize(
    ("next_hops", "has", "lacks"),
    [
        ({"100.64.0.1": MAC}, ENTRIES, ""),
        ({"100.64.0.1": MAC}, None, ""),
        ({}, NOTHING, ""),
        (
            {"100.64.0.1": MAC},
            entries({}, {MAC: "100.64.0.1"}),
            f"br-pe-100 has no neighbour entry for the next hop 100.64.0.1 with the router MAC {MAC}",
        ),
        (
            {"100.64.0.1": MAC},
            entries({"100.64.0.1": OTHER_MAC}, {MAC: "100.64.0.1"}),
            f"br-pe-100 has no neighbour entry for the next hop 100.64.0.1 with the router MAC {MAC}",
        ),
        (
            {"100.64.0.1": MAC},
            entries({"100.64.0.1": MAC}, {}),
            f"vni100 has no bridge entry for the router MAC {MAC} of 100.64.0.1",
        ),
        (
            {"100.64.0.1": MAC},
            entries({"100.64.0.1": MAC}, {MAC: "100.64.0.9"}),
            f"vni100 has no bridge entry for the router MAC {MAC} of 100.64.0.1",
        ),
        (
            {"100.64.0.1": MAC, "100.64.0.2": OTHER_MAC},
            entries({"100.64.0.1": MAC, "100.64.0.2": OTHER_MAC}, {MAC: "100.64.0.1", OTHER_MAC: "100.64.0.1"}),
            f"vni100 has no bridge entry for the router MAC {OTHER_MAC} of 100.64.0.2",
        ),
        (
            {"100.64.0.1": MAC, "100.64.0.2": MAC},
            entries({"100.64.0.1": MAC, "100.64.0.2": MAC}, {MAC: "100.64.0.2"}),
            "",
        ),
        (
            {"100.64.0.1": MAC, "::ffff:100.64.0.1": MAC},
            entries({"100.64.0.1": MAC, "::ffff:100.64.0.1": MAC}, {MAC: "100.64.0.1"}),
            "",
        ),
        (
            {"100.64.0.1": MAC, "::ffff:100.64.0.1": MAC},
            entries({"100.64.0.1": MAC}, {MAC: "100.64.0.1"}),
            f"br-pe-100 has no neighbour entry for the next hop ::ffff:100.64.0.1 with the router MAC {MAC}",
        ),
    ],
    ids=[
        "complete",
        "the kernel was not read",
        "no next hop",
        "no neighbour",
        "a neighbour with another MAC",
        "no bridge entry",
        "a bridge entry at another endpoint",
        "one of two at the other's endpoint",
        "a MAC that two routers share",
        "IPv6 routes over IPv4",
        "no neighbour of IPv6 routes over IPv4",
    ],
)
def test_the_entry_that_a_next_hop_lacks_is_named(
    next_hops: dict[str, str], has: TunnelEntries | None, lacks: str
) -> None:
    assert missing_entry(VNI_100, next_hops, has) == lacks


def test_an_l3vni_whose_router_mac_is_not_in_the_kernel_does_not_work() -> None:
    seen = observed("fabric_up")
    assert faults_of(fabric(), frozenset(), replace(seen, entries=ENTRIES)) == {}
    lost = replace(ENTRIES, endpoints=frozenset())
    text = f"vni100 has no bridge entry for the router MAC {MAC} of 100.64.0.1"
    fault = {RED: VniFault(text, in_frr=True, passing=True)}
    assert faults_of(fabric(), frozenset(), replace(seen, entries=lost)) == fault


def test_a_vni_that_is_down_is_named_by_its_cause_and_not_by_its_entries() -> None:
    seen = replace(observed("fabric_vxlan_down"), entries=NOTHING)
    assert "down" in faults_of(fabric(), frozenset(), seen)[RED].text


@dataclass
class Kernel:
    """Answers each reading with its entries, or with its fault."""

    entries: TunnelEntries = ENTRIES
    fault: Exception | None = None
    read: list[tuple[Collection[str], Collection[str]]] = field(default_factory=list)

    async def __call__(self, bridges: Collection[str], vxlans: Collection[str]) -> TunnelEntries:
        self.read.append((bridges, vxlans))
        if self.fault is not None:
            raise self.fault
        return self.entries


def with_next_hops(seen: Observation, next_hops: dict[str, str]) -> Observation:
    assert seen.evpn is not None
    return replace(seen, evpn=replace(seen.evpn, next_hops={100: next_hops}))


async def test_the_kernel_is_read_again_when_next_hops_change_and_after_a_minute() -> None:
    kernel, seen = Kernel(), observed("fabric_up")
    reader = EntryReader(kernel)
    for now in (0.0, 15.0, READ_SECONDS - 1):
        assert (await reader.added(seen, now)).entries == ENTRIES
    assert kernel.read == [(["br-pe-100"], ["vni100"])]
    await reader.added(with_next_hops(seen, {"100.64.0.1": OTHER_MAC}), READ_SECONDS - 1)
    assert len(kernel.read) == 2
    for now in (READ_SECONDS, 2 * READ_SECONDS - 1, 2 * READ_SECONDS):
        await reader.added(seen, now)
    assert len(kernel.read) == 4


async def test_a_kernel_that_lacks_an_entry_is_read_by_each_poll_until_it_has_it() -> None:
    kernel = Kernel(NOTHING)
    reader = EntryReader(kernel)
    for now in range(3):
        assert (await reader.added(observed("fabric_up"), now)).entries == NOTHING
    assert len(kernel.read) == 3
    kernel.entries = ENTRIES
    for now in range(3, 6):
        assert (await reader.added(observed("fabric_up"), now)).entries == ENTRIES
    assert len(kernel.read) == 4


@pytest.mark.parametrize("fault", [DependencyFault("netns perouter missing"), KernelFault("interrupted")])
async def test_entries_that_cannot_be_read_are_unknown_until_the_next_poll(fault: Exception) -> None:
    kernel = Kernel(fault=fault)
    reader = EntryReader(kernel)
    assert (await reader.added(observed("fabric_up"), 0)).entries is None
    assert reader.error == str(fault)
    kernel.fault = None
    assert (await reader.added(observed("fabric_up"), 1)).entries == ENTRIES
    assert reader.error == ""


async def test_too_many_next_hops_are_not_read() -> None:
    kernel = Kernel()
    reader = EntryReader(kernel)
    many = {f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}": MAC for number in range(MOST_NEXT_HOPS + 1)}
    assert (await reader.added(with_next_hops(observed("fabric_up"), many), 0)).entries is None
    assert reader.error == f"{MOST_NEXT_HOPS + 1} next hops are more than {MOST_NEXT_HOPS}"
    assert not kernel.read


@pytest.mark.parametrize("situation", ["fabric_no_peer", "fabric_vxlan_down", "empty"])
async def test_without_a_next_hop_of_a_vni_that_is_up_the_kernel_is_not_read(situation: str) -> None:
    kernel = Kernel()
    reader = EntryReader(kernel)
    await reader.added(observed("fabric_up"), 0)
    assert (await reader.added(observed(situation), math.inf)).entries is None
    assert len(kernel.read) == 1
