"""A cluster for the guest: its API server runs on the host, and the node reaches it through the fabric only.

The guest's second NIC is the leaf's, in tenant "red". So the way to the API server begins with what the static files
bring up: a session with the leaf, VRF red, its veth to the host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import trio
import yaml

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import NotFoundError
from config.api import API_VERSION, NODE_STATUS_PLURAL
from guestvm.machine import UPLINK_HOST, UPLINK_MAC, Machine
from tests.cluster.harness import ROOT, ClusterServer, install_crds, kube, make_namespace, make_node

NAMESPACE = "openperouter-system"
CREDENTIALS = "/var/lib/hostbridge"
#: The leaf's address on the NIC; QEMU itself answers at UPLINK_HOST.
LEAF_ADDRESS = "10.0.3.15/24"
_MANIFESTS = ROOT / "packaging" / "kubernetes"

T = TypeVar("T")


class Cluster:
    """What an administrator of the cluster does, one blocking call each."""

    def __init__(self, server: ClusterServer, node_name: str) -> None:
        self.server = server
        self.node_name = node_name

    def prepare(self) -> None:
        """Install what is shipped for the cluster, and make the Node."""
        self._do(self._prepare)

    async def _prepare(self, client: KubeClient) -> None:
        await install_crds(client)
        await make_namespace(client, NAMESPACE)
        for file in sorted(_MANIFESTS.glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                await client.apply(path_of(document), document, manager="admin")
        await make_node(client, self.node_name)

    def create(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        """Create or change a custom resource, as ``kubectl apply`` does."""
        kind = {"l2vnis": "L2VNI", "l3vnis": "L3VNI"}[plural]
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}
        self._do(lambda client: client.apply(_path(plural, name), {**body, "spec": spec}, manager="admin"))

    def delete(self, plural: str, name: str) -> None:
        """Delete a custom resource."""
        self._do(lambda client: client.delete(_path(plural, name)))

    def get(self, plural: str, name: str) -> dict[str, Any]:
        """Return an object, empty when there is none."""
        return self._read(_path(plural, name))

    def names(self, plural: str) -> set[str]:
        """Return the names of all objects of a kind."""
        items = self._read(f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}").get("items", [])
        return {item["metadata"]["name"] for item in items}

    def node(self) -> dict[str, Any]:
        """Return the Node."""
        return self._read(f"/api/v1/nodes/{self.node_name}")

    def condition(self, type_: str) -> str:
        """Return the status of a condition of the node's RouterNodeConfigurationStatus; empty: it is not there."""
        status = self.get(NODE_STATUS_PLURAL, self.node_name).get("status", {})
        return next((one["status"] for one in status.get("conditions", []) if one["type"] == type_), "")

    def token(self) -> str:
        """Return a token of the ServiceAccount that is shipped."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": 7200,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": self.node_name},
            },
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/controller/token"
        answer = self._do(lambda client: client.create(path, request))
        return str(answer["status"]["token"])

    def _read(self, path: str) -> dict[str, Any]:
        async def read(client: KubeClient) -> dict[str, Any]:
            try:
                return await client.get(path)
            except NotFoundError:
                return {}

        return self._do(read)

    def _do(self, work: Callable[[KubeClient], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            async with kube(self.server.admin) as client:
                return await work(client)

        return trio.run(run)


def path_of(document: dict[str, Any]) -> str:
    """Return the API's path of an object of the kinds in our manifests."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    plural = re.sub("ys$", "ies", f"{kind.lower()}s")
    return f"{root}{scope}/{plural}/{document['metadata']['name']}"


def _path(plural: str, name: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}/{name}"


def give_uplink(node: Machine) -> None:
    """Hand the second NIC to the leaf."""
    node.remote.run(f"/usr/local/libexec/fabric/uplink {UPLINK_MAC} {LEAF_ADDRESS}")


def give_credentials(node: Machine, cluster: Cluster) -> None:
    """Fill the credentials directory as the proxy in the cluster does: its kubeconfig names files elsewhere."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "clusters": [
            {
                "name": "default",
                "cluster": {
                    "server": f"https://{UPLINK_HOST}:{cluster.server.port}",
                    "certificate-authority": "/shared/ca.crt",
                },
            }
        ],
        "users": [{"name": "default", "user": {"tokenFile": "/shared/token"}}],
    }
    files = {"ca.crt": cluster.server.ca, "token": cluster.token(), "kubeconfig": json.dumps(kubeconfig)}
    node.remote.run(f"install -d -m 700 {CREDENTIALS}")
    for name, text in files.items():
        node.remote.run(
            f"umask 077; cat >{CREDENTIALS}/{name}.new && mv {CREDENTIALS}/{name}.new {CREDENTIALS}/{name}", stdin=text
        )
