"""Batches do what steps one by one do: in any order of units, wherever they end, and whatever the kernel refuses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.netlink import converge as converge_module
from actors.netlink.converge import Applied, apply_plan, converge, groups
from actors.netlink.kernel import Refusal
from actors.netlink.planning.observed import Link, Namespace
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import AwaitZebra, CreateLink, DeleteLinks, Step
from config.desired import DesiredState
from config.problems import Kind
from tests.actors.netlink.builders import demo, l2vni, l3vni, state
from tests.actors.netlink.random_states import EXTERNAL, NICS, desired_states
from tests.fakes.kernel import FakeKernel, one_by_one


class Killed(BaseException):
    """The process ends here."""


class Recording(FakeKernel):
    """A fake kernel that keeps the batches, and ends the process after ``left`` steps."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[Step, ...]] = []
        self.left = 1 << 30

    def apply_all(self, batch: Sequence[Step]) -> list[Refusal | None]:
        self.batches.append(tuple(batch))
        results = one_by_one(self, batch[: self.left])
        self.left -= len(results)
        if len(results) < len(batch):
            raise Killed
        return results


def node() -> Recording:
    kernel = Recording()
    for nic, mtu in NICS.items():
        kernel.add(Namespace.HOST, Link(0, nic, up=True, mtu=mtu))
    kernel.add(Namespace.HOST, Link(0, EXTERNAL, kind="bridge", up=True))
    return kernel


def many(count: int) -> DesiredState:
    return state(
        l3vnis=tuple(
            l3vni(
                f"t{number}",
                1000 + number,
                pairs=((f"10.{number // 250}.{number % 250}.1/24", f"10.{number // 250}.{number % 250}.2/24"),),
            )
            for number in range(count)
        )
    )


def apply(desired: DesiredState, kernel: FakeKernel) -> Applied:
    return apply_plan(plan(desired, kernel.observe(desired)), kernel)


def one_at_a_time(desired: DesiredState, kernel: FakeKernel) -> Applied:
    with patch.object(converge_module, "BATCHED", ()):
        return apply(desired, kernel)


def test_batches_grow_with_the_resources_and_their_number_does_not() -> None:
    kernel, larger = node(), node()
    converge(many(20), kernel)
    converge(many(100), larger)
    assert len(larger.applied) > 4 * len(kernel.applied)
    assert len(larger.batches) == len(kernel.batches)
    # The loopback's address goes with the VRFs.
    assert max(map(len, larger.batches)) == 101


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converge_module, "UNITS", 16)
    kernel = node()
    converge(many(40), kernel)
    assert max(map(len, kernel.batches)) == 16


def test_the_wait_for_zebra_and_deletions_are_alone_and_in_their_place() -> None:
    kernel = node()
    converge(many(3), kernel)
    converge(state(2, l3vnis=(l3vni("new", 999),)), kernel)
    for batch in kernel.batches:
        assert len(batch) == 1 or not [step for step in batch if isinstance(step, AwaitZebra | DeleteLinks)]
    whole = [step for batch in kernel.batches for step in batch]
    [first, second] = [index for index, step in enumerate(whole) if isinstance(step, AwaitZebra)]
    vrfs = [index for index, step in enumerate(whole) if isinstance(step, CreateLink) and step.wanted.kind == "vrf"]
    others = [index for index, step in enumerate(whole) if isinstance(step, CreateLink) and index not in vrfs]
    assert [index for index in vrfs if index < first] == vrfs[:3]
    assert all(first < index < second or index > second for index in others)


def test_what_is_in_anothers_vrf_waits_for_all_of_it() -> None:
    kernel = node()
    converge(demo(), kernel)
    whole = [step for batch in kernel.batches for step in batch]
    red = [index for index, step in enumerate(whole) if step.resource is not None and step.resource.name == "red"]
    blue = [index for index, step in enumerate(whole) if step.resource is not None and step.resource.name == "blue"]
    assert max(red) < min(blue)


def test_a_plan_is_grouped_without_losing_or_reordering_anything() -> None:
    kernel = node()
    steps = plan(many(300), kernel.observe(many(300))).steps
    assert tuple(step for group in groups(steps) for step in group) == steps


def test_a_refused_step_ends_its_unit_and_nothing_else() -> None:
    kernel = node()
    desired = many(5)
    refused = next(
        step
        for step in plan(desired, kernel.observe(desired)).steps
        if isinstance(step, CreateLink) and step.wanted.name == "vni1002"
    )
    kernel.fail = {str(refused)}
    result = apply(desired, kernel)
    assert [(failure.resource.name, failure.message) for failure in result.failures] == [
        ("t2", f"{refused}: Input/output error")
    ]
    assert (Namespace.ROUTER, "pe-e-1002") not in kernel.links
    assert all((Namespace.ROUTER, f"pe-e-{1000 + number}") in kernel.links for number in (0, 1, 3, 4))


def test_what_is_in_the_vrf_of_a_resource_that_fails_late_is_not_begun() -> None:
    kernel = node()
    desired = state(l3vnis=(l3vni(),), l2vnis=(l2vni(),))
    last = [step for step in plan(desired, kernel.observe(desired)).steps if step.resource == l3vni().resource][-1]
    kernel.fail = {str(last)}
    result = apply(desired, kernel)
    assert {failure.resource.name for failure in result.failures} == {"red", "blue"}
    assert (Namespace.ROUTER, "vni110") not in kernel.links


@settings(max_examples=150, deadline=None)
@given(desired_states(), desired_states(), st.integers(0, 120))
def test_batches_interrupted_anywhere_lead_to_the_same_state(old: DesiredState, new: DesiredState, count: int) -> None:
    whole = node()
    converge(old, whole)
    cut = whole.copy()
    cut.left = count
    with suppress(Killed):
        converge(new, cut)
    cut.left = 1 << 30
    assert not converge(new, cut).errors
    converge(new, whole)
    assert cut.fingerprint() == whole.fingerprint()


@settings(max_examples=150, deadline=None)
@given(desired_states(), desired_states(), st.lists(st.integers(0, 1 << 16), max_size=3))
def test_refusals_in_batches_fail_the_same_resources_as_one_by_one(
    old: DesiredState, new: DesiredState, chosen: list[int]
) -> None:
    batched = node()
    converge(old, batched)
    steps = plan(new, batched.observe(new)).steps
    if steps:
        batched.fail = {str(steps[number % len(steps)]) for number in chosen}
    serial = batched.copy()
    found, expected = apply(new, batched), one_at_a_time(new, serial)
    assert {failure.resource for failure in found.failures} == {failure.resource for failure in expected.failures}
    # The underlay has several units: which of them fails first depends on their order.
    single = {failure.message for failure in expected.failures if failure.resource.kind is not Kind.UNDERLAY}
    assert {failure.message for failure in found.failures if failure.resource.kind is not Kind.UNDERLAY} == single
    assert set(found.errors) == set(expected.errors)
    assert found.writes == expected.writes
    assert batched.fingerprint() == serial.fingerprint()


@pytest.mark.parametrize("chosen", [(), (3,), (0, 7)])
def test_a_pass_over_refusals_ends_where_one_without_them_does(chosen: tuple[int, ...]) -> None:
    kernel, whole = node(), node()
    # A device inherits the defaults of its first moment, whatever they become.
    steps = [str(step) for step in plan(demo(), kernel.observe(demo())).steps if ".default." not in str(step)]
    kernel.fail = {steps[number] for number in chosen}
    converge(demo(), kernel)
    kernel.fail = set()
    assert converge(demo(), kernel).clean
    converge(demo(), whole)
    assert kernel.fingerprint() == whole.fingerprint()
