"""EVPN routes by VNI: counted from bgpd's tables, and only when their number has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.health.counts import PAUSE_SECONDS, RECOUNT_SECONDS, RouteCounter
from actors.health.frr_json import Observation, Peer, RouteCounts
from actors.lib.frr.vtysh import VtyshRefused
from tests.actors.health.examples import SampledFrr, observed

FABRIC = ("default", "192.168.11.2")
PATH = {"paths": [[{"valid": True, "peerId": "(unspec)"}]]}
#: Four MACs of which one is ours, with one address; three addresses, of which one is ours; two tunnel endpoints.
MACS = {"vni": 110, "[2]:[0]:[48]:[02:00:00:00:00:01]": PATH, "numPrefix": 4, "numPaths": 2}
ADDRESSES = {"vni": 110, "[2]:[0]:[48]:[00:00:00:00:00:00]:[32]:[192.0.2.1]": PATH, "numPrefix": 3, "numPaths": 1}
ENDPOINTS = {"vni": 110, "[3]:[0]:[32]:[100.65.0.1]": PATH, "numPrefix": 2, "numPaths": 1}


class Tables(SampledFrr):
    """An FRR with one L2VNI; each question is kept."""

    def __init__(self) -> None:
        super().__init__("fabric_up")
        self.asked: list[tuple[str, ...]] = []
        self.refuses = False

    async def json(self, *commands: str, daemon: str) -> list[object]:
        assert daemon == "bgpd"
        self.asked.append(commands)
        if self.refuses:
            raise VtyshRefused("bgpd refuses it")
        return [{"110": MACS}, {"110": ADDRESSES}, {"110": ENDPOINTS}]


def with_routes(seen: Observation, received: int = 3, sent: int = 3) -> Observation:
    peer = Peer(prefixes={"l2VpnEvpn": received}, evpn_sent=sent)
    return replace(seen, peers=seen.peers | {FABRIC: peer})


SEEN = observed("fabric_up")
#: No VNI has targets that FRR derives.
NONE: frozenset[int] = frozenset()


async def test_what_begins_here_and_what_came_from_the_fabric_are_counted_apart() -> None:
    counts = await RouteCounter().counted(Tables(), SEEN, NONE, 0.0)
    assert counts[110] == RouteCounts(received={"2": 5, "3": 1}, advertised={"2": 2, "3": 1})


async def test_prefixes_are_counted_by_the_route_targets_of_l3vnis() -> None:
    assert SEEN.evpn is not None
    counts = await RouteCounter().counted(Tables(), SEEN, NONE, 0.0)
    assert counts[100] == RouteCounts(received={"5": 1}, advertised={"5": 1})
    # Its route is imported once, by whichever of its targets, and one of another tenant is not.
    [other] = [route for route in SEEN.evpn.type5 if not route.own]
    assert SEEN.bgp_vnis is not None
    both = replace(SEEN.bgp_vnis[100], import_rts=frozenset({"64512:100", "64512:101"}))
    routes = (
        replace(other, prefix="10.60.0.0/24", targets=both.import_rts),
        replace(other, prefix="10.61.0.0/24", targets=frozenset({"64512:999"})),
    )
    more = replace(
        SEEN,
        bgp_vnis=SEEN.bgp_vnis | {100: both},
        evpn=replace(SEEN.evpn, type5=(*SEEN.evpn.type5, *routes)),
    )
    counts = await RouteCounter().counted(Tables(), more, NONE, 0.0)
    assert counts[100].received == {"5": 2}


async def test_prefixes_from_other_ases_are_counted_for_a_target_that_frr_derives() -> None:
    assert SEEN.evpn is not None
    assert SEEN.bgp_vnis is not None
    own_as = SEEN.bgp_vnis | {100: replace(SEEN.bgp_vnis[100], import_rts=frozenset({"64514:100"}))}
    [other] = [route for route in SEEN.evpn.type5 if not route.own]
    targets = ({"64513:100", "64999:100"}, {"64512:101"}, {"4200000000:100"}, {"192.0.2.1:100"})
    more = (
        replace(other, prefix=f"10.6{number}.0.0/24", targets=frozenset(found)) for number, found in enumerate(targets)
    )
    seen = replace(SEEN, bgp_vnis=own_as, evpn=replace(SEEN.evpn, type5=(*SEEN.evpn.type5, *more)))
    counter = RouteCounter()
    assert (await counter.counted(Tables(), seen, NONE, 0.0))[100].received == {"5": 0}
    # One of 64512:100, and one of two other ASes.
    assert (await counter.counted(Tables(), seen, frozenset({100}), 10.0))[100].received == {"5": 2}


async def test_without_the_fabrics_routes_the_prefixes_are_unknown() -> None:
    counts = await RouteCounter().counted(Tables(), replace(SEEN, evpn=None), NONE, 0.0)
    assert set(counts) == {110}


async def test_nothing_is_asked_while_no_session_has_another_number_of_routes() -> None:
    counter, frr, now = RouteCounter(), Tables(), 0.0
    first = await counter.counted(frr, with_routes(SEEN), NONE, now)
    # What has just changed may not be in the VNIs' tables yet.
    now += 15
    await counter.counted(frr, with_routes(SEEN), NONE, now)
    assert len(frr.asked) == 2
    while now < RECOUNT_SECONDS:
        assert await counter.counted(frr, with_routes(SEEN), NONE, now) == first
        now += 15
    assert len(frr.asked) == 2
    await counter.counted(frr, with_routes(SEEN), NONE, now + 15)
    assert len(frr.asked) == 3


@pytest.mark.parametrize(("received", "sent"), [(4, 3), (3, 4), (2, 3)])
async def test_a_session_with_another_number_of_routes_has_them_counted_again(received: int, sent: int) -> None:
    counter, frr = RouteCounter(), Tables()
    for now in (0.0, 15.0, 30.0):
        await counter.counted(frr, with_routes(SEEN), NONE, now)
    assert len(frr.asked) == 2
    await counter.counted(frr, with_routes(SEEN, received, sent), NONE, 45.0)
    assert len(frr.asked) == 3


async def test_however_often_frr_is_polled_there_is_a_pause_between_two_counts() -> None:
    counter, frr = RouteCounter(), Tables()
    for number in range(20):
        await counter.counted(frr, with_routes(SEEN, received=number), NONE, number * PAUSE_SECONDS / 10)
    assert len(frr.asked) == 2


async def test_an_frr_that_does_not_know_the_question_has_unknown_numbers_and_a_reason() -> None:
    counter, frr = RouteCounter(), Tables()
    frr.refuses = True
    counts = await counter.counted(frr, SEEN, NONE, 0.0)
    assert set(counts) == {100}
    assert counter.error == "bgpd refuses it"


@pytest.mark.parametrize("originator", ["0.0.0.0", "2001:db8::1", ""])
async def test_an_endpoint_that_would_not_limit_the_answer_is_not_used(originator: str) -> None:
    frr, counter = Tables(), RouteCounter()
    assert SEEN.bgp_vnis is not None
    vnis = {vni: replace(bgp, originator=originator) for vni, bgp in SEEN.bgp_vnis.items()}
    assert 110 not in await counter.counted(frr, replace(SEEN, bgp_vnis=vnis), NONE, 0.0)
    assert frr.asked == []
    assert "tunnel endpoint" in counter.error


async def test_numbers_are_forgotten_with_bgpd() -> None:
    counter, frr = RouteCounter(), Tables()
    assert await counter.counted(frr, SEEN, NONE, 0.0)
    assert await counter.counted(frr, observed("bgpd_gone"), NONE, 15.0) == {}
    assert await counter.counted(frr, SEEN, NONE, 30.0)
    assert len(frr.asked) == 2
