"""GTSM, passwords, prefix limits and allowed prefixes on real bgpd: the lines, and what they do to a speaker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from actors.frr.render.render import render
from actors.health.frr_json import SUMMARY, parse_summary
from config.desired import DesiredSession, DesiredState, EndpointKind, Secret
from tests.actors.frr.cases import CASES, ENDS_V4, GUARDED, PASSTHROUGH, l3vni, neighbor, session, state, underlay

from .conftest import settings_for
from .harness import FrrInstance, eventually, running_frr, sh
from .test_apply import HOST, Bench

PLAIN = session(ENDS_V4)
TEN = (ip_network("10.0.0.0/8"),)


def passthrough(host: DesiredSession) -> DesiredState:
    return state(underlay=underlay(advertise_evpn=False, vteps=()), passthrough=replace(PASSTHROUGH, session=host))


CHANGES = {
    "everything on": (CASES["basic"], CASES["guarded_host_sessions"]),
    "everything off": (CASES["guarded_host_sessions"], CASES["basic"]),
    "the fabric's on": (CASES["basic"], CASES["guarded_fabric_sessions"]),
    "the fabric's off": (CASES["guarded_fabric_sessions"], CASES["basic"]),
    "another limit": (passthrough(GUARDED), passthrough(replace(GUARDED, maximum_prefixes=7))),
    "other hops": (passthrough(GUARDED), passthrough(replace(GUARDED, ttl_security_hops=2))),
    "multihop for hops": (
        state(underlay=underlay(neighbor(ttl_security_hops=1))),
        state(underlay=underlay(neighbor(ebgp_multihop=4))),
    ),
    "hops for multihop": (
        state(underlay=underlay(neighbor(ebgp_multihop=4))),
        state(underlay=underlay(neighbor(ttl_security_hops=1))),
    ),
    "another prefix": (
        passthrough(GUARDED),
        passthrough(replace(GUARDED, allowed_prefixes=(ip_network("172.16.0.0/12"), *GUARDED.allowed_prefixes[1:]))),  # type: ignore[index]
    ),
    "fewer prefixes": (
        passthrough(GUARDED),
        passthrough(replace(GUARDED, allowed_prefixes=TEN)),
    ),
    "more prefixes": (
        passthrough(replace(GUARDED, allowed_prefixes=TEN)),
        passthrough(GUARDED),
    ),
    "another password": (passthrough(GUARDED), passthrough(replace(GUARDED, password=Secret("other")))),
    "a VRF's prefixes": (
        state(underlay=underlay(), l3vnis=(l3vni(host=PLAIN),)),
        state(underlay=underlay(), l3vnis=(l3vni(host=replace(PLAIN, allowed_prefixes=TEN)),)),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_each_change_is_applied_exactly_and_once(name: str, shared_frr: FrrInstance, tmp_path: Path) -> None:
    bench = Bench(shared_frr, settings_for(shared_frr.name, tmp_path))
    before, after = CHANGES[name]
    await bench.applied(before)
    outcome = await bench.applied(after)
    assert (outcome.changed, outcome.failures) == (True, ())
    assert shared_frr.conf.read_text() == render(after, hostname=HOST).text
    assert not (await bench.applied(after)).changed


@dataclass(frozen=True)
class Host:
    """A host with a BGP speaker, and the router beside it."""

    bench: Bench
    router: FrrInstance
    speaker: FrrInstance

    def load(self, lines: str, networks: int = 3) -> None:
        """Configure the speaker: it announces that many networks of 10.50.0.0/16, and 172.30.0.0/24."""
        announced = "".join(f"network 10.50.{number}.0/24\n" for number in range(networks))
        self.speaker.vtysh("configure", "no router bgp")
        path = Path(f"/tmp/{self.speaker.name}.conf")
        path.write_text(
            "router bgp 64515\nno bgp ebgp-requires-policy\nno bgp network import-check\n"
            f"neighbor 172.27.10.1 remote-as 64514\nneighbor 172.27.10.1 timers connect 1\n{lines}"
            f"address-family ipv4 unicast\n{announced}network 172.30.0.0/24\nexit-address-family\nexit\n"
        )
        self.speaker.load(path)

    def session(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.router.vtysh("show bgp neighbors 172.27.10.2 json") or "{}")
        found: dict[str, Any] = shown.get("172.27.10.2", {})
        return found

    def is_up(self) -> bool:
        return self.session().get("bgpState") == "Established"

    def since(self) -> int:
        """Return when the session came up, which bgpd computes from its age: to a second or two."""
        return int(self.session()["bgpTimerUpEstablishedEpoch"])

    def routes(self) -> set[str]:
        return set(json.loads(self.router.vtysh("show bgp ipv4 unicast json") or "{}").get("routes", {}))


@contextmanager
def hosts(directory: Path) -> Iterator[Host]:
    with running_frr("frrtest", start=False) as router, running_frr("frrhost", start=False) as speaker:
        sh(
            "ip -n frrtest link add pe type veth peer name host netns frrhost && "
            "ip -n frrtest address add 172.27.10.1/24 dev pe && ip -n frrtest link set pe up && "
            "ip -n frrhost address add 172.27.10.2/24 dev host && ip -n frrhost link set host up"
        )
        router.start()
        speaker.start("zebra", "mgmtd", "bgpd")
        yield Host(Bench(router, settings_for("frrtest", directory)), router, speaker)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosts(tmp_path) as found:
        yield found


BOTH = "neighbor 172.27.10.1 password s3cret\nneighbor 172.27.10.1 ttl-security hops 1\n"


async def test_a_session_with_gtsm_and_password_comes_up_and_one_without_does_not(host: Host) -> None:
    desired = passthrough(replace(PLAIN, password=Secret("s3cret"), ttl_security_hops=1))
    await host.bench.applied(desired)
    host.load(BOTH)
    eventually("the session is up", host.is_up)
    assert host.session()["externalBgpNbrMaxHopsAway"] == 1
    for lacking in ("neighbor 172.27.10.1 password s3cret\n", "neighbor 172.27.10.1 ttl-security hops 1\n"):
        host.load(lacking)
        eventually("the session is down", lambda: not host.is_up())
        # Long enough for several attempts of either side.
        with pytest.raises(AssertionError, match="not within"):
            eventually("the session is up", host.is_up, seconds=15)
    host.load(BOTH)
    eventually("the session is up again", host.is_up)
    assert not (await host.bench.applied(desired)).changed


async def test_too_many_prefixes_close_the_session_and_fewer_open_it_again(host: Host) -> None:
    desired = passthrough(replace(PLAIN, maximum_prefixes=5))
    await host.bench.applied(desired)
    host.load("", networks=3)
    eventually("the session is up", host.is_up)
    host.load("", networks=20)
    eventually("the limit has closed it", lambda: not host.is_up() and "prefix" in json.dumps(host.session()).lower())
    eventually("no route is left", lambda: not {"10.50.0.0/24"} & host.routes())
    assert "maximum-prefix 5 restart 5" in host.router.vtysh("show running-config")
    assert not (await host.bench.applied(desired)).changed
    host.load("", networks=3)
    # What bgpd does by itself after five minutes.
    host.router.vtysh("clear bgp 172.27.10.2")
    eventually("the session is up again", host.is_up)


async def test_a_session_that_is_lost_is_counted(host: Host) -> None:
    """The summary has the counter: the neighbours' details would be one more command for each poll."""

    def flaps() -> int:
        answer = json.loads(host.router.vtysh(SUMMARY) or "{}")
        return parse_summary(answer)["default", "172.27.10.2"].flaps

    await host.bench.applied(passthrough(PLAIN))
    host.load("")
    eventually("the session is up", host.is_up)
    before = flaps()
    host.router.vtysh("clear bgp 172.27.10.2")
    eventually("the loss is counted", lambda: flaps() == before + 1)


async def test_only_allowed_prefixes_are_accepted_and_a_change_needs_no_new_session(host: Host) -> None:
    inside = {"10.50.0.0/24", "10.50.1.0/24", "10.50.2.0/24"}
    await host.bench.applied(passthrough(replace(PLAIN, allowed_prefixes=(ip_network("10.50.0.0/16"),))))
    host.load("")
    eventually("the routes are there", lambda: inside <= host.routes())
    assert "172.30.0.0/24" not in host.routes()
    since = host.since()
    one = (ip_network("10.50.1.0/24"), ip_network("172.30.0.0/16"))
    await host.bench.applied(passthrough(replace(PLAIN, allowed_prefixes=one)))
    wanted = {"10.50.1.0/24", "172.30.0.0/24"}
    eventually("the others are gone", lambda: host.routes() & {*inside, "172.30.0.0/24"} == wanted)
    await host.bench.applied(passthrough(PLAIN))
    eventually("everything is there", lambda: {*inside, "172.30.0.0/24"} <= host.routes())
    assert host.since() == pytest.approx(since, abs=2)


async def test_a_limit_is_added_to_a_running_session_without_a_reset(host: Host) -> None:
    """As an upgrade does with its default."""
    await host.bench.applied(passthrough(PLAIN))
    host.load("")
    eventually("the session is up", host.is_up)
    since = host.since()
    await host.bench.applied(passthrough(replace(PLAIN, maximum_prefixes=10000)))
    assert host.is_up()
    assert host.since() == pytest.approx(since, abs=2)


async def test_a_dynamic_neighbour_is_held_to_gtsm_and_the_limit_of_its_range(host: Host) -> None:
    ranged = neighbor(
        "172.27.10.0/24",
        endpoint_kind=EndpointKind.LISTEN_RANGE,
        remote_as=64515,
        ttl_security_hops=1,
        maximum_prefixes=5,
    )
    await host.bench.applied(state(underlay=underlay(ranged, advertise_evpn=False, vteps=())))
    host.load("neighbor 172.27.10.1 ttl-security hops 1\n")
    eventually("the session is up", host.is_up)
    host.load("")
    with pytest.raises(AssertionError, match="not within"):
        eventually("the session is up", host.is_up, seconds=15)
    host.load("neighbor 172.27.10.1 ttl-security hops 1\n", networks=20)
    with pytest.raises(AssertionError, match="not within"):
        eventually("all routes are there", lambda: "10.50.19.0/24" in host.routes(), seconds=15)
