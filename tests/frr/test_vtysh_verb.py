"""``openperouter vtysh`` with real FRR: what it shows, what it hides, and a daemon that does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.cli import main

from .harness import FrrInstance, eventually, namespace, sh

ROUTER, PEER = "198.51.100.1", "198.51.100.9"

#: A peer that calls itself something that clears a terminal (FQDN capability, draft-walton-bgp-hostname-capability).
HOSTILE_PEER = """
import socket, struct, sys
name = b"\\x1b[2Jevil"
hostname = bytes([73, len(name) + 2, len(name)]) + name + bytes([0])
options = bytes([2, len(hostname)]) + hostname
body = struct.pack("!BHH4sB", 4, 64512, 180, bytes([10, 9, 9, 9]), len(options)) + options
peer = socket.create_connection(("198.51.100.1", 179))
peer.sendall(b"\\xff" * 16 + struct.pack("!HB", 19 + len(body), 1) + body + b"\\xff" * 16 + struct.pack("!HB", 19, 4))
sys.stdin.read()
"""


@pytest.fixture
def settings_file(frr: FrrInstance, tmp_path: Path) -> Path:
    path = tmp_path / "openperouter.yaml"
    path.write_text(f"frrPathspace: {frr.name}\nrunDir: {tmp_path}\n")
    commands = (
        "configure",
        "router bgp 64514",
        "neighbor 192.0.2.1 remote-as 64512",
        "neighbor 192.0.2.1 password s3cret",
    )
    frr.vtysh(*commands)
    return path


def test_it_shows_without_secrets(settings_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vtysh = ["--settings", str(settings_file), "vtysh"]
    assert main([*vtysh, "-c", "show running-config", "-c", "sh bgp summary"]) == 0
    shown = capfd.readouterr().out
    assert "neighbor 192.0.2.1 remote-as 64512" in shown
    assert "neighbor 192.0.2.1 password ********" in shown
    assert "s3cret" not in shown
    assert "Neighbor" in shown
    assert main([*vtysh, "-d", "bgpd", "-c", "show bgp summary json"]) == 0
    assert "192.0.2.1" in json.loads(capfd.readouterr().out)["ipv4Unicast"]["peers"]


def test_a_daemon_that_does_not_run_is_an_error(
    frr: FrrInstance, settings_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    frr.kill("bfdd")
    assert main(["--settings", str(settings_file), "vtysh", "-d", "bfdd", "-c", "show bfd peers"]) == 69
    assert "FRR does not answer" in capfd.readouterr().err


def test_what_a_peer_calls_itself_does_not_control_the_terminal(
    frr: FrrInstance, settings_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    show = f"show bgp neighbors {PEER}"
    with namespace("frrpeer") as place:
        sh(f"ip -n {frr.name} link add topeer type veth peer name torouter netns {place}")
        for name, device, address in ((frr.name, "topeer", ROUTER), (place, "torouter", PEER)):
            sh(f"ip -n {name} address add {address}/24 dev {device} && ip -n {name} link set {device} up")
        frr.vtysh("configure", "router bgp 64514", "bgp router-id 10.0.0.1", f"neighbor {PEER} remote-as 64512")
        frr.vtysh("configure", "router bgp 64514", f"neighbor {PEER} passive")
        eventually("bgpd waits for the peer", lambda: "BGP state = Active" in frr.vtysh(show))
        command = ["ip", "netns", "exec", place, sys.executable, "-c", HOSTILE_PEER]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as peer:
            eventually("the peer's name", lambda: "evil" in frr.vtysh(show), 60)
            raw = frr.vtysh(show)
            capfd.readouterr()
            assert main(["--settings", str(settings_file), "vtysh", "-c", show]) == 0
            peer.communicate()
    assert "\x1b[2Jevil" in raw
    shown = capfd.readouterr().out
    assert "?[2Jevil" in shown
    assert [line for line in shown.splitlines() if not line.isprintable()] == []
