"""FRR in a PID namespace of its own, as in a podman pod: the real driver changes it through the real reloader.

A pod is a process that holds the namespaces; FRR and the reloader are started in them. Beside what podman itself does
(images, units, control groups) that is what the daemon on the host sees.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from actors.frr import driver, mgmtd_recovery
from actors.lib.frr import reloader_client
from actors.lib.frr.pod_processes import PodProcesses
from actors.lib.frr.processes import DAEMONS
from config.desired import Secret
from config.settings import Settings
from supervisor.runtime.faults import DependencyFault
from tests.actors.frr.cases import CASES, RED, l3vni, neighbor, raw, state, underlay

from .conftest import settings_for
from .harness import RUN, FrrInstance, eventually, is_alive, namespace
from .test_apply import Bench

NAME = "frrpod"
BASIC = CASES["basic"]
TWO = state(underlay=underlay(), l3vnis=(RED, l3vni("blue", 200)))
CHECKOUT = Path(__file__).parents[2]
#: The first process of a pod reaps what the others leave, as podman's does.
FIRST = "while :; do sleep 1000 & wait; done"


@dataclass(frozen=True)
class PodFrr(FrrInstance):
    """An FRR, and what else is in its pod; ``directory`` is shared with the host."""

    first: int = 0
    directory: Path = Path()
    reloaders: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def enter(self) -> str:
        return f"nsenter --target {self.first} --pid --mount --net --root --wd={CHECKOUT}"

    @property
    def processes(self) -> PodProcesses:
        return PodProcesses(RUN / self.name, self.directory, self.name, self.name)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def pid(self, daemon: str) -> int:
        """Return the host's number, not that of the file."""
        return self.processes.pid_of(daemon) or 0

    def start_reloader(self) -> None:
        settings = self.directory / "settings.yaml"
        settings.write_text(f"frrPathspace: {self.name}\npodRunDir: {self.directory}\nrunDir: {self.directory}/own\n")
        command = [*self.enter.split(), "python3", "-m", "supervisor", "--settings", str(settings), "reloader"]
        with (self.directory / "log").open("ab") as log:
            self.reloaders.append(subprocess.Popen(command, stderr=log))
        count = len(self.reloaders)
        eventually("the reloader listens", lambda: self.log.count("serving socket") == count)

    @property
    def reloader(self) -> int:
        """The reloader itself: what was started only waits for it, outside of the pod."""
        return children(self.reloaders[-1].pid)[0]

    def continue_reloader(self) -> None:
        """Continue one that was stopped, and nsenter, which stops with it."""
        os.kill(self.reloader, signal.SIGCONT)
        self.reloaders[-1].send_signal(signal.SIGCONT)

    def kill_reloader(self) -> None:
        """Kill all of its container, as podman does."""
        for pid in descendants(self.reloader):
            os.kill(pid, signal.SIGKILL)
        self.reloaders[-1].wait()


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    return [pid, *(inner for child in children(pid) for inner in descendants(child))]


@contextmanager
def pod(directory: Path) -> Iterator[PodFrr]:
    """FRR under watchfrr and a reloader, in namespaces of their own."""
    share = directory / "pod"
    share.mkdir(mode=0o750)
    with namespace(NAME):
        unshare = ("ip", "netns", "exec", NAME, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        with subprocess.Popen([*unshare, "sh", "-c", FIRST]) as holder:
            eventually("the pod's first process runs", lambda: bool(children(holder.pid)))
            frr = PodFrr(NAME, first=children(holder.pid)[0], directory=share)
            try:
                (share / "frr.pid").write_text(f"{frr.first}\n")
                frr.prepare()
                frr.start_watched()
                frr.start_reloader()
                yield frr
            finally:
                # Everything in the pod ends with its first process.
                holder.kill()
                for reloader in frr.reloaders:
                    reloader.wait()
                frr.stop()


@pytest.fixture(scope="module")
def frr(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodFrr]:
    with pod(tmp_path_factory.mktemp("pod")) as one:
        yield one


@pytest.fixture
def settings(frr: PodFrr, tmp_path: Path) -> Settings:
    """The host's settings: it has no vtysh."""
    ours = {"runtime": "podman", "pod_run_dir": frr.directory, "netns": frr.name, "vtysh": tmp_path / "none"}
    return settings_for(frr.name, tmp_path).model_copy(update=ours)


@pytest.fixture
def bench(frr: PodFrr, settings: Settings) -> Bench:
    return Bench(frr, settings)


async def until_applied(bench: Bench) -> None:
    """Retry as the actor does, until FRR runs two VNIs."""
    with trio.fail_after(300):
        while not (await bench.apply(TWO)).applied:  # noqa: ASYNC110 - FRR gives no notice
            await trio.sleep(1.0)
    assert not await bench.leftover(TWO)


async def test_a_configuration_is_applied_through_the_reloader(frr: PodFrr, bench: Bench) -> None:
    assert (await bench.applied(BASIC)).changed
    assert not (await bench.applied(BASIC)).changed
    assert (await bench.applied(TWO)).changed
    assert "router bgp" in frr.conf.read_text()
    assert "vtysh loaded a configuration" in frr.log
    inner = int((RUN / frr.name / "bgpd.pid").read_text())
    assert frr.pid("bgpd") != inner
    assert frr.processes.running() >= DAEMONS | {"watchfrr"}


async def test_a_daemon_of_the_host_with_the_number_in_the_file_is_not_the_pods(frr: PodFrr, tmp_path: Path) -> None:
    elsewhere = tmp_path / "frr.pid"
    elsewhere.write_text(f"{os.getpid()}\n")
    processes = PodProcesses(RUN / frr.name, tmp_path, frr.name, frr.name)
    with pytest.raises(DependencyFault, match=r"is not of FRR's pod"):
        processes.running()
    assert processes.pid_of("bgpd") is None


@pytest.mark.usefixtures("quick_refusals")
async def test_what_frr_refuses_is_named_and_no_secret_is_logged(frr: PodFrr, bench: Bench) -> None:
    secret = neighbor(password=Secret("topsecret"))
    snippet = raw("pw", "router bgp 65000\n neighbor 10.1.1.1 password topsecret\nexit")
    outcome = await bench.apply(state(underlay=underlay(secret), raw_frr=(snippet,)))
    assert outcome.applied, outcome.error
    assert outcome.failures
    assert "password topsecret" in await bench.driver.running()
    assert "topsecret" not in frr.log
    assert await bench.driver.refusal("router bgp 65000\n nonsense\n")


async def test_a_killed_bgpd_is_configured_again(frr: PodFrr, bench: Bench) -> None:
    await bench.applied(BASIC)
    before = frr.pid("bgpd")
    os.kill(before, signal.SIGKILL)
    eventually("watchfrr starts a new bgpd", lambda: frr.pid("bgpd") not in (0, before))
    await until_applied(bench)


async def test_a_reloader_that_hangs_is_an_error_within_its_deadline(
    frr: PodFrr, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.applied(BASIC)
    monkeypatch.setattr(reloader_client, "ACCEPT_SECONDS", 1.0)
    os.kill(frr.reloader, signal.SIGSTOP)
    with trio.fail_after(60):
        outcome = await bench.apply(TWO)
    frr.continue_reloader()
    assert not outcome.applied
    assert "reloader.sock does not answer in time" in outcome.error
    monkeypatch.undo()
    await until_applied(bench)


async def test_a_reloader_that_is_killed_in_the_middle_of_a_change_costs_only_time(
    frr: PodFrr, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.applied(BASIC)
    # mgmtd may keep the transaction of a vtysh that was killed, and then is ended after this time.
    monkeypatch.setattr(mgmtd_recovery, "COMMIT_SECONDS", 5.0)
    # vtysh waits for it in the middle of the change.
    frr.kill("zebra", signal.SIGSTOP)
    outcomes = []

    async def change() -> None:
        text = "vrf red\n vni 100\nexit-vrf\nip prefix-list late seq 5 permit 10.0.0.0/8\n"
        with pytest.raises(reloader_client.ReloaderFault) as fault:
            await bench.driver.send(text)
        outcomes.append(str(fault.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        with trio.fail_after(60):
            while not children(frr.reloader):  # noqa: ASYNC110 - another process starts it
                await trio.sleep(0.05)
        frr.kill_reloader()
    assert "ended before it answered" in outcomes[0]
    absent = await bench.apply(TWO)
    assert not absent.applied
    frr.kill("zebra", signal.SIGCONT)
    frr.start_reloader()
    await until_applied(bench)


async def test_an_mgmtd_that_hangs_is_ended_by_the_reloader(
    frr: PodFrr, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.applied(BASIC)
    for module, name in (
        (driver, "LOAD_SECONDS"),
        (mgmtd_recovery, "PROBE_SECONDS"),
        (mgmtd_recovery, "COMMIT_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 3.0)
    pid = frr.pid("mgmtd")
    frr.kill("mgmtd", signal.SIGSTOP)
    with pytest.raises(DependencyFault):
        await bench.driver.send("ip prefix-list late seq 5 permit 10.0.0.0/8\n")
    eventually("mgmtd is gone", lambda: not is_alive(pid))
    assert "ended a daemon daemon=mgmtd" in frr.log
    monkeypatch.undo()
    eventually("watchfrr starts a new one", lambda: frr.pid("mgmtd") not in (0, pid))
    await until_applied(bench)
