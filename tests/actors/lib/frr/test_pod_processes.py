"""FRR's processes in a pod, by the host's numbers: found by what the kernel says of them, never by a number alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.lib.frr import pod_processes
from actors.lib.frr.pod_processes import PodFault, PodProcesses, processes_of
from actors.lib.frr.processes import NativeProcesses, pids
from config.settings import Settings

#: The control groups of FRR's container and of another pod's.
OURS, OTHERS = "0::/system.slice/openperouter-frr.service/libpod-payload-1\n", "0::/kubepods/pod7\n"


class Proc:
    """A /proc with these processes, and a pod's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("proc", "frr", "pod"):
            (directory / name).mkdir()
        self.add(5000, 1, "watchfrr.sh")
        self.first(5000)
        self.processes = PodProcesses(directory / "frr", directory / "pod", "p", "none", proc=directory / "proc")

    def add(self, pid: int, inner: int, name: str, *, started: int = 100, cgroup: str = OURS) -> None:
        place = self.directory / "proc" / str(pid)
        place.mkdir(exist_ok=True)
        (place / "comm").write_text(f"{name}\n")
        (place / "stat").write_text(f"{pid} ({name}) S 1 " + "0 " * 17 + f"{started} 0 0\n")
        numbers = f"{pid}\t{inner}" if inner else f"{pid}"
        (place / "status").write_text(f"Name:\t{name}\nNSpid:\t{numbers}\nNSpgid:\t1\n")
        (place / "cgroup").write_text(cgroup)

    def first(self, pid: int | str) -> None:
        """Write the PID file as podman does: a new one."""
        path = self.directory / "pod/frr.pid"
        path.unlink(missing_ok=True)
        path.write_text(f"{pid}\n")

    def file(self, daemon: str, inner: int) -> None:
        (self.directory / "frr" / f"{daemon}.pid").write_text(f"{inner}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_a_number_of_the_pod_becomes_the_hosts(proc: Proc) -> None:
    proc.add(5017, 17, "bgpd")
    proc.add(17, 0, "bgpd", cgroup="0::/\n")
    proc.add(7017, 17, "bgpd", cgroup=OTHERS)
    proc.add(5018, 18, "zebra")
    proc.file("bgpd", 17)
    proc.file("zebra", 18)
    proc.file("mgmtd", 19)
    # The pod can write anything there.
    os.mkfifo(proc.directory / "frr/staticd.pid")
    assert proc.processes.running() == {"bgpd", "zebra"}
    assert (proc.processes.pid_of("bgpd"), proc.processes.pid_of("mgmtd")) == (5017, None)


def test_all_daemons_are_found_with_one_list_of_the_nodes_processes(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(place: Path) -> Iterator[int]:
        lists.append(place)
        return pids(place)

    lists: list[Path] = []
    monkeypatch.setattr(pod_processes, "pids", listed)
    for number, daemon in enumerate(("bgpd", "mgmtd", "zebra"), 17):
        proc.add(5000 + number, number, daemon)
        proc.file(daemon, number)
    proc.file("bfdd", 30)
    assert proc.processes.running() == {"bgpd", "mgmtd", "zebra"}
    assert len(lists) == 1
    (proc.directory / "frr/bfdd.pid").unlink()
    assert proc.processes.running() == {"bgpd", "mgmtd", "zebra"}
    assert len(lists) == 1


def test_any_process_may_have_a_name_that_is_no_text(proc: Proc) -> None:
    proc.add(400, 0, "x")
    (proc.directory / "proc/400/comm").write_bytes(b"\xff\xfe\n")
    proc.add(5017, 17, "bgpd")
    proc.file("bgpd", 17)
    assert proc.processes.running() == {"bgpd"}


def test_a_daemon_that_was_started_again_is_found_again(proc: Proc) -> None:
    proc.add(5017, 17, "bgpd")
    proc.file("bgpd", 17)
    assert proc.processes.pid_of("bgpd") == 5017
    proc.add(5017, 17, "bash", started=200)
    assert proc.processes.pid_of("bgpd") is None
    proc.add(5030, 30, "bgpd", started=201)
    proc.file("bgpd", 30)
    assert proc.processes.pid_of("bgpd") == 5030


def test_a_number_that_the_kernel_used_again_is_not_frrs_container(proc: Proc) -> None:
    assert proc.processes.first().pid == 5000
    proc.add(5000, 1, "watchfrr.sh", started=999)
    with pytest.raises(PodFault, match=r"FRR's container has ended: process 5000 in .*frr.pid is another one now"):
        proc.processes.running()
    proc.first(5000)
    os.utime(proc.directory / "pod/frr.pid", ns=(0, 1))
    assert proc.processes.first().started == 999


@pytest.mark.parametrize(
    ("pid", "reason"),
    [
        ("", "names no process"),
        ("x", "names no process"),
        ("4999", "names no process"),
        ("600", r"names process 600 \(sshd\), which is not of FRR's pod"),
        (None, "FRR's container does not run: there is no "),
    ],
)
def test_a_file_that_names_no_container_is_reported(proc: Proc, pid: str | None, reason: str) -> None:
    proc.add(600, 0, "sshd", cgroup="0::/system.slice/ssh.service\n")
    path = proc.directory / "pod/frr.pid"
    path.unlink()
    if pid is not None:
        path.write_text(pid)
    with pytest.raises(PodFault, match=reason):
        proc.processes.running()
    assert proc.processes.pid_of("bgpd") is None


def test_a_process_of_another_network_namespace_is_not_the_pods(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_processes, "NAMESPACES", proc.directory)
    for place in ("router", "proc/5000/ns/net"):
        (proc.directory / place).parent.mkdir(exist_ok=True)
        (proc.directory / place).touch()
    processes = PodProcesses(
        proc.directory / "frr", proc.directory / "pod", "p", "router", proc=proc.directory / "proc"
    )
    with pytest.raises(PodFault, match="which is not of FRR's pod"):
        processes.first()
    (proc.directory / "proc/5000/ns/net").unlink()
    os.link(proc.directory / "router", proc.directory / "proc/5000/ns/net")
    assert processes.first().pid == 5000


async def test_the_reloader_ends_a_daemon_by_its_number_in_the_pod(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def end(_client: object, daemon: str, pid: int) -> bool:
        asked.append((daemon, pid))
        return True

    monkeypatch.setattr("actors.lib.frr.reloader_client.ReloaderClient.end", end)
    proc.add(5017, 17, "mgmtd")
    proc.file("mgmtd", 17)
    assert not await proc.processes.end("mgmtd", 17)
    assert await proc.processes.end("mgmtd", 5017)
    assert asked == [("mgmtd", 17)]


def test_a_new_container_is_a_restart_and_natively_there_is_no_such_file(proc: Proc) -> None:
    before = proc.processes.restarts()
    assert before == proc.processes.restarts()
    proc.first(5001)
    assert proc.processes.restarts() not in (before, frozenset())
    (proc.directory / "pod/frr.pid").unlink()
    assert proc.processes.restarts() == frozenset()
    native = processes_of(Settings())
    assert isinstance(native, NativeProcesses)
    assert native.restarts() == frozenset()
