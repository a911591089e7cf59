"""A macvlan with an address from DHCP, by Debian's plugin and its daemon, on a real kernel with a real server."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from actors.netlink import actor
from actors.netlink.cni import dhcp
from config.desired import CniAttachment
from config.models.cni import canonical
from supervisor.cli import main
from supervisor.operations import teardown
from supervisor.process.subprocesses import running_child
from tests.actors.netlink.builders import UNDERLAY, without_underlay
from tests.kernel.dhcp_server import DhcpServer, dhcp_server
from tests.kernel.node import Node, ip
from tests.kernel.test_actor import Running, running, until
from tests.kernel.test_cni import PEER, assert_nothing_left, host, wanting
from tests.router.node import unit_rights

__all__ = ["host"]

FIRST, SECOND = "192.0.2.50", "192.0.2.51"
PLUGIN = {"type": "macvlan", "master": Node.NIC, "ipam": {"type": "dhcp"}}
DEVICE = CniAttachment("net1", canonical({"cniVersion": "1.0.0", "name": "fabric", "plugins": [PLUGIN]}))
INSIDE = wanting(DEVICE)
OUTSIDE = without_underlay(INSIDE)


@pytest.fixture
def server(host: Node, tmp_path: Path) -> Iterator[DhcpServer]:
    with dhcp_server(PEER, "leaf", tmp_path) as server:
        yield server
    for pid in daemons():
        os.kill(pid, signal.SIGKILL)


def daemons() -> list[int]:
    """Return the processes that are DHCP daemons."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"/usr/lib/cni/dhcp", b"daemon"]:
            found.append(int(path.parent.name))
    return found


async def leased(run: Running, node: Node, address: str) -> None:
    """Wait for an outcome with this address on the interface, and no other."""
    while True:
        outcome = await run.outcome()
        there = outcome.applied and not outcome.failures and "net1" in node.names()
        if there and node.addresses("net1") == {f"{address}/24"}:
            return


async def test_an_interface_has_its_lease_and_carries_packets_and_releases_it(
    host: Node, server: DhcpServer, tmp_path: Path
) -> None:
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        assert "default via 192.0.2.1 dev net1" in host.router("route", "show")
        ip("netns", "exec", Node.NETNS, "ping", "-c", "1", "-W", "10", "192.0.2.1")
        [line] = [line for line in server.log.read_text().splitlines() if line.startswith("DISCOVER")]
        assert line.split()[1] == f"{Node.NETNS}-underlay-{os.uname().nodename}/fabric/net1"
        assert (tmp_path / "run/dhcp").stat().st_mode & 0o777 == 0o700
        assert len(daemons()) == 1
        # Looking again neither asks the server nor writes anything.
        run.applied_in_frr(replace(INSIDE, generation=INSIDE.generation + 1))
        assert (await run.outcome()).writes == 0
        assert server.count("DISCOVER") == 1
        run.applied_in_frr(OUTSIDE)
        assert (await run.outcome()).applied
        server.await_another("RELEASE", 0)
        await until(lambda: not daemons(), "the daemon ended")
    assert_nothing_left(host)
    assert not (tmp_path / "run/dhcp/daemon.sock").exists()


async def test_a_daemon_that_is_killed_is_started_again_and_its_lease_is_as_the_server_has_it(
    host: Node, server: DhcpServer, tmp_path: Path
) -> None:
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        before, acks, [daemon] = host.link("net1")["ifindex"], server.count("ACK"), daemons()
        os.kill(daemon, signal.SIGKILL)
        await trio.to_thread.run_sync(server.await_another, "ACK", acks)
        assert host.link("net1")["ifindex"] == before
        server.give(SECOND)
        [another] = daemons()
        assert another != daemon
        os.kill(another, signal.SIGKILL)
        await leased(run, host, SECOND)


async def test_another_address_instead_of_a_renewed_lease_is_followed(
    host: Node, server: DhcpServer, tmp_path: Path
) -> None:
    server.give(FIRST, renew=1)
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        server.give(SECOND)
        await leased(run, host, SECOND)
        assert server.count("NAK") > 0
        ip("netns", "exec", Node.NETNS, "ping", "-c", "1", "-W", "10", "192.0.2.1")


async def test_without_a_server_the_interface_stays_as_it_is_and_a_new_one_is_refused_by_name(
    host: Node, server: DhcpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        before, [daemon] = host.link("net1")["ifindex"], daemons()
        server.give("")
        monkeypatch.setattr(actor, "PLUGIN_SECONDS", 2.0)
        os.kill(daemon, signal.SIGKILL)
        while not (outcome := await run.outcome()).failures:
            pass
        assert outcome.applied
        [failure] = outcome.failures
        assert failure.resource == UNDERLAY
        assert "interface net1 cannot be checked and is left as it is: CNI plugin dhcp: the lease cannot be" in str(
            failure
        )
        assert (host.link("net1")["ifindex"], host.addresses("net1")) == (before, {f"{FIRST}/24"})
        run.applied_in_frr(wanting(replace(DEVICE, name="net2")))
        outcome = await run.outcome()
        assert not outcome.applied
        assert "make interface net2 with CNI plugins: CNI plugin macvlan: " in outcome.error
        assert "waiting for a DHCP server or for the daemon" in outcome.error
        assert not {"net1", "net2"} & host.names()
        server.give(FIRST)
        monkeypatch.undo()
        while not (outcome := await run.outcome()).applied:
            pass
        assert host.addresses("net2") == {f"{FIRST}/24"}


async def test_a_daemon_that_hangs_is_replaced(
    host: Node, server: DhcpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dhcp, "ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(dhcp, "ANSWER_SECONDS", 4.0)
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        before, acks, [daemon] = host.link("net1")["ifindex"], server.count("ACK"), daemons()
        os.kill(daemon, signal.SIGSTOP)
        await trio.to_thread.run_sync(server.await_another, "ACK", acks)
        assert daemon not in daemons()
        assert host.link("net1")["ifindex"] == before


async def test_an_interface_that_its_ended_lease_set_down_is_made_again(
    host: Node, server: DhcpServer, tmp_path: Path
) -> None:
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        before = host.link("net1")["ifindex"]
        server.give(SECOND)
        host.router("link", "set", "net1", "down")
        await leased(run, host, SECOND)
        assert host.link("net1")["ifindex"] != before


async def test_a_new_namespace_gets_the_interface_and_the_daemon_leaves_the_old_one(
    host: Node, server: DhcpServer, tmp_path: Path
) -> None:
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        [daemon] = daemons()
        ip("netns", "del", Node.NETNS)
        host.add_netns()
        await leased(run, host, FIRST)
        assert daemon not in daemons()


#: A process that makes one pass over the kernel, as the daemon does.
PASS = """
import sys
from pathlib import Path
import trio
from actors.netlink.actor import DhcpDaemon, _open
from actors.netlink.converge import converge
from config.settings import Settings
from tests.kernel.node import Node
from tests.kernel.test_cni_dhcp import INSIDE, OUTSIDE

async def main():
    settings = Settings(state_dir=Path(sys.argv[1]), run_dir=Path(sys.argv[2]), netns=Node.NETNS)
    daemon = DhcpDaemon.of(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.run, lambda: None)
        kernel = await trio.to_thread.run_sync(_open, settings, daemon)
        wanted = INSIDE if sys.argv[3] == "INSIDE" else OUTSIDE
        await trio.to_thread.run_sync(converge, wanted, kernel)
        nursery.cancel_scope.cancel()

trio.run(main)
"""


@pytest.mark.parametrize("during", ["DISCOVER", "RELEASE"])
async def test_a_process_that_is_killed_in_the_middle_leaves_nothing_after_the_next(
    host: Node, server: DhcpServer, tmp_path: Path, during: str
) -> None:
    # With the capabilities of the unit.
    program = [*unit_rights(), sys.executable, "-c", PASS, str(host.state), str(tmp_path / "run")]
    which = "INSIDE"
    if during == "RELEASE":
        async with running_child([*program, "INSIDE"], env=os.environ) as process:
            assert await process.wait() == 0
        assert host.addresses("net1") == {f"{FIRST}/24"}
        which = "OUTSIDE"
    else:
        # No answer: it waits in the middle of ADD.
        server.give("")
    async with running_child([*program, which], env=os.environ):
        await trio.to_thread.run_sync(server.await_another, during, 0)
    # As systemd does with what is left of a unit.
    for pid in daemons():
        os.kill(pid, signal.SIGKILL)
    server.give(FIRST)
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
        run.applied_in_frr(OUTSIDE)
        while (await run.outcome()).desired != OUTSIDE:
            pass
    assert_nothing_left(host)


async def test_teardown_releases_the_lease_and_leaves_nothing(
    host: Node, server: DhcpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teardown, "SYSTEMD_BOOTED", tmp_path / "no-systemd")
    async with running(host, run_dir=tmp_path / "run") as run:
        run.applied_in_frr(INSIDE)
        await leased(run, host, FIRST)
    settings = tmp_path / "openperouter.yaml"
    settings.write_text(
        f"netns: {Node.NETNS}\nstateDir: {host.state}\nrunDir: {tmp_path}/run\n"
        f"vtysh: {tmp_path}/no-vtysh\nfrrEtcDir: {tmp_path}/frr\n"
    )
    assert await trio.to_thread.run_sync(main, ["--settings", str(settings), "teardown", "--yes"]) == 0
    assert not list(host.state.iterdir())
    assert daemons() == []
    # The server is another process: it has the message at once, and its line in the log a moment later.
    server.await_another("RELEASE", 0)
    assert server.count("RELEASE") == 1
    assert_nothing_left(host)
