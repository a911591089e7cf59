"""systemd receives the right datagrams; a missing, broken or full socket does no harm."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.process.sd_notify import STATUS_LENGTH, Notifier


class Systemd:
    """systemd's end: a real datagram socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def received(self) -> list[str]:
        datagrams = []
        while True:
            try:
                datagrams.append(self.socket.recv(65536).decode())
            except BlockingIOError:
                return datagrams


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    end = Systemd(path)
    yield end
    end.socket.close()


def test_each_message_is_one_datagram(systemd: Systemd) -> None:
    notifier = Notifier()
    notifier.ready()
    notifier.status("routing 3 VNIs")
    notifier.watchdog()
    notifier.extend_timeout(1.5)
    notifier.stopping()
    notifier.failing(78)
    assert systemd.received() == [
        "READY=1",
        "STATUS=routing 3 VNIs",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=1500000",
        "STOPPING=1",
        "EXIT_STATUS=78",
    ]


def test_reloading_carries_the_monotonic_time_in_the_same_datagram(systemd: Systemd) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    Notifier().reloading()
    (datagram,) = systemd.received()
    match = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", datagram)
    assert match
    assert before <= int(match[1]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_a_status_is_sent_only_when_it_changes(systemd: Systemd) -> None:
    notifier = Notifier()
    for text in ("a", "a", "b", "a"):
        notifier.status(text)
    assert systemd.received() == ["STATUS=a", "STATUS=b", "STATUS=a"]


def test_a_status_is_one_bounded_line_of_utf_8(systemd: Systemd) -> None:
    notifier = Notifier()
    notifier.status("größer\nREADY=1\r\n  →")
    notifier.status("é" * 10_000)
    first, second = systemd.received()
    assert first == "STATUS=größer READY=1 →"
    assert second == f"STATUS={'é' * (STATUS_LENGTH - 1)}…"


def test_an_abstract_socket_works(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"openperouter-test-{time.monotonic_ns()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    end = Systemd(f"\0{name}")
    Notifier().ready()
    assert end.received() == ["READY=1"]
    end.socket.close()


def everything(notifier: Notifier) -> None:
    notifier.ready()
    notifier.reloading()
    notifier.status("x")
    notifier.watchdog()
    notifier.extend_timeout(1)
    notifier.stopping()
    notifier.failing(1)


@pytest.mark.parametrize("value", [None, "", "relative/path", "/nonexistent/notify", "/" + "x" * 500])
def test_without_a_usable_socket_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", value)
    notifier = Notifier()
    for _ in range(100):
        everything(notifier)
    assert notifier.enabled is bool(value)


@pytest.mark.timeout(60)
def test_a_full_socket_does_not_block_and_what_systemd_waits_for_is_sent_later(systemd: Systemd) -> None:
    notifier = Notifier()
    for _ in range(10_000):
        notifier.watchdog()
    notifier.status("lost for now")
    notifier.ready()
    notifier.stopping()
    assert "READY=1" not in systemd.received()
    notifier.status("lost for now")
    assert systemd.received() == ["READY=1", "STOPPING=1", "STATUS=lost for now"]


def test_a_socket_that_came_back_is_found_again(systemd: Systemd, tmp_path: Path) -> None:
    notifier = Notifier()
    notifier.watchdog()
    systemd.socket.close()
    (tmp_path / "notify").unlink()
    notifier.ready()
    again = Systemd(str(tmp_path / "notify"))
    notifier.watchdog()
    assert again.received() == ["READY=1", "WATCHDOG=1"]
    again.socket.close()
