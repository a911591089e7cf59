"""Several nodes with the same addresses: who has them, who waits, and what both report."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desired.reconcile import Known, decide
from config.api import ApiNode, ApiObject, ApiSnapshot, OtherRouter
from config.desired import DesiredState, RouterAddresses, RouterIdScheme
from config.models import Underlay
from config.outcomes import NodeIdentity, StaticSnapshot
from config.precedence import NOTHING_IN_FORCE
from config.problems import Kind, Origin, Problem, Reason, Severity
from config.resources import Resource

from .examples import GRANTS, OWN, UNDERLAY, api_underlay

ALLOWED = replace(GRANTS, duplicate_index=True)
CREATED = ("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")


@dataclass
class Member:
    """A node, its decisions, and what it shows to others."""

    name: str
    index: int = 5
    scheme: RouterIdScheme = "v2"
    created: str = CREATED[0]
    from_file: bool = False
    allows: bool = False
    state: DesiredState | None = None
    known: Known | None = None
    restarted: bool = False

    @property
    def in_force(self) -> RouterAddresses | None:
        return self.state.addresses if self.state else None

    @property
    def problems(self) -> list[Problem]:
        found = self.state.problems if self.state else ()
        return [problem for problem in found if problem.reason is Reason.DUPLICATE_INDEX]

    def shown(self) -> OtherRouter | None:
        if self.state is None or (addresses := self.state.addresses or self.state.awaited) is None:
            return None
        return OtherRouter(self.name, self.created, addresses, in_force=self.state.addresses is not None)

    def files(self) -> StaticSnapshot:
        resources: tuple[Resource, ...] = ()
        if self.from_file:
            origin = Origin(path="/etc/underlay.yaml", line=1)
            resources = (Resource(Kind.UNDERLAY, OWN, "own", origin, Underlay.model_validate(UNDERLAY), "own"),)
        return StaticSnapshot(NodeIdentity(self.name, self.index, "info", self.scheme), resources)

    def decide(self, api: ApiSnapshot | None) -> None:
        known = self.known or Known(self.files(), None, None, NOTHING_IN_FORCE)
        known = replace(known, static=self.files(), api=api or known.api)
        decision = decide(known, self.state, ALLOWED if self.allows else GRANTS)
        self.known = replace(known, accepted=decision.accepted, standing=decision.standing)
        self.state = decision.state or self.state

    def restart(self) -> None:
        """Start again while the server does not answer."""
        self.restarted = True
        if self.known is not None:
            self.known = replace(self.known, api=None)
        self.state = None
        self.decide(None)


@dataclass
class Cluster:
    """An API server with an underlay for all nodes (but those that have one of their own), and its nodes."""

    members: dict[str, Member] = field(default_factory=dict)
    objects: tuple[ApiObject, ...] = (api_underlay(),)

    def add(self, name: str, **fields: Any) -> Member:
        member = self.members[name] = Member(name, **fields)
        member.decide(None)
        return member

    def snapshot(self, member: Member, **fields: Any) -> ApiSnapshot:
        shown = [one.shown() for one in self.members.values() if one is not member]
        near = tuple(one for one in shown if one is not None and abs(one.addresses.index - member.index) <= 1)
        made = ApiSnapshot(
            node=ApiNode(member.name, f"uid-{member.name}"),
            objects=() if member.from_file else self.objects,
            node_status={"metadata": {"name": member.name, "creationTimestamp": member.created}},
            live=True,
            others=near,
            others_of=member.index,
        )
        return replace(made, **fields)

    def inform(self, *names: str) -> None:
        """Have nodes learn what the server has, one after the other; all of them without names."""
        for name in names or tuple(self.members):
            self.members[name].decide(self.snapshot(self.members[name]))

    def settle(self) -> None:
        """Inform all nodes until nothing changes."""
        for _ in range(2 * len(self.members) + 2):
            before = [member.state for member in self.members.values()]
            self.inform()
            if before == [member.state for member in self.members.values()]:
                return
        raise AssertionError("the nodes do not settle")


def common(one: RouterAddresses | None, other: RouterAddresses | None) -> frozenset[str]:
    return one.named() & other.named() if one and other else frozenset()


def test_the_second_node_waits_and_both_report_it() -> None:
    cluster = Cluster()
    first, second = cluster.add("a"), cluster.add("b")
    cluster.inform("a", "b", "a")
    assert first.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
    assert (second.in_force, second.state and second.state.awaited) == (None, first.in_force)
    assert [str(problem) for problem in second.problems] == [
        "openperouter-system/fabric: error: Underlay openperouter-system/fabric: this node's index 5 is not unique: "
        "node a (index 5) has router ID 10.0.0.5 and tunnel endpoint 100.65.0.5; give one of them another index, or "
        "delete a node that no longer exists from the cluster (no underlay is in force meanwhile)"
    ]
    assert [(problem.severity, problem.in_force) for problem in first.problems] == [
        (Severity.WARNING, "this router stays as it is")
    ]
    assert "node b (index 5, waiting)" in first.problems[0].message


def test_it_comes_up_when_the_first_is_gone_or_has_another_index() -> None:
    for departs in (True, False):
        cluster = Cluster()
        first, second = cluster.add("a"), cluster.add("b")
        cluster.settle()
        if departs:
            del cluster.members["a"]
        else:
            first.index = 9
        cluster.settle()
        assert second.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
        assert (first.problems if not departs else [], second.problems) == ([], [])
        assert second.state is not None
        assert second.state.awaited is None


def test_of_two_that_wait_the_older_object_is_first_and_then_the_name() -> None:
    for created, winner in (((CREATED[1], CREATED[0]), "c"), ((CREATED[0], CREATED[0]), "b")):
        cluster = Cluster()
        cluster.add("a")
        for name, moment in zip("bc", created, strict=True):
            cluster.add(name, created=moment)
        cluster.settle()
        assert [one.name for one in cluster.members.values() if one.in_force] == ["a"]
        del cluster.members["a"]
        cluster.settle()
        assert [one.name for one in cluster.members.values() if one.in_force] == [winner]


def test_a_node_with_the_setting_comes_up_and_says_nothing() -> None:
    cluster = Cluster()
    first, second = cluster.add("a"), cluster.add("b", allows=True)
    cluster.settle()
    assert first.in_force == second.in_force
    assert second.problems == []
    assert [problem.severity for problem in first.problems] == [Severity.WARNING]


def test_the_two_schemes_of_router_ids_meet_in_neighbouring_indexes() -> None:
    cluster = Cluster()
    cluster.add("a", index=4, scheme="v1")
    second = cluster.add("b", index=5)
    cluster.settle()
    assert second.in_force is None
    assert "node a (index 4) has router ID 10.0.0.5;" in second.problems[0].message


def test_neighbouring_indexes_of_one_scheme_are_fine() -> None:
    cluster = Cluster()
    for number, name in enumerate("abc"):
        cluster.add(name, index=4 + number)
    cluster.settle()
    assert all(one.in_force and not one.problems for one in cluster.members.values())


@pytest.mark.parametrize("from_file", [True, False])
def test_a_restart_without_the_server_costs_nothing(from_file: bool) -> None:
    """Not even where another node has come up with the same addresses in the meantime."""
    cluster = Cluster()
    first = cluster.add("a", from_file=from_file)
    cluster.settle()
    had = first.in_force
    first.restart()
    assert first.in_force == had is not None
    cluster.add("b", allows=True)
    cluster.settle()
    assert first.in_force == had
    assert [problem.severity for problem in first.problems] == [Severity.WARNING]


def test_the_files_come_first_and_warn() -> None:
    cluster = Cluster()
    first = cluster.add("a")
    cluster.settle()
    second = cluster.add("b", from_file=True)
    cluster.settle()
    assert second.in_force == first.in_force is not None
    for one in (first, second):
        assert [problem.severity for problem in one.problems] == [Severity.WARNING]


@pytest.mark.parametrize("from_file", [True, False])
def test_the_first_decision_of_a_process_is_the_same_when_the_server_was_quicker(from_file: bool) -> None:
    cluster = Cluster()
    cluster.add("a")
    cluster.settle()
    late = cluster.members["b"] = Member("b", from_file=from_file)
    cluster.settle()
    assert (late.in_force is not None) == from_file
    assert len(late.problems) == 1


def test_an_edited_index_waits_for_its_owner_and_the_old_one_stays() -> None:
    cluster = Cluster()
    first, second = cluster.add("a", index=4), cluster.add("b", index=5)
    cluster.settle()
    second.index = 4
    # The files are read before the server has been asked about the other index.
    second.decide(None)
    assert second.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
    assert second.problems == []
    cluster.settle()
    assert second.in_force == RouterAddresses(5, "10.0.0.5", ("100.65.0.5",))
    assert [problem.in_force for problem in second.problems] == ["the running configuration is kept"]
    del cluster.members["a"]
    cluster.settle()
    assert second.in_force == first.in_force


def test_an_edited_index_does_not_wait_for_a_server_that_is_lost() -> None:
    cluster = Cluster()
    node = cluster.add("a", index=5)
    cluster.settle()
    node.decide(cluster.snapshot(node, live=False))
    node.index = 9
    node.decide(None)
    assert node.in_force == RouterAddresses(9, "10.0.0.9", ("100.65.0.9",))


def test_a_connection_that_breaks_lets_no_waiting_router_up() -> None:
    cluster = Cluster()
    cluster.add("a")
    second = cluster.add("b")
    cluster.settle()
    second.decide(cluster.snapshot(second, live=False))
    assert second.in_force is None


class Histories:
    """What happens to a cluster, and what must hold after it."""

    node = st.sampled_from("abcd")
    step = st.tuples(
        st.sampled_from(["remove", "restart", "edit", "inform", "inform"]),
        node,
        st.integers(4, 6),
        st.sampled_from(["v1", "v2"]),
        st.sampled_from(CREATED),
        st.booleans(),
    )


def happen(cluster: Cluster, what: str, member: Member, index: int, scheme: RouterIdScheme) -> None:
    match what:
        case "remove":
            del cluster.members[member.name]
        case "restart":
            member.restart()
        case "edit":
            member.index, member.scheme = index, scheme
        case "inform":
            cluster.inform(member.name)


def check_new_router(cluster: Cluster, member: Member, before: RouterAddresses | None) -> None:
    """A node that has learned of others has a router, and no address new to it that another router has."""
    assert member.in_force is not None, "a router was taken down"
    gained = member.in_force.named() - (before.named() if before else frozenset())
    others = [one for one in cluster.members.values() if one is not member]
    assert not any(gained & one.in_force.named() for one in others if one.in_force)


@given(st.lists(Histories.step, max_size=25))
def test_no_one_s_router_is_taken_down_and_none_comes_up_beside_another(history: list[tuple[Any, ...]]) -> None:
    """Where each node has seen the others before it decides, but for files and restarts, which do not wait."""
    cluster = Cluster()
    for what, name, index, scheme, created, from_file in history:
        member = cluster.members.get(name)
        before = {one.name: one.in_force for one in cluster.members.values()}
        if member is None:
            cluster.add(name, index=index, scheme=scheme, created=created, from_file=from_file)
        else:
            happen(cluster, what, member, index, scheme)
        for one in cluster.members.values():
            if one.name != name and before.get(one.name):
                assert one.in_force == before[one.name]
        if member is not None and what == "inform" and before.get(name) != member.in_force:
            check_new_router(cluster, member, before.get(name))
    cluster.settle()
    for one, other in combinations(cluster.members.values(), 2):
        if common(one.in_force, other.in_force):
            assert one.problems
            assert other.problems
            assert any(member.from_file or member.restarted for member in (one, other))
    for one in cluster.members.values():
        # A node that waits does so for another one.
        if one.state is not None and one.state.awaited is not None:
            ahead = [other.shown() for other in cluster.members.values() if other is not one]
            assert any(common(one.state.awaited, shown.addresses) for shown in ahead if shown)
