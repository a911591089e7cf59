"""The sample of a policy for users' namespaces (packaging/examples), on real API servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest
import trio

from actors.lib.kube.client import KubeClient
from actors.lib.kube.errors import InvalidError
from config.api import API_VERSION, PLURALS
from config.problems import Kind
from tests.cluster.corpus import GOOD
from tests.cluster.harness import MANAGER, PATIENCE, ROOT, ClusterServer, Json, both_versions, kube
from tests.cluster.permissions import NAMESPACE, documents, path_of

SAMPLE = ROOT / "packaging" / "examples" / "namespace-policy.yaml"
SELECTOR = {"nodeSelector": {"matchLabels": {"node-restriction.kubernetes.io/rack": "1"}}}
RANGE = {"openperouter.github.io/first-vni": "1000", "openperouter.github.io/last-vni": "1999"}
ALLOWED: list[tuple[Kind, Json]] = [
    (Kind.L3VNI, {"vrf": "red", "vni": 1000}),
    (Kind.L3VNI, {"vrf": "red", "vni": 1999, "importRTs": ["64512:1001", "192.0.2.1:1002"]}),
    (Kind.L2VNI, {"vni": 1500}),
]
REFUSED: list[tuple[Kind, Json, str]] = [
    (Kind.L3VNI, {"vrf": "red", "vni": 999}, "between 1000 and 1999"),
    (Kind.L2VNI, {"vni": 2000}, "between 1000 and 1999"),
    (Kind.L3VNI, {"vrf": "red", "vni": 1000, "importRTs": ["64512:100"]}, "route target"),
    (Kind.L3VNI, {"vrf": "red", "vni": 1000, "exportRTs": ["64512:1000", "64512:2000"]}, "route target"),
    (Kind.L3VNI, {"vrf": "red", "vni": 1000, "nodeSelector": {}}, "node-restriction"),
    (Kind.UNDERLAY, GOOD[Kind.UNDERLAY][0], "only administrators"),
    (Kind.L3PASSTHROUGH, GOOD[Kind.L3PASSTHROUGH][0], "only administrators"),
    (Kind.RAW_FRR_CONFIG, GOOD[Kind.RAW_FRR_CONFIG][0], "only administrators"),
]


@pytest.fixture
async def admin(server: ClusterServer, system: str, namespace: str) -> AsyncIterator[KubeClient]:
    async with kube(server.admin) as client:
        await client.merge_patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RANGE}}, manager=MANAGER)
        for one in documents(SAMPLE):
            await client.apply(path_of(one), one, manager=MANAGER)
        with trio.fail_after(PATIENCE):
            for number in count():
                if await refusal(client, namespace, Kind.L2VNI, {"vni": 1 + number}) is not None:
                    break
                await trio.sleep(0.1)
        yield client
        for one in documents(SAMPLE):
            await client.delete(path_of(one))


async def refusal(client: KubeClient, namespace: str, kind: Kind, spec: Json) -> str | None:
    body = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"generateName": "x-"}, "spec": spec}
    try:
        await client.create(f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}", body)
    except InvalidError as error:
        return str(error)
    return None


@both_versions
async def test_users_declare_what_their_namespace_has(server: ClusterServer, admin: KubeClient, namespace: str) -> None:
    for kind, spec in ALLOWED:
        assert await refusal(admin, namespace, kind, {**SELECTOR, **spec}) is None
    for kind, spec, reason in REFUSED:
        assert reason in (await refusal(admin, namespace, kind, {**SELECTOR, **spec}) or "")
        # Administrators are not limited.
        assert await refusal(admin, NAMESPACE, kind, spec) is None
    nothing = dict.fromkeys(RANGE)
    await admin.merge_patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": nothing}}, manager=MANAGER)
    with trio.fail_after(PATIENCE):
        # The server's copy of a namespace may be a moment old.
        while await refusal(admin, namespace, ALLOWED[0][0], {**SELECTOR, **ALLOWED[0][1]}) is None:  # noqa: ASYNC110
            await trio.sleep(0.1)
