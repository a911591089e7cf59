"""What objects of the API may decide on a node, by namespace, and how many of them count."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from config.api import ApiObject
from config.desired import BGPFamily, Family
from config.precedence import NOTHING_IN_FORCE
from config.problems import Kind, Problem, Reason, ResourceId, Severity, errors
from config.resolve.grants import NAMED, Grants, within_limits
from config.resolve.resolution import Resolution
from config.resources import Resource, Unusable
from config.settings import Settings

from ..samples import from_api, ids_in_force, in_force, l2vni, messages_about, named, passthrough, raw, solve, underlay

STRICT = Grants("ns")
FABRIC = underlay("fabric", asn=1)
THEIRS = from_api(FABRIC)


def strict(*resources: Resource, grants: Grants = STRICT, **options: Any) -> Resolution:
    return solve(*resources, grants=grants, **options)


# Underlays


def test_an_underlay_of_another_namespace_does_not_count_and_is_refused_by_name() -> None:
    resolution = strict(THEIRS)
    assert resolution.desired is not None
    assert resolution.desired.underlay is None
    [problem] = resolution.problems
    assert (problem.severity, problem.reason, named(problem)) == (Severity.ERROR, Reason.UNDERLAY_FAILED, "fabric")
    assert "do not count on this node: create it in ns, or add the namespace to underlayNamespaces" in problem.message


@pytest.mark.parametrize("own", [FABRIC, from_api(FABRIC, "ns")], ids=["file", "own namespace"])
def test_it_takes_nothing_from_one_that_counts(own: Resource) -> None:
    first = strict(from_api(underlay("aaa", asn=7), "aaa"), own)
    assert own.id in ids_in_force(first)
    again = strict(from_api(underlay("aaa", asn=8), "aaa"), own, standing=first.standing)
    assert again.desired is not None
    assert again.desired.underlay is not None
    assert again.desired.underlay.asn == 1


@pytest.mark.parametrize("opened", ["tenant", "*"])
def test_the_setting_lets_it_count(opened: str) -> None:
    settings = Settings.model_validate({"underlayNamespaces": [opened], "namespace": "ns"})
    resolution = strict(THEIRS, grants=Grants.of(settings))
    assert resolution.problems == ()
    assert THEIRS.id in ids_in_force(resolution)


def test_one_that_is_in_force_stays_until_it_is_changed() -> None:
    """An upgrade, or a narrower setting, must not cut the node off."""
    before = solve(THEIRS).standing
    kept = strict(THEIRS, standing=before)
    assert THEIRS.id in ids_in_force(kept)
    [problem] = kept.problems
    assert problem.severity is Severity.WARNING
    assert problem.message.endswith("it stays in force until it is changed")
    changed = strict(from_api(underlay("fabric", asn=2)), standing=kept.standing)
    assert changed.desired is None
    assert [one.severity for one in changed.problems] == [Severity.ERROR]


# Passthroughs: they join the host to the underlay, and decide the address families of the fabric's sessions

FROM_FILE = passthrough("mine", ipv4="10.9.0.0/24")
TENANTS = from_api(passthrough("theirs", ipv4="10.8.0.0/24", ipv6="fd00:8::/64"))

BROKEN = replace(TENANTS, spec=Unusable(frozenset({Family.IPV6})))


def families(resolution: Resolution) -> tuple[BGPFamily, ...]:
    assert resolution.desired is not None
    assert resolution.desired.underlay is not None
    return resolution.desired.underlay.neighbors[0].families


@pytest.mark.parametrize("own", [(), (FROM_FILE,)], ids=["alone", "beside one of a file"])
@pytest.mark.parametrize("theirs", [TENANTS, BROKEN])
def test_a_passthrough_of_another_namespace_changes_no_session_of_the_fabric(
    own: tuple[Resource, ...], theirs: Resource
) -> None:
    before = strict(FABRIC, *own)
    resolution = strict(FABRIC, *own, theirs, standing=before.standing)
    assert families(resolution) == families(before) == (BGPFamily.IPV4_UNICAST,)
    assert in_force(resolution) == {one.name for one in own}
    if theirs is TENANTS:
        [problem] = errors(resolution.problems)
        assert named(problem) == "theirs"
        assert "L3Passthroughs of namespace tenant do not count on this node: create it in ns" in problem.message


def test_the_setting_lets_a_passthrough_count() -> None:
    grants = Grants.of(Settings.model_validate({"underlayNamespaces": ["tenant"], "namespace": "ns"}))
    resolution = strict(FABRIC, TENANTS, grants=grants)
    assert in_force(resolution) == {"theirs"}
    assert families(resolution) == (BGPFamily.IPV4_UNICAST, BGPFamily.IPV6_UNICAST)


def test_a_passthrough_that_is_in_force_stays_until_it_is_changed() -> None:
    before = solve(FABRIC, TENANTS)
    kept = strict(FABRIC, TENANTS, standing=before.standing)
    assert in_force(kept) == {"theirs"}
    assert families(kept) == families(before)
    assert errors(kept.problems) == []
    assert "it stays in force until it is changed" in messages_about(kept, "theirs")
    edited = from_api(passthrough("theirs", ipv4="10.7.0.0/24"))
    assert in_force(strict(FABRIC, edited, standing=kept.standing)) == set()


# Bridges of the host


def attached(bridge: str) -> Resource:
    return l2vni("seg", 5, hostMaster={"type": "LinuxBridge", "linuxBridge": {"lifecycle": "External", "name": bridge}})


@pytest.mark.parametrize("bridge", ["cni0", "docker0", "br0"])
def test_a_bridge_of_the_host_is_not_open_to_other_namespaces(bridge: str) -> None:
    resolution = strict(FABRIC, from_api(attached(bridge)))
    assert in_force(resolution) == set()
    text = messages_about(resolution, "seg")
    assert text == (
        f"the host's bridge {bridge} is not open to namespace tenant: add it to externalBridges in the node's settings"
    )
    [problem] = resolution.problems
    assert problem.field == "hostMaster.linuxBridge.name"


@pytest.mark.parametrize("segment", [attached("cni0"), from_api(attached("cni0"), "ns")], ids=["file", "own namespace"])
def test_an_administrator_may_use_any(segment: Resource) -> None:
    assert in_force(strict(FABRIC, segment)) == {"seg"}


@pytest.mark.parametrize(("patterns", "is_open"), [(["br0"], True), (["br*"], True), (["br"], False), (["*1"], False)])
def test_the_setting_opens_bridges(patterns: list[str], is_open: bool) -> None:
    grants = Grants.of(Settings.model_validate({"externalBridges": patterns, "namespace": "ns"}))
    assert in_force(strict(FABRIC, from_api(attached("br0")), grants=grants)) == ({"seg"} if is_open else set())


def test_a_managed_bridge_is_open_to_all() -> None:
    managed = {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}}
    assert in_force(strict(FABRIC, from_api(l2vni("seg", 5, hostMaster=managed)))) == {"seg"}


@pytest.mark.parametrize("allowed", [True, False])
def test_the_setting_lets_a_router_have_addresses_that_another_node_has(*, allowed: bool) -> None:
    assert Grants.of(Settings.model_validate({"allowDuplicateIndex": allowed})).duplicate_index is allowed
    assert not Grants.of(Settings()).duplicate_index


# Limits


def objects(namespace: str, count: int, kind: Kind = Kind.L3VNI) -> list[ApiObject]:
    return [ApiObject(kind, namespace, f"{number:05}") for number in range(count)]


def most(**limits: int) -> Grants:
    return Grants.of(Settings.model_validate({"maxResources": limits, "namespace": "ns"}))


def kept(
    found: list[ApiObject], grants: Grants, files: tuple[Resource, ...] = (), standing: Any = NOTHING_IN_FORCE
) -> tuple[list[str], tuple[Problem, ...]]:
    counted, problems = within_limits(files, found, standing, grants)
    return [f"{one.namespace}/{one.name}" for one in counted], problems


def test_within_the_limits_all_count() -> None:
    found = [*objects("a", 3), *objects("a", 3, Kind.L2VNI)]
    assert kept(found, most(l3vnis=3, l2vnis=3)) == ([f"a/{one.name}" for one in found], ())


def test_files_come_first() -> None:
    file = replace(FABRIC, kind=Kind.L3VNI)
    names, _ = kept(objects("a", 3), most(l3vnis=2), (file, replace(file, name="second")))
    assert names == []
    assert kept(objects("a", 3), most(l3vnis=2), (file,))[0] == ["a/00000"]


def test_what_is_in_force_comes_before_what_is_new() -> None:
    standing = MappingProxyType({ResourceId(Kind.L3VNI, "z", "00002"): None})
    names, _ = kept([*objects("a", 3), *objects("z", 3)], most(l3vnis=2), standing=standing)
    assert names == ["a/00000", "z/00002"]


@pytest.mark.parametrize("others", [(), (FABRIC,)], ids=["no underlay", "an underlay"])
def test_a_new_snippet_takes_the_place_of_none_in_force(others: tuple[Resource, ...]) -> None:
    snippets = [from_api(raw("b", "ip route 192.0.2.0/24 reject"), "ns"), from_api(raw("c"), "ns")]
    first = strict(*others, *snippets)
    found = [ApiObject(Kind.RAW_FRR_CONFIG, "ns", name) for name in "abc"]
    names, [problem] = kept(found, most(rawfrrconfigs=2), standing=first.standing)
    assert (names, named(problem)) == (["ns/b", "ns/c"], "a")
    assert ids_in_force(strict(*others, *snippets[:1], standing=first.standing)) == {
        one.id for one in (*others, *snippets[:1])
    }


def test_no_namespace_takes_the_places_of_the_others() -> None:
    names, _ = kept([*objects("a", 1000), *objects("m", 2), *objects("z", 1)], most(l3vnis=5))
    assert names == ["a/00000", "a/00001", "m/00000", "m/00001", "z/00000"]


def test_the_programs_own_namespace_comes_before_the_others() -> None:
    assert kept([*objects("a", 1000), *objects("ns", 2)], most(l3vnis=2))[0] == ["ns/00000", "ns/00001"]


def test_a_mirror_takes_no_second_place() -> None:
    file = replace(FABRIC, kind=Kind.L3VNI, namespace="a", name="00000")
    assert kept(objects("a", 2), most(l3vnis=2), (file,)) == (["a/00000", "a/00001"], ())


def test_the_surplus_is_named() -> None:
    _, problems = kept(objects("a", 100), most(l3vnis=10))
    assert [named(one) for one in problems] == [f"{number:05}" for number in range(10, 10 + NAMED + 1)]
    assert {one.severity for one in problems} == {Severity.ERROR}
    assert "this node takes at most 10 l3vnis; raise maxResources.l3vnis" in problems[0].message
    assert problems[-1].message.endswith("; the same is true of 70 more")
