"""Seconds for the kernel's part of changes, against ``ip -batch`` with the same objects; a part of :mod:`.performance`.

Runs in the machine of ``tests/harness/uml/run.py``: a kernel with VRFs, without FRR. There system calls are about ten
times slower than elsewhere and Python is not, so the ratios say how many system calls a change takes, rather than how
much Python. Every change counts to the end of its verification. The limits are multiples of ``ip -batch``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from config.desired import DesiredState
from tests.actors.netlink.builders import l3vni, state
from tests.kernel.node import Node, ip

from .files import net
from .stopwatch import compare, measure

COUNT = 100
#: Multiples of ``ip -batch``, which verifies nothing.
LIMIT = 2.0
#: What one VNI more may cost, as a part of what ``ip -batch`` takes for a hundred.
LIMIT_OF_ONE = 0.25


def subnet(number: int) -> tuple[str, str]:
    """Return the router's and the host's address of a network."""
    return f"{net(number)}.1/24", f"{net(number)}.2/24"


def networks(count: int) -> DesiredState:
    """Return a state with that many L3VNIs with a host session each."""
    return state(l3vnis=tuple(l3vni(f"t{number}", 1000 + number, pairs=(subnet(number),)) for number in range(count)))


def in_router(number: int) -> Iterator[str]:
    """Yield iproute2's commands for a network in the router's namespace, before the veth."""
    vni = 1000 + number
    table = 10_000_000 + vni
    yield f"link add t{number} group 4243 type vrf table {table}"
    yield f"link set t{number} alias t{number} up"
    yield f"route add unreachable default table {table} metric 4278198272"
    yield f"route add unreachable ::/0 table {table} metric 4278198272"
    yield f"link add br-pe-{vni} group 4243 type bridge"
    yield f"link set br-pe-{vni} addrgenmode none"
    yield f"link set br-pe-{vni} master t{number} alias t{number} up"
    yield f"link add vni{vni} group 4243 type vxlan id {vni} dev lo local 100.65.0.0 dstport 4789 nolearning"
    yield f"link set vni{vni} addrgenmode none"
    yield f"link set vni{vni} master br-pe-{vni} alias t{number} up"
    yield f"link set vni{vni} type bridge_slave neigh_suppress on"


def in_host(number: int, netns: str = Node.NETNS) -> Iterator[str]:
    """Yield the commands in the host; ``netns`` is the router's namespace."""
    vni = 1000 + number
    yield f"link add host-e-{vni} mtu 1450 group 4243 type veth peer name pe-e-{vni} mtu 1450 netns {netns}"
    yield f"link set host-e-{vni} alias t{number} up"
    yield f"addr add {subnet(number)[1]} brd + dev host-e-{vni}"


def veth_in_router(number: int) -> Iterator[str]:
    """Yield the commands for the veth's end in the router."""
    vni = 1000 + number
    yield f"link set pe-e-{vni} master t{number} group 4243 alias t{number} up"
    yield f"addr add {subnet(number)[0]} brd + dev pe-e-{vni}"


def with_iproute2(directory: Path, count: int) -> None:
    """Make all of it with three runs of ``ip -batch``."""
    batches = ((("-n", Node.NETNS), in_router), ((), in_host), (("-n", Node.NETNS), veth_in_router))
    for where, commands in batches:
        file = directory / "batch"
        file.write_text("".join(f"{line}\n" for number in range(count) for line in commands(number)))
        ip(*where, "-batch", str(file))


def main() -> int:
    """Measure the baseline, then every change."""
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory) / "state")
        node.build()
        floor, _ = measure(
            f"ip -batch: {COUNT} L3VNIs", partial(with_iproute2, Path(directory), COUNT), clock=time.monotonic
        )
        made = len(node.names())
        node.close()
        node.build()
        node.converge(networks(0))

        def change(what: str, count: int) -> float:
            seconds, result = measure(what, partial(node.converge, networks(count)), clock=time.monotonic)
            assert result.clean, (result.failures, result.errors)
            assert result.writes > 0
            return seconds / floor

        try:
            kept = compare("to ip -batch", change(f"0 to {COUNT} L3VNIs", COUNT), LIMIT)
            assert len(node.names()) == made + 1, "the baseline lacks devices, but for the NIC"
            measure("observation, nothing changed", partial(node.plan, networks(COUNT)), clock=time.monotonic)
            kept &= compare("to ip -batch", change("one more", COUNT + 1), LIMIT_OF_ONE)
            kept &= compare("to ip -batch", change("half of them less", COUNT // 2))
            node.crash()
            again, result = measure(
                "a new process that finds all of it", partial(node.converge, networks(COUNT // 2)), clock=time.monotonic
            )
            assert result.writes == 0
            return 0 if compare("to ip -batch", again / floor, LIMIT_OF_ONE) and kept else 1
        finally:
            node.close()


if __name__ == "__main__":
    sys.exit(main())
