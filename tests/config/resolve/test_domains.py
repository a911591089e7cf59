"""Which L3VNI a segment's routing domain is, across files, the API and namespaces."""

from __future__ import annotations

import pytest

from config.problems import Kind, Reason, Severity
from config.resolve.resolution import Resolution
from config.resources import Resource

from ..samples import from_api, in_force, l2vni, l3vni, messages_about, solve, underlay, unusable


def of_file(vni: int = 1, *allowed: str) -> Resource:
    """The file's L3VNI ``red``, as it is called in the API."""
    return l3vni("static-node-red", vni, vrf="file", allowedNamespaces=list(allowed))


def of_api(namespace: str, vni: int, *allowed: str) -> Resource:
    return from_api(l3vni("red", vni, vrf=namespace, allowedNamespaces=list(allowed)), namespace)


def named_in(namespace: str, name: str = "red") -> Resource:
    domain = {"type": "L3VNI", "l3vni": {"name": name, "namespace": namespace}}
    return l2vni("seg", 50, routingDomain=domain)


def domain_of(resolution: Resolution, name: str = "seg") -> str | None:
    assert resolution.desired is not None
    return next(one.vrf for one in resolution.desired.l2vnis if one.resource.name == name)


SEGMENT = l2vni("seg", 50, "red")


@pytest.mark.parametrize(
    ("segment", "l3vnis", "vrf"),
    [
        (SEGMENT, [of_file(), of_api("ns", 2), of_api("tenant", 3)], "file"),
        (SEGMENT, [of_api("ns", 2), of_api("tenant", 3)], "ns"),
        (SEGMENT, [of_api("tenant", 3)], "tenant"),
        (l2vni("seg", 50, "static-node-red"), [of_file(), of_api("ns", 2)], "file"),
        (from_api(SEGMENT), [of_file(), of_api("ns", 2), of_api("tenant", 3)], "tenant"),
        (from_api(SEGMENT), [of_file(1, "tenant"), of_api("ns", 2)], "file"),
        (from_api(SEGMENT), [of_file(1, "*"), of_api("ns", 2)], "file"),
        (named_in("tenant"), [of_file(), of_api("tenant", 3)], "tenant"),
        (from_api(named_in("other")), [of_api("tenant", 2), of_api("other", 3, "tenant")], "other"),
        (from_api(named_in("other")), [of_api("other", 3, "a", "*")], "other"),
        (from_api(named_in("ns", "static-node-red")), [of_file(1, "tenant")], "file"),
        (from_api(l2vni("seg", 50, "static-node-red")), [of_file(1, "tenant"), of_api("tenant", 3)], "file"),
        (from_api(SEGMENT, "ns"), [of_file(), of_api("ns", 2), of_api("tenant", 3)], "ns"),
        (from_api(l2vni("seg", 50, "static-node-red"), "ns"), [of_file(), of_api("ns", 2)], "file"),
    ],
)
def test_a_name_means_the_nearest(segment: Resource, l3vnis: list[Resource], vrf: str) -> None:
    resolution = solve(underlay(), segment, *l3vnis)
    assert resolution.problems == ()
    assert domain_of(resolution) == vrf


def test_an_object_of_the_api_does_not_reach_another_namespace() -> None:
    resolution = solve(underlay(), from_api(SEGMENT), of_api("other", 3), of_api("ns", 2))
    assert "seg" not in in_force(resolution)
    assert messages_about(resolution, "seg") == 'referenced L3VNI "red" not found'


@pytest.mark.parametrize(
    ("segment", "domain"),
    [
        (from_api(SEGMENT), of_file()),
        (from_api(SEGMENT), of_file(1, "other", "ten")),
        (from_api(l2vni("seg", 50, "static-node-red")), of_file()),
        (from_api(named_in("ns", "static-node-red")), of_file()),
        (from_api(named_in("other")), of_api("other", 3)),
        (from_api(named_in("other")), of_api("other", 3, "another")),
    ],
)
def test_an_object_joins_no_network_that_does_not_allow_its_namespace(segment: Resource, domain: Resource) -> None:
    resolution = solve(underlay(), segment, domain)
    assert "seg" not in in_force(resolution)
    assert domain.name in in_force(resolution)
    wanted = f"{domain.id} does not route L2VNIs of namespace tenant: add the namespace to its allowedNamespaces"
    assert messages_about(resolution, "seg") == wanted


def test_an_open_network_takes_no_segment_that_does_not_name_its_namespace() -> None:
    """Otherwise a network of that name elsewhere would receive a segment whose own network was deleted."""
    resolution = solve(underlay(), from_api(SEGMENT), of_api("other", 3, "*"))
    assert messages_about(resolution, "seg") == 'referenced L3VNI "red" not found'


def test_a_broken_file_does_not_move_its_segment_into_another_network() -> None:
    resolution = solve(underlay(), SEGMENT, unusable(Kind.L3VNI, "static-node-red"), of_api("ns", 2))
    assert "seg" not in in_force(resolution)
    said = 'referenced L3VNI "red" is not in force; its own error says why'
    assert messages_about(resolution, "seg") == said


def test_a_name_that_two_namespaces_have_is_refused_with_both() -> None:
    resolution = solve(underlay(), SEGMENT, of_api("b", 2), of_api("a", 3))
    assert "seg" not in in_force(resolution)
    assert messages_about(resolution, "seg") == '"red" is ambiguous: L3VNI a/red, L3VNI b/red; use a unique name'
    assert {problem.reason for problem in resolution.problems} == {Reason.DEPENDENCY_FAILED}


def test_a_segment_in_force_stays_where_it_is_when_its_domains_name_becomes_ambiguous() -> None:
    first = solve(underlay(), SEGMENT, of_api("b", 2))
    second = solve(underlay(), SEGMENT, of_api("b", 2), of_api("a", 3), standing=first.standing)
    assert domain_of(second) == "b"
    (problem,) = second.problems
    assert problem.severity is Severity.WARNING
    assert problem.message.endswith("it stays in L3VNI b/red as before")
    third = solve(underlay(), SEGMENT, of_api("b", 2), of_api("a", 3), standing=second.standing)
    assert domain_of(third) == "b"
