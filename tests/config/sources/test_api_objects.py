"""What the API's objects become: the same resources as files' entries, or problems that say what to do."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from config.api import ApiObject, ApiSnapshot
from config.desired import Family, Secret
from config.models import L3Vni, Underlay
from config.precedence import digest
from config.problems import Kind, Origin, Problem, Severity
from config.resolve.resolution import resolve
from config.resources import Resource, Unusable
from config.sources.api_objects import read_objects

from ..samples import NODE, l3vni, neighbor, underlay, underlay_spec

OWN = "openperouter-system"
PASSWORD = "correct-horse"


def api_object(kind: Kind, name: str, spec: Any, namespace: str = OWN) -> ApiObject:
    return ApiObject(kind, namespace, name, "uid", "77", generation=3, spec=spec)


def read(
    *objects: ApiObject, secrets: dict[tuple[str, str, str], Secret | None] | None = None
) -> tuple[tuple[Resource, ...], tuple[Problem, ...]]:
    return read_objects(ApiSnapshot(objects=objects, secrets=MappingProxyType(secrets or {})), OWN)


def red(**fields: Any) -> ApiObject:
    return api_object(Kind.L3VNI, "red", {"vrf": "red", "vni": 100} | fields)


def test_an_object_is_read_like_an_entry_of_a_file() -> None:
    (resource,), problems = read(red())
    assert problems == ()
    assert resource.spec == l3vni("red", 100).spec
    assert resource.origin == Origin(namespace=OWN, name="red", resource_version="77", generation=3)
    assert str(resource.origin) == f"{OWN}/red@77"


def test_its_node_selector_has_done_its_work() -> None:
    (resource,), _ = read(red(nodeSelector={"matchLabels": {"zone": "a"}}))
    assert resource.spec.node_selector is None
    state = resolve([underlay(), resource], NODE).desired
    assert state is not None
    assert [vni.vrf for vni in state.l3vnis] == ["red"]


def test_one_that_breaks_a_rule_is_unusable_and_named() -> None:
    (broken, good), (problem,) = read(red(vni=0), api_object(Kind.L3VNI, "blue", {"vrf": "blue", "vni": 5}))
    assert broken.spec == Unusable()
    assert isinstance(good.spec, L3Vni)
    assert str(problem) == f"{OWN}/red@77: error: L3VNI {OWN}/red: vni: must be at least 1"


@pytest.mark.parametrize("spec", [None, [], "text", 7, {}])
def test_a_spec_of_any_shape_is_no_crash(spec: Any) -> None:
    for kind in Kind:
        (resource,), problems = read(api_object(kind, "x", spec))
        assert resource.spec == Unusable()
        assert problems


def test_a_field_of_a_newer_version_is_ignored_and_reported() -> None:
    spec = underlay_spec(neighbors=[neighbor(shoeSize=42, bfd={"echo": {"deep": 1}})], mood="sunny")
    (resource,), problems = read(api_object(Kind.UNDERLAY, "u", spec))
    assert digest(resource) == digest(underlay(neighbors=[neighbor(bfd={})]))
    assert {problem.field for problem in problems} == {"mood", "neighbors[0].shoeSize", "neighbors[0].bfd.echo"}
    assert {problem.severity for problem in problems} == {Severity.WARNING}
    assert spec["mood"] == "sunny"


def test_an_unknown_field_does_not_save_an_object_that_breaks_a_rule() -> None:
    (resource,), problems = read(red(mood="sunny", vni=0))
    assert resource.spec == Unusable()
    assert {(problem.field, problem.severity) for problem in problems} == {
        ("mood", Severity.WARNING),
        ("vni", Severity.ERROR),
    }


@pytest.mark.parametrize(
    "selector", [{"matchExpressions": [{"key": "a", "operator": "Near"}]}, {"matchLabels": ["zone"]}, "zone"]
)
def test_a_selector_that_cannot_be_read_makes_the_object_unusable(selector: Any) -> None:
    (resource,), problems = read(red(nodeSelector=selector))
    assert resource.spec == Unusable()
    assert all("which nodes it applies to is unknown" in problem.message for problem in problems)


def test_an_invalid_passthrough_keeps_its_families_unless_it_may_be_another_nodes() -> None:
    session = {"asn": 0, "hostASN": 1, "localCIDR": {"ipv6": "2001:db8::/64"}}
    (resource,), _ = read(api_object(Kind.L3PASSTHROUGH, "p", {"hostSession": session}))
    assert resource.spec == Unusable(frozenset({Family.IPV6}))
    spec = {"hostSession": session | {"asn": 1}, "nodeSelector": 5}
    (resource,), _ = read(api_object(Kind.L3PASSTHROUGH, "p", spec))
    assert resource.spec == Unusable()


def test_raw_configuration_counts_in_the_programs_own_namespace_only() -> None:
    spec = {"rawConfig": "! hello"}
    (mine, theirs), (problem,) = read(
        api_object(Kind.RAW_FRR_CONFIG, "a", spec), api_object(Kind.RAW_FRR_CONFIG, "b", spec, "tenant")
    )
    assert mine.spec.raw_config == "! hello"
    assert theirs.spec == Unusable()
    assert problem.name == "tenant/b"
    assert f"namespace {OWN} only" in problem.message


def with_reference(namespace: str = OWN) -> ApiObject:
    spec = underlay_spec(neighbors=[neighbor(), neighbor(address="192.0.2.9", passwordSecret="fabric")])
    return api_object(Kind.UNDERLAY, "u", spec, namespace)


def test_a_password_may_be_under_another_key() -> None:
    spec = underlay_spec(neighbors=[neighbor(passwordSecret={"name": "fabric", "key": "tor-1"})])
    secrets: dict[tuple[str, str, str], Secret | None] = {
        (OWN, "fabric", "password"): Secret("another"),
        (OWN, "fabric", "tor-1"): Secret(PASSWORD),
    }
    (resource,), problems = read(api_object(Kind.UNDERLAY, "u", spec, OWN), secrets=secrets)
    assert problems == ()
    assert isinstance(resource.spec, Underlay)
    assert resource.spec.neighbors[0].password == Secret(PASSWORD)


def test_a_password_comes_from_its_secret() -> None:
    (resource,), problems = read(with_reference(), secrets={(OWN, "fabric", "password"): Secret(PASSWORD)})
    assert problems == ()
    assert isinstance(resource.spec, Underlay)
    assert [one.password for one in resource.spec.neighbors] == [None, Secret(PASSWORD)]
    assert resource.spec.neighbors[1].password_secret is None


@pytest.mark.parametrize("kind", [Kind.L3VNI, Kind.L3PASSTHROUGH])
def test_a_host_sessions_password_comes_from_its_secret(kind: Kind) -> None:
    host = {"asn": 1, "hostASN": 2, "localCIDR": {"ipv4": "192.0.2.0/24"}, "passwordSecret": "host"}
    fields = {"vrf": "red", "vni": 1} if kind is Kind.L3VNI else {}
    one = api_object(kind, "x", {"hostSession": host, **fields})
    (resource,), problems = read(one, secrets={(OWN, "host", "password"): Secret(PASSWORD)})
    assert problems == ()
    assert resource.spec.host_session.password == Secret(PASSWORD)
    assert resource.spec.host_session.password_secret is None
    (lacking,), (problem,) = read(one)
    assert problem.field == "hostSession.passwordSecret"
    # A passthrough without its password must not change the sessions of the fabric.
    assert lacking.spec == Unusable(frozenset({Family.IPV4}) if kind is Kind.L3PASSTHROUGH else frozenset())


@pytest.mark.parametrize(
    ("secrets", "namespace", "fix"),
    [
        ({}, OWN, "add its name to resourceNames in the Role openperouter-passwords"),
        ({(OWN, "fabric", "password"): None}, OWN, "create it with 1 to 128 printable ASCII characters"),
        (
            {("tenant", "fabric", "password"): Secret(PASSWORD)},
            "tenant",
            f"create this Underlay and its Secret there ({OWN})",
        ),
    ],
)
def test_an_unavailable_password_is_reported_with_the_fix(
    secrets: dict[tuple[str, str, str], Secret | None], namespace: str, fix: str
) -> None:
    (resource,), (problem,) = read(with_reference(namespace), secrets=secrets)
    assert resource.spec == Unusable()
    assert problem.field == "neighbors[1].passwordSecret"
    assert problem.severity is Severity.ERROR
    assert PASSWORD not in str(problem)
    for word in fix.split(" ("):
        assert word.rstrip(")") in problem.message


def test_no_message_has_a_password() -> None:
    spec = underlay_spec(neighbors=[neighbor(password=PASSWORD + " "), neighbor(password={"a": PASSWORD})])
    _, problems = read(api_object(Kind.UNDERLAY, "u", spec))
    assert problems
    assert PASSWORD not in "".join(map(str, problems))


def test_raw_snippets_of_the_api_can_be_switched_off() -> None:
    snippet = api_object(Kind.RAW_FRR_CONFIG, "r", {"rawConfig": "ip route 192.0.2.0/24 blackhole"})
    snapshot = ApiSnapshot(objects=(snippet, red()))
    assert not read_objects(snapshot, OWN)[1]
    (refused, other), (problem,) = read_objects(snapshot, OWN, raw_snippets=False)
    assert refused.spec == Unusable()
    assert isinstance(other.spec, L3Vni)
    assert (problem.severity, problem.resource) == (Severity.ERROR, snippet.id)
    assert "rawSnippetsFromAPI" in problem.message


@pytest.mark.parametrize("levels", [40, 500, 900])
def test_one_that_is_nested_too_deeply_for_any_walk_is_refused_alone(levels: int) -> None:
    nested: Any = []
    for _ in range(levels):
        nested = {"a": nested}
    fields = underlay_spec(interfaces=[{"type": "CNIDevice", "cniDevice": {"type": "CNI", "rawConfig": nested}}])
    (broken, good), (problem,) = read(api_object(Kind.UNDERLAY, "deep", fields), red())
    assert broken.spec == Unusable()
    assert isinstance(good.spec, L3Vni)
    assert str(problem) == f"{OWN}/deep@77: error: Underlay {OWN}/deep: interfaces: nested deeper than 32 levels"
