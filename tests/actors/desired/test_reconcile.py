"""What follows from files and API: numbering, holding on, falling back, and who is remembered as in force."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from actors.desired.reconcile import Decision, Known, decide
from config.api import ApiObject, ApiSnapshot
from config.desired import DesiredState, RememberedApi
from config.models import RawFrrConfig
from config.outcomes import StaticSnapshot
from config.precedence import NOTHING_IN_FORCE
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Severity, errors
from config.resolve.grants import Grants
from config.resolve.host_networks import HostNetwork
from config.resources import Unusable
from config.settings import Settings
from supervisor.runtime.faults import ConfigFault

from .examples import GRANTS, api_l3vni, api_underlay, cluster, files, l3vni, resource, underlay

BROKEN = resource(Kind.UNDERLAY, "broken", Unusable())


class Node:
    """A node whose decisions build on one another."""

    def __init__(self, static: StaticSnapshot | None = None, api: ApiSnapshot | None = None) -> None:
        self.known = Known(static or files(), api, None, NOTHING_IN_FORCE)
        self.state: DesiredState | None = None
        self.last: Decision | None = None

    def learn(self, static: StaticSnapshot | None = None, api: ApiSnapshot | None = None) -> DesiredState | None:
        """Decide again; return what is published."""
        self.known = replace(self.known, static=static or self.known.static, api=api or self.known.api)
        decision = decide(self.known, self.state, GRANTS)
        self.known = replace(self.known, accepted=decision.accepted, standing=decision.standing)
        self.state = decision.state or self.state
        return decision.state

    def restart(self) -> Node:
        """Return the node after a restart, before any API snapshot."""
        node = Node(self.known.static)
        accepted = replace(self.known.accepted, live=False) if self.known.accepted else None
        node.known = replace(node.known, accepted=accepted, standing=self.known.standing)
        return node

    def vrfs(self) -> list[str]:
        assert self.state is not None
        return [vni.vrf for vni in self.state.l3vnis]

    def wrong(self) -> list[str]:
        assert self.state is not None
        return [str(problem) for problem in errors(self.state.problems)]


def test_the_first_state_is_generation_one() -> None:
    state = Node(files(underlay())).learn()
    assert state is not None
    assert state.generation == 1


def test_what_says_nothing_new_publishes_nothing() -> None:
    node = Node(files(underlay()), cluster(api_l3vni("red", 1)))
    assert node.learn() is not None
    assert node.learn(files(underlay()), cluster(api_l3vni("red", 1), synced_at=2000.0)) is None


def test_reports_on_an_object_are_no_news() -> None:
    node = Node(files(underlay()), cluster(api_l3vni("red", 1), api_l3vni("bad", 0)))
    node.learn()
    touched = tuple(replace(one, resource_version="2") for one in (api_l3vni("red", 1), api_l3vni("bad", 0)))
    assert node.learn(api=cluster(*touched)) is None


def test_a_reload_is_taken_in_even_when_nothing_changed() -> None:
    node = Node(files(underlay()))
    first = node.learn()
    again = node.learn(files(underlay(), reload_id=3))
    assert first is not None
    assert again is not None
    assert (again.generation, again.reload_id) == (2, 3)
    assert again.content() == first.content()


def test_an_unusable_underlay_of_the_files_keeps_the_state_in_force_and_reports_the_problem() -> None:
    node = Node(files(underlay(), l3vni("red", 100)))
    first = node.learn()
    problem = Problem("no good", Origin(path="/etc/broken.yaml"), resource=BROKEN.id)
    broken = replace(files(BROKEN, reload_id=1), problems=(problem,))
    kept = node.learn(broken)
    assert first is not None
    assert kept is not None
    assert kept.content() == first.content()
    assert (kept.reload_id, kept.generation) == (1, 2)
    assert node.wrong() == ["/etc/broken.yaml: error: Underlay broken: no good (the running configuration is kept)"]


def test_an_unusable_underlay_with_nothing_in_force_is_a_configuration_fault() -> None:
    static = replace(files(BROKEN), problems=(Problem("no good", Origin(path="/etc/one.yaml")),))
    with pytest.raises(ConfigFault, match=r"/etc/one\.yaml"):
        Node(static).learn()


def test_problems_of_files_objects_and_resolution_travel_together() -> None:
    file_problem = Problem("cannot be read", Origin(path="/etc/broken.yaml"))
    static = replace(files(underlay(), l3vni("red", 100)), problems=(file_problem,))
    node = Node(static, cluster(api_l3vni("blue", 100), api_l3vni("bad", 0)))
    node.learn()
    assert node.vrfs() == ["red"]
    assert [line.partition(":")[0] for line in node.wrong()] == ["/etc/broken.yaml", "tenant/bad@1", "tenant/blue@1"]


def test_the_files_do_not_wait_for_the_api_and_the_api_adds_to_them() -> None:
    node = Node(files(underlay(), l3vni("red", 1)))
    node.learn()
    assert node.vrfs() == ["red"]
    node.learn(api=cluster(api_l3vni("blue", 2)))
    assert node.vrfs() == ["red", "blue"]
    node.learn(api=cluster())
    assert node.vrfs() == ["red"]


def test_a_server_that_becomes_unreachable_changes_nothing() -> None:
    node = Node(files(underlay()), cluster(api_l3vni("blue", 2)))
    node.learn()
    assert node.learn(api=cluster(api_l3vni("blue", 2), live=False)) is None


@pytest.mark.parametrize(
    "broken",
    [
        api_underlay("worse"),
        api_underlay("worse", asn=0),
        api_underlay("worse", neighbors=[{"asn": 1, "address": "192.0.2.9", "passwordSecret": "gone"}]),
        api_underlay("worse", nodeSelector="nonsense"),
    ],
    ids=["another", "invalid", "without its Secret", "with a selector that cannot be read"],
)
@pytest.mark.parametrize("early", [True, False], ids=["at start", "later"])
def test_no_underlay_of_the_api_costs_the_files_anything(broken: ApiObject, early: bool) -> None:
    node = Node(files(underlay(), l3vni("red", 1)))
    if not early:
        node.learn()
    node.learn(api=cluster(broken, api_l3vni("blue", 2)))
    assert node.state is not None
    assert node.state.underlay is not None
    assert node.state.underlay.resource == underlay().id
    assert node.vrfs() == ["red", "blue"]
    assert any("worse" in line for line in node.wrong())


def test_an_underlay_of_the_api_that_becomes_invalid_stays_as_it_was() -> None:
    node = Node(files(l3vni("red", 1)), cluster(api_underlay(), api_l3vni("blue", 2)))
    first = node.learn()
    kept = node.learn(api=cluster(api_underlay(asn=0, generation=2), api_l3vni("blue", 3)))
    assert first is not None
    assert kept is not None
    assert kept.content() == first.content()
    assert any(line.endswith("(the running configuration is kept)") for line in node.wrong())
    assert node.known.accepted == cluster(api_underlay(), api_l3vni("blue", 2))


def test_an_underlay_of_the_api_that_became_invalid_stays_as_it_was_over_a_restart() -> None:
    node = Node(files(l3vni("red", 1)), cluster(api_underlay(), api_l3vni("blue", 2)))
    first = node.learn()
    broken = cluster(api_underlay(asn=0, generation=2), api_l3vni("blue", 3))
    node.learn(api=broken)
    reborn = node.restart()
    again = reborn.learn(api=broken)
    assert first is not None
    assert again is not None
    assert again.content() == first.content()
    assert reborn.wrong()


def test_an_underlay_that_is_deleted_from_the_api_is_really_gone() -> None:
    node = Node(files(l3vni("red", 1)), cluster(api_underlay()))
    node.learn()
    assert node.vrfs() == ["red"]
    node.learn(api=cluster())
    assert node.state is not None
    assert node.state.underlay is None


def test_an_invalid_underlay_of_the_api_that_was_never_in_force_leaves_the_files_alone_at_start() -> None:
    node = Node(files(), cluster(api_underlay(asn=0)))
    state = node.learn()
    assert state is not None
    assert state.underlay is None
    assert node.wrong()
    assert node.learn(api=cluster(api_underlay(generation=2))) is not None
    assert node.state is not None
    assert node.state.underlay is not None


def test_a_restart_while_the_api_is_unreachable_has_the_networks_of_its_objects() -> None:
    node = Node(files(underlay()), cluster(api_l3vni("blue", 2)))
    first = node.learn()
    reborn = node.restart()
    again = reborn.learn()
    assert first is not None
    assert again is not None
    assert again.content() == first.content()
    assert again.remembered == RememberedApi(1, 1000.0)
    assert first.remembered is None
    assert reborn.learn(api=cluster(synced_at=3000.0)) is not None
    assert reborn.vrfs() == []


def test_who_was_first_is_so_over_a_restart() -> None:
    node = Node(files(underlay()), cluster(api_l3vni("blue", 2)))
    node.learn()
    node.learn(files(underlay(), l3vni("red", 2)))
    assert node.vrfs() == ["blue"]
    reborn = node.restart()
    reborn.learn()
    assert reborn.vrfs() == ["blue"]


def test_what_was_there_before_a_trial_is_there_after_it() -> None:
    node = Node(files(underlay(), l3vni("red", 2)), cluster(api_l3vni("blue", 2)))
    node.learn()
    before = node.known
    node.learn(files(underlay(), on_trial=True))
    assert node.vrfs() == ["blue"]
    assert (node.known.accepted, node.known.standing) == (before.accepted, before.standing)
    node.learn(files(underlay(), l3vni("red", 2)))
    assert node.vrfs() == ["red"]


def test_raw_snippets_of_the_api_are_left_out_where_the_node_does_not_accept_them() -> None:
    snippet = ApiObject(
        Kind.RAW_FRR_CONFIG, GRANTS.namespace, "r", "uid", "1", spec={"rawConfig": "ip route 192.0.2.0/24 reject"}
    )
    text = {"rawConfig": "ip route 198.51.100.0/24 reject"}
    own = resource(Kind.RAW_FRR_CONFIG, "own", RawFrrConfig.model_validate(text))
    known = Known(files(underlay(), own), cluster(snippet), None, NOTHING_IN_FORCE)
    assert (state := decide(known, None, GRANTS).state) is not None
    assert len(state.raw_frr) == 2
    refusing = Settings.model_validate({"rawSnippetsFromAPI": False, "namespace": GRANTS.namespace})
    assert (state := decide(known, None, Grants.of(refusing)).state) is not None
    assert [one.resource for one in state.raw_frr] == [own.id]
    assert [problem.resource for problem in errors(state.problems)] == [snippet.id]


ROUTE = HostNetwork(ip_network("100.65.3.0/24"), "the host's route 100.65.3.0/24")
WIDE: dict[str, Any] = {"tunnelEndpoint": {"cidrs": ["100.65.0.0/16"]}}


def test_a_first_start_with_tunnel_endpoints_that_take_a_network_of_the_host_has_no_configuration() -> None:
    node = Node(files(), cluster(api_underlay(**WIDE)))
    node.known = replace(node.known, networks=(ROUTE,))
    node.learn()
    assert node.state is not None
    assert node.state.underlay is None
    assert any("100.65.0.0/16 contains the host's route 100.65.3.0/24" in one for one in node.wrong())


def test_new_tunnel_endpoints_that_take_a_network_of_the_host_leave_those_in_force() -> None:
    node = Node(files(), cluster(api_underlay()))
    node.known = replace(node.known, networks=(ROUTE,))
    node.learn()
    assert node.state is not None
    assert node.state.underlay is not None
    before = node.state.underlay.vtep_pools
    node.learn(api=cluster(api_underlay(generation=2, **WIDE)))
    assert node.state.underlay.vtep_pools == before
    (wrong,) = node.wrong()
    assert "100.65.0.0/16 contains the host's route 100.65.3.0/24" in wrong
    assert RUNNING_KEPT in wrong
    # What was not accepted does not come with the next start either.
    again = node.restart()
    again.known = replace(again.known, networks=(ROUTE,))
    again.learn()
    assert again.state is not None
    assert again.state.underlay is not None
    assert again.state.underlay.vtep_pools == before


def test_a_route_that_came_later_costs_a_restarted_node_nothing() -> None:
    node = Node(files(), cluster(api_underlay(**WIDE)))
    node.learn()
    again = node.restart()
    again.known = replace(again.known, networks=(ROUTE,))
    again.learn()
    assert again.state is not None
    assert again.state.underlay is not None
    assert again.state.underlay.vtep_pools == ("100.65.0.0/16",)
    (warning,) = again.state.problems
    assert (warning.severity, warning.field) == (Severity.WARNING, "tunnelEndpoint.cidrs[0]")
    # And so with each change that leaves the range alone.
    again.learn(api=cluster(api_underlay(generation=2, asn=64599, **WIDE)))
    assert again.state.underlay.asn == 64599
