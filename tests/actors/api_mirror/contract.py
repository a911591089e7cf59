"""What mirroring relies on from an API server: the one in memory and the real one are held to the same.

``OBJECT`` is an L3VNI with a host session; each promise gets a client and a namespace in which nothing is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.errors import ConflictError, InvalidError, NotFoundError
from config.api import API_VERSION

Promise = Callable[[KubeClient, str], Awaitable[None]]
MANAGER = "openperouter-tests"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "11111111-2222-3333-4444-555555555555"}


def body(namespace: str, **spec: Any) -> Json:
    session = {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "192.0.2.0/24"}}
    metadata = {"name": "red", "namespace": namespace, "ownerReferences": [OWNER], "annotations": {"a": "b"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "L3VNI",
        "metadata": metadata,
        "spec": {"vrf": "red", "vni": 100, "hostSession": session} | spec,
    }


def collection(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/l3vnis"


async def created(client: KubeClient, namespace: str) -> Json:
    return await client.create(collection(namespace), body(namespace), {"fieldManager": MANAGER})


def patch(there: Json, **content: Any) -> Json:
    based_on = {"resourceVersion": there["metadata"]["resourceVersion"]}
    return {"metadata": {**content.pop("metadata", {}), **based_on}, **content}


async def it_sets_defaults_and_keeps_the_rest(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    assert there["spec"] == body(namespace, vxlanPort=4789)["spec"]
    assert there["metadata"]["ownerReferences"] == [OWNER]
    assert there["metadata"]["annotations"] == {"a": "b"}


async def a_name_is_taken_once(client: KubeClient, namespace: str) -> None:
    await created(client, namespace)
    with pytest.raises(ConflictError):
        await created(client, namespace)


async def a_dry_run_distinguishes_a_taken_name_from_an_invalid_object(client: KubeClient, namespace: str) -> None:
    await created(client, namespace)
    with pytest.raises(ConflictError):
        await client.create(collection(namespace), body(namespace), {"dryRun": "All"})
    with pytest.raises(InvalidError) as refused:
        await client.create(collection(namespace), body(namespace, vni=2**24), {"dryRun": "All"})
    assert refused.value.code == 422


async def a_dry_run_creates_nothing(client: KubeClient, namespace: str) -> None:
    await client.create(collection(namespace), body(namespace), {"dryRun": "All"})
    with pytest.raises(NotFoundError):
        await client.get(f"{collection(namespace)}/red")


async def a_patch_changes_what_it_names(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    change = patch(there, metadata={"labels": {"c": "d"}, "annotations": {"a": None}}, spec={"vni": 5})
    after = await client.merge_patch(f"{collection(namespace)}/red", change, manager=MANAGER)
    assert after["spec"] == there["spec"] | {"vni": 5}
    assert after["metadata"]["labels"] == {"c": "d"}
    assert not after["metadata"].get("annotations")
    assert after["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]


async def a_patch_that_changes_nothing_makes_no_version(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    after = await client.merge_patch(f"{collection(namespace)}/red", patch(there, spec={"vni": 100}), manager=MANAGER)
    assert after["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]


async def a_patch_of_an_older_version_is_a_conflict(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    path = f"{collection(namespace)}/red"
    await client.merge_patch(path, patch(there, spec={"vni": 5}), manager=MANAGER)
    with pytest.raises(ConflictError):
        await client.merge_patch(path, patch(there, spec={"vni": 6}), manager=MANAGER)


async def a_patch_of_an_earlier_object_of_that_name_is_a_conflict(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    path = f"{collection(namespace)}/red"
    await client.delete(path)
    await created(client, namespace)
    with pytest.raises(ConflictError):
        await client.merge_patch(path, patch(there, spec={"vni": 6}), manager=MANAGER)


async def a_field_that_must_not_change_is_refused(client: KubeClient, namespace: str) -> None:
    there = await created(client, namespace)
    change = patch(there, spec={"hostSession": {"localCIDR": {"ipv4": "198.51.100.0/24"}}})
    with pytest.raises(InvalidError) as refused:
        await client.merge_patch(f"{collection(namespace)}/red", change, manager=MANAGER)
    assert refused.value.code == 422


async def a_deletion_is_of_that_object_and_version(client: KubeClient, namespace: str) -> None:
    metadata = (await created(client, namespace))["metadata"]
    path = f"{collection(namespace)}/red"
    with pytest.raises(ConflictError):
        await client.delete(path, uid="99999999-2222-3333-4444-555555555555")
    with pytest.raises(ConflictError):
        await client.delete(path, uid=metadata["uid"], resource_version="1")
    await client.delete(path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
    with pytest.raises(NotFoundError):
        await client.delete(path, uid=metadata["uid"])


PROMISES: tuple[Promise, ...] = (
    it_sets_defaults_and_keeps_the_rest,
    a_name_is_taken_once,
    a_dry_run_distinguishes_a_taken_name_from_an_invalid_object,
    a_dry_run_creates_nothing,
    a_patch_changes_what_it_names,
    a_patch_that_changes_nothing_makes_no_version,
    a_patch_of_an_older_version_is_a_conflict,
    a_patch_of_an_earlier_object_of_that_name_is_a_conflict,
    a_field_that_must_not_change_is_refused,
    a_deletion_is_of_that_object_and_version,
)
