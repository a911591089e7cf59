"""What the cluster gets to see of a node, on a real API server, asked with the rights that the actor documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.lib.kube.errors import InvalidError, NotFoundError
from actors.status_writer import feedback_suppression
from actors.status_writer.condition_codec import Claim
from actors.status_writer.node_events import body as event_body
from actors.status_writer.node_events import claimed as claimed_event
from actors.status_writer.node_status import path_of
from config.api import INDEX_ANNOTATION
from tests.actors.status_writer.examples import cr
from tests.cluster.harness import ClusterServer, Json, both_versions, kube, make_namespace
from tests.cluster.status_writing import RULES, Cluster, cluster, until

NAMES = tuple(f"node-{letter}" for letter in "abcdefgh")
#: Longer than any wait that is not for hours: what was not sent by then is not sent.
QUIET_SECONDS = 8.0


@pytest.fixture
def checks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let old claims be old after seconds."""
    monkeypatch.setattr(feedback_suppression, "CHECK_SECONDS", 6.0)


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


async def claimed(nodes: Cluster, name: str, ready: str, generation: int = 1) -> dict[str, Json]:
    """Wait until the conditions of an L3VNI say so, and return them."""

    async def said() -> dict[str, Json]:
        conditions = await nodes.conditions(name)
        fits = conditions and conditions["Ready"]["observedGeneration"] == generation
        return conditions if fits and conditions["Ready"]["status"] == ready else {}

    return await until(f"{name} is Ready={ready}", said)


def condition(status: Json, type_: str) -> Json:
    [found] = [one for one in status["conditions"] if one["type"] == type_]
    return dict(found)


def sent(server: ClusterServer, namespace: str) -> Counter[tuple[str, str, int]]:
    """Return what the announcing account asked, as verb, resource and answer, but for how many nodes there are."""
    asked = server.requests(f"system:serviceaccount:{namespace}:announce")
    return Counter((one.verb, one.resource, one.code) for one in asked if one.verb != "list")


@both_versions
async def test_a_node_says_what_became_of_its_configuration(
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
async def test_conditions_and_events_of_an_object(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    refusing = {"node-a": {"blue": "vni 200 is taken by L3VNI green"}}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, bad=refusing) as nodes:
        uid = (await nodes.create("blue", 200))["metadata"]["uid"]
        conditions = await claimed(nodes, "blue", "False")
        assert conditions["Degraded"]["message"] == "node node-a: vni: vni 200 is taken by L3VNI green"
        [event] = await until("there is an Event", lambda: described(nodes, namespace, "blue", "L3VNI", uid))
        assert (event["type"], event["reason"]) == ("Warning", "ValidationFailed")
        assert event["message"] == "node node-a: vni: vni 200 is taken by L3VNI green"
        nodes.nodes["node-a"].bad.clear()
        nodes.nodes["node-a"].route()
        await claimed(nodes, "blue", "True")
        await until("the end is told", lambda: nodes.events(namespace, name="blue"))
        events = await until("both are told", lambda: two_events(nodes, namespace, uid))
        assert sorted(one["type"] for one in events) == ["Normal", "Warning"]


async def described(nodes: Cluster, namespace: str, name: str, kind: str, uid: str) -> list[Json]:
    """Return the Events that ``kubectl describe`` shows of an object: it asks the old group, for these fields."""
    fields = {"name": name, "namespace": namespace, "kind": kind, "uid": uid}
    selector = ",".join(f"involvedObject.{key}={value}" for key, value in fields.items())
    where = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
    found = await nodes.admin.get(where, {"fieldSelector": selector})
    return list(found["items"])


async def two_events(nodes: Cluster, namespace: str, uid: str) -> list[Json]:
    events = await described(nodes, namespace, "blue", "L3VNI", uid)
    return events if len(events) == 2 else []


async def test_the_nodes_own_trouble_is_an_event_of_the_node(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        node = nodes.nodes["node-a"]
        outcome = node.frr.peek()
        assert outcome is not None
        node.frr.set(replace(outcome, applied=False, error="FRR refuses the configuration: line 7"))
        uid = (await admin.get("/api/v1/nodes/node-a"))["metadata"]["uid"]
        [event] = await until("there is an Event", lambda: described(nodes, "", "node-a", "Node", uid))
        assert (event["reason"], event["metadata"]["namespace"]) == ("FrrConfigurationFailed", "default")
        assert "line 7" in event["message"]

        async def refused() -> bool:
            return bool(condition(await status_of(nodes), "Degraded")["status"] == "True")

        await until("the status says so", refused)
        kinds = [one["kind"] for one in (await status_of(nodes))["failedResources"]]
        assert kinds == ["FrrConfiguration"]


async def test_a_hundred_objects_are_ready_before_kubectl_wait_gives_up(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    assert crds
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        for number in range(100):
            await nodes.create(f"net-{number}", 100 + number)

        async def ready() -> bool:
            listed = (await admin.get(nodes.collection))["items"]
            return all("conditions" in one.get("status", {}) for one in listed)

        await until("all are ready", ready, seconds=30)


@both_versions
@pytest.mark.parametrize("letter", ["x", "ü", "…"])
async def test_the_longest_note_is_taken(server: ClusterServer, namespace: str, letter: str) -> None:
    """Its length is limited in bytes, where those of custom resources are in characters."""
    one = replace(cr("n" * 253), namespace=namespace)
    told = claimed_event(one, Claim(True, "node-a", "ValidationFailed", letter * 2000))
    whole = event_body(told, "node-a", "2027-01-15T08:00:00.000000Z")
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    async with kube(server.admin) as admin:
        assert (await admin.create(path, whole))["note"] == told.note
        too_long = whole | {"metadata": {"name": "too-long"}, "note": told.note + "xxxx"}
        with pytest.raises(InvalidError):
            await admin.create(path, too_long)


async def test_a_quiet_node_sends_nothing(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path) as nodes:
        await nodes.create("red", 100)
        await listed(nodes, "red")
        await claimed(nodes, "red", "True")
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
        # What is compared and counted below has to be the last word: a claim follows seconds after the status.
        await claimed(nodes, "red", "True")
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
            word = "Active" if step % 2 else "Established"
            node.health.set(replace(report, sessions=tuple(replace(one, state=word) for one in report.sessions)))
            await trio.sleep(0.5)
        assert sent(server, namespace).total() - before <= 7


async def test_several_nodes_share_the_conditions(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, NAMES) as nodes:
        await nodes.create("red", 100)
        await claimed(nodes, "red", "True")
        await trio.sleep(QUIET_SECONDS)
        taken = sent(server, namespace)["patch", "l3vnis/status", 200]
        assert taken == 1

        # One node refuses the next generation: it is named, and the others leave that alone.
        nodes.nodes["node-c"].bad["red"] = "vni 101 is taken"
        await admin.merge_patch(f"{nodes.collection}/red", {"spec": {"vni": 101}}, manager="user")
        conditions = await claimed(nodes, "red", "False", generation=2)
        assert conditions["Degraded"]["message"] == "node node-c: vni: vni 101 is taken"
        await trio.sleep(QUIET_SECONDS)
        assert sent(server, namespace)["patch", "l3vnis/status", 200] <= taken + 2

        # It takes that back itself.
        nodes.nodes["node-c"].bad.clear()
        nodes.nodes["node-c"].route()
        conditions = await claimed(nodes, "red", "True", generation=2)
        assert conditions["Ready"]["message"].startswith("node node-c: ")
        owners = {one["manager"] for one in (await admin.get(f"{nodes.collection}/red"))["metadata"]["managedFields"]}
        assert "openperouter-conditions" in owners


async def test_all_nodes_fail_and_one_says_so(
    server: ClusterServer, crds: list[str], namespace: str, tmp_path: Path
) -> None:
    refusing = {name: {"red": f"vni 100 is taken on {name}"} for name in NAMES}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, NAMES, bad=refusing) as nodes:
        await nodes.create("red", 100)
        await claimed(nodes, "red", "False")
        await trio.sleep(QUIET_SECONDS)
        assert sent(server, namespace)["patch", "l3vnis/status", 200] == 1
        assert len(await nodes.events(namespace, name="red")) == 1
        for name in NAMES:
            assert (await listed(nodes, "red", node=name))["failedResources"][0]["message"].endswith(name)


@pytest.mark.parametrize("still_failing", [False, True])
@pytest.mark.usefixtures("crds", "checks_soon")
async def test_a_claim_is_checked_when_it_is_old(
    server: ClusterServer, namespace: str, tmp_path: Path, still_failing: bool
) -> None:
    refusing = {"node-b": {"red": "vni 100 is taken"}}
    async with kube(server.admin) as admin, cluster(admin, namespace, tmp_path, NAMES[:4], bad=refusing) as nodes:
        await nodes.create("red", 100)
        await claimed(nodes, "red", "False")
        await listed(nodes, "red", node="node-b")
        nodes.nodes["node-b"].scope.cancel()
        if not still_failing:
            await admin.delete(path_of(namespace, "node-b"))
            await claimed(nodes, "red", "True")
            return

        async def confirmed() -> bool:
            return "still so at" in (await nodes.conditions("red"))["Degraded"]["message"]

        await until("somebody has looked", confirmed)
        assert (await nodes.conditions("red"))["Ready"]["status"] == "False"


async def test_the_index_is_on_the_node_whatever_somebody_writes(
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
        uid = (await admin.get("/api/v1/nodes/node-a"))["metadata"]["uid"]
        [event] = await until("it is told", lambda: described(nodes, "", "node-a", "Node", uid))
        assert event["reason"] == "NodeIndexReplaced"
        assert "'77'" in event["message"]


@pytest.mark.usefixtures("crds", "checks_soon")
async def test_each_right_is_needed_and_its_lack_stops_nothing_else(
    server: ClusterServer, namespace: str, tmp_path: Path
) -> None:
    async with trio.open_nursery() as nursery:
        for number, duty in enumerate(RULES):
            nursery.start_soon(_lacking, server, f"{namespace}-{number}", tmp_path / str(number), duty)


async def _lacking(server: ClusterServer, namespace: str, directory: Path, duty: str) -> None:
    names = (f"{namespace}-a", f"{namespace}-b")
    refusing = {names[1]: {"red": "vni 100 is taken"}}
    async with kube(server.admin) as admin:
        await make_namespace(admin, namespace)
        async with cluster(admin, namespace, directory, names, without=[duty], bad=refusing) as nodes:
            await nodes.create("red", 100)

            async def refused() -> bool:
                return any("Forbidden" in str(node.ctx.facts.get("failing")) for node in nodes.nodes.values())

            # Who may not ask how many nodes there are waits as long as in a large cluster.
            await until(f"{duty} is refused", refused, seconds=100)
            await until(f"all is done but {duty}", lambda: done(nodes, duty), seconds=100)


async def done(nodes: Cluster, without: str) -> bool:
    """Whether everything is there that is not forbidden."""
    _, name = nodes.nodes
    node = await nodes.admin.get(f"/api/v1/nodes/{name}")
    there = {
        "node status": bool(await status_of(nodes, name)),
        "conditions": bool(await nodes.conditions("red")),
        "events": bool(await nodes.events(nodes.namespace, name="red")),
        "node index": INDEX_ANNOTATION in node["metadata"].get("annotations", {}),
    }
    return all(is_there for duty, is_there in there.items() if duty != without)


async def test_a_server_that_restarts_is_told_what_changed_meanwhile(
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

        async def told() -> bool:
            return [one["state"] for one in (await status_of(nodes))["sessions"]] == ["Down"]

        await until("the session is down in the status", told, seconds=90)
