"""The crd_watch actor: what it publishes, when, and what it leaves alone."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.crd_watch import saved_labels
from actors.crd_watch.saved_labels import SavedLabels
from actors.lib.kube.errors import error_for
from actors.lib.kube.mirror_signature import mirror_key, proof
from config.api import PROOF_ANNOTATION, SOURCE_LABEL, STATIC_SOURCE, ApiNode, ApiSnapshot
from config.desired import Secret
from config.problems import Kind, ResourceId
from config.store.api_snapshot_file import FILE, SavedSnapshot, to_json
from supervisor.runtime.faults import leaves
from tests.actors.crd_watch.bench import SYSTEM, Bench, every_kind, failing, running
from tests.actors.message_catalog import explained
from tests.fakes.api_server import UNUSABLE, FakeApiServer, no_trouble, path_of

HERE = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node"}}}
THERE = {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "other"}}}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path) as bench:
        bench.server.put_node(zone="a")
        yield bench


async def test_it_waits_for_credentials_and_for_the_node_s_name(autojump_clock: MockClock, bench: Bench) -> None:
    await trio.sleep(1)
    assert bench.ctx.facts["state"] == "waiting for credentials"
    bench.say_access(bench.server.credentials())
    await trio.sleep(1)
    assert bench.ctx.facts["state"] == "waiting for the node's name"
    assert bench.server.requests == []
    bench.say_name()
    await bench.live()
    await trio.sleep(1)
    assert bench.ctx.facts["state"] == "watching"
    assert bench.ctx.mode == "idle"


async def test_a_snapshot_has_everything_that_concerns_the_node(autojump_clock: MockClock, bench: Bench) -> None:
    server = bench.server
    server.put_kind(Kind.UNDERLAY, "fabric", HERE, namespace=SYSTEM)
    server.put_kind(Kind.L3VNI, "red", {})
    server.put_kind(Kind.L3VNI, "blue", THERE)
    server.put_kind(Kind.L2VNI, "red", {"nodeSelector": {"matchLabels": {"zone": "a"}}}, namespace="tenant")
    server.put_kind(Kind.RAW_FRR_CONFIG, "raw", {"nodeSelector": None, "rawConfig": "!"})
    server.put_kind(Kind.L3PASSTHROUGH, "direct", {"nodeSelector": {"matchLabels": {"zone": "b"}}})
    status = server.put("routernodeconfigurationstatuses", "node", namespace=SYSTEM, status={"conditions": []})
    server.put("routernodeconfigurationstatuses", "other", namespace=SYSTEM)
    server.put_node("other")
    bench.begin()
    snapshot = await bench.live()
    assert [f"{one.kind} {one.name}" for one in snapshot.objects] == [
        "Underlay fabric",
        "L3VNI red",
        "L2VNI red",
        "RawFRRConfig raw",
    ]
    assert snapshot.node == ApiNode("node", "uid-101", {"kubernetes.io/hostname": "node", "zone": "a"})
    assert snapshot.node_status == status
    assert (snapshot.mirrored, snapshot.secrets) == ((), {})
    assert len(bench.published) == 1


async def test_one_list_and_one_watch_for_each_collection(autojump_clock: MockClock, bench: Bench) -> None:
    bench.begin()
    await bench.live()
    await trio.sleep(100)
    assert sorted(bench.server.requests_of("list")) == sorted(bench.server.requests_of("watch"))
    assert Counter(bench.server.requests_of("list")) == Counter([*every_kind(), "nodes"])
    assert bench.server.requests_of("get") == ["readyz"]
    assert bench.server.requests_of("count") == ["routernodeconfigurationstatuses"]


async def test_a_change_is_published_in_well_under_a_second(autojump_clock: MockClock, bench: Bench) -> None:
    bench.begin()
    await bench.live()
    begin = trio.current_time()
    bench.server.put_kind(Kind.L3VNI, "red")
    await bench.names("red", seconds=0.5)
    bench.server.delete_kind(Kind.L3VNI, "red")
    await bench.names(seconds=0.5)
    assert trio.current_time() - begin < 1


async def test_changes_elsewhere_are_no_news(autojump_clock: MockClock, bench: Bench) -> None:
    bench.begin()
    await bench.live()
    for number in range(10):
        bench.server.put_kind(Kind.L3VNI, f"vni-{number}", THERE)
        bench.server.put_node("other", number=str(number))
        await trio.sleep(2)
    bench.server.put_node(zone="a")
    await trio.sleep(1000)
    assert len(bench.published) == 1


async def test_an_object_that_is_selected_no_more_goes_and_one_that_is_now_comes(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.put_kind(Kind.L3VNI, "red", HERE)
    bench.server.put_kind(Kind.L3VNI, "blue", THERE)
    bench.begin()
    await bench.names("red")
    bench.server.put_kind(Kind.L3VNI, "red", THERE)
    bench.server.put_kind(Kind.L3VNI, "blue", HERE)
    await bench.names("blue")
    assert len(bench.published) == 2


async def test_a_selector_that_cannot_be_read_is_passed_to_the_merging_code(
    autojump_clock: MockClock, bench: Bench
) -> None:
    selectors = {"odd": {"matchExpressions": [{"key": "a", "operator": "Is"}]}, "odder": "all"}
    for name, selector in selectors.items():
        bench.server.put_kind(Kind.L3VNI, name, {"nodeSelector": selector})
    bench.begin()
    snapshot = await bench.names(*selectors)
    assert {one.name: one.spec["nodeSelector"] for one in snapshot.objects} == selectors


async def test_new_labels_select_again_and_all_kinds_at_once(autojump_clock: MockClock, bench: Bench) -> None:
    for kind in (Kind.L3VNI, Kind.L2VNI):
        bench.server.put_kind(kind, "a", {"nodeSelector": {"matchLabels": {"zone": "a"}}})
        bench.server.put_kind(kind, "b", {"nodeSelector": {"matchLabels": {"zone": "b"}}})
    bench.begin()
    await bench.names("a")
    bench.server.put_node(zone="b")
    snapshot = await bench.names("b")
    assert snapshot.labels["zone"] == "b"
    assert len(bench.published) == 2
    # Only the kinds with selectors that use the label were listed again, once.
    assert len(bench.server.requests_of("list")) == 8 + 2


async def test_nodes_that_get_a_label_together_do_not_list_together(autojump_clock: MockClock, tmp_path: Path) -> None:
    server = FakeApiServer()
    server.put_node(zone="a")
    server.put_kind(Kind.L3VNI, "b", {"nodeSelector": {"matchLabels": {"zone": "b"}}})
    async with AsyncExitStack() as stack:
        benches = [await stack.enter_async_context(running(tmp_path, server)) for _ in range(8)]
        for bench in benches:
            bench.begin()
            await bench.live()
        begin, before = trio.current_time(), len(server.requests)
        server.put_node(zone="b")
        for bench in benches:
            await bench.names("b", seconds=5)
    listed = zip(server.requests[before:], server.times[before:], strict=True)
    times = [time - begin for request, time in listed if request == ("list", path_of("l3vnis"))]
    assert len(times) == 8
    assert max(times) - min(times) > 0.5
    assert max(times) <= 3


def large_cluster(nodes: int) -> FakeApiServer:
    """Return a server to which so many nodes have reported."""
    server = FakeApiServer()
    server.put_node(zone="a")
    server.put_kind(Kind.L3VNI, "all")
    server.put_kind(Kind.L3VNI, "b", {"nodeSelector": {"matchLabels": {"zone": "b"}}})
    for name in (f"node-{number}" for number in range(nodes)):
        server.objects[path_of("routernodeconfigurationstatuses", name, SYSTEM)] = {"metadata": {"name": name}}
    return server


@pytest.mark.parametrize("what", ["a label", "a forgotten history"])
async def test_many_nodes_take_their_time_and_stay_live(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    server = large_cluster(5001)
    async with AsyncExitStack() as stack:
        benches = [await stack.enter_async_context(running(tmp_path, server)) for _ in range(8)]
        for bench in benches:
            bench.begin()
            await bench.live()
        # By then each of them has counted the nodes.
        await trio.sleep(100)
        assert server.requests_of("count").count("routernodeconfigurationstatuses") == 8
        begin, before = trio.current_time(), len(server.requests)
        if what == "a label":
            server.put_node(zone="b")
        else:
            server.stop()
            server.put_kind(Kind.L3VNI, "b")
            server.start(forget=True)
        for bench in benches:
            await bench.names("all", "b", seconds=70)
    listed = zip(server.requests[before:], server.times[before:], strict=True)
    times = [time - begin for request, time in listed if request == ("list", path_of("l3vnis"))]
    assert len(times) == 8
    assert max(times) - min(times) > 10
    assert max(times) <= 55
    assert all(snapshot.live for bench in benches for snapshot in bench.published)
    assert not [record for record in caplog.records if record.getMessage() != "the API server does not answer"]


async def test_nodes_are_counted_also_where_credentials_are_renewed_often(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.begin()
    for number in range(48):
        bench.say_access(bench.server.credentials(f"renewed-{number}"))
        await trio.sleep(3600)
    # Some four times until they are rare, and then every three to nine hours.
    assert 8 <= bench.server.requests_of("count").count("routernodeconfigurationstatuses") <= 20


async def test_labels_that_no_selector_uses_cost_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L3VNI, "a", {"nodeSelector": {"matchLabels": {"zone": "a"}}})
    bench.begin()
    await bench.live()
    bench.server.put_node(zone="a", rack="7")
    snapshot = await bench.until(lambda snapshot: snapshot.labels.get("rack") == "7", seconds=1)
    assert [one.name for one in snapshot.objects] == ["a"]
    assert len(bench.server.requests_of("list")) == 8


async def test_without_its_node_only_what_is_for_every_node_is_chosen(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.delete("nodes", "node")
    bench.server.put_kind(Kind.L3VNI, "all")
    bench.server.put_kind(Kind.L3VNI, "here", HERE)
    without = {"key": "zone", "operator": "DoesNotExist"}
    bench.server.put_kind(Kind.L3VNI, "without", {"nodeSelector": {"matchExpressions": [without]}})
    bench.begin()
    snapshot = await bench.names("all")
    assert snapshot.node is None
    bench.server.put_node()
    await bench.names("all", "here", "without")


async def test_a_node_that_is_deleted_keeps_its_networks(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L3VNI, "here", HERE)
    bench.begin()
    await bench.names("here")
    bench.server.delete("nodes", "node")
    snapshot = await bench.until(lambda snapshot: snapshot.node is None)
    assert [one.name for one in snapshot.objects] == ["here"]
    assert snapshot.chosen_by == {"kubernetes.io/hostname": "node", "zone": "a"}
    bench.server.put_node(zone="a")
    await bench.until(lambda snapshot: snapshot.node is not None)
    assert all(len(snapshot.objects) == 1 for snapshot in bench.published)


LABELS = {"kubernetes.io/hostname": "node", "zone": "a"}
ZONED = {"nodeSelector": {"matchLabels": {"zone": "a"}}}


def saved_by_former_versions(bench: Bench, name: str = "node") -> None:
    """Leave what a version leaves that had the labels beside the saved snapshot."""
    (bench.settings.state_dir / FILE).write_text(to_json(SavedSnapshot(name, ApiSnapshot(chosen_by=LABELS))))


def saved(bench: Bench, name: str = "node") -> None:
    SavedLabels(bench.settings.state_dir, name).write(LABELS)


@pytest.mark.parametrize("save", [saved, saved_by_former_versions])
@pytest.mark.parametrize("why", ["deleted", "refused"])
async def test_a_node_that_was_deleted_keeps_its_networks_over_a_restart(
    autojump_clock: MockClock, bench: Bench, why: str, save: Callable[[Bench], None]
) -> None:
    server = bench.server
    server.put_kind(Kind.L3VNI, "all")
    server.put_kind(Kind.L3VNI, "here", HERE)
    server.put_kind(Kind.L3VNI, "zoned", ZONED)
    server.put_kind(Kind.L3VNI, "elsewhere", THERE)
    save(bench)
    if why == "deleted":
        server.delete("nodes", "node")
    else:
        refused = error_for(403, "Forbidden", "no")
        server.trouble = failing(refused, "", "nodes")
    bench.begin()
    snapshot = await bench.names("all", "here", "zoned")
    assert snapshot.live
    assert snapshot.node is None
    assert snapshot.chosen_by == LABELS
    # As soon as there is a Node its labels count.
    server.trouble = no_trouble
    server.put_node(zone="b")
    await bench.names("all", "here", seconds=120)


async def test_labels_are_saved_when_they_change_and_only_then(
    autojump_clock: MockClock, bench: Bench, tmp_path: Path
) -> None:
    saved_by_former_versions(bench)
    bench.server.put_kind(Kind.L3VNI, "zoned", {"nodeSelector": {"matchLabels": {"zone": "b"}}})
    bench.begin()
    await bench.live()
    file = tmp_path / "node-labels.json"
    first = file.stat()
    assert first.st_mode & 0o777 == 0o600
    bench.server.put("nodes", "node", labels=LABELS, status={"images": []})
    await trio.sleep(10)
    assert file.stat().st_ino == first.st_ino
    bench.server.put_node(zone="b")
    await bench.names("zoned")
    bench.server.delete("nodes", "node")
    async with running(tmp_path, bench.server) as restarted:
        restarted.begin()
        # Not those of the former file, which are older.
        assert (await restarted.names("zoned")).chosen_by == {**LABELS, "zone": "b"}


async def test_a_slow_disk_holds_up_nothing_and_has_the_newest_labels_in_the_end(
    autojump_clock: MockClock, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def slow(function: Callable[..., object], *arguments: object) -> object:
        await trio.sleep(20)
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", slow)
    bench.begin()
    await bench.live(seconds=5)
    assert not (tmp_path / saved_labels.FILE).exists()
    bench.server.put_node(zone="b")
    await bench.until(lambda snapshot: snapshot.labels["zone"] == "b", seconds=5)
    bench.server.put_node(zone="c")
    snapshot = await bench.until(lambda snapshot: snapshot.labels["zone"] == "c", seconds=5)
    assert not (tmp_path / saved_labels.FILE).exists()
    await trio.sleep(20)
    # What is being written is not forgotten with the connection, whose tasks are cancelled.
    assert SavedLabels(tmp_path, "node").load() == {**snapshot.labels, "zone": "a"}
    bench.say_access(None)
    await trio.sleep(60)
    assert SavedLabels(tmp_path, "node").load() == snapshot.labels
    assert bench.ctx.mode == "idle"


async def test_a_disk_that_refuses_the_labels_is_reported_and_costs_nothing_else(
    autojump_clock: MockClock, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(saved_labels, "write_atomic", refuse)
    bench.begin()
    await bench.live()
    bench.server.put("nodes", "node", labels=LABELS, status={"images": []})
    await trio.sleep(10)
    assert explained(caplog.records) == ["MEMORY_LOST"]


@pytest.mark.parametrize("save", [saved, saved_by_former_versions])
@pytest.mark.parametrize("fault", ["another node's", "damaged"])
async def test_labels_that_are_not_the_nodes_are_not_used(
    autojump_clock: MockClock, bench: Bench, fault: str, save: Callable[[Bench, str], None]
) -> None:
    bench.server.put_kind(Kind.L3VNI, "all")
    bench.server.put_kind(Kind.L3VNI, "here", HERE)
    bench.server.delete("nodes", "node")
    save(bench, "node-b" if fault == "another node's" else "node")
    if fault == "damaged":
        for file in bench.settings.state_dir.glob("*.json"):
            file.write_bytes(file.read_bytes()[:-20])
    bench.begin()
    assert (await bench.names("all")).chosen_by is None


async def test_what_this_node_wrote_is_mirrored_whatever_its_labels_say(
    autojump_clock: MockClock, bench: Bench
) -> None:
    key = mirror_key(bench.settings.state_dir)
    proven = proof(key, ResourceId(Kind.L3VNI, SYSTEM, "ours"))
    ours = {"annotations": {PROOF_ANNOTATION: proven}}
    bench.server.put_kind(Kind.L3VNI, "ours", THERE, namespace=SYSTEM, metadata=ours)
    # A copied signature, or the label alone, does not count.
    bench.server.put_kind(Kind.L3VNI, "copied", HERE, namespace=SYSTEM, metadata=ours)
    bench.server.put_kind(Kind.L3VNI, "labelled", HERE, namespace=SYSTEM, labels={SOURCE_LABEL: STATIC_SOURCE})
    bench.begin()
    snapshot = await bench.live()
    assert [one.name for one in snapshot.mirrored] == ["ours"]
    assert [one.name for one in snapshot.objects] == ["copied", "labelled"]
    assert bench.ctx.facts["mirrored"] == 1
    # Without its proof it is a user's.
    bench.server.put_kind(Kind.L3VNI, "ours", HERE, namespace=SYSTEM)
    await bench.names("ours", "copied", "labelled")


def referring(*names: object) -> dict[str, object]:
    return {"neighbors": [{"address": "192.0.2.1", "passwordSecret": name} for name in names]}


async def test_secrets_of_underlays_in_our_namespace_are_followed(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_secret("bgp", "first\n")
    bench.server.put_kind(Kind.UNDERLAY, "fabric", referring("bgp", "absent"), namespace=SYSTEM)
    bench.server.put_kind(Kind.UNDERLAY, "foreign", referring("theirs"), namespace="default")
    bench.server.put_secret("theirs", "secret", namespace="default")
    bench.begin()
    snapshot = await bench.live()
    assert snapshot.secrets == {(SYSTEM, "bgp", "password"): Secret("first"), (SYSTEM, "absent", "password"): None}
    bench.server.put_secret("bgp", "second")
    await bench.until(lambda snapshot: snapshot.secrets[SYSTEM, "bgp", "password"] == Secret("second"), seconds=1)
    bench.server.put_secret("absent", "there")
    await bench.until(lambda snapshot: snapshot.secrets[SYSTEM, "absent", "password"] == Secret("there"), seconds=1)
    bench.server.delete("secrets", "bgp", namespace=SYSTEM)
    await bench.until(lambda snapshot: snapshot.secrets[SYSTEM, "bgp", "password"] is None, seconds=1)
    assert "secret" not in repr(bench.published)
    assert "first" not in repr(bench.published)


async def test_each_key_of_a_secret_is_followed(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_secret("bgp", "first\n")
    both = ({"name": "bgp"}, {"name": "bgp", "key": "tor-1"}, {"name": "bgp", "key": "../x"}, {"key": "x"})
    bench.server.put_kind(Kind.UNDERLAY, "fabric", referring(*both), namespace=SYSTEM)
    bench.begin()
    assert (await bench.live()).secrets == {
        (SYSTEM, "bgp", "password"): Secret("first"),
        (SYSTEM, "bgp", "tor-1"): None,
    }


@pytest.mark.parametrize("kind", [Kind.L3VNI, Kind.L3PASSTHROUGH])
async def test_secrets_of_host_sessions_in_our_namespace_are_followed(
    kind: Kind, autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.put_secret("bgp", "first\n")
    bench.server.put_kind(kind, "ours", {"hostSession": {"passwordSecret": "bgp"}}, namespace=SYSTEM)
    bench.server.put_kind(kind, "theirs", {"hostSession": {"passwordSecret": "theirs"}}, namespace="default")
    bench.begin()
    assert (await bench.live()).secrets == {(SYSTEM, "bgp", "password"): Secret("first")}


async def test_a_secret_without_a_reference_is_not_read(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_secret("bgp", "first")
    bench.server.put_kind(Kind.UNDERLAY, "fabric", referring("bgp"), namespace=SYSTEM)
    bench.begin()
    await bench.until(lambda snapshot: len(snapshot.secrets) == 1)
    watches = bench.server.watches
    bench.server.put_kind(Kind.UNDERLAY, "fabric", {}, namespace=SYSTEM)
    await bench.until(lambda snapshot: not snapshot.secrets)
    await trio.sleep(1)
    assert bench.server.watches == watches - 1


async def test_a_reference_that_no_secret_can_have_sends_no_request(autojump_clock: MockClock, bench: Bench) -> None:
    names = ("../etc", "a,metadata.namespace=kube-system", "", "x" * 254)
    bench.server.put_kind(Kind.UNDERLAY, "fabric", referring(*names), namespace=SYSTEM)
    bench.server.put_kind(Kind.UNDERLAY, "odd", {"neighbors": [None, {"passwordSecret": 7}]}, namespace=SYSTEM)
    bench.server.put_kind(Kind.UNDERLAY, "odder", {"neighbors": "none"}, namespace=SYSTEM)
    bench.begin()
    assert (await bench.live()).secrets == {}
    assert "secrets" not in bench.server.requests_of("list")


async def test_other_credentials_continue_where_the_old_ones_were(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L3VNI, "red")
    bench.begin()
    await bench.names("red")
    await trio.sleep(1)
    bench.server.put_kind(Kind.L3VNI, "blue")
    bench.say_access(bench.server.credentials("renewed"))
    await bench.names("red", "blue")
    await trio.sleep(100)
    assert len(bench.server.requests_of("list")) == 8
    assert [client.open for client in bench.server.clients] == [False, True]
    assert all(snapshot.live for snapshot in bench.published)


async def test_credentials_that_no_client_can_be_made_of_wait_for_others(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.say_name()
    bench.say_access(bench.server.credentials(UNUSABLE))
    await trio.sleep(1000)
    assert bench.published == []
    assert bench.ctx.facts["trouble"] == "the certificates are not usable"
    assert explained(caplog.records) == ["API_CREDENTIALS_UNUSABLE"]
    bench.begin()
    await bench.live()
    assert "trouble" not in bench.ctx.facts


async def test_the_same_credentials_again_change_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    bench.begin()
    await bench.live()
    bench.begin()
    bench.say_access(replace(bench.server.credentials(), expires_at=1e9))
    await trio.sleep(1)
    assert len(bench.server.clients) == 1


async def test_another_servers_state_is_published_when_it_is_complete(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L3VNI, "red")
    bench.begin()
    await bench.names("red")
    bench.server.url = "https://192.0.2.2:6443"
    del bench.server.objects[path_of("l3vnis", "red", "default")]
    bench.server.put_kind(Kind.L3VNI, "blue")
    bench.server.history.clear()
    bench.server.version = 50
    bench.say_access(bench.server.credentials())
    await bench.names("blue")
    assert len(bench.published) == 2


async def test_another_node_name_gets_a_new_cache(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L3VNI, "here", HERE)
    bench.server.put_kind(Kind.L3VNI, "there", THERE)
    bench.server.put_node("other")
    bench.begin()
    await bench.names("here")
    bench.say_name("other")
    assert (await bench.names("there")).node == ApiNode("other", "uid-104", {"kubernetes.io/hostname": "other"})


async def test_credentials_that_disappear_leave_the_last_snapshot_not_live(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.put_kind(Kind.L3VNI, "red")
    bench.begin()
    before = await bench.names("red")
    bench.say_access(None)
    after = await bench.until(lambda snapshot: not snapshot.live)
    assert after.objects == before.objects
    await trio.sleep(100)
    assert bench.ctx.facts["state"] == "waiting for credentials"
    bench.say_access(bench.server.credentials())
    await bench.live()
    assert [snapshot.live for snapshot in bench.published] == [True, False, True]


async def test_a_restarted_actor_publishes_nothing_twice(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        first.server.put_node()
        first.server.put_kind(Kind.L3VNI, "red")
        first.begin()
        await first.names("red")
    async with running(tmp_path, first.server) as second:
        second.out.set(first.out.peek() or pytest.fail("nothing was published"))
        second.begin()
        await trio.sleep(100)
        assert second.ctx.facts["objects"] == 1
        assert len(second.published) == 1


async def test_a_hundred_objects_of_one_apply_are_few_snapshots(autojump_clock: MockClock, bench: Bench) -> None:
    bench.begin()
    await bench.live()
    for gap in (0.02, 0.1):
        before = len(bench.published)
        for number in range(100):
            bench.server.put_kind(Kind.L3VNI, f"vni-{number}")
            await trio.sleep(gap)
        await bench.until(lambda snapshot: len(snapshot.objects) == 100)
        assert len(bench.published) - before <= 3
        before = len(bench.published)
        for number in range(100):
            bench.server.delete_kind(Kind.L3VNI, f"vni-{number}")
            await trio.sleep(gap)
        await bench.names()
        assert len(bench.published) - before <= 3


async def test_it_ends_at_once_when_cancelled(autojump_clock: MockClock, tmp_path: Path) -> None:
    for moment in (0.0, 0.001, 0.3, 5.0):
        async with running(tmp_path) as bench:
            bench.server.put_node()
            bench.begin()
            await trio.sleep(moment)
            begin = trio.current_time()
        assert trio.current_time() - begin < 0.01
        assert not any(client.open for client in bench.server.clients)
        assert bench.server.watches == 0


async def test_a_bug_in_a_reflector_ends_the_actor(autojump_clock: MockClock, tmp_path: Path) -> None:
    def bug(verb: str, path: str) -> None:
        if (verb, path) == ("list", path_of("l2vnis")):
            raise ZeroDivisionError

    async def live() -> None:
        async with running(tmp_path) as bench:
            bench.server.trouble = bug
            bench.server.put_node()
            bench.begin()
            await trio.sleep(100)

    with pytest.raises(ExceptionGroup) as raised:
        await live()
    assert [type(leaf) for leaf in leaves(raised.value)] == [ZeroDivisionError]
