"""The whole controller on a server in memory: what it writes, when, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.errors import ApiError, error_for
from config.api import NODE_STATUS_PLURAL
from supervisor.operations.cluster.controller import Controller
from tests.actors.controller.bench import LEASE, SYSTEM, Bench, running
from tests.fakes.api_server import FakeApiServer, forbidden, no_trouble, path_of, place_of

pytestmark = pytest.mark.usefixtures("autojump_clock")


def three_nodes(bench: Bench) -> int:
    generation = bench.vni()
    for number, name in enumerate("abc"):
        bench.node(name, str(number))
        bench.report(name, {"red": (generation, True)})
    return generation


async def test_an_object_shows_what_all_its_nodes_report(autojump_clock: MockClock) -> None:
    bench = Bench()
    generation = three_nodes(bench)
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        ready, degraded = bench.conditions()["Ready"], bench.conditions()["Degraded"]
        assert (ready["status"], ready["observedGeneration"], degraded["status"]) == ("True", generation, "False")
        bench.report("b", {"red": (generation, False)}, {"red": "the VNI is used twice"})
        await bench.until(lambda: bench.message() == "2/3 nodes; failing on b (the VNI is used twice)")
        assert bench.conditions()["Degraded"]["status"] == "True"
        bench.server.delete(NODE_STATUS_PLURAL, "b", namespace=SYSTEM)
        bench.server.delete("nodes", "b")
        await bench.until(lambda: bench.message() == "2/2 nodes")


async def test_nothing_is_written_while_nothing_changes(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        await trio.sleep(30)
        written, asked = len(bench.writes()), len(bench.server.requests)
        bench.report("c", {"red": (1, True), "unrelated": (1, True)})
        await trio.sleep(3600)
        assert len(bench.writes()) == written == 1
        # The lease, every four seconds, and seven watches of five minutes.
        assert len(bench.server.requests) - asked < 1300


async def test_a_new_controller_finds_everything_as_it_should_be(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
    before = len(bench.writes())
    async with running(bench, "two"):
        await bench.until(lambda: bench.holder == "two")
        await trio.sleep(600)
    assert len(bench.writes()) == before


async def test_a_rollout_over_many_nodes_is_a_handful_of_writes(autojump_clock: MockClock) -> None:
    bench = Bench()
    names = [f"n{number:03}" for number in range(300)]
    generation = bench.vni()
    for number, name in enumerate(names):
        bench.node(name, str(number))
        bench.report(name, {"red": (generation, True)})
    async with running(bench):
        await bench.until(lambda: bench.message() == "300/300 nodes")
        before = len(bench.writes())
        generation = bench.vni(vni=101)
        await trio.sleep(1)
        for name in names:
            bench.report(name, {"red": (generation, True)})
            await trio.sleep(0.2)
        await bench.until(lambda: bench.message() == "300/300 nodes")
        assert bench.conditions()["Ready"]["observedGeneration"] == generation
        assert 3 <= len(bench.writes()) - before <= 8


async def test_conditions_that_another_client_edits_are_restored_and_others_left(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    other = {
        "type": "Other",
        "status": "True",
        "reason": "A",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        bench.server.edit("red", lambda one: one["status"]["conditions"].clear())
        bench.server.edit("red", lambda one: one["status"]["conditions"].append(other))
        await bench.until(lambda: bench.message() == "3/3 nodes")
        assert set(bench.conditions()) == {"Ready", "Degraded", "Other"}


async def test_a_definition_without_conditions_is_written_once(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    bench.server.prune = lambda one: one.get("status", {}).pop("conditions", None) if "spec" in one else None
    async with running(bench):
        await trio.sleep(600)
    assert bench.writes() == [("apply", f"{path_of('l3vnis', 'red', 'demo')}/status")]


async def test_indices_are_assigned_and_those_of_nodes_are_left(autojump_clock: MockClock) -> None:
    bench = Bench()
    bench.node("a")
    bench.node("b", "1")
    bench.node("c", "x")
    bench.node("d", "1", creationTimestamp="2021-01-01T00:00:00Z")
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:openpe.io/nodeindex": {}}}}
    bench.node("own", "0", managedFields=[{"manager": "openperouter", "operation": "Update", "fieldsV1": fields}])
    bench.node("reports")
    bench.report("reports", {})
    async with running(bench):
        await bench.until(lambda: bench.index("d") is not None and bench.index("d") != "1")
        await trio.sleep(600)
    indices = {name: bench.index(name) for name in ("a", "b", "c", "d", "own", "reports")}
    assert indices == {"a": "2", "b": "1", "c": "3", "d": "4", "own": "0", "reports": None}


async def test_a_daemon_that_writes_its_own_index_meanwhile_wins(autojump_clock: MockClock) -> None:
    bench = Bench()
    bench.node("a")

    def trouble(verb: str, path: str) -> ApiError | None:
        if (verb, path) == ("patch", path_of("nodes", "a")) and bench.index("a") is None:
            bench.node("a", "7")
        return None

    bench.server.trouble = trouble
    async with running(bench):
        await trio.sleep(600)
    assert bench.index("a") == "7"


async def test_duplicate_indices_of_nodes_are_reported_and_left(autojump_clock: MockClock) -> None:
    bench = Bench()
    underlay = {"asn": 64512}
    bench.server.put("underlays", "fabric", underlay, namespace=SYSTEM)
    for name in "ab":
        bench.node(name, "3")
        bench.report(name, {})
    async with running(bench):
        await bench.until(lambda: len(bench.server.find("/events/")) == 2)
        [event, _] = bench.server.find("/events/")
        assert (event["regarding"]["kind"], event["reason"]) == ("Node", "DuplicateNodeIndex")
        assert "nodes a and b have the same index 3" in event["note"]
        conditions = bench.server.objects[path_of("underlays", "fabric", SYSTEM)]["status"]["conditions"]
        [degraded] = [one for one in conditions if one["type"] == "Degraded"]
        assert (degraded["status"], degraded["reason"]) == ("True", "DuplicateNodeIndex")
        await trio.sleep(7200)
        assert (bench.index("a"), bench.index("b")) == ("3", "3")
        counted = [one.get("series", {}).get("count") for one in bench.server.find("/events/")]
        assert all(counted)


async def test_one_of_two_writes_and_the_other_takes_over(autojump_clock: MockClock) -> None:
    bench = Bench()
    generation = three_nodes(bench)
    async with running(bench) as nursery:
        await bench.until(lambda: bench.holder == "one" and bench.message() == "3/3 nodes")
        await bench.start(nursery, "two")
        await trio.sleep(60)
        assert bench.holder == "one"
        writes = len(bench.writes())
        lease = dict(bench.server.objects[LEASE]["spec"])
        # Killed: the lease is not given back, but ends.
        bench.server.trouble = lambda verb, path: error_for(500, "", "killed") if verb == "update" else None
        bench.scopes["one"].cancel()
        await trio.sleep(1)
        bench.server.trouble = no_trouble
        assert bench.server.objects[LEASE]["spec"]["holderIdentity"] == "one"
        await trio.sleep(5)
        assert bench.holder == "one"
        await bench.until(lambda: bench.holder == "two", 20)
        assert len(bench.writes()) == writes
        assert bench.server.objects[LEASE]["spec"]["leaseTransitions"] == lease["leaseTransitions"] + 1
        bench.report("a", {"red": (generation - 1, True)})
        await bench.until(lambda: bench.message() == "2/3 nodes; waiting for a")


async def test_a_stopped_leader_gives_the_lease_back(autojump_clock: MockClock) -> None:
    bench = Bench()
    async with running(bench, "one") as nursery:
        await bench.until(lambda: bench.holder == "one")
        await bench.start(nursery, "two")
        await trio.sleep(30)
        terms = bench.server.objects[LEASE]["spec"]["leaseTransitions"]
        bench.controllers["one"].supervisor.stop()
        # Long before it would expire.
        await bench.until(lambda: bench.holder == "two", 10)
        assert bench.server.objects[LEASE]["spec"]["leaseTransitions"] == terms + 1


async def test_a_leader_whose_token_is_renewed_stays_the_leader(autojump_clock: MockClock) -> None:
    bench = Bench()
    async with running(bench):
        await bench.until(lambda: bench.holder == "one")
        controller = bench.controllers["one"]
        renewed = bench.server.credentials("renewed")
        controller.read = lambda: renewed
        controller.channels.credentials.set(renewed)
        await trio.sleep(60)
        holders = {one.raw["spec"]["holderIdentity"] for one in bench.server.history if one.path == LEASE}
        assert (holders, bench.server.objects[LEASE]["spec"]["leaseTransitions"]) == ({"one"}, 1)


async def test_a_leader_that_cannot_renew_stops_writing_before_another_starts(autojump_clock: MockClock) -> None:
    bench = Bench()
    generation = three_nodes(bench)
    cut_off = False

    def trouble(verb: str, path: str) -> ApiError | None:
        return error_for(500, "", "etcd") if cut_off and place_of(path).resource == "leases" else None

    bench.server.trouble = trouble
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        term = bench.controllers["one"].channels.term
        cut_off = True
        await trio.sleep(12)
        held = term.peek()
        assert held is not None
        assert not held.holds(trio.current_time())
        writes = len(bench.writes())
        bench.report("a", {"red": (generation - 1, True)})
        await trio.sleep(60)
        assert len(bench.writes()) == writes
        cut_off = False
        await bench.until(lambda: bench.message() == "2/3 nodes; waiting for a")


async def test_what_rbac_forbids_stops_only_that(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    bench.node("new")

    def trouble(verb: str, path: str) -> ApiError | None:
        return forbidden(verb, path) if (verb, place_of(path).resource) == ("get", "nodes") else None

    bench.server.trouble = trouble
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        await trio.sleep(1200)
        asked = bench.server.requests.count(("get", path_of("nodes", "new")))
        assert 2 <= asked <= 15
        bench.server.trouble = no_trouble
        await bench.until(lambda: bench.index("new") == "3", 900)


async def test_without_the_status_objects_nothing_is_said(autojump_clock: MockClock) -> None:
    bench = Bench()
    three_nodes(bench)
    bench.server.trouble = lambda verb, path: (
        forbidden(verb, path) if place_of(path).resource == NODE_STATUS_PLURAL else None
    )
    async with running(bench):
        await trio.sleep(600)
        assert bench.writes() == []
        bench.server.trouble = no_trouble
        await bench.until(lambda: bench.message() == "3/3 nodes")


async def test_an_outage_of_the_server_is_survived_without_a_wrong_word(autojump_clock: MockClock) -> None:
    bench = Bench()
    generation = three_nodes(bench)
    async with running(bench):
        await bench.until(lambda: bench.message() == "3/3 nodes")
        writes = len(bench.writes())
        bench.server.stop()
        await trio.sleep(300)
        bench.report("a", {"red": (generation - 1, True)})
        bench.server.start(forget=True)
        await bench.until(lambda: bench.message() == "2/3 nodes; waiting for a")
        assert 1 <= len(bench.writes()) - writes <= 2


def test_the_wiring_is_a_graph() -> None:
    server = FakeApiServer()
    controller = Controller(server.credentials, SYSTEM, connect=server.connect)
    assert "election -> [term] -> writer" in str(controller.graph)
