"""How a node gets its credentials, on a real API server: by the hostbridge's pod, and by ``join``.

The pod's token passes the admission policies for what is its node's, and for nothing of another node.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio
import yaml

from actors.lib.kube.credentials import load
from actors.lib.kube.errors import NotFoundError
from config.api import ApiCredentials
from config.desired import Secret
from supervisor.operations.cluster.hostbridge import Hostbridge
from supervisor.operations.cluster.join import examine, from_kubeconfig, from_token
from supervisor.operations.cluster.kubeconfig_file import kubeconfig_text, write_kubeconfig
from supervisor.operations.cluster.pod import ServerAddress
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ROOT,
    ClusterServer,
    both_versions,
    kube,
    of_node,
    service_account,
)
from tests.cluster.permissions import ACCOUNT, NAMESPACE, documents, path_of
from tests.cluster.test_node_isolation import Pair, all_writes, pair, refusal

__all__ = ["pair"]

BASE: Final = ROOT / "packaging/kubernetes/hostbridge"
OWNER: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/openperouter-hostbridge"


def manifests() -> list[dict[str, Any]]:
    """Return what the kustomization has, in its order."""
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [one for name in names for one in documents(BASE / name)]


async def token_of_pod(pair: Pair, node: str) -> str:
    """Return what the kubelet of a node gets for the DaemonSet's pod there."""
    [daemonset] = [one for one in manifests() if one["kind"] == "DaemonSet"]
    template = daemonset["spec"]["template"]
    name = f"hostbridge-{node}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "nodeName": node, "priorityClassName": ""},
    }
    [source] = [
        one["serviceAccountToken"]
        for volume in template["spec"]["volumes"]
        for one in volume.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in one
    ]
    created = await pair.a.admin.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": created["metadata"]["uid"]}
    seconds = source["expirationSeconds"]
    credentials = await service_account(pair.a.admin, NAMESPACE, ACCOUNT, seconds=seconds, bound=bound)
    assert credentials.token is not None
    return credentials.token.reveal()


async def bridged(server: ClusterServer, directory: Path, token: str) -> Hostbridge:
    """Return a hostbridge whose pod has this token, after it has written."""
    account = directory / "account"
    account.mkdir()
    (account / "token").write_text(token)
    (account / "ca.crt").write_text(server.ca)
    bridge = Hostbridge(account, directory / "host" / "kubeconfig", ServerAddress(server.url), OWNER)
    assert bridge.step() == ""
    return bridge


@both_versions
async def test_the_manifests_are_accepted(server: ClusterServer, system: str) -> None:
    async with kube(server.admin) as client:
        for one in manifests():
            path = path_of(one)
            strict = {"dryRun": "All", "fieldValidation": "Strict"}
            with suppress(NotFoundError):
                await client.delete(path)
            answer = await client.create(path.rpartition("/")[0], one, strict)
            assert answer["metadata"]["name"] == one["metadata"]["name"]


@both_versions
async def test_the_pods_token_is_good_for_its_node_alone(server: ClusterServer, pair: Pair, tmp_path: Path) -> None:
    bridge = await bridged(server, tmp_path, await token_of_pod(pair, pair.a.node.name))
    credentials = (await load(bridge.output)).credentials
    async with kube(credentials) as client:
        assert [await refusal(write(client)) for write in all_writes(pair.a)] == [None] * 4
        assert None not in [await refusal(write(client)) for write in all_writes(pair.b)]
    verdict = await examine(credentials, pair.a.node.name, NAMESPACE)
    assert (verdict.faults, verdict.warnings) == ((), ())
    [warning] = (await examine(credentials, pair.b.node.name, NAMESPACE)).warnings
    assert f"bound to the node {pair.a.node.name}" in warning


@both_versions
async def test_the_credentials_go_with_the_daemonset(server: ClusterServer, pair: Pair, tmp_path: Path) -> None:
    admin = pair.a.admin
    for one in manifests():
        await admin.apply(path_of(one), one, manager=MANAGER)
    bridge = await bridged(server, tmp_path, await token_of_pod(pair, pair.a.node.name))
    with trio.fail_after(PATIENCE):
        # The server takes a moment from a role to its effect.
        while await bridge.is_uninstalled():  # noqa: ASYNC110
            await trio.sleep(0.1)
    await bridge.end()
    assert bridge.output.exists()
    await admin.delete(OWNER)
    await bridge.end()
    assert not bridge.output.exists()


@both_versions
async def test_joining_by_a_token_and_by_a_kubeconfig(server: ClusterServer, pair: Pair, tmp_path: Path) -> None:
    node = pair.a.node.name
    authority = tmp_path / "ca.crt"
    authority.write_text(server.ca)
    bound = await service_account(pair.a.admin, NAMESPACE, ACCOUNT, bound=of_node(node))
    assert bound.token is not None
    credentials = from_token(bound.token.reveal() + "\n", server.url, authority)
    verdict = await examine(credentials, node, NAMESPACE)
    assert (verdict.faults, verdict.warnings, len(verdict.notes)) == ((), (), 7)
    assert credentials.expires_at is not None
    stored = tmp_path / "kubeconfig"
    assert write_kubeconfig(stored, kubeconfig_text(credentials))
    again = await from_kubeconfig(stored)
    assert (again.server, again.token, again.ca) == (credentials.server, credentials.token, credentials.ca)
    [warning] = (await examine(pair.unbound, node, NAMESPACE)).warnings
    assert "bound to no node" in warning


@both_versions
async def test_what_cannot_join(server: ClusterServer, pair: Pair) -> None:
    node, good = pair.a.node.name, pair.a.account

    async def faults(credentials: ApiCredentials, name: str = node) -> str:
        return "; ".join((await examine(credentials, name, NAMESPACE)).faults)

    assert "does not accept" in await faults(replace(good, token=Secret("eyJhbGciOiJub25lIn0.e30.c2VjcmV0")))
    assert "no Node absent" in await faults(good, "absent")
    assert "not allowed" in await faults(server.credentials("a-user"))
    assert "127.0.0.1:1" in await faults(replace(good, server="https://127.0.0.1:1"))
