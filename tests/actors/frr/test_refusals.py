"""What FRR refuses fails its resource and nothing else, is tried again with growing pauses, and comes back."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock as Clock

from actors.frr.apply import Applier, SupersededError
from actors.frr.diff.difference import Difference, Entry, Intent
from actors.frr.refusals import LONGEST_PAUSE, LONGEST_PAUSE_LOCKED, Attempt, Refusals, RunningConfiguration, vital
from actors.frr.render.render import RenderedConfig, Section, render
from config.desired import Bfd, DesiredL3VNI, DesiredState
from config.problems import ResourceId
from tests.fakes.frr import REFUSED

from .cases import HOSTNAME, PASSTHROUGH, RED, l2vni, l3vni, neighbor, raw, session, state, underlay
from .test_apply import Bench

pytestmark = pytest.mark.usefixtures("no_threads")
GREEN = l3vni("green", 300, session(("172.27.12.1/24", "172.27.12.2/24")))
SNIPPET = raw("mine", "route-map mine permit 10\n match metric 7\nexit")
EVERYTHING = state(
    log_level="debug",
    underlay=underlay(neighbor(hold_time=9, keepalive_time=3), neighbor("192.168.12.2", bfd=Bfd(100))),
    l3vnis=(replace(RED, export_rts=("64512:1",)), GREEN),
    passthrough=replace(PASSTHROUGH, session=session(("172.27.20.1/24", "172.27.20.2/24"))),
    raw_frr=(SNIPPET,),
)
#: A line of each kind of resource, with what is shown of the resource's other lines.
REFUSED_LINES: dict[str, tuple[str, ResourceId | str, str]] = {
    "a route target": ("route-target export 64512:1", RED.resource, "router bgp 64514 vrf red"),
    "a VNI": ("vni 100", RED.resource, "router bgp 64514 vrf red"),
    "a tenant's instance": ("router bgp 64514 vrf red", RED.resource, "vni 100"),
    "a host session": ("neighbor 172.27.10.2 remote-as 64515", RED.resource, "vni 100"),
    "a fabric neighbour's timers": ("neighbor 192.168.11.2 timers 3 9", "underlay", "neighbor 192.168.11.2 remote-as"),
    "a fabric neighbour": ("neighbor 192.168.12.2 remote-as 64512", "underlay", "neighbor 192.168.11.2 remote-as"),
    "a BFD profile": ("receive-interval 100", "underlay", "profile neighbor-192.168.12.2"),
    "a line of the log": ("log timestamp precision 3", "underlay", "log syslog"),
    "a passthrough": ("network 172.27.20.2/32", "pt", "neighbor 172.27.20.2 remote-as"),
    "a snippet": ("match metric 7", SNIPPET.resource, ""),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.frr.vrf_devices = {"red", "green"}
    return bench


def named(resource: ResourceId | str) -> str:
    return resource if isinstance(resource, str) else resource.name


@pytest.mark.parametrize("dry", [False, True], ids=["daemon", "dry run"])
@pytest.mark.parametrize("name", REFUSED_LINES)
async def test_a_refused_line_fails_its_resource_and_everything_else_is_in_force(
    name: str, dry: bool, bench: Bench, autojump_clock: Clock
) -> None:
    line, resource, others = REFUSED_LINES[name]
    setattr(bench.frr, "dry_refusals" if dry else "refuses", {line})
    outcome = await bench.apply(EVERYTHING)
    assert outcome.applied, outcome.error
    assert [failure.resource.name for failure in outcome.failures] == [named(resource)]
    assert line.split(" 3 9")[0] in outcome.failures[0].message
    if not (dry and re.match("router bgp", line)):
        assert others in bench.frr.text
    for kept in ("router bgp 64514 vrf green", "vni 300", "advertise-all-vni", "neighbor 192.168.11.2 activate"):
        assert kept in bench.frr.text
    bench.frr.calls.clear()
    assert (await bench.apply(EVERYTHING)).failures == outcome.failures
    assert bench.frr.calls == ["wait_ready", "running"]


@pytest.mark.parametrize("line", ["router bgp 64514", "advertise-all-vni"])
@pytest.mark.parametrize("dry", [False, True], ids=["daemon", "dry run"])
async def test_without_bgp_or_evpn_the_kernel_waits(line: str, dry: bool, bench: Bench, autojump_clock: Clock) -> None:
    setattr(bench.frr, "dry_refusals" if dry else "refuses", {line})
    outcome = await bench.apply(EVERYTHING)
    assert not outcome.applied
    assert line in outcome.error
    assert not bench.conf.exists()


@pytest.mark.parametrize("line", ["no router bgp 64514 vrf green", "no vni 300"])
async def test_what_frr_keeps_of_a_removed_network_holds_the_kernel_back(
    line: str, bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.refuses = {line}
    outcome = await bench.apply(replace(EVERYTHING, l3vnis=EVERYTHING.l3vnis[:1]))
    assert not outcome.applied
    assert line.removeprefix("no ") in outcome.error


async def test_a_new_network_is_made_although_another_one_is_refused(bench: Bench, autojump_clock: Clock) -> None:
    red = state(underlay=underlay(), l3vnis=(RED,))
    assert not (await bench.apply(red)).failures
    refused = replace(RED, export_rts=("64514:100",))
    bench.frr.refuses = {"route-target export 64514:100"}
    assert (await bench.apply(replace(red, l3vnis=(refused,)))).applied
    outcome = await bench.apply(replace(red, l3vnis=(refused, GREEN)))
    assert outcome.applied
    [failure] = outcome.failures
    assert failure.resource == RED.resource
    assert "FRR 10.3 does not show" in failure.message
    assert REFUSED in failure.message
    assert "router bgp 64514 vrf green" in bench.frr.text
    assert "router bgp 64514 vrf red" in bench.frr.text
    assert "router bgp 64514 vrf green" in bench.conf.read_text()
    fixed = await bench.apply(replace(red, l3vnis=(replace(RED, export_rts=("64514:7",)), GREEN)))
    assert (fixed.applied, fixed.failures) == (True, ())
    assert "route-target export 64514:7" in bench.frr.text


async def attempts(bench: Bench, desired: DesiredState, seconds: float) -> list[float]:
    """Return when, within some time of frequent passes, FRR was written to."""
    began, times = trio.current_time(), []
    while trio.current_time() < began + seconds:
        writes = bench.frr.writes
        started = trio.current_time()
        await bench.apply(desired)
        if bench.frr.writes > writes:
            times.append(started - began)
        await trio.sleep(20)
    return times


@pytest.mark.parametrize("line", ["route-target export 64512:1", "advertise-all-vni", "match metric 7"])
async def test_the_pauses_between_attempts_grow(line: str, bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.refuses = {line}
    times = await attempts(bench, EVERYTHING, 1500)
    # Whole seconds: the time that the attempts take themselves does not count.
    pauses = [round(after - before) for before, after in pairwise(times)]
    assert 5 < len(times) < 12
    assert pauses[:5] == sorted(pauses[:5])
    assert LONGEST_PAUSE <= max(pauses) < LONGEST_PAUSE + 40
    bench.frr.refuses = set()
    await trio.sleep(LONGEST_PAUSE + 1)
    outcome = await bench.apply(EVERYTHING)
    assert (outcome.applied, outcome.failures) == (True, ())
    assert line in bench.frr.text
    assert line in bench.conf.read_text()
    assert not await attempts(bench, EVERYTHING, 60)


@pytest.mark.parametrize("refused", ["refuses", "dry_refusals"])
async def test_another_frr_gets_a_new_attempt_at_once(refused: str, bench: Bench, autojump_clock: Clock) -> None:
    setattr(bench.frr, refused, {"match metric 7", "route-target export 64512:1"})
    await attempts(bench, EVERYTHING, 300)
    setattr(bench.frr, refused, set())
    assert len((await bench.apply(EVERYTHING)).failures) == 2
    bench.applier.refusals.forget()
    assert not (await bench.apply(EVERYTHING)).failures


async def test_what_waited_for_an_operator_comes_soon_after_the_end_of_configuration_mode(
    bench: Bench, autojump_clock: Clock
) -> None:
    bench.frr.locked = True
    times = await attempts(bench, EVERYTHING, 1500)
    pauses = [after - before for before, after in pairwise(times)]
    assert LONGEST_PAUSE_LOCKED <= max(pauses) < LONGEST_PAUSE_LOCKED + 40
    bench.frr.locked = False
    await trio.sleep(LONGEST_PAUSE_LOCKED)
    outcome = await bench.apply(EVERYTHING)
    assert (outcome.applied, outcome.failures) == (True, ())
    # What is to be removed waits as well.
    bench.frr.locked = True
    without = replace(EVERYTHING, l3vnis=EVERYTHING.l3vnis[:1])
    await attempts(bench, without, 1500)
    assert "vni 300" in bench.frr.text
    bench.frr.locked = False
    await trio.sleep(LONGEST_PAUSE_LOCKED)
    assert (await bench.apply(without)).applied
    assert "vni 300" not in bench.frr.text


async def test_a_snippet_that_an_operator_removes_stays_in_the_boot_file_while_mgmtd_is_locked(
    bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.edit("no route-map mine permit 10")
    bench.frr.locked = True
    await attempts(bench, EVERYTHING, 1500)
    assert "match metric 7" not in bench.frr.text
    assert "match metric 7" in bench.conf.read_text()
    bench.frr.locked = False
    await trio.sleep(LONGEST_PAUSE_LOCKED)
    assert not (await bench.apply(EVERYTHING)).failures
    assert "match metric 7" in bench.frr.text


async def test_a_line_that_is_refused_for_weeks_is_still_tried_again(autojump_clock: Clock) -> None:
    line: Entry = ((), "log syslog")
    found = Difference(missing=(line,))
    seen = RunningConfiguration("", frozenset(), Intent(frozenset({line})), found, found)
    refusals = Refusals()
    for _ in range(2000):
        refusals.hold_lines(Attempt(seen))
    assert refusals.seconds_to_attempt() == LONGEST_PAUSE


async def test_a_snippet_comes_back_once_frr_recovers_and_stays_in_the_boot_file(
    bench: Bench, autojump_clock: Clock
) -> None:
    without = replace(EVERYTHING, raw_frr=())
    await bench.apply(without)
    await bench.apply(EVERYTHING)
    # bgpd loses everything and takes nothing for a while.
    bench.frr.text = "hostname x\n"
    bench.frr.ignores_commands = True
    for _ in range(20):
        assert not (await bench.apply(EVERYTHING)).applied
        assert "match metric 7" in bench.conf.read_text()
        await trio.sleep(20)
    bench.frr.ignores_commands = False
    await trio.sleep(LONGEST_PAUSE)
    assert not (await bench.apply(EVERYTHING)).failures
    assert "match metric 7" in bench.frr.text
    assert "match metric 7" in bench.conf.read_text()


async def test_a_snippets_plainly_missing_line_is_never_tolerated_for_good(bench: Bench, autojump_clock: Clock) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.edit("no route-map mine permit 10\n")
    assert not (await bench.apply(EVERYTHING)).failures
    assert "match metric 7" in bench.frr.text


async def test_a_refused_snippet_stays_in_the_boot_file_until_that_is_certain(
    bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.refuses = {"match metric 7"}
    bench.frr.edit("no route-map mine permit 10\n")
    kept = []
    for _ in range(10):
        outcome = await bench.apply(EVERYTHING)
        assert [failure.resource for failure in outcome.failures] == [SNIPPET.resource]
        kept.append("match metric 7" in bench.conf.read_text())
        await trio.sleep(5)
    assert kept[:2] == [True, True]
    assert kept == sorted(kept, reverse=True)
    assert not kept[-1]


async def test_a_line_that_a_newer_frr_shows_differently_holds_nothing_up(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.rewrites = {"neighbor 192.168.11.2 timers 3 9": "neighbor 192.168.11.2 timers keepalive 3 hold 9"}
    outcome = await bench.apply(EVERYTHING)
    assert outcome.applied
    assert "shows 'router bgp 64514 / neighbor 192.168.11.2 timers keepalive 3 hold 9'" in outcome.failures[0].message
    assert "timers 3 9" in bench.conf.read_text()
    assert not await attempts(bench, EVERYTHING, 300)
    edited = "router bgp 64514\n neighbor 192.168.11.2 timers 5 15\nexit\n"
    bench.frr.edit(edited)
    await bench.apply(EVERYTHING)
    assert "timers 5 15" not in bench.frr.text


async def test_an_old_value_that_frr_keeps_is_not_another_form_of_the_new_one(
    bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.ignores_commands = True
    changed = replace(EVERYTHING, log_level="warn")
    assert (await bench.apply(changed)).failures
    bench.frr.ignores_commands = False
    await trio.sleep(10)
    assert not (await bench.apply(changed)).failures


async def test_a_newer_state_ends_the_rounds_of_one_that_does_not_succeed(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.refuses = {"vni 100"}
    pending = False

    def superseded() -> bool:
        return pending

    async def first(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(SupersededError), trio.fail_after(2):
            await bench.apply_unless(EVERYTHING, superseded)

    async with trio.open_nursery() as nursery:
        await nursery.start(first)
        await trio.sleep(0.15)
        pending = True
    assert bench.frr.writers == 0
    pending = False
    assert (await bench.apply(state(underlay=underlay()))).applied


async def test_a_state_that_succeeds_is_reported_although_a_newer_one_waits(
    bench: Bench, autojump_clock: Clock
) -> None:
    assert (await bench.apply_unless(EVERYTHING, lambda: True)).applied


async def test_frrs_own_words_go_with_the_line_that_they_stand_for(bench: Bench, autojump_clock: Clock) -> None:
    bench.frr.rewrites = {"route-target export 64512:1": "route-target export 64512:9"}
    assert (await bench.apply(EVERYTHING)).failures
    red, green = EVERYTHING.l3vnis
    for targets in (("64512:2",), ()):
        changed = replace(EVERYTHING, l3vnis=(replace(red, export_rts=targets), green))
        assert not (await bench.apply(changed)).failures
        assert "64512:9" not in bench.frr.text


LOOSE = raw("loose", "ip prefix-list p permit 10.0.0.0/8")


async def waited(bench: Bench, desired: DesiredState) -> None:
    """Let a state come while mgmtd is locked, and pass the time until the next attempt at it without the lock."""
    bench.frr.locked = True
    await bench.apply(desired)
    bench.frr.locked = False
    await trio.sleep(LONGEST_PAUSE_LOCKED + 1)


async def test_a_snippet_that_frr_takes_late_in_its_own_words_is_not_due_indefinitely(
    bench: Bench, autojump_clock: Clock
) -> None:
    desired = replace(EVERYTHING, raw_frr=(LOOSE,))
    await waited(bench, desired)
    await bench.apply(desired)
    assert "ip prefix-list p seq 5 permit 10.0.0.0/8" in bench.frr.text
    assert bench.applier.refusals.seconds_to_attempt() == math.inf


async def test_nor_is_one_whose_lines_another_snippet_has_as_well(bench: Bench, autojump_clock: Clock) -> None:
    await waited(bench, EVERYTHING)
    more = replace(EVERYTHING, raw_frr=(SNIPPET, raw("more", f"{SNIPPET.text}\nip prefix-list q seq 5 permit any", 10)))
    await bench.apply(more)
    assert "match metric 7" in bench.frr.text
    assert bench.applier.refusals.seconds_to_attempt() == math.inf


@pytest.mark.parametrize(
    ("edit", "strange"), [
        ("no match metric 7\n match metric 8", "match metric 8"), ("set local-preference 500", "local-preference 500"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reload", [False, True])
async def test_what_an_operator_changes_in_a_snippets_lines_is_changed_back(
    edit: str, strange: str, reload: bool, bench: Bench, autojump_clock: Clock
) -> None:
    await bench.apply(EVERYTHING)
    bench.frr.edit(f"route-map mine permit 10\n {edit}\nexit\n")
    assert strange in bench.frr.text
    if reload:
        bench.applier.forget()
    assert not (await bench.apply(EVERYTHING)).failures
    assert strange not in bench.frr.text
    assert "match metric 7" in bench.frr.text


@pytest.mark.parametrize("event", ["a reload", "the daemon's restart", "FRR's restart"])
async def test_frrs_own_words_for_a_snippet_need_no_attempt_after_a_restart_or_reload(
    event: str, bench: Bench, autojump_clock: Clock
) -> None:
    desired = replace(EVERYTHING, raw_frr=(LOOSE,))
    await bench.apply(desired)
    writes = bench.frr.writes
    if event == "the daemon's restart":
        bench.applier = Applier(bench.frr, bench.conf, group="no-such-group")
    else:
        bench.applier.forget(restarted="FRR" in event)
    assert (await bench.apply(desired)).applied
    assert bench.frr.writes == writes


@pytest.mark.parametrize("locked", [True, False])
async def test_a_line_that_leaves_a_snippet_goes_from_frr_once_that_lets_it_go(
    locked: bool, bench: Bench, autojump_clock: Clock
) -> None:
    longer = replace(EVERYTHING, raw_frr=(raw("mine", SNIPPET.text.replace("exit", " set metric 5\nexit")),))
    await bench.apply(longer)
    bench.frr.locked, bench.frr.refuses = locked, set() if locked else {"no set metric 5"}
    await bench.apply(EVERYTHING)
    assert "set metric 5" in bench.frr.text
    bench.frr.locked, bench.frr.refuses = False, set()
    await trio.sleep(LONGEST_PAUSE_LOCKED)
    assert (await bench.apply(EVERYTHING)).applied
    assert "set metric 5" not in bench.frr.text


def allowing(tenant: DesiredL3VNI, *prefixes: str) -> DesiredL3VNI:
    assert tenant.session is not None
    return replace(tenant, session=replace(tenant.session, allowed_prefixes=tuple(map(ip_network, prefixes))))


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (allowing(RED, "10.0.0.0/8"), "ip prefix-list allowed-in-red seq 10 permit 10.1.0.0/16 le 32"),
        (allowing(RED, "10.0.0.0/8"), "route-map allowed-in-red permit 2"),
        (RED, "ip prefix-list allowed-in-red seq 10 permit 10.1.0.0/16 le 32"),
        (RED, "route-map allowed-in-red permit 1"),
    ],
)
async def test_what_frr_keeps_of_a_tenant_s_policy_is_no_other_one_s_failure(
    after: DesiredL3VNI, kept: str, bench: Bench, autojump_clock: Clock
) -> None:
    green = allowing(GREEN, "10.2.0.0/16")
    before = allowing(RED, "10.0.0.0/8", "10.1.0.0/16", "2001:db8::/48")
    assert (await bench.apply(replace(EVERYTHING, l3vnis=(before, green)))).applied
    bench.frr.refuses = {f"no {kept}"}
    outcome = await bench.apply(replace(EVERYTHING, l3vnis=(after, green)))
    assert outcome.applied
    assert [failure.resource for failure in outcome.failures] == ([] if after is RED else [RED.resource])
    assert kept in (outcome.error if after is RED else outcome.failures[0].message)


def test_a_vni_that_an_operator_gives_the_default_vrf_is_not_vital() -> None:
    """FRR shows it outside of all contexts."""
    entry: Entry = ((), "vni 7")
    found = Difference(extra=(entry,))
    assert not vital(RunningConfiguration("", frozenset({entry}), Intent(frozenset()), found, found))


def test_what_frr_keeps_in_a_context_is_the_failure_of_what_opens_it() -> None:
    bgp, evpn = "router bgp 64514", "address-family l2vpn evpn"
    segment, node = l2vni(), underlay()
    vni: Entry = ((bgp, evpn, "vni 210"), "vni 210")
    sections = {vni: Section(segment, ""), ((bgp,), bgp): Section(node, "")}
    for kept, source in (("neighbor 10.0.0.9 remote-as 9", node), ("rd 1:1", segment)):
        path = vni[0] if source is segment else (bgp,)
        found = Difference(extra=((path, kept),))
        seen = RunningConfiguration("", frozenset(), Intent(frozenset(sections), sections=sections), found, found)
        [failure] = Refusals().failures(RenderedConfig((Section(node, ""),)), seen)
        assert failure.resource == source.resource


NEGATION = raw("negation", "router bgp 64514\n no bgp suppress-duplicates\nexit")


async def test_a_negation_that_was_sent_while_mgmtd_was_locked_is_sent_again(bench: Bench) -> None:
    """FRR shows neither it nor that it is missing."""
    line = "no ip nht resolve-via-default"
    await bench.apply(replace(EVERYTHING, raw_frr=(SNIPPET,)))
    desired = replace(EVERYTHING, raw_frr=(SNIPPET, raw("negation", line)))
    bench.frr.locked = True
    await bench.apply(desired)
    bench.frr.locked = False
    bench.frr.sent.clear()
    await bench.apply(desired)
    assert any(line in text for text in bench.frr.sent)
    bench.frr.sent.clear()
    await bench.apply(desired)
    assert not any(line in text for text in bench.frr.sent)


@pytest.mark.parametrize("misses", ["a snippet", "a withdrawn VNI"])
async def test_negations_are_sent_once_although_the_boot_file_cannot_have_them(
    misses: str, bench: Bench, autojump_clock: Clock
) -> None:
    """FRR shows the negation of a default nowhere."""
    desired = replace(EVERYTHING, raw_frr=(SNIPPET, NEGATION))
    rendered = whole = render(desired, hostname=HOSTNAME)
    if misses == "a snippet":
        # While a generated line is missing too, the snippet may not be to blame.
        bench.frr.refuses = {"match metric 7", "route-target export 64512:1"}
        then = None
    else:
        rendered, then = render(desired, hostname=HOSTNAME, withdrawn={100}), whole
    await bench.applier.apply(desired, rendered, then=then)
    while bench.applier.refusals.seconds_to_attempt() < 1:
        await bench.applier.apply(desired, rendered, then=then)
    assert "no bgp suppress-duplicates\n" in "".join(bench.frr.sent)
    assert not bench.conf.exists()
    writes = bench.frr.writes
    assert not (await bench.applier.apply(desired, rendered, then=then)).changed
    assert await bench.applier.is_unchanged(rendered)
    assert bench.frr.writes == writes
    bench.applier.forget(restarted=True)
    await bench.applier.apply(desired, rendered, then=then)
    assert bench.frr.writes > writes


async def test_a_snippet_that_no_frr_would_read_does_not_hold_the_boot_file_back(
    bench: Bench, autojump_clock: Clock
) -> None:
    bench.frr.refuses = {"route-target export 64512:1"}
    outcome = await bench.apply(replace(EVERYTHING, raw_frr=(raw("bad", "florp"),)))
    assert len(outcome.failures) == 2
    assert "vni 300" in bench.conf.read_text()
