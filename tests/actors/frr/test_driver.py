"""Which daemons the driver insists on, and what it leaves behind, whatever becomes of the programs that it starts."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from actors.frr import driver
from actors.frr.apply import Applier
from actors.frr.diff.difference import parse
from actors.frr.driver import VtyshDriver, daemons_for, parts
from actors.frr.mgmtd_recovery import MgmtdRecovery
from actors.frr.render.render import render
from actors.lib.frr import processes
from actors.lib.frr.daemon_socket import DaemonTooSlow
from actors.lib.frr.processes import CORE_DAEMONS, DAEMONS
from actors.lib.frr.vtysh import FrrUnavailable
from config.desired import Bfd, DesiredState
from config.settings import Settings
from config.syntax.frr_grammar import scan
from supervisor.process.subprocesses import CommandMissing, CommandTimeout
from tests.actors.lib.frr.daemon import HANGS, daemon
from tests.fakes.frr import FakeFrr

from .cases import CASES, HOSTNAME, neighbor, raw, state, underlay

#: The second one is for all daemons, so it goes through a file.
SECRET = "router bgp 64514\n neighbor 10.0.0.1 password hush\n"
SECRET_OF_ALL = "router ospf\n neighbor 10.0.0.1 password hush\n"

CALLS: dict[str, Callable[[VtyshDriver], Awaitable[str]]] = {
    "refusal": lambda one: one.refusal(SECRET),
    "send": lambda one: one.send(SECRET_OF_ALL),
}


def settings(directory: Path, body: str) -> Settings:
    """Return settings in which vtysh is a script. It sees the files by their last name."""
    program = directory / "program"
    program.write_text(f'#!/bin/sh\nfor last; do :; done\ngrep -q hush "$last" && touch {directory}/started\n{body}\n')
    program.chmod(0o755)
    return Settings(vtysh=program, run_dir=directory / "run", frr_run_dir=directory / "frr", frr_pathspace="p")


def left_behind(directory: Path) -> list[str]:
    """Return the working files that hold the secret."""
    files = [path for path in (directory / "run").rglob("*") if path.is_file()]
    return [path.name for path in files if "hush" in path.read_text()]


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_ends_leaves_no_secret(name: str, tmp_path: Path) -> None:
    await CALLS[name](VtyshDriver(settings(tmp_path, "exit 0")))
    assert (tmp_path / "started").exists()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("end", ["kill -KILL $$", "exit 1"])
@pytest.mark.parametrize("name", CALLS)
async def test_what_a_killed_vtysh_has_said_is_quoted_without_the_secret(name: str, end: str, tmp_path: Path) -> None:
    said = await CALLS[name](VtyshDriver(settings(tmp_path, f'cat "$last"; cat "$last" >&2; {end}')))
    assert "neighbor 10.0.0.1 password ********" in said
    assert "hush" not in said


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_exceeds_its_deadline_leaves_no_secret(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deadline in ("CHECK_SECONDS", "LOAD_SECONDS"):
        monkeypatch.setattr(driver, deadline, 1.0)
    body = 'case "$*" in *transaction*) exit 0;; esac; exec sleep 60'
    with pytest.raises(CommandTimeout):
        await CALLS[name](VtyshDriver(settings(tmp_path, body)))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cancelled_leaves_no_secret(name: str, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CALLS[name], VtyshDriver(settings(tmp_path, "exec sleep 60")))
        while not (tmp_path / "started").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("name", CALLS)
async def test_a_program_that_is_not_there_leaves_no_secret(name: str, tmp_path: Path) -> None:
    nowhere = settings(tmp_path, "").model_copy(update={"vtysh": tmp_path / "no"})
    with pytest.raises(CommandMissing):
        await CALLS[name](VtyshDriver(nowhere))
    assert left_behind(tmp_path) == []


async def test_the_files_of_a_killed_process_are_removed_by_the_next_call(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "frr"
    directory.mkdir(parents=True)
    for name in ("check.conf", ".commands.conf.0123456789abcdef.tmp"):
        (directory / name).write_text(SECRET)
    await VtyshDriver(settings(tmp_path, "exit 0")).refusal("hostname x\n")
    assert left_behind(tmp_path) == []
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VtyshDriver:
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: DAEMONS)
    monkeypatch.setattr(processes, "is_loading", lambda _pathspace: False)
    return VtyshDriver(settings(tmp_path, f"touch {tmp_path}/session"))


async def test_the_end_of_frrs_own_start_is_waited_for_without_a_session(
    one: VtyshDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Threads do not stop the virtual clock.
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    polls = iter([True, True, True, False])
    monkeypatch.setattr(processes, "is_loading", lambda _pathspace: next(polls))
    await one.wait_ready(DAEMONS)
    assert list(polls) == []
    assert not (tmp_path / "session").exists()


async def test_a_start_that_never_ends_is_not_waited_for_indefinitely(
    one: VtyshDriver, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "is_loading", lambda _pathspace: True)
    await one.wait_ready(DAEMONS)
    assert trio.current_time() == driver.START_SECONDS


async def test_a_process_that_hangs_in_the_kernel_blocks_nothing_else(
    one: VtyshDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, release = threading.Event(), threading.Event()
    released = []

    def blocked(_pathspace: str) -> bool:
        reading.set()
        released.append(release.wait(60))
        return False

    monkeypatch.setattr(processes, "is_loading", blocked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.wait_ready, DAEMONS)
        await trio.to_thread.run_sync(reading.wait)
        release.set()
    # This task ran while the read hung; a thread that the test before abandoned may look late and be released as well.
    assert set(released) == {True}


async def test_a_process_that_hangs_in_the_kernel_takes_no_thread_from_others(
    one: VtyshDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, release, begun = threading.Event(), threading.Event(), []

    def blocked() -> bool:
        begun.append(True)
        reading.set()
        return release.wait(60)

    # This driver's only: a thread that a test before abandoned may still look.
    monkeypatch.setattr(one, "_processes", SimpleNamespace(is_loading=blocked, running=lambda: DAEMONS))
    monkeypatch.setattr(driver, "START_SECONDS", 0.05)
    try:
        for _ in range(3):
            await one.wait_ready(DAEMONS)
        await trio.to_thread.run_sync(reading.wait)
        assert len(begun) == 1
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        release.set()


async def test_a_daemon_that_the_configuration_does_not_use_is_not_waited_for(
    one: VtyshDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([DAEMONS - {"bfdd", "staticd"}])
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: next(looks))
    await one.wait_ready(CORE_DAEMONS)
    assert not list(looks)


@pytest.mark.parametrize("absent", sorted(DAEMONS))
async def test_a_needed_daemon_that_is_absent_is_named(
    absent: str, one: VtyshDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: DAEMONS - {absent})
    with pytest.raises(FrrUnavailable, match=f"FRR runs without {absent}$"):
        await one.wait_ready(CORE_DAEMONS | {absent})


@asynccontextmanager
async def daemons(directory: Path, **texts: tuple[str, int]) -> AsyncIterator[None]:
    """Run daemons with these answers to the question for their configuration."""
    run_dir = directory / "frr" / "p"
    run_dir.mkdir(parents=True)
    async with AsyncExitStack() as running:
        for name, answer in texts.items():
            await running.enter_async_context(daemon(run_dir / f"{name}.vty", {"show running-config": answer}, 1000))
        yield


PARTS = {
    "zebra": ("hostname x\ninterface eth1\n ipv6 nd suppress-ra\n", 0),
    "mgmtd": ("vrf red\n vni 100\nexit-vrf\n", 0),
    "bgpd": ("router bgp 64514\n bgp router-id 10.0.0.1\nexit\n", 0),
}


async def test_the_running_configuration_is_that_of_all_daemons_without_watchfrr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: CORE_DAEMONS | {"watchfrr"})
    async with daemons(tmp_path, **PARTS):
        text = await VtyshDriver(settings(tmp_path, "exit 1")).running()
    # An open context of one daemon takes in nothing of the next one.
    assert parse(text) == frozenset().union(*(parse(part) for part, _ in PARTS.values()))


@pytest.mark.parametrize("absent", sorted(CORE_DAEMONS))
async def test_an_absent_daemon_is_not_one_without_configuration(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: CORE_DAEMONS - {absent})
    async with daemons(tmp_path, **PARTS):
        with pytest.raises(FrrUnavailable, match=f"FRR runs without {absent}"):
            await VtyshDriver(settings(tmp_path, "exit 1")).running()


def recoveries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what will hold, for each recovery, whether it is about a commit that was broken off."""
    recovered: list[bool] = []

    async def recover(_self: MgmtdRecovery, *, broken: bool) -> None:
        recovered.append(broken)

    monkeypatch.setattr(MgmtdRecovery, "recover", recover)
    return recovered


async def test_an_mgmtd_that_does_not_answer_may_have_to_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(processes, "running_daemons", lambda _directory: CORE_DAEMONS)
    recovered = recoveries(monkeypatch)
    async with daemons(tmp_path, **{**PARTS, "mgmtd": HANGS}):
        with pytest.raises(DaemonTooSlow, match="mgmtd did not answer"):
            await VtyshDriver(settings(tmp_path, "exit 1")).running()
    assert recovered == [False]


OPENED = {"configure terminal file-lock": ("", 0), "XFRR_start_configuration": ("", 0)}
ENDED = {"XFRR_end_configuration": ("", 0), "end": ("", 0)}
#: What bgpd answers: the second neighbour is of an instance that it refuses.
SENT = """\
router bgp 64514
 neighbor 10.0.0.1 password hush
exit
router bgp 64515 vrf red
 address-family ipv4 unicast
  neighbor 10.0.0.2 activate
 exit
exit
router bgp 64514 vrf blue
 neighbor 10.0.0.3 remote-as 1
exit
"""


async def test_one_daemons_lines_are_sent_in_a_session_without_those_inside_a_refused_context(tmp_path: Path) -> None:
    answers = {
        **OPENED,
        "router bgp 64514": ("", 0),
        "neighbor 10.0.0.1 password hush": ("% Unknown command: neighbor 10.0.0.1 password hush\n", 2),
        "exit": ("", 0),
        "router bgp 64515 vrf red": ("BGP is already running; AS is 64514\n", 13),
        "router bgp 64514 vrf blue": ("", 1),
        "neighbor 10.0.0.3 remote-as 1": ("", 13),
        **ENDED,
    }
    (tmp_path / "frr" / "p").mkdir(parents=True)
    async with daemon(tmp_path / "frr" / "p" / "bgpd.vty", answers, 1000) as asked:
        said = await VtyshDriver(settings(tmp_path, "exit 1")).send(SENT)
    inside = [one for one in asked if one not in OPENED | ENDED]
    assert [one for one in asked if one in OPENED | ENDED] == [*OPENED, *ENDED]
    assert inside == [
        "router bgp 64514", "neighbor 10.0.0.1 password hush", "exit", "router bgp 64515 vrf red",
        "router bgp 64514 vrf blue", "neighbor 10.0.0.3 remote-as 1", "exit",
    ]  # fmt: skip
    assert said.splitlines() == [
        "% Unknown command", "BGP is already running; AS is 64514", "% refused with status 13",
    ]  # fmt: skip


async def test_nothing_is_sent_to_an_mgmtd_that_is_locked_and_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered = recoveries(monkeypatch)
    locked = ("% Configuration is locked by another session\n", 13)
    (tmp_path / "frr" / "p").mkdir(parents=True)
    async with daemon(tmp_path / "frr" / "p" / "mgmtd.vty", {next(iter(OPENED)): locked}) as asked:
        said = await VtyshDriver(settings(tmp_path, "exit 1")).send("vrf red\nvni 100\n")
    assert (said, len(asked)) == ("% Configuration is locked by another session", 1)
    assert recovered == [False]


async def test_an_mgmtd_that_is_locked_for_a_file_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recovered = recoveries(monkeypatch)
    script = 'echo "% Can\'t enter config; running datastore locked by another session"; exit 1'
    assert "locked" in await VtyshDriver(settings(tmp_path, script)).send("ip prefix-list p seq 5 permit any\n")
    assert recovered == [False]


@pytest.mark.parametrize(
    ("answer", "broken"),
    [(HANGS, False), (("Backend daemon disconnected while processing commit\n", 13), True)],
)
async def test_a_commit_that_breaks_or_hangs_has_mgmtd_looked_at(
    answer: tuple[str, int],
    broken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    recovered = recoveries(monkeypatch)
    lines = dict.fromkeys(("vrf red", "vni 100", "exit"), ("", 0))
    answers = {**OPENED, **lines, **ENDED, "XFRR_end_configuration": answer}
    (tmp_path / "frr" / "p").mkdir(parents=True)
    async with daemon(tmp_path / "frr" / "p" / "mgmtd.vty", answers):
        with nullcontext() if broken else pytest.raises(DaemonTooSlow, match="mgmtd did not answer within 60 s"):
            await VtyshDriver(settings(tmp_path, "exit 1")).send("vrf red\nvni 100\n")
    assert recovered == [broken]


CHANGE = """\
ip prefix-list p seq 5 permit any
vrf red
 vni 100
 exit
router bgp 64514
 address-family ipv4 unicast
  neighbor 10.0.0.1 activate
  exit
 neighbor 10.0.0.1 remote-as 1
 exit
no vrf blue
vrf grey
 vni 102
 ip route 10.0.0.0/8 Null0
 exit
vrf green
 no vni 101
 exit
no router bgp 64514 vrf blue
bfd
 profile fast
  passive-mode
  exit
 exit
router ospf
 exit
bfdd-like line
"""


def test_only_what_mgmtd_needs_is_sent_to_it_and_what_others_refer_to_comes_first() -> None:
    assert parts(CHANGE) == [
        ("ip prefix-list p seq 5 permit any\nrouter ospf\nexit\nbfdd-like line\n", ""),
        (
            "router bgp 64514\naddress-family ipv4 unicast\nneighbor 10.0.0.1 activate\nexit\n"
            "neighbor 10.0.0.1 remote-as 1\nexit\nno router bgp 64514 vrf blue\n",
            "bgpd",
        ),
        ("bfd\nprofile fast\npassive-mode\nexit\nexit\n", "bfdd"),
        ("vrf red\nvni 100\nexit\nvrf green\nno vni 101\nexit\n", "mgmtd"),
        ("no vrf blue\nvrf grey\nvni 102\nip route 10.0.0.0/8 Null0\nexit\n", ""),
    ]


@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_a_configuration_mean_what_the_whole_means(name: str) -> None:
    text = render(CASES[name], hostname=HOSTNAME).text
    assert set(scan("".join(part for part, _ in parts(text)))) == set(scan(text))


BFD = state(underlay=underlay(neighbor(bfd=Bfd())))


@pytest.mark.parametrize(
    ("desired", "beyond"),
    [
        (CASES["empty"], set()),
        (CASES["basic"], set()),
        (CASES["raw"], set()),
        (CASES["bfd_profile"], {"bfdd"}),
        (BFD, {"bfdd"}),
        (state(raw_frr=(raw("a", "ip route 10.0.0.0/8 192.0.2.1"),)), {"staticd"}),
        (state(raw_frr=(raw("a", "vrf red\n ipv6 route 2001:db8::/32 Null0\nexit-vrf"),)), {"staticd"}),
        (state(raw_frr=(raw("a", "router ospf\n bfd default\n"),)), {"bfdd"}),
        (state(raw_frr=(raw("a", "interface eth0\n description ip route and bfd\n"),)), set()),
    ],
)
async def test_only_the_daemons_that_a_configuration_uses_are_needed(desired: DesiredState, beyond: set[str]) -> None:
    rendered = render(desired, hostname=HOSTNAME)
    assert daemons_for(rendered.text) == CORE_DAEMONS | beyond


async def test_applying_needs_the_daemons_that_the_configuration_uses(tmp_path: Path) -> None:
    frr = FakeFrr()
    await Applier(frr, tmp_path / "frr.conf").apply(BFD, render(BFD, hostname=HOSTNAME))
    assert frr.needed == CORE_DAEMONS | {"bfdd"}
