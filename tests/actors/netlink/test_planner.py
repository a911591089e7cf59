"""The last plan is used again while neither the wish nor the kernel differs, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actors.netlink import converge as module
from actors.netlink.converge import Planner, converge
from actors.netlink.planning.observed import Link, Namespace
from actors.netlink.planning.plan import plan
from tests.actors.netlink.builders import l3vni, state
from tests.fakes.kernel import FakeKernel


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with each plan that is made."""
    made: list[object] = []

    def counted(*arguments: Any) -> object:
        made.append(plan(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "plan", counted)
    return made


def test_a_plan_is_made_again_if_anything_differs(plans: list[object]) -> None:
    kernel, planner = FakeKernel(), Planner()
    kernel.add(Namespace.HOST, Link(0, "toswitch1", up=True))
    desired = state(l3vnis=(l3vni(),))
    first = converge(desired, kernel, planner=planner)
    assert first.writes
    assert len(plans) == 2
    for _ in range(3):
        result = converge(desired, kernel, planner=planner)
        assert result.writes == 0
        assert result.plan is first.plan
    assert len(plans) == 2

    [vxlan] = [link for (_, _), link in kernel.links.items() if link.vxlan is not None]
    del kernel.links[Namespace.ROUTER, vxlan.name]
    assert converge(desired, kernel, planner=planner).writes
    assert (Namespace.ROUTER, vxlan.name) in kernel.links
    assert len(plans) == 4

    converge(desired, kernel, planner=planner, withdrawn=frozenset({100}))
    assert len(plans) == 5
    again = replace(desired, generation=desired.generation + 1)
    assert converge(again, kernel, planner=planner, withdrawn=frozenset({100})).writes == 0
    assert len(plans) == 6
    assert converge(state(), kernel, planner=planner).writes
    assert len(plans) == 8


def test_the_failures_of_a_plan_that_is_used_again_are_still_reported(plans: list[object]) -> None:
    kernel, planner = FakeKernel(), Planner()
    desired = state(l3vnis=(l3vni(),))
    first = converge(desired, kernel, planner=planner)
    assert first.failures
    made = len(plans)
    again = converge(desired, kernel, planner=planner)
    assert again.failures == first.failures
    assert len(plans) == made
