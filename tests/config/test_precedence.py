"""Who wins a clash: what is in force, then files, then names; and that it stays so."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from config.models import L2Vni
from config.precedence import NOTHING_IN_FORCE, Precedence, Rank, Standing, digest
from config.problems import Kind, ResourceId, Severity, errors
from config.resolve.resolution import Resolution, resolve
from config.resources import Resource
from tests.cluster.corpus import GOOD

from .samples import (
    MODELS,
    NODE,
    OPEN,
    from_api,
    ids_in_force,
    l2vni,
    l3vni,
    make,
    named,
    neighbor,
    passthrough,
    session,
    solve,
    underlay,
    unusable,
)

solve_all = partial(resolve, grants=OPEN)


def bridged(name: str, vni: int, bridge: str | None = None) -> Resource:
    linux = {"lifecycle": "External", "name": bridge} if bridge else {"lifecycle": "Managed"}
    return l2vni(name, vni, hostMaster={"type": "LinuxBridge", "linuxBridge": linux})


def with_session(name: str, vni: int, pool: str) -> Resource:
    return l3vni(name, vni, hostSession=session(pool))


RED = l3vni("red", 9, vrf="red")
#: Pairs of which one can be in force at most.
CLASHES = {
    "VNI of two L3VNIs": (l3vni("a", 1), l3vni("b", 1)),
    "VNI of an L3VNI and an L2VNI": (l3vni("a", 1), l2vni("b", 1)),
    "VRF": (l3vni("a", 1, vrf="x"), l3vni("b", 2, vrf="x")),
    "pools of two L3VNIs": (with_session("a", 1, "10.0.0.0/16"), with_session("b", 2, "10.0.9.0/24")),
    "pools of an L3VNI and a passthrough": (with_session("a", 1, "172.26.0.0/16"), passthrough("b")),
    "passthroughs": (passthrough("a"), passthrough("b", ipv4="10.0.0.0/24")),
    "bridges": (bridged("a", 5), bridged("b", 6, "br-hs-5")),
    "subnets": (l2vni("a", 5, "red", gatewayIPs=["10.0.0.1/24"]), l2vni("b", 6, "red", gatewayIPs=["10.0.0.9/25"])),
    "underlays": (underlay("a"), underlay("b")),
}


def beside(*resources: Resource) -> list[Resource]:
    """Return resources with what they need to be in force."""
    needed = [] if any(one.kind is Kind.UNDERLAY for one in resources) else [underlay("z")]
    domains = [RED] if any(one.kind is Kind.L2VNI and one.spec.routing_domain for one in resources) else []
    return [*resources, *needed, *domains]


@pytest.mark.parametrize("clash", CLASHES.values(), ids=CLASHES)
@pytest.mark.parametrize("reverse", [False, True], ids=["a first", "b first"])
@pytest.mark.parametrize("first_is_from_api", [False, True], ids=["file first", "API first"])
def test_what_is_in_force_stays_and_both_have_a_message(
    clash: tuple[Resource, Resource], reverse: bool, first_is_from_api: bool
) -> None:
    first, newcomer = reversed(clash) if reverse else clash
    if first_is_from_api:
        first = from_api(first, "ns")
    else:
        newcomer = from_api(newcomer, "ns")
    alone = solve(*beside(first))
    assert first.id in ids_in_force(alone)
    both = solve(*beside(first, newcomer), standing=alone.standing)
    assert ids_in_force(both) == ids_in_force(alone)
    assert {(named(one), one.severity) for one in both.problems} == {
        (first.name, Severity.WARNING),
        (newcomer.name, Severity.ERROR),
    }
    for problem in both.problems:
        other = newcomer if named(problem) == first.name else first
        assert f"{other.kind} {'ns/' if not other.origin.path else ''}{other.name}" in problem.message


@pytest.mark.parametrize("clash", CLASHES.values(), ids=CLASHES)
@pytest.mark.parametrize("reverse", [False, True], ids=["a from a file", "b from a file"])
def test_at_a_tie_a_file_comes_before_the_api(clash: tuple[Resource, Resource], reverse: bool) -> None:
    file, api = reversed(clash) if reverse else clash
    assert file.id in ids_in_force(solve(*beside(file, from_api(api, "ns"))))


def test_of_two_in_force_the_one_that_was_edited_loses() -> None:
    first = solve(underlay(), l3vni("a", 1), l3vni("b", 2))
    edited = solve(underlay(), l3vni("a", 2), l3vni("b", 2), standing=first.standing)
    assert {named(one) for one in errors(edited.problems)} == {"a"}


def test_an_edited_resource_comes_before_a_new_one() -> None:
    first = solve(underlay(), l3vni("b", 1))
    both = solve(underlay(), l3vni("b", 2), l3vni("a", 2), standing=first.standing)
    assert {named(one) for one in errors(both.problems)} == {"a"}


def test_a_resource_takes_its_place_along_when_it_moves_to_a_file() -> None:
    first = solve(underlay(), from_api(l3vni("b", 1, vrf="b")))
    moved = solve(underlay(), l3vni("z", 1, vrf="b"), l3vni("a", 1), standing=first.standing)
    assert {named(one) for one in errors(moved.problems)} == {"a"}


def test_an_entry_keeps_its_place_when_another_one_takes_its_name() -> None:
    """Entries of files are numbered where they have no name of their own."""
    first = solve(underlay(), l3vni("static-node-x", 1, vrf="old"))
    shifted = solve(
        underlay(), l3vni("static-node-x", 1, vrf="new"), l3vni("static-node-x-b", 1, vrf="old"),
        standing=first.standing,
    )  # fmt: skip
    assert {named(one) for one in errors(shifted.problems)} == {"static-node-x"}


def test_a_copy_in_the_api_does_not_inherit_from_what_is_only_edited() -> None:
    first = solve(underlay(), from_api(l3vni("mine", 1, vrf="v")))
    copy = from_api(l3vni("copy", 1, vrf="v"), "another")
    edited = from_api(l3vni("mine", 1, vrf="v", exportRTs=["1:1"]))
    assert ids_in_force(solve(underlay(), edited, copy, standing=first.standing)) == {underlay().id, edited.id}


def test_a_segment_is_no_older_than_its_routing_domain() -> None:
    """The segment's number was there first, but what it belongs to is as new as the other claimant."""
    first = solve(underlay(), l3vni("red", 1), l2vni("seg", 7, "red"))
    edited = solve(underlay(), l3vni("red", 7), l2vni("seg", 7, "red"), standing=first.standing)
    assert {named(one) for one in errors(edited.problems)} == {"seg"}


def test_without_an_underlay_precedence_is_kept() -> None:
    first = solve(underlay(), l3vni("b", 1))
    gap = solve(l3vni("a", 1), l3vni("b", 1), standing=first.standing)
    again = solve(underlay(), l3vni("a", 1), l3vni("b", 1), standing=gap.standing)
    assert {named(one) for one in errors(again.problems)} == {"a"}


def test_an_unusable_underlay_changes_nothing_about_who_was_first() -> None:
    first = solve(underlay(), l3vni("b", 1))
    assert solve(unusable(Kind.UNDERLAY, "underlay"), l3vni("a", 1), standing=first.standing).standing == first.standing


def test_ranks() -> None:
    old, edited, new = l3vni("old", 1), l3vni("edited", 2), l3vni("new", 3)
    standing = solve(underlay(), old, l3vni("edited", 4)).standing
    precedence = Precedence([old, edited, new], standing)
    assert [precedence.rank(one) for one in (old, edited, new)] == [Rank.UNCHANGED, Rank.CHANGED, Rank.NEW]


def test_a_digest_distinguishes_contents_and_contains_no_secrets() -> None:
    def password(text: str) -> Resource:
        return underlay(neighbors=[neighbor(password=text)])

    assert digest(password("one")) == digest(password("two")) != digest(underlay())
    only = {"nodeSelector": {"matchLabels": {"zone": "a"}}}
    assert digest(l3vni("a", 1, **only)) == digest(l3vni("a", 1)) != digest(l3vni("a", 2))
    assert digest(unusable(Kind.L3VNI)) == ""


@pytest.mark.parametrize("kind", MODELS)
def test_a_digest_is_of_what_pydantic_would_write(kind: Kind) -> None:
    """Earlier versions had that written, so a digest of theirs must still be known."""
    for spec in GOOD[kind]:
        resource = make(kind, "one", spec)
        written = resource.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"node_selector"})
        assert digest(resource) == hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest(), spec


def test_a_digest_makes_no_serializer() -> None:
    """That takes milliseconds for each model, which the event loop would wait for at each start."""
    program = (
        "from config.models import L3Vni; from config.precedence import digest; from config.problems import *;"
        "from config.resources import Resource;"
        "spec = L3Vni.model_construct(vrf='red', vni=1);"
        "digest(Resource(Kind.L3VNI, 'ns', 'red', Origin('f.yaml', 1, 1), spec, 'red'));"
        "print(L3Vni.__pydantic_complete__)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"False\n"


_NAMES = st.sampled_from("abcd")
_PLACES = st.sampled_from(["file", "ns", "tenant", "other"])
_VNIS = st.integers(1, 5)
_POOLS = st.sampled_from([None, "10.0.0.0/24", "10.0.0.0/16", "10.1.0.0/24"])
_GATEWAYS = st.sampled_from([[], ["10.0.0.1/24"], ["10.7.0.1/24"]])
_BRIDGES = st.sampled_from([None, {"lifecycle": "Managed"}, {"lifecycle": "External", "name": "br-hs-1"}])


@st.composite
def _resources(draw: st.DrawFn) -> Resource:
    name, place, kind = draw(_NAMES), draw(_PLACES), draw(st.sampled_from(["l3", "l3", "l2", "l2", "pass"]))
    match kind:
        case "l3":
            pool = draw(_POOLS)
            fields: dict[str, Any] = {"hostSession": session(pool)} if pool else {}
            resource = l3vni(name, draw(_VNIS), vrf=draw(st.sampled_from("rst")), **fields)
        case "l2":
            domain, bridge = draw(st.none() | _NAMES), draw(_BRIDGES)
            fields = {"gatewayIPs": draw(_GATEWAYS)} if domain else {}
            if bridge:
                fields["hostMaster"] = {"type": "LinuxBridge", "linuxBridge": bridge}
            resource = l2vni(name, draw(_VNIS), domain, **fields)
        case _:
            resource = passthrough(name, ipv4=draw(st.sampled_from(["10.1.0.0/24", "10.9.0.0/24"])))
    if place != "file":
        return from_api(resource, place)
    return make(resource.kind, f"static-node-{name}", resource.spec.model_dump(by_alias=True, exclude_none=True))


@st.composite
def _underlays(draw: st.DrawFn) -> Resource:
    place, name = draw(_PLACES), draw(_NAMES)
    resource = underlay(name, asn=draw(st.integers(1, 2)))
    return resource if place == "file" else from_api(resource, place)


def _unique(resources: list[Resource]) -> list[Resource]:
    return list({resource.id: resource for resource in resources}.values())


_SETS = st.tuples(st.lists(_underlays(), min_size=1, max_size=3), st.lists(_resources(), max_size=9)).map(
    lambda parts: _unique([*parts[0], *parts[1]])
)


def _standing(resources: list[Resource]) -> Standing:
    return solve_all(resources, NODE).standing


@given(_SETS, _SETS, st.randoms(use_true_random=False))
def test_the_order_of_resources_means_nothing_whatever_was_in_force(
    before: list[Resource], resources: list[Resource], random: Any
) -> None:
    standing = _standing(before)
    shuffled = list(resources)
    random.shuffle(shuffled)
    assert solve_all(shuffled, NODE, standing=standing) == solve_all(resources, NODE, standing=standing)


@given(_SETS, _SETS)
def test_what_was_decided_stays_decided(before: list[Resource], resources: list[Resource]) -> None:
    first = solve_all(resources, NODE, standing=_standing(before))
    again = solve_all(resources, NODE, standing=first.standing)
    assert again.desired == first.desired
    assert again.standing == first.standing
    assert {str(one.origin) for one in errors(again.problems)} == {str(one.origin) for one in errors(first.problems)}


@given(_SETS, _SETS)
def test_a_newcomer_takes_nothing_out_of_force(resources: list[Resource], more: list[Resource]) -> None:
    """But for a segment that thereby means a nearer network of the same name."""
    first = solve_all(resources, NODE)
    everything = _unique([*resources, *(one for one in more if one.id not in {old.id for old in resources})])
    both = solve_all(everything, NODE, standing=first.standing)
    assume(_domains(first).items() <= _domains(both).items() or not _meanings(resources, everything))
    assert ids_in_force(first) <= ids_in_force(both)


def _domains(resolution: Resolution) -> dict[ResourceId, ResourceId | None]:
    return {one: held.domain for one, held in resolution.standing.items() if one.kind is Kind.L2VNI}


def _meanings(before: list[Resource], after: list[Resource]) -> bool:
    """Whether some segment's routing domain may mean something else now: an L3VNI of that name is new."""
    new = {one.name.removeprefix("static-node-") for one in after if one.kind is Kind.L3VNI and one not in before}
    segments = (one.spec for one in before if isinstance(one.spec, L2Vni))
    return any(
        one.routing_domain and one.routing_domain.l3vni and one.routing_domain.l3vni.name in new for one in segments
    )


@given(_SETS)
def test_with_nothing_in_force_files_lose_nothing_to_the_api(resources: list[Resource]) -> None:
    files = [one for one in resources if one.origin.path]
    assume(any(one.kind is Kind.UNDERLAY for one in files))
    alone = ids_in_force(solve_all(files, NODE))
    assert alone <= ids_in_force(solve_all(resources, NODE))


@given(_SETS, _SETS)
def test_a_refused_resource_blocks_no_other_whatever_was_in_force(
    before: list[Resource], resources: list[Resource]
) -> None:
    standing = _standing(before)
    resolution = solve_all(resources, NODE, standing=standing)
    refused = [one for one in resources if one.id not in ids_in_force(resolution)]
    for one in refused:
        if one.kind is Kind.L3VNI:
            continue  # what names it may then find another one of that name
        rest = [other for other in resources if other is not one]
        # The place of a resource that is gone goes to one with the same content.
        held = {key: value for key, value in standing.items() if key != one.id}
        assert ids_in_force(solve_all(rest, NODE, standing=held)) == ids_in_force(resolution)


def test_nothing_is_in_force_at_first() -> None:
    assert Precedence([l3vni("a", 1)]).standing == NOTHING_IN_FORCE
