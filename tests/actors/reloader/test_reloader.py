"""The reloader and its client on a real socket, with a program in vtysh's place: outcomes, refusals, bounds, stops."""

from __future__ import annotations

import logging
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.frr.driver import VtyshDriver
from actors.lib.frr import reloader_client, reloader_protocol
from actors.lib.frr.frr_lock import session_lock
from actors.lib.frr.pod_processes import PodProcesses
from actors.lib.frr.processes import NativeProcesses
from actors.lib.frr.reloader_client import ReloaderAbsent, ReloaderClient, ReloaderFault
from actors.lib.frr.reloader_protocol import VtyshRequest
from actors.lib.frr.vtysh import Vtysh, lock_file
from config.settings import Settings
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.router.reloader import Reloader, check_reloader
from supervisor.process.sd_notify import Notifier
from supervisor.process.subprocesses import CommandMissing, CommandTimeout
from tests.actors.lib.frr.daemon import daemon

#: What vtysh is asked that is no query, and is killed.
PROBE = ("-c", "configure terminal file-lock")
#: What vtysh's place says and reads.
ECHO = 'echo "$*"; for last; do :; done; case $last in /proc/*) cat "$last";; esac'


@dataclass
class FakePod:
    """A reloader's directory, and access to it as the daemon has it."""

    directory: Path
    settings: Settings

    def program(self, body: str) -> None:
        """Put a program in vtysh's place."""
        self.settings.vtysh.write_text(f"#!/bin/sh\n{body}\n")
        self.settings.vtysh.chmod(0o755)

    @property
    def vtysh(self) -> Vtysh:
        return Vtysh.of(self.settings)

    @property
    def socket(self) -> Path:
        return self.settings.pod_run_dir / "reloader.sock"

    @property
    def client(self) -> ReloaderClient:
        return ReloaderClient(self.socket)

    async def load(self, text: str) -> str:
        """Change FRR; return what vtysh says."""
        file = self.directory / "text"
        file.write_text(text)
        return (await self.vtysh.run("-f", str(file), writes=True)).stdout

    async def until(self, name: str) -> None:
        """Wait for a file that vtysh's place makes."""
        with trio.fail_after(60):
            while not (self.directory / name).exists():  # noqa: ASYNC110 - another process makes it
                await trio.sleep(0.01)


@pytest.fixture
def pod(tmp_path: Path) -> FakePod:
    for name in ("pod", "frr", "frr/p"):
        (tmp_path / name).mkdir()
    settings = Settings(
        runtime="podman", vtysh=tmp_path / "vtysh", frr_pathspace="p", pod_run_dir=tmp_path / "pod",
        frr_run_dir=tmp_path / "frr", run_dir=tmp_path / "run",
    )  # fmt: skip
    one = FakePod(tmp_path, settings)
    one.program(ECHO)
    return one


@asynccontextmanager
async def serving(pod: FakePod) -> AsyncIterator[Reloader]:
    reloader = Reloader(pod.settings, Notifier())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.supervisor.run)
        await pod.until("pod/reloader.sock")
        yield reloader
        reloader.supervisor.stop()


async def test_vtysh_runs_with_the_pathspace_and_the_text_that_no_file_holds(pod: FakePod) -> None:
    async with serving(pod):
        assert (await pod.vtysh.run("-c", "show version")).stdout == "-N p -c show version\n"
        pod.program("exit 3")
        assert (await pod.vtysh.run("-c", "show version")).returncode == 3
        pod.program(ECHO)
        said = await pod.load("router bgp 64514\n")
    assert said.startswith("-N p -f /proc/self/fd/")
    assert said.endswith("\nrouter bgp 64514\n")


async def test_the_driver_needs_no_vtysh_on_the_host(pod: FakePod) -> None:
    pod.program(f'{ECHO}\necho "$*" >>{pod.directory}/calls')
    async with serving(pod):
        driver = VtyshDriver(pod.settings.model_copy(update={"vtysh": pod.directory / "none"}))
        assert await driver.refusal("hostname x\n") == ""
        assert "hostname x" in await driver.send("hostname x\n")
    calls = (pod.directory / "calls").read_text().splitlines()
    assert [call.split(" /")[0] for call in calls] == ["-N p -C -f", "-N p -f"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-N", "other", "-c", "show version"),
        ("-c", "start-shell bash"),
        ("-c", "show version\nconfigure terminal"),
        ("-c", "configure terminal"),
        ("-b",),
        ("-w",),
        ("--config_dir", "/etc"),
        ("-d", "../../sshd", "-c", "show version"),
        ("-c",),
        ("-C", "-c", "show version"),
        (),
        ("-c", "show version", "-H", "/etc/shadow"),
    ],
)
async def test_only_what_shows_or_loads_is_run(pod: FakePod, arguments: tuple[str, ...]) -> None:
    pod.program(f"touch {pod.directory}/ran")
    async with serving(pod):
        with pytest.raises(ReloaderFault, match=r"refuses \(status 400\): arguments: "):
            await pod.vtysh.run(*arguments)
    assert not (pod.directory / "ran").exists()


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"[]",
        b"{}",
        VtyshRequest(("-c", "show x"), None, "shared", 1e9).encode(),
        VtyshRequest((), "hostname hush", "shared", 1.0).encode(),
        VtyshRequest((), "hostname hush", "", 1.0).encode(),
        VtyshRequest(("-c", "show x"), "hostname hush", "exclusive", 1.0).encode(),
        VtyshRequest((), "a\0b", "exclusive", 1.0).encode(),
        VtyshRequest(("-c", "show x"), None, "mine", 1.0).encode(),  # type: ignore[arg-type]
        VtyshRequest(tuple("-E" for _ in range(300)), None, "shared", 1.0).encode(),
    ],
)
def test_a_request_that_is_not_understood_is_refused_without_quoting_it(body: bytes) -> None:
    with pytest.raises(reloader_protocol.RefusedRequestError) as refusal:
        reloader_protocol.read_vtysh(body)
    assert "hush" not in str(refusal.value)


async def test_a_deadline_and_a_missing_program_are_the_faults_that_they_are_here(pod: FakePod) -> None:
    async with serving(pod):
        pod.program("echo so far; exec sleep 600")
        with pytest.raises(CommandTimeout) as timeout:
            await pod.vtysh.run(*PROBE, seconds=0.5)
        assert timeout.value.seconds == 0.5
        pod.settings.vtysh.unlink()
        with pytest.raises(CommandMissing, match=r"in FRR's pod: cannot start .*vtysh"):
            await pod.vtysh.run("-c", "show x")


async def test_changes_are_one_after_the_other_and_wait_for_readers_on_the_host(pod: FakePod) -> None:
    pod.program(f"echo begins >>{pod.directory}/log; sleep 0.05; echo ends >>{pod.directory}/log")
    lock = session_lock(lock_file(pod.settings), exclusive=False)
    async with serving(pod), trio.open_nursery() as nursery, lock:
        for _ in range(3):
            nursery.start_soon(pod.load, "hostname x\n")
        # One that needs no lock passes those that wait.
        await pod.vtysh.run("-d", "bgpd", "-c", "show version")
        assert (pod.directory / "log").read_text() == "begins\nends\n"
    assert (pod.directory / "log").read_text() == "begins\nends\n" * 4


async def test_a_caller_that_holds_the_lock_is_not_made_to_wait_for_it(pod: FakePod) -> None:
    async with serving(pod), session_lock(lock_file(pod.settings), exclusive=True):
        with trio.fail_after(60):
            done = await Vtysh.of(pod.settings, held=()).run("-c", "show running-config")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [
        ((), True),
        # A daemon of FRR 10.3 may die when the session of a question that it answers ends.
        (("-c", "show x"), True),
        (("-d", "mgmtd", "-c", "show mgmt transaction all", *PROBE), False),
    ],
    ids=["change", "query", "probe"],
)
async def test_a_change_and_a_query_continue_without_their_client_and_hold_the_lock(
    arguments: tuple[str, ...], *, ends: bool, pod: FakePod
) -> None:
    begun, go = f"touch {pod.directory}/begun", f"while ! test -e {pod.directory}/go; do sleep 0.01; done"
    pod.program(f"{begun}\n{go}\ntouch {pod.directory}/ended")
    async with serving(pod):
        async with trio.open_nursery() as nursery:
            if arguments:
                nursery.start_soon(pod.vtysh.run, *arguments)
            else:
                nursery.start_soon(pod.load, "hostname x\n")
            await pod.until("begun")
            nursery.cancel_scope.cancel()
        with trio.move_on_after(0.5 if ends else 60) as patience:
            async with session_lock(lock_file(pod.settings), exclusive=True):
                assert not (pod.directory / "ended").exists()
        assert patience.cancelled_caught == ends
        (pod.directory / "go").touch()
        async with session_lock(lock_file(pod.settings), exclusive=True):
            assert (pod.directory / "ended").exists() == ends


async def test_a_query_is_not_killed_at_its_deadline(pod: FakePod) -> None:
    pod.program(f"while ! test -e {pod.directory}/go; do sleep 0.01; done; touch {pod.directory}/ended")
    async with serving(pod):
        with pytest.raises(CommandTimeout, match=r"did not end within 0\.3 s$"):
            await pod.vtysh.run("-d", "zebra", "-c", "show x", seconds=0.3)
        (pod.directory / "go").touch()
        await pod.until("ended")
        pod.program("exec sleep 600")
        with pytest.raises(CommandTimeout, match=r"did not end within 0\.3 s and was killed"):
            await pod.vtysh.run("-d", "mgmtd", *PROBE, seconds=0.3)


async def test_a_stop_waits_for_the_change_in_hand_and_leaves_no_socket(pod: FakePod) -> None:
    go = f"while ! test -e {pod.directory}/go; do sleep 0.01; done"
    pod.program(f"touch {pod.directory}/begun\n{go}\necho done")
    said: list[str] = []

    async def change() -> None:
        said.append(await pod.load("hostname x\n"))

    async with trio.open_nursery() as nursery, serving(pod) as reloader:
        nursery.start_soon(change)
        await pod.until("begun")
        reloader.supervisor.stop()
        (pod.directory / "go").touch()
    assert said == ["done\n"]
    assert not pod.socket.exists()


async def test_a_socket_that_was_left_is_replaced_and_only_root_may_use_the_new_one(pod: FakePod) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(pod.socket))
    with pytest.raises(ReloaderAbsent, match=r"FRR's reloader does not run: .*reloader.sock: Connection refused"):
        await pod.client.health()
    inode = pod.socket.stat().st_ino
    reloader = Reloader(pod.settings, Notifier())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloader.supervisor.run)
        with trio.fail_after(60):
            while pod.socket.stat().st_ino == inode:  # noqa: ASYNC110 - the file system gives no notice
                await trio.sleep(0.01)
        assert pod.socket.stat().st_mode & 0o777 == 0o600
        assert (await pod.client.health()).healthy is False
        reloader.supervisor.stop()


@pytest.mark.parametrize("room", [True, False])
async def test_a_reloader_that_hangs_is_a_fault_within_seconds(
    *, room: bool, pod: FakePod, autojump_clock: MockClock
) -> None:
    with socket.socket(socket.AF_UNIX) as deaf, socket.socket(socket.AF_UNIX) as other:
        deaf.bind(str(pod.socket))
        deaf.listen(1 if room else 0)
        other.connect(str(pod.socket))
        with pytest.raises(ReloaderFault, match=r"reloader.sock does not answer in time"):
            await pod.load("hostname x\n")
    assert trio.current_time() == pytest.approx(reloader_client.ACCEPT_SECONDS)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "ended before it answered"),
        (b"HTTP/1.1 102 Processing\r\n\r\n", "ended before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "ended before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not understood: another release"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nwhy", r"refuses \(status 404\): why"),
        (b"garbage\r\n\r\n", "ended before it answered"),
    ],
)
async def test_any_other_answer_is_a_fault(pod: FakePod, answer: bytes, reason: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(1 << 16)
            await stream.send_all(answer)

    listener = trio.socket.socket(socket.AF_UNIX)
    await listener.bind(str(pod.socket))
    listener.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listener)])
        with pytest.raises(ReloaderFault, match=reason):
            await pod.load("hostname x\n")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /v1/vtysh", "405"), ("POST /healthz", "405"), ("GET /v2/vtysh", "404"), ("no HTTP at all", "400")],
)
async def test_other_requests_get_their_status(pod: FakePod, request_line: str, status: str) -> None:
    async with serving(pod), await trio.open_unix_socket(str(pod.socket)) as stream:
        await stream.send_all(f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_a_text_that_is_too_long_is_refused(pod: FakePod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader_protocol, "MOST_BYTES", 1 << 20)
    async with serving(pod):
        with pytest.raises(ReloaderFault, match=r"refuses \(status 413\)"):
            await pod.load("hostname x\n" * (1 << 18))


async def test_a_change_is_one_line_in_the_log_without_the_text(pod: FakePod, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "openperouter.reloader")
    async with serving(pod):
        await pod.load("router bgp 64514\n neighbor 10.0.0.1 password hush\n")
        await pod.vtysh.run("-c", "show version")
    changes = [record for record in caplog.records if "configuration" in record.message]
    assert [getattr(record, "fields", {}).get("lines") for record in changes] == [2]
    assert not any("hush" in f"{record.message} {vars(record)}" for record in caplog.records)


async def test_health_names_the_daemons_that_do_not_answer(
    pod: FakePod, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("actors.reloader.server.running_daemons", lambda _directory: frozenset(("mgmtd", "zebra")))
    async with serving(pod), daemon(pod.settings.frr_run_dir / "p/zebra.vty", {"show version": ("FRRouting", 0)}):
        seen = await pod.client.health()
        assert not seen.healthy
        assert (sorted(seen.running), seen.silent) == (["mgmtd", "zebra"], {"bgpd": "it does not run"})
        with pytest.raises(CommandError, match="bgpd: it does not run"):
            await trio.to_thread.run_sync(check_reloader, pod.settings)
        monkeypatch.setattr("actors.reloader.server.CORE_DAEMONS", frozenset(("zebra",)))
        assert "mgmtd, zebra run" in await trio.to_thread.run_sync(check_reloader, pod.settings)


@contextmanager
def running(directory: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of that name."""
    program = directory / name
    shutil.copy("/usr/bin/sleep", program)
    with subprocess.Popen([program, "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_only_the_daemon_itself_is_ended(pod: FakePod, caplog: pytest.LogCaptureFixture) -> None:
    run_dir = pod.settings.frr_run_dir / "p"
    with running(pod.directory, "mgmtd") as mgmtd, running(pod.directory, "other") as other:
        async with serving(pod):
            (run_dir / "mgmtd.pid").write_text(f"{other.pid}\n")
            assert not await pod.client.end("mgmtd", other.pid)
            assert not await pod.client.end("mgmtd", mgmtd.pid)
            with pytest.raises(ReloaderFault, match="must name one of FRR's daemons"):
                await pod.client.end("other", other.pid)
            (run_dir / "mgmtd.pid").write_text(f"{mgmtd.pid}\n")
            assert await pod.client.end("mgmtd", mgmtd.pid)
        assert mgmtd.wait(30) == -signal.SIGKILL
        assert other.poll() is None


async def test_the_kernels_list_of_connections_is_read_beside_the_event_loop(
    pod: FakePod, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(_path: Path) -> frozenset[int]:
        threads.append(threading.current_thread())
        return frozenset({7})

    threads: list[threading.Thread] = []
    for module in ("actors.lib.frr.processes", "actors.lib.frr.pod_processes", "actors.reloader.server"):
        monkeypatch.setattr(f"{module}.abandoned", recorded)
    run_dir = pod.settings.frr_run_dir / "p"
    async with serving(pod):
        for processes in (
            PodProcesses(run_dir, pod.settings.pod_run_dir, "p", "none"),
            NativeProcesses(run_dir, "p"),
        ):
            assert await processes.abandoned("mgmtd") == {7}
    assert len(threads) == 3
    assert threading.main_thread() not in threads


async def test_connections_without_a_client_are_counted_in_the_pod(pod: FakePod) -> None:
    path = pod.settings.frr_run_dir / "p/mgmtd.vty"
    processes = PodProcesses(path.parent, pod.settings.pod_run_dir, "p", "none")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen()
        client.connect(str(path))
        left, _ = server.accept()
        async with serving(pod):
            assert await processes.abandoned("mgmtd") == frozenset()
            client.close()
            assert len(await processes.abandoned("mgmtd")) == 1
            with pytest.raises(ReloaderFault, match="must name"):
                await pod.client.abandoned("sshd")
        left.close()
