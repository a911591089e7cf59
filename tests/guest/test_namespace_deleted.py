"""The router's namespace is deleted under it: the fix that the doctor names brings everything back."""

from __future__ import annotations

import json

from demo.checks import CHECKS, LEAF
from guestvm.machine import Machine

from .commands import eventually, findings, status

#: Replaces what died with the namespace. The end at the node is bare and down, as of a NIC that the kernel returns.
WIRE = f"""
ip link add toswitch1 type veth peer name tonode netns leaf
ip -n leaf address add {LEAF}/24 dev tonode
ip -n leaf link set tonode up
"""


def wired(node: Machine) -> bool:
    """Say whether the leaf has its end of the wire, which dies with the other one."""
    return node.remote.run("ip -n leaf link show dev tonode", check=False).returncode == 0


def reports(node: Machine, what: str) -> bool:
    """Say whether the daemon's status has these words anywhere."""
    return what in json.dumps(status(node))


def test_a_deleted_namespace_is_missed_and_the_named_fix_brings_it_back(node: Machine) -> None:
    node.remote.run("ip netns delete perouter")
    try:
        eventually(lambda: reports(node, "netns perouter missing"), "the daemon misses the namespace")
        # FRR keeps it alive, and the NIC in it.
        assert wired(node)
        [missed] = [found for found in findings(node) if found["topic"] == "netns"]
        assert missed["level"] == "error"
        node.remote.run(missed["fix"].split("; a virtual")[0])
        eventually(lambda: not wired(node), "no process keeps the old namespace")
        eventually(lambda: reports(node, "neither in the host nor in the router"), "the NIC is missed", seconds=300)
    finally:
        if node.remote.run("ip netns exec perouter true", check=False).returncode != 0:
            node.remote.run("systemctl restart frr@perouter", seconds=300)
        if not wired(node):
            node.remote.run(WIRE)
    for check in CHECKS:
        verdict = check.wait(node, seconds=300)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"
    # What the NIC had came from the journal; the kernel gave it back bare.
    assert "192.168.11.3/24" in node.remote.run("ip -n perouter address show dev toswitch1").stdout
