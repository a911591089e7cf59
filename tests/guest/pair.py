"""Two nodes on one fabric: two guests, a cable between them, and a leaf in the first that both are wired to.

    node-a (guest)                                     node-b (guest)
    router -- toswitch1 ===veth=== leaf -- NIC ==========cable=== NIC -- router
                                   VRF red: 192.168.20.2
                                   segment 220: 10.220.0.20

On each node there is a BGP speaker (FRR ``hostbgp``) in the host, with pods of two sorts: one on the segment's bridge,
one that is routed by the host. The API server runs on the machine of the tests and is reached by a NIC of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.api import API_VERSION
from demo import topology
from guestvm.image import ensure_image
from guestvm.machine import UPLINK_HOST, UPLINK_MAC, Cable, Machine
from guestvm.tree import ANSIBLE_NODE

from .cluster import NAMESPACE, Cluster

#: What each of two emulated machines needs; most of it is FRR's and the page cache.
_MEMORY = "1536M"
_KUBECTL_SECONDS = 300
_JOIN_SECONDS = 300
_LEAF_MAC = "52:54:00:00:01:01"
NIC_MAC = "52:54:00:00:01:02"
#: The pods' segment, an L2VNI, with the anycast gateway; and its host behind the leaf.
SEGMENT_VNI = 220
GATEWAY = "10.220.0.1"
FAR = "10.220.0.20"
#: A host behind the leaf in VRF red, the network of the nodes' files.
FABRIC_HOST = "192.168.20.2"
FABRIC_ASN, ROUTER_ASN, HOST_ASN = 64512, 64514, 64515
#: One stream of TCP: long enough for segments that would not fit into the tunnel.
TRANSFER_BYTES = 4 << 20

#: Addresses as a server has them: by systemd-networkd, also after the router gives the NIC back.
_NETWORK = """[Match]
Driver=virtio_net
MACAddress={mac}

[Network]
Address={address}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""

_SERVE = """
import hashlib, socket, sys
server = socket.create_server((sys.argv[1], 5001))
server.settimeout(300)
print("listening", flush=True)
connection, _ = server.accept()
connection.settimeout(300)
digest, size = hashlib.sha256(), 0
while block := connection.recv(65536):
    digest.update(block)
    size += len(block)
print(size, digest.hexdigest(), flush=True)
"""
_SEND = """
import hashlib, os, socket, sys
data = os.urandom(int(sys.argv[2]))
with socket.create_connection((sys.argv[1], 5001), timeout=300) as connection:
    connection.sendall(data)
print(len(data), hashlib.sha256(data).hexdigest())
"""


@dataclass(frozen=True, slots=True)
class PairedNode:
    """One of the two: its name, its number, and where it is wired to."""

    name: str
    number: int
    machine: Machine
    nic: str
    address: str
    leaf: str

    @property
    def on_segment(self) -> str:
        """Address of the pod on the segment."""
        return f"10.220.0.{10 + self.number}"

    @property
    def behind_host(self) -> str:
        """Address of the pod that the host routes."""
        return f"10.244.{self.number}.10"

    def underlay(self) -> dict[str, Any]:
        """Return this node's Underlay, which differs from the other's in NIC and leaf."""
        spec = {
            "asn": ROUTER_ASN,
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": self.name}},
            "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": self.nic}}],
            "neighbors": [{"asn": FABRIC_ASN, "address": self.leaf}],
            "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
        }
        return custom_resource("Underlay", self.name, spec)

    def attach_pods(self) -> None:
        """Make both pods' namespaces, once the router made the segment's bridge; those that are there go."""
        number = self.number
        self.machine.remote.run(
            f"""set -e
            for pod in pod-segment pod-routed; do ! [ -e /run/netns/$pod ] || ip netns delete $pod; done
            ip netns add pod-segment; ip netns add pod-routed
            ip link add to-segment mtu 1450 type veth peer name eth0 mtu 1450 netns pod-segment
            ip link set to-segment master br-hs-{SEGMENT_VNI} up
            ip -n pod-segment link set eth0 up
            ip -n pod-segment address add {self.on_segment}/24 dev eth0
            ip -n pod-segment route add default via {GATEWAY}
            ip link add to-routed mtu 1450 type veth peer name eth0 mtu 1450 netns pod-routed
            ip address add 10.244.{number}.1/24 dev to-routed
            ip link set to-routed up
            ip -n pod-routed link set eth0 up
            ip -n pod-routed address add {self.behind_host}/24 dev eth0
            ip -n pod-routed route add default via 10.244.{number}.1
            sysctl -q -w net.ipv4.ip_forward=1"""
        )

    def has_bridge(self) -> bool:
        """Whether the router made the segment's bridge."""
        bridge = f"test -e /sys/class/net/br-hs-{SEGMENT_VNI}"
        return self.machine.remote.run(bridge, check=False).returncode == 0

    def pings(self, target: str, *, pod: str) -> bool:
        """Ping from a pod; whether all came back."""
        done = self.machine.remote.run(f"ip netns exec {pod} ping -n -c 5 -i 0.2 -W 2 -w 20 {target}", check=False)
        return done.returncode == 0

    def announce_pods(self) -> None:
        """Have the host's speaker peer with the router in L3VNI blue, and announce the routed pods' network.

        The hosts of all nodes have one AS: without ``allowas-in``, one host takes nothing that another announces.
        """
        self.machine.remote.run(
            "vtysh -N hostbgp -c 'configure terminal' "
            f"-c 'router bgp {HOST_ASN}' -c 'neighbor 172.28.10.1 remote-as {ROUTER_ASN}' "
            "-c 'neighbor 172.28.10.1 timers connect 1' -c 'address-family ipv4 unicast' "
            "-c 'neighbor 172.28.10.1 activate' -c 'neighbor 172.28.10.1 allowas-in 1' "
            f"-c 'network 10.244.{self.number}.0/24'"
        )


class Pair:
    """Both nodes, and what an administrator does with ``kubectl``."""

    def __init__(self, first: PairedNode, second: PairedNode) -> None:
        self.first = first
        self.second = second

    @property
    def nodes(self) -> tuple[PairedNode, PairedNode]:
        """Both nodes."""
        return self.first, self.second

    def transfer(self, source: PairedNode, target: PairedNode, address: str, *, pod: str) -> None:
        """Send bytes over TCP from the pod of one node to that of the other, and compare what arrived."""
        serve = f"ip netns exec {pod} python3 -c '{_SERVE}' {address}"
        target.machine.remote.run(f"rm -f /run/served; {serve} </dev/null >/run/served 2>&1 & echo $!")
        target.machine.remote.run("until grep -q listening /run/served; do sleep 0.2; done")
        sent = source.machine.remote.run(
            f"ip netns exec {pod} python3 -c '{_SEND}' {address} {TRANSFER_BYTES}"
        ).stdout.strip()
        assert sent.startswith(f"{TRANSFER_BYTES} ")
        got = target.machine.remote.run(
            "until [ $(wc -l </run/served) -gt 1 ]; do sleep 0.2; done; tail -n 1 /run/served"
        ).stdout.strip()
        assert got == sent


class Kubectl:
    """The command, as the cluster's administrator."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kubeconfig = cluster.server.admin_kubeconfig()

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run it and return what it prints. Raises AssertionError with what it says when it fails."""
        done = subprocess.run(
            ["kubectl", f"--kubeconfig={self._kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_SECONDS,
            check=False,
            env={**os.environ, "HOME": str(self._kubeconfig.parent)},
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """``kubectl apply`` them."""
        self.run("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, kind: str, name: str, *, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return one object."""
        answer: dict[str, Any] = json.loads(self.run("get", kind, name, "-n", namespace, "-o", "json"))
        return answer

    def join(self, node: PairedNode) -> None:
        """Give a node a token that is bound to it, as docs/cluster.md does."""
        bound = ("--bound-object-kind", "Node", "--bound-object-name", node.name, "--duration", "2h")
        token = self.run("create", "token", "controller", "-n", NAMESPACE, *bound)
        server = self._cluster.server
        node.machine.remote.run("cat >/root/ca.crt", stdin=server.ca)
        url = f"https://{UPLINK_HOST}:{server.port}"
        node.machine.remote.run(
            f"openperouter join --server {url} --authority /root/ca.crt", stdin=token, seconds=_JOIN_SECONDS
        )


def custom_resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object for ``kubectl apply``."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def networks() -> list[dict[str, Any]]:
    """Return the networks that both nodes have from the API: L3VNI blue, and a segment that it routes."""
    session = {"asn": ROUTER_ASN, "hostASN": HOST_ASN, "localCIDR": {"ipv4": "172.28.10.0/24"}}
    segment = {
        "vni": SEGMENT_VNI,
        "gatewayIPs": [f"{GATEWAY}/24"],
        "hostMaster": {"type": "LinuxBridge", "linuxBridge": {"lifecycle": "Managed"}},
        "routingDomain": {"type": "L3VNI", "l3vni": {"name": "blue"}},
    }
    return [
        custom_resource("L3VNI", "blue", {"vrf": "blue", "vni": 200, "hostSession": session}),
        custom_resource("L2VNI", "pods", segment),
    ]


@contextmanager
def booted_pair() -> Iterator[Pair]:
    """Boot both guests at once and lay the fabric; yield them, with nothing of ours installed."""
    image = ensure_image(ANSIBLE_NODE)
    with tempfile.TemporaryDirectory(prefix="openperouter-cable-") as name, ExitStack() as stack:
        ends = (Path(name) / "a", Path(name) / "b")
        cables = (Cable(_LEAF_MAC, ends[0], ends[1]), Cable(NIC_MAC, ends[1], ends[0]))

        machines = [
            stack.enter_context(Machine(image, memory=_MEMORY, uplink=True, name=node, cable=cable))
            for node, cable in zip(("node-a", "node-b"), cables, strict=True)
        ]
        for machine in machines:
            machine.power_on()
        for machine in machines:
            machine.wait_for_shell()
        first, second = machines
        pair = Pair(
            PairedNode("node-a", 1, first, "toswitch1", "192.168.11.3/24", "192.168.11.2"),
            PairedNode("node-b", 2, second, _name_of_nic(second, NIC_MAC), "192.168.12.3/24", "192.168.12.2"),
        )
        with ThreadPoolExecutor() as pool:
            for laid in [pool.submit(_lay_fabric, pair.first), pool.submit(_lay_host, pair.second)]:
                laid.result()
        yield pair


def _name_of_nic(machine: Machine, mac: str) -> str:
    found = machine.remote.run(f"ip -o link | sed -n 's/^[0-9]*: \\([^:]*\\):.* link\\/ether {mac} .*/\\1/p'").stdout
    return found.strip()


def _lay_fabric(node: PairedNode) -> None:
    """Lay the leaf with its hosts, and wire the cable to it: node-a's side."""
    machine = node.machine
    topology.lay_fabric(machine)
    _give_network(machine, "uplink", UPLINK_MAC, "10.0.3.15/24")
    nic = _name_of_nic(machine, _LEAF_MAC)
    machine.remote.run(
        f"""set -e
        ip link set dev {nic} netns leaf name tonode2
        ip -n leaf address add 192.168.12.2/24 dev tonode2
        ip -n leaf link set tonode2 up
        /usr/local/libexec/fabric/segment {SEGMENT_VNI} {FAR}/24
        vtysh -N leaf -c 'configure terminal' -c 'router bgp {FABRIC_ASN}' \
            -c 'neighbor 192.168.12.3 remote-as {ROUTER_ASN}' -c 'neighbor 192.168.12.3 timers connect 1' \
            -c 'address-family l2vpn evpn' -c 'neighbor 192.168.12.3 activate'"""
    )


def _lay_host(node: PairedNode) -> None:
    """Give the other node its NIC's address and its host's BGP speaker."""
    machine = node.machine
    _give_network(machine, "uplink", UPLINK_MAC, "10.0.3.15/24")
    _give_network(machine, "fabric", NIC_MAC, node.address)
    topology.lay_host_speaker(machine)


def _give_network(machine: Machine, name: str, mac: str, address: str) -> None:
    text = _NETWORK.format(mac=mac, address=address)
    machine.remote.run(f"cat >/etc/systemd/network/20-{name}.network && networkctl reload", stdin=text)
