"""The admission webhook, asked by real API servers, with the rights and the configuration that are shipped.

The API server reaches it at a URL on the loopback instead of by its Service; everything else is as in a cluster.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import trio
import yaml

from actors.lib.kube.client import KubeClient, ssl_context
from actors.lib.kube.errors import InvalidError, NotFoundError
from actors.webhook.certificates import next_step, stored_in, utc_now
from actors.webhook.rotation import Storage
from config.api import API_VERSION, PLURALS, ApiCredentials
from config.problems import Kind
from config.resolve.grants import Grants
from supervisor.operations.cluster.webhook import Options, Webhook
from tests.cluster.harness import (
    MANAGER,
    PATIENCE,
    ROOT,
    ClusterServer,
    Json,
    both_versions,
    delete_nodes,
    kube,
    make_node,
    service_account,
)
from tests.cluster.permissions import NAMESPACE, documents, path_of

SHIPPED: Final = ROOT / "packaging" / "kubernetes"
NAMES: Final = ("127.0.0.1",)
UNDERLAY: Final[Json] = {
    "asn": 64514,
    "interfaces": [{"type": "NetworkDevice", "networkDevice": {"interfaceName": "toswitch1"}}],
    "neighbors": [{"asn": 64512, "address": "192.168.11.2"}],
    "tunnelEndpoint": {"cidrs": ["100.65.0.0/24"]},
}


def body(kind: Kind, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"name": name}, "spec": spec}


def collection(namespace: str, kind: Kind) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}"


async def apply_all(client: KubeClient, *files: Path) -> None:
    for file in files:
        for one in documents(file):
            await client.apply(path_of(one), one, manager=MANAGER)


async def is_denied(client: KubeClient, namespace: str, vni: int = 100) -> bool:
    """Whether the webhook refuses another network with a VNI; nothing is stored."""
    spec = {"vrf": "other", "vni": vni}
    try:
        await client.create(collection(namespace, Kind.L3VNI), body(Kind.L3VNI, "other", spec), {"dryRun": "All"})
    except InvalidError as error:
        return f"VNI {vni} is also used by L3VNI {namespace}/red" in str(error)
    return False


async def until_denied(client: KubeClient, namespace: str) -> None:
    """Wait until the API server asks the webhook, and the webhook knows the objects."""
    with trio.fail_after(PATIENCE):
        while not await is_denied(client, namespace):  # noqa: ASYNC110
            await trio.sleep(0.1)


async def with_url(client: KubeClient, port: int) -> None:
    """Install the shipped configuration, for a webhook on the loopback."""
    [configuration] = documents(SHIPPED / "webhook" / "configuration.yaml")
    for one in configuration["webhooks"]:
        one["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
    await client.apply(path_of(configuration), configuration, manager=MANAGER)


@asynccontextmanager
async def prepared(server: ClusterServer) -> AsyncIterator[tuple[KubeClient, ApiCredentials]]:
    """Yield an administrator of a cluster with two nodes, and the webhook's credentials; clean up afterwards."""
    async with kube(server.admin) as client:
        await apply_all(client, SHIPPED / "rbac.yaml", SHIPPED / "webhook" / "rbac.yaml")
        await delete_nodes(client)
        for number, name in enumerate(("node-a", "node-b")):
            await make_node(client, name, {"rack": str(number)})
        account = await service_account(client, NAMESPACE, "webhook")
        try:
            yield client, account
        finally:
            for file in ("configuration.yaml", "rbac.yaml"):
                for one in documents(SHIPPED / "webhook" / file):
                    with suppress(NotFoundError):
                        await client.delete(path_of(one))
            for name in ("node-a", "node-b"):
                await client.delete(f"/api/v1/nodes/{name}")


@asynccontextmanager
async def serving(client: KubeClient, account: ApiCredentials) -> AsyncIterator[Webhook]:
    """Run the webhook with a port of its own, configured in the API server."""
    opened: trio.MemorySendChannel[int]
    opened, ports = trio.open_memory_channel(1)
    place = Storage(NAMESPACE, names=NAMES)
    options = Options(0, place, Grants(NAMESPACE), host="127.0.0.1", poll_seconds=3.0)
    webhook = Webhook(options, lambda: account, opened.send_nowait)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(webhook.supervisor.run)
        await with_url(client, await ports.receive())
        yield webhook
        webhook.supervisor.stop()


async def make_networks(client: KubeClient, namespace: str) -> None:
    await client.create(collection(NAMESPACE, Kind.UNDERLAY), body(Kind.UNDERLAY, "fabric", UNDERLAY))
    await client.create(collection(namespace, Kind.L3VNI), body(Kind.L3VNI, "red", {"vrf": "red", "vni": 100}))


async def warnings_of(server: ClusterServer, path: str, content: Json, **params: str) -> list[str]:
    """Return the warnings that a client gets with the answer to a creation."""
    token = server.admin.token
    assert token is not None
    async with httpx.AsyncClient(verify=ssl_context(server.admin), base_url=server.url) as client:
        headers = {"Authorization": f"Bearer {token.reveal()}"}
        answer = await client.post(path, json=content, params=params, headers=headers)
    assert answer.status_code == 201, answer.text
    joined = ", ".join(answer.headers.get_list("warning"))
    return [json.loads(quoted) for quoted in re.findall(r'299 - ("(?:\\.|[^"\\])*")', joined)]


@both_versions
async def test_what_no_node_could_use_is_denied_and_what_some_refuse_is_a_warning(
    server: ClusterServer, system: str, namespace: str
) -> None:
    async with prepared(server) as (client, account), serving(client, account):
        await make_networks(client, namespace)
        await until_denied(client, namespace)
        l3vnis = collection(namespace, Kind.L3VNI)
        # An update is judged by what it changes to, and one of labels is not judged.
        await client.create(l3vnis, body(Kind.L3VNI, "blue", {"vrf": "blue", "vni": 200}))
        with trio.fail_after(PATIENCE):
            while not await is_refused_update(client, f"{l3vnis}/blue", {"spec": {"vni": 100}}):  # noqa: ASYNC110
                await trio.sleep(0.1)
        await client.merge_patch(f"{l3vnis}/blue", {"metadata": {"labels": {"a": "b"}}}, manager=MANAGER)
        await client.merge_patch(f"{l3vnis}/blue", {"spec": {"vxlanPort": 4790}}, manager=MANAGER)
        # A dry run gets the same answers and changes nothing.
        segment = body(Kind.L2VNI, "segment", {"vni": 300, "routingDomain": {"type": "L3VNI", "l3vni": {"name": "no"}}})
        path = collection(namespace, Kind.L2VNI)
        [missing] = await warnings_of(server, path, segment, dryRun="All")
        assert 'referenced L3VNI "no" not found' in missing
        assert (await client.get(path))["items"] == []
        # What only one of the nodes refuses.
        await client.create(
            l3vnis,
            body(Kind.L3VNI, "green", {"vrf": "green", "vni": 400, "nodeSelector": {"matchLabels": {"rack": "1"}}}),
        )
        other, found = body(Kind.L3VNI, "x", {"vrf": "x", "vni": 400}), list[str]()
        with trio.fail_after(PATIENCE):
            while not found:
                found = await warnings_of(server, l3vnis, other, dryRun="All")
        assert found[0].endswith("(on 1 of 2 nodes)")
        # Deletions are not asked about.
        await client.delete(f"{l3vnis}/red")
        await client.delete(f"{collection(NAMESPACE, Kind.UNDERLAY)}/fabric")


async def is_refused_update(client: KubeClient, path: str, patch: Json) -> bool:
    try:
        await client.try_merge_patch(path, patch)
    except InvalidError as error:
        return "is also used by" in str(error)
    return False


@both_versions
async def test_a_nodes_mirror_is_exempt_and_without_the_webhook_everything_is_admitted(
    server: ClusterServer, system: str, namespace: str
) -> None:
    async with prepared(server) as (client, account):
        async with serving(client, account):
            await make_networks(client, namespace)
            await until_denied(client, namespace)
            mirrored = body(Kind.L3VNI, "static-node-a-red", {"vrf": "other", "vni": 100})
            async with kube(await service_account(client, NAMESPACE, "controller")) as node:
                await mirror_without_policies(client, node, mirrored)
            assert await is_denied(client, namespace)
        assert not await is_denied(client, namespace)


async def mirror_without_policies(client: KubeClient, node: KubeClient, mirrored: Json) -> None:
    """Create a mirror, on a dry run; the policies that another module left may be in force for a moment yet."""
    for one in documents(SHIPPED / "node-policy.yaml"):
        with suppress(NotFoundError):
            await client.delete(path_of(one))
    with trio.fail_after(PATIENCE):
        while True:
            try:
                await node.create(collection(NAMESPACE, Kind.L3VNI), mirrored, {"dryRun": "All"})
            except InvalidError as error:
                assert "ValidatingAdmissionPolicy" in str(error)  # noqa: PT017 - the webhook's refusal is another
                await trio.sleep(0.1)
            else:
                return


@both_versions
async def test_a_new_authority_takes_over_while_every_request_is_answered(
    server: ClusterServer, system: str, namespace: str
) -> None:
    now = utc_now()
    old = next_step(None, "", NAMES, now - timedelta(days=1250))
    assert old is not None
    due = next_step(old, old.bundle, NAMES, now - timedelta(days=45))
    assert due is not None
    assert due.bundle == old.bundle
    async with prepared(server) as (client, account):
        place = Storage(NAMESPACE)
        secret = await client.get(place.secret_path)
        await client.replace(place.secret_path, {**secret, "data": due.as_data()})
        async with serving(client, account) as webhook:
            await make_networks(client, namespace)
            await until_denied(client, namespace)
            # No request is lost meanwhile, nor afterwards: each would be admitted.
            served = webhook.channels.certificates
            with trio.fail_after(PATIENCE):
                while (one := served.peek()) is None or one.certificate == due.certificate:
                    assert await is_denied(client, namespace)
            for _ in range(20):
                assert await is_denied(client, namespace)
            stored = stored_in((await client.get(place.secret_path))["data"])
            assert stored is not None
            assert stored.bundle.count("BEGIN CERTIFICATE") == 2
            assert stored.bundle.endswith(old.bundle)
            assert next_step(stored, stored.bundle, NAMES, now) is None
            configuration: dict[str, Any] = await client.get(place.configuration_path)
            [trusted] = {one["clientConfig"]["caBundle"] for one in configuration["webhooks"]}
            assert base64.b64decode(trusted).decode() == stored.bundle


@both_versions
async def test_the_servers_take_all_that_the_kustomization_has(server: ClusterServer, system: str) -> None:
    async with kube(server.admin) as client:
        names = yaml.safe_load((SHIPPED / "webhook" / "kustomization.yaml").read_text())["resources"]
        for one in (one for name in names for one in documents(SHIPPED / "webhook" / name)):
            made = await client.create(path_of(one).rpartition("/")[0], one, {"dryRun": "All"})
            assert made["kind"] == one["kind"]


async def test_the_account_may_do_nothing_else(server: ClusterServer, system: str, namespace: str) -> None:
    async with prepared(server) as (_, account), kube(account) as webhook:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        refused = [
            {"verb": "list", "resource": "secrets", "namespace": NAMESPACE},
            {"verb": "get", "resource": "secrets", "namespace": NAMESPACE, "name": "bgp-passwords"},
            {"verb": "create", "resource": "secrets", "namespace": NAMESPACE},
            {"verb": "update", "resource": "l3vnis", "group": "network.openperouter.io", "namespace": namespace},
            {
                "verb": "update",
                "resource": "validatingwebhookconfigurations",
                "group": "admissionregistration.k8s.io",
                "name": "another",
            },
        ]
        for attributes in refused:
            answer = await webhook.create(
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {**review, "spec": {"resourceAttributes": attributes}},
            )
            assert not answer["status"]["allowed"], attributes
