"""What the demonstration says of a BGP session, from what FRR answers."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from demo.checks import CHECKS, Verdict, session
from guestvm.machine import Machine

EVPN = "show bgp l2vpn evpn summary"
LEAF = "192.168.11.2"


def machine(answer: Any) -> Machine:
    """Return a machine on which every command prints this."""

    def run(command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, json.dumps(answer), "")

    return cast(Machine, SimpleNamespace(remote=SimpleNamespace(run=run)))


def peers(state: str = "Established", count: int = 0, peer: str = LEAF) -> dict[str, Any]:
    """Return a summary as FRR 10.3 spells it."""
    return {"routerId": "10.0.0.1", "peers": {peer: {"remoteAs": 64512, "state": state, "pfxRcd": count}}}


def evpn(answer: Any) -> Verdict:
    [check] = (check for check in CHECKS if check.title.startswith("EVPN session"))
    return check.ask(machine(answer))


def test_the_evpn_session_is_shown_with_the_prefixes_of_its_family() -> None:
    assert evpn(peers(count=5)) == Verdict(True, f"{LEAF} Established, 5 l2vpn evpn prefixes received")


def test_an_evpn_session_that_has_brought_nothing_yet_is_looked_at_again() -> None:
    assert evpn(peers(count=0)) == Verdict(False, f"{LEAF} Established, 0 l2vpn evpn prefixes received")


def test_prefixes_of_a_session_that_is_down_do_not_count() -> None:
    assert not evpn(peers("Active", 5)).ok


@pytest.mark.parametrize("order", [1, -1])
def test_the_count_is_that_of_the_family_that_was_asked_for(order: int) -> None:
    families = {"ipv4Unicast": peers(count=0), "l2VpnEvpn": peers(count=5)}
    answer = dict(list(families.items())[::order])
    assert session("perouter", EVPN, LEAF)(machine(answer)).evidence.endswith("5 l2vpn evpn prefixes received")
    other = session("perouter", "show bgp ipv4 unicast summary", LEAF)(machine(answer))
    assert other == Verdict(True, f"{LEAF} Established, 0 ipv4 unicast prefixes received")


@pytest.mark.parametrize("answer", [{}, {"warning": "Default BGP instance not found"}, peers(peer="192.0.2.1"), []])
def test_a_session_that_frr_does_not_know_is_not_up(answer: Any) -> None:
    assert evpn(answer) == Verdict(False, f"{LEAF} unknown, 0 l2vpn evpn prefixes received")
