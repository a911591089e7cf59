"""Which sessions a change of the configuration ends or resets: from one rendered state to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.frr.diff.difference import difference, intended, parse
from actors.frr.interruptions import interrupted_segments, interrupted_sessions
from actors.frr.render.render import render
from config.desired import DesiredL2VNI, DesiredState, Secret
from tests.actors.frr.cases import CASES, ENDS_V4, HOSTNAME, l2vni, l3vni, neighbor, session, underlay


def state(*neighbors: object, asn: int = 64514, **parts: object) -> DesiredState:
    one = underlay(*neighbors, asn=asn)  # type: ignore[arg-type]
    return replace(CASES["no_vnis"], underlay=one, **parts)  # type: ignore[arg-type]


def interrupted(before: DesiredState, after: DesiredState) -> list[str]:
    running = parse(render(before, hostname=HOSTNAME).text)
    found = difference(intended(render(after, hostname=HOSTNAME)), running)
    return [str(one) for one in interrupted_sessions(running, found)]


PEER = neighbor()
LEAF = "session 192.168.11.2 in VRF default: "
RED = l3vni(host=session(ENDS_V4))
HOST = "session 172.27.10.2 in VRF red: "


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (state(PEER), state(PEER), []),
        (state(PEER), state(PEER, neighbor("192.168.12.2")), []),
        (state(PEER), state(PEER, l3vnis=(RED,)), []),
        (state(PEER), state(neighbor("192.168.12.2")), [LEAF + "is removed"]),
        (state(PEER), state(neighbor(remote_as=64513)), [LEAF + "is reset (other remote AS)"]),
        (state(PEER), state(neighbor(password=Secret("hush"))), [LEAF + "is reset (other password)"]),
        (state(PEER), state(neighbor(ttl_security_hops=1)), [LEAF + "is reset (other TTL security)"]),
        (state(PEER), state(neighbor(families=PEER.families[:1])), [LEAF + "is reset (other address families)"]),
        (state(PEER), state(neighbor(hold_time=30, keepalive_time=10)), []),
        (state(PEER), state(neighbor(maximum_prefixes=5)), []),
        (state(PEER), state(PEER, asn=64515), [LEAF + "is reset (other AS of its instance)"]),
        (state(PEER, l3vnis=(RED,)), state(PEER), [HOST + "is removed"]),
        (
            state(PEER, l3vnis=(RED,)),
            state(PEER, l3vnis=(replace(RED, session=session(ENDS_V4, remote_as=64516)),)),
            [HOST + "is reset (other remote AS)"],
        ),
        (
            CASES["unnumbered"],
            state(PEER, l3vnis=CASES["unnumbered"].l3vnis),
            ["session toswitch1 in VRF default: is removed"],
        ),
        (state(PEER), CASES["empty"], [LEAF + "is removed"]),
    ],
)
def test_a_change_interrupts(before: DesiredState, after: DesiredState, expected: list[str]) -> None:
    assert interrupted(before, after) == expected


def test_another_router_id_resets_each_session_of_its_instance() -> None:
    before = state(PEER)
    other = replace(underlay(PEER), router_id=CASES["basic"].underlay.router_id + 1)  # type: ignore[union-attr]
    assert interrupted(before, replace(before, underlay=other)) == [LEAF + "is reset (other router ID)"]


AUTOMATIC = l2vni(210, None, ())
NAMED = replace(AUTOMATIC, rd="10.0.0.1:210", import_rts=("64514:1",), export_rts=("64514:2",))
TAKEN = "VNI 210: it imports other nodes' routes again (other route targets)"
ANNOUNCED = "VNI 210: its routes are announced again (other route targets)"
RENAMED = "its routes are announced again (other route distinguisher)"


@pytest.mark.parametrize(
    ("before", "after", "live", "expected"),
    [
        (AUTOMATIC, replace(AUTOMATIC, import_rts=("64514:1",)), {210}, [TAKEN]),
        (NAMED, replace(NAMED, import_rts=("64514:1", "64514:3")), {210}, [TAKEN]),
        (NAMED, replace(NAMED, export_rts=()), {210}, [ANNOUNCED]),
        (NAMED, replace(NAMED, rd=None), {210}, [f"VNI 210: {RENAMED}"]),
        (NAMED, NAMED, {210}, []),
        # One that is not there yet, or goes, is of concern to the kernel's plan.
        (None, NAMED, set(), []),
        (NAMED, None, set(), []),
    ],
)
def test_other_route_targets_and_distinguishers_interrupt_a_segment(
    before: DesiredL2VNI | None, after: DesiredL2VNI | None, live: set[int], expected: list[str]
) -> None:
    old, new = (state(PEER, l2vnis=(one,) if one else ()) for one in (before, after))
    found = difference(intended(render(new, hostname=HOSTNAME)), parse(render(old, hostname=HOSTNAME).text))
    assert [str(one) for one in interrupted_segments(found, live)] == expected
