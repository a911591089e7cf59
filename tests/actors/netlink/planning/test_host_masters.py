"""A veth's master: what the host attached stays, what we attached is undone when it is no longer configured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.netlink.planning.observed import Link, LinkKind, Namespace
from actors.netlink.planning.plan_links import LONGEST_ALIAS
from config.desired import DesiredL2VNI, DesiredState, HostMasterKind
from config.problems import ResourceId
from tests.actors.netlink.builders import DUAL, l2vni, l3vni, node, passthrough, settle, state
from tests.fakes.kernel import FakeKernel

MANAGED = l2vni(vrf=None, gateways=())
NONE = replace(MANAGED, host_master=HostMasterKind.NONE, bridge=None)
EXTERNAL = replace(MANAGED, host_master=HostMasterKind.EXTERNAL_BRIDGE, bridge="br0")
END = "host-e-110"


def segment(vni: DesiredL2VNI) -> DesiredState:
    return state(l2vnis=(vni,))


def master_of(kernel: FakeKernel, name: str = END) -> str:
    return kernel.links[Namespace.HOST, name].master


def attach(kernel: FakeKernel, name: str, master: str) -> None:
    """Do what a user does with ``ip link set ... master``."""
    key = (Namespace.HOST, name)
    kernel.links[key] = replace(kernel.links[key], master=master)


@pytest.fixture
def kernel() -> FakeKernel:
    """A host with two bridges and a VRF of the user."""
    kernel = node()
    for name, kind in (("br0", LinkKind.BRIDGE), ("br1", LinkKind.BRIDGE), ("tenant", LinkKind.VRF)):
        kernel.add(Namespace.HOST, Link(0, name, kind=kind, up=True))
    return kernel


@pytest.mark.parametrize(
    ("desired", "name", "master"),
    [
        (state(l3vnis=(l3vni(),)), "host-e-100", "tenant"),
        (state(passthrough=passthrough()), "pt-host", "tenant"),
        (segment(NONE), END, "br0"),
    ],
)
def test_a_master_set_by_a_user_stays(desired: DesiredState, name: str, master: str, kernel: FakeKernel) -> None:
    settle(desired, kernel)
    attach(kernel, name, master)
    assert settle(desired, kernel) == 0
    assert master_of(kernel, name) == master


@pytest.mark.parametrize("wanted", [EXTERNAL, MANAGED])
def test_a_configured_master_is_restored(wanted: DesiredL2VNI, kernel: FakeKernel) -> None:
    settle(segment(wanted), kernel)
    before = master_of(kernel)
    assert before == wanted.bridge
    attach(kernel, END, "br1")
    settle(segment(wanted), kernel)
    assert master_of(kernel) == before


@pytest.mark.parametrize("wanted", [EXTERNAL, MANAGED])
def test_a_host_master_removed_from_the_configuration_is_undone(wanted: DesiredL2VNI, kernel: FakeKernel) -> None:
    settle(segment(wanted), kernel)
    settle(segment(NONE), kernel)
    assert master_of(kernel) == ""
    assert (Namespace.HOST, "br0") in kernel.links
    attach(kernel, END, "br0")
    assert settle(segment(NONE), kernel) == 0


def test_a_master_changed_by_a_user_is_not_undone(kernel: FakeKernel) -> None:
    settle(segment(EXTERNAL), kernel)
    attach(kernel, END, "br1")
    settle(segment(NONE), kernel)
    assert master_of(kernel) == "br1"


def test_a_veth_reused_by_another_vni_loses_the_master_of_the_former_one(kernel: FakeKernel) -> None:
    settle(segment(EXTERNAL), kernel)
    settle(state(l3vnis=(l3vni("green", 110, pairs=DUAL),)), kernel)
    assert master_of(kernel) == ""
    assert len(kernel.addresses[Namespace.HOST, END]) == 2


def test_a_renamed_l2vni_still_undoes_its_attachment(kernel: FakeKernel) -> None:
    settle(segment(EXTERNAL), kernel)
    other = replace(EXTERNAL.resource, name="azure", label="azure")
    settle(segment(replace(NONE, resource=other)), kernel)
    assert master_of(kernel) == ""
    assert kernel.links[Namespace.HOST, END].alias == "openperouter: L2VNI azure"


def test_an_alias_set_by_a_user_stays(kernel: FakeKernel) -> None:
    settle(segment(NONE), kernel)
    key = (Namespace.HOST, END)
    kernel.links[key] = replace(kernel.links[key], alias="uplink of rack 7")
    assert settle(segment(NONE), kernel) == 0


def test_the_longest_name_leaves_room_for_where_a_veth_is_attached(kernel: FakeKernel) -> None:
    long = ResourceId(EXTERNAL.resource.kind, EXTERNAL.resource.namespace, "n" * 253, "n" * 253)
    settle(segment(replace(EXTERNAL, resource=long)), kernel)
    assert {len(link.alias) <= LONGEST_ALIAS for link in kernel.links.values()} == {True}
    settle(segment(replace(NONE, resource=long)), kernel)
    assert master_of(kernel) == ""
