"""Which hosts zebra is asked about, and which the bridge forgets because zebra does not have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.lib.frr.vtysh import FrrUnavailable, VtyshRefused
from actors.netlink.refresh.hosts import MOST_HOSTS, Host, Look
from actors.netlink.refresh.missed import KEPT_SECONDS, MOST_TRIES, PATIENCE, MissedHosts, local_macs
from config.settings import Settings
from tests.actors.lib.frr.daemon import daemon

ONE, TWO = (Host(110, bytes((2, 0, 0, 0, 0, number))) for number in (1, 2))
ALL = {110: {ONE.mac, TWO.mac}}


def look(*hosts: Host, port: int = 7) -> Look:
    return Look(dict.fromkeys(hosts, 0.0), ports={110: port})


def test_zebra_is_asked_once_and_only_when_it_has_had_time() -> None:
    missed = MissedHosts()
    assert missed.suspects(look(ONE), 0) == []
    assert missed.suspects(look(ONE, TWO), PATIENCE - 0.1) == []
    assert missed.suspects(look(ONE, TWO), PATIENCE) == [ONE]
    assert missed.missed([ONE], ALL, PATIENCE) == []
    assert missed.suspects(look(ONE, TWO), 2 * PATIENCE) == [TWO]
    assert missed.missed([TWO], ALL, 2 * PATIENCE) == []
    assert missed.suspects(look(ONE, TWO), 99 * PATIENCE) == []


def test_a_host_that_left_and_came_back_is_a_new_one() -> None:
    missed = MissedHosts()
    missed.suspects(look(ONE), 0)
    assert missed.missed(missed.suspects(look(ONE), 10), ALL, 10) == []
    assert missed.suspects(look(), 20) == []
    assert missed.suspects(look(ONE), 30) == []
    assert missed.suspects(look(ONE), 40) == [ONE]


def test_the_hosts_of_a_port_that_was_replaced_are_new_ones() -> None:
    missed = MissedHosts()
    missed.suspects(look(ONE), 0)
    assert missed.missed(missed.suspects(look(ONE), 10), ALL, 10) == []
    assert missed.suspects(look(ONE, port=8), 20) == []
    assert missed.suspects(look(ONE, port=8), 30) == [ONE]


def test_a_host_that_zebra_never_takes_is_forgotten_a_few_times_however_often_it_sends() -> None:
    missed, now, forgotten = MissedHosts(), 0.0, 0
    for poll in range(40):
        now = poll * 15.0
        # Every third poll does not find it.
        present = (ONE,) if poll % 3 else ()
        forgotten += len(missed.missed(missed.suspects(look(*present), now), {110: set()}, now))
    assert forgotten == MOST_TRIES
    # Much later it gets another chance.
    now += KEPT_SECONDS
    missed.suspects(look(), now)
    missed.suspects(look(ONE), now + 15)
    assert missed.missed(missed.suspects(look(ONE), now + 30), {110: set()}, now + 30) == [ONE]


def test_hosts_of_a_segment_that_zebra_does_not_have_wait_for_it() -> None:
    missed = MissedHosts()
    missed.suspects(look(ONE), 0)
    for now in range(10, 1000, 10):
        assert missed.suspects(look(ONE), now) == [ONE]
        assert missed.missed([ONE], {}, now) == []
    assert missed.missed(missed.suspects(look(ONE), 1000), {110: {TWO.mac}}, 1000) == [ONE]


def settings(directory: Path) -> Settings:
    return Settings(frr_run_dir=directory, frr_pathspace="p")


async def test_only_local_macs_of_segments_that_zebra_has_count(tmp_path: Path) -> None:
    def mac(number: int, kind: str) -> dict[str, dict[str, str]]:
        return {f"02:00:00:00:00:{number:02x}": {"type": kind}}

    vnis = {"110": {"numMacs": 2}, "120": {"numMacs": 0}, "130": {"numMacs": MOST_HOSTS + 1}, "100": {"numMacs": "n/a"}}
    answers = {
        "show evpn vni json": (json.dumps(vnis), 0),
        "show evpn mac vni 110 json": (json.dumps({"numMacs": 2, "macs": mac(1, "local") | mac(2, "remote")}), 0),
        # FRR 10.3's way to say that there are none.
        "show evpn mac vni 120 json": ("{}\n", 0),
    }
    (tmp_path / "p").mkdir()
    async with daemon(tmp_path / "p/zebra.vty", answers) as asked:
        found = await local_macs(settings(tmp_path), (100, 110, 120, 130, 140))
    assert found == {110: {ONE.mac}, 120: frozenset()}
    assert asked == list(answers)


@pytest.mark.parametrize("answer", ["{", "% no such command"])
async def test_a_zebra_that_cannot_be_understood_is_a_fault(answer: str, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    async with daemon(tmp_path / "p/zebra.vty", {"show evpn vni json": (answer, 0)}):
        with pytest.raises(VtyshRefused):
            await local_macs(settings(tmp_path), (110,))


async def test_a_zebra_that_does_not_run_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(FrrUnavailable):
        await local_macs(settings(tmp_path), (110,))
