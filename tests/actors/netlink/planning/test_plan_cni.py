"""Which interfaces CNI plugins have to make or remove, decided from records and the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from actors.netlink.actor import outcome_of
from actors.netlink.cni.attachments import AttachmentRefused
from actors.netlink.converge import PassResult, apply_plan
from actors.netlink.kernel import Refusal
from actors.netlink.planning.observed import NIC_GROUP, CniRecord, Link, NamespaceView, Observed
from actors.netlink.planning.plan import plan
from actors.netlink.planning.steps import AttachCni, ChangeLink, DetachCni, MoveLink, Step
from config.desired import CniAttachment, DesiredState
from tests.actors.netlink.builders import UNDERLAY, state, underlay, without_underlay

ONE, TWO = CniAttachment("net1", '{"a":1}'), CniAttachment("net2", '{"a":2}')
CHANGED = replace(ONE, conflist='{"a":3}')
RESULT = '{"ips":[]}'


def wanting(*attachments: CniAttachment, nics: tuple[str, ...] = ()) -> DesiredState:
    names = (*nics, *(one.name for one in attachments))
    return state(underlay=replace(underlay(*names), attachments=attachments))


def seen(*records: CniRecord, links: tuple[Link, ...] = (), host: tuple[Link, ...] = ()) -> Observed:
    return Observed(
        router=NamespaceView({link.name: link for link in links}),
        host=NamespaceView({link.name: link for link in host}),
        cni={record.attachment.name: record for record in records},
    )


NET1, NET2 = Link(5, "net1", up=True, mtu=9000), Link(6, "net2", up=True)
MADE, MADE_TWO = CniRecord(ONE, RESULT), CniRecord(TWO, RESULT)


def of_plugins(desired: DesiredState, observed: Observed) -> list[str]:
    kinds = (AttachCni, DetachCni)
    return [str(step).partition(": ")[2] for step in plan(desired, observed).steps if isinstance(step, kinds)]


MAKE, GO = "make interface net1 with CNI plugins", "remove interface net1 with CNI plugins"


@pytest.mark.parametrize(
    ("desired", "observed", "expected"),
    [
        (wanting(ONE), seen(), [MAKE]),
        (wanting(ONE), seen(MADE, links=(NET1,)), []),
        (wanting(ONE), seen(MADE), [f"{GO} (it is gone)", MAKE]),
        (wanting(ONE), seen(CniRecord(ONE)), [f"{GO} (it was not finished)", MAKE]),
        (wanting(ONE), seen(CniRecord(ONE), links=(NET1,)), [f"{GO} (it was not finished)", MAKE]),
        (wanting(CHANGED), seen(MADE, links=(NET1,)), [f"{GO} (its configuration changed)", MAKE]),
        (wanting(ONE), replace(seen(MADE, links=(NET1,)), cni_drift={"net1": "no"}), [f"{GO} (no)", MAKE]),
        (wanting(ONE), replace(seen(MADE, links=(NET1,)), cni_unchecked={"net1": "no"}), []),
        (wanting(TWO), seen(MADE, MADE_TWO, links=(NET1, NET2)), [GO]),
        (without_underlay(wanting(ONE)), seen(MADE, links=(NET1,)), [GO]),
        (without_underlay(wanting(ONE)), seen(CniRecord(ONE)), [GO]),
        # Something else made it: it is neither taken over nor removed.
        (wanting(ONE), seen(links=(NET1,)), []),
        # A NIC that is on its way back has its name for one more round.
        (wanting(ONE), seen(links=(replace(NET1, group=NIC_GROUP),)), []),
    ],
)
def test_what_the_plugins_are_asked_for(desired: DesiredState, observed: Observed, expected: list[str]) -> None:
    assert of_plugins(desired, observed) == expected


def test_a_misspelt_nic_does_not_cost_the_interface_that_is_there() -> None:
    there = (Link(7, "eth1"),)
    assert of_plugins(state(underlay=underlay("eth1")), seen(MADE, links=(NET1,))) == []
    assert of_plugins(state(underlay=underlay("eth1")), seen(MADE, links=(NET1,), host=there)) == [GO]


def index(steps: tuple[Step, ...], kind: type[Step]) -> int:
    [found] = [number for number, step in enumerate(steps) if isinstance(step, kind)]
    return found


def test_a_parent_device_comes_out_before_and_goes_in_after() -> None:
    nic = Link(7, "eth1", up=True, group=NIC_GROUP)
    steps = plan(wanting(ONE), seen(links=(nic,))).steps
    assert index(steps, MoveLink) < index(steps, AttachCni) == len(steps) - 1
    steps = plan(state(underlay=underlay("eth1")), seen(MADE, links=(NET1,), host=(Link(7, "eth1", up=True),))).steps
    assert index(steps, DetachCni) < index(steps, MoveLink)


def test_a_foreign_device_of_the_name_is_a_failure_that_names_it() -> None:
    [failure] = plan(wanting(ONE), seen(links=(NET1,))).failures
    assert failure.resource == UNDERLAY
    assert "interface net1 is in the router and was not made by its CNI plugins" in failure.message


def test_an_unanswered_check_is_reported_and_the_interface_is_left() -> None:
    observed = replace(seen(MADE, links=(NET1,)), cni_unchecked={"net1": "CNI plugin macvlan: gone"})
    [failure] = plan(wanting(ONE), observed).failures
    assert failure.message == "interface net1 cannot be checked and is left as it is: CNI plugin macvlan: gone"


class Refusing:
    """A kernel in which nothing can be removed by plugins."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.done: list[Step] = []

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        return self.observed

    def apply(self, step: Step) -> None:
        self.apply_all((step,))

    def apply_all(self, batch: Sequence[Step]) -> list[Refusal | None]:
        self.done += batch
        return [AttachmentRefused("no") if isinstance(step, DetachCni) else None for step in batch]


def test_what_cannot_be_removed_is_not_made_again_and_each_interface_is_named() -> None:
    third = CniAttachment("net3", "{}")
    observed = seen(MADE, MADE_TWO, links=(NET1, NET2))
    kernel = Refusing(observed)
    found = apply_plan(plan(wanting(CHANGED, replace(TWO, conflist="{}"), third), observed), kernel)
    assert [step.attachment for step in kernel.done if isinstance(step, AttachCni)] == [third]
    [failure] = found.failures
    for name in ("net1", "net2"):
        assert f"remove interface {name} with CNI plugins (its configuration changed): no" in failure.message


def test_an_interface_that_is_down_is_set_up() -> None:
    steps = plan(wanting(ONE), seen(MADE, links=(replace(NET1, up=False),))).steps
    assert [step.name for step in steps if isinstance(step, ChangeLink) and step.up] == ["net1"]


def test_the_underlay_s_mtu_is_the_smallest_of_what_plugins_made() -> None:
    assert plan(wanting(ONE), seen(MADE, links=(NET1,))).model.mtu == 9000
    assert plan(wanting(ONE, TWO), seen(MADE, MADE_TWO, links=(NET1, NET2))).model.mtu == 1500
    # A device of the same name in the host is another one.
    assert plan(wanting(ONE), seen(host=(NET1,))).model.mtu is None


@pytest.mark.parametrize(("links", "applied"), [((), False), ((NET1,), True)])
def test_a_node_without_any_interface_is_cut_off(links: tuple[Link, ...], applied: bool) -> None:
    desired = wanting(ONE, TWO)
    observed = replace(seen(MADE, links=links), cni_unchecked={"net1": "hangs"})
    found = PassResult(observed, plan(desired, observed))
    assert outcome_of(desired, found).applied is applied
