"""When a fault counts, when a VNI is bounced, and when nothing more is tried."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from actors.health.repair import AT_ONCE, FORGET_SECONDS, GIVEN_UP, LASTING_SECONDS, PAUSES, Repairs
from actors.health.routes import VniFault
from config.desired import DesiredState
from config.outcomes import Bounce
from config.problems import ResourceId
from tests.actors.health.examples import RED, fabric

STATE = fabric()
PASSING = {RED: VniFault("a route is missing", in_frr=True, passing=True)}
STUCK = {RED: VniFault("bgpd has lost it", in_frr=True)}
KERNEL = {RED: VniFault("down: vni100 is down")}
NONE: frozenset[Bounce] = frozenset()


class Clock:
    """Polls the repairs as the actor does, with a frr actor that carries out each request before the next poll."""

    def __init__(self) -> None:
        self.repairs = Repairs()
        self.now = 100.0
        self.done: set[Bounce] = set()

    def poll(
        self,
        faults: dict[ResourceId, VniFault],
        seconds: float = 0.0,
        state: DesiredState = STATE,
        *,
        carry: bool = True,
    ) -> frozenset[Bounce]:
        self.now += seconds
        self.lasting = self.repairs.lasting(state, faults, self.now)
        wanted = {resource for resource, fault in self.lasting.items() if fault.in_frr}
        asked = self.repairs.requests(state, wanted, frozenset(self.done), self.now)
        if carry:
            self.done |= asked
        return asked


def test_a_passing_fault_counts_once_it_has_lasted() -> None:
    clock = Clock()
    clock.poll(PASSING)
    assert clock.lasting == {}
    clock.poll(PASSING, LASTING_SECONDS - 1)
    assert clock.lasting == {}
    clock.poll(PASSING, 1)
    assert clock.lasting == PASSING


def test_a_passing_fault_that_becomes_another_one_starts_again() -> None:
    clock = Clock()
    clock.poll(PASSING)
    clock.poll({RED: replace(PASSING[RED], text="another route is missing")}, LASTING_SECONDS)
    assert clock.lasting == {}


def test_a_passing_fault_that_comes_and_goes_never_counts() -> None:
    clock = Clock()
    for _ in range(10):
        clock.poll(PASSING, LASTING_SECONDS - 1)
        assert clock.lasting == {}
        clock.poll({}, 1)


def test_a_fault_that_does_not_pass_counts_at_once_but_is_bounced_only_when_it_has_lasted() -> None:
    clock = Clock()
    assert clock.poll(STUCK) == NONE
    assert clock.lasting == STUCK
    assert clock.poll(STUCK, LASTING_SECONDS) == {Bounce(100, 1)}


def test_what_the_kernel_lacks_is_never_bounced() -> None:
    clock = Clock()
    assert [clock.poll(KERNEL, 1000.0) for _ in range(5)] == [NONE] * 5


def test_a_request_stands_until_it_is_carried_out_or_the_fault_is_gone() -> None:
    clock = Clock()
    clock.poll(STUCK)
    request = {Bounce(100, 1)}
    assert clock.poll(STUCK, LASTING_SECONDS, carry=False) == request
    assert clock.poll(STUCK, 5.0, carry=False) == request
    assert clock.poll({}, 5.0) == NONE
    assert clock.poll(STUCK, 5.0) == NONE


def test_attempts_come_with_growing_pauses_and_then_end() -> None:
    clock = Clock()
    asked: list[tuple[float, int]] = []
    for _ in range(2000):
        asked += [(clock.now, request.attempt) for request in clock.poll(STUCK, 1.0) if request.attempt > len(asked)]
    times, numbers = zip(*asked, strict=True)
    assert numbers == tuple(range(1, len(PAUSES) + 1))
    assert [later - earlier for earlier, later in pairwise(times)] == list(PAUSES[:-1])
    assert clock.lasting[RED].text == STUCK[RED].text + GIVEN_UP


def given_up() -> Clock:
    clock = Clock()
    for _ in range(2000):
        clock.poll(STUCK, 1.0)
    return clock


def test_a_new_generation_starts_again_with_a_number_that_frr_has_not_had() -> None:
    clock, changed = given_up(), fabric(2)
    clock.poll(STUCK, 1.0, changed)
    assert clock.lasting == STUCK
    assert clock.poll(STUCK, LASTING_SECONDS, changed) == {Bounce(100, len(PAUSES) + 1)}


def test_a_restart_of_frr_starts_again() -> None:
    clock = given_up()
    clock.repairs.forget()
    clock.poll(STUCK, 1.0)
    assert clock.poll(STUCK, LASTING_SECONDS) == {Bounce(100, len(PAUSES) + 1)}


def test_a_vni_that_has_worked_for_long_starts_again_and_one_that_flaps_does_not() -> None:
    clock = given_up()
    clock.poll({}, FORGET_SECONDS / 2)
    clock.poll(STUCK, 1.0)
    assert clock.poll(STUCK, LASTING_SECONDS) == NONE
    clock.poll({}, 1.0)
    clock.poll({}, FORGET_SECONDS)
    clock.poll(STUCK, 1.0)
    assert clock.poll(STUCK, LASTING_SECONDS) == {Bounce(100, len(PAUSES) + 1)}


def test_only_some_vnis_are_bounced_at_once() -> None:
    red = STATE.l3vnis[0]
    many = tuple(
        replace(red, vni=1000 + i, vrf=f"v{i}", resource=replace(red.resource, name=f"v{i}"))
        for i in range(5 * AT_ONCE)
    )
    state = replace(STATE, l3vnis=many)
    faults = {vni.resource: STUCK[RED] for vni in many}
    clock, bounced = Clock(), set[int]()
    clock.poll(faults, 0.0, state)
    for _ in range(12):
        asked = clock.poll(faults, LASTING_SECONDS / 10, state, carry=False)
        assert len(asked) <= AT_ONCE
    for _ in range(20):
        asked = clock.poll(faults, LASTING_SECONDS / 10, state)
        bounced |= {request.vni for request in asked}
        assert len(asked) <= AT_ONCE
    assert bounced == {vni.vni for vni in many}
