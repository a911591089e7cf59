"""The answers of the webhook, by cases and against each node's own decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.admission import review as review_module
from config.admission.nodes import Nodes
from config.admission.objects import Objects, entry_of
from config.admission.review import MOST_WARNINGS, ReviewRequest, review
from config.api import HOSTNAME_LABEL, ApiNode, ApiObject
from config.problems import Kind, errors
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource

from .examples import (
    GRANTS,
    OWN,
    all_of,
    judge,
    l2vni,
    l3vni,
    mirror,
    node,
    obj,
    on,
    refusing,
    session,
    underlay,
)

NODES = (node("a", 0, rack="1"), node("b", 1, rack="2"), node("c", 2, rack="2"))
FABRIC = underlay()


def test_what_fits_is_allowed_without_a_word() -> None:
    answer = judge([FABRIC, l3vni("red", 100)], NODES, l3vni("blue", 200))
    assert (answer.allowed, answer.message, answer.warnings) == (True, "", ())


def test_a_vni_that_is_taken_is_denied_and_both_objects_are_named() -> None:
    answer = judge([FABRIC, l3vni("red", 100)], NODES, l2vni("segment", 100, namespace="other"))
    assert not answer.allowed
    assert answer.message == ("L2VNI other/segment: vni: VNI 100 is also used by L3VNI tenant/red; change one of them")


def test_what_breaks_a_rule_by_itself_is_denied_on_a_cluster_without_nodes() -> None:
    answer = judge([], [], l3vni("red", 100, exportRTs=["65000:1", "nonsense"]))
    assert not answer.allowed
    assert answer.message.startswith("L3VNI tenant/red: exportRTs[1]: ")


def test_a_second_underlay_is_denied() -> None:
    answer = judge([FABRIC], NODES, underlay("second"))
    assert not answer.allowed
    assert "only one underlay per node, and Underlay openperouter-system/fabric is used" in answer.message


def test_what_only_some_nodes_refuse_is_a_warning_with_their_number() -> None:
    taken = l3vni("red", 100, nodeSelector=on(rack="2"))
    answer = judge([FABRIC, taken], NODES, l3vni("blue", 100))
    assert answer.allowed
    [warning] = answer.warnings
    assert "VNI 100 is also used by L3VNI tenant/red" in warning
    assert warning.endswith("(on 2 of 3 nodes)")


def test_what_other_nodes_have_matters_to_none() -> None:
    taken = l3vni("red", 100, nodeSelector=on(rack="2"))
    answer = judge([FABRIC, taken], NODES, l3vni("blue", 100, nodeSelector=on(rack="1")))
    assert (answer.allowed, answer.warnings) == (True, ())


def test_a_missing_routing_domain_is_a_warning() -> None:
    answer = judge([FABRIC], NODES, l2vni("segment", 300, "red", gatewayIPs=["10.0.0.1/24"]))
    assert answer.allowed
    assert answer.warnings == ('L2VNI tenant/segment: routingDomain.l3vni.name: referenced L3VNI "red" not found',)


def test_an_edit_that_takes_another_network_out_of_force_is_a_warning() -> None:
    red = l3vni("red", 100)
    segment = l2vni("segment", 300, "red", gatewayIPs=["10.0.0.1/24"])
    answer = judge(
        [FABRIC, red, segment], NODES, replace(red, spec={**red.spec, "hostSession": session("10.0.0.0/16")}), red
    )
    assert answer.allowed
    [warning] = answer.warnings
    assert warning == (
        "L3VNI tenant/red: hostSession.localCIDR.ipv4: L2VNI tenant/segment conflicts with this one and is ignored: "
        "10.0.0.0/24 overlaps 10.0.0.0/16 of L3VNI tenant/red in VRF red"
    )


def test_an_edit_that_leaves_a_segment_without_its_routing_domain_is_a_warning() -> None:
    red = l3vni("red", 100, allowedNamespaces=["other"])
    domain = {"type": "L3VNI", "l3vni": {"name": "red", "namespace": "tenant"}}
    segment = l2vni("segment", 300, namespace="other", routingDomain=domain)
    answer = judge([FABRIC, red, segment], NODES, l3vni("red", 100), red)
    assert answer.allowed
    [warning] = answer.warnings
    assert warning.startswith("this takes L2VNI other/segment out of force: L3VNI tenant/red does not route L2VNIs of")


def test_an_edit_into_a_conflict_is_denied() -> None:
    red, blue = l3vni("red", 100), l3vni("blue", 200)
    answer = judge([FABRIC, red, blue], NODES, replace(blue, spec={**blue.spec, "vni": 100}), blue)
    assert not answer.allowed
    assert "L3VNI tenant/blue: vni: VNI 100 is also used by L3VNI tenant/red" in answer.message


def test_an_update_that_leaves_the_spec_is_always_allowed() -> None:
    broken = l3vni("red", 100, exportRTs=["nonsense"])
    assert judge([FABRIC, l3vni("blue", 100)], NODES, replace(broken, generation=2), broken).allowed


def test_a_deletion_is_always_allowed() -> None:
    assert review(Objects(), Nodes(), ReviewRequest(None, FABRIC), GRANTS).allowed


def test_the_version_of_the_index_does_not_count_against_the_object_itself() -> None:
    red = l3vni("red", 100)
    assert judge([FABRIC, red], NODES, replace(red, spec={**red.spec, "vxlanPort": 4790}), red).allowed


def test_a_mirror_of_a_files_network_is_a_rival_on_its_node_alone() -> None:
    there = [mirror(FABRIC, "a"), mirror(l3vni("red", 100), "a"), mirror(FABRIC, "b")]
    answer = judge(there, NODES[:2], l3vni("blue", 100, nodeSelector=on(rack="1")))
    assert not answer.allowed
    assert "L3VNI openperouter-system/static-a-red (a file of node a)" in answer.message
    assert judge(there, NODES[:2], l3vni("blue", 100, nodeSelector=on(rack="2"))).allowed


@pytest.mark.parametrize(
    ("candidate", "rival"),
    [
        (l3vni("blue", 100), "L3VNI openperouter-system/static-a-red (a file of node a)"),
        (l2vni("segment", 100), "L3VNI openperouter-system/static-a-red (a file of node a)"),
        (underlay("second"), "Underlay openperouter-system/static-a-fabric"),
        (l3vni("blue", 200), ""),
        (l2vni("segment", 300), ""),
    ],
    ids=["an L3VNI", "an L2VNI", "an underlay", "another L3VNI", "another L2VNI"],
)
def test_what_conflicts_with_a_files_mirror_is_denied_and_names_it(candidate: ApiObject, rival: str) -> None:
    answer = judge([mirror(FABRIC, "a"), mirror(l3vni("red", 100), "a")], NODES[:1], candidate)
    assert answer.allowed is not bool(rival)
    assert rival in answer.message


def test_a_segment_finds_the_l3vni_of_a_file_by_its_short_name() -> None:
    red = l3vni("red", 100, allowedNamespaces=["*"], hostSession=session("10.0.0.0/16"))
    there = [mirror(FABRIC, "a"), mirror(red, "a")]
    answer = judge(there, NODES[:1], l2vni("segment", 300, "red", gatewayIPs=["10.0.1.1/24"]))
    assert not answer.allowed
    assert "10.0.1.0/24 overlaps 10.0.0.0/16" in answer.message


def test_an_underlay_of_a_tenant_does_not_stand_in_the_way_of_an_administrators() -> None:
    assert judge([underlay("mine", "tenant")], NODES, FABRIC).allowed


def test_what_a_nodes_own_settings_may_grant_is_a_warning() -> None:
    answer = judge([], NODES, underlay("mine", "tenant"))
    assert answer.allowed
    assert answer.warnings == ("Underlay tenant/mine counts only on nodes whose setting underlayNamespaces has tenant",)
    answer = judge([FABRIC], NODES, obj(Kind.L3PASSTHROUGH, "p", {"hostSession": session("10.0.0.0/16")}, "tenant"))
    assert answer.allowed
    assert "L3Passthrough tenant/p counts only on nodes whose setting underlayNamespaces has tenant" in answer.warnings
    host = {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "External", "name": "br0"}}
    answer = judge([FABRIC], NODES, l2vni("segment", 300, hostMaster=host))
    assert answer.allowed
    assert answer.warnings == ("L2VNI tenant/segment counts only on nodes whose setting externalBridges has br0",)


def test_raw_configuration_is_denied_outside_of_the_programs_namespace_and_has_a_warning_inside() -> None:
    assert not judge([], NODES, obj(Kind.RAW_FRR_CONFIG, "snippet", {"rawConfig": "! x"}, "tenant")).allowed
    answer = judge([], NODES, obj(Kind.RAW_FRR_CONFIG, "snippet", {"rawConfig": "! x"}))
    assert answer.allowed
    assert len(answer.warnings) == 1


def test_a_secret_that_is_named_is_not_missed() -> None:
    secret = {"asn": 64512, "address": "192.168.11.2", "passwordSecret": {"name": "bgp-passwords"}}
    assert judge([], NODES, underlay(neighbors=[secret])).allowed


def test_a_field_of_a_later_version_is_a_warning() -> None:
    answer = judge([FABRIC], NODES, l3vni("red", 100, colour="deep"))
    assert answer.allowed
    assert answer.warnings == (
        "L3VNI tenant/red: colour: this version does not support the field and ignores it; the rest is in force",
    )


def test_a_pool_that_is_too_small_for_the_last_nodes_is_a_warning_and_for_all_a_denial() -> None:
    small = underlay(tunnelEndpoint={"cidrs": ["100.65.0.0/31"]})
    answer = judge([], NODES, small)
    assert answer.allowed
    assert any("is too small for node index 2" in text and "on 1 of 3 nodes" in text for text in answer.warnings)
    assert not judge([], NODES[2:], small).allowed


def test_many_objects_in_conflict_that_are_each_for_other_nodes_cost_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user of one namespace could otherwise keep the webhook busy, and so without an answer for all others."""
    nodes = [node(f"n{number}", number) for number in range(20)]
    apart = [{"key": HOSTNAME_LABEL, "operator": "NotIn", "values": [one.name]} for one in nodes]
    there = [l3vni(f"r{number}", 100, nodeSelector={"matchExpressions": [one]}) for number, one in enumerate(apart)]
    assert not judge([FABRIC, *there], nodes, l3vni("mine", 100)).allowed
    calls = []

    def counting(resources: Sequence[Resource], *more: Any, **others: Any) -> Resolution:
        calls.append(len(resources))
        return resolve(resources, *more, **others)

    monkeypatch.setattr(review_module, "resolve", counting)
    monkeypatch.setattr(review_module, "MOST_RESOLVED", 100)
    answer = judge([FABRIC, *there], nodes, l3vni("mine", 100))
    # Each group is one node with 20 objects; each is resolved with and without the new one.
    assert sum(calls) <= 2 * 100
    assert answer.allowed
    assert "16 of 20 nodes were not considered: too many objects may conflict with L3VNI tenant/mine" in answer.warnings


def test_a_pool_that_ends_among_many_nodes_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    small = underlay(tunnelEndpoint={"cidrs": ["100.65.0.0/31"]})
    monkeypatch.setattr(review_module, "MOST_RESOLVED", 3)
    answer = judge([], NODES, small)
    assert answer.allowed
    assert any(text.startswith("1 of 3 nodes were not considered") for text in answer.warnings)


def test_what_selects_no_node_has_a_warning() -> None:
    answer = judge([FABRIC], NODES, l3vni("red", 100, nodeSelector=on(rack="9")))
    assert (answer.allowed, answer.warnings) == (True, ("L3VNI tenant/red selects no node",))


def test_warnings_are_few_and_short() -> None:
    there = [l3vni(f"n{number}", number, nodeSelector=on(rack=str(number))) for number in range(1, 60)]
    racks = [node(f"n{number}", number, rack=str(number)) for number in range(1, 61)]
    pools = {"hostSession": session("10.0.0.0/16")}
    taken = [replace(one, spec={**one.spec, **pools}) for one in there]
    answer = judge([FABRIC, *taken], racks, l3vni("wide", 99, hostSession=session("10.0.0.0/17")))
    assert answer.allowed
    assert len(answer.warnings) == MOST_WARNINGS + 1


# Few values, so that much of what is drawn conflicts.
VNIS = st.integers(1, 5)
NAMES = st.sampled_from(["red", "blue", "green"])
NAMESPACES = st.sampled_from([OWN, "tenant", "other"])
POOLS = st.sampled_from(["10.0.0.0/16", "10.0.1.0/24", "10.0.2.0/24", "192.0.2.0/30", "100.65.0.0/25"])
GATEWAYS = st.sampled_from([[], ["10.0.1.1/24"], ["10.0.2.1/24"], ["10.0.0.1/16"], ["10.0.3.1/25"]])
EDGE = {"matchExpressions": [{"key": "edge", "operator": "Exists"}]}
SELECTORS = st.sampled_from([None, on(rack="1"), on(rack="2"), EDGE])
BRIDGES = st.sampled_from(
    [
        None,
        {"lifecycle": "Managed"},
        {"lifecycle": "External", "name": "br-hs-1"},
        {"lifecycle": "External", "name": "br-hs-2"},
    ]
)


@st.composite
def drawn_objects(draw: st.DrawFn) -> ApiObject:
    kind = draw(st.sampled_from([Kind.UNDERLAY, Kind.L3VNI, Kind.L3VNI, Kind.L2VNI, Kind.L2VNI, Kind.L3PASSTHROUGH]))
    name, namespace, selector = draw(NAMES), draw(NAMESPACES), draw(SELECTORS)
    fields = {"nodeSelector": selector} if selector else {}
    match kind:
        case Kind.UNDERLAY:
            pools = draw(st.sampled_from([["100.65.0.0/24"], ["100.65.0.0/31"], ["100.66.0.0/24", "2001:db8::/64"]]))
            made = underlay(name, OWN, tunnelEndpoint={"cidrs": pools}, **fields)
        case Kind.L3VNI:
            pool = draw(st.none() | POOLS)
            fields |= {"vrf": draw(NAMES)} | ({"hostSession": session(pool)} if pool else {})
            fields |= draw(st.sampled_from([{}, {"allowedNamespaces": ["*"]}, {"underlayAddressFamily": "IPv6"}]))
            made = l3vni(name, draw(VNIS), namespace, **fields)
        case Kind.L2VNI:
            domain, bridge = draw(st.sampled_from(["", "red", "blue", "static-a-red"])), draw(BRIDGES)
            if domain:
                fields |= {"gatewayIPs": draw(GATEWAYS)}
            if bridge:
                fields |= {"hostMaster": {"type": "LinuxBridge", "linuxBridge": bridge}}
            made = l2vni(name, draw(VNIS), domain, OWN if bridge else namespace, **fields)
        case _:
            made = obj(Kind.L3PASSTHROUGH, name, {"hostSession": session(draw(POOLS)), **fields}, OWN)
    return mirror(made, draw(st.sampled_from("abc"))) if draw(st.integers(0, 5)) == 0 else made


CLUSTERS = st.lists(drawn_objects(), max_size=12, unique_by=lambda one: one.id)
INDICES = st.sampled_from([(0, 1, 2), (2, 0, 5), (1, 1, 3)])


def drawn_nodes(indices: tuple[int, int, int]) -> list[ApiNode]:
    racks = [{"rack": "1"}, {"rack": "2", "edge": ""}, {"rack": "2"}]
    return [node(name, index, **labels) for name, index, labels in zip("abc", indices, racks, strict=True)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(CLUSTERS, drawn_objects(), st.booleans(), INDICES)
def test_denied_is_exactly_what_every_node_would_refuse(
    there: list[ApiObject], new: ApiObject, is_update: bool, indices: tuple[int, int, int]
) -> None:
    same = [one for one in there if one.kind is new.kind]
    old = same[0] if same and is_update else None
    if old is not None:
        new = replace(new, namespace=old.namespace, name=old.name, labels=old.labels, owners=old.owners)
    others = [one for one in there if one.id != new.id]
    everything = [*others, *([old] if old else [])]
    nodes = all_of(drawn_nodes(indices))
    answer = review(Objects(entry_of(one, OWN) for one in everything), nodes, ReviewRequest(new, old), GRANTS)
    if errors(entry_of(new, OWN).problems) and (old is None or old.spec != new.spec):
        assert not answer.allowed
        return
    decided = refusing(others, nodes, new, old)
    unchanged = old is not None and old.spec == new.spec
    assert answer.allowed == (unchanged or not decided or not all(decided.values())), (decided, answer)
    if not unchanged:
        assert not any(decided.values()) or answer.message or answer.warnings


@settings(max_examples=50, deadline=None, derandomize=True)
@given(CLUSTERS, CLUSTERS, drawn_objects())
def test_an_index_that_followed_changes_is_that_of_the_last_state(
    first: list[ApiObject], last: list[ApiObject], new: ApiObject
) -> None:
    followed = Objects(entry_of(one, OWN) for one in first)
    for one in first:
        followed.remove(one.id)
    for one in last:
        followed.put(entry_of(one, OWN))
    nodes, fresh = all_of(NODES), Objects(entry_of(one, OWN) for one in last)
    assert len(followed) == len(fresh)
    assert review(followed, nodes, ReviewRequest(new), GRANTS) == review(fresh, nodes, ReviewRequest(new), GRANTS)


def test_a_nodes_new_labels_count() -> None:
    nodes = all_of(NODES)
    blue = l3vni("blue", 100, nodeSelector=on(rack="1"))
    objects = Objects(entry_of(one, OWN) for one in (FABRIC, l3vni("red", 100, nodeSelector=on(rack="2"))))
    assert review(objects, nodes, ReviewRequest(blue), GRANTS).allowed
    nodes.put(node("a", 0, rack="2"))
    nodes.put(node("b", 1, rack="1"))
    nodes.put(node("c", 2, rack="1"))
    assert review(objects, nodes, ReviewRequest(blue), GRANTS).allowed
    objects.put(entry_of(l3vni("red", 100, nodeSelector=on(rack="1")), OWN))
    assert not review(objects, nodes, ReviewRequest(blue), GRANTS).allowed
    nodes.remove("b")
    nodes.remove("c")
    assert review(objects, nodes, ReviewRequest(blue), GRANTS).warnings == ("L3VNI tenant/blue selects no node",)


@pytest.mark.parametrize("selector", [{"matchLabels": 7}, "all", {"matchExpressions": [{"key": "x", "operator": "?"}]}])
def test_a_selector_that_cannot_be_read_is_denied(selector: object) -> None:
    answer = judge([FABRIC], NODES, l3vni("red", 100, nodeSelector=selector))
    assert not answer.allowed
    assert "nodeSelector" in answer.message
