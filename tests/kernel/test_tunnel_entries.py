"""The router MACs that zebra puts into the kernel, read back from a real one."""

from __future__ import annotations

import pytest
import trio

from actors.lib.network_namespace import NAMESPACES
from actors.lib.tunnel_entries import TunnelEntries
from actors.netlink.wire import neighbors
from actors.netlink.wire.namespace import NamespaceMissing
from actors.netlink.wire.neighbors import tunnel_entries
from tests.actors.netlink.builders import demo
from tests.kernel.node import Node, ip

BRIDGES, VXLANS = ("br-pe-100", "br-pe-404"), ("vni100", "vni404")
MAC, OTHER = "02:00:00:00:40:01", "02:00:00:00:40:02"


async def read() -> TunnelEntries:
    return await tunnel_entries(NAMESPACES / Node.NETNS, BRIDGES, VXLANS)


def unicast(found: TunnelEntries) -> set[tuple[str, str, str]]:
    """Return the neighbours without the kernel's own ones of multicast groups."""
    return {neighbor for neighbor in found.neighbors if not int(neighbor[2][:2], 16) & 1}


@pytest.mark.parametrize("few", [0, neighbors.FEW_LINKS])
async def test_router_macs_are_read_as_zebra_writes_them(node: Node, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Not those of other devices, nor bridge entries without a tunnel endpoint; a device that is missing has none."""
    monkeypatch.setattr(neighbors, "FEW_LINKS", few)
    node.converge(demo())
    assert unicast(await read()) == set()
    assert (await read()).endpoints == set()
    for address in ("100.64.0.1", "::ffff:100.64.0.1", "2001:db8::9"):
        neighbor = ("lladdr", MAC, "nud", "noarp", "extern_learn", "dev")
        node.router("neigh", "replace", address, *neighbor, "br-pe-100")
        node.router("neigh", "replace", address, *neighbor, "br-pe-110")
    for mac, endpoint in ((MAC, "100.64.0.1"), (OTHER, "100.64.0.2")):
        for device in ("vni100", "vni110"):
            bridge("replace", mac, "dev", device, "dst", endpoint, "self", "extern_learn")
            bridge("replace", mac, "dev", device, "master", "extern_learn")
    found = await read()
    assert unicast(found) == {
        ("br-pe-100", address, MAC) for address in ("100.64.0.1", "::ffff:100.64.0.1", "2001:db8::9")
    }
    assert found.endpoints == {("vni100", MAC, "100.64.0.1"), ("vni100", OTHER, "100.64.0.2")}
    bridge("del", MAC, "dev", "vni100", "dst", "100.64.0.1", "self")
    assert (await read()).endpoints == {("vni100", OTHER, "100.64.0.2")}


async def test_a_reading_does_not_keep_the_namespace(node: Node) -> None:
    """A NIC is stuck in a namespace that an open socket keeps after its deletion; this one's ends with it."""
    node.converge(demo())
    assert "leaf" in node.names(router=False)
    await read()
    node.crash()
    ip("netns", "del", Node.NETNS)
    with trio.fail_after(60):
        while "leaf" in node.names(router=False):  # noqa: ASYNC110 - the kernel gives no event for a namespace's end
            await trio.sleep(0.05)
    with pytest.raises(NamespaceMissing, match=f"netns {Node.NETNS} missing"):
        await read()


def bridge(*arguments: str) -> None:
    ip("netns", "exec", Node.NETNS, "bridge", "fdb", *arguments)
