"""Applying decides by what FRR shows, writes only when it must, and lets only verified text become FRR's boot file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock as Clock

from actors.frr.apply import Applier
from actors.frr.diff.difference import parse
from actors.frr.render.render import render
from config.desired import DesiredState, Secret
from config.outcomes import FrrOutcome
from config.problems import Reason
from tests.fakes.frr import FakeFrr

from .cases import CASES, HOSTNAME, RED, l3vni, neighbor, raw, state, underlay

pytestmark = pytest.mark.usefixtures("no_threads")
BASIC = CASES["basic"]


class Bench:
    def __init__(self, directory: Path) -> None:
        self.frr = FakeFrr(vrf_devices={"red", "blue"})
        self.conf = directory / "frr.conf"
        self.applier = Applier(self.frr, self.conf, group="no-such-group")

    async def apply(self, desired: DesiredState) -> FrrOutcome:
        return await self.apply_unless(desired, lambda: False)

    async def apply_unless(self, desired: DesiredState, superseded: Callable[[], bool]) -> FrrOutcome:
        return await self.applier.apply(desired, render(desired, hostname=HOSTNAME), superseded)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_new_configuration_is_checked_loaded_verified_and_becomes_the_boot_file(
    bench: Bench, autojump_clock: Clock
) -> None:
    outcome = await bench.apply(BASIC)
    assert (outcome.applied, outcome.changed, outcome.failures) == (True, True, ())
    assert len(bench.frr.sent) == 1
    assert bench.conf.read_text() == render(BASIC, hostname=HOSTNAME).text


async def test_the_same_configuration_again_costs_one_reading(bench: Bench, autojump_clock: Clock) -> None:
    await bench.apply(BASIC)
    bench.frr.calls.clear()
    outcome = await bench.apply(BASIC)
    assert (outcome.applied, outcome.changed) == (True, False)
    assert bench.frr.calls == ["wait_ready", "running"]


async def test_of_a_change_only_changed_sections_of_a_new_form_are_checked_and_only_changed_ones_sent(
    bench: Bench, autojump_clock: Clock
) -> None:
    red, blue = l3vni(), l3vni("blue", 200)
    green = l3vni("green", 300, import_rts=("64514:300",))
    before, after = state(underlay=underlay(), l3vnis=(red,)), state(underlay=underlay(), l3vnis=(red, blue))
    await bench.apply(before)
    bench.frr.checked.clear()
    bench.frr.sent.clear()
    assert (await bench.apply(after)).applied
    # It differs from the first one in its values only.
    assert bench.frr.checked == []
    assert {path[0] for path, _ in parse(bench.frr.sent[0])} == {"vrf blue", "router bgp 64514 vrf blue"}
    more = replace(after, l3vnis=(red, blue, green))
    assert (await bench.apply(more)).applied
    [instance] = [one.text for one in render(more, hostname=HOSTNAME).sections if "route-target" in one.text]
    assert bench.frr.checked == [instance]
    assert (await bench.apply(before)).applied
    assert len(bench.frr.checked) == 1
    bench.applier.forget()
    assert (await bench.apply(after)).applied
    assert len(bench.frr.checked) == 2


async def test_one_more_network_costs_frr_the_same_among_few_and_among_many(
    tmp_path: Path, autojump_clock: Clock
) -> None:
    costs = []
    for count in (2, 40):
        (tmp_path / str(count)).mkdir()
        bench = Bench(tmp_path / str(count))
        more = state(underlay=underlay(), l3vnis=tuple(l3vni(f"t{one}", 100 + one) for one in range(count + 1)))
        assert (await bench.apply(replace(more, l3vnis=more.l3vnis[:-1]))).applied
        bench.frr.calls.clear()
        bench.frr.sent.clear()
        assert (await bench.apply(more)).applied
        costs.append((bench.frr.calls, [len(text.splitlines()) for text in bench.frr.sent]))
    assert costs[0] == costs[1]
    assert costs[0][0] == ["wait_ready", "running", "send", "running"]


async def test_a_value_that_frr_refuses_fails_its_network_although_its_form_was_checked(
    bench: Bench, autojump_clock: Clock
) -> None:
    red, blue = l3vni(export_rts=("64514:1",)), l3vni("blue", 200, export_rts=("64514:2",))
    assert (await bench.apply(state(underlay=underlay(), l3vnis=(red,)))).applied
    bench.frr.checked.clear()
    bench.frr.refuses = {"route-target export 64514:2"}
    outcome = await bench.apply(state(underlay=underlay(), l3vnis=(red, blue)))
    assert bench.frr.checked == []
    assert (outcome.applied, [one.resource for one in outcome.failures]) == (True, [blue.resource])
    assert "vni 200" in bench.frr.text


async def test_a_configuration_that_runs_already_only_gets_its_boot_file(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.text = render(BASIC, hostname=HOSTNAME).text
    outcome = await bench.apply(BASIC)
    assert (outcome.applied, outcome.changed) == (True, True)
    assert bench.frr.writes == 0
    assert bench.conf.exists()


async def test_an_frr_that_does_not_take_the_configuration_fails_and_keeps_the_old_boot_file(
    bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(BASIC)
    old = bench.conf.read_text()
    bench.frr.ignores_commands = True
    outcome = await bench.apply(CASES["log_debug"])
    assert not outcome.applied
    assert "- router bgp 64514 vrf red" in outcome.error
    assert bench.conf.read_text() == old


async def test_a_text_that_the_dry_run_refuses_never_reaches_frr(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.dry_refusals = {"advertise-all-vni"}
    outcome = await bench.apply(BASIC)
    assert not outcome.applied
    assert "advertise-all-vni" in outcome.error
    assert bench.frr.writes == 0
    assert not bench.conf.exists()


async def test_an_unreachable_frr_is_an_outcome(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.unreachable = "FRR does not answer: connection refused"
    outcome = await bench.apply(BASIC)
    assert (outcome.applied, outcome.error) == (False, "FRR does not answer: connection refused")


async def test_a_boot_file_that_cannot_be_written_is_an_outcome(
    tmp_path: Path, bench: Bench, autojump_clock: Clock
) -> None:
    applier = Applier(bench.frr, tmp_path / "missing" / "frr.conf")
    outcome = await applier.apply(BASIC, render(BASIC, hostname=HOSTNAME))
    assert not outcome.applied
    assert "cannot write" in outcome.error


async def test_removals_precede_additions_in_their_order(bench: Bench, autojump_clock: Clock) -> None:
    await bench.apply(CASES["two_l3vnis"])
    bench.frr.calls.clear()
    spare = raw("spare", "route-map spare permit 1\nexit")
    outcome = await bench.apply(replace(BASIC, raw_frr=(spare,)))
    assert outcome.applied, outcome.error
    assert bench.frr.sent[1:] == [
        "vrf blue\nno vni 200\nexit-vrf\n",
        "no router bgp 64520 vrf blue\n",
        "route-map spare permit 1\nexit\n",
    ]


async def test_what_a_snippet_says_about_one_direction_does_not_stop_a_policy_for_the_other(
    bench: Bench, autojump_clock: Clock
) -> None:
    snippet = raw(
        "mine",
        "router bgp 64514 vrf red\n address-family ipv4 unicast\n"
        "  neighbor 172.27.10.2 route-map mine out\n exit-address-family\nexit\nroute-map mine permit 1\nexit",
    )
    before = replace(BASIC, raw_frr=(snippet,))
    await bench.apply(before)
    assert "neighbor 172.27.10.2 route-map allowall in" in bench.frr.text
    assert RED.session is not None
    guarded = replace(RED, session=replace(RED.session, allowed_prefixes=(ip_network("10.0.0.0/8"),)))
    outcome = await bench.apply(replace(before, l3vnis=(guarded,)))
    assert (outcome.applied, outcome.failures) == (True, ())
    assert "neighbor 172.27.10.2 route-map allowed-in-red in" in bench.frr.text
    assert "neighbor 172.27.10.2 route-map allowall in" not in bench.frr.text
    assert "neighbor 172.27.10.2 route-map mine out" in bench.frr.text


GOOD = raw("good", "ip prefix-list fine seq 5 permit any")
BAD = raw("bad", "florp")


async def test_a_refused_snippet_is_left_out_named_and_checked_only_once(bench: Bench, autojump_clock: Clock) -> None:
    desired = state(underlay=underlay(), raw_frr=(BAD, GOOD))
    outcome = await bench.apply(desired)
    assert outcome.applied
    assert [(failure.resource, failure.reason, failure.origin) for failure in outcome.failures] == [
        (BAD.resource, Reason.FRR_CONFIGURATION_FAILED, BAD.origin)
    ]
    assert "prefix-list fine" in bench.conf.read_text()
    assert "florp" not in bench.conf.read_text()
    bench.frr.calls.clear()
    again = await bench.apply(desired)
    assert again.failures == outcome.failures
    assert bench.frr.calls == ["wait_ready", "running"]


async def test_a_snippet_shown_in_other_words_is_reported_once_and_does_not_cause_reloads(
    bench: Bench, autojump_clock: Clock
) -> None:
    desired = state(underlay=underlay(), raw_frr=(raw("loose", "ip prefix-list x permit any"),))
    outcome = await bench.apply(desired)
    assert outcome.applied
    assert "seq 5" in outcome.failures[0].message
    bench.frr.calls.clear()
    assert (await bench.apply(desired)).applied
    assert bench.frr.writes == 0


async def test_a_snippet_that_breaks_what_is_generated_is_left_out_and_the_rest_applied(
    bench: Bench, autojump_clock: Clock
) -> None:
    snippet = raw("breaker", "log facility local0")
    desired = state(underlay=underlay(), raw_frr=(snippet,))
    bench.frr.rewrites = {"log facility local0": "log record-priority"}
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    assert outcome.failures[0].resource == snippet.resource
    assert "log record-priority" not in bench.frr.text
    bench.frr.calls.clear()
    assert (await bench.apply(desired)).failures
    assert bench.frr.writes == 0


async def test_a_changed_snippet_gets_a_new_chance(bench: Bench, autojump_clock: Clock) -> None:
    await bench.apply(state(raw_frr=(BAD,)))
    outcome = await bench.apply(state(raw_frr=(raw("bad", "ip prefix-list fine seq 5 permit any"),)))
    assert outcome.applied
    assert not outcome.failures


async def test_two_applications_never_overlap(bench: Bench, autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.apply, BASIC)
        nursery.start_soon(bench.apply, CASES["two_l3vnis"])
    assert bench.frr.most_writers == 1


async def test_an_empty_vrf_left_behind_is_removed_once_its_device_is_gone(bench: Bench, autojump_clock: Clock) -> None:
    await bench.apply(BASIC)
    bench.frr.edit("vrf gone\nexit-vrf\nvrf alive\nexit-vrf\n")
    bench.frr.vrf_devices = {"gone", "alive"}
    sent = len(bench.frr.sent)
    await bench.apply(BASIC)
    assert bench.frr.sent[sent:] == []
    bench.frr.vrf_devices = {"alive"}
    await bench.apply(BASIC)
    assert bench.frr.sent[sent:] == ["no vrf gone\n"]


async def test_no_outcome_shows_a_password(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.ignores_commands = True
    outcome = await bench.apply(state(underlay=underlay(neighbor(password=Secret("topsecret")))))
    assert not outcome.applied
    assert "topsecret" not in repr(outcome)
