"""A host whose MAC zebra has dropped is announced soon after, and nothing happens to one that zebra has."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import trio

from actors.netlink.refresh import actor
from actors.netlink.refresh.missed import PATIENCE
from config.outcomes import KernelOutcome
from config.settings import Settings
from supervisor.runtime.actor import ActorContext
from supervisor.runtime.channel import Latest
from tests.actors.frr.cases import l2vni, state, underlay

from .harness import FrrInstance, eventually, running_frr, sh, until_a_port

NAME: Final = "frrtest"
#: One segment's port is there before zebra stops, the other one's comes meanwhile.
OLD, NEW = 111, 112
VTEP: Final = "100.65.0.1"
CONFIG: Final = """\
router bgp 64514
 bgp router-id 10.0.0.1
 address-family l2vpn evpn
  advertise-all-vni
 exit-address-family
exit
"""


def mac(vni: int, number: int = 0) -> str:
    return f"02:aa:00:00:{number:02x}:{vni:02x}"


def add_segment(vni: int) -> None:
    sh(
        f"ip -n {NAME} link add br-pe-{vni} address 02:00:00:00:00:{vni:02x} type bridge && "
        f"ip -n {NAME} link add vni{vni} type vxlan id {vni} local {VTEP} dstport 4789 nolearning && "
        f"ip -n {NAME} link set vni{vni} addrgenmode none master br-pe-{vni} && "
        f"ip -n {NAME} link set br-pe-{vni} up && ip -n {NAME} link set vni{vni} up"
    )


def add_port(vni: int) -> None:
    sh(
        f"ip link add host-e-{vni} type veth peer name pe-e-{vni} netns {NAME} && ip link set host-e-{vni} up && "
        f"ip -n {NAME} link set pe-e-{vni} addrgenmode none master br-pe-{vni} up"
    )


def send(vni: int, number: int = 0) -> None:
    """Send a broadcast of one of the segment's hosts, with an EtherType for local experiments (IEEE 802)."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
        port.bind((f"host-e-{vni}", 0))
        port.send(b"\xff" * 6 + bytes.fromhex(mac(vni, number).replace(":", "")) + b"\x88\xb5" + bytes(46))


def is_learned(vni: int) -> bool:
    return mac(vni) in sh(f"bridge -n {NAME} fdb show dev pe-e-{vni}")


def is_known(frr: FrrInstance, vni: int, number: int = 0) -> bool:
    """Return whether zebra has one of the segment's hosts."""
    found = json.loads(frr.vtysh(f"show evpn mac vni {vni} json") or "{}").get("macs", {})
    return bool(found.get(mac(vni, number), {}).get("type") == "local")


@contextmanager
def forgotten(output: Path) -> Iterator[Callable[[], set[str]]]:
    """Record what bridges forget meanwhile; the function returns the MACs."""
    with output.open("w") as file, subprocess.Popen(["bridge", "-n", NAME, "monitor", "fdb"], stdout=file) as monitor:
        try:
            yield lambda: set(re.findall(r"^Deleted (\S+)", output.read_text(), re.MULTILINE))
        finally:
            monitor.terminate()


@asynccontextmanager
async def refresher() -> AsyncIterator[None]:
    kernel: Latest[KernelOutcome] = Latest("kernel")
    segments = tuple(replace(l2vni(vni, None, ()), vtep=ip_address(VTEP)) for vni in (OLD, NEW))
    kernel.set(KernelOutcome(state(underlay=underlay(), l2vnis=segments), applied=True))
    settings = Settings(netns=NAME, frr_pathspace=NAME, silent_host_seconds=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(actor.run, ActorContext("refresh"), settings=settings, kernel=kernel.reader()))
        yield
        nursery.cancel_scope.cancel()


async def test_a_host_that_zebra_has_missed_is_announced_and_no_other_one_is_forgotten(tmp_path: Path) -> None:
    with running_frr(NAME) as frr, forgotten(tmp_path / "monitor") as gone:
        sh(f"ip -n {NAME} address add {VTEP}/32 dev lo")
        for vni in (OLD, NEW):
            add_segment(vni)
        frr.conf.write_text(CONFIG)
        frr.load()
        add_port(OLD)
        until_a_port(NAME, f"pe-e-{OLD}")
        send(OLD)
        eventually("zebra has the first host", lambda: is_known(frr, OLD))
        # It then finds the port and the MAC at once, in two threads, and mostly drops the MAC.
        frr.kill("zebra", signal.SIGSTOP)
        add_port(NEW)
        send(NEW)
        eventually("the bridge has the second host", lambda: is_learned(NEW))
        frr.kill("zebra", signal.SIGCONT)
        until_a_port(NAME, f"pe-e-{NEW}")
        # zebra reads MACs in their order: when it has a later one, it has taken or dropped the one before.
        send(NEW, 1)
        eventually("zebra has a third host", lambda: is_known(frr, NEW, 1))
        was_missed = not is_known(frr, NEW)
        async with refresher():
            # Whether it is missed is zebra's; that it is known in the end, is not.
            def announced() -> bool:
                send(NEW)
                return is_known(frr, NEW)

            await trio.to_thread.run_sync(partial(eventually, "zebra has the second host", announced))
            # Whatever else is to be forgotten would be by now.
            until = trio.current_time() + 2 * PATIENCE
            while trio.current_time() < until:
                await trio.sleep(0.5)
                assert is_known(frr, OLD)
        assert not {mac(OLD), mac(NEW, 1)} & gone()
        assert (mac(NEW) in gone()) == was_missed
