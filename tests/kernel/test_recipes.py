"""The recipe for pods on a segment with Debian's bridge plugin and the page's definition, on a real kernel."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.actors.netlink.builders import l2vni, l3vni, state, underlay
from tests.kernel.node import Node, ip
from tests.recipes import documents, find, router_file

PAGE = "multus-bridge.md"
POD = "recipe-pod"


@pytest.fixture
def pod() -> Iterator[str]:
    """A pod's network namespace."""
    ip("netns", "add", POD)
    yield POD
    subprocess.run(["ip", "netns", "del", POD], check=False, capture_output=True)


def plugin(node: Node, command: str, configuration: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin as Multus does, with the definition's configuration."""
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "recipe",
        "CNI_NETNS": f"/run/netns/{POD}",
        "CNI_IFNAME": "net1",
        "CNI_PATH": str(node.plugins),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    return subprocess.run(
        [node.plugins / "bridge"], input=configuration, env=environment, capture_output=True, text=True, check=False
    )


def test_the_page_on_multus_attaches_a_pod_to_the_segment(node: Node, pod: str) -> None:
    [segment] = documents(router_file(PAGE))[0]["l2vnis"]
    [gateway] = segment["gatewayIPs"]
    network = l2vni("tenant", segment["vni"], vrf="red", gateways=(gateway,))
    desired = state(underlay=underlay(Node.NIC), l3vnis=(l3vni("red", 100, pairs=()),), l2vnis=(network,))
    assert node.converge(desired).clean
    definition = find(PAGE, "NetworkAttachmentDefinition")["spec"]["config"]
    done = plugin(node, "ADD", definition)
    assert done.returncode == 0, done.stdout + done.stderr
    [outside] = [one for one in json.loads(done.stdout)["interfaces"] if one["name"].startswith("veth")]
    port = node.link(outside["name"], router=False)
    bridge = f"br-hs-{segment['vni']}"
    segment_mtu = node.link(f"host-e-{segment['vni']}", router=False)["mtu"]
    assert (port["master"], port["mtu"]) == (bridge, segment_mtu)
    assert f"mtu {segment_mtu} " in ip("-n", pod, "link", "show", "net1")
    address = gateway.partition("/")[0]
    ip("netns", "exec", pod, "ping", "-c1", "-W5", "-w20", address)
    assert ip("-n", pod, "route", "get", "203.0.113.7").split()[:3] == ["203.0.113.7", "via", address]
    # Nothing of the router's is changed by the port, and its removal leaves the bridge.
    assert node.converge(desired).writes == 0
    assert plugin(node, "DEL", definition).returncode == 0
    assert node.link(bridge, router=False)["linkinfo"]["info_kind"] == "bridge"
