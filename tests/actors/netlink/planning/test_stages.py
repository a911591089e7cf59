"""What waits for FRR: routes until zebra knows the VRF, moves until FRR has removed the VNI, passes for its turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from actors.netlink.actor import LONGEST_PASS_SECONDS, _ControlLoop, outcome_of
from actors.netlink.converge import PassResult, converge
from actors.netlink.planning.observed import Link, LinkKind, Namespace
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import (
    AddAddress,
    AddUnreachable,
    AwaitZebra,
    ChangeLink,
    CreateLink,
    DeleteLinks,
    RemoveUnreachable,
    Step,
)
from config.desired import DesiredL3VNI, DesiredState, Family, HostMasterKind
from tests.actors.netlink.builders import demo, l2vni, l3vni, node, state, underlay
from tests.fakes.kernel import FakeKernel

ROUTER = Namespace.ROUTER


def settled(desired: DesiredState) -> FakeKernel:
    kernel = node()
    assert converge(desired, kernel).clean
    return kernel


def steps_of(desired: DesiredState, kernel: FakeKernel) -> tuple[Step, ...]:
    return plan(desired, kernel.observe(desired)).steps


def both(*vnis: DesiredL3VNI) -> DesiredState:
    return state(2, l3vnis=vnis, l2vnis=(l2vni(),))


def pairs(vni: int) -> tuple[tuple[str, str], ...]:
    return ((f"172.26.{vni}.1/24", f"172.26.{vni}.2/24"),)


RED, GREEN = l3vni("red", 100, pairs=pairs(100)), l3vni("green", 101, pairs=pairs(101))
MOVES: dict[str, tuple[DesiredState, set[int]]] = {
    "moved": (both(replace(GREEN, vni=100), replace(RED, vni=102)), {100}),
    "swapped": (both(replace(GREEN, vni=100), replace(RED, vni=101)), {100, 101}),
    "renamed": (replace(both(GREEN, replace(RED, vrf="crimson")), l2vnis=(l2vni(vrf="crimson"),)), {100}),
    "vtep": (
        state(
            2,
            underlay=underlay("toswitch1", vteps=("100.65.0.9/32",)),
            l3vnis=(replace(GREEN, vtep=ip_address("100.65.0.9")), replace(RED, vtep=ip_address("100.65.0.9"))),
        ),
        {100, 101},
    ),
    "port": (both(GREEN, replace(RED, vxlan_port=4790)), {100}),
    "from a segment": (replace(both(GREEN, RED, l3vni("blue", 110, pairs=())), l2vnis=()), {110}),
}


def test_zebra_knows_all_new_vrfs_before_anything_makes_routes_in_their_tables() -> None:
    steps = steps_of(both(GREEN, RED), node())
    [waiting] = [step for step in steps if isinstance(step, AwaitZebra)]
    assert waiting.vrfs == ("green", "red")
    at = steps.index(waiting)
    assert {step.wanted.name for step in steps[:at] if isinstance(step, CreateLink)} == {"green", "red"}
    later = (AddUnreachable, AddAddress)
    assert not [step for step in steps[:at] if isinstance(step, later) and "100.65.0.0/32" not in str(step)]


def test_nothing_waits_for_zebra_when_no_vrf_is_new() -> None:
    kernel = settled(both(GREEN, RED))
    assert not [step for step in steps_of(both(GREEN), kernel) if isinstance(step, AwaitZebra)]


def test_a_process_that_was_killed_before_it_waited_for_zebra_waits_in_its_next_life() -> None:
    desired, kernel = both(RED), node()
    for step in steps_of(desired, kernel):
        if isinstance(step, AwaitZebra):
            break
        kernel.apply(step)
    assert (ROUTER, "red") in kernel.links
    assert AwaitZebra(("red",)) in steps_of(desired, kernel)


@pytest.fixture
def slow_zebra(monkeypatch: pytest.MonkeyPatch) -> int:
    """zebra is waited for after so many devices."""
    monkeypatch.setattr("actors.netlink.planning.plan.DEVICES", 5)
    monkeypatch.setattr("actors.netlink.planning.plan.ZEBRA_WORK", 0)
    monkeypatch.setattr("actors.netlink.planning.plan_links.DEVICES", 5)
    return 5


def tenants(count: int) -> DesiredState:
    return state(2, l3vnis=tuple(l3vni(f"t{n}", 1000 + n, pairs=pairs(n % 256)) for n in range(count)))


def parts_of(steps: Sequence[Step]) -> list[list[Step]]:
    """Return the steps between waits for zebra."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        if isinstance(step, AwaitZebra):
            parts.append([])
        else:
            parts[-1].append(step)
    return parts


def test_zebra_can_follow_when_many_networks_come(slow_zebra: int) -> None:
    desired, kernel = tenants(12), node()
    steps = steps_of(desired, kernel)
    parts = parts_of(steps)
    made = [[step for step in part if isinstance(step, CreateLink)] for part in parts]
    # A unit is not divided, and the largest here makes three devices.
    assert max(map(len, made)) < slow_zebra + 3
    assert sum(map(len, made)) == 4 * 12
    waits = [at for at, step in enumerate(steps) if step == AwaitZebra(())]
    assert waits
    assert not [at for at in waits if steps[at - 1].unit == steps[at + 1].unit]
    assert converge(desired, kernel).clean


def test_zebra_can_follow_when_many_networks_go(slow_zebra: int) -> None:
    kernel = settled(tenants(12))
    parts = parts_of(steps_of(tenants(1), kernel))
    gone = [[step for step in part if isinstance(step, DeleteLinks)] for part in parts]
    assert max(sum(len(step.names) for step in part) for part in gone) < 2 * slow_zebra
    assert sum(map(len, gone)) > 9
    assert converge(tenants(1), kernel).clean
    assert not [link for link in kernel.links.values() if link.kind == LinkKind.VRF and link.name != "t0"]


@pytest.mark.parametrize(("before", "after"), [(0, 4), (4, 1)])
def test_any_prefix_of_a_plan_in_parts_and_planning_again_converge(slow_zebra: int, before: int, after: int) -> None:
    start, whole = settled(tenants(before)), settled(tenants(after)).links.keys()
    steps = steps_of(tenants(after), start)
    assert AwaitZebra(()) in steps
    for length in range(len(steps) + 1):
        kernel = start.copy()
        for step in steps[:length]:
            kernel.apply(step)
        assert converge(tenants(after), kernel).clean
        assert kernel.links.keys() == whole


@pytest.mark.parametrize(
    ("seconds", "waited", "reason"),
    [
        (0.0, True, ""),
        (LONGEST_PASS_SECONDS + 1, True, "another look at it is due after 121 s"),
        (LONGEST_PASS_SECONDS + 1, False, ""),
    ],
)
async def test_a_pass_ends_early_for_frr_or_after_long_work_once_zebra_has_answered(
    seconds: float, *, waited: bool, reason: str
) -> None:
    changing, loop = control_loop(router_is_current=True)
    assert loop._why_stop(time.monotonic() - seconds, waited=waited) == reason
    async with changing, trio.open_nursery() as nursery:
        nursery.start_soon(changing.acquire)
        await trio.testing.wait_all_tasks_blocked()
        assert loop._why_stop(time.monotonic() - seconds, waited=waited) == "FRR is next"
        nursery.cancel_scope.cancel()


async def test_a_pass_ends_early_when_the_namespace_is_another_one() -> None:
    _, loop = control_loop(router_is_current=False)
    assert "namespace was deleted or replaced" in loop._why_stop(time.monotonic(), waited=False)


def control_loop(*, router_is_current: bool) -> tuple[trio.Lock, _ControlLoop]:
    """Return the lock that it needs, and a loop that can say nothing but why a pass has to stop."""
    changing, nothing = trio.Lock(), cast("Any", None)
    kernel = cast("Any", SimpleNamespace(router_is_current=lambda: router_is_current))
    return changing, _ControlLoop(nothing, kernel, nothing, nothing, changing, nothing, 60.0, nothing, nothing)


def test_passes_that_always_take_long_come_to_an_end(slow_zebra: int) -> None:
    desired, kernel = tenants(12), node()
    results: list[PassResult] = []
    while not results or results[-1].interrupted:
        results.append(converge(desired, kernel, stop=lambda waited: "late" if waited else ""))
        assert results[-1].writes
    assert results[-1].clean
    assert len(results) > 5


def test_what_is_refused_at_length_is_reported_rather_than_tried_again_at_once() -> None:
    desired, kernel = both(RED, GREEN), settled(both(RED, GREEN))
    more = both(RED, GREEN, l3vni("new", 103, pairs=pairs(103)))
    del kernel.links[ROUTER, "vni100"]
    kernel.fail = {str(step) for step in steps_of(desired, kernel) if isinstance(step, CreateLink)}
    result = converge(more, kernel, stop=lambda waited: "late" if waited else "")
    assert result.interrupted == "late"
    result = converge(more, kernel, stop=lambda waited: "late" if waited else "")
    assert (result.interrupted, {failure.resource.name for failure in result.failures}) == ("", {"red", "blue"})


def test_zebra_is_waited_for_less_often_while_there_are_few_devices() -> None:
    sizes = []
    for networks in (100, 600):
        parts = parts_of(steps_of(tenants(networks), node()))
        sizes.append([sum(isinstance(step, CreateLink) for step in part) for part in parts])
    # All VRFs of 100 networks, then all else; with 2,400 devices the last parts are the smallest.
    assert sizes[0] == [100, 300]
    assert 390 <= sizes[1][0] <= 410
    assert max(sizes[1][-5:-1]) <= 100 + 3


def test_nothing_waits_for_zebra_after_the_last_part(slow_zebra: int) -> None:
    steps = steps_of(both(RED, GREEN), node())
    assert isinstance(steps[-1], CreateLink | ChangeLink | AddAddress)


def test_a_vrf_goes_after_all_that_is_in_it_and_after_its_unreachable_defaults() -> None:
    kernel = settled(demo())
    steps = steps_of(state(), kernel)
    [slaves, vrfs] = [step for step in steps if isinstance(step, DeleteLinks) and step.namespace is ROUTER]
    assert vrfs.names == ("red",)
    removed = [steps.index(step) for step in steps if isinstance(step, RemoveUnreachable)]
    assert len(removed) == len(Family)
    assert steps.index(slaves) < min(removed) <= max(removed) < steps.index(vrfs)


def test_a_vrf_that_gets_the_table_of_one_that_goes_gets_its_own_unreachable_defaults() -> None:
    kernel = settled(state(1, l3vnis=(l3vni(),)))
    renamed = state(2, l3vnis=(l3vni(vrf="crimson"),))
    table = kernel.links[ROUTER, "red"].table
    # Nothing of ours is in it.
    for name in ("br-pe-100", "pe-e-100"):
        kernel.links.pop((ROUTER, name))
    kernel.links.pop((Namespace.HOST, "host-e-100"))
    assert converge(renamed, kernel).clean
    assert kernel.links[ROUTER, "crimson"].table == table
    assert kernel.known_to_zebra == {"red", "crimson"}
    assert {found for _, found in kernel.unreachable} == {table}


INSIDE = ("br-pe-100", "pe-e-100", "br-pe-110")
CRIMSON = state(2, l3vnis=(l3vni(vrf="crimson"),), l2vnis=(l2vni(vrf="crimson"),))


def masters(kernel: FakeKernel) -> dict[str, str]:
    return {name: kernel.links[ROUTER, name].master for name in INSIDE}


def test_devices_go_from_one_vrf_to_another_without_being_in_the_underlays() -> None:
    kernel = settled(demo())
    seen: list[dict[str, str]] = []

    def watched(steps: Sequence[Step], apply_all: Any = kernel.apply_all) -> Any:
        done = apply_all(steps)
        seen.append(masters(kernel))
        return done

    kernel.apply_all = watched  # type: ignore[method-assign,assignment]
    assert converge(replace(CRIMSON, passthrough=demo().passthrough), kernel).clean
    assert {master for now in seen for master in now.values()} == {"red", "crimson"}
    assert seen[-1] == dict.fromkeys(INSIDE, "crimson")
    assert (ROUTER, "red") not in kernel.links
    assert {table for _, table in kernel.unreachable} == {kernel.links[ROUTER, "crimson"].table}


def test_what_cannot_move_stays_in_its_vrf() -> None:
    kernel = settled(demo())
    kernel.add(ROUTER, Link(0, "crimson", kind="dummy"))
    result = converge(CRIMSON, kernel)
    assert {failure.resource.name for failure in result.failures} == {"red", "blue"}
    assert masters(kernel) == dict.fromkeys(INSIDE, "red")
    assert {table for _, table in kernel.unreachable} == {kernel.links[ROUTER, "red"].table}
    assert "then router: delete red, when nothing of ours is in it any more" in result.plan.text
    del kernel.links[ROUTER, "crimson"]
    assert converge(CRIMSON, kernel).clean
    assert masters(kernel) == dict.fromkeys(INSIDE, "crimson")
    assert (ROUTER, "red") not in kernel.links


def test_a_segment_that_fails_keeps_the_vrf_that_its_network_leaves() -> None:
    kernel = settled(demo())
    external = l2vni(vrf="crimson", master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0")
    renamed = replace(CRIMSON, l2vnis=(external,))
    result = converge(renamed, kernel)
    assert {failure.resource.name for failure in result.failures} == {"blue"}
    assert masters(kernel) == {"br-pe-100": "crimson", "pe-e-100": "crimson", "br-pe-110": "red"}
    tables = {kernel.links[ROUTER, vrf].table for vrf in ("red", "crimson")}
    assert len(tables) == 2
    assert {table for _, table in kernel.unreachable} == tables
    # The workloads of a segment that works keep their bridge as well.
    assert kernel.links[Namespace.HOST, "host-e-110"].master == "br-hs-110"
    kernel.add(Namespace.HOST, Link(0, "br0", kind=LinkKind.BRIDGE, up=True))
    assert converge(renamed, kernel).clean
    assert masters(kernel) == dict.fromkeys(INSIDE, "crimson")
    assert {(ROUTER, "red"), (Namespace.HOST, "br-hs-110")}.isdisjoint(kernel.links)


@pytest.mark.parametrize("refused", ["router: create vrf crimson", "router: set br-pe-110 master crimson"])
def test_a_refusal_in_the_middle_leaves_devices_in_their_vrf(refused: str) -> None:
    kernel = settled(demo())
    kernel.fail = {str(step) for step in steps_of(CRIMSON, kernel) if str(step).startswith(refused)}
    assert kernel.fail
    converge(CRIMSON, kernel)
    assert set(masters(kernel).values()) <= {"red", "crimson"}
    assert masters(kernel)["br-pe-110"] == "red"
    kernel.fail = set()
    assert converge(CRIMSON, kernel).clean
    assert masters(kernel) == dict.fromkeys(INSIDE, "crimson")


@pytest.mark.parametrize("name", MOVES)
def test_devices_stay_where_they_are_until_frr_has_removed_their_vnis(name: str) -> None:
    desired, moving = MOVES[name]
    kernel = settled(both(GREEN, RED))
    keys = [(ROUTER, device) for vni in moving for device in (f"br-pe-{vni}", f"vni{vni}")]
    before = {key: (kernel.links[key], kernel.addresses.get(key)) for key in keys}
    result = converge(desired, kernel, withdrawn=frozenset())
    outcome = outcome_of(desired, result)
    assert outcome.withdraw == moving
    assert not outcome.applied
    assert "moved once FRR has removed it" in outcome.error
    assert {key: (kernel.links[key], kernel.addresses.get(key)) for key in keys} == before
    assert all(kernel.links[key].master in {"", *(link for _, link in kernel.links)} for key in keys)


@pytest.mark.parametrize("name", MOVES)
def test_what_is_held_back_ends_where_one_plan_would(name: str) -> None:
    desired, moving = MOVES[name]
    whole, staged = settled(both(GREEN, RED)), settled(both(GREEN, RED))
    assert converge(desired, whole).clean
    converge(desired, staged, withdrawn=frozenset())
    outcome = outcome_of(desired, converge(desired, staged, withdrawn=frozenset(moving)))
    assert (outcome.applied, outcome.withdraw) == (True, frozenset())
    assert staged.fingerprint() == whole.fingerprint()
    assert converge(desired, staged, withdrawn=frozenset()).writes == 0


def test_another_tenant_is_served_while_one_waits() -> None:
    kernel = settled(both(GREEN, RED))
    desired = both(replace(GREEN, vxlan_port=4790), RED, l3vni("new", 103, pairs=pairs(103)))
    converge(desired, kernel, withdrawn=frozenset())
    assert kernel.links[ROUTER, "vni103"].master == "br-pe-103"
    kept = kernel.links[ROUTER, "vni101"].vxlan
    assert kept is not None
    assert kept.port == 4789


def test_removed_and_new_vnis_wait_for_nothing() -> None:
    kernel = settled(both(GREEN, RED))
    outcome = outcome_of(both(RED), converge(both(RED, l3vni("new", 103, pairs=())), kernel, withdrawn=frozenset()))
    assert (outcome.applied, outcome.withdraw) == (True, frozenset())


def test_a_device_that_is_in_no_master_yet_is_not_moved() -> None:
    kernel = settled(both(GREEN, RED))
    kernel.apply(ChangeLink(ROUTER, "vni100", master=""))
    assert converge(both(GREEN, RED), kernel, withdrawn=frozenset()).clean
    assert kernel.links[ROUTER, "vni100"].master == "br-pe-100"


def after(count: int) -> Callable[[bool], str]:
    calls = iter(range(10_000))
    return lambda _: "enough" if next(calls) >= count else ""


@pytest.mark.parametrize("count", range(0, 14, 3))
def test_a_pass_that_ends_early_ends_between_two_resources_and_the_next_one_completes_it(count: int) -> None:
    kernel, whole = node(), settled(demo())
    first = converge(demo(), kernel, stop=after(count))
    assert bool(first.interrupted) == (converge(demo(), kernel.copy()).writes != 0)
    if first.interrupted:
        nic = (ROUTER, "toswitch1")
        assert nic not in kernel.links or kernel.links[nic].up
    assert converge(demo(), kernel).clean
    assert kernel.fingerprint() == whole.fingerprint()


def test_the_kind_of_a_device_counts_as_well() -> None:
    kernel = settled(both(GREEN, RED))
    key = (ROUTER, "vni100")
    kernel.links[key] = replace(kernel.links[key], kind=LinkKind.BRIDGE, vxlan=None)
    assert plan(both(GREEN, RED), kernel.observe(both(GREEN, RED)), frozenset()).held == {100}


def test_a_vrf_stays_while_a_device_in_it_cannot_be_deleted(slow_zebra: int) -> None:
    kernel = settled(tenants(12))
    deletions = [step for step in steps_of(tenants(1), kernel) if isinstance(step, DeleteLinks)]
    refused = [step for step in deletions if "br-pe-1011" in step.names]
    assert refused[0].unit != deletions[0].unit
    kernel.fail = {str(step) for step in refused}
    result = converge(tenants(1), kernel)
    assert len(result.errors) == len(refused)
    assert kernel.links[ROUTER, "br-pe-1011"].master == "t11"
    table = kernel.links[ROUTER, "t11"].table
    assert {family for family, found in kernel.unreachable if found == table} == set(Family)
    kernel.fail = set()
    assert converge(tenants(1), kernel).clean
