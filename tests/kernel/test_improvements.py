"""Improvements on upstream, on a real kernel: cleanup, foreign objects, failures and drift (reference 11.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.netlink.planning.plan import dependency_message
from config.desired import DesiredState, HostMasterKind
from config.problems import Reason
from tests.actors.netlink.builders import UNDERLAY, demo, l2vni, l3vni, state, underlay
from tests.kernel.node import Node, ip


def test_a_stale_vtep_address_goes(node: Node) -> None:
    node.converge(demo())
    moved = state(underlay=underlay("toswitch1", vteps=("100.65.0.9/32",)), l3vnis=(l3vni(vtep="100.65.0.9"),))
    assert node.converge(moved).clean
    addresses = node.addresses("lo")
    assert "100.65.0.9/32" in addresses
    assert "100.65.0.0/32" not in addresses
    assert node.link("vni100")["linkinfo"]["info_data"]["local"] == "100.65.0.9"


def test_an_address_that_a_user_put_on_lo_stays(node: Node) -> None:
    node.router("addr", "add", "198.51.100.7/32", "dev", "lo")
    node.converge(demo())
    node.converge(state(underlay=underlay("toswitch1", vteps=())))
    assert "198.51.100.7/32" in node.addresses("lo")
    assert "100.65.0.0/32" not in node.addresses("lo")


def test_stale_veth_and_gateway_addresses_go(node: Node) -> None:
    node.converge(demo())
    pairs = (("172.26.99.1/24", "172.26.99.2/24"),)
    node.converge(state(l3vnis=(l3vni(pairs=pairs),), l2vnis=(l2vni(gateways=("172.27.9.1/24",)),)))
    assert node.addresses("pe-e-100") == {"172.26.99.1/24"}
    assert node.addresses("host-e-100", router=False) == {"172.26.99.2/24"}
    assert node.addresses("br-pe-110") == {"172.27.9.1/24"}


def test_a_removed_session_takes_its_veth(node: Node) -> None:
    node.converge(demo())
    node.converge(state(l3vnis=(l3vni(pairs=()),)))
    assert "pe-e-100" not in node.names()
    assert "host-e-100" not in node.names(router=False)
    assert {"red", "br-pe-100", "vni100"} <= node.names()


def test_switching_the_host_master_undoes_the_old_one(node: Node) -> None:
    ip("link", "add", "br0", "type", "bridge")
    managed, none = l2vni(vrf=None), l2vni(vrf=None, master=HostMasterKind.NONE)
    external = l2vni(vrf=None, master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0")
    node.converge(state(l2vnis=(managed,)))
    assert node.link("host-e-110", router=False)["master"] == "br-hs-110"
    node.converge(state(l2vnis=(external,)))
    assert node.link("host-e-110", router=False)["master"] == "br0"
    assert "br-hs-110" not in node.names(router=False)
    node.converge(state(l2vnis=(none,)))
    assert "master" not in node.link("host-e-110", router=False)
    assert "br0" in node.names(router=False)
    node.converge(state(l2vnis=(managed,)))
    assert node.link("host-e-110", router=False)["master"] == "br-hs-110"


def test_the_host_may_put_its_end_of_a_session_into_a_vrf_of_its_own(node: Node) -> None:
    node.converge(demo())
    before = node.addresses("host-e-100", router=False)
    ip("link", "add", "tenant", "type", "vrf", "table", "1234")
    ip("link", "set", "tenant", "up")
    ip("link", "set", "host-e-100", "master", "tenant")
    node.converge(demo())
    assert node.link("host-e-100", router=False)["master"] == "tenant"
    assert node.addresses("host-e-100", router=False) == before
    assert node.converge(demo()).writes == 0


def test_an_l2vni_without_host_master_may_be_attached_manually(node: Node) -> None:
    none = state(l2vnis=(l2vni(vrf=None, master=HostMasterKind.NONE),))
    node.converge(none)
    ip("link", "add", "br0", "type", "bridge")
    ip("link", "set", "host-e-110", "master", "br0")
    assert node.converge(none).writes == 0
    assert node.link("host-e-110", router=False)["master"] == "br0"


@pytest.mark.parametrize("kind", [None, "dummy"])
def test_an_external_bridge_must_exist_and_be_a_bridge(node: Node, kind: str | None) -> None:
    if kind is not None:
        ip("link", "add", "br0", "type", kind)
    external = l2vni(vrf=None, master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0")
    result = node.converge(state(l2vnis=(external,), l3vnis=(l3vni(),)))
    (failure,) = result.failures
    assert failure.resource == external.resource
    assert "br0" in failure.message
    assert "red" in node.names()
    if kind is not None:
        ip("link", "del", "br0")
    ip("link", "add", "br0", "type", "bridge")
    assert node.converge(state(l2vnis=(external,), l3vnis=(l3vni(),))).clean


def test_vrf_tables_are_deterministic_and_survive_a_crash(node: Node) -> None:
    node.converge(demo())
    table = node.link("red")["linkinfo"]["info_data"]["table"]
    assert table == 10_000_100
    node.crash()
    node.router("link", "del", "red")
    node.converge(demo())
    assert node.link("red")["linkinfo"]["info_data"]["table"] == table


def test_a_table_in_foreign_use_is_avoided(node: Node) -> None:
    node.router("link", "add", "customer", "type", "vrf", "table", "10000100")
    node.router("route", "add", "blackhole", "198.51.100.0/24", "table", "10000101")
    l3vnis = (l3vni(), l3vni("green", 101, pairs=()))
    assert node.converge(state(l3vnis=l3vnis)).clean
    tables = {name: node.link(name)["linkinfo"]["info_data"]["table"] for name in ("customer", "red", "green")}
    assert len(set(tables.values())) == 3
    assert tables["customer"] == 10_000_100
    assert tables["green"] != 10_000_101


def test_an_existing_vrf_keeps_its_table(node: Node) -> None:
    node.router("link", "add", "red", "group", "4243", "type", "vrf", "table", "777")
    assert node.converge(state(l3vnis=(l3vni(),))).clean
    assert node.link("red")["linkinfo"]["info_data"]["table"] == 777


@pytest.mark.parametrize(
    ("create", "where"),
    [
        (("link", "add", "red", "type", "vrf", "table", "55"), "router"),
        (("link", "add", "br-pe-100", "type", "bridge"), "router"),
        (("link", "add", "host-e-100", "type", "dummy"), "host"),
    ],
)
def test_a_foreign_device_with_our_name_fails_its_resource_and_is_untouched(
    node: Node, create: tuple[str, ...], where: str
) -> None:
    (node.router if where == "router" else ip)(*create)
    name = create[2]
    before = node.link(name, router=where == "router")
    result = node.converge(demo())
    failures = {failure.resource.name: failure for failure in result.failures}
    assert set(failures) == {"red", "blue"}
    assert failures["red"].reason is Reason.OVERLAY_ATTACHMENT_FAILED
    assert name in failures["red"].message
    assert failures["blue"].reason is Reason.DEPENDENCY_FAILED
    assert failures["blue"].message == dependency_message(failures["red"].resource)
    assert node.link(name, router=where == "router") == before
    assert "pt-ns" in node.names()
    (node.router if where == "router" else ip)("link", "del", name)
    assert node.converge(demo()).clean


def test_foreign_objects_are_identical_after_everything(node: Node) -> None:
    ip("link", "add", "br-hs-5", "type", "bridge")
    ip("addr", "add", "198.51.100.1/24", "dev", "br-hs-5")
    ip("link", "add", "host-e-5", "type", "dummy")
    node.router("link", "add", "customer", "type", "vrf", "table", "1234")
    node.router("link", "add", "br-pe-5", "type", "bridge")
    node.router("link", "add", "vni5", "type", "vxlan", "id", "5", "dstport", "4789", "local", "127.0.0.1")

    def foreign() -> list[object]:
        return [
            *(node.link(name, router=False) for name in ("br-hs-5", "host-e-5")),
            *(node.link(name) for name in ("customer", "br-pe-5", "vni5")),
            node.addresses("br-hs-5", router=False),
        ]

    before = foreign()
    for desired in (demo(), state(l3vnis=(l3vni(),)), state(), replace(demo(), underlay=None)):
        node.converge(desired)
    assert foreign() == before


def test_a_vxlan_with_a_wrong_attribute_is_recreated(node: Node) -> None:
    node.converge(demo())
    index = node.link("vni100")["ifindex"]
    port = replace(l3vni(), vxlan_port=4790)
    assert node.converge(replace(demo(2), l3vnis=(port,))).clean
    link = node.link("vni100")
    assert link["ifindex"] != index
    assert link["linkinfo"]["info_data"]["port"] == 4790
    assert link["master"] == "br-pe-100"


def test_a_device_of_ours_of_the_wrong_kind_is_recreated(node: Node) -> None:
    node.router("link", "add", "br-pe-100", "group", "4243", "type", "dummy")
    assert node.converge(demo()).clean
    assert node.link("br-pe-100")["linkinfo"]["info_kind"] == "bridge"


def test_a_failing_vni_keeps_what_worked_and_the_others_proceed(node: Node) -> None:
    node.converge(demo())
    index = node.link("vni100")["ifindex"]
    # Another device has the VNI: the kernel refuses the second one.
    node.router("link", "add", "other", "type", "vxlan", "id", "120", "dstport", "4789", "dev", "lo")
    clash, fine = l3vni("clash", 120, pairs=()), l3vni("green", 121, pairs=())
    dependent = l2vni("dependent", 122, vrf="clash")
    result = node.converge(replace(demo(2), l3vnis=(clash, fine, l3vni()), l2vnis=(dependent, l2vni())))
    reasons = {failure.resource.name: failure.reason for failure in result.failures}
    assert reasons == {"clash": Reason.OVERLAY_ATTACHMENT_FAILED, "dependent": Reason.DEPENDENCY_FAILED}
    assert {"green", "vni121", "vni100"} <= node.names()
    assert node.link("vni100")["ifindex"] == index
    node.router("link", "del", "other")
    assert node.converge(replace(demo(2), l3vnis=(clash, fine, l3vni()), l2vnis=(dependent, l2vni()))).clean


@pytest.mark.parametrize(
    "damage",
    [
        ("link", "del", "vni100"),
        ("link", "del", "red"),
        ("link", "del", "pe-e-100"),
        ("link", "set", "vni100", "nomaster"),
        ("link", "set", "br-pe-110", "down"),
        ("link", "set", "br-pe-110", "address", "02:00:00:00:00:01"),
        ("link", "set", "pe-e-100", "mtu", "1400"),
        ("link", "set", "vni100", "type", "bridge_slave", "neigh_suppress", "off"),
        ("addr", "flush", "dev", "pe-e-100", "scope", "global"),
        ("addr", "del", "100.65.0.0/32", "dev", "lo"),
        ("route", "del", "unreachable", "default", "metric", "4278198272", "table", "10000100"),
        ("link", "set", "toswitch1", "group", "0"),
    ],
    ids=" ".join,
)
def test_drift_is_repaired(node: Node, damage: tuple[str, ...]) -> None:
    node.converge(demo())
    before = shape(node)
    node.router(*damage)
    assert shape(node) != before
    assert node.converge(demo()).writes > 0
    assert shape(node) == before
    assert node.converge(demo()).writes == 0


def shape(node: Node) -> dict[str, object]:
    """Return what is there, but for indices and random MACs."""
    found: dict[str, object] = {}
    addresses = {
        link["ifname"]: sorted(a["local"] for a in link["addr_info"] if a["scope"] != "link")
        for link in node.router_json("addr")
    }
    for link in node.router_json("link"):
        name = link["ifname"]
        mac = link["address"] if link["address"].startswith("00:f3") else ""
        slave = link.get("linkinfo", {}).get("info_slave_data", {}).get("neigh_suppress")
        up = "UP" in link["flags"]
        found[name] = (link["mtu"], link.get("master"), link["group"], up, mac, slave, addresses.get(name))
    found["unreachable"] = [node.router(family, "route", "show", "table", "10000100", "type", "unreachable")
                            for family in ("-4", "-6")]  # fmt: skip
    return found


def test_a_missing_nic_fails_the_underlay_alone_and_is_taken_when_it_appears(node: Node) -> None:
    desired: DesiredState = replace(demo(), underlay=underlay("toswitch9"))
    result = node.converge(desired)
    (failure,) = result.failures
    assert failure.resource == UNDERLAY
    assert failure.reason is Reason.UNDERLAY_FAILED
    assert "toswitch9" in failure.message
    assert {"red", "vni100"} <= node.names()
    node.add_nic("toswitch9", "leaf9")
    assert node.converge(desired).clean
    assert "toswitch9" in node.names()
    assert node.link("pe-e-100")["mtu"] == 1450


def test_a_refusal_in_the_middle_of_a_batch_fails_its_resource_only(node: Node) -> None:
    """The kernel continues a batch after a refusal; nothing of the refused resource may follow all the same."""
    node.router("link", "add", "other", "type", "vxlan", "id", "1003", "dstport", "4789", "dev", "lo")
    l3vnis = tuple(
        l3vni(f"t{number}", 1000 + number, pairs=((f"10.0.{number}.1/24", f"10.0.{number}.2/24"),))
        for number in range(8)
    )
    result = node.converge(state(l3vnis=l3vnis))
    [failure] = result.failures
    assert failure.resource == l3vnis[3].resource
    assert "create vxlan vni1003" in failure.message
    assert {f"pe-e-{1000 + number}" for number in (0, 1, 2, 4, 5, 6, 7)} <= node.names()
    assert not {"pe-e-1003", "vni1003"} & node.names()
    node.router("link", "del", "other")
    assert node.converge(state(l3vnis=l3vnis)).clean
    assert node.addresses("pe-e-1003") == {"10.0.3.1/24"}
