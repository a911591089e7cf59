"""What the cluster sees of a node, on a real API server, with the rights that the actor documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.lib.kube.errors import InvalidError, NotFoundError
from actors.status_writer.events import PATH as EVENTS_PATH
from actors.status_writer.node_events import NodeEvent
from actors.status_writer.node_status import path_of
from config.api import INDEX_ANNOTATION, ApiNode
from tests.cluster.harness import ClusterServer, Json, both_versions, kube, make_namespace, make_node
from tests.cluster.status_writing import RULES, Cluster, cluster, until

NAMES = tuple(f"node-{letter}" for letter in "abcdefgh")
#: Longer than any wait that is not for hours: what was not sent by then is not sent.
QUIET_SECONDS = 8.0


async def status_of(nodes: Cluster, node: str = "node-a") -> Json:
    """Return a node's status, empty when there is none."""
    try:
        status: Json = (await nodes.status(node)).get("status", {})
    except NotFoundError:
        return {}
    return status


async def listed(nodes: Cluster, *names: str, node: str = "node-a") -> Json:
    """Wait until a node's status lists these objects, and return it."""

    async def complete() -> Json:
        status = await status_of(nodes, node)
        return status if {one["name"] for one in status.get("resources", ())} == set(names) else {}

    return await until(f"{names} are in the status of {node}", complete)


def condition(status: Json, type_: str) -> Json:
    [found] = [one for one in status["conditions"] if one["type"] == type_]
    return dict(found)


def sent(server: ClusterServer, namespace: str) -> Counter[tuple[str, str, int]]:
    """Return what the writing account sent, as verb, resource and answer, but for the polls of the cluster's size."""
    requests = server.requests(f"system:serviceaccount:{namespace}:status-writer")
    return Counter((one.verb, one.resource, one.code) for one in requests if one.verb != "list")


@both_versions
async def test_a_node_reports_what_became_of_its_configuration(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    refusing = {"node-a": {"blue": "vni 200 is taken by L3VNI green"}}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, bad=refusing) as nodes:
        await nodes.create("red", 100)
        await nodes.create("blue", 200)
        status = await listed(nodes, "red", "blue")
        assert condition(status, "Ready")["status"] == "False"
        assert condition(status, "Degraded")["reason"] == "ConfigurationFailed"
        [failed] = status["failedResources"]
        assert (failed["kind"], failed["name"], failed["reason"]) == ("L3VNI", "blue", "ValidationFailed")
        assert [one["inForce"] for one in status["resources"]] == [False, True]
        assert [one["vni"] for one in status["vnis"]] == [100]
        assert [one["state"] for one in status["sessions"]] == ["Established"]
        [owner] = (await nodes.status("node-a"))["metadata"]["ownerReferences"]
        assert owner["uid"] == (await admin.get("/api/v1/nodes/node-a"))["metadata"]["uid"]


@both_versions
async def test_objects_that_fail_are_an_event_of_the_node_and_are_left_alone(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    refusing = {"node-a": {"blue": "vni 200 is taken by L3VNI green"}}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, bad=refusing) as nodes:
        made = await nodes.create("blue", 200)
        [event] = await until("there is an Event", lambda: nodes.events("node-a"))
        assert (event["type"], event["reason"]) == ("Warning", "ConfigurationFailed")
        assert event["metadata"]["namespace"] == "default"
        assert event["message"] == f"objects of the API: L3VNI {namespace}/blue: vni: vni 200 is taken by L3VNI green"
        nodes.nodes["node-a"].bad.clear()
        nodes.nodes["node-a"].route()

        async def both() -> list[Json]:
            events = await nodes.events("node-a")
            return events if len(events) == 2 else []

        events = await until("the end is reported", both)
        assert sorted(one["type"] for one in events) == ["Normal", "Warning"]
        await listed(nodes, "blue")
        assert await admin.get(f"{nodes.collection}/blue") == made


async def test_a_failure_of_the_router_is_an_event_of_the_node(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        node = nodes.nodes["node-a"]
        outcome = node.frr.peek()
        assert outcome is not None
        node.frr.set(replace(outcome, applied=False, error="FRR refuses the configuration: line 7"))
        [event] = await until("there is an Event", lambda: nodes.events("node-a"))
        assert (event["reason"], event["metadata"]["namespace"]) == ("FrrConfigurationFailed", "default")
        assert "line 7" in event["message"]

        async def refused() -> bool:
            return bool(condition(await status_of(nodes), "Degraded")["status"] == "True")

        await until("the status shows it", refused)
        kinds = [one["kind"] for one in (await status_of(nodes))["failedResources"]]
        assert kinds == ["FrrConfiguration"]


async def test_a_hundred_objects_are_one_status_soon(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        for number in range(100):
            await nodes.create(f"net-{number}", 100 + number)
        status = await listed(nodes, *(f"net-{number}" for number in range(100)))
        assert condition(status, "Ready")["status"] == "True"
        assert sent(server, namespace)["patch", "routernodeconfigurationstatuses/status", 200] <= 10


@both_versions
@pytest.mark.parametrize("letter", ["x", "ü", "…"])
async def test_the_longest_note_is_accepted(server: ClusterServer, letter: str) -> None:
    """Its length is limited in bytes, where those of custom resources are in characters."""
    event = NodeEvent((letter,), True, "ValidationFailed", letter * 2000)
    whole = event.body(ApiNode("n" * 253, "uid"), "2027-01-15T08:00:00.000000Z")
    async with kube(server.admin) as admin:
        assert (await admin.create(EVENTS_PATH, whole))["note"] == whole["note"]
        too_long = whole | {"metadata": {"name": "too-long"}, "note": whole["note"] + "xxxx"}
        with pytest.raises(InvalidError):
            await admin.create(EVENTS_PATH, too_long)


async def test_a_quiet_node_sends_nothing(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        await trio.sleep(QUIET_SECONDS)
        before, version = sent(server, namespace), (await nodes.status("node-a"))["metadata"]["resourceVersion"]
        node = nodes.nodes["node-a"]
        for uptime in range(10):
            report = node.health.peek()
            assert report is not None
            aged = tuple(replace(one, uptime_seconds=uptime) for one in report.sessions)
            node.health.set(replace(report, sessions=aged))
            await trio.sleep(QUIET_SECONDS / 10)
        assert sent(server, namespace) == before
        assert (await nodes.status("node-a"))["metadata"]["resourceVersion"] == version


@both_versions
async def test_a_deleted_or_edited_status_is_repaired(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        # The last write has to be done before the status is compared and requests are counted.
        await trio.sleep(QUIET_SECONDS)
        good, path = await status_of(nodes), path_of(namespace, "node-a")

        async def repaired() -> bool:
            return await status_of(nodes) == good

        await admin.delete(path)
        await until("it is back", repaired)
        made_up = [{"kind": "Underlay", "name": "x", "reason": "ValidationFailed", "message": "made up"}]
        edit = {"status": {"failedResources": made_up, "vnis": None, "omitted": 5}}
        await admin.merge_patch(f"{path}/status", edit, manager="kubectl-edit")
        await until("it is as before", repaired)
        await admin.merge_patch(path, {"metadata": {"ownerReferences": None}}, manager="kubectl-edit")

        async def owned() -> bool:
            return bool((await nodes.status("node-a"))["metadata"].get("ownerReferences"))

        await until("the node owns it", owned)
        # The server's audit log is behind what it answers.
        await trio.sleep(QUIET_SECONDS)
        before = sent(server, namespace)
        await trio.sleep(QUIET_SECONDS)
        assert sent(server, namespace) == before


async def test_flapping_sessions_are_not_a_storm(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        node, before = nodes.nodes["node-a"], sent(server, namespace).total()
        for step in range(40):
            report = node.health.peek()
            assert report is not None
            state = "Active" if step % 2 else "Established"
            node.health.set(replace(report, sessions=tuple(replace(one, state=state) for one in report.sessions)))
            await trio.sleep(0.5)
        assert sent(server, namespace).total() - before <= 7


async def test_each_of_several_nodes_reports_for_itself(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    refusing = {name: {"red": f"vni 100 is taken on {name}"} for name in NAMES[:4]}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, NAMES, bad=refusing) as nodes:
        made = await nodes.create("red", 100)
        for name in NAMES[:4]:
            status = await listed(nodes, "red", node=name)
            assert status["failedResources"][0]["message"].endswith(name)
        for name in NAMES[4:]:
            await in_force(nodes, name)
        await trio.sleep(QUIET_SECONDS)
        assert await admin.get(f"{nodes.collection}/red") == made
        assert not [what for what in sent(server, namespace) if what[1].startswith("l3vnis")]


async def in_force(nodes: Cluster, node: str) -> None:
    """Wait until a node reports that all its objects are in force."""

    async def all_are() -> bool:
        status = await status_of(nodes, node)
        return bool(status.get("resources")) and all(one["inForce"] for one in status["resources"])

    await until(f"everything is in force on {node}", all_are)


async def test_another_index_on_the_node_is_replaced(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:

        async def right() -> bool:
            found = await admin.get("/api/v1/nodes/node-a")
            return bool(found["metadata"].get("annotations", {}).get(INDEX_ANNOTATION) == "3")

        await until("the index is there", right)
        wrong = {"metadata": {"annotations": {INDEX_ANNOTATION: "77"}}}
        await admin.merge_patch("/api/v1/nodes/node-a", wrong, manager="user")
        await until("it is right again", right)
        [event] = await until("it is reported", lambda: nodes.events("node-a"))
        assert event["reason"] == "NodeIndexReplaced"
        assert "'77'" in event["message"]


async def test_a_node_that_is_created_again_gets_its_index(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path):

        async def uid_with_index() -> str:
            metadata = (await admin.get("/api/v1/nodes/node-a"))["metadata"]
            return str(metadata["uid"]) if metadata.get("annotations", {}).get(INDEX_ANNOTATION) == "3" else ""

        first = await until("the index is there", uid_with_index)
        for _ in range(3):
            await make_node(admin, "node-a")
            second = await until("the new Node has it", uid_with_index)
            assert second != first
            first = second


@pytest.mark.usefixtures("crds")
async def test_each_right_is_needed_and_its_lack_stops_nothing_else(
    server: ClusterServer, namespace: str, tmp_path: Path
) -> None:
    async with trio.open_nursery() as nursery:
        for number, writer in enumerate(RULES):
            nursery.start_soon(_lacking, server, f"{namespace}-{number}", tmp_path / str(number), writer)


async def _lacking(server: ClusterServer, namespace: str, directory: Path, writer: str) -> None:
    refusing = {namespace: {"red": "vni 100 is taken"}}
    async with kube(server.admin) as admin:
        await make_namespace(admin, namespace)
        async with cluster(admin, namespace, directory, [namespace], without=[writer], bad=refusing) as nodes:
            await nodes.create("red", 100)

            async def refused() -> bool:
                return nodes.nodes[namespace].ctx.facts.get("failing") == f"{writer}: Forbidden"

            # A node that may not count the others waits as long as in a large cluster.
            await until(f"{writer} is refused", refused, seconds=100)
            await until(f"everything is written but {writer}", lambda: written(nodes, writer), seconds=100)


async def written(nodes: Cluster, without: str) -> bool:
    """Whether everything is there that is not forbidden."""
    [name] = nodes.nodes
    node = await nodes.admin.get(f"/api/v1/nodes/{name}")
    there = {
        "node status": bool(await status_of(nodes, name)),
        "events": bool(await nodes.events(name)),
        "node index": INDEX_ANNOTATION in node["metadata"].get("annotations", {}),
    }
    return all(is_there for writer, is_there in there.items() if writer != without)


async def test_a_server_that_restarts_receives_what_changed_meanwhile(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        node = nodes.nodes["node-a"]
        await trio.to_thread.run_sync(server.stop)
        report = node.health.peek()
        assert report is not None
        node.health.set(replace(report, sessions=tuple(replace(one, state="Active") for one in report.sessions)))
        await trio.sleep(QUIET_SECONDS)
        await trio.to_thread.run_sync(server.start)

        async def down() -> bool:
            return [one["state"] for one in (await status_of(nodes))["sessions"]] == ["Down"]

        await until("the session is down in the status", down, seconds=90)
