"""``openperouter web``: who is answered, what a browser gets, what is asked of the daemon, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import httpx
import pytest
import trio
from trio.testing import open_stream_to_socket_listener

from supervisor.cli import main
from supervisor.cli.verbs.node.web import server as web
from supervisor.cli.verbs.node.web.page import POLICY
from supervisor.cli.verbs.node.web.server import FRESH_SECONDS, MOST_EVENTS, Site
from supervisor.process.http_server import CONNECTION_SECONDS, MOST_CONNECTIONS, HttpServer
from tests.supervisor.cli.examples import READY, SECRETS, status_answer


class Daemon:
    """What the control socket would answer, and what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[dict[str, Any]] = []
        self.instance, self.last = "boot/1", 2
        self.answers: list[Any] = []
        monkeypatch.setattr("supervisor.operations.inspection.current_status.ask", self.ask)
        monkeypatch.setattr(web, "ask", self.ask)

    def ask(self, _path: Path, request: dict[str, Any], *, seconds: float | None = None) -> Iterator[Any]:
        """Answer as the daemon does."""
        assert seconds is None or seconds > 0
        self.requests.append(request)
        if request["verb"] == "status":
            yield status_answer(READY)
            return
        if self.answers:
            yield from self.answers
            return
        yield {"events": {"instance": self.instance, "first": 1, "last": self.last}}
        start = request["after"] if request["instance"] == self.instance else 0
        for number in range(start + 1, self.last + 1):
            yield {"number": number, "at": 0, "topic": "t", "subject": "s", "message": f"m{number}!", "level": "info"}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    return Daemon(monkeypatch)


@asynccontextmanager
async def served(directory: Path, host: str = "") -> AsyncIterator[trio.SocketListener]:
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, HttpServer(Site(directory, host).respond).handle, [listener])
        yield listener
        nursery.cancel_scope.cancel()


async def exchange(listener: trio.SocketListener, request: str) -> str:
    async with await open_stream_to_socket_listener(listener) as stream:
        await stream.send_all(request.encode())
        return b"".join([part async for part in stream]).decode()


async def get(listener: trio.SocketListener, path: str = "/") -> str:
    return await exchange(listener, f"GET {path} HTTP/1.1\r\nHost: localhost:8080\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("LocalHost:8080", 200),
        ("127.0.0.1:9474", 200),
        ("[::1]:9474", 200),
        ("[::1]", 200),
        ("evil.example", 403),
        ("evil.example:9474", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:9474", 403),
        ("127.0.0.2", 403),
        ("localhost:x", 403),
        ("localhost:80:80", 403),
        ("user@localhost", 403),
        ("", 403),
    ],
)
@pytest.mark.usefixtures("daemon")
async def test_only_names_of_loopback_are_answered(tmp_path: Path, host: str, code: int) -> None:
    async with served(tmp_path) as listener:
        answer = await exchange(listener, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
    assert answer.split()[1] == str(code)
    assert (READY.summary in answer) == (code == 200)


@pytest.mark.usefixtures("daemon")
async def test_a_request_without_a_host_or_with_two_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as listener:
        assert (await exchange(listener, "GET / HTTP/1.0\r\n\r\n")).split()[1] == "403"
        assert (await exchange(listener, "GET / HTTP/1.1\r\n\r\n")).split()[1] == "400"
        both = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
        assert (await exchange(listener, both)).split()[1] == "400"


@pytest.mark.usefixtures("daemon")
async def test_the_address_that_is_served_is_a_name_too(tmp_path: Path) -> None:
    async with served(tmp_path, "127.0.0.2") as listener:
        answer = await exchange(listener, "GET / HTTP/1.1\r\nHost: 127.0.0.2:9474\r\n\r\n")
    assert answer.split()[1] == "200"


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        ("GET / HTTP/1.1", 200),
        ("HEAD / HTTP/1.1", 200),
        ("GET /?still HTTP/1.1", 200),
        ("GET /?x=1 HTTP/1.1", 404),
        ("GET /favicon.ico HTTP/1.1", 404),
        ("GET /../etc/passwd HTTP/1.1", 404),
        ("POST / HTTP/1.1", 405),
        ("PUT / HTTP/1.1", 405),
        ("OPTIONS / HTTP/1.1", 405),
        ("CONNECT localhost:80 HTTP/1.1", 405),
    ],
)
@pytest.mark.usefixtures("daemon")
async def test_one_page_can_be_read_and_nothing_else(tmp_path: Path, request_line: str, code: int) -> None:
    async with served(tmp_path) as listener:
        answer = await exchange(listener, f"{request_line}\r\nHost: localhost\r\n\r\n")
    assert answer.split()[1] == str(code)
    assert ("<html" in answer) == (code == 200 and request_line.startswith("GET"))


@pytest.mark.usefixtures("daemon")
async def test_every_answer_of_the_site_has_the_policy(tmp_path: Path) -> None:
    async with served(tmp_path) as listener:
        for path in ("/", "/other"):
            head = (await get(listener, path)).partition("\r\n\r\n")[0].lower().split("\r\n")
            assert f"content-security-policy: {POLICY.lower()}" in head
            assert {"cache-control: no-store", "x-content-type-options: nosniff", "x-frame-options: deny"} <= set(head)
            assert not [line for line in head if line.startswith(("access-control", "set-cookie", "server"))]


async def test_the_daemon_is_asked_once_a_second_at_most_and_only_for_what_is_new(
    tmp_path: Path, daemon: Daemon, autojump_clock: trio.testing.MockClock
) -> None:
    site, request = Site(tmp_path), h11.Request(method="GET", target="/", headers=[("Host", "localhost")])
    first = await site.respond(request)
    assert await site.respond(request) is first
    assert [one["verb"] for one in daemon.requests] == ["status", "events"]
    daemon.last += 1
    await trio.sleep(FRESH_SECONDS)
    second = await site.respond(request)
    assert daemon.requests[-1] == {"verb": "events", "instance": "boot/1", "after": 2}
    positions = [second.body.index(text) for text in (b"m3!", b"m2!", b"m1!")]
    assert positions == sorted(positions)
    # Another daemon's life has other numbers, and its changes replace those.
    daemon.instance, daemon.last = "boot/2", 1
    await trio.sleep(FRESH_SECONDS)
    third = await site.respond(request)
    assert (b"m1!" in third.body, b"m2!" in third.body) == (True, False)


async def test_the_newest_changes_are_kept(tmp_path: Path, daemon: Daemon) -> None:
    daemon.last = 3 * MOST_EVENTS
    async with served(tmp_path) as listener:
        answer = await get(listener)
    shown = [number for number in range(1, daemon.last + 1) if f"m{number}!" in answer]
    assert shown == list(range(2 * MOST_EVENTS + 1, 3 * MOST_EVENTS + 1))


@pytest.mark.parametrize(
    "answers",
    [[{"error": "unknown verb"}], ["x"], [{"events": {}}], [{"number": "x"}], [{"events": {"instance": 1}}, {}]],
)
async def test_changes_that_cannot_be_read_leave_the_status(tmp_path: Path, daemon: Daemon, answers: list[Any]) -> None:
    daemon.answers = answers
    async with served(tmp_path) as listener:
        answer = await get(listener)
    assert answer.split()[1] == "200"
    assert "changes cannot be read" in answer
    assert READY.summary in answer


async def test_without_a_daemon_the_page_shows_the_last_status_or_that_there_is_none(tmp_path: Path) -> None:
    async with served(tmp_path) as listener:
        answer = await get(listener)
        assert answer.split()[1] == "503"
        assert f"the daemon is not running, and left no status in {tmp_path}/state.json" in answer
    (tmp_path / "state.json").write_text(READY.to_json())
    async with served(tmp_path) as listener:
        answer = await get(listener)
        assert answer.split()[1] == "200"
        assert "the daemon is not running; this is its last status" in answer
        assert READY.summary in answer


async def test_clients_that_stall_have_a_deadline_and_a_limit(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with served(tmp_path) as listener:
        began = trio.current_time()
        streams = [await open_stream_to_socket_listener(listener) for _ in range(MOST_CONNECTIONS)]
        await trio.testing.wait_all_tasks_blocked()
        assert await exchange(listener, "") == ""
        for stream in streams:
            assert await stream.receive_some() == b""
            await stream.aclose()
        assert trio.current_time() - began == pytest.approx(CONNECTION_SECONDS, abs=0.5)
        assert (await get(listener, "/other")).split()[1] == "404"


def run(settings: Path, listen: str) -> int:
    return main(["web", "--settings", str(settings), "--listen", listen])


def test_the_verb_serves_a_socket_for_root_and_its_group_until_it_is_stopped(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, served_now = tmp_path / "web.sock", threading.Event()
    modes: list[int] = []
    pages: list[str] = []
    monkeypatch.setattr("builtins.print", lambda *_words, **_options: served_now.set())

    def visit() -> None:
        if not served_now.wait(60):
            return  # then nothing would catch the signal
        try:
            modes.append(stat.S_IMODE(path.stat().st_mode))
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, timeout=60) as client:
                pages.append(client.get("http://localhost/").text)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    (settings.parent / "run/state.json").write_text(READY.to_json())
    visitor = threading.Thread(target=visit)
    visitor.start()
    assert run(settings, f"unix:{path}") == 0
    visitor.join(60)
    assert modes == [0o660]
    [page] = pages
    assert READY.summary in page
    assert not [secret for secret in SECRETS if secret in page]
    assert not path.exists()


@pytest.mark.parametrize(
    "listen", ["https://127.0.0.1:9474", "http://0.0.0.0:9474", "http://192.0.2.1:80", "localhost:80", "unix:web", ""]
)
def test_other_places_than_loopback_are_refused(
    settings: Path, capsys: pytest.CaptureFixture[str], listen: str
) -> None:
    assert run(settings, listen) == 64
    assert capsys.readouterr().err == (
        f"openperouter: --listen {listen}: must be http://ADDRESS:PORT with a loopback address (127.0.0.1, [::1]) "
        "or unix:/PATH\n"
    )


def test_a_file_is_not_replaced_by_the_socket(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = settings.read_text()
    assert run(settings, f"unix:{settings}") == 64
    assert "that file exists and is not a socket" in capsys.readouterr().err
    assert settings.read_text() == text


def test_a_port_that_is_taken_is_an_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert run(settings, listen) == 69
    assert capsys.readouterr().err.startswith(f"openperouter: cannot listen at {listen}: ")
