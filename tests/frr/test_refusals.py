"""What real FRR refuses fails its resource by name, and everything else is in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from actors.frr.apply import SupersededError
from config.desired import DesiredState
from config.problems import ResourceId
from config.settings import Settings
from tests.actors.frr.cases import PASSTHROUGH, RED, l3vni, neighbor, raw, session, state, underlay

from .harness import FrrInstance, eventually, sh
from .test_apply import Bench

pytestmark = pytest.mark.usefixtures("quick_refusals")

GREEN = l3vni("green", 300, session(("172.27.12.1/24", "172.27.12.2/24")), export_rts=("64514:7",))
CONFLICT = raw("conflict", "router bgp 65000\n neighbor 10.1.1.1 remote-as 65001\nexit")
GOOD = raw("good", "ip prefix-list fine seq 5 permit 10.0.0.0/8")
PT = replace(PASSTHROUGH, session=session(("172.27.20.1/24", "172.27.20.2/24")))
#: A value that bgpd refuses, and vtysh's grammar does not.
NO_ADDRESS = "256.1.1.1:5"

PLAIN = state(underlay=underlay(), l3vnis=(RED, GREEN), passthrough=PT, raw_frr=(GOOD,))
#: A configuration of which FRR refuses one line, that line, and whose it is. The namespace has 172.27.20.2 itself.
REFUSED: dict[str, tuple[DesiredState, str, ResourceId]] = {
    "a tenant's route target": (
        replace(PLAIN, l3vnis=(replace(RED, export_rts=(NO_ADDRESS,)), GREEN), passthrough=None),
        NO_ADDRESS,
        RED.resource,
    ),
    "a neighbour that is the router itself": (PLAIN, "neighbor 172.27.20.2 remote-as 64515", PT.resource),
    "a fabric neighbour that is the router itself": (
        replace(PLAIN, underlay=underlay(neighbor(), neighbor("172.27.20.2")), passthrough=None),
        "neighbor 172.27.20.2 remote-as 64512",
        underlay().resource,
    ),
    "a timer that vtysh does not know": (
        replace(PLAIN, underlay=underlay(neighbor(hold_time=99999, keepalive_time=3)), passthrough=None),
        "timers 3 99999",
        underlay().resource,
    ),
    "a log level that vtysh does not know": (
        replace(PLAIN, log_level="florid", passthrough=None),
        "log syslog florid",
        underlay().resource,
    ),
    "a second autonomous system": (
        replace(PLAIN, raw_frr=(CONFLICT, GOOD), passthrough=None),
        "router bgp 65000",
        CONFLICT.resource,
    ),
    "a snippet that vtysh does not know": (
        replace(PLAIN, raw_frr=(raw("florp", "florp bgp\n florp inside"), GOOD), passthrough=None),
        "florp bgp",
        raw("florp", "").resource,
    ),
}


@pytest.fixture
def bench(frr: FrrInstance, settings: Settings) -> Iterator[Bench]:
    sh(f"ip -n {frr.name} address add 172.27.20.2/32 dev lo")
    pids = {daemon: frr.pid(daemon) for daemon in ("zebra", "mgmtd", "bgpd")}
    yield Bench(frr, settings)
    assert {daemon: frr.pid(daemon) for daemon in pids} == pids


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("before", ["nothing", "all of it"])
async def test_a_refused_line_fails_its_resource_alone(name: str, before: str, bench: Bench) -> None:
    desired, line, resource = REFUSED[name]
    if before != "nothing":
        assert not (await bench.apply(replace(PLAIN, passthrough=None))).failures
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    assert [failure.resource for failure in outcome.failures] == [resource]
    assert line in outcome.failures[0].message
    running = await bench.driver.running()
    kept = ("router bgp 64514 vrf green", "vni 300", "route-target export 64514:7", "advertise-all-vni")
    for word in (*kept, "neighbor 192.168.11.2 activate", "ip prefix-list fine"):
        assert word in running
    if resource != RED.resource:
        assert "vni 100" in running
    assert "router bgp 64514 vrf red" in running
    again = await bench.apply(desired)
    assert (again.applied, again.failures) == (True, outcome.failures)
    fixed = await bench.applied(replace(PLAIN, passthrough=None))
    assert not fixed.failures


async def test_a_new_network_is_made_while_an_older_one_is_refused_and_after_a_restart(
    frr: FrrInstance, bench: Bench
) -> None:
    red = replace(PLAIN, l3vnis=(RED,), passthrough=None)
    await bench.applied(red)
    refused = replace(red, l3vnis=(replace(RED, export_rts=(NO_ADDRESS,)),))
    assert [failure.resource for failure in (await bench.apply(refused)).failures] == [RED.resource]
    both = replace(refused, l3vnis=(*refused.l3vnis, GREEN))
    outcome = await bench.apply(both)
    assert (outcome.applied, [failure.resource for failure in outcome.failures]) == (True, [RED.resource])
    assert "FRR 10.3" in outcome.failures[0].message
    running = await bench.driver.running()
    assert "vni 300" in running
    assert "vni 100" in running
    assert "router bgp 64514 vrf green" in frr.conf.read_text()
    frr.vtysh("configure", "no router bgp 64514 vrf green")
    bench.applier.refusals.forget()
    outcome = await bench.apply(both)
    assert (outcome.applied, [failure.resource for failure in outcome.failures]) == (True, [RED.resource])
    assert "router bgp 64514 vrf green" in await bench.driver.running()
    await bench.applied(replace(both, l3vnis=(replace(RED, export_rts=("64514:8",)), GREEN)))


async def test_an_frr_that_is_restarted_keeps_what_it_took_and_takes_what_is_fixed(
    frr: FrrInstance, settings: Settings
) -> None:
    bench = Bench(frr, settings)
    desired = replace(PLAIN, l3vnis=(replace(RED, export_rts=(NO_ADDRESS,)), GREEN), passthrough=None)
    assert (await bench.apply(desired)).applied
    frr.kill("bgpd")
    frr.start("bgpd")
    frr.boot("bgpd")
    eventually("bgpd has its configuration", lambda: "router bgp 64514 vrf green" in frr.vtysh("show running-config"))
    bench.applier.refusals.forget()
    outcome = await bench.apply(desired)
    assert (outcome.applied, [failure.resource for failure in outcome.failures]) == (True, [RED.resource])
    fixed = await bench.applied(replace(desired, l3vnis=(RED, GREEN)))
    assert not fixed.failures


async def test_a_newer_state_is_in_force_although_an_older_one_was_given_up_halfway(bench: Bench) -> None:
    desired = REFUSED["a tenant's route target"][0]
    looks = []

    def superseded() -> bool:
        looks.append(True)
        return len(looks) > 1

    with pytest.raises(SupersededError):
        await bench.applier.apply(desired, bench.rendered(desired), superseded)
    await bench.applied(replace(PLAIN, l3vnis=(RED,), passthrough=None))
