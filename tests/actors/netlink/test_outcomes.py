"""How a pass over the kernel is reported: applied, applied with failures, or cut off."""

from __future__ import annotations

import pytest

from actors.netlink.actor import outcome_of
from actors.netlink.converge import converge
from actors.netlink.planning.observed import Link, Namespace
from config.desired import DesiredState
from config.outcomes import KernelOutcome
from config.problems import Reason
from tests.actors.netlink.builders import UNDERLAY, l3vni, state, underlay, without_underlay
from tests.fakes.kernel import FakeKernel


def wanting(*nics: str) -> DesiredState:
    return state(underlay=underlay(*nics), l3vnis=(l3vni(),))


def outcome(kernel: FakeKernel, desired: DesiredState) -> KernelOutcome:
    return outcome_of(desired, converge(desired, kernel))


@pytest.fixture
def kernel() -> FakeKernel:
    """A host with the first of the NICs."""
    kernel = FakeKernel()
    kernel.add(Namespace.HOST, Link(0, "eth1"))
    return kernel


def test_a_node_with_one_of_its_nics_works_and_names_those_that_are_missing(kernel: FakeKernel) -> None:
    found = outcome(kernel, wanting("eth1", "eth2", "eth3"))
    assert (found.applied, found.error, found.underlay_mtu) == (True, "", 1500)
    assert {(failure.resource, failure.reason) for failure in found.failures} == {(UNDERLAY, Reason.UNDERLAY_FAILED)}
    assert [failure.message.split()[:2] for failure in found.failures] == [["interface", "eth2"], ["interface", "eth3"]]
    assert (Namespace.ROUTER, "vni100") in kernel.links


def test_a_nic_that_appears_later_joins_the_others(kernel: FakeKernel) -> None:
    outcome(kernel, wanting("eth1", "eth2"))
    kernel.add(Namespace.HOST, Link(0, "eth2"))
    found = outcome(kernel, wanting("eth1", "eth2"))
    assert (found.applied, found.failures) == (True, ())
    assert (Namespace.ROUTER, "eth2") in kernel.links


def test_a_node_without_any_nic_is_cut_off(kernel: FakeKernel) -> None:
    found = outcome(kernel, wanting("eth2", "eth3"))
    assert not found.applied
    assert "eth2" in found.error
    assert "eth3" in found.error


def test_a_nic_that_the_kernel_refuses_does_not_fail_the_other_one(kernel: FakeKernel) -> None:
    kernel.add(Namespace.HOST, Link(0, "eth2"))
    kernel.fail = {"host: move eth2 to router"}
    found = outcome(kernel, wanting("eth1", "eth2"))
    assert (found.applied, [failure.resource for failure in found.failures]) == (True, [UNDERLAY])


def test_a_device_of_ours_does_not_count_as_a_nic(kernel: FakeKernel) -> None:
    outcome(kernel, wanting("vni100"))
    assert (Namespace.ROUTER, "vni100") in kernel.links
    assert not outcome(kernel, wanting("vni100")).applied


def test_a_node_whose_nic_is_kept_for_a_missing_one_works(kernel: FakeKernel) -> None:
    outcome(kernel, wanting("eth1"))
    found = outcome(kernel, wanting("eht1"))
    assert (found.applied, found.error, found.underlay_mtu) == (True, "", 1500)
    assert [failure.message.split()[:2] for failure in found.failures] == [["interface", "eht1"]]


def test_a_node_without_an_underlay_misses_no_nic(kernel: FakeKernel) -> None:
    found = outcome(kernel, without_underlay(state()))
    assert (found.applied, found.failures) == (True, ())
