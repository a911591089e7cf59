"""The crd_watch actor and a server that refuses: missing kinds, permissions, credentials, load."""

from __future__ import annotations

import logging
import time

import pytest
import trio
from trio.testing import MockClock

from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import ApiSnapshot, WatchFailure
from config.desired import Secret
from config.problems import Kind
from tests.actors.crd_watch.bench import SYSTEM, Bench, failing, followed
from tests.actors.message_catalog import explained
from tests.fakes.api_server import forbidden, not_found, path_of

BROKEN = UnreachableError("the watch broke: connection reset")


async def test_kinds_that_are_not_installed_are_empty_and_logged(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.server.trouble = failing(not_found(), "", "l2vnis", "routernodeconfigurationstatuses")
    bench.begin()
    await bench.live()
    await trio.sleep(300)
    assert bench.ctx.facts["not_installed"] == "l2vnis, routernodeconfigurationstatuses"
    assert bench.ctx.facts["state"] == "watching"
    assert 6 <= bench.server.requests_of("list").count("l2vnis") <= 20
    [snapshot] = bench.published
    missing = [(plural, WatchFailure.MISSING, False) for plural in ("l2vnis", "routernodeconfigurationstatuses")]
    assert (failures(snapshot), snapshot.unlisted, snapshot.doubts) == (missing, frozenset({Kind.L2VNI}), ())
    bench.server.start()
    bench.server.put_kind(Kind.L2VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=100)
    await trio.sleep(100)
    assert "not_installed" not in bench.ctx.facts
    messages = [record.getMessage() for record in caplog.records if record.name.endswith(("crd_watch", ".api"))]
    assert sorted(messages) == [
        "a kind is not installed on the API server",
        "a kind is not installed on the API server",
        "following the API server",
        "the API server's objects can be read again",
        "the API server's objects can be read again",
    ]
    expected = ["API_FOLLOWED", *["API_KIND_MISSING"] * 2, *["API_OBJECTS_READABLE"] * 2]
    assert (
        sorted(explained(record for record in caplog.records if record.name.endswith(("crd_watch", ".api"))))
        == expected
    )


async def test_a_crd_that_is_removed_takes_its_objects_along(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.put_kind(Kind.L2VNI, "pink")
    await followed(bench)
    bench.server.delete_kind(Kind.L2VNI, "pink")
    # The server deletes the objects first, and then the kind.
    await trio.sleep(0.1)
    bench.server.trouble = failing(not_found(), "", "l2vnis")
    bench.server.break_watches()
    snapshot = await bench.names("red", "green", "blue")
    assert snapshot.live
    await trio.sleep(100)
    assert bench.ctx.facts["not_installed"] == "l2vnis"
    assert len(bench.published) == 2


async def test_a_crd_that_disappears_without_events_leaves_its_objects(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.put_kind(Kind.L2VNI, "pink")
    await followed(bench)
    bench.server.trouble = failing(not_found(), "", "l2vnis")
    bench.server.break_watches()
    await trio.sleep(300)
    assert [(failures(snapshot), len(snapshot.doubts), len(snapshot.objects)) for snapshot in bench.published] == [
        ([], 0, 4),
        ([("l2vnis", WatchFailure.MISSING, True)], 1, 4),
    ]
    assert bench.ctx.facts["not_installed"] == "l2vnis"
    [record] = caplog.records
    assert "stay in force" in record.getMessage()
    assert explained([record]) == ["API_KIND_MISSING"]
    # Installed again, it is listed.
    del bench.server.objects[path_of("l2vnis", "pink", "default")]
    bench.server.start()
    await bench.names("red", "green", "blue", seconds=100)


async def test_a_server_that_answers_not_found_to_everything_is_not_an_api_server(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.trouble = lambda verb, path: not_found()
    bench.begin()
    await trio.sleep(300)
    assert bench.published == []
    bench.server.start()
    await bench.names("red", "green", "blue")
    bench.server.trouble = lambda verb, path: not_found()
    bench.server.break_watches(BROKEN)
    await trio.sleep(300)
    assert {len(snapshot.objects) for snapshot in bench.published} == {3}


async def test_a_kind_that_may_not_be_read_holds_up_no_other_and_is_logged(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a node with a new version in a cluster whose roles are still those of the old one."""
    bench.server.trouble = failing(forbidden("list", "l2vnis"), "list", "l2vnis")
    bench.server.put_kind(Kind.L2VNI, "pink")
    bench.begin()
    snapshot = await bench.names("red", "green", "blue", seconds=5)
    assert (snapshot.live, failures(snapshot)) == (True, [("l2vnis", WatchFailure.REFUSED, False)])
    # What there is of it is not known; that is not "none".
    assert snapshot.unlisted == {Kind.L2VNI}
    assert snapshot.doubts == snapshot.not_followed
    await trio.sleep(300)
    assert len(bench.published) == 1
    assert (bench.ctx.facts["refused"], bench.ctx.facts["state"]) == ("list l2vnis", "watching")
    assert 6 <= bench.server.requests_of("list").count("l2vnis") <= 20
    # Other credentials are no reason to log it again.
    bench.say_access(bench.server.credentials("renewed"))
    await trio.sleep(100)
    [record] = caplog.records
    fields = record.__dict__["fields"]
    assert (fields["verb"], fields["resource"]) == ("list", "l2vnis")
    assert "cannot list" in fields["error"]
    assert explained([record]) == ["API_FORBIDDEN"]
    bench.server.start()
    snapshot = await bench.names("red", "green", "blue", "pink", seconds=100)
    assert (await bench.until(lambda snapshot: not snapshot.not_followed)).unlisted == frozenset()


@pytest.mark.parametrize("error", [forbidden("list", "nodes"), error_for(500, "InternalError", "etcd")])
async def test_without_the_node_nothing_is_published(autojump_clock: MockClock, bench: Bench, error: ApiError) -> None:
    bench.server.trouble = failing(error, "list", "nodes")
    bench.begin()
    await trio.sleep(300)
    assert bench.published == []
    assert bench.ctx.facts["state"] == "listing"
    bench.server.start()
    await bench.names("red", "green", "blue", seconds=100)


async def test_a_kind_that_fails_from_its_first_list_on_is_left_out_after_two_minutes(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.put_kind(Kind.L2VNI, "pink")
    bench.server.trouble = failing(UnreachableError("no route to host"))
    bench.begin()
    # That the server was unreachable before does not shorten it.
    await trio.sleep(3600)
    bench.server.trouble = failing(error_for(500, "InternalError", "conversion webhook failed"), "", "l2vnis")
    await trio.sleep(110)
    assert bench.published == []
    # A server that was unreachable for so long is probed once a minute, and each retry waits for up to half of one.
    snapshot = await bench.names("red", "green", "blue", seconds=200)
    assert failures(snapshot) == [("l2vnis", WatchFailure.FAILING, False)]
    assert snapshot.unlisted == {Kind.L2VNI}
    await trio.sleep(300)
    assert all(snapshot.live for snapshot in bench.published)
    assert (bench.ctx.facts["state"], bench.ctx.facts["failing"]) == ("watching", "list l2vnis")
    bench.server.start()
    await bench.names("red", "green", "blue", "pink", seconds=100)
    await bench.until(lambda snapshot: not snapshot.not_followed)
    assert all(snapshot.live for snapshot in bench.published)


def failures(snapshot: ApiSnapshot) -> list[tuple[str, WatchFailure, bool]]:
    return [(one.resource, one.why, one.listed) for one in snapshot.not_followed]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (forbidden("list", "l2vnis"), WatchFailure.REFUSED),
        (not_found(), WatchFailure.MISSING),
        (error_for(500, "InternalError", "conversion webhook failed"), WatchFailure.FAILING),
    ],
)
async def test_a_kind_that_is_not_served_holds_up_no_other_when_labels_change(
    autojump_clock: MockClock, bench: Bench, monkeypatch: pytest.MonkeyPatch, error: ApiError, why: WatchFailure
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9 + trio.current_time())
    bench.server.put_kind(Kind.L2VNI, "zoned", {"nodeSelector": {"matchLabels": {"zone": "a"}}})
    bench.server.put_node(zone="a")
    await followed(bench)
    bench.server.trouble = failing(error, "", "l2vnis")
    bench.server.break_watches()
    await trio.sleep(60)
    failed_by = 1e9 + 60
    bench.server.put_node(zone="b")
    bench.server.put_kind(Kind.L3VNI, "pink")
    bench.server.delete_kind(Kind.L3VNI, "blue")
    snapshot = await bench.names("red", "green", "pink", "zoned", seconds=30)
    assert snapshot.labels["zone"] == "b"
    assert failures(snapshot) == [("l2vnis", why, True)]
    [one] = snapshot.doubts
    assert 1e9 <= one.since < failed_by
    # It is live, since the server answers, but its time is not now.
    assert snapshot.live is (why is not WatchFailure.FAILING)
    assert snapshot.synced_at < failed_by
    await trio.sleep(3600)
    bench.server.put_kind(Kind.L3VNI, "teal")
    assert (await bench.names("red", "green", "pink", "teal", "zoned", seconds=30)).synced_at < failed_by
    bench.server.start()
    snapshot = await bench.names("red", "green", "pink", "teal", seconds=100)
    snapshot = await bench.until(lambda snapshot: not snapshot.not_followed)
    assert snapshot.live
    assert time.time() - snapshot.synced_at <= 1


async def test_a_permission_that_is_withdrawn_keeps_what_is_known(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.trouble = failing(forbidden("watch", "l3vnis"), "", "l3vnis")
    bench.server.break_watches()
    await trio.sleep(300)
    assert [failures(snapshot) for snapshot in bench.published] == [[], [("l3vnis", WatchFailure.REFUSED, True)]]
    assert bench.ctx.facts["refused"] == "watch l3vnis"
    bench.server.put_kind(Kind.L2VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=1)
    bench.server.delete_kind(Kind.L3VNI, "blue")
    bench.server.start()
    await bench.names("red", "green", "pink", seconds=100)
    await trio.sleep(1)
    assert "refused" not in bench.ctx.facts
    assert "l3vnis" not in bench.server.requests_of("list")


async def test_a_server_that_comes_back_with_a_refusal_is_back(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.stop()
    await bench.until(lambda snapshot: not snapshot.live)
    bench.server.trouble = failing(forbidden("watch", "l3vnis"), "", "l3vnis")
    await bench.live(seconds=30)
    bench.server.start()
    await trio.sleep(100)
    # A server that has not read its rules yet, for longer than the grace period.
    bench.server.trouble = forbidden
    bench.server.break_watches(BROKEN)
    await bench.until(lambda snapshot: not snapshot.live)
    await trio.sleep(40)
    bench.server.start()
    await bench.live(seconds=30)
    await trio.sleep(100)
    assert "refused" not in bench.ctx.facts


async def test_secrets_that_may_not_be_read_do_not_hold_up_the_rest(autojump_clock: MockClock, bench: Bench) -> None:
    spec = {"neighbors": [{"passwordSecret": "bgp"}]}
    bench.server.put_secret("bgp", "x")
    bench.server.trouble = failing(forbidden("list", "secrets"), "", "secrets")
    bench.server.put_kind(Kind.UNDERLAY, "fabric", spec, namespace=SYSTEM)
    bench.begin()
    snapshot = await bench.names("red", "green", "blue", "fabric")
    # Not known: that is not the same as None, which means that it is not there.
    assert snapshot.secrets == {}
    await trio.sleep(60)
    assert bench.ctx.facts["refused"] == "list secrets"
    assert all(snapshot.live for snapshot in bench.published)
    bench.server.start()
    await bench.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp", "password"): Secret("x")}, seconds=100)
    bench.server.trouble = failing(forbidden("list", "secrets"), "", "secrets")
    bench.server.compact()
    bench.server.break_watches()
    await trio.sleep(100)
    assert all(snapshot.secrets for snapshot in bench.published[1:])


async def test_secrets_that_the_server_cannot_read_hold_up_the_rest_for_a_moment(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    bench.server.trouble = failing(error_for(500, "InternalError", "failed to decrypt"), "", "secrets")
    spec = {"neighbors": [{"passwordSecret": "bgp"}]}
    bench.server.put_kind(Kind.UNDERLAY, "fabric", spec, namespace=SYSTEM)
    begin = trio.current_time()
    snapshot = await bench.names("red", "green", "blue", "fabric")
    assert trio.current_time() - begin >= 10
    assert snapshot.secrets == {}
    # And that Secret alone: the server answers, and all the rest is followed and published.
    await trio.sleep(300)
    bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "fabric", "pink", seconds=1)
    await trio.sleep(300)
    assert all(snapshot.live for snapshot in bench.published)
    assert failures(bench.published[-1]) == [("secrets", WatchFailure.FAILING, False)]
    assert (bench.ctx.facts["state"], bench.ctx.facts["failing"]) == ("watching", "list secrets")
    bench.server.start()
    await bench.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp", "password"): None})


async def test_a_secret_that_cannot_be_read_any_more_keeps_its_value_and_the_snapshot_live(
    autojump_clock: MockClock, bench: Bench
) -> None:
    bench.server.put_secret("bgp", "x")
    bench.server.put_kind(Kind.UNDERLAY, "fabric", {"neighbors": [{"passwordSecret": "bgp"}]}, namespace=SYSTEM)
    await followed(bench)
    bench.server.trouble = failing(error_for(500, "InternalError", "failed to decrypt"), "", "secrets")
    bench.server.break_watches()
    await trio.sleep(300)
    assert bench.ctx.facts["state"] == "watching"
    assert str(bench.ctx.facts["failing"]).endswith("secrets")
    assert all(snapshot.live for snapshot in bench.published)
    assert bench.published[-1].secrets == {(SYSTEM, "bgp", "password"): Secret("x")}
    bench.server.put_secret("bgp", "y")
    bench.server.start()
    await bench.until(lambda snapshot: snapshot.secrets == {(SYSTEM, "bgp", "password"): Secret("y")}, seconds=50)


async def test_refused_credentials_are_retried_slowly_until_there_are_others(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await followed(bench)
    caplog.set_level(logging.INFO)
    bench.server.trouble = lambda verb, path: error_for(401, "Unauthorized", "Unauthorized")
    bench.server.break_watches()
    await bench.until(lambda snapshot: not snapshot.live)
    bench.server.requests.clear()
    await trio.sleep(600)
    assert 10 <= len(bench.server.requests) <= 80
    assert caplog.records[0].getMessage() == "the API server refuses the credentials"
    assert explained(caplog.records) == ["API_REFUSED", "API_NOT_FOLLOWED"]
    bench.server.start()
    bench.say_access(bench.server.credentials("renewed"))
    await bench.until(lambda snapshot: snapshot.live, seconds=2)


async def test_a_server_that_answers_with_errors_is_logged(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await followed(bench)
    bench.server.trouble = failing(error_for(500, "InternalError", "etcd is full"), "watch", "l3vnis")
    bench.server.break_watches()
    await trio.sleep(60)
    assert explained(caplog.records)[0] == "API_OBJECTS_UNREADABLE"


async def test_retry_after_is_respected(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    busy = error_for(429, "TooManyRequests", "later", retry_after=30)
    bench.server.trouble = failing(busy, "watch", "l3vnis")
    bench.server.break_watches()
    await trio.sleep(100)
    assert 3 <= bench.server.requests_of("watch").count("l3vnis") <= 4
    bench.server.trouble = lambda verb, path: error_for(503, "", "shutting down", retry_after=20)
    bench.server.break_watches(BROKEN)
    await trio.sleep(50)
    bench.server.requests.clear()
    await trio.sleep(100)
    assert 2 <= len(bench.server.requests) <= 12
    bench.server.start()
    await bench.live()


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_server_that_is_busy_for_long_gets_ever_fewer_requests(
    autojump_clock: MockClock, bench: Bench, verb: str
) -> None:
    await followed(bench)
    bench.server.trouble = failing(error_for(429, "TooManyRequests", "later", retry_after=1), verb, "l3vnis")
    bench.server.compact()
    bench.server.break_watches()
    bench.server.delete_kind(Kind.L3VNI, "blue")
    await trio.sleep(900)
    assert 10 <= len([one for one in bench.server.requests if one == (verb, path_of("l3vnis"))]) <= 40
    assert "l3vnis" not in bench.server.requests_of("list") or verb == "list"
    bench.server.start()
    await bench.names("red", "green", seconds=100)


async def test_a_server_whose_readiness_is_throttled_is_probed_ever_more_rarely(
    autojump_clock: MockClock, bench: Bench
) -> None:
    await followed(bench)
    bench.server.trouble = lambda verb, path: error_for(503, "", "shutting down", retry_after=1)
    bench.server.break_watches(BROKEN)
    await trio.sleep(600)
    assert 60 <= bench.server.requests_of("get").count("readyz") <= 240


async def test_a_server_that_is_not_ready_is_not_listed(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.trouble = failing(error_for(500, "", "[-]etcd failed"), "get")
    bench.begin()
    await trio.sleep(50)
    assert bench.server.requests_of("list") == []
    assert bench.ctx.facts["state"] == "waiting for the server"
    bench.server.start()
    await bench.live(seconds=20)


async def test_a_server_that_is_never_ready_is_listed_all_the_same(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.trouble = failing(error_for(500, "", "[-]kms-provider failed"), "get")
    bench.begin()
    snapshot = await bench.live(seconds=75)
    assert {one.name for one in snapshot.objects} == {"red", "green", "blue"}


async def test_a_server_that_has_not_read_its_rules_yet_is_probed_again(
    autojump_clock: MockClock, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.trouble = forbidden
    bench.begin()
    await trio.sleep(5)
    bench.server.start()
    await bench.live()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len(bench.server.requests_of("list")) == 8


async def test_a_silent_server_times_out(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.hanging = "get"
    bench.begin()
    await trio.sleep(6)
    assert "no answer within 5 s" in str(bench.ctx.facts["trouble"])
    bench.server.hanging = ""
    await bench.live(seconds=15)


async def test_a_forbidden_readiness_probe_counts_as_ready(autojump_clock: MockClock, bench: Bench) -> None:
    bench.server.trouble = failing(forbidden("get", "readyz"), "get")
    bench.begin()
    snapshot = await bench.live()
    assert {one.name for one in snapshot.objects} == {"red", "green", "blue"}


async def test_malformed_events_change_nothing(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    for event in ({}, {"type": "ADDED"}, {"type": "ADDED", "object": {"metadata": {"resourceVersion": "9999"}}}):
        bench.server.inject("l3vnis", event)
        await trio.sleep(5)
    assert len(bench.published) == 1
    bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=20)


async def test_outages_shorter_than_the_grace_period_are_not_published(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    for _ in range(20):
        bench.server.stop()
        await trio.sleep(2)
        bench.server.start()
        await trio.sleep(20)
    assert len(bench.published) == 1


async def test_a_kind_that_fails_alone_leaves_the_others_live(autojump_clock: MockClock, bench: Bench) -> None:
    await followed(bench)
    bench.server.trouble = failing(error_for(500, "InternalError", "conversion webhook failed"), "", "l2vnis")
    bench.server.break_watches()
    await trio.sleep(30)
    assert bench.ctx.facts["failing"] in ("watch l2vnis", "list l2vnis")
    bench.server.put_kind(Kind.L3VNI, "pink")
    await bench.names("red", "green", "blue", "pink", seconds=6)
