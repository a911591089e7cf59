"""The crd_watch actor under faults: nothing is lost, no request is sent too often, every outage is logged."""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import NODE_STATUS_PLURAL
from config.problems import Kind
from tests.actors.crd_watch.bench import SYSTEM, Bench, every_kind, failing, followed
from tests.actors.message_catalog import explained
from tests.fakes.api_server import path_of

BROKEN = UnreachableError("the watch broke: connection reset")


# Lost connections


@pytest.mark.parametrize("error", [None, BROKEN, UnreachableError("the watch ended in the middle of an event")])
async def test_a_watch_that_ends_continues_from_its_version(
    autojump_clock: MockClock, bench: Bench, error: ApiError | None
) -> None:
    await followed(bench)
    bench.server.put_kind(Kind.L3VNI, "pink")
    bench.server.break_watches(error)
    bench.server.put_kind(Kind.L3VNI, "teal")
    await bench.names("red", "green", "blue", "pink", "teal", seconds=5)
    assert "list" not in dict(bench.server.requests)
    assert all(snapshot.live for snapshot in bench.published)


async def test_a_quiet_hour_costs_a_watch_for_each_collection_in_five_minutes(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    await trio.sleep(3600)
    collections = Counter([*every_kind(), "nodes"])
    watches = Counter(bench.server.requests_of("watch"))
    assert all(12 * number <= watches[name] <= 13 * number for name, number in collections.items())
    # And the number of nodes, ever more rarely.
    others = [request for request in bench.server.requests if request[0] != "watch"]
    assert set(others) == {("count", path_of(NODE_STATUS_PLURAL, namespace=SYSTEM))}
    assert len(others) <= 3
    assert len(bench.published) == 1


async def test_a_restart_of_the_server_is_one_prober_and_no_list(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.stop()
    await trio.sleep(3)
    bench.server.start()
    await trio.sleep(30)
    probes = bench.server.requests.count(("get", "/readyz"))
    assert 1 <= probes <= 12
    watches = Counter(bench.server.requests_of("watch"))
    # At most one of them finds the server unreachable before all wait for the probe, and one more at the same moment.
    assert set(watches.values()) <= {1, 2}
    assert bench.server.requests_of("list") == ["nodes"]
    assert len(bench.published) == 1


async def test_a_server_that_stays_unreachable_is_logged_once_and_probed_rarely(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await followed(bench)
    caplog.set_level(logging.INFO)
    lost_at = trio.current_time()
    bench.server.stop()
    bench.server.put_kind(Kind.L3VNI, "pink")
    bench.server.delete_kind(Kind.L3VNI, "blue")
    lost = await bench.until(lambda snapshot: not snapshot.live)
    assert 10 <= trio.current_time() - lost_at <= 11
    assert {one.name for one in lost.objects} == {"red", "green", "blue"}
    assert bench.ctx.facts["state"] == "reconnecting"
    assert bench.ctx.facts["trouble"] == "connection refused"
    bench.server.requests.clear()
    await trio.sleep(600)
    assert set(bench.server.requests) == {("get", "/readyz")}
    assert 60 <= len(bench.server.requests) <= 240
    bench.server.start()
    back = await bench.live()
    assert {one.name for one in back.objects} == {"red", "green", "pink"}
    assert [snapshot.live for snapshot in bench.published] == [True, False, True]
    assert back.synced_at > lost.synced_at
    await trio.sleep(1)
    assert "trouble" not in bench.ctx.facts
    assert [record.getMessage() for record in caplog.records] == [
        "the API server does not answer",
        "no longer following the API server; its last known state stays in force",
        "the API server is available again",
        "following the API server",
    ]
    assert explained(caplog.records) == ["API_LOST", "API_NOT_FOLLOWED", "API_BACK", "API_FOLLOWED"]


async def test_a_watch_that_fails_alone_is_no_loss_of_the_server(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await followed(bench)
    caplog.set_level(logging.INFO)
    bench.server.trouble = failing(BROKEN, "watch", "l2vnis")
    bench.server.break_watches()
    await trio.sleep(60)
    # It is retried with a growing backoff.
    assert 6 <= bench.server.requests_of("watch").count("l2vnis") <= 60
    assert bench.server.requests_of("watch").count("l3vnis") == 1
    assert [snapshot.live for snapshot in bench.published] == [True, False]
    bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=10)
    bench.server.start()
    await bench.live()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_watch_that_cannot_be_opened_again_is_no_watch(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.hanging = "watch"
    bench.server.break_watches()
    begin = trio.current_time()
    await bench.until(lambda snapshot: not snapshot.live)
    assert trio.current_time() - begin <= 11
    bench.server.hanging = ""
    await bench.live()


async def test_what_was_missed_in_several_kinds_comes_together(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.stop()
    kinds = (Kind.L2VNI, Kind.L3VNI, Kind.L3PASSTHROUGH, Kind.RAW_FRR_CONFIG)
    for kind in kinds:
        bench.server.put_kind(kind, f"new-{kind}")
    bench.server.start(forget=True)
    await bench.names("red", "green", "blue", *(f"new-{kind}" for kind in kinds))
    assert len(bench.published) == 2


async def test_a_snapshot_that_is_not_live_has_the_time_when_it_was_last_true(
    autojump_clock: MockClock, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9 + trio.current_time())
    await followed(bench)
    for _ in range(10):
        for resource in (*every_kind(), "nodes"):
            bench.server.bookmark(resource)
        await trio.sleep(60)
    lost_at = 1e9 + trio.current_time()
    bench.server.stop()
    lost = await bench.until(lambda snapshot: not snapshot.live)
    assert lost_at - 61 <= lost.synced_at <= lost_at
    await trio.sleep(1000)
    assert len(bench.published) == 2
    bench.server.start()
    back = await bench.live()
    assert 0 <= time.time() - back.synced_at <= 1


async def test_watches_that_end_at_once_are_not_opened_in_a_loop(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.watch_seconds = 0
    bench.server.break_watches()
    await trio.sleep(100)
    assert len(bench.server.requests_of("watch")) < 8 * 40


async def test_connections_that_died_silently_are_cut_when_one_of_them_shows_it(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    # The watch of one kind is the first to notice; the others would stay silent for minutes.
    bench.server.inject("l2vnis", {"type": "GARBAGE", "object": {"metadata": {"name": "x", "resourceVersion": "9999"}}})
    bench.server.trouble = failing(UnreachableError("no route to host"))
    await trio.testing.wait_all_tasks_blocked()
    bench.server.let_connections_die()
    await bench.until(lambda snapshot: not snapshot.live)
    bench.server.put_kind(Kind.L3VNI, "pink")
    bench.server.start()
    snapshot = await bench.names("red", "green", "blue", "pink", seconds=15)
    assert snapshot.live


# A history that is forgotten


async def test_a_forgotten_version_means_a_new_list_and_the_difference(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.stop()
    bench.server.put_kind(Kind.L3VNI, "pink")
    bench.server.delete_kind(Kind.L3VNI, "blue")
    await trio.sleep(3)
    bench.server.start(forget=True)
    await bench.names("red", "green", "pink", seconds=20)
    await trio.sleep(100)
    assert Counter(bench.server.requests_of("list")) == Counter([*every_kind(), "nodes"])
    assert len(bench.published) == 2


async def test_a_forgotten_version_as_an_answer_is_the_same(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    answers = itertools.chain([error_for(410, "Expired", "too old")], itertools.repeat(None))
    bench.server.trouble = lambda verb, path: next(answers) if (verb, path) == ("watch", path_of("l3vnis")) else None
    bench.server.break_watches()
    bench.server.delete_kind(Kind.L3VNI, "blue")
    await bench.names("red", "green", seconds=10)
    assert bench.server.requests_of("list") == ["l3vnis"]


async def test_a_list_that_breaks_in_the_middle_leaves_no_trace(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.page = 1
    bench.server.compact()
    errors = itertools.cycle([None, BROKEN, None, error_for(410, "Expired", "the token has expired")])
    bench.server.trouble = lambda verb, path: next(errors) if (verb, path) == ("list", path_of("l3vnis")) else None
    bench.server.break_watches()
    await trio.sleep(30)
    assert bench.server.requests_of("list").count("l3vnis") > 4
    bench.server.delete_kind(Kind.L3VNI, "blue")
    bench.server.start()
    await bench.names("red", "green", seconds=70)


async def test_lists_are_read_in_pages(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.page = 2
    bench.begin()
    await bench.names("red", "green", "blue")
    assert bench.server.requests_of("list").count("l3vnis") == 2


async def test_an_error_event_of_another_kind_is_a_new_list_at_the_latest_after_three(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    error = {"type": "ERROR", "object": {"code": 500, "message": "storage feature is disabled"}}
    for _ in range(3):
        assert bench.server.requests_of("list") == []
        bench.server.inject("l3vnis", error)
        await trio.sleep(3.5)
    await trio.sleep(3)
    assert bench.server.requests_of("list") == ["l3vnis"]
    bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=20)


async def test_events_that_come_twice_change_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    raw = bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "pink")
    for _ in range(3):
        bench.server.inject("l3vnis", {"type": "ADDED", "object": raw})
    await trio.sleep(10)
    assert len(bench.published) == 2
    assert bench.server.requests == []


async def test_an_old_event_that_comes_late_is_ignored(autojump_clock: MockClock, bench: Bench) -> None:
    raw = bench.server.put_kind(Kind.L3VNI, "pink")
    await followed(bench)
    bench.server.delete_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue")
    bench.server.inject("l3vnis", {"type": "MODIFIED", "object": raw})
    await trio.sleep(10)
    assert len(bench.published) == 2
    assert bench.server.requests_of("list") == ["l3vnis"]


async def test_an_object_that_is_deleted_and_created_again_is_another(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.delete_kind(Kind.L3VNI, "blue")
    raw = bench.server.put_kind(Kind.L3VNI, "blue")
    snapshot = await bench.until(lambda snapshot: snapshot.objects[0].uid == raw["metadata"]["uid"])
    assert len(snapshot.objects) == 3


async def test_bookmarks_move_the_version_and_nothing_else(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.version += 1000
    bench.server.bookmark("l3vnis")
    await trio.sleep(1)
    bench.server.oldest = bench.server.version
    bench.server.break_watches()
    await trio.sleep(30)
    assert "l3vnis" not in bench.server.requests_of("list")
    assert len(bench.published) == 1


async def test_a_server_restored_from_a_backup_is_listed_again(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.stop()
    await trio.sleep(20)
    # As after an etcd restore: older versions, other content, and no error for watches from the future.
    bench.server.history.clear()
    bench.server.version = 50
    del bench.server.objects[path_of("l3vnis", "blue", "default")]
    bench.server.start()
    await bench.names("red", "green", seconds=30)
    assert "l3vnis" in bench.server.requests_of("list")
    bench.server.put_kind(Kind.L2VNI, "pink")
    await bench.names("red", "green", "pink", seconds=30)


async def test_a_server_that_comes_back_with_older_data_and_other_credentials_is_listed_again(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    bench.server.stop()
    await trio.sleep(20)
    # As after kubeadm reset and init: another cluster at the same address, whose kubeconfig ends the wait for the old.
    bench.server.history.clear()
    bench.server.version = 50
    del bench.server.objects[path_of("l3vnis", "blue", "default")]
    bench.server.start()
    bench.say_access(bench.server.credentials("renewed"))
    await bench.names("red", "green", seconds=30)
    assert "l3vnis" in bench.server.requests_of("list")
    bench.server.put_kind(Kind.L2VNI, "pink")
    await bench.names("red", "green", "pink", seconds=30)
