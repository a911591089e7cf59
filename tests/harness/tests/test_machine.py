"""A guest whose kernel the emulator ends boots again, for other reasons it does not. And a slow one gets its time."""

from __future__ import annotations

import socketserver
import threading
import time
from pathlib import Path

import pytest

from guestvm import machine
from guestvm.errors import GuestError
from guestvm.machine import Machine

FAULT = "Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\nKernel panic - not syncing\n"
OTHER = "Kernel panic - not syncing: Attempted to kill init!\n"
GOOD = ""


class Guest(Machine):
    """Boots without QEMU: each boot leaves a text on the console, and fails unless that is empty."""

    def __init__(self, directory: Path, *boots: str) -> None:
        self.directory = directory
        self.boots = list(boots)
        self.new_disks = 0
        self._overlay = directory / "overlay.qcow2"
        self._qemu = self._remote = None
        (directory / "qemu.log").touch()

    def power_on(self) -> None:
        self.new_disks += not self._overlay.exists()
        self._overlay.touch()
        self.console.write_text(self.boots[0])

    def wait_for_shell(self) -> None:
        if self.boots.pop(0):
            raise GuestError("QEMU ended")


@pytest.mark.parametrize(("faults", "disk"), [(1, False), (2, False), (1, True)])
def test_a_boot_that_the_emulator_ends_is_made_again(tmp_path: Path, faults: int, *, disk: bool) -> None:
    guest = Guest(tmp_path, *([FAULT] * faults), GOOD)
    if disk:
        (tmp_path / "overlay.qcow2").touch()
    guest.start()
    assert not guest.boots
    assert guest.new_disks == (0 if disk else faults + 1)


@pytest.mark.parametrize(("boots", "left"), [([OTHER, GOOD], 1), ([FAULT] * 4, 1), ([FAULT, OTHER, GOOD], 1)])
def test_any_other_end_and_a_lasting_fault_are_errors(tmp_path: Path, boots: list[str], left: int) -> None:
    guest = Guest(tmp_path, *boots)
    with pytest.raises(GuestError):
        guest.start()
    assert len(guest.boots) == left


class SlowToGreet(socketserver.ThreadingTCPServer):
    """An ssh server that greets ``seconds`` after a connection; ``ended`` ends all that have not been greeted."""

    daemon_threads = True

    def __init__(self, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), Greeter)
        self.seconds, self.ended = seconds, threading.Event()


class Greeter(socketserver.BaseRequestHandler):
    server: SlowToGreet

    def handle(self) -> None:
        if not self.server.ended.wait(self.server.seconds):
            self.request.sendall(b"SSH-2.0-slow\r\n")


@pytest.mark.parametrize(("up_for", "silent_for", "greets"), [(0, 600, False), (3000, 0.5, True)])
def test_a_slow_guest_has_longer_for_its_greeting(
    monkeypatch: pytest.MonkeyPatch, *, up_for: float, silent_for: float, greets: bool
) -> None:
    monkeypatch.setattr(machine, "_GREETING_SECONDS", 0.01)
    with SlowToGreet(silent_for) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert machine.greets(server.server_address[1], time.monotonic() - up_for) is greets
        server.ended.set()
        server.shutdown()
