"""The control socket: verbs, outcomes of reloads, and what a bad client cannot do."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from config.desired import ResourceFailure
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import Generations, ReloadStatus, Status
from supervisor import control
from supervisor.events import EventLog
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest

RED = ResourceId(Kind.L3VNI, "ns", "red")
GREEN = ResourceId(Kind.L2VNI, "tenants", "green")


@dataclass
class Daemon:
    """A served control socket, the status that it shows and the requests that it makes."""

    path: Path
    status: Latest[Status] = field(default_factory=lambda: Latest[Status]("status"))
    reload: Latest[int] = field(default_factory=lambda: Latest[int]("reload"))
    forget_api: Latest[int] = field(default_factory=lambda: Latest[int]("forget_api"))
    events: EventLog = field(default_factory=EventLog)

    @property
    def reloads(self) -> int:
        return self.reload.version

    async def connect(self) -> trio.SocketStream:
        return await trio.open_unix_socket(str(self.path))

    async def ask(self, request: object) -> list[dict[str, Any]]:
        """Send a request and return every answer until the server closes."""
        stream = await self.connect()
        async with stream:
            await stream.send_all(json.dumps(request).encode() + b"\n")
            return [json.loads(line) for line in (await read_all(stream)).splitlines()]


async def read_all(stream: trio.SocketStream) -> bytes:
    """Read to the end; a refused client's unread request ends the stream with a reset, after the answer."""
    received = b""
    with suppress(trio.BrokenResourceError):
        async for chunk in stream:
            received += chunk
    return received


async def read_line(stream: trio.SocketStream) -> dict[str, Any]:
    received = b""
    while not received.endswith(b"\n"):
        chunk = await stream.receive_some(1)
        assert chunk, "the server closed"
        received += chunk
    document: dict[str, Any] = json.loads(received)
    return document


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Daemon]:
    daemon = Daemon(path)
    async with trio.open_nursery() as nursery:
        context = ActorContext("control")
        nursery.start_soon(start, context, daemon)
        with trio.fail_after(60):
            while not context.has_started:
                await trio.testing.wait_all_tasks_blocked()
        yield daemon
        nursery.cancel_scope.cancel()


async def start(context: ActorContext, daemon: Daemon) -> None:
    await control.run(
        context,
        path=daemon.path,
        status=daemon.status.reader(),
        reload=daemon.reload,
        forget_api=daemon.forget_api,
        events=daemon.events,
    )


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with served(tmp_path / "control.sock") as daemon:
        yield daemon


async def test_status_answers_with_the_newest_status(daemon: Daemon) -> None:
    daemon.status.set(Status(summary="old"))
    daemon.status.set(Status(summary="new", node="n1"))
    [answer] = await daemon.ask({"verb": "status"})
    assert Status.from_data(answer["status"]) == Status(summary="new", node="n1")


async def test_status_of_a_client_that_half_closes_is_still_answered(daemon: Daemon) -> None:
    daemon.status.set(Status(summary="here"))
    stream = await daemon.connect()
    await stream.send_all(b'{"verb": "status"}\n')
    await stream.send_eof()
    assert b"here" in await read_all(stream)


async def test_status_before_the_first_one_is_a_clear_error(daemon: Daemon) -> None:
    assert await daemon.ask({"verb": "status"}) == [{"error": "the daemon has no status yet"}]


async def test_watch_sends_the_current_status_and_each_change(daemon: Daemon) -> None:
    daemon.status.set(Status(summary="one"))
    async with await daemon.connect() as stream:
        await stream.send_all(b'{"verb": "watch"}\n')
        assert (await read_line(stream))["status"]["summary"] == "one"
        daemon.status.set(Status(summary="two"))
        assert (await read_line(stream))["status"]["summary"] == "two"


async def test_a_watcher_that_leaves_frees_its_place(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MAX_CONNECTIONS", 1)
    daemon.status.set(Status())
    async with await daemon.connect() as stream:
        await stream.send_all(b'{"verb": "watch"}\n')
        await read_line(stream)
        [refused] = await daemon.ask({"verb": "status"})
        assert "more than 1 clients" in refused["error"]
    await trio.testing.wait_all_tasks_blocked(0.01)
    [answer] = await daemon.ask({"verb": "status"})
    assert "status" in answer


async def test_reload_succeeds_once_that_very_request_is_verified(daemon: Daemon) -> None:
    daemon.status.set(Status(summary="ready", reload=ReloadStatus(verified=0)))
    async with await daemon.connect() as stream:
        await stream.send_all(b'{"verb": "reload"}\n')
        assert await read_line(stream) == {"event": "requested", "reload_id": 1}
        daemon.status.set(Status(summary="reloading", reload=ReloadStatus(requested=1, taken_in=1)))
        assert await read_line(stream) == {"event": "progress", "summary": "reloading"}
        daemon.status.set(Status(summary="reloading", updated_at=1.0, reload=ReloadStatus(requested=1, taken_in=1)))
        daemon.status.set(Status(summary="ready", reload=ReloadStatus(verified=1)))
        done = await read_line(stream)
    assert done == {"event": "done", "ok": True, "reason": "", "problems": [], "summary": "ready"}


async def test_only_a_reload_that_says_so_forgets_the_api(daemon: Daemon) -> None:
    daemon.status.set(Status(reload=ReloadStatus(verified=9)))
    for forgets in (False, "yes", True):
        await daemon.ask({"verb": "reload", "forget_api": forgets})
    assert (daemon.forget_api.peek(), daemon.forget_api.version) == (3, 1)


async def test_reload_fails_with_the_reason_when_the_configuration_is_refused(daemon: Daemon) -> None:
    daemon.status.set(Status(reload=ReloadStatus(taken_in=1, failed=1, reason="FRR: no such neighbour")))
    done = (await daemon.ask({"verb": "reload"}))[-1]
    assert (done["ok"], done["reason"]) == (False, "FRR: no such neighbour")


@pytest.mark.parametrize(
    "status",
    [
        Status(reload=ReloadStatus(verified=1), problems=(Problem("bad", Origin("/etc/a.yaml", 3, 1)),)),
        Status(
            reload=ReloadStatus(verified=1), failures=(ResourceFailure(RED, Reason.OVERLAY_ATTACHMENT_FAILED, "bad"),)
        ),
    ],
)
def test_a_reload_that_leaves_something_out_is_not_ok_and_names_it(status: Status) -> None:
    outcome = control.reload_outcome(status, 1)
    assert outcome is not None
    assert outcome["ok"] is False
    assert outcome["problems"] == [str(item) for item in (*status.problems, *status.failures)]


def test_a_warning_does_not_fail_a_reload() -> None:
    warning = Problem("deprecated", Origin("/etc/a.yaml"), severity=Severity.WARNING)
    outcome = control.reload_outcome(Status(reload=ReloadStatus(verified=4), problems=(warning,)), 3)
    assert outcome is not None
    assert outcome["ok"] is True


def test_what_a_tenant_wrote_to_the_api_does_not_fail_a_reload() -> None:
    theirs = Problem(
        "VNI 100 is taken",
        Origin(namespace="tenants", name="blue", resource_version="17"),
        resource=ResourceId(Kind.L3VNI, "ns", "blue", label="blue"),
    )
    failed = ResourceFailure(
        GREEN, Reason.OVERLAY_ATTACHMENT_FAILED, "no such bridge", Origin(namespace="tenants", name="green")
    )
    outcome = control.reload_outcome(Status(reload=ReloadStatus(verified=4), problems=(theirs,), failures=(failed,)), 3)
    assert outcome is not None
    assert (outcome["ok"], outcome["problems"]) == (True, [])


def test_an_older_outcome_does_not_decide_a_newer_request() -> None:
    assert control.reload_outcome(Status(reload=ReloadStatus(verified=2, failed=1)), 3) is None


def test_a_reload_requested_from_a_stopping_daemon_fails() -> None:
    outcome = control.reload_outcome(Status(phase="stopping"), 1)
    assert outcome is not None
    assert outcome["reason"] == "the daemon is stopping"


async def test_a_reload_that_is_never_verified_ends_at_its_deadline(daemon: Daemon) -> None:
    daemon.status.set(Status(summary="waiting for FRR"))
    done = (await daemon.ask({"verb": "reload", "seconds": 0.05}))[-1]
    assert (done["ok"], done["timeout"]) == (False, True)
    assert "waiting for FRR" in done["reason"]


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (b'{"verb": "explode"}\n', "unknown verb 'explode'"),
        (b'{"verb": "reload", "seconds": "soon"}\n', "seconds must be a number"),
        (b'{"verb": "reload", "seconds": 1e9}\n', "seconds must be a number"),
        (b'{"verb": "reload", "seconds": NaN}\n', "seconds must be a number"),
        (b"[]\n", "not a JSON object"),
        (b"hello\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 4000 + b"\n", "not JSON"),
        (b"x" * 5000 + b"\n", "longer than 4096 bytes"),
    ],
)
async def test_a_bad_request_is_answered_with_what_is_wrong(daemon: Daemon, sent: bytes, complaint: str) -> None:
    async with await daemon.connect() as stream:
        await stream.send_all(sent)
        assert complaint in (await read_line(stream))["error"]
    assert daemon.reloads == 0


async def test_a_silent_client_is_dropped_at_its_deadline(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CLIENT_SECONDS", 0.05)
    async with await daemon.connect() as stream:
        assert "no request within" in (await read_line(stream))["error"]


async def test_a_watcher_that_does_not_read_is_dropped(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CLIENT_SECONDS", 0.2)
    monkeypatch.setattr(control, "MAX_CONNECTIONS", 1)
    daemon.status.set(Status(summary="x" * 1_000_000))
    async with await daemon.connect() as lazy:
        await lazy.send_all(b'{"verb": "watch"}\n')
        await lazy.receive_some(1)
        daemon.status.set(Status(summary="small"))
        assert "error" in (await daemon.ask({"verb": "status"}))[0]
        with trio.fail_after(60):
            while "error" in (await daemon.ask({"verb": "status"}))[0]:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_the_socket_belongs_to_root_and_its_group_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0o000, 0o077):
        path = tmp_path / f"control-{umask}.sock"
        before = os.umask(umask)
        try:
            async with served(path):
                assert stat.S_IMODE(path.stat().st_mode) == 0o660
        finally:
            os.umask(before)


async def test_a_socket_left_behind_is_replaced_and_nothing_remains_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with served(path) as daemon:
        daemon.status.set(Status(summary="alive"))
        assert (await daemon.ask({"verb": "status"}))[0]["status"]["summary"] == "alive"
    assert not path.exists()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_stopping_server_leaves_its_successors_socket_alone(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with served(path):
        path.unlink()
        path.write_text("a successor's")
    assert path.exists()


@pytest.mark.parametrize(
    ("uid", "gids", "allowed"),
    [(0, {1000}, True), (65534, {65534}, False), (1000, {1000, os.getegid()}, True), (os.geteuid(), set[int](), True)],
)
def test_only_root_this_user_and_its_group_may_connect(uid: int, gids: set[int], allowed: bool) -> None:
    assert control.may_connect(uid, gids) is allowed


async def test_a_process_of_another_user_is_refused(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse: Callable[[int, set[int]], bool] = lambda _uid, _gids: False  # noqa: E731
    monkeypatch.setattr(control, "may_connect", refuse)
    assert await daemon.ask({"verb": "reload"}) == [{"error": "permission denied"}]
    assert daemon.reloads == 0


async def test_events_are_those_of_the_statuses_so_far(daemon: Daemon) -> None:
    daemon.status.set(Status(boot_id="b", pid=7, version="1", generations=Generations(desired=1)))
    await trio.testing.wait_all_tasks_blocked()
    head, first, second = await daemon.ask({"verb": "events"})
    assert head == {"events": {"instance": "b/7", "first": 1, "last": 2}}
    assert (first["number"], first["topic"]) == (1, "daemon")
    assert (second["subject"], second["message"]) == ("generation 1", "new desired state")


async def test_events_after_one_are_of_the_same_instance_only(daemon: Daemon) -> None:
    daemon.status.set(Status(boot_id="b", pid=7, version="1", generations=Generations(desired=1)))
    await trio.testing.wait_all_tasks_blocked()
    asked = {"verb": "events", "after": 1}
    assert [one.get("number") for one in await daemon.ask({**asked, "instance": "b/7"})] == [None, 2]
    assert [one.get("number") for one in await daemon.ask({**asked, "instance": "b/6"})] == [None, 1, 2]


async def test_an_event_about_a_file_whose_name_is_not_text_costs_no_connection(daemon: Daemon) -> None:
    name = b"openpe_caf\xe9.yaml".decode("utf-8", "surrogateescape")
    daemon.status.set(Status(boot_id="b", pid=7, version="1", notes=(f"{name}: ignored",)))
    await trio.testing.wait_all_tasks_blocked()
    events = await daemon.ask({"verb": "events"})
    assert any("openpe_caf?.yaml: ignored" in str(event) for event in events)
    assert len(await daemon.ask({"verb": "events"})) == len(events)


async def test_events_after_one_that_no_daemon_can_have_are_none(daemon: Daemon) -> None:
    daemon.status.set(Status(boot_id="b", pid=7, version="1"))
    await trio.testing.wait_all_tasks_blocked()
    [head] = await daemon.ask({"verb": "events", "instance": "b/7", "after": 10**30})
    assert head["events"]["last"] == 1


async def test_a_follower_gets_each_further_event_and_frees_its_place(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_CONNECTIONS", 1)
    async with await daemon.connect() as stream:
        await stream.send_all(b'{"verb": "events", "follow": true}\n')
        assert "events" in await read_line(stream)
        daemon.status.set(Status(version="1"))
        assert (await read_line(stream))["number"] == 1
        daemon.status.set(Status(version="1", generations=Generations(desired=1)))
        assert (await read_line(stream))["number"] == 2
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(await daemon.ask({"verb": "events"})) == 3


@pytest.mark.parametrize("after", [-1, "x", True, 1.5])
async def test_a_wrong_number_of_an_event_is_refused(daemon: Daemon, after: object) -> None:
    assert await daemon.ask({"verb": "events", "after": after}) == [{"error": "after must be the number of an event"}]


async def test_a_follower_that_does_not_read_costs_one_connection_for_a_bounded_time(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CLIENT_SECONDS", 0.05)
    daemon.status.set(Status(version="1"))
    async with await daemon.connect() as stream:
        await stream.send_all(b'{"verb": "events", "follow": true}\n')
        await read_line(stream)
        with trio.fail_after(60):
            for number in range(1, 4000):
                note = f"{number} {'x' * 300}"
                daemon.status.set(Status(version="1", notes=(note,)))
                await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
        assert len(await daemon.ask({"verb": "events"})) > 100
    assert daemon.events.last - daemon.events.first < 2000
