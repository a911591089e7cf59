"""The node and its cluster: the API server is behind the fabric that the static files bring up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from config.api import INDEX_ANNOTATION
from guestvm.machine import UPLINK_HOST, Machine
from kubeserver import build, golang
from kubeserver.errors import NoGoError
from tests.cluster.harness import ClusterServer

from .cluster import CREDENTIALS, Cluster, give_credentials, give_uplink
from .commands import eventually, has_link, no_ping_lost, property_of, status
from .evidence import LOGS

#: An emulated node that loads its credentials for the first time imports a large library.
SECONDS = 300
SEGMENT = {"vni": 220, "hostMaster": {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}}}
FAR = "192.168.220.20"
NEAR = "192.168.220.10"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """An API server on the host, with what is shipped for it."""
    if not build.built(build.api_server(build.NEWEST)):
        try:
            golang.find_go()
        except NoGoError as error:
            pytest.skip(str(error))
    server = ClusterServer(build.NEWEST, logs=LOGS / "cluster")
    server.start()
    cluster = Cluster(server, "node1")
    cluster.prepare()
    yield cluster
    server.discard()


@pytest.fixture(scope="module")
def joined(configured: Machine, cluster: Cluster) -> Iterator[Machine]:
    """The node, forwarding from its files, with credentials for the cluster."""
    give_uplink(configured)
    configured.remote.run(f"/usr/local/libexec/fabric/segment 220 {FAR}/24")
    give_credentials(configured, cluster)
    yield configured
    configured.remote.run(f"rm -rf {CREDENTIALS}; ip netns delete near-220; ip netns delete far-220", check=False)


@pytest.fixture
def member(joined: Machine, node: Machine) -> Machine:
    """The member of the cluster; evidence is collected when the test that uses it fails."""
    assert joined is node
    return joined


def api(node: Machine) -> dict[str, object]:
    """Return what the node says of the API server."""
    found = status(node).get("api")
    return found if isinstance(found, dict) else {}


def pings(node: Machine, count: int = 5) -> bool:
    """Ping the segment's far host from the near one."""
    done = node.remote.run(f"ip netns exec near-220 ping -n -c {count} -i 0.2 -W 2 -w 20 {FAR}", check=False)
    return done.returncode == 0


def test_the_server_is_reached_through_the_fabric(member: Machine, cluster: Cluster) -> None:
    eventually(lambda: api(member).get("live") is True, "the API server is watched", seconds=SECONDS)
    assert "host-e-100" in member.remote.run(f"ip route get {UPLINK_HOST}").stdout
    index = str(status(member)["node_index"])
    eventually(
        lambda: cluster.node()["metadata"].get("annotations", {}).get(INDEX_ANNOTATION) == index,
        "the Node has its index",
        seconds=SECONDS,
    )


def test_the_cluster_sees_the_node_and_its_files(member: Machine, cluster: Cluster) -> None:
    eventually(lambda: cluster.condition("Ready") == "True", "the node's status says Ready", seconds=SECONDS)
    assert cluster.names("l3vnis") == {"static-node1-red"}
    assert cluster.names("l2vnis") == {"static-node1-stretched"}
    assert cluster.names("underlays") == {"static-node1-underlay-0"}
    assert cluster.names("l3passthroughs") == {"static-node1-l3passthrough"}


def test_a_network_from_the_api_works_beside_those_of_the_files(member: Machine, cluster: Cluster) -> None:
    cluster.create("l2vnis", "tenant", SEGMENT)
    eventually(lambda: has_link(member, "vni220"), "the segment's VXLAN device is there", seconds=SECONDS)
    eventually(lambda: member.remote.run("test -e /sys/class/net/br-hs-220", check=False).returncode == 0, "its bridge")
    member.remote.run(f"/usr/local/libexec/fabric/segment --attach 220 {NEAR}/24")
    eventually(lambda: pings(member), "the segment's hosts reach each other", seconds=SECONDS)


def test_the_server_goes_away_and_nothing_is_lost(member: Machine, cluster: Cluster) -> None:
    with no_ping_lost(member, FAR, netns="near-220"):
        cluster.server.stop()
        eventually(lambda: api(member).get("live") is False, "the server is unreachable", seconds=SECONDS)
        assert has_link(member, "vni220")
        cluster.server.start()
        eventually(lambda: api(member).get("live") is True, "the server is watched again", seconds=SECONDS)


def test_a_start_without_memory_of_a_server_that_is_unreachable_takes_nothing_away(
    member: Machine, cluster: Cluster
) -> None:
    with no_ping_lost(member, FAR, netns="near-220"):
        cluster.server.stop()
        member.remote.run("systemctl stop openperouter", seconds=300)
        member.remote.run("rm /var/lib/openperouter/api-snapshot.json; rm -f /run/openperouter/api-snapshot.json")
        member.remote.run("systemctl start --no-block openperouter")
        eventually(lambda: "until the API answers" in str(status(member).get("summary")), "it says so", seconds=SECONDS)
        assert has_link(member, "vni220")
        # It is reached through the router.
        cluster.server.start()
        eventually(lambda: api(member).get("live") is True, "the server is watched again", seconds=SECONDS)
        eventually(lambda: property_of(member, "ActiveState") == "active", "the router is ready", seconds=SECONDS)
    assert has_link(member, "vni220")


def test_a_reboot_while_the_server_is_unreachable_loses_nothing(member: Machine, cluster: Cluster) -> None:
    cluster.server.stop()
    member.restart()
    eventually(lambda: property_of(member, "ActiveState") == "active", "the router is ready", seconds=SECONDS)
    assert has_link(member, "vni220")
    member.remote.run("/usr/local/libexec/fabric/attach")
    member.remote.run(f"/usr/local/libexec/fabric/segment 220 {FAR}/24")
    member.remote.run(f"/usr/local/libexec/fabric/segment --attach 220 {NEAR}/24")
    eventually(lambda: pings(member), "the segment's hosts reach each other", seconds=SECONDS)
    assert api(member).get("source") == "memory"
    give_uplink(member)
    cluster.server.start()
    eventually(lambda: api(member).get("live") is True, "the server is watched again", seconds=SECONDS)
    cluster.delete("l2vnis", "tenant")
    eventually(lambda: not has_link(member, "vni220"), "what was deleted in the cluster is gone", seconds=SECONDS)
    assert has_link(member, "vni100")
