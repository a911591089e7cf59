"""``ping``, ``trace`` and ``exec`` on a real kernel: in the router's namespace, and in a VRF with other routes.

router: VRF red, 192.0.2.1 ---- hop 192.0.2.2, 198.51.100.1 ---- target 198.51.100.2, and both for IPv6
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.outcomes import VniHealth
from config.problems import Kind, ResourceId
from config.status import Status

ROOT = Path(__file__).parents[2]
ROUTER, HOP, TARGET = "inside-router", "inside-hop", "inside-target"
FABRIC = f"""
netns add {ROUTER}
netns add {HOP}
netns add {TARGET}
-n {ROUTER} link add red type vrf table 1001
-n {ROUTER} link set red up
-n {ROUTER} link add tohop type veth peer name torouter netns {HOP}
-n {ROUTER} link set tohop master red up
-n {ROUTER} address add 192.0.2.1/24 dev tohop
-n {ROUTER} address add 2001:db8:1::1/64 dev tohop nodad
-n {HOP} link set torouter up
-n {HOP} address add 192.0.2.2/24 dev torouter
-n {HOP} address add 2001:db8:1::2/64 dev torouter nodad
-n {HOP} link add totarget type veth peer name tohop netns {TARGET}
-n {HOP} link set totarget up
-n {HOP} address add 198.51.100.1/24 dev totarget
-n {HOP} address add 2001:db8:2::1/64 dev totarget nodad
-n {TARGET} link set tohop up
-n {TARGET} address add 198.51.100.2/24 dev tohop
-n {TARGET} address add 2001:db8:2::2/64 dev tohop nodad
-n {ROUTER} route add default via 192.0.2.2 vrf red
-n {ROUTER} route add default via 2001:db8:1::2 vrf red
-n {TARGET} route add default via 198.51.100.1
-n {TARGET} route add default via 2001:db8:2::1
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    """The fabric, and a router whose last status has L3VNI tenant, VNI 100, in VRF red."""
    vni = VniHealth(ResourceId(Kind.L3VNI, "ns", "tenant", label="tenant"), 100, "L3", "red", ok=True)
    (tmp_path / "state.json").write_text(Status(vnis=(vni,)).to_json())
    path = tmp_path / "openperouter.yaml"
    path.write_text(f"netns: {ROUTER}\nrunDir: {tmp_path}\n")
    try:
        for line in FABRIC.strip().splitlines():
            subprocess.run(["ip", *line.split()], check=True)
        forwarding = "net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
        subprocess.run(["ip", "netns", "exec", HOP, "sysctl", "-qw", *forwarding.split()], check=True)
        yield path
    finally:
        for name in (ROUTER, HOP, TARGET):
            subprocess.run(["ip", "netns", "del", name], check=False)


def openperouter(settings: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor", verb, "--settings", str(settings), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ("198.51.100.2", ["192.0.2.2", "198.51.100.2"]),
        ("2001:db8:2::2", ["2001:db8:1::2", "2001:db8:2::2"]),
        ("192.0.2.2", ["192.0.2.2"]),
    ],
)
def test_trace_follows_the_vrfs_routes(settings: Path, target: str, way: list[str]) -> None:
    done = openperouter(settings, "trace", "--vrf", "100", target)
    # "*" stands for a probe without an answer in time, as the first one can be while an address is resolved.
    answers = [next(word for word in line.split()[1:] if word != "*") for line in done.stdout.splitlines()]
    assert answers == way, done
    assert done.returncode == 0


def test_outside_of_the_vrf_there_is_no_route(settings: Path) -> None:
    done = openperouter(settings, "trace", "198.51.100.2")
    assert (done.returncode, done.stdout) == (69, "")
    assert "no route to 198.51.100.2" in done.stderr


def test_ping_is_bound_to_the_vrf(settings: Path) -> None:
    done = openperouter(settings, "ping", "-c", "1", "--vrf", "tenant", "198.51.100.2")
    assert done.returncode == 0, done
    assert "1 received" in done.stdout
    assert openperouter(settings, "ping", "-c", "1", "198.51.100.2").returncode != 0


def test_exec_is_in_the_namespace(settings: Path) -> None:
    done = openperouter(settings, "exec", "--", "ip", "-o", "link", "show", "dev", "tohop")
    assert "tohop" in done.stdout, done
    assert openperouter(settings, "exec", "sh", "-c", "exit 7").returncode == 7


def test_exec_binds_all_sockets_to_the_vrf(settings: Path) -> None:
    identified = openperouter(settings, "exec", "--vrf", "red", "--", "sh", "-c", "ip vrf identify $$")
    assert identified.stdout.strip() == "red", identified
    over_vrf = openperouter(settings, "exec", "--vrf", "red", "ping", "-c", "1", "198.51.100.2")
    assert over_vrf.returncode == 0, over_vrf
