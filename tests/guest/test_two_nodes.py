"""Two whole nodes of one cluster on one fabric: installed by the example's playbook, configured by ``kubectl``.

Both are guests of their own, and what one sends the other crosses the leaf: sessions, routes and tunnels are real. The
tests are one story: both are installed, join a cluster, carry traffic, and one is purged and installed again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from config.api import INDEX_ANNOTATION, NODE_STATUS_PLURAL
from guestvm.logs import collect
from kubeserver import build, golang
from kubeserver.errors import NoGoError
from tests.cluster.harness import ClusterServer

from .cluster import NAMESPACE, Cluster
from .commands import eventually, no_ping_lost, property_of, status
from .evidence import LOGS
from .package import built_package
from .pair import FABRIC_HOST, FAR, Kubectl, Pair, PairedNode, booted_pair, networks
from .playbook import Playbook

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl (Debian: kubernetes-client)")

#: Two emulated machines on two cores; nothing of this takes a minute where KVM works.
SECONDS = 300
#: The router's files of both nodes: L3VNI red. The underlays are objects.
INDICES = {"node-a": 7, "node-b": 4}
INVENTORY = f"""\
routerIDScheme: v2
settings:
  autoApply: false
files:
  - openpe_red.yaml
values:
  asn: 64514
nodes:
  - name: node-a
    index: {INDICES["node-a"]}
  - name: node-b
    index: {INDICES["node-b"]}
"""


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both guests with the fabric around them; evidence of all is kept when a test failed."""
    failed = request.session.testsfailed
    with booted_pair() as pair:
        yield pair
        if request.session.testsfailed > failed:
            for node in pair.nodes:
                collect(node.machine, LOGS.with_name("guest-logs-of-two-nodes") / node.name)


@pytest.fixture(scope="module")
def playbook(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Playbook:
    """The example with an inventory of both."""
    machines = {node.name: node.machine for node in pair.nodes}
    playbook = Playbook(tmp_path_factory.mktemp("fleet"), machines, built_package())
    playbook.inventory.write_text(INVENTORY)
    return playbook


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, Cluster]]:
    """An API server with what is shipped for it and both Nodes; by the node of which it answers."""
    if not build.built(build.api_server(build.NEWEST)):
        try:
            golang.find_go()
        except NoGoError as error:
            pytest.skip(str(error))
    server = ClusterServer(build.NEWEST, logs=LOGS.with_name("guest-logs-of-two-nodes") / "cluster")
    server.start()
    clusters = {name: Cluster(server, name) for name in ("node-a", "node-b")}
    for cluster in clusters.values():
        cluster.prepare()
    yield clusters
    server.discard()


@pytest.fixture(scope="module")
def kubectl(clusters: dict[str, Cluster]) -> Kubectl:
    """The administrator's command."""
    return Kubectl(clusters["node-a"])


def on_both(pair: Pair, work: Callable[[PairedNode], object]) -> None:
    """Do something on both nodes at the same time."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, node) for node in pair.nodes]:
            done.result()


def is_live(node: PairedNode) -> bool:
    """Whether a node follows the API server."""
    api = status(node.machine).get("api")
    return isinstance(api, dict) and api.get("live") is True


def has_its_index(cluster: Cluster) -> bool:
    """Whether the Node has the index of the inventory."""
    annotations: dict[str, str] = cluster.node()["metadata"].get("annotations", {})
    return annotations.get(INDEX_ANNOTATION) == str(INDICES[cluster.node_name])


def is_ready(cluster: Cluster) -> bool:
    """Whether the node's status object says so."""
    return cluster.condition("Ready") == "True"


def forwards(pair: Pair) -> None:
    """Wait until each pod reaches its counterpart on the other node, and a segment's pod a routed one."""
    first, second = pair.nodes
    for source, pod, target in (
        (first, "pod-segment", second.on_segment),
        (first, "pod-routed", second.behind_host),
        (second, "pod-segment", first.behind_host),
    ):
        pings = partial(source.pings, target, pod=pod)
        eventually(pings, f"{pod} of {source.name} reaches {target}", seconds=SECONDS)


def test_the_playbook_installs_both_nodes(pair: Pair, playbook: Playbook) -> None:
    recap = playbook.run()
    assert set(recap) == {"node-a", "node-b"}
    for node in pair.nodes:
        assert recap[node.name]["changed"] > 0
        assert property_of(node.machine, "ActiveState") == "active"
        assert property_of(node.machine, "UnitFileState") == "enabled"
        found = status(node.machine)
        assert (found["node"], found["node_index"]) == (node.name, INDICES[node.name])
        assert [one["name"] for one in found["problems"] if "no underlay" in one["message"]] == ["red"]


def test_a_second_run_changes_nothing(pair: Pair, playbook: Playbook) -> None:
    started = [property_of(node.machine, "ActiveEnterTimestampMonotonic") for node in pair.nodes]
    recap = playbook.run()
    assert {name: counts["changed"] for name, counts in recap.items()} == {"node-a": 0, "node-b": 0}
    assert [property_of(node.machine, "ActiveEnterTimestampMonotonic") for node in pair.nodes] == started


def test_both_nodes_join_the_cluster(pair: Pair, clusters: dict[str, Cluster], kubectl: Kubectl) -> None:
    on_both(pair, kubectl.join)
    for node in pair.nodes:
        eventually(partial(is_live, node), f"{node.name} follows the API server", seconds=SECONDS)
        eventually(partial(has_its_index, clusters[node.name]), f"the Node {node.name} has its index", seconds=SECONDS)


def test_what_kubectl_applies_carries_traffic(pair: Pair, clusters: dict[str, Cluster], kubectl: Kubectl) -> None:
    first, second = pair.nodes
    kubectl.apply(first.underlay(), second.underlay(), *networks())
    for node in pair.nodes:
        eventually(node.has_bridge, f"{node.name} has the segment's bridge", seconds=SECONDS)
    on_both(pair, PairedNode.announce_pods)
    on_both(pair, PairedNode.attach_pods)
    forwards(pair)
    for node in pair.nodes:
        eventually(partial(is_ready, clusters[node.name]), f"the status of {node.name} is Ready", seconds=SECONDS)
    shown = kubectl.run("get", NODE_STATUS_PLURAL, "-n", NAMESPACE, "-o", "name").split()
    assert sorted(one.rpartition("/")[2] for one in shown) == ["node-a", "node-b"]
    pair.transfer(first, second, second.on_segment, pod="pod-segment")
    pair.transfer(second, first, first.behind_host, pod="pod-routed")


def test_a_node_is_reinstalled_and_the_other_loses_nothing(
    pair: Pair, playbook: Playbook, clusters: dict[str, Cluster], kubectl: Kubectl
) -> None:
    first, second = pair.nodes
    daemon = property_of(first.machine, "MainPID")
    eventually(lambda: first.pings(FAR, pod="pod-segment"), "the segment's host behind the leaf", seconds=SECONDS)
    with (
        no_ping_lost(first.machine, FAR, netns="pod-segment"),
        no_ping_lost(first.machine, FABRIC_HOST),
    ):
        second.machine.remote.run("DEBIAN_FRONTEND=noninteractive apt-get -qq purge -y openperouter", seconds=300)
        assert not first.pings(second.on_segment, pod="pod-segment")
        address = f"ip -brief address show dev {second.nic}"
        assert second.address in second.machine.remote.run(address).stdout
        left = second.machine.remote.run("ls -d /etc/openperouter /var/lib/openperouter", check=False)
        assert not left.stdout
        kubectl.run(
            *("delete", "underlays,l3vnis,l2vnis,l3passthroughs,rawfrrconfigs", "-n", NAMESPACE),
            *("-l", "openperouter.github.io/static-node=node-b"),
        )
        assert playbook.run("--limit", "node-b")["node-b"]["changed"] > 0
        kubectl.join(second)
        eventually(second.has_bridge, "the segment's bridge is there again", seconds=SECONDS)
        second.attach_pods()
        forwards(pair)
    assert property_of(first.machine, "MainPID") == daemon
    pair.transfer(first, second, second.on_segment, pod="pod-segment")
    eventually(partial(is_ready, clusters["node-b"]), "it is Ready again", seconds=SECONDS)
