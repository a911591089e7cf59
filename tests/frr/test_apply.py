"""Applying against real FRR: additions, changes, ordered removals, bad snippets, hanging and dying daemons."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.frr import mgmtd_recovery, refusals
from actors.frr.apply import Applier
from actors.frr.diff.difference import difference, intended, lacking, parse
from actors.frr.driver import VtyshDriver
from actors.frr.mgmtd_recovery import MgmtdRecovery
from actors.frr.render.render import RenderedConfig, render
from actors.lib.frr.frr_lock import holders
from actors.lib.frr.processes import NativeProcesses
from actors.lib.frr.vtysh import Vtysh
from actors.lib.network_namespace import NAMESPACES
from config.desired import DesiredState, Secret
from config.outcomes import FrrOutcome
from config.problems import Reason
from config.settings import Settings
from supervisor.process.subprocesses import CommandTimeout
from tests.actors.frr.cases import CASES, DUAL, RED, l3vni, neighbor, raw, state, underlay

from .conftest import settings_for
from .harness import LOCKED, RUN, FrrInstance, eventually, is_alive, sh

HOST = "node1"
BASIC = CASES["basic"]


class Bench:
    """An applier with its FRR, and shorthand for what tests look at."""

    def __init__(self, frr: FrrInstance, settings: Settings) -> None:
        self.frr = frr
        self.driver = VtyshDriver(settings)
        self.applier = Applier(self.driver, frr.conf)

    async def apply(self, desired: DesiredState) -> FrrOutcome:
        return await self.applier.apply(desired, self.rendered(desired))

    def rendered(self, desired: DesiredState) -> RenderedConfig:
        return render(desired, hostname=HOST)

    async def applied(self, desired: DesiredState) -> FrrOutcome:
        """Apply and insist that FRR runs exactly that, by a reading of our own."""
        outcome = await self.apply(desired)
        assert outcome.applied, outcome.error
        assert not await self.leftover(desired)
        return outcome

    async def leftover(self, desired: DesiredState) -> str:
        intent = intended(render(desired, hostname=HOST))
        text = await self.driver.running()
        return str(difference(intent, parse(text), lacking(text)))


def native(frr: FrrInstance) -> NativeProcesses:
    return NativeProcesses(RUN / frr.name, frr.name, NAMESPACES / frr.name)


@pytest.fixture
def bench(frr: FrrInstance, settings: Settings) -> Bench:
    return Bench(frr, settings)


async def test_the_first_apply_configures_frr_and_the_file_it_boots_with(bench: Bench) -> None:
    outcome = await bench.applied(BASIC)
    assert outcome.changed
    assert not outcome.failures
    assert bench.frr.conf.read_text() == render(BASIC, hostname=HOST).text
    assert bench.frr.conf.stat().st_mode & 0o7777 == 0o640
    assert (bench.frr.conf.owner(), bench.frr.conf.group()) == ("root", "frr")


async def test_applying_what_runs_already_writes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.applied(BASIC)
    before = bench.frr.conf.stat()

    async def unexpected(_self: object, text: str) -> str:
        raise AssertionError(f"FRR was written to: {text}")

    monkeypatch.setattr(VtyshDriver, "send", unexpected)
    outcome = await bench.applied(BASIC)
    assert not outcome.changed
    after = bench.frr.conf.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


TWO = state(underlay=underlay(), l3vnis=(RED, l3vni("blue", 200)))
CHANGES = {
    "another VNI": (BASIC, TWO),
    "one VNI fewer": (TWO, BASIC),
    "no VNI any more": (TWO, state(underlay=underlay())),
    "no underlay any more": (TWO, CASES["empty"]),
    "everything from nothing": (CASES["empty"], CASES["several_neighbors"]),
    "the other way round": (CASES["several_neighbors"], CASES["empty"]),
    "a VRF with another VNI": (BASIC, state(underlay=underlay(), l3vnis=(replace(RED, vni=101),))),
    "a session with another family": (BASIC, CASES["dual_stack"]),
    "a session that goes": (CASES["dual_stack"], CASES["l3vni_without_session"]),
    "a VRF instance with another ASN": (BASIC, state(underlay=underlay(), l3vnis=(replace(RED, asn=64599),))),
    "an underlay with another ASN": (TWO, state(underlay=underlay(asn=64600), l3vnis=(DUAL,))),
    "route targets that change": (CASES["asn_route_targets"], CASES["ip_route_targets"]),
    "another router id": (BASIC, state(underlay=underlay(router_id=BASIC.underlay.router_id + 1), l3vnis=(RED,))),  # type: ignore[union-attr]
    "a further neighbour": (
        BASIC,
        state(underlay=underlay(neighbor(), neighbor(endpoint="192.168.12.2")), l3vnis=(RED,)),
    ),
    "a neighbour of another AS": (BASIC, state(underlay=underlay(neighbor(remote_as=64999)), l3vnis=(RED,))),
    "a listen range for an address": (BASIC, CASES["listen_range"]),
    "an address for a listen range": (CASES["listen_range"], BASIC),
    "an interface for an address": (CASES["timers_port_password"], CASES["unnumbered"]),
    "BFD off": (CASES["bfd_profile"], BASIC),
    "another BFD profile": (CASES["bfd_profile"], CASES["bfd_passive"]),
    "graceful restart off": (CASES["graceful_restart_timers"], BASIC),
    "timers and password gone": (CASES["timers_port_password"], BASIC),
    "debugging off": (CASES["log_debug"], BASIC),
    "a raw snippet that goes": (CASES["raw"], BASIC),
    "a passthrough that goes": (CASES["passthrough_dual"], CASES["no_vnis"]),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_leads_to_exactly_the_new_configuration(
    name: str, shared_frr: FrrInstance, tmp_path: Path
) -> None:
    bench = Bench(shared_frr, settings_for(shared_frr.name, tmp_path))
    before, after = CHANGES[name]
    await bench.applied(before)
    outcome = await bench.applied(after)
    assert outcome.changed
    assert bench.frr.conf.read_text() == render(after, hostname=HOST).text


async def test_a_removed_vrf_leaves_no_empty_stanza_once_nothing_refers_to_it(bench: Bench) -> None:
    await bench.applied(TWO)
    await bench.applied(BASIC)
    # FRR's daemons forget a VRF one after the other; each audit looks again.
    with trio.fail_after(60):
        while "vrf blue" in await bench.driver.running():
            await bench.applied(BASIC)
    assert "vrf blue" not in await bench.driver.running()


async def test_a_password_is_never_on_a_command_line(frr: FrrInstance, settings: Settings, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    spy = tmp_path / "vtysh"
    spy.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec /usr/bin/vtysh "$@"\n')
    spy.chmod(0o755)
    bench = Bench(frr, settings.model_copy(update={"vtysh": spy}))
    await bench.applied(state(underlay=underlay(neighbor(password=Secret("first-one")))))
    await bench.applied(state(underlay=underlay(neighbor(password=Secret("second-one")))))
    await bench.applied(state(underlay=underlay()))
    await bench.applied(state(underlay=underlay(neighbor(password=Secret("third-one")))))
    await bench.applied(CASES["empty"])
    assert "-C -f" in calls.read_text()
    assert "-one" not in calls.read_text()


async def test_a_refused_snippet_is_left_out_alone(bench: Bench) -> None:
    bad = raw("bad", "router bgp 64514\n neighbour 1.2.3.4 florp\nexit")
    good = raw("good", "ip prefix-list fine seq 5 permit 10.0.0.0/8")
    desired = state(underlay=underlay(), l3vnis=(RED,), raw_frr=(bad, good))
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    assert [(failure.resource, failure.reason) for failure in outcome.failures] == [
        (bad.resource, Reason.FRR_CONFIGURATION_FAILED)
    ]
    running = await bench.driver.running()
    assert "ip prefix-list fine seq 5 permit 10.0.0.0/8" in running
    assert "florp" not in bench.frr.conf.read_text()
    assert not (await bench.apply(desired)).changed


@pytest.mark.usefixtures("quick_refusals")
async def test_a_snippet_that_only_a_daemon_refuses_is_named_and_the_rest_is_in_force(bench: Bench) -> None:
    conflict = raw("conflict", "router bgp 65000\n neighbor 10.1.1.1 remote-as 65001\nexit")
    desired = state(underlay=underlay(), l3vnis=(RED,), raw_frr=(conflict,))
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    assert [failure.resource for failure in outcome.failures] == [conflict.resource]
    assert "router bgp 65000" in outcome.failures[0].message
    assert "vni 100" in await bench.driver.running()
    again = await bench.apply(desired)
    assert again.applied
    assert not again.changed


@pytest.mark.usefixtures("quick_refusals")
async def test_a_snippet_that_frr_shows_in_other_words_is_reported_and_not_applied_again_and_again(
    bench: Bench,
) -> None:
    desired = state(underlay=underlay(), raw_frr=(raw("loose", "ip prefix-list loose permit 10.0.0.0/8"),))
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    assert "seq 5" in outcome.failures[0].message
    assert not (await bench.apply(desired)).changed
    bench.applier = Applier(bench.driver, bench.frr.conf)
    assert not (await bench.apply(desired)).changed


async def test_a_snippet_may_override_and_negate_what_is_generated(bench: Bench) -> None:
    text = "log syslog errors\nrouter bgp 64514\n no neighbor 192.168.11.2 timers connect 7\nexit"
    desired = state(underlay=underlay(neighbor(connect_time=7)), raw_frr=(raw("mine", text),))
    outcome = await bench.apply(desired)
    assert outcome.applied, outcome.error
    running = await bench.driver.running()
    assert "log syslog errors" in running
    assert "timers connect" not in running
    assert not (await bench.apply(desired)).changed


async def test_manual_edits_are_undone(bench: Bench) -> None:
    await bench.applied(BASIC)
    bench.frr.vtysh("configure", "router bgp 64514", "no neighbor 192.168.11.2", "neighbor 9.9.9.9 remote-as 9")
    assert await bench.leftover(BASIC)
    outcome = await bench.applied(BASIC)
    assert outcome.changed


@pytest.mark.parametrize(
    ("daemon", "line"), [
        ("bgpd", "route-map allowall permit 1"), ("mgmtd", "route-map allowall permit 1"),
        ("bgpd", "ip prefix-list allowed-in-red seq 5"), ("mgmtd", "ip prefix-list allowed-in-red seq 5"),
        ("bgpd", "ipv6 prefix-list allowed-in-red seq 5"), ("bgpd", "route-map allowed-in-red permit 2"),
    ],
)  # fmt: skip
async def test_a_policy_that_one_daemon_lacks_is_sent_again(bench: Bench, daemon: str, line: str) -> None:
    desired = CASES["guarded_host_sessions"]
    await bench.applied(desired)
    found = next(one for one in render(desired, hostname=HOST).text.splitlines() if one.startswith(line))
    sh(f"vtysh -N {bench.frr.name} -d {daemon} -c configure -c 'no {found}'")
    assert found in await bench.driver.running(), "the other daemon has it still"
    outcome = await bench.applied(desired)
    assert outcome.changed
    assert not outcome.failures
    assert not (await bench.apply(desired)).changed


POLICIES = """access-list A seq 5 permit 10.0.0.0/8
ip prefix-list P seq 5 permit 10.0.0.0/8 le 32
ipv6 prefix-list P6 seq 5 permit 2001:db8::/32
route-map M permit 1
 description of both daemons, of one, and of the other
 match interface eth0
 match ip address prefix-list P
 match ip next-hop prefix-list P
 match ipv6 address prefix-list P6
 match metric 5
 match tag 5
 match source-vrf red
 match ip address prefix-len 24
 match source-instance 4
 set community 1:1
 set metric 5
 set src 10.0.0.1
 on-match next
 call allowall
exit
"""


async def test_lines_of_policies_that_one_daemon_alone_takes_are_not_sent_again(bench: Bench) -> None:
    desired = replace(BASIC, raw_frr=(raw("policies", POLICIES),))
    outcome = await bench.applied(desired)
    assert not outcome.failures
    assert not (await bench.apply(desired)).changed
    sh(f"vtysh -N {bench.frr.name} -d bgpd -c configure -c 'no route-map M permit 1'")
    assert (await bench.applied(desired)).changed
    assert not (await bench.apply(desired)).changed


async def test_a_file_that_was_tampered_with_is_restored_without_touching_frr(bench: Bench) -> None:
    await bench.applied(BASIC)
    bench.frr.conf.write_text("router bgp 1\n")
    await bench.applied(BASIC)
    assert bench.frr.conf.read_text() == render(BASIC, hostname=HOST).text


async def test_an_absent_frr_is_an_outcome_and_its_return_is_enough(frr: FrrInstance, bench: Bench) -> None:
    for daemon in ("bfdd", "staticd", "bgpd", "mgmtd", "zebra"):
        frr.kill(daemon)
    outcome = await bench.apply(BASIC)
    assert not outcome.applied
    assert outcome.error == "FRR does not run"
    assert not frr.conf.exists()
    frr.start()
    await bench.applied(BASIC)


async def test_a_missing_daemon_that_the_configuration_uses_is_named(frr: FrrInstance, bench: Bench) -> None:
    frr.kill("bfdd")
    outcome = await bench.apply(CASES["bfd_profile"])
    assert not outcome.applied
    assert "bfdd" in outcome.error


async def test_missing_daemons_that_the_configuration_does_not_use_are_no_obstacle(
    frr: FrrInstance, bench: Bench
) -> None:
    frr.kill("bfdd")
    frr.kill("staticd")
    await bench.applied(BASIC)
    await bench.applied(TWO)
    await bench.applied(CASES["empty"])
    frr.start("bfdd", "staticd")
    assert not (await bench.applied(CASES["empty"])).changed


async def test_a_description_that_sounds_like_an_absent_daemon_is_just_text(bench: Bench) -> None:
    words = "neighbor 192.168.11.2 description bgpd is not running"
    described = replace(BASIC, raw_frr=(raw("words", f"router bgp 64514\n {words}\nexit"),))
    assert not (await bench.applied(described)).failures
    assert words in await bench.driver.running()


@pytest.fixture
def frozen_bgpd(frr: FrrInstance) -> Iterator[FrrInstance]:
    frr.kill("bgpd", signal.SIGSTOP)
    yield frr
    frr.kill("bgpd", signal.SIGCONT)


def shells() -> list[str]:
    lines = sh("ps -eo stat,args").splitlines()
    return [line for line in lines if "vtysh -N" in line and not line.startswith("Z")]


async def test_a_hanging_daemon_hits_the_deadline_and_no_process_stays(frozen_bgpd: FrrInstance) -> None:
    vtysh = Vtysh(vtysh="/usr/bin/vtysh", pathspace=frozen_bgpd.name, seconds=1.0)
    with pytest.raises(CommandTimeout), trio.fail_after(60):
        await vtysh.run("-c", "show running-config")
    assert not shells()


async def test_a_query_that_a_hanging_daemon_does_not_answer_ends_when_the_daemon_answers(
    frozen_bgpd: FrrInstance, tmp_path: Path
) -> None:
    lock = tmp_path / "frr.lock"
    vtysh = Vtysh(vtysh="/usr/bin/vtysh", pathspace=frozen_bgpd.name, seconds=1.0, lock=lock)
    with pytest.raises(CommandTimeout), trio.fail_after(60):
        await vtysh.text("show running-config")
    # It has a session with mgmtd too, whose end would corrupt a commit.
    assert shells()
    assert holders(lock)
    frozen_bgpd.kill("bgpd", signal.SIGCONT)
    eventually("the query has ended", lambda: not shells())
    assert not holders(lock)


async def test_a_killed_bgpd_comes_back_from_disk_with_the_same_configuration(frr: FrrInstance, bench: Bench) -> None:
    desired = CASES["several_neighbors"]
    await bench.applied(desired)
    frr.kill("bgpd")
    frr.start("bgpd")
    frr.boot("bgpd")
    eventually("bgpd has read its configuration", lambda: "router bgp" in frr.vtysh("show running-config"))
    assert not await bench.leftover(desired)
    assert not (await bench.applied(desired)).changed


@pytest.mark.usefixtures("quick_refusals")
async def test_no_secret_is_in_outcomes(bench: Bench) -> None:
    secret = neighbor(password=Secret("topsecret"))
    snippet = raw("pw", "router bgp 65000\n neighbor 10.1.1.1 password topsecret\nexit")
    outcome = await bench.apply(state(underlay=underlay(secret), raw_frr=(snippet,)))
    assert outcome.applied, outcome.error
    assert outcome.failures
    assert "topsecret" not in repr(replace(outcome, desired=CASES["empty"]))


async def test_a_healthy_mgmtd_is_not_ended(bench: Bench) -> None:
    await bench.applied(BASIC)
    helper = MgmtdRecovery(Vtysh(vtysh="/usr/bin/vtysh", pathspace=bench.frr.name), native(bench.frr))
    before = mgmtd_of(bench.frr)
    await helper.recover(broken=False)
    assert mgmtd_of(bench.frr) == before


async def test_an_mgmtd_whose_lock_a_live_session_holds_is_not_ended(bench: Bench) -> None:
    helper = MgmtdRecovery(Vtysh(vtysh="/usr/bin/vtysh", pathspace=bench.frr.name), native(bench.frr))
    before = mgmtd_of(bench.frr)
    with lock_holder(bench.frr):
        await helper.recover(broken=False)
        assert mgmtd_of(bench.frr) == before
        assert is_alive(before[0])


async def test_an_operator_who_holds_the_lock_is_named_and_waited_for(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "LONGEST_PAUSE_LOCKED", 1.0)
    await bench.applied(BASIC)
    before = mgmtd_of(bench.frr)
    with lock_holder(bench.frr):
        outcome = await bench.apply(TWO)
        assert bench.applier.refusals.seconds_to_attempt() <= 1.0 < refusals.FIRST_PAUSE
        assert [failure.resource.name for failure in outcome.failures] == ["blue"]
        assert LOCKED in outcome.failures[0].message
        assert "another session holds FRR's configuration lock" in caplog.text
        assert mgmtd_of(bench.frr) == before
    with trio.fail_after(180):
        while (await bench.apply(TWO)).failures:  # noqa: ASYNC110 - FRR gives no notice
            await trio.sleep(bench.applier.refusals.seconds_to_attempt())
    assert not await bench.leftover(TWO)
    with lock_holder(bench.frr):
        removed = await bench.apply(BASIC)
        assert not removed.applied
        assert bench.applier.refusals.seconds_to_attempt() <= 1.0
    with trio.fail_after(180):
        while not (await bench.apply(BASIC)).applied:  # noqa: ASYNC110 - FRR gives no notice
            await trio.sleep(bench.applier.refusals.seconds_to_attempt())
    assert not await bench.leftover(BASIC)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["a client of ours", "a client in FRR's namespace"])
async def test_an_mgmtd_whose_commit_never_ends_is_ended_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    await bench.applied(BASIC)
    monkeypatch.setattr(mgmtd_recovery, "COMMIT_SECONDS", 2.0)
    helper = MgmtdRecovery(Vtysh(vtysh="/usr/bin/vtysh", pathspace=bench.frr.name), native(bench.frr))
    pid = bench.frr.pid("mgmtd")
    adapters = "show mgmt backend-adapter all"
    eventually("zebra is connected to mgmtd", lambda: "zebra" in sh(f"vtysh -N {bench.frr.name} -c '{adapters}'"))
    bench.frr.kill("zebra", signal.SIGSTOP)
    await begin_a_commit(bench, elsewhere=elsewhere)
    with trio.move_on_after(1.0):
        await helper.recover(broken=False)
    assert is_alive(pid)
    await helper.recover(broken=False)
    eventually("mgmtd is gone", lambda: not is_alive(pid))


async def begin_a_commit(bench: Bench, *, elsewhere: bool) -> None:
    """Leave mgmtd with a commit that it waits for, and whose client was killed, as the driver does beyond a deadline.

    When it waits for the answer to an earlier one already, that one serves as well.
    """
    shell = Vtysh(vtysh="/usr/bin/vtysh", pathspace=bench.frr.name)
    enter = bench.frr.enter if elsewhere else ""
    commit = f"vtysh -N {bench.frr.name} -d mgmtd -c 'configure terminal' -c 'vrf late' -c 'vni 4711'"
    with trio.fail_after(180):
        while "CONFIG" not in await shell.text("show mgmt transaction all", daemon="mgmtd"):
            sh(f"{enter} timeout -s KILL 3 {commit}", check=False)


@contextmanager
def lock_holder(frr: FrrInstance) -> Iterator[None]:
    """A session that has FRR's configuration lock all the while."""
    shell = ["vtysh", "-N", frr.name, "-d", "mgmtd"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        print("configure terminal file-lock\ndo show version", file=holder.stdin, flush=True)
        # By the time of the second answer the lock is taken.
        assert any(line.startswith("FRRouting ") for line in holder.stdout)
        yield
        holder.kill()


def mgmtd_of(frr: FrrInstance) -> tuple[int, str]:
    """Return the process that the PID file names, and what it is."""
    pid = int((RUN / frr.name / "mgmtd.pid").read_text())
    return pid, Path(f"/proc/{pid}/comm").read_text()
