"""What should work on the demonstration's node, one check a line, each with the numbers it was judged by.

A check is asked until it says yes or its time is up: BGP needs moments to come up after the router is ready.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guestvm.machine import Machine

#: BGP's retries are 1 to 10 s apart; the rest is for an emulated machine beside other work.
CONVERGENCE_SECONDS = 300
_PAUSE_SECONDS = 1.0
#: A ping ends by then, whatever comes back.
_PING_SECONDS = 20

FABRIC_HOST_V4 = "192.168.20.2"
FABRIC_HOST_V6 = "2001:db8:20::2"
FAR_HOST = "192.168.210.20"
PLAIN_HOST = "192.168.99.2"
FABRIC_PREFIX = "192.168.20.0/24"
PLAIN_PREFIX = "192.168.99.0/24"
LEAF = "192.168.11.2"
EVPN_SUMMARY = "show bgp l2vpn evpn summary"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one thing works, and the evidence in one line."""

    ok: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Check:
    """A thing that should work: ``title`` for a reader, ``ask`` looks once."""

    title: str
    ask: Callable[[Machine], Verdict]

    def wait(self, machine: Machine, seconds: float = CONVERGENCE_SECONDS) -> Verdict:
        """Look until it works or ``seconds`` are over; return the last verdict."""
        deadline = time.monotonic() + seconds
        while True:
            verdict = self.ask(machine)
            if verdict.ok or time.monotonic() > deadline:
                return verdict
            time.sleep(_PAUSE_SECONDS)


def vtysh_json(machine: Machine, instance: str, command: str) -> dict[str, Any]:
    """Return an FRR instance's JSON answer; empty when the instance does not answer."""
    done = machine.remote.run(f"vtysh -N {instance} -c '{command} json'", check=False)
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def session(instance: str, command: str, peer: str, *, prefixes: int = 0) -> Callable[[Machine], Verdict]:
    """Return a look at one BGP session in a ``show bgp FAMILY summary``.

    ``prefixes`` is how many of that family must have come: a session is Established some moments before the first.
    """
    family = command.removeprefix("show bgp ").removesuffix(" summary")

    def ask(machine: Machine) -> Verdict:
        found = _peers(vtysh_json(machine, instance, command), family).get(peer, {})
        state, count = found.get("state", "unknown"), found.get("pfxRcd", 0)
        enough = state == "Established" and count >= prefixes
        return Verdict(enough, f"{peer} {state}, {count} {family} prefixes received")

    return ask


def route(instance: str, command: str, prefix: str) -> Callable[[Machine], Verdict]:
    """Return a look at one BGP route that an FRR instance installed."""

    def ask(machine: Machine) -> Verdict:
        for entry in vtysh_json(machine, instance, command).get(prefix, []):
            if entry.get("installed") and entry.get("protocol") == "bgp":
                hops = ", ".join(f"{hop.get('ip')} dev {hop.get('interfaceName')}" for hop in entry.get("nexthops", []))
                return Verdict(True, f"{prefix} via {hops}")
        return Verdict(False, f"{prefix} is not there")

    return ask


def ping(target: str, *, netns: str = "", count: int = 3) -> Callable[[Machine], Verdict]:
    """Return a ping from the host or from a namespace: every packet has to come back."""
    where = f"ip netns exec {netns} " if netns else ""

    def ask(machine: Machine) -> Verdict:
        done = machine.remote.run(f"{where}ping -n -c {count} -i 0.2 -W 2 -w {_PING_SECONDS} {target}", check=False)
        counts = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
        times = re.search(r"= [\d.]+/([\d.]+)/", done.stdout)
        if counts is None:
            return Verdict(False, (done.stderr or done.stdout).strip().splitlines()[-1][:100] or "ping did not run")
        average = f", {times[1]} ms" if times else ""
        return Verdict(done.returncode == 0 and counts[1] == counts[2], f"{counts[2]}/{counts[1]} came back{average}")

    return ask


def status(machine: Machine) -> Verdict:
    """Look at what ``openperouter status`` makes of the node: healthy (exit code 0), and every session seen up."""
    done = machine.remote.run("openperouter status", check=False)
    lines = (done.stdout or done.stderr).strip().splitlines() or ["no output"]
    summary = next((line for line in lines if line.startswith("\N{BLACK CIRCLE}")), lines[0])
    return Verdict(done.returncode == 0 and " down" not in summary, f"exit code {done.returncode}: {summary[:100]}")


#: In the order in which things come up.
CHECKS = (
    Check("EVPN session, router and leaf", session("perouter", EVPN_SUMMARY, LEAF, prefixes=1)),
    Check("type-5 route in VRF red", route("perouter", "show ip route vrf red", FABRIC_PREFIX)),
    Check("host BGP session, L3VNI red", session("hostbgp", "show bgp ipv4 unicast summary", "172.27.10.1")),
    Check("host BGP session, L3VNI red, v6", session("hostbgp", "show bgp ipv6 unicast summary", "2001:db9:1::1")),
    Check("host BGP session, passthrough", session("hostbgp", "show bgp ipv4 unicast summary", "172.26.10.1")),
    Check("fabric's route on the host, VRF red", route("hostbgp", "show ip route", FABRIC_PREFIX)),
    Check("fabric's route on the host, passthrough", route("hostbgp", "show ip route", PLAIN_PREFIX)),
    Check("ping host > L3VNI > fabric host, IPv4", ping(FABRIC_HOST_V4)),
    Check("ping host > L3VNI > fabric host, IPv6", ping(FABRIC_HOST_V6)),
    Check("ping in the stretched L2VNI, near > far", ping(FAR_HOST, netns="near")),
    Check("ping host > passthrough > plain host", ping(PLAIN_HOST)),
    Check("openperouter status", status),
)


def _peers(answer: dict[str, Any], family: str) -> dict[str, Any]:
    """Return a summary's peers: EVPN's are at the top, others below a key such as ``ipv4Unicast``."""
    below = (part for key, part in answer.items() if key.lower() == family.replace(" ", ""))
    return next((part["peers"] for part in (answer, *below) if part.get("peers")), {})
