"""A guest that boots slowly has longer to greet."""

from __future__ import annotations

import socketserver
import threading
import time

import pytest

from guestvm import machine


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
