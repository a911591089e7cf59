"""The mirror actor: the files' resources are shown in the API, and mirrors that were changed are restored."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.api_mirror.schedule import FORGET_SECONDS, LAG_SECONDS
from actors.lib.kube.client import Json
from actors.lib.kube.errors import ApiError, error_for
from config.api import (
    PLURALS,
    PROOF_ANNOTATION,
    SOURCE_LABEL,
    STATIC_NODE_LABEL,
    ApiAccess,
    ApiCredentials,
    ApiNode,
    ApiReach,
)
from config.desired import Secret
from config.problems import Kind
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from supervisor.runtime.faults import DependencyFault
from tests.actors.message_catalog import explained
from tests.config.samples import l2vni, neighbor, passthrough, raw, underlay
from tests.fakes import api_server
from tests.fakes.api_server import no_trouble

from .bench import ACCESS, L3VNIS, NAME, Bench
from .examples import NODE, blue, broken, files, red, unknown


async def test_every_kind_is_mirrored(bench: Bench) -> None:
    await bench.files(underlay(), red(), l2vni("seg", 300, NAME), passthrough(), raw("text"))
    assert {kind: len(bench.server.find(f"/{PLURALS[kind]}/")) for kind in Kind} == dict.fromkeys(Kind, 1)
    assert bench.ctx.facts == {"mirrors": 5}


async def test_a_mirror_carries_labels_proof_and_owner(bench: Bench) -> None:
    await bench.files(red())
    [one] = bench.server.find("/l3vnis/")
    assert one["metadata"]["labels"] == {SOURCE_LABEL: "static", STATIC_NODE_LABEL: "node"}
    assert re.fullmatch("[0-9a-f]{64}", one["metadata"]["annotations"][PROOF_ANNOTATION])
    assert [owner["uid"] for owner in one["metadata"]["ownerReferences"]] == ["node-uid"]
    assert one["spec"]["nodeSelector"] == {"matchLabels": {"kubernetes.io/hostname": "node"}}


async def test_no_password_leaves_the_node(bench: Bench) -> None:
    await bench.files(underlay(neighbors=[neighbor(password="hush-1")]), raw("r", "neighbor 192.0.2.1 password hush-2"))
    assert len(bench.server.objects) == 2
    assert "hush" not in str(bench.server.objects)


async def test_a_converged_node_sends_nothing(bench: Bench, mock_clock: MockClock) -> None:
    await bench.files(red(), blue())
    sent = len(bench.server.requests)
    bench.watch()
    await bench.files(red(), blue())
    await bench.later(3600)
    assert (sent, len(bench.server.requests)) == (2, 2)


async def test_a_restarted_actor_sends_nothing(bench: Bench) -> None:
    await bench.files(red(), blue())
    async with trio.open_nursery() as nursery:
        bench.ctx = ActorContext("api_mirror", 2)
        nursery.start_soon(bench.start)
        await bench.settle()
        nursery.cancel_scope.cancel()
    assert bench.ctx.facts == {"mirrors": 2}
    assert len(bench.server.requests) == 2


async def test_a_changed_file_changes_its_mirror_only(bench: Bench) -> None:
    await bench.files(red(), blue())
    await bench.files(red(vni=101), blue())
    assert bench.spec()["vni"] == 101
    assert bench.server.requests[2:] == [("patch", f"{L3VNIS}/{NAME}")]


async def test_a_resource_that_is_removed_from_the_files_is_removed_from_the_api(bench: Bench) -> None:
    await bench.files(red(), blue())
    await bench.files(blue())
    assert bench.names() == ["static-node-blue"]
    assert bench.server.requests[2:] == [("delete", f"{L3VNIS}/{NAME}")]


async def test_a_manual_edit_is_reverted(bench: Bench) -> None:
    await bench.files(red())
    before = bench.spec()
    await bench.edit(NAME, vni=7, underlayAddressFamily="IPv6")
    assert bench.spec() == before


async def test_a_manually_deleted_mirror_comes_back(bench: Bench) -> None:
    await bench.files(red())
    bench.server.remove(NAME)
    await bench.settle()
    assert bench.names() == [NAME]


@pytest.mark.parametrize("stripped", ["labels", "annotations", "ownerReferences"])
async def test_stripped_metadata_comes_back(bench: Bench, stripped: str) -> None:
    await bench.files(red())
    before = bench.server.find("/l3vnis/")[0]["metadata"][stripped]
    bench.server.edit(NAME, lambda one: one["metadata"].pop(stripped))
    await bench.settle()
    assert bench.server.find("/l3vnis/")[0]["metadata"][stripped] == before


async def test_a_mirror_stripped_of_everything_and_sent_elsewhere_is_taken_back(bench: Bench) -> None:
    """No watch shows it any more: it selects another node and proves nothing."""
    await bench.files(red())
    before = bench.spec()

    def strip(one: Json) -> None:
        one["metadata"] = {key: one["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
        one["spec"]["nodeSelector"] = {"matchLabels": {"kubernetes.io/hostname": "other"}}

    bench.server.edit(NAME, strip)
    await bench.settle()
    assert bench.spec() == before
    assert bench.server.requests[1:] == [
        ("create", f"{L3VNIS}/{NAME}"), ("get", f"{L3VNIS}/{NAME}"), ("patch", f"{L3VNIS}/{NAME}"),
    ]  # fmt: skip


async def test_a_spoofed_label_is_logged_once_and_the_object_left_alone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {"name": "mine", "namespace": "ns", "labels": {SOURCE_LABEL: "static", STATIC_NODE_LABEL: "node"}}
    bench.server.put_manifest({"kind": "L3VNI", "metadata": metadata, "spec": {"vrf": "mine", "vni": 9}})
    await bench.files(red())
    await bench.files()
    bench.watch()
    await bench.settle()
    assert bench.names() == ["mine"]
    assert bench.server.requests == [("create", f"{L3VNIS}/{NAME}"), ("delete", f"{L3VNIS}/{NAME}")]
    assert caplog.text.count("labelled as a mirror") == 1
    assert explained(record for record in caplog.records if "labelled" in record.getMessage()) == ["MIRROR_UNSIGNED"]


async def test_a_mirror_with_a_changed_immutable_field_is_deleted_and_created_again(bench: Bench) -> None:
    await bench.files(red())
    [before] = bench.server.find("/l3vnis/")
    await bench.files(red(pool="198.51.100.0/24"))
    assert bench.spec()["hostSession"]["localCIDR"] == {"ipv4": "198.51.100.0/24"}
    assert bench.server.find("/l3vnis/")[0]["metadata"]["uid"] != before["metadata"]["uid"]
    assert [verb for verb, _ in bench.server.requests[1:]] == ["patch", "dry-run", "delete", "create"]


async def test_a_server_that_knows_only_a_list_of_pools_gets_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's newer definitions drop localCIDR and miss localCIDRs."""

    def validate(path: str, one: Json, old: Json | None = None) -> None:
        session = {key: value for key, value in one["spec"]["hostSession"].items() if key != "localCIDR"}
        one["spec"] = {**one["spec"], "hostSession": session}
        if "localCIDRs" not in session:
            raise error_for(422, "Invalid", "spec.hostSession.localCIDRs: Required value")

    monkeypatch.setattr(api_server, "validate", validate)
    await bench.files(red())
    assert bench.spec()["hostSession"] == {"asn": 64514, "hostASN": 64515, "localCIDRs": ["192.0.2.0/24"]}
    sent = len(bench.server.requests)
    await bench.files(red(line=2))
    assert len(bench.server.requests) == sent, "both forms mean the same"
    await bench.files(red(vni=101))
    assert bench.spec()["vni"] == 101


async def test_a_mirror_that_the_server_would_not_create_again_is_not_deleted(bench: Bench) -> None:
    await bench.files(red())
    refused = error_for(422, "Invalid", "this schema is older than the file")
    bench.server.trouble = lambda verb, path: refused if verb in ("patch", "dry-run") else None
    await bench.files(red(vni=101))
    assert bench.spec()["vni"] == 100
    assert [verb for verb, _ in bench.server.requests[1:]] == ["patch", "dry-run"]
    assert bench.ctx.facts["failing"] == 1


async def test_a_deletion_that_comes_too_late_deletes_nothing(bench: Bench, mock_clock: MockClock) -> None:
    """The snapshot is a moment old: meanwhile a user has made the object theirs."""
    await bench.files(red())
    bench.watching = False
    bench.server.edit(NAME, lambda one: one["metadata"].pop("annotations"))
    await bench.files()
    assert bench.names() == [NAME]
    bench.watch()
    await bench.later(60)
    assert [verb for verb, _ in bench.server.requests] == ["create", "delete"]


async def test_a_resource_that_became_invalid_leaves_its_mirror_alone(bench: Bench) -> None:
    await bench.files(red())
    await bench.files(broken(red()))
    await bench.edit(NAME, vni=7)
    assert len(bench.server.requests) == 1


async def test_a_file_that_became_unreadable_costs_no_mirror(bench: Bench) -> None:
    await bench.files(red(), blue())
    await bench.files(unknown("/c/openpe_a.yaml"))
    assert bench.names() == [NAME]


async def test_nothing_is_sent_twice_while_the_watch_lags(bench: Bench, mock_clock: MockClock) -> None:
    bench.watching = False
    await bench.files(red())
    bench.watch(objects=(), mirrored=())
    await bench.later(LAG_SECONDS - 1)
    assert bench.server.requests == [("create", f"{L3VNIS}/{NAME}")]


async def test_a_watch_that_never_shows_a_write_is_not_trusted_indefinitely(
    bench: Bench, mock_clock: MockClock
) -> None:
    bench.watching = False
    await bench.files(red())
    await bench.later(LAG_SECONDS + 1)
    assert [verb for verb, _ in bench.server.requests] == ["create", "create", "get"]


async def test_a_field_that_the_server_adds_makes_no_flip_flop(bench: Bench, mock_clock: MockClock) -> None:
    bench.server.defaults = {"l3vnis": {"vxlanPort": 4789, "fieldOfTheFuture": True}}
    await bench.files(red())
    for _ in range(20):
        await bench.later(300)
    assert bench.spec()["fieldOfTheFuture"] is True
    assert len(bench.server.requests) == 1


async def test_such_a_field_costs_a_restarted_actor_one_write(bench: Bench, mock_clock: MockClock) -> None:
    bench.server.defaults = {"l3vnis": {"vxlanPort": 4789, "fieldOfTheFuture": True}}
    await bench.files(red())
    async with trio.open_nursery() as nursery:
        bench.ctx = ActorContext("api_mirror", 2)
        nursery.start_soon(bench.start)
        for _ in range(20):
            await bench.later(300)
        nursery.cancel_scope.cancel()
    assert [verb for verb, _ in bench.server.requests] == ["create", "patch"]


async def test_one_that_fails_does_not_stop_the_others(bench: Bench, mock_clock: MockClock) -> None:
    broken_one = error_for(500, "InternalError", "etcd had a moment")
    bench.server.trouble = lambda verb, path: broken_one if path.endswith(f"/{NAME}") else None
    await bench.files(red(), blue())
    assert bench.names() == ["static-node-blue"]
    assert bench.ctx.facts == {"mirrors": 2, "failing": 1}
    bench.server.trouble = no_trouble
    await bench.later(2)
    assert bench.names() == ["static-node-blue", NAME]
    assert bench.ctx.facts == {"mirrors": 2}


async def test_a_refusal_by_rbac_is_logged_once_for_all_of_a_kind_and_rarely_retried(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    forbidden = error_for(403, "Forbidden", 'User "n" cannot create resource "l3vnis"')
    bench.server.trouble = lambda verb, path: forbidden if "/l3vnis/" in path else None
    many = [replace(blue(number), name=f"static-node-{number}") for number in range(1, 41)]
    await bench.files(*many, raw("text"))
    assert bench.names() == ["text"]
    for _ in range(30):
        await bench.later(2)
    assert caplog.text.count("cannot create resource") == 1
    assert len(bench.server.requests) < 30
    bench.server.trouble = no_trouble
    await bench.later(600)
    assert len(bench.names()) == 41
    assert caplog.text.count("mirrored again: create L3VNI: ForbiddenError") == 1
    records = [record for record in caplog.records if "mirrored" in record.getMessage()]
    assert explained(records) == ["API_FORBIDDEN", "MIRROR_WORKS"]


@pytest.mark.parametrize("code", [0, 401, 429])
async def test_a_server_that_takes_nothing_is_tried_with_increasing_back_off(
    bench: Bench, mock_clock: MockClock, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    gone = error_for(code, "", "no")
    if code == 0:
        from actors.lib.kube.errors import UnreachableError

        gone = UnreachableError("no")
    bench.server.trouble = lambda verb, path: gone
    await bench.files(red(), blue())
    assert len(bench.server.requests) == 1
    for _ in range(100):
        await bench.later(1)
    assert 5 <= len(bench.server.requests) <= 9
    assert caplog.text.count("cannot be mirrored now") <= 2
    caplog.set_level("INFO")
    bench.server.trouble = no_trouble
    await bench.later(100)
    events = explained(record for record in caplog.records if "updated" not in record.getMessage())
    assert (set(events[:-1]), events[-1]) == ({"MIRROR_FAILS"}, "MIRROR_WORKS")
    assert bench.names() == ["static-node-blue", NAME]


async def test_failures_before_an_answer_do_not_slow_later_ones_down(bench: Bench, mock_clock: MockClock) -> None:
    throttled = error_for(429, "TooManyRequests", "slow down")
    bench.server.trouble = lambda verb, path: throttled
    await bench.files(red())
    for _ in range(20):
        await bench.later(100)
    bench.server.trouble = no_trouble
    await bench.later(100)
    bench.server.trouble = lambda verb, path: throttled
    await bench.files(red(), blue())
    sent = len(bench.server.requests)
    await bench.later(2)
    assert len(bench.server.requests) == sent + 1


async def test_those_that_fail_do_not_starve_others_of_their_kind(bench: Bench, mock_clock: MockClock) -> None:
    broken_one = error_for(500, "InternalError", "this one never")
    bench.server.trouble = lambda verb, path: broken_one if "bad" in path else None
    await bench.files(*(replace(blue(number), name=f"bad-{number}") for number in range(1, 6)), blue())
    assert bench.names() == []
    for _ in range(3):
        await bench.later(3)
    assert bench.names() == ["static-node-blue"]


async def test_a_change_that_the_watch_has_not_shown_is_not_overwritten(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.files(red())
    bench.watching = False
    await bench.edit(NAME, vni=7)
    await bench.files(red(vni=101))
    assert (bench.spec()["vni"], caplog.text) == (7, "")
    bench.watch()
    await bench.later(2)
    assert bench.spec()["vni"] == 101


async def test_a_server_that_has_not_read_its_roles_yet_is_no_news(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = error_for(403, "Forbidden", 'User "n" cannot create resource "l3vnis"')
    bench.server.trouble = lambda verb, path: forbidden
    await bench.files(red())
    bench.server.trouble = no_trouble
    await bench.later(2)
    assert (bench.names(), caplog.text) == ([NAME], "")


async def test_a_conflict_that_does_not_end_is_logged(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.files(red())
    conflict = error_for(409, "Conflict", "the object has been modified")
    bench.server.trouble = lambda verb, path: conflict if verb == "patch" else None
    await bench.files(red(vni=101))
    assert caplog.text == ""
    for seconds, lines in ((50, 1), (60, 2)):
        for _ in range(0, seconds, 10):
            await bench.later(10)
        assert caplog.text.count("the object has been modified") == lines


async def test_a_mirror_that_is_gone_already_is_deleted_well(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.files(red())
    bench.watching = False
    bench.server.remove(NAME)
    await bench.files()
    assert [verb for verb, _ in bench.server.requests] == ["create", "delete"]
    assert ("failing" in bench.ctx.facts, caplog.text) == (False, "")


async def test_an_object_that_is_created_again_is_not_created_twice_while_the_watch_lags(
    bench: Bench, mock_clock: MockClock
) -> None:
    await bench.files(red())
    bench.watching = False
    await bench.files(red(pool="198.51.100.0/24"))
    sent = len(bench.server.requests)
    for shown in ({"mirrored": ()}, {"mirrored": (), "objects": ()}):
        bench.watch(**shown)
        await bench.later(5)
    assert len(bench.server.requests) == sent


async def test_retry_after_is_respected(bench: Bench, mock_clock: MockClock) -> None:
    throttled = error_for(429, "TooManyRequests", "slow down", 200.0)
    bench.server.trouble = lambda verb, path: throttled
    await bench.files(red())
    await bench.later(199)
    assert len(bench.server.requests) == 1
    await bench.later(2)
    assert len(bench.server.requests) == 2


async def test_other_credentials_are_worth_an_attempt_at_once(bench: Bench) -> None:
    refused = error_for(401, "Unauthorized", "no")
    bench.server.trouble = lambda verb, path: refused
    await bench.files(red())
    bench.server.trouble = no_trouble
    bench.access.set(replace(ACCESS, credentials=ApiCredentials("https://fake", token=Secret("token-2"))))
    await bench.settle()
    assert bench.names() == [NAME]


async def test_a_client_that_fights_over_a_mirror_is_answered_rarely_and_logged(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await bench.files(red())
    for _ in range(60):
        await bench.edit(NAME, vni=7)
        await bench.later(1)
    assert len(bench.server.requests) < 10
    warnings = [record for record in caplog.records if "keeps changing" in record.getMessage()]
    assert explained(warnings) == ["MIRROR_FIGHT"]
    # Longer than the pause that the fight has come to, whatever its jitter.
    await bench.later(150)
    caplog.clear()
    await bench.later(FORGET_SECONDS)
    bench.watch()
    await bench.settle()
    bench.watch()
    await bench.settle()
    assert explained(caplog.records) == ["MIRROR_WORKS"]


async def test_a_person_who_tries_twice_is_no_fight(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.files(red())
    for _ in range(2):
        await bench.edit(NAME, vni=7)
        await bench.later(10)
    assert (bench.spec()["vni"], caplog.text) == (100, "")


async def test_a_server_that_is_slow_to_take_a_write_is_no_fight(
    bench: Bench, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A watch that lags, and failures before the write, look like a fight, but no other client has undone anything."""
    await bench.files(red())
    conflict = error_for(409, "Conflict", "the object has been modified")
    for number in range(6):
        bench.server.trouble = lambda verb, path: conflict if verb == "patch" else None
        await bench.files(red(vni=200))
        await bench.later(100)
        bench.server.trouble = no_trouble
        bench.watching = number > 4
        await bench.later(LAG_SECONDS)
    assert "keeps changing" not in caplog.text


async def no_access(bench: Bench) -> None:
    bench.access.set(ApiAccess(ApiReach.UNCONFIGURED))


async def unreachable(bench: Bench) -> None:
    bench.watch(live=False)


async def no_node(bench: Bench) -> None:
    bench.watch(node=None)


async def another_node(bench: Bench) -> None:
    bench.watch(node=ApiNode("other", "u"))


@pytest.mark.parametrize(
    ("obstacle", "waiting"),
    [
        (no_access, "for an API server"),
        (unreachable, "for the API's state"),
        (no_node, "for the Node node"),
        (another_node, "for the Node node"),
    ],
)
async def test_it_waits_for_what_it_needs(bench: Bench, mock_clock: MockClock, obstacle: Any, waiting: str) -> None:
    await obstacle(bench)
    await bench.settle()
    bench.static.set(files(red()))
    await bench.later(3600)
    assert (bench.server.requests, bench.ctx.facts) == ([], {"waiting": waiting})


async def test_before_the_files_are_read_it_deletes_nothing(bench: Bench) -> None:
    assert (bench.server.requests, bench.ctx.facts) == ([], {"waiting": "for the files"})


async def test_an_api_that_becomes_unreachable_is_left_alone_until_it_is_back(bench: Bench) -> None:
    await bench.files(red())
    bench.watch(live=False)
    await bench.files(blue())
    assert bench.names() == [NAME]
    bench.watch()
    await bench.settle()
    assert bench.names() == ["static-node-blue"]


async def test_a_node_that_was_created_again_owns_its_mirrors(bench: Bench) -> None:
    await bench.files(red())
    bench.node = replace(NODE, uid="second")
    bench.watch()
    await bench.settle()
    assert [owner["uid"] for owner in bench.server.find("/l3vnis/")[0]["metadata"]["ownerReferences"]] == ["second"]


async def test_each_pass_that_writes_is_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await bench.files(red(), blue())
    bench.watch()
    await bench.settle()
    lines = [record for record in caplog.records if record.levelname == "INFO"]
    assert [line.message for line in lines] == ["updated the files' resources in the API"]


async def test_without_the_key_nothing_is_mirrored(bench: Bench) -> None:
    bench.settings = bench.settings.model_copy(update={"state_dir": bench.settings.state_dir / "absent" / "file"})
    bench.static.set(files(red()))
    bench.ctx = ActorContext("api_mirror", 2)
    with pytest.raises(DependencyFault, match="is unavailable"), trio.fail_after(60):
        await bench.start()


async def test_an_error_that_does_not_come_from_the_server_is_not_swallowed(bench: Bench) -> None:
    def mistake(verb: str, path: str) -> ApiError | None:
        raise RuntimeError("a mistake of ours")

    async def expect() -> None:
        with pytest.raises(RuntimeError, match="of ours"):
            await bench.start()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        bench.server.trouble = mistake
        bench.ctx = ActorContext("api_mirror", 2)
        bench.static = Latest("static")
        bench.static.set(files(red()))
        nursery.start_soon(expect)
