"""Mirrors of resources from files: they say what the file says, but for secrets, and whose they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.api import ApiNode, ApiObject
from config.models import Underlay
from config.models.overlays import MAX_RAW_CONFIG
from config.problems import Kind, Origin, errors
from config.resources import Resource
from config.sources.mirror_objects import (
    canonical,
    file_of,
    in_other_form,
    label_value,
    manifest,
    mirror_of,
    other_name,
    plain_name,
)
from config.sources.naming import resource_name
from config.sources.router_file import parse_router_file
from config.sources.static_files import combine

from ..file_contents import FILES, SECRET
from ..samples import MODELS, l2vni, l3vni, make, neighbor, passthrough, raw, session, underlay, underlay_spec

NODE = ApiNode("node", "uid-1", {"kubernetes.io/hostname": "node.example"})


def mirror(resource: Resource, *, node: ApiNode = NODE, l3vnis: frozenset[str] = frozenset()) -> ApiObject:
    return mirror_of(resource, "node", node, "proof", {name: name for name in l3vnis})


def without_passwords(spec: Any) -> Any:
    if not isinstance(spec, Underlay):
        return spec
    neighbors = (one.model_copy(update={"password": None, "password_secret": None}) for one in spec.neighbors)
    return spec.model_copy(update={"neighbors": tuple(neighbors)})


@given(FILES)
def test_a_mirror_read_again_says_what_the_file_says(content: dict[str, Any]) -> None:
    parsed = parse_router_file(json.dumps(content).encode(), Path("/etc/c/openpe_a.yaml"), "node")
    resources, problems = combine([parsed])
    assert not errors(problems)
    for resource in resources:
        shown = mirror(resource)
        again = MODELS[resource.kind].model_validate(shown.spec)
        assert again.model_copy(update={"node_selector": None}) == without_passwords(resource.spec)
        assert canonical(resource.kind, shown.spec) == shown.spec
        assert SECRET not in json.dumps(manifest(shown))


@given(FILES)
def test_every_value_of_a_mirror_is_explicit_and_no_list_is_empty(content: dict[str, Any]) -> None:
    parsed = parse_router_file(json.dumps(content).encode(), Path("/etc/c/openpe_a.yaml"), "node")
    for resource in combine([parsed])[0]:
        text = json.dumps(mirror(resource).spec)
        assert "null" not in text
        assert "[]" not in text


def test_a_mirror_is_labelled_and_owned_by_the_node() -> None:
    shown = mirror(l3vni("red", 100))
    assert shown.labels == {"openperouter.github.io/source": "static", "openperouter.github.io/static-node": "node"}
    assert shown.owners == ({"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "uid-1"},)
    assert shown.annotations == {
        "openperouter.github.io/mirror-proof": "proof",
        "openperouter.github.io/file": "f.yaml:1",
    }
    assert shown.id == l3vni("red", 100).id


@pytest.mark.parametrize("labels", [{}, {"kubernetes.io/hostname": "another-nodes"}])
def test_a_mirror_selects_its_node_by_name_whatever_the_label_has(labels: dict[str, str]) -> None:
    """The admission policy knows the name alone, and the label must not choose another node."""
    shown = mirror(raw("a"), node=ApiNode("node", "u", labels))
    assert shown.spec["nodeSelector"] == {"matchLabels": {"kubernetes.io/hostname": "node"}}


def test_the_manifest_is_what_the_api_takes() -> None:
    body = manifest(mirror(l3vni("red", 100)))
    assert (body["apiVersion"], body["kind"]) == ("network.openperouter.io/v1alpha1", "L3VNI")
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == ("red", "ns")
    assert body["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "uid-1"}]
    assert body["spec"] == {
        "vrf": "red", "vni": 100, "vxlanPort": 4789,
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node"}},
    }  # fmt: skip


def test_pools_mean_the_same_in_both_forms() -> None:
    pools = ["2001:db8::/64", "192.0.2.0/24"]
    listed = mirror(l3vni("red", 1, hostSession={"asn": 1, "hostASN": 2, "localCIDRs": pools}))
    older = mirror(l3vni("red", 1, hostSession=session("192.0.2.0/24", "2001:db8::/64", asn=1, hostASN=2)))
    assert listed.spec == older.spec
    other = in_other_form(listed)
    assert other is not None
    assert other.spec["hostSession"] == {"asn": 1, "hostASN": 2, "localCIDRs": ["192.0.2.0/24", "2001:db8::/64"]}
    assert canonical(Kind.L3VNI, other.spec) == canonical(Kind.L3VNI, older.spec)
    assert in_other_form(mirror(l3vni("red", 1))) is None


def test_passwords_are_left_out_and_said_to_be_there() -> None:
    peers = [
        neighbor(),
        neighbor(address="192.0.2.7", password=SECRET),
        neighbor(address="192.0.2.8", passwordSecret="file-name"),
    ]
    shown = mirror(underlay(neighbors=peers))
    assert SECRET not in json.dumps(manifest(shown))
    assert "file-name" not in json.dumps(manifest(shown))
    withheld = shown.annotations["openperouter.github.io/withheld"]
    assert withheld == "neighbors[1].password, neighbors[2].password"


def test_a_host_sessions_password_is_left_out_and_said_to_be_there() -> None:
    for field in ("password", "passwordSecret"):
        shown = mirror(l3vni("red", 1, hostSession=session("192.0.2.0/24", **{field: SECRET}, maximumPrefixes=5)))
        assert SECRET not in json.dumps(manifest(shown))
        assert shown.annotations["openperouter.github.io/withheld"] == "hostSession.password"
        assert shown.spec["hostSession"]["maximumPrefixes"] == 5


def test_secrets_in_raw_configuration_are_starred_and_said_to_be_there() -> None:
    shown = mirror(raw("a", f"router bgp 1\n neighbor 192.0.2.1 password {SECRET}\n neighbor 192.0.2.1 shutdown"))
    assert (
        shown.spec["rawConfig"] == "router bgp 1\n neighbor 192.0.2.1 password ********\n neighbor 192.0.2.1 shutdown"
    )
    assert shown.annotations["openperouter.github.io/withheld"] == "rawConfig: what is shown as stars"


def test_a_snippet_that_grows_by_its_stars_still_fits_in_an_object() -> None:
    line = " neighbor 192.0.2.1 password a\n"
    shown = mirror(raw("a", line * (MAX_RAW_CONFIG // len(line)))).spec["rawConfig"]
    *whole, last = shown.split("\n")
    assert canonical(Kind.RAW_FRR_CONFIG, {"rawConfig": shown}) is not None
    assert set(whole) == {" neighbor 192.0.2.1 password ********"}
    assert len(whole) > 1700
    assert last == "! the rest is omitted: the object would become too large"


@pytest.mark.parametrize("name", ["red", "static-node-red"])
def test_a_routing_domain_from_the_files_goes_by_its_mirrors_name(name: str) -> None:
    shown = mirror(l2vni("seg", 5, name), l3vnis=frozenset({"static-node-red"}))
    assert shown.spec["routingDomain"]["l3vni"]["name"] == "static-node-red"


@pytest.mark.parametrize("names", [frozenset[str](), frozenset({"static-node-blue"}), frozenset({"red"})])
def test_a_routing_domain_from_elsewhere_keeps_its_name(names: frozenset[str]) -> None:
    assert mirror(l2vni("seg", 5, "red"), l3vnis=names).spec["routingDomain"]["l3vni"]["name"] == "red"


@pytest.mark.parametrize("name", ["red", "static-node-red"])
def test_a_routing_domain_goes_by_its_mirrors_other_name(name: str) -> None:
    shown = mirror_of(l2vni("seg", 5, name), "node", NODE, "proof", {"static-node-red": "static-node-red-1"})
    assert shown.spec["routingDomain"]["l3vni"]["name"] == "static-node-red-1"


@pytest.mark.parametrize("suffix", ["b", "b" * 63, "b." * 100 + "b"])
def test_another_name_is_another_and_says_whose_it_is(suffix: str) -> None:
    name = resource_name("a", suffix)
    others = {other_name(name, node) for node in ("a", "a-b", "b")}
    assert len(others | {name}) == 4
    assert all(re.fullmatch(r"[a-z0-9.-]{1,253}", one) and one[-1] not in "-." for one in others)
    assert [plain_name(other_name(name, "a"), node) == name for node in ("a", "b")] == [True, False]
    assert plain_name(name, "a") == name


def test_the_longest_name_has_another_one_too() -> None:
    name = "x" * 253
    assert len(other_name(name, "a")) == 253
    assert other_name(name, "a") != other_name(f"{'x' * 252}y", "a")


def test_files_are_read_with_the_names_that_mirrors_have() -> None:
    """What the reader makes of a short reference is the name under which the other entry is mirrored."""
    domain = {"type": "L3VNI", "l3vni": {"name": "red"}}
    text = json.dumps({"l3vnis": [{"vrf": "red", "vni": 1}], "l2vnis": [{"vni": 2, "routingDomain": domain}]})
    (red, segment), _ = combine([parse_router_file(text.encode(), Path("/etc/c/openpe_a.yaml"), "node")])
    shown = mirror(segment, l3vnis=frozenset({red.name}))
    assert shown.spec["routingDomain"]["l3vni"]["name"] == mirror(red).name == resource_name("node", "red")


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (Kind.L3VNI, {"vrf": "red", "vni": 100}),
        (Kind.L3VNI, {"vrf": "red", "vni": 100, "vxlanPort": 4789, "exportRTs": []}),
        (Kind.L3VNI, {"vrf": "red", "vni": 100, "hostSession": None}),
    ],
)
def test_what_the_server_defaults_is_the_same(kind: Kind, spec: dict[str, Any]) -> None:
    assert canonical(kind, spec) == {"vrf": "red", "vni": 100, "vxlanPort": 4789}


@pytest.mark.parametrize("spec", [{"vrf": "red", "vni": 101}, {"vrf": "red", "vni": 100, "vxlanPort": 1}])
def test_what_means_something_else_differs(spec: dict[str, Any]) -> None:
    assert canonical(Kind.L3VNI, spec) != canonical(Kind.L3VNI, {"vrf": "red", "vni": 100})


def test_a_password_that_was_added_differs() -> None:
    shown = mirror(underlay(neighbors=[neighbor(password=SECRET)]))
    added = underlay_spec(neighbors=[neighbor(password="x")]) | {"nodeSelector": shown.spec["nodeSelector"]}
    assert canonical(Kind.UNDERLAY, added) != canonical(Kind.UNDERLAY, shown.spec)


@pytest.mark.parametrize(
    "spec", [None, "x", [], {}, {"vrf": "red", "vni": 100, "unknown": 1}, {"vni": 0, "vrf": "red"}]
)
def test_what_no_model_takes_has_no_meaning(spec: Any) -> None:
    assert canonical(Kind.L3VNI, spec) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_label_values_are_legal_and_distinguish_nodes(one: str, other: str) -> None:
    values = label_value(one), label_value(other)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value) for value in values)
    assert (values[0] == values[1]) == (one == other)


def test_a_nodes_name_is_its_label_where_that_is_legal() -> None:
    assert label_value("worker-1.example") == "worker-1.example"
    assert label_value("a" * 63) == "a" * 63


def test_a_long_nodes_name_is_shortened() -> None:
    assert re.fullmatch(r"a{52}-[0-9a-f]{10}", label_value("a" * 64))


@pytest.mark.parametrize("path", ["/etc/c/openpe_a.yaml", "/etc/c/openpe_:5.yaml", "/odd\udcff/openpe_a.yaml"])
def test_a_mirror_says_which_file_it_is_from(path: str) -> None:
    shown = mirror(Resource(Kind.RAW_FRR_CONFIG, "ns", "a", Origin(path, 12, 3), raw("a").spec))
    readable = path.replace("\udcff", "?")
    assert shown.annotations["openperouter.github.io/file"] == f"{readable}:12"
    assert file_of(shown) == readable


def test_a_mirror_that_says_nothing_is_from_no_file() -> None:
    assert file_of(ApiObject(Kind.L3VNI, "ns", "a")) == ""


def test_every_kind_has_a_mirror() -> None:
    kinds = {mirror(one).kind for one in (underlay(), l3vni("a", 1), l2vni("b", 2), passthrough(), raw("c"))}
    assert kinds == set(Kind)


def test_a_host_session_is_shown_whole() -> None:
    shown = mirror(make(Kind.L3VNI, "red", {"vrf": "red", "vni": 1, "hostSession": session("192.0.2.0/24")}))
    assert shown.spec["hostSession"] == {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "192.0.2.0/24"}}
